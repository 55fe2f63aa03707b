package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"time"
)

// maxRead bounds what is read of the log's end, in bytes: some seconds' work, and more than
// somebody who asks as often as they may writes in an hour.
const maxRead = 256 << 20

// Since is the end of the log with all lines that were written at that time or later, and perhaps
// some from before: what a process that was killed has left unfinished. Every line has the member
// "time". A line is good until the next one, and a file that cannot be read any more ends the
// lines.
func (a *Log) Since(when time.Time) (iter.Seq[[]byte], error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		return nil, fmt.Errorf("audit file: %w", a.broken)
	}
	paths, err := earlier(a.dir)
	if err != nil {
		return nil, fmt.Errorf("audit file: %w", err)
	}
	parts := []part{{path: filepath.Join(a.dir, Name), end: a.size}}
	for read := int64(0); ; paths = paths[:len(paths)-1] {
		first := &parts[0]
		all, err := first.since(when)
		if err != nil {
			return nil, fmt.Errorf("audit file: %w", err)
		}
		if read += first.end - first.begin; all || len(paths) == 0 || read >= maxRead {
			break
		}
		before := part{path: paths[len(paths)-1]}
		info, err := os.Stat(before.path)
		if err != nil {
			return nil, fmt.Errorf("audit file: %w", err)
		}
		before.end = info.Size()
		parts = append([]part{before}, parts...)
	}
	return func(yield func([]byte) bool) {
		for _, p := range parts {
			if !p.each(yield) {
				return
			}
		}
	}, nil
}

// part is the end of one file of the log.
type part struct {
	path       string
	begin, end int64
}

// since has a part begin early enough for a time, and reports whether nothing from then on is
// before it.
func (p *part) since(when time.Time) (all bool, err error) {
	for length := int64(64 << 10); ; length *= 4 {
		p.begin = max(0, p.end-length)
		var line struct {
			Time time.Time `json:"time"`
		}
		read := *p
		read.end = min(p.end, p.begin+maxLine*2) // the first line is in it
		if !read.each(func(first []byte) bool {
			all = json.Unmarshal(first, &line) == nil && !line.Time.IsZero() && line.Time.Before(when)
			return false
		}) && all || p.begin == 0 {
			return all, nil
		}
	}
}

// each calls yield with each line that begins in the part, with its end, and reports whether it
// wanted all. What is longer than a line may be is left out.
func (p *part) each(yield func([]byte) bool) bool {
	file, err := os.Open(p.path)
	if err != nil {
		return false
	}
	defer file.Close()
	at := max(0, p.begin-1) // a line that begins right there has the end of another before it
	in := bufio.NewReaderSize(io.NewSectionReader(file, at, p.end-at), 64<<10)
	within := p.begin > 0
	var line []byte
	for {
		line = line[:0]
		long := false
		for {
			text, err := in.ReadSlice('\n')
			if long = long || len(line)+len(text) > maxLine; !long {
				line = append(line, text...)
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if err != nil && len(line) == 0 {
				return errors.Is(err, io.EOF)
			}
			break
		}
		switch {
		case within:
			within = false
		case !long && !yield(line):
			return false
		}
	}
}

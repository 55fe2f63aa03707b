package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// The log is a file of about maxSegment bytes at most, and those that were full before: audit-N.log
// begins with line N. Each but the first begins with a line that says what stands before it, so
// that it can be checked without that.
const (
	maxSegment  = 32 << 20
	maxLine     = 4 << 20
	segmentName = "audit-%012d.log"
)

// Events of the log's own.
const (
	eventCheckpoint = "checkpoint"
	eventSegment    = "segment"
	eventUnsigned   = "audit_unsigned" // lines that a killed gateway had not signed yet
	eventChanged    = "audit_changed"  // lines that are not what was signed
)

// own is a line of the log's own.
type own struct {
	Time       time.Time `json:"time"`
	Event      string    `json:"event"`
	Checkpoint string    `json:"checkpoint,omitempty"`
	Before     *before   `json:"before,omitempty"`
	Lines      int64     `json:"lines,omitempty"`
	Reason     string    `json:"reason,omitempty"`
}

// before is what stands before a segment.
type before struct {
	Lines int64       `json:"lines"`
	Bytes int64       `json:"bytes"`
	Edge  []tlog.Hash `json:"edge"`
}

// ownLine reads a line of the log's own; another has no event.
func ownLine(line []byte) (o own) {
	if bytes.Contains(line, []byte(`"`+eventCheckpoint+`"`)) || bytes.Contains(line, []byte(`"`+eventSegment+`"`)) {
		if json.Unmarshal(line, &o) != nil || o.Event != eventCheckpoint && o.Event != eventSegment {
			return own{}
		}
	}
	return o
}

// earlier are the full segments in a state directory, the oldest first.
func earlier(dir string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if entry.Name() == fmt.Sprintf(segmentName, firstOf(entry.Name())) && entry.Type().IsRegular() {
			paths = append(paths, filepath.Join(dir, entry.Name()))
		}
	}
	slices.Sort(paths)
	return paths, err
}

// firstOf is the first line of a full segment, as its name says.
func firstOf(path string) (line int64) {
	_, _ = fmt.Sscanf(filepath.Base(path), segmentName, &line)
	return line
}

// errLongLine is about a file that this package did not write.
var errLongLine = fmt.Errorf("a line is longer than %d bytes", maxLine)

// eachLine calls do with each line, without its end, and returns what stands after the last one.
func eachLine(file io.Reader, do func(line []byte) error) (rest []byte, err error) {
	in := bufio.NewReaderSize(file, 64<<10)
	var long []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(long)+len(part) > maxLine {
			return nil, errLongLine
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			long = append(long, part...)
			continue
		case err == io.EOF:
			return append(long, part...), nil
		case err != nil:
			return nil, err
		}
		line := part
		if len(long) > 0 {
			line = append(long, part...)
			long = nil
		}
		if err := do(line[:len(line)-1]); err != nil {
			return nil, err
		}
	}
}

// A reader goes through the lines of a log, and holds each checkpoint against what it read until
// then.
type reader struct {
	tree
	key    string // "": signatures are not looked at
	first  int64  // line that is there
	base   int64  // bytes before that
	signed int64  // lines up to the last checkpoint which fits, its own included
	begun  bool
	found  func(problem string) // says what does not fit
}

// line takes a line.
func (r *reader) line(line []byte) error {
	o := ownLine(line)
	if o.Event == eventSegment && o.Before != nil {
		r.joins(o.Before)
	}
	r.begun = true
	signed := o.Event != "" && r.signed == r.size // a file that begins where all is signed
	if o.Event == eventCheckpoint {
		err := r.fits(o.Checkpoint)
		if signed = err == nil; !signed {
			r.found(fmt.Sprintf("lines %d to %d: %v", r.signed, r.size-1, err))
		}
	}
	err := r.add(line)
	if signed {
		r.signed = r.size
	}
	return err
}

// joins holds what a segment says of the lines before it against those.
func (r *reader) joins(b *before) {
	if b.Lines < 0 || len(edgeIndexes(b.Lines)) != len(b.Edge) {
		r.found(fmt.Sprintf("line %d: a segment begins with what cannot be", r.size))
		return
	}
	if edge, err := r.edge(); r.begun && err == nil && b.Lines == r.size && slices.Equal(b.Edge, edge) {
		return
	}
	if r.begun {
		r.found(fmt.Sprintf("line %d: what follows begins after line %d: what stood between is gone, or was changed", r.size, b.Lines-1))
	} else {
		r.first, r.base = b.Lines, b.Bytes
	}
	r.size, r.signed, r.hashes = b.Lines, b.Lines, edgeOf(b.Lines, b.Edge)
}

// fits reports whether a checkpoint is of what was read, and signed.
func (r *reader) fits(signed string) error {
	text, _, _ := strings.Cut(signed, "\n\n")
	c, err := parseCheckpoint(text + "\n")
	if r.key != "" && err == nil {
		c, err = OpenCheckpoint(signed, r.key)
	}
	if err != nil {
		return err
	}
	root, err := r.root()
	if err != nil {
		return err
	}
	if c.Size != r.size || c.Root != root {
		return errors.New("one of them was changed, added or removed: they are not what was signed")
	}
	return nil
}

// lastSegment is the newest of the full ones, or "".
func lastSegment(dir string) string {
	paths, err := earlier(dir)
	if err != nil || len(paths) == 0 {
		return ""
	}
	return paths[len(paths)-1]
}

// readFile takes all lines of a file.
func (r *reader) readFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	defer file.Close()
	rest, err := eachLine(file, r.line)
	if err == nil && len(rest) > 0 {
		err = r.line(rest)
	}
	return err
}

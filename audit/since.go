package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// maxRead bounds what is read of the file's end, in bytes.
const maxRead = 16 << 20

// Since is the end of the log with all lines that were written at that time or later, and perhaps some from before: what a process
// that was killed has left unfinished. Every line has the member "time".
func (a *Log) Since(when time.Time) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		return nil, fmt.Errorf("audit file: %w", a.broken)
	}
	end, all, err := endSince(a.file, a.size, when)
	paths, failed := earlier(a.dir)
	for err = errors.Join(err, failed); err == nil && !all && len(paths) > 0 && len(end) < maxRead; paths = paths[:len(paths)-1] {
		var before []byte
		before, all, err = fileSince(paths[len(paths)-1], when)
		end = append(before, end...)
	}
	if err != nil {
		return nil, fmt.Errorf("audit file: %w", err)
	}
	return end, nil
}

func fileSince(path string, when time.Time) (end []byte, all bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, false, err
	}
	return endSince(file, info.Size(), when)
}

// endSince reports as well whether there is nothing from then on before what it returns.
func endSince(file io.ReaderAt, size int64, when time.Time) (end []byte, all bool, err error) {
	for length := int64(64 << 10); ; length *= 4 {
		begin := max(0, size-min(length, maxRead))
		if end, err = io.ReadAll(io.NewSectionReader(file, begin, size-begin)); err != nil {
			return nil, false, err
		}
		if begin > 0 {
			_, end, _ = bytes.Cut(end, []byte("\n")) // what is left of a line
		}
		first, _, whole := bytes.Cut(end, []byte("\n"))
		var line struct {
			Time time.Time `json:"time"`
		}
		all = whole && json.Unmarshal(first, &line) == nil && !line.Time.IsZero() && line.Time.Before(when)
		if all || begin == 0 || length >= maxRead {
			return end, all || begin > 0, nil
		}
	}
}

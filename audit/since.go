package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// maxRead bounds what is read of the file's end, in bytes.
const maxRead = 16 << 20

// Since is the end of the file with all lines that were written at that time or later, and perhaps some from before: what a process
// that was killed has left unfinished. Every line has the member "time".
func (a *Log) Since(when time.Time) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		return nil, fmt.Errorf("audit file: %w", a.broken)
	}
	for length := int64(64 << 10); ; length *= 4 {
		begin := max(0, a.size-min(length, maxRead))
		end, err := io.ReadAll(io.NewSectionReader(a.file, begin, a.size-begin))
		if err != nil {
			return nil, fmt.Errorf("audit file: %w", err)
		}
		if begin > 0 {
			_, end, _ = bytes.Cut(end, []byte("\n")) // what is left of a line
		}
		first, _, whole := bytes.Cut(end, []byte("\n"))
		var line struct {
			Time time.Time `json:"time"`
		}
		if begin == 0 || length >= maxRead || whole && json.Unmarshal(first, &line) == nil && !line.Time.IsZero() && line.Time.Before(when) {
			return end, nil
		}
	}
}

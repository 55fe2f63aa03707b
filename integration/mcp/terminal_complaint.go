package mcp

import (
	"bytes"
	"io"
	"regexp"
)

// withoutTerminal leaves out what an interactive bash says of its missing terminal whenever a
// signal has ended a command, as that of "yes | head" does. It is no word of any command's, and no
// option of bash's keeps it from saying so.
type withoutTerminal struct {
	to   io.Writer
	held []byte // what may be the beginning of it
}

const (
	complaintBegins = "bash: ["
	maxComplaint    = 256 // bytes; the system's words at its end are in the person's language
)

var complaint = regexp.MustCompile(`^bash: \[\d+: \d+ \(\d+\)\] tcsetattr: [^\n]*$`)

func (w *withoutTerminal) Write(p []byte) (int, error) {
	text := p
	if len(w.held) > 0 {
		text = append(w.held, p...)
		w.held = nil
	}
	for {
		begin := bytes.Index(text, []byte(complaintBegins))
		if begin < 0 {
			begin = len(text) - beginning(text)
		}
		w.to.Write(text[:begin])
		if text = text[begin:]; len(text) == 0 {
			return len(p), nil
		}
		line, _, whole := bytes.Cut(text[:min(len(text), maxComplaint)], []byte("\n"))
		switch {
		case !whole && len(text) < maxComplaint:
			w.held = bytes.Clone(text)
			return len(p), nil
		case whole && complaint.Match(line):
			text = text[len(line)+1:]
		default:
			w.to.Write(text[:1])
			text = text[1:]
		}
	}
}

// beginning is how many bytes at the end of a text may begin a complaint.
func beginning(text []byte) int {
	for n := min(len(text), len(complaintBegins)-1); n > 0; n-- {
		if bytes.HasSuffix(text, []byte(complaintBegins[:n])) {
			return n
		}
	}
	return 0
}

// flush passes on what was held.
func (w *withoutTerminal) flush() {
	w.to.Write(w.held)
	w.held = nil
}

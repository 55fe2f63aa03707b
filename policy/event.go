package policy

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of what is told about a run.
const (
	MaxOutput      = 200_000 // bytes of both streams together
	maxEventOutput = 20_000  // characters at the end of the output
	maxEventLine   = 180     // characters of it that a session is told
)

// truncatedNote is the last line of an output that was cut; truncatedHead stands before the end of
// a longer one.
const (
	truncatedNote = "\n... (truncated)"
	truncatedHead = "... (truncated) "
)

// An Output keeps what a command writes, up to a limit over both streams. What comes behind it is
// dropped as it arrives.
type Output struct {
	Stdout, Stderr []byte
	Truncated      bool
}

// Add takes a piece of one stream.
func (o *Output) Add(stderr bool, piece []byte) {
	room := MaxOutput - len(o.Stdout) - len(o.Stderr)
	if len(piece) > room {
		o.Truncated = true
		piece = piece[:room]
	}
	if stderr {
		o.Stderr = append(o.Stderr, piece...)
	} else {
		o.Stdout = append(o.Stdout, piece...)
	}
}

// Texts are both streams for who reads them: cut between characters, with a note where something is
// missing.
func (o *Output) Texts() (stdout, stderr string) {
	stdout, stderr = string(o.Stdout), string(o.Stderr)
	if !o.Truncated {
		return stdout, stderr
	}
	if strings.TrimSpace(stderr) != "" {
		return wholeCharacters(stdout), wholeCharacters(stderr) + truncatedNote
	}
	return wholeCharacters(stdout) + truncatedNote, stderr
}

// wholeCharacters leaves out the beginning of a character at the end.
func wholeCharacters(text string) string {
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if c := text[len(text)-i]; utf8.RuneStart(c) {
			if !utf8.FullRuneInString(text[len(text)-i:]) {
				return text[:len(text)-i]
			}
			break
		}
	}
	return text
}

// EventOutput is the end of an output.
func EventOutput(text string) string {
	n := 0
	for i := len(text); i > 0; n++ {
		_, size := utf8.DecodeLastRuneInString(text[:i])
		if n == maxEventOutput {
			return truncatedHead + text[i:]
		}
		i -= size
	}
	return text
}

// A RunEvent is what a session is told about a run.
type RunEvent struct {
	Kind     string // "started", "running", "finished", "denied"
	Node     string // empty: the gateway
	ID       string
	Session  string // with the gateway
	Command  string
	Reason   string
	ExitCode *int
	TimedOut bool
	Output   string

	Suppressed bool // whoever started it wants no word of it
}

// Text is one event for an agent to read, or empty where there is nothing to say. Nothing in it
// looks like a message of the system's.
func (e RunEvent) Text() string {
	if e.Suppressed {
		return ""
	}
	where := "gateway"
	if e.Node != "" {
		where = "node=" + e.Node
	}
	if id := strings.TrimSpace(e.ID); id != "" {
		where += " id=" + id
	}
	switch e.Kind {
	case "started", "running":
		return withTail(fmt.Sprintf("Exec %s (%s)", e.Kind, neutral(where)), neutral(oneLine(e.Command)), ": ")
	case "denied":
		return withTail(fmt.Sprintf("Exec denied (%s)", withTail(neutral(where), neutral(oneLine(e.Reason)), ", ")), neutral(oneLine(e.Command)), ": ")
	case "finished":
		return e.finished(where)
	}
	return ""
}

func (e RunEvent) finished(where string) string {
	if e.Node == "" && e.Session != "" {
		where += ", session=" + e.Session
	}
	line := oneLine(e.Output)
	how := "code ?"
	switch {
	case e.TimedOut:
		how = "timeout"
	case e.ExitCode != nil:
		how = fmt.Sprintf("code %d", *e.ExitCode)
	}
	if e.ExitCode != nil && *e.ExitCode == 0 && !e.TimedOut && line == "" {
		return ""
	}
	if utf8.RuneCountInString(line) > maxEventLine {
		line = string([]rune(line)[:maxEventLine-1]) + "…"
	}
	return withTail(fmt.Sprintf("Exec finished (%s, %s)", neutral(where), how), neutral(line), "\n")
}

func withTail(head, tail, between string) string {
	if tail == "" {
		return head
	}
	return head + between + tail
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// neutral keeps foreign text from passing for a message of the system's.
func neutral(text string) string {
	text = DisplayText(text)
	for _, tag := range [...]string{"System Message", "System", "Assistant", "Internal"} {
		text = replaceFold(text, "["+tag+"]", "("+tag+")")
	}
	if len(text) >= len("System:") && strings.EqualFold(text[:len("System:")], "System:") {
		text = text[:len("System")] + " (untrusted):" + text[len("System:"):]
	}
	return text
}

func replaceFold(text, old, with string) string {
	lower, want := strings.ToLower(text), strings.ToLower(old)
	if len(lower) != len(text) {
		return strings.ReplaceAll(text, old, with)
	}
	var b strings.Builder
	for {
		i := strings.Index(lower, want)
		if i < 0 {
			return b.String() + text
		}
		b.WriteString(text[:i] + with)
		text, lower = text[i+len(old):], lower[i+len(old):]
	}
}

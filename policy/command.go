package policy

import "strings"

// CommandText is argv as one line for people. It is no shell line: nothing may execute it.
func CommandText(argv []string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		if word == "" || strings.ContainsAny(word, " \t\n\r\v\f\"") {
			word = `"` + strings.ReplaceAll(word, `"`, `\"`) + `"`
		}
		words[i] = word
	}
	return strings.Join(words, " ")
}

// A CommandRequest is a command as a node is told it: words, and perhaps the text that a person was
// shown.
type CommandRequest struct {
	Argv    []string
	Text    string // CommandText of Argv
	Payload string // the line, if it is a shell with -c
	Shell   bool   // it is
	Preview string // the line, if nothing but the line runs
}

// A MismatchError says that a text is not that of the words it came with: a person would approve
// another command.
type MismatchError struct{ Raw, Inferred string }

func (e *MismatchError) Error() string { return "INVALID_REQUEST: rawCommand does not match command" }

// A MissingCommandError says that a request has a text and no words to run.
type MissingCommandError struct{}

func (MissingCommandError) Error() string { return "rawCommand requires params.command" }

// newCommandRequest holds a text against the words. Older senders put a shell's line in its place,
// where nothing but the line runs.
func newCommandRequest(argv []string, raw string, lineAccepted bool) (CommandRequest, error) {
	raw = strings.TrimSpace(raw)
	if len(argv) == 0 {
		if raw != "" {
			return CommandRequest{}, MissingCommandError{}
		}
		return CommandRequest{}, nil
	}
	r := CommandRequest{Argv: argv, Text: CommandText(argv)}
	r.payload()
	if raw == "" || raw == r.Text || lineAccepted && r.Preview != "" && raw == r.Preview {
		return r, nil
	}
	return CommandRequest{}, &MismatchError{raw, r.Text}
}

// payload finds the line of a shell, also behind an env that changes the environment: it is shown,
// and never accepted for the words.
func (r *CommandRequest) payload() {
	u := Unwrap(r.Argv)
	changed := false
	if u.Blocked == "env" && len(u.Wrappers) == 0 {
		if rest := behindAssignments(u.Argv); rest != nil {
			u, changed = Unwrap(rest), true
		}
	}
	if u.Blocked != "" || len(u.Argv) == 0 || !isShell(baseOf(u.Argv[0])) {
		return
	}
	use := shellUse(baseOf(u.Argv[0]), u.Argv)
	if !use.Inline {
		return
	}
	r.Shell, r.Payload = true, use.Payload
	if use.Operands == 0 && !changed {
		r.Preview = strings.TrimSpace(use.Payload)
	}
}

// behindAssignments is the command behind "env NAME=value…".
func behindAssignments(argv []string) []string {
	i := 1
	for i < len(argv) && !strings.HasPrefix(argv[i], "-") && strings.Contains(argv[i], "=") {
		i++
	}
	if i == 1 || i >= len(argv) {
		return nil
	}
	return argv[i:]
}

// safeExecutableValue says whether a configured program's name is a name or a path, and nothing
// that a shell would take apart.
func safeExecutableValue(value string) bool {
	value = strings.TrimSpace(value)
	if value == "" || strings.ContainsAny(value, ";&|`$<>\"'\\\r\n\x00(){}*?[]!#") || hasHidden(value) {
		return false
	}
	if strings.HasPrefix(value, "-") {
		return false
	}
	return strings.ContainsAny(value, "/~") || plain(value, "._+-")
}

func hasHidden(text string) bool { return DisplayText(text) != text }

// A Preview is what a prompt shows of a command.
type preview struct {
	Text    string
	Preview string // the same, shorter, or empty
}

// newPreview is what a prompt shows: text and shorter text, with what cannot be seen made visible.
func newPreview(text, shorter string) preview {
	p := preview{DisplayText(text), DisplayText(strings.TrimSpace(shorter))}
	if p.Preview == p.Text || p.Preview == DisplayText(strings.TrimSpace(text)) {
		p.Preview = ""
	}
	return p
}

// ApproveCommand is what somebody typed: /approve ID DECISION.
type ApproveCommand struct {
	ID     string
	Answer Answer
}

// An ApproveUsageError says how an answer is typed.
type ApproveUsageError struct{}

func (ApproveUsageError) Error() string {
	return "Usage: /approve <id> <decision> (see the pending approval message for available decisions)"
}

// A ForeignError says that a line such as /approve@NAME was for another bot than this.
type ForeignError struct{ Name string }

func (e ForeignError) Error() string {
	return "❌ This " + e.Name + " command targets a different Telegram bot."
}

// ParseApprove reads a chat's line. Without ok it is no /approve at all. Whether whoever typed it
// may answer is for the caller: an agent may not.
func ParseApprove(text string) (_ ApproveCommand, ok bool, _ error) {
	words := strings.Fields(strings.TrimSpace(text))
	if len(words) == 0 {
		return ApproveCommand{}, false, nil
	}
	name := strings.ToLower(words[0])
	if strings.HasPrefix(name, "/approve@") && len(name) > len("/approve@") {
		return ApproveCommand{}, true, ForeignError{"/approve"}
	}
	if name != "/approve" && name != "approve" {
		return ApproveCommand{}, false, nil
	}
	words = words[1:]
	if len(words) < 2 {
		return ApproveCommand{}, true, ApproveUsageError{}
	}
	if answer, ok := spokenAnswer(words[0]); ok {
		return ApproveCommand{strings.Join(words[1:], " "), answer}, true, nil
	}
	if answer, ok := spokenAnswer(words[1]); ok {
		return ApproveCommand{words[0], answer}, true, nil
	}
	return ApproveCommand{}, true, ApproveUsageError{}
}

func spokenAnswer(word string) (Answer, bool) {
	switch strings.ToLower(word) {
	case "allow", "once", "allow-once", "allowonce":
		return AnswerAllowOnce, true
	case "always", "allow-always", "allowalways":
		return AnswerAllowAlways, true
	case "deny", "reject", "block":
		return AnswerDeny, true
	}
	return AnswerDeny, false
}

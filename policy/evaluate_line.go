package policy

import (
	"maps"
	"slices"
	"strings"
)

// EvaluateLine holds a shell line against the lists.
func EvaluateLine(m *Machine, l *Lists, line, cwd string) *Evaluation {
	segments, refusal := l.read(m, line, cwd)
	if refusal != nil {
		return &Evaluation{Refusal: refusal, Opaque: true}
	}
	result := (&evaluator{machine: m, lists: l, cwd: cwd}).line(segments)
	if result.Satisfied {
		segments, refusal := l.read(m, result.Command, cwd)
		result.checkAgain(m, l, segments, refusal, cwd)
	}
	return result
}

// read takes a line apart.
func (l *Lists) read(m *Machine, line, cwd string) ([]Segment, *Refusal) {
	if l.Resolve {
		return resolveLine(m, line, cwd)
	}
	return ParseLine(line)
}

// EvaluateArgv holds one command that no shell will read against the lists.
func EvaluateArgv(m *Machine, l *Lists, argv []string, cwd string) *Evaluation {
	size := 0
	for _, word := range argv {
		size += len(word) + 1
		if strings.IndexByte(word, 0) >= 0 {
			return &Evaluation{Refusal: &Refusal{"a zero byte", 0}, Opaque: true}
		}
	}
	switch {
	case len(argv) == 0 || argv[0] == "":
		return &Evaluation{Refusal: &Refusal{"a line without a command", 0}, Opaque: true}
	case size > MaxLine || len(argv) > maxWords:
		return &Evaluation{Refusal: &Refusal{"a line of so many words", 0}, Opaque: true}
	}
	result := (&evaluator{machine: m, lists: l, cwd: cwd}).line([]Segment{{Argv: argv}})
	if result.Satisfied {
		result.checkAgain(m, l, []Segment{{Argv: result.Argv}}, nil, cwd)
	}
	return result
}

func (e *evaluator) line(segments []Segment) *Evaluation {
	result := &Evaluation{Satisfied: true, Durable: true, Commands: make([]*Command, 0, len(segments))}
	for i, s := range segments {
		c := e.segment(s, 0)
		c.piped = i > 0 && segments[i-1].Operator == Pipe
		if s.HereDocument {
			result.HereDocument, c.By, c.Why = true, ByNothing, "its input stands in the line: a person reads it first"
		}
		result.Commands = append(result.Commands, c)
		result.Satisfied = result.Satisfied && c.By != ByNothing
		result.Durable = result.Durable && c.By != ByNothing && c.Durable
		result.collect(c)
	}
	if result.Denied != nil {
		result.Satisfied, result.Durable = false, false
	}
	if result.Satisfied {
		result.Command = joined(result.Commands)
		if len(result.Commands) == 1 && result.Commands[0].isPlain() {
			result.Argv = result.Commands[0].rebuilt
		}
	}
	return result
}

// segment looks at one command of a line, where it is done.
func (e *evaluator) segment(s Segment, depth int) *Command {
	if s.Dir != "" && s.Dir != e.cwd {
		e.cwd, e.found = s.Dir, nil
	}
	var c *Command
	if s.shell {
		c = &Command{Argv: s.Argv, inner: s.Argv, rebuilt: s.Argv, By: ByShell, Durable: true, Why: "the shell does it, and no more than it says"}
	} else {
		e.env = e.lists.environment(s.Assigns)
		c = e.command(s.Argv, depth, growth{})
		e.around(c, s)
	}
	c.Operator, c.segment, c.cwd = s.Operator.String(), s, e.cwd
	return c
}

// environment is the hash of what is set for a command: by the request, and in the line.
func (l *Lists) environment(assigns []string) string {
	if len(assigns) == 0 && len(l.Overrides) == 0 {
		return ""
	}
	env := maps.Clone(l.Overrides)
	if env == nil {
		env = map[string]string{}
	}
	for _, a := range assigns {
		name, value, _ := strings.Cut(a, "=")
		env[name] = value
	}
	hash, _ := hashEnvironment(env)
	return hash
}

// around looks at what a line gives a command beside its words.
func (e *evaluator) around(c *Command, s Segment) {
	switch {
	case c.Denied != nil || c.By == ByNothing:
	case s.Here != nil && !readsData(c):
		c.By, c.Durable, c.Why = ByNothing, false, "its input stands in the line, and is more than data for it"
	case len(s.Assigns) > 0 && len(c.Wrappers) > 0:
		c.By, c.Durable, c.Why = ByNothing, false, "a variable is set for a program that starts another"
	}
}

// dataReaders are programs to which their input is text, and no more.
var dataReaders = wordSet(`cat grep egrep fgrep rg sed awk gawk mawk jq wc sort uniq head tail tr cut nl tac rev fold fmt column paste comm diff cmp tee
	md5sum sha1sum sha256sum sha512sum cksum base64 base32 xxd od hexdump strings expand unexpand numfmt python node perl ruby php lua`)

// readsData says whether the input of a command is data. An interpreter without a script is asked
// about anyway.
func readsData(c *Command) bool {
	if c.shell || c.opaque {
		return false
	}
	word, real := c.Executable.names()
	for _, base := range [...]string{word, real} {
		if !slices.ContainsFunc(canonicalNames(base), func(name string) bool { return dataReaders[name] }) {
			return len(c.inner) > 2 && base == "git" && c.inner[1] == "commit"
		}
	}
	return true
}

// isPlain says whether a command is its words and nothing else, so that no shell is needed.
func (c *Command) isPlain() bool {
	s := c.segment
	return !s.shell && !s.Negated && len(s.Assigns) == 0 && len(s.Redirs) == 0 && s.Here == nil
}

// collect gathers what counts for the whole line.
func (r *Evaluation) collect(c *Command) {
	if c.Denied != nil && r.Denied == nil {
		r.Denied = c.Denied
	}
	r.Opaque = r.Opaque || c.opaque
	if c.Inline != nil {
		r.Inline = append(r.Inline, *c.Inline)
	}
	for _, inner := range c.Inner {
		r.collect(inner)
	}
}

// joined is the line built anew. The texts of here documents stand behind it.
func joined(commands []*Command) string {
	var b, documents strings.Builder
	for i, c := range commands {
		if i > 0 {
			b.WriteString(" " + commands[i-1].Operator + " ")
		}
		s := c.segment
		if s.Negated {
			b.WriteString("! ")
		}
		for _, assign := range s.Assigns {
			name, value, _ := strings.Cut(assign, "=")
			b.WriteString(name + "=" + quote(value) + " ")
		}
		if s.shell {
			b.WriteString(s.Argv[0])
			for _, word := range s.Argv[1:] {
				b.WriteString(" " + quote(word))
			}
		} else {
			appendQuoted(&b, c.rebuilt)
		}
		for _, redirect := range s.Redirs {
			b.WriteString(" " + redirect)
		}
		if s.leaves {
			b.WriteString(" || exit 1")
		}
		if s.Here != nil {
			end := delimiterFor(*s.Here)
			b.WriteString(" <<'" + end + "'")
			documents.WriteString("\n" + *s.Here + end)
		}
	}
	return b.String() + documents.String()
}

// delimiterFor is a word that is no line of a text.
func delimiterFor(text string) string {
	for end := "END"; ; end += "_" {
		if !strings.Contains("\n"+text, "\n"+end+"\n") {
			return end
		}
	}
}

// checkAgain reads the line that was built: it must hold the very words that were meant, and be
// allowed itself.
func (r *Evaluation) checkAgain(m *Machine, l *Lists, segments []Segment, refusal *Refusal, cwd string) {
	ok := refusal == nil && len(segments) == len(r.Commands)
	for i := 0; ok && i < len(segments); i++ {
		c := r.Commands[i]
		s, meant := segments[i], c.segment
		ok = equalWords(s.Argv, c.rebuilt) && s.Operator.String() == c.Operator && s.Dir == meant.Dir && s.Negated == meant.Negated && s.shell == meant.shell && s.leaves == meant.leaves &&
			equalWords(s.Assigns, meant.Assigns) && equalWords(s.Redirs, meant.Redirs) && (s.Here == nil) == (meant.Here == nil) && (s.Here == nil || *s.Here == *meant.Here)
	}
	if ok {
		again := (&evaluator{machine: m, lists: l, cwd: cwd, again: true}).line(segments)
		ok = again.Satisfied && again.Command == r.Command
	}
	if ok {
		return
	}
	r.Satisfied, r.Durable, r.Command, r.Argv = false, false, "", nil
	for _, c := range r.Commands {
		c.By, c.Why = ByNothing, "the line built anew is not allowed as it stands"
	}
}

func equalWords(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

package policy

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// A By is why a command of a line needs no answer of a person. The zero value is: it does.
type By uint8

const (
	ByNothing By = iota
	ByAllowlist
	BySafeBins
	BySkills
	ByPayload // a shell's line, of which each command is allowed
	ByShell   // the shell does it itself, and it does no more than its words say
)

var byNames = [...]string{"", "allowlist", "safeBins", "skills", "payload", "shell"}

func (b By) String() string               { return nameOf(byNames[:], uint8(b)) }
func (b By) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// A Skill is a program that the gateway installed for an agent.
type Skill struct {
	Name         string `json:"name"`
	ResolvedPath string `json:"resolvedPath"`
}

// Lists are what one agent's commands are held against. Make them once with NewLists: the entries are compiled.
type Lists struct {
	Problems []string // entries that do nothing, and why
	SafeBins SafeBins
	Skills   []Skill // none unless they are allowed automatically

	// Resolve has lines read by ResolveLine. Without, they are lists of commands with literal words.
	Resolve bool

	// Overrides are the variables of the request: an answer that was given for good was given with its own.
	Overrides map[string]string

	allow ruleSet
	deny  []rule
}

// NewLists compiles an agent's entries.
func NewLists(m *Machine, allow, deny []Entry, caseInsensitive bool) *Lists {
	l := &Lists{}
	var rules []rule
	rules, l.Problems = compile(allow, m.Home, caseInsensitive)
	l.allow = newRuleSet(rules)
	var problems []string
	l.deny, problems = compile(deny, m.Home, caseInsensitive)
	leadTo(l.deny, m)
	l.Problems = append(l.Problems, problems...)
	return l
}

// A Command is what became of one command of a line.
type Command struct {
	Argv       []string   `json:"argv" jsonschema:"the words"`
	Operator   string     `json:"joint,omitempty" jsonschema:"the operator behind it"`
	Wrappers   []string   `json:"wrappers,omitempty" jsonschema:"programs that were looked through"`
	Executable Executable `json:"executable" jsonschema:"what the first word leads to"`
	Script     string     `json:"script,omitempty" jsonschema:"the script that a shell is to read"`
	By         By         `json:"by" jsonschema:"why it needs no answer; empty: it does"`
	Durable    bool       `json:"durable,omitempty" jsonschema:"by an answer that a person gave for good"`
	Entry      *Entry     `json:"entry,omitempty" jsonschema:"the entry that allows it"`
	Denied     *Entry     `json:"denied,omitempty" jsonschema:"the deny entry that forbids it"`
	Inline     *Inline    `json:"inline,omitempty" jsonschema:"code in the arguments"`
	Inner      []*Command `json:"inner,omitempty" jsonschema:"the commands of a shell's line, or carried in the arguments"`
	Why        string     `json:"why" jsonschema:"the same, for a person"`

	segment  Segment
	cwd      string   // where it is done
	env      string   // the hash of what is set for it
	contents string   // the hash of what its files of code hold
	piped    bool     // what another command prints is its input
	inner    []string // argv without wrappers
	rebuilt  []string
	opaque   bool // it may run what was not looked at

	shell    bool
	scriptAt int // in inner

	growth  growth
	reads   []string // files of code, by the words that name them
	unbound bool     // it may run code that is in none of them
}

// An Evaluation is what a line's commands are, and whether all of them are allowed.
type Evaluation struct {
	Commands     []*Command `json:"commands" jsonschema:"each command of the line"`
	Refusal      *Refusal   `json:"refusal,omitempty" jsonschema:"why the line is not understood"`
	Satisfied    bool       `json:"satisfied" jsonschema:"every command is allowed"`
	Durable      bool       `json:"durable" jsonschema:"every command by an answer that was given for good"`
	HereDocument bool       `json:"hereDocument,omitempty" jsonschema:"text of the line is a command's input"`
	Command      string     `json:"command,omitempty" jsonschema:"the line built anew, where all is allowed"`
	Argv         []string   `json:"argv,omitempty"` // the same for one command alone
	Denied       *Entry     `json:"denied,omitempty" jsonschema:"the deny entry that forbids it"`
	Opaque       bool       `json:"opaque,omitempty" jsonschema:"something may run that was not looked at"`
	Inline       []Inline   `json:"inline,omitempty" jsonschema:"code in the arguments"`

	env, contents string // hashes, for an answer that is given for good
}

// remember notes what an answer that is given for good would be given with.
func (r *Evaluation) remember(m *Machine, l *Lists, request Request) {
	r.env, r.contents = l.environment(nil), r.content(m, request.text(), request.Cwd)
	for _, c := range r.Commands {
		c.remember(m)
	}
}

func (c *Command) remember(m *Machine) {
	files, _ := c.files(m)
	c.contents = contentOf(files)
	for _, inner := range c.Inner {
		inner.remember(m)
	}
}

type evaluator struct {
	machine *Machine
	lists   *Lists
	cwd     string
	again   bool   // the words are those that were built, and no longer those that were sent
	env     string // the hash of the variables that are set for the command at hand
	found   []found
}

// found is what a word led to: within one evaluation, every look at it gives the same answer.
type found struct {
	word string
	exec Executable
	err  error
}

func (e *evaluator) find(word string) (Executable, error) {
	for i := range e.found {
		if e.found[i].word == word {
			return e.found[i].exec, e.found[i].err
		}
	}
	exec, err := e.machine.Find(word, e.cwd)
	e.found = append(e.found, found{word, exec, err})
	return exec, err
}

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
		return ResolveLine(m, line, cwd)
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
	hash, _ := HashEnvironment(env)
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

// readsData says whether the input of a command is data. An interpreter without a script is asked about anyway.
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
			b.WriteString(name + "=" + Quote(value) + " ")
		}
		if s.shell {
			b.WriteString(s.Argv[0])
			for _, word := range s.Argv[1:] {
				b.WriteString(" " + Quote(word))
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

// checkAgain reads the line that was built: it must hold the very words that were meant, and be allowed itself.
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

// command looks at one command, which may get more arguments while it runs.
func (e *evaluator) command(argv []string, depth int, g growth) *Command {
	c := &Command{Argv: argv, inner: argv, growth: g, cwd: e.cwd, env: e.env}
	grows := g.any()
	if depth > 2 {
		c.Why, c.opaque = "it is nested too deep", true
		return c
	}
	u := unwrap(argv, e.realName)
	if u.Blocked != "" {
		u.Policy = u.Argv
	}
	c.Wrappers, c.inner = u.Wrappers, u.Policy
	if u.Blocked != "" && !(isMultiplexer(u.Blocked) && len(u.Policy) == len(argv)) {
		c.Why, c.opaque = fmt.Sprintf("%s: %s", u.Blocked, u.Why), true
		e.denyAnyWord(c, argv)
		return c
	}
	e.denyWrappers(c, u)
	exec, err := e.find(u.Policy[0])
	c.Executable = exec
	if r := denies(e.lists.deny, e.machine, e.use(exec, u.Policy[1:], grows)); r != nil {
		c.deny(r)
	}
	if err != nil {
		if name := baseOf(u.Policy[0]); isShell(name) && c.Denied == nil { // for the deny list, and for who reads
			e.shell(c, shellUse(name, u.Policy), exec, depth, grows)
		}
		if c.Denied == nil {
			c.By, c.Durable, c.Why = ByNothing, false, err.Error()
		}
		return c
	}
	if u.Blocked != "" || len(u.Policy) != len(u.Argv) || isMultiplexer(baseOf(exec.Real)) {
		e.multiplexed(c, u, exec, grows)
		return c
	}
	if name := shellName(exec); name != "" {
		e.shell(c, shellUse(name, u.Policy), exec, depth, grows)
	} else {
		e.program(c, exec, depth, grows)
	}
	e.wrapped(c, u)
	return c
}

// realName is the base name of what a word leads to, so that a link to a wrapper counts as the wrapper.
func (e *evaluator) realName(word string) string {
	exec, err := e.find(word)
	if err != nil {
		return ""
	}
	return exec.Real
}

func shellName(exec Executable) string {
	word, real := exec.names()
	for _, base := range [...]string{real, word} {
		for _, name := range canonicalNames(base) {
			if isShell(name) {
				return name
			}
		}
	}
	return ""
}

func (c *Command) deny(r *rule) {
	entry := r.Entry
	c.Denied, c.By, c.Why = &entry, ByNothing, fmt.Sprintf("the deny entry %s forbids it", Quote(entry.Pattern))
}

// denyAnyWord holds every word of a command that is not understood against the deny list: any may be what runs.
func (e *evaluator) denyAnyWord(c *Command, argv []string) {
	if len(e.lists.deny) == 0 {
		return
	}
	for i := range argv {
		word := argv[i]
		if _, value, ok := strings.Cut(word, "="); ok && strings.HasPrefix(word, "-") {
			word = value
		}
		exec, err := e.find(word)
		if err != nil {
			exec = Executable{Word: word}
		}
		if r := denies(e.lists.deny, e.machine, e.use(exec, argv[i+1:], false)); r != nil {
			c.deny(r)
			return
		}
	}
}

func (e *evaluator) denyWrappers(c *Command, u Unwrapped) {
	for _, words := range u.Outer {
		exec, err := e.find(words[0])
		if err != nil {
			exec = Executable{Word: words[0]}
		}
		if r := denies(e.lists.deny, e.machine, e.use(exec, words[1:], true)); r != nil {
			c.deny(r)
			return
		}
	}
}

// multiplexed is busybox or toybox. An entry for its path would allow all that it can do, so only an entry whose argument
// pattern names the applet counts, and never for a shell.
func (e *evaluator) multiplexed(c *Command, u Unwrapped, exec Executable, grows bool) {
	c.opaque = true
	e.denyAnyWord(c, c.inner)
	if c.Denied != nil {
		return
	}
	c.Why = "busybox and toybox do what their argument says: only an entry with an argument pattern allows an applet"
	applet := baseOf(exec.Word)
	if isMultiplexer(applet) && len(c.inner) > 1 {
		applet = c.inner[1]
	}
	if isShell(applet) || isWrapper(applet) || interpreter(familyOf(applet)) || baseOf(exec.Word) != baseOf(exec.Real) {
		return
	}
	r := match(&e.lists.allow, e.machine, e.use(exec, c.inner[1:], grows))
	if r != nil && r.hasArgs && len(u.Outer) == 0 {
		c.opaque = false
		c.allow(ByAllowlist, r)
		c.Inline = understand([]string{applet}, c.inner[slices.Index(c.inner, applet):], e.circumstance(c)).inline
		c.rebuilt = append([]string{exec.Real}, c.inner[1:]...)
	}
}

func (c *Command) allow(by By, r *rule) {
	if c.Denied != nil {
		return
	}
	c.By = by
	switch by {
	case ByAllowlist:
		entry := r.Entry
		c.Entry, c.Durable = &entry, r.durable()
		c.Why = fmt.Sprintf("the entry %s allows it", Quote(entry.Pattern))
	case BySafeBins:
		c.Why = "it reads only its standard input"
	case BySkills:
		c.Why = "it is a skill's program"
	case ByPayload:
		c.Why = "every command of its line is allowed"
	default:
		c.By = ByNothing
	}
}

// program is a command that is no shell.
func (e *evaluator) program(c *Command, exec Executable, depth int, grows bool) {
	args := c.inner[1:]
	word, real := exec.names()
	c.rebuilt = append([]string{exec.Real}, args...)
	u := understand([]string{word, real}, c.inner, e.circumstance(c))
	c.reads, c.unbound = u.reads, !u.fixed
	r := match(&e.lists.allow, e.machine, e.bound(c, exec, args, grows))
	switch {
	case c.Denied != nil:
	case r != nil:
		c.allow(ByAllowlist, r)
	case !grows && e.lists.SafeBins.Allows(c.inner, exec, e.machine.trusts(exec.Real)):
		c.allow(BySafeBins, nil)
	case !grows && e.skill(exec):
		c.allow(BySkills, nil)
	default:
		c.Why = fmt.Sprintf("no entry allows %s", exec.Real)
	}
	if c.By != ByNothing && !sameByName(word, real) {
		c.By, c.Durable = ByNothing, false
		c.Why = fmt.Sprintf("it is %s under the name of %s: called by its own name, as what runs is, it may do something else", real, word)
	}
	for _, name := range [...]string{word, real} {
		if carrier := isCarrier(name); carrier != "" {
			e.carry(c, carrier, depth)
			return
		}
	}
	c.Inline = u.inline
	if u.inline != nil && u.inline.Flag == "<command>" {
		e.denyAnyWord(c, c.inner[1:])
	}
}

// sameByName says whether a program does the same under the name of a link as under its own: python3 and python3.11, awk and mawk. xz
// under the name of unxz does not, nor does what has a hundred names.
func sameByName(link, real string) bool {
	return strings.HasPrefix(real, link) || strings.HasSuffix(real, link)
}

// circumstance is what surrounds a command, beside its words.
func (e *evaluator) circumstance(c *Command) circumstance {
	return circumstance{growth: c.growth, special: func(word string) bool {
		if !filepath.IsAbs(word) {
			word = e.cwd + "/" + word
		}
		kind, err := e.machine.Files.Stat(word)
		return err == nil && kind == FileOther
	}}
}

// skill says whether a bare name led to a program of a skill, and to that very file.
func (e *evaluator) skill(exec Executable) bool {
	for _, s := range e.lists.Skills {
		if (e.again || s.Name == exec.Word) && (s.ResolvedPath == exec.Real || s.ResolvedPath == exec.Path && exec.Path == exec.Real) {
			return true
		}
	}
	return false
}

// carry looks at the commands in the arguments of find and xargs: each must be allowed by itself.
func (e *evaluator) carry(c *Command, name string, depth int) {
	list, own, ok := carriedCommands(name, c.inner)
	if !ok {
		c.By, c.opaque, c.Why = ByNothing, true, "the command that it would run is not clear"
		e.denyAnyWord(c, c.inner)
		return
	}
	c.Inline = understand([]string{name}, own, e.circumstance(c)).inline
	shift := 0
	for _, part := range list {
		inner := e.command(c.inner[part.from:part.to], depth+1, part.grows)
		c.Inner = append(c.Inner, inner)
		switch {
		case inner.Denied != nil:
			c.Denied, c.By, c.Why = inner.Denied, ByNothing, inner.Why
		case inner.By == ByNothing || inner.By == ByPayload:
			c.By, c.Why = ByNothing, "the command that it would run is not allowed: "+inner.Why
		default:
			c.Durable = c.Durable && inner.Durable
			at := part.from + shift
			words := append(append([]string{}, c.rebuilt[:at]...), inner.rebuilt...)
			c.rebuilt = append(words, c.rebuilt[at+part.to-part.from:]...)
			shift += len(inner.rebuilt) - (part.to - part.from)
		}
	}
}

// shell is a command that starts a shell. No entry for the shell's own path allows what it is told to do.
func (e *evaluator) shell(c *Command, use ShellUse, exec Executable, depth int, grows bool) {
	c.shell, c.scriptAt = true, use.Script
	switch {
	case c.Denied != nil:
	case use.Inline:
		e.payload(c, use, depth, grows)
	case use.Script == 0 || use.Unclear:
		c.Why, c.opaque = use.Name+" would read its commands from its input, or has flags that change what it reads", true
		e.denyAnyWord(c, c.inner)
	default:
		e.script(c, use, exec, grows)
	}
}

// payload is the line behind -c. It counts where it is a list of commands, each of which is allowed, and where nothing but the
// line decides what runs. A shell around a single command only hides it: the command alone is what an entry is for.
func (e *evaluator) payload(c *Command, use ShellUse, depth int, grows bool) {
	segments, refusal := e.lists.read(e.machine, use.Payload, e.cwd)
	if refusal != nil {
		c.Why, c.opaque = fmt.Sprintf("in the line for %s, %v", use.Name, refusal), true
		return
	}
	satisfied, durable, portable := true, true, true
	defer func(cwd string) { e.cwd, e.found = cwd, nil }(e.cwd)
	for i, s := range segments {
		inner := e.segment(s, depth+1)
		inner.piped = i > 0 && segments[i-1].Operator == Pipe
		c.Inner = append(c.Inner, inner)
		satisfied = satisfied && inner.By != ByNothing && inner.By != ByPayload && !s.HereDocument
		durable = durable && inner.Durable
		portable = portable && s.Portable
		if inner.Denied != nil {
			c.Denied = inner.Denied
		}
	}
	switch {
	case c.Denied != nil:
		c.Why = fmt.Sprintf("the deny entry %s forbids it", Quote(c.Denied.Pattern))
	case !use.Exact:
		c.Why = fmt.Sprintf("%s has more arguments than -c and a line", use.Name)
	case depth > 0 || grows || len(c.Wrappers) > 0:
		c.Why = "a shell within another command"
	case !readsLikeSh(use.Name) && !portable:
		c.Why = use.Name + " reads quotes otherwise than sh"
	case !readsLikeSh(use.Name) && use.Name != "zsh" && use.Name != "fish":
		c.Why = use.Name + " is not a shell whose lines are analysed"
	case len(segments) == 1:
		c.Why = "a shell around one command: an entry is for the command alone"
	case !satisfied:
		c.Why = "not every command of its line is allowed"
	default:
		c.allow(ByPayload, nil)
		c.Durable = durable
		// The host's own sh runs what was analysed, not the shell that was named.
		c.rebuilt = []string{e.machine.Shell, "-c", joined(c.Inner)}
	}
}

// script is a shell with the name of a file: the file is what an entry allows.
func (e *evaluator) script(c *Command, use ShellUse, shell Executable, grows bool) {
	name := c.inner[use.Script]
	path := name
	if !filepath.IsAbs(path) {
		path = e.cwd + "/" + path
	}
	kind, err := e.machine.Files.Stat(path)
	if err != nil || kind != FileRegular && kind != FileExecutable || !strings.Contains(name, "/") {
		c.Why, c.opaque = fmt.Sprintf("%s is not the path of a script", Quote(name)), true
		return
	}
	real, err := e.machine.Files.Real(path)
	if err != nil || !e.machine.trusts(shell.Real) {
		c.Why, c.opaque = "the shell is not one of the system's", true
		return
	}
	script := Executable{Word: name, Path: filepath.Clean(path), Real: real}
	if strings.Contains(path, "..") {
		script.Path = real
	}
	c.Script = real
	args := c.inner[use.Script+1:]
	as := e.bound(c, script, args, grows)
	if r := denies(e.lists.deny, e.machine, as); r != nil {
		c.deny(r)
		return
	}
	if r := match(&e.lists.allow, e.machine, as); r != nil && !r.any {
		c.allow(ByAllowlist, r)
		c.rebuilt = append([]string{shell.Real, real}, args...)
		return
	}
	c.Why = fmt.Sprintf("no entry allows the script %s", real)
}

func (e *evaluator) use(exec Executable, args []string, grows bool) use {
	return use{exec: exec, cwd: e.cwd, args: args, grows: grows, env: e.env}
}

// bound is a use of a command whose files count.
func (e *evaluator) bound(c *Command, exec Executable, args []string, grows bool) use {
	u := e.use(exec, args, grows)
	u.content = func() string {
		files, _ := c.files(e.machine)
		return contentOf(files)
	}
	return u
}

// wrapped puts the wrappers back that do something, by their real paths. They must be the system's own; env does nothing.
func (e *evaluator) wrapped(c *Command, u Unwrapped) {
	if c.By == ByNothing || c.rebuilt == nil {
		return
	}
	var outer []string
	for i, words := range u.Outer {
		if u.Wrappers[i] == "env" {
			continue
		}
		exec, err := e.find(words[0])
		if err != nil || !e.machine.trusts(exec.Real) || baseOf(exec.Real) != u.Wrappers[i] {
			c.By, c.Why = ByNothing, fmt.Sprintf("the wrapper %s is not one of the system's programs", words[0])
			return
		}
		outer = append(append(outer, exec.Real), words[1:]...)
	}
	c.rebuilt = append(outer, c.rebuilt...)
}

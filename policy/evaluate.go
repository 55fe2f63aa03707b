package policy

import (
	"fmt"
	"path/filepath"
	"strings"
)

// A By is why a command of a line needs no answer of a person. The zero value means that it needs
// one.
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

// Lists are what one agent's commands are held against. Make them once with NewLists: the entries
// are compiled.
type Lists struct {
	Problems []string // entries that do nothing, and why
	SafeBins SafeBins
	Skills   []Skill // none unless they are allowed automatically

	// Resolve has lines read by ResolveLine. Without, they are lists of commands with literal
	// words.
	Resolve bool

	// Overrides are the variables of the request: an answer that was given for good was given with
	// its own.
	Overrides map[string]string

	allow ruleSet
	deny  []rule
}

// newLists compiles an agent's entries.
func newLists(m *Machine, allow, deny []Entry, caseInsensitive bool) *Lists {
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

// realName is the base name of what a word leads to, so that a link to a wrapper counts as the
// wrapper.
func (e *evaluator) realName(word string) string {
	exec, err := e.find(word)
	if err != nil {
		return ""
	}
	return exec.Real
}

func (c *Command) deny(r *rule) {
	entry := r.Entry
	c.Denied, c.By, c.Why = &entry, ByNothing, fmt.Sprintf("the deny entry %s forbids it", quote(entry.Pattern))
}

// denyAnyWord holds every word of a command that is not understood against the deny list: any may
// be what runs.
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

func (e *evaluator) denyWrappers(c *Command, u unwrapped) {
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

func (c *Command) allow(by By, r *rule) {
	if c.Denied != nil {
		return
	}
	c.By = by
	switch by {
	case ByAllowlist:
		entry := r.Entry
		c.Entry, c.Durable = &entry, r.durable()
		c.Why = fmt.Sprintf("the entry %s allows it", quote(entry.Pattern))
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

// sameByName says whether a program does the same under the name of a link as under its own:
// python3 and python3.11, awk and mawk. xz under the name of unxz does not, nor does what has a
// hundred names.
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
		return err == nil && kind == fileOther
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

package policy

import (
	"errors"
	"fmt"
	"strings"
	"sync"
)

// A Verdict is the answer to a command. The zero value is deny.
type Verdict uint8

const (
	Deny Verdict = iota
	AskPerson
	Run
)

var verdictNames = [...]string{"deny", "ask", "run"}

func (v Verdict) String() string               { return nameOf(verdictNames[:], uint8(v)) }
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// A Request is a command that somebody wants run.
type Request struct {
	Command string   // a line for a shell; or
	Argv    []string // words that no shell reads
	Cwd     string
	Env     map[string]string // overrides
	Agent   string
	Session string
	Asker   string // who asked: an approval is only for them
}

// text is the command as a person is shown it.
func (r *Request) text() string {
	if r.Argv != nil {
		return CommandText(r.Argv)
	}
	return r.Command
}

// as is the command as hashes and bindings take it: words are no line, whatever their text looks
// like.
func (r *Request) as(m *Machine) []string {
	if r.Argv != nil {
		return r.Argv
	}
	return []string{m.Shell, "-c", r.Command}
}

// A Policy decides for one host. It may be used by many at once, as long as nobody changes what it
// has.
type Policy struct {
	Machine      *Machine
	Layers       Layers
	Approvals    *Approvals // nil with Err
	Err          error      // why the approvals file counts for nothing: everything is denied
	SafeBins     SafeBins
	Skills       []Skill
	InlineUnsafe bool // do not ask about code in the arguments; the zero value asks

	lock  sync.Mutex
	lists map[string]compiled // by agent
}

// compiled are the lists of an agent, made ready, and what they were made of.
type compiled struct {
	of    [5]listIdentity
	fold  bool
	lists *Lists
}

// A listIdentity tells a list from one that was put in its place.
type listIdentity struct {
	first *Entry
	n     int
}

// A Decision is what is to happen with a command.
type Decision struct {
	Verdict  Verdict     `json:"verdict" jsonschema:"what is to happen"`
	Host     Host        `json:"host" jsonschema:"where it runs"`
	Node     string      `json:"node,omitempty" jsonschema:"which node"`
	Reason   string      `json:"reason,omitempty" jsonschema:"of a denial or of a question, in the word that events carry"` // of a denial or of a question, in the words that events carry
	Why      []Step      `json:"why" jsonschema:"the steps that led there"`
	Command  string      `json:"command,omitempty" jsonschema:"the line that a shell of the host runs, built anew from what was analysed"` // what a shell of the host runs: the line built anew
	Argv     []string    `json:"argv,omitempty" jsonschema:"the same for one command alone, which no shell needs to read"`                 // the same for one command alone: run this where it is there
	BoundTo  *Bound      `json:"boundTo,omitempty" jsonschema:"what an approval holds for, and nothing else"`
	Security Security    `json:"security" jsonschema:"how much runs without an answer, after configuration and approvals file"`
	Ask      Ask         `json:"ask" jsonschema:"when a person is asked"`
	Fallback Security    `json:"askFallback" jsonschema:"what happens without an answer"`
	Offers   []Answer    `json:"offers,omitempty" jsonschema:"the answers that a prompt offers"`              // of a prompt
	Always   []Entry     `json:"allowAlways,omitempty" jsonschema:"what the answer allow-always would store"` // what "always" would store
	Used     []Entry     `json:"-"`                                                                           // entries that let it run
	Result   *Evaluation `json:"evaluation,omitempty" jsonschema:"the command part by part"`

	// Shell says that a shell reads what runs: Environment must be told so.
	Shell bool `json:"shell,omitempty" jsonschema:"whether a shell reads what runs"`

	facts     Facts
	unchecked bool // there is a deny list, and not everything could be held against it
}

// Bound is what an approval of a decision holds for, and nothing else.
type Bound struct {
	Binding
	Asker    string         `json:"asker,omitempty" jsonschema:"who asked"`
	Node     string         `json:"node,omitempty" jsonschema:"which node"`
	Programs []boundProgram `json:"programs" jsonschema:"what the words lead to, by real paths"`
	Scripts  []boundFile    `json:"scripts,omitempty" jsonschema:"scripts, by their SHA-256"`
	// Unbound says that what runs is not all in what was looked at: the approval is for the text
	// alone.
	Unbound bool `json:"unbound,omitempty" jsonschema:"what runs is not all in what was looked at: the approval is for the text alone"`
}

// A boundProgram is what a word leads to, from the directory where its command is done.
type boundProgram struct {
	Executable
	cwd string
}

func (d *Decision) step(about, format string, a ...any) {
	d.Why = append(d.Why, Step{about, fmt.Sprintf(format, a...)})
}

func (d *Decision) deny(reason string) {
	d.Verdict, d.Reason, d.Command, d.Argv = Deny, reason, "", nil
}

// Decide answers a request. It looks at the file system, and does nothing.
func (p *Policy) Decide(r Request) Decision {
	d := Decision{}
	place, err := Place(p.Layers)
	if err != nil {
		d.step("host", "%v", err)
		d.deny("host")
		return d
	}
	d.Host, d.Node, d.Why = place.Host, place.Node, place.Why
	d.Security, d.Ask = place.Security, place.Ask
	if place.Host == HostSandbox {
		d.inSandbox()
		return d
	}
	if p.Err != nil || p.Approvals == nil {
		d.unreadable(p.Err)
		return d
	}
	resolved := d.merge(p.Approvals, r.Agent, place)
	if err := d.environment(r); err != nil {
		return d
	}
	if p.Approvals.Absent && (d.Security == SecurityFull || d.Ask == AskOff) {
		d.step("approvals file", "there is none on this host: security full, and ask off, count only where the file says something, too")
		d.step("hint", "clai-sandbox approvals allow PATTERN makes one")
		d.deny(reasonNoFile)
		return d
	}
	lists := p.listsOf(resolved)
	lists.Overrides = r.Env
	for _, problem := range append(p.Approvals.Problems, lists.Problems...) {
		d.step("approvals file", "%s", DisplayText(problem))
	}
	d.evaluate(p, lists, r)
	d.judge(p, lists, r)
	return d
}

func (d *Decision) inSandbox() {
	d.step("verdict", "what it may do is what its sandbox shows it")
	d.Verdict = Run
	if d.Security == SecurityDeny {
		d.step("security", "deny")
		d.deny(ReasonSecurityDeny)
	}
}

func (d *Decision) unreadable(err error) {
	if err == nil {
		err = errors.New("there is no such file")
	}
	d.step("approvals file", "%s: everything is denied", DisplayText(err.Error()))
	var mistake *FileError
	if errors.As(err, &mistake) && mistake.Hint != "" {
		d.step("hint", "%s", DisplayText(mistake.Hint))
	}
	d.deny(ReasonPolicyUnreadable)
}

// merge joins the configuration with the file of the host, field by field: the stricter counts.
func (d *Decision) merge(a *Approvals, agent string, place Placement) Resolved {
	resolved := a.resolveFields(agent, Preference{Security: &place.Security, Ask: &place.Ask})
	d.Security = place.Security.Stricter(resolved.Security)
	d.Ask = place.Ask.Stricter(resolved.Ask)
	d.Fallback = d.Security.Stricter(resolved.AskFallback)
	if d.Security != place.Security {
		d.step("security", "%s (the host's file, %s, is stricter)", d.Security, resolved.Sources.Security)
	}
	if d.Ask != place.Ask {
		d.step("ask", "%s (the host's file, %s, is stricter)", d.Ask, resolved.Sources.Ask)
	}
	d.step("ask fallback", "%s (%s)", d.Fallback, orBuiltIn(resolved.Sources.AskFallback))
	return resolved
}

func orBuiltIn(source string) string {
	if source == "" {
		return "built-in"
	}
	return source
}

func (d *Decision) environment(r Request) error {
	err := checkOverrides(r.Env)
	if err != nil {
		d.step("environment", "%s", err)
		d.deny(ReasonEnvironment)
	}
	return err
}

// maxCompiled bounds the agents whose lists are kept: their names come from outside.
const maxCompiled = 256

func (p *Policy) listsOf(r Resolved) *Lists {
	identity := p.identity(r.Agent)
	p.lock.Lock()
	c, ok := p.lists[r.Agent]
	if !ok || c.of != identity || c.fold != r.CaseInsensitive {
		if p.lists == nil || len(p.lists) == maxCompiled {
			p.lists = map[string]compiled{}
		}
		full := p.Approvals.Resolve(r.Agent, Preference{})
		c = compiled{identity, r.CaseInsensitive, newLists(p.Machine, full.Allow, full.Deny, r.CaseInsensitive)}
		p.lists[r.Agent] = c
	}
	p.lock.Unlock()
	l := *c.lists
	l.SafeBins, l.Resolve, l.Overrides = p.SafeBins, true, nil
	l.SafeBins.Wide = true
	if r.AutoAllowSkills {
		l.Skills = p.Skills
	}
	return &l
}

func (p *Policy) identity(agent string) (of [5]listIdentity) {
	allow, deny := p.Approvals.allowLists(agent), p.Approvals.denyLists(agent)
	for i, list := range [...][]Entry{allow[0], allow[1], deny[0], deny[1], deny[2]} {
		if len(list) > 0 {
			of[i] = listIdentity{&list[0], len(list)}
		}
	}
	return of
}

func (d *Decision) evaluate(p *Policy, l *Lists, r Request) {
	if r.Argv != nil {
		d.Result = EvaluateArgv(p.Machine, l, r.Argv, r.Cwd)
	} else {
		d.Result = EvaluateLine(p.Machine, l, r.Command, r.Cwd)
	}
	d.explain(d.Result.Commands, "")
	if d.Result.Refusal != nil {
		d.step("analysis", "%s: what the line would run is not known", d.Result.Refusal.Error())
	}
	d.facts = Facts{Understood: d.Result.Refusal == nil && !d.Result.HereDocument, Satisfied: d.Result.Satisfied,
		Durable: d.Result.Durable && d.Result.Satisfied}
	d.unchecked = d.Result.Opaque && len(l.deny) > 0
	if inline, ok := looksInline(r.text()); ok && d.Result.Opaque && len(d.Result.Inline) == 0 {
		d.Result.Inline = append(d.Result.Inline, inline)
	}
	content := sync.OnceValue(func() string { return d.Result.content(p.Machine, r.text(), r.Cwd) })
	if entry := l.allowsLine(r.text(), r.as(p.Machine), r.Cwd, content); entry != nil {
		d.facts.Durable = true
		d.Used = append(d.Used, *entry)
		d.step("allowlist", "this very line, in this directory, was allowed for good")
	}
}

func (d *Decision) explain(commands []*Command, indent string) {
	for _, c := range commands {
		d.step("command", "%s%s: %s", indent, DisplayText(CommandText(c.Argv)), c.Why)
		if c.Entry != nil && c.By != ByNothing {
			d.Used = append(d.Used, *c.Entry)
		}
		d.explain(c.Inner, indent+"  ")
	}
}

// judge turns what is known into a verdict. Deny entries win over everything, code in the arguments
// is asked about whatever a list says.
func (d *Decision) judge(p *Policy, l *Lists, r Request) {
	inline := !p.InlineUnsafe && len(d.Result.Inline) > 0
	j := judgeAnswer(d.Security, d.Ask, d.facts, AnswerNone)
	switch {
	case d.Result.Denied != nil:
		d.step("verdict", "the deny entry %s wins over everything", quote(DisplayText(d.Result.Denied.Pattern)))
		d.deny(ReasonDenyEntry)
		return
	case d.Security == SecurityDeny:
		d.step("verdict", "security is deny")
		d.deny(ReasonSecurityDeny)
		return
	case j.Allowed && inline:
		d.question(reasonUnsafe, d.Result.Inline[0].text())
	case j.Allowed && d.Result.HereDocument && d.Security != SecurityFull:
		d.question(ReasonApprovalRequired, "text in the line is a command's input")
	case j.Allowed && d.unchecked:
		d.question(ReasonApprovalRequired, "there is a deny list, and not all that would run could be held against it")
	case j.Allowed:
		d.Verdict = Run
		d.step("verdict", "run")
	case j.Asks:
		d.question(ReasonApprovalRequired, "")
	default:
		d.step("verdict", "%s, and nobody is asked", j.Reason)
		d.deny(j.Reason)
		return
	}
	d.bind(p, r)
	d.what(r)
	d.shell(r)
	if d.Verdict == AskPerson {
		d.Offers = answers(d.Ask)
		if d.Ask != AskAlways {
			d.Result.remember(p.Machine, l, r)
			d.Always = d.Result.AllowAlways(r.text(), r.as(p.Machine), r.Cwd, false, inline)
		}
	}
}

// question asks a person, or denies where nobody is to be asked.
func (d *Decision) question(reason, why string) {
	if why != "" {
		d.step("ask", "%s", DisplayText(why))
	}
	d.Reason = reason
	if d.Ask == AskOff {
		d.step("verdict", "a person would have to be asked, and ask is off")
		d.deny(reason)
		return
	}
	d.Verdict = AskPerson
	d.step("verdict", "a person is asked; without an answer: %s", d.Fallback)
}

// what runs is the line built anew. Where the line was not understood, only a person lets it run,
// and what they saw is the text.
func (d *Decision) what(r Request) {
	switch {
	case d.Verdict == Deny:
		return
	case d.Result.Satisfied && d.Result.Command != "":
		d.Command, d.Argv = d.Result.Command, d.Result.Argv
	case r.Argv != nil:
		d.Argv = append([]string{}, r.Argv...)
		if len(d.Result.Commands) == 1 && len(d.Result.Commands[0].Wrappers) == 0 && d.Result.Commands[0].Executable.Real != "" {
			d.Argv[0] = d.Result.Commands[0].Executable.Real
		}
	default:
		d.Command = r.Command
	}
	if d.Command != "" && r.Argv == nil {
		d.step("runs", "%s", DisplayText(d.Command))
	}
}

// shell says whether a shell reads what runs, and which overrides do not reach it then.
func (d *Decision) shell(r Request) {
	d.Shell = d.Argv == nil
	for _, c := range d.Result.Commands {
		d.Shell = d.Shell || c.shell || c.opaque
	}
	for _, name := range sortedNames(r.Env) {
		if !keepOverride(name, d.Shell) {
			d.step("environment", "%s is not overridden: a shell reads the command", DisplayText(name))
		}
	}
}

// bind says what an approval is for.
func (d *Decision) bind(p *Policy, r Request) {
	b := &Bound{Binding: newBinding(r.as(p.Machine), r.Cwd, r.Agent, r.Session, r.Env), Asker: r.Asker, Node: d.Node, Unbound: d.Result.Opaque}
	if real, err := p.Machine.Files.Real(r.Cwd); err != nil || real != r.Cwd {
		d.step("directory", "%s is not a directory by its real path: a link in it could lead elsewhere later", DisplayText(r.Cwd))
		d.deny("working-directory")
		return
	}
	b.programs(d.Result.Commands)
	for _, c := range d.Result.Commands {
		if d.Verdict != AskPerson {
			break // nobody answers
		}
		files, all := c.files(p.Machine)
		b.Scripts, b.Unbound = append(b.Scripts, files...), b.Unbound || !all
	}
	if d.Verdict == AskPerson && (d.Result.Refusal != nil || d.Result.Opaque) {
		b.Scripts = append(b.Scripts, filesIn(p.Machine, r.text(), r.Cwd)...)
	}
	if b.Unbound && d.Verdict == AskPerson {
		d.step("bound", "not all of the code that would run is in what was looked at: an answer is for the words, and for the files that were found")
	}
	d.BoundTo = b
}

func (b *Bound) programs(commands []*Command) {
	for _, c := range commands {
		if c.Executable.Real != "" {
			b.Programs = append(b.Programs, boundProgram{c.Executable, c.cwd})
		}
		b.programs(c.Inner)
	}
}

// StillBound looks right before the run whether what an approval was for is still the same.
func (m *Machine) StillBound(b *Bound) error {
	if real, err := m.Files.Real(b.Cwd); err != nil || real != b.Cwd {
		return &ChangedError{"the working directory"}
	}
	for _, program := range b.Programs {
		cwd := program.cwd
		if cwd == "" {
			cwd = b.Cwd
		}
		if real, err := m.Files.Real(cwd); err != nil || real != cwd {
			return &ChangedError{"the directory " + DisplayText(cwd)}
		}
		now, err := m.Find(program.Word, cwd)
		if err != nil || now.Real != program.Real {
			return &ChangedError{"the program " + DisplayText(program.Word)}
		}
	}
	for _, script := range b.Scripts {
		if sum, err := m.Files.Hash(script.Path); err != nil || sum != script.SHA256 {
			return &ChangedError{"the script " + DisplayText(script.Path)}
		}
	}
	return nil
}

// Answered is what a decision becomes by an answer, or by none.
func (d Decision) Answered(answer Answer) Decision {
	if d.Verdict != AskPerson {
		return d
	}
	switch {
	case answer == AnswerAllowOnce, answer == AnswerAllowAlways && d.Ask != AskAlways:
		d.Verdict, d.Reason = Run, ""
		d.step("answer", "%s", answer)
	case answer == AnswerNone:
		// In what was not taken apart there may be code, and what a deny list names.
		run, reason := unanswered(d.Fallback, d.facts, len(d.Result.Inline) > 0 || d.Result.Opaque)
		d.step("answer", "none; ask fallback is %s, and never runs code in the arguments, nor what was not taken apart", d.Fallback)
		if run {
			d.Verdict, d.Reason = Run, ""
			return d
		}
		d.deny(reason)
	default:
		d.step("answer", "deny")
		d.deny(ReasonUserDenied)
	}
	return d
}

// Lines are the steps of a decision for people, a line each.
func (d Decision) Lines() []string {
	lines := make([]string, len(d.Why))
	for i, s := range d.Why {
		lines[i] = s.About + ": " + strings.TrimRight(s.Text, " ")
	}
	return lines
}

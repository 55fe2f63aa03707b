package outside

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clairun/clai-sandbox/audit"
	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/broker"
	"github.com/clairun/clai-sandbox/outside/runner"
	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/policy/host"
	"github.com/clairun/clai-sandbox/profile"
)

// Options are what a broker works with. Zero limits are the usual ones.
type Options struct {
	Load  func(agent string) (host.Host, error) // what decides, as it is now
	Run   func(context.Context, runner.Request) (a runner.Answer, started bool, err error)
	Audit *audit.Log
	User  string // who decides
	State string // the directory where domains are stored; empty: none are

	Clock      grants.Clock  // nil: the machine's
	Timeout    time.Duration // how long a command waits for a person
	MaxPending int           // commands of one agent that wait
	MaxRunning int           // commands of one agent that run
	Every      time.Duration // how often an agent may have a command looked at, after a burst
	Notice     time.Duration // how long a command runs before it is told that it still does
}

const (
	// DefaultMaxRunning is how many commands of one agent may run at once.
	DefaultMaxRunning = 16
	// DefaultEvery is how often an agent may have a command looked at, after a burst.
	DefaultEvery = 50 * time.Millisecond

	burst         = 256
	maxTold       = 1024
	maxAgents     = 1024 // that are remembered when they have nothing here
	defaultDenial = "Denied by user"
)

// A Broker is a broker of paths that has commands run, too. Make one with New.
type Broker struct {
	*broker.Broker
	options Options

	mu      sync.Mutex
	pending map[string]*pending
	agents  map[string]*agent
	told    map[string]map[string]grants.CommandAnswer // what was answered, by the agent and the name that it was asked under
	ended   map[string]grants.Outcome                  // commands that waited, by their ids
	once    map[string]grants.Grant                    // of domains, for one session, by their ids
	endings grants.Endings                             // of domains
	domains sync.Mutex                                 // held while a grant of a domain comes or goes
	saying  sync.Mutex                                 // held while something is said for a session
	running int
	laters  map[string]*later  // by their ids: what is on its way, and what ended lately
	laterAs map[askedAs]*later // the same, by the names that they were asked under
	lately  []*later           // those that have ended, the first first
	// onTheirWay are names under which something was asked that has no answer yet.
	onTheirWay map[askedAs]chan struct{}
}

var (
	_ grants.Runner      = (*Broker)(nil)
	_ grants.Questioner  = (*Broker)(nil)
	_ grants.DomainAsker = (*Broker)(nil)
	_ grants.Sayer       = (*Broker)(nil)
	_ grants.Observer    = (*Broker)(nil)
)

// agent is what is counted of one.
type agent struct {
	waiting, running int
	looks            broker.Allowance
	bothers          broker.Allowance // of questions in words
	seen             time.Time

	connections broker.Allowance // that are on record, each by itself
	unrecorded  int64            // further ones
}

// askedAs is an agent and the name that it asked under.
type askedAs struct{ agent, name string }

// New puts a broker of commands before one of paths.
func New(paths *broker.Broker, o Options) *Broker {
	o.Timeout = cmp.Or(o.Timeout, broker.DefaultTimeout)
	o.MaxPending = cmp.Or(o.MaxPending, broker.DefaultMaxPending)
	o.MaxRunning = cmp.Or(o.MaxRunning, DefaultMaxRunning)
	o.Every = cmp.Or(o.Every, DefaultEvery)
	o.Notice = cmp.Or(o.Notice, DefaultNotice)
	b := &Broker{Broker: paths, options: o, pending: map[string]*pending{}, agents: map[string]*agent{}, told: map[string]map[string]grants.CommandAnswer{}, ended: map[string]grants.Outcome{}, once: map[string]grants.Grant{},
		endings: grants.Endings{Clock: o.Clock}, onTheirWay: map[askedAs]chan struct{}{}, laters: map[string]*later{}, laterAs: map[askedAs]*later{}}
	if o.State != "" {
		_, _ = b.storedDomains() // their time begins to count
	}
	b.endUnfinished()
	return b
}

// Idle reports whether nobody needs the broker now.
func (b *Broker) Idle() bool {
	b.mu.Lock()
	busy := len(b.pending) > 0 || b.running > 0
	b.mu.Unlock()
	return !busy && b.Broker.Idle()
}

// Pending lists what waits for a decision: paths and commands, the oldest first.
func (b *Broker) Pending(ctx context.Context) ([]grants.Request, error) {
	list, err := b.Broker.Pending(ctx)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	for _, p := range b.pending {
		list = append(list, p.Request)
	}
	b.mu.Unlock()
	slices.SortFunc(list, func(a, b grants.Request) int {
		return cmp.Or(cmp.Compare(a.AskedAtUnixMs, b.AskedAtUnixMs), strings.Compare(a.ID, b.ID))
	})
	return list, nil
}

// A command is one on its way.
type command struct {
	grants.Command
	id, name           string
	session, workspace string
	from               Asker // where it is no session's
	inside             bool
	over               <-chan struct{} // closed when its session has ended
	host               host.Host
	machine            *policy.Machine
	decision           policy.Decision
	domain             string // in place of a command: where a connection wants to go
	pattern            string // the expression of hostexec that decided
	byList             policy.Verdict
	obeys              string           // a program that executes what the workspace says, and is asked about for that
	said               grants.Overrides // for its session
}

// RunOutside has a command decided and run.
func (b *Broker) RunOutside(ctx context.Context, session string, inside bool, asked grants.Command) (grants.CommandAnswer, error) {
	c := command{Command: asked, session: session, inside: inside, name: grants.RequestID(ctx)}
	if len(c.name) > grants.MaxRequestID {
		c.name = ""
	}
	if err := b.whose(&c); err != nil {
		return grants.CommandAnswer{}, err
	}
	if c.TwoPhase {
		return b.accept(ctx, c)
	}
	return b.runOutside(ctx, c, func(string) {})
}

// An Asker is who asks from a container, as its token says. Its commands are as those of a sandbox.
type Asker struct {
	ID, Agent, Workspace string
	Project, Branch      string // for the record
}

// RunFor has a command of a container's decided and run.
func (b *Broker) RunFor(ctx context.Context, from Asker, asked grants.Command) (grants.CommandAnswer, error) {
	asked.Agent = from.Agent
	return b.runOutside(ctx, command{Command: asked, session: "container " + from.ID, workspace: from.Workspace, from: from, inside: true}, func(string) {})
}

// runOutside tells the command's id as soon as it has one.
func (b *Broker) runOutside(ctx context.Context, c command, tellID func(string)) (grants.CommandAnswer, error) {
	if err := check(c); err != nil {
		return grants.CommandAnswer{}, err
	}
	done, err := b.admit(c.Agent, c.size())
	if err != nil {
		return grants.CommandAnswer{}, err
	}
	defer done()
	told, answered, err := b.claimName(ctx, askedAs{c.Agent, c.name})
	if told != nil || err != nil {
		return *cmp.Or(told, &grants.CommandAnswer{}), err
	}
	defer answered()
	if c.over != nil {
		var leave context.CancelFunc
		ctx, leave = context.WithCancel(ctx)
		defer leave()
		go func() {
			select {
			case <-c.over:
				leave()
			case <-ctx.Done():
			}
		}()
	}
	c.id = newID()
	if err := b.decide(&c); err != nil {
		return grants.CommandAnswer{}, err
	}
	tellID(c.id)
	answer, begun, err := b.carryOut(ctx, c)
	answer.RequestID, answer.Pattern = c.id, c.pattern
	b.end(c, answer, err)
	if !begun {
		answer.Text = b.tell(c, grants.EventExecDenied, grants.Run{Reason: denial(c, answer, err)})
	}
	return answer, err
}

// newID is 8 random bytes. Knowing it permits nothing.
func newID() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	return hex.EncodeToString(id[:])
}

// whose finds out who asks: by the session, and without one it is the person.
func (b *Broker) whose(c *command) error {
	if c.session == "" {
		c.Agent = cmp.Or(c.Agent, profile.DefaultAgent)
		return nil
	}
	agent, workspace, over, err := b.Of(c.session)
	switch {
	case err != nil:
		return err
	case c.Agent != "" && c.Agent != agent:
		return &grants.InvalidError{Field: "agentId", Why: "is the session's"}
	}
	c.Agent, c.workspace, c.over = agent, workspace, over
	c.Cwd = cmp.Or(c.Cwd, workspace)
	return nil
}

const (
	maxEnv = 64
	maxCwd = 4096 // bytes: more is no path to the kernel
)

// size is how much there is to look at in a command, in bytes.
func (c *command) size() int {
	n := len(c.Line) + len(strings.Join(c.Argv, " ")) + len(c.Cwd)
	for name, value := range c.Env {
		n += len(name) + len(value)
	}
	return n
}

func check(c command) error {
	invalid := func(field, why string) error { return &grants.InvalidError{Field: field, Why: why} }
	if err := profile.CheckAgent(c.Agent); err != nil {
		return invalid("agentId", err.Error())
	}
	switch text := c.Line + strings.Join(c.Argv, ""); {
	case (c.Line == "") == (len(c.Argv) == 0):
		return invalid("command", "must be a line or words, and not both")
	case strings.ContainsRune(text, 0):
		return invalid("command", "must hold no zero byte")
	case c.inside && c.Line != "":
		return invalid("command", "must be words: no shell reads what comes out of a sandbox")
	case len(text) > policy.MaxLine:
		return invalid("command", fmt.Sprintf("must have at most %d bytes", policy.MaxLine))
	case !filepath.IsAbs(c.Cwd) || filepath.Clean(c.Cwd) != c.Cwd || len(c.Cwd) > maxCwd:
		return invalid("cwd", "must be an absolute, clean path")
	case len(c.Env) > maxEnv:
		return invalid("env", fmt.Sprintf("must be at most %d variables", maxEnv))
	case c.TimeoutMs < 0 || c.TimeoutMs > runner.MaxTimeout.Milliseconds():
		return invalid("timeoutMs", fmt.Sprintf("must be at most %d", runner.MaxTimeout.Milliseconds()))
	case len(c.Reason) > 1000:
		return invalid("reason", "must have at most 1000 bytes")
	}
	if _, ok := policy.ParseSecurity(c.Security); c.Security != "" && !ok {
		return invalid("security", "must be deny, allowlist or full")
	}
	if _, ok := policy.ParseAsk(c.Ask); c.Ask != "" && !ok {
		return invalid("ask", "must be always, on-miss or off")
	}
	return nil
}

// admit counts a command of an agent's, until done. A large one counts for several looks: each is
// written down.
func (b *Broker) admit(name string, size int) (done func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	a := b.agents[name]
	if a == nil {
		if len(b.agents) >= maxAgents {
			for other, a := range b.agents {
				if a.waiting == 0 && a.running == 0 && now.Sub(a.seen) > burst*b.options.Every {
					delete(b.agents, other)
				}
			}
		}
		a = &agent{}
		b.agents[name] = a
	}
	a.seen = now
	switch {
	case a.running >= b.options.MaxRunning+b.options.MaxPending:
		return nil, &grants.BusyError{Why: fmt.Sprintf("%d commands of this agent are on their way already", a.running)}
	case !a.looks.Take(now, 1+size>>10, burst, b.options.Every):
		return nil, &grants.BusyError{Why: fmt.Sprintf("this agent asks too often: one command, or 1 KiB of one, in %v, after the first %d", b.options.Every, burst)}
	}
	a.running++
	b.running++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		a.running--
		b.running--
	}, nil
}

// request is the command as the policy takes it.
func (c *command) request() policy.Request {
	q := c.toRunner(nil)
	return q.Policy()
}

// toRunner is the command as the runner takes it.
func (c *command) toRunner(approved *runner.Approved) runner.Request {
	asker := c.session
	if asker == "" {
		asker = "person"
	}
	return runner.Request{ID: c.id, Command: c.Line, Argv: c.Argv, Cwd: c.Cwd, Env: c.Env, Agent: c.Agent, Session: c.session, Asker: asker, Workdir: c.workspace,
		Layers:   runner.Layers{Person: c.session == "", InSandbox: c.inside, Security: c.Security, Ask: c.Ask, Session: policy.Overrides(c.said)},
		Approved: approved, TimeoutMs: c.TimeoutMs}
}

// decide asks the lists, and the policy of this host, and writes down what was asked for and what
// they say.
func (b *Broker) decide(c *command) error {
	c.byList, c.said = policy.Run, b.Overrides(c.session)
	refuse := func(reason, text string) {
		c.decision = policy.Decision{Verdict: policy.Deny, Reason: reason, Why: []policy.Step{{About: reason, Text: text}}}
	}
	var err error
	if c.host, err = b.options.Load(c.Agent); err != nil {
		refuse(policy.ReasonPolicyUnreadable, err.Error())
		return b.record(*c, requested, line{})
	}
	if c.inside {
		rules, err := c.host.HostExec()
		if err != nil {
			refuse(policy.ReasonPolicyUnreadable, err.Error())
			return b.record(*c, requested, line{})
		}
		c.byList, c.pattern = rules.Matched(c.Argv)
	}
	switch {
	case c.byList == policy.Deny:
		refuse(reasonNoPattern, "neither list of hostexec has it")
	case c.workspace != "" && !profile.Within(c.Cwd, c.workspace):
		refuse(runner.ReasonWorkdir, "workdir mismatch: it must start in the session's workspace")
	default:
		p := c.host.Policy(c.toRunner(nil).Layers.Policy())
		c.machine, c.decision = p.Machine, p.Decide(c.request())
		if c.decision.Verdict != policy.Deny && c.decision.Host != policy.HostGateway {
			refuse("host", "it would not run on this host")
		}
		if c.inside && c.byList == policy.Run {
			if c.obeys = c.obeysWorkspace(); c.obeys != "" {
				c.byList = policy.AskPerson
			}
		}
	}
	return b.record(*c, requested, line{})
}

// obeysWorkspace is a program of the command's that executes what settings in the workspace say.
// Whoever asks can write those when this was looked at, and before the program reads them. Programs
// are known by what they are, whatever they are called.
func (c *command) obeysWorkspace() string {
	var programs []policy.Executable
	if bound := c.decision.BoundTo; bound != nil {
		for _, p := range bound.Programs {
			programs = append(programs, p.Executable)
		}
	}
	if first, err := c.machine.Find(c.Argv[0], c.Cwd); err == nil {
		programs = append(programs, first)
	}
	for _, name := range c.host.ObeysWorkspace() {
		known, err := c.machine.Find(name, c.Cwd)
		for _, p := range programs {
			for _, called := range []string{p.Word, p.Path, p.Real} {
				if like, _ := path.Match(name, path.Base(called)); like {
					return path.Base(called)
				}
			}
			if err == nil && sameFile(known.Real, p.Real) {
				return name
			}
		}
	}
	return ""
}

func sameFile(a, b string) bool {
	one, err1 := os.Stat(a)
	other, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(one, other)
}

const (
	reasonNoPattern = "no-pattern"
	reasonRestarted = "the gateway restarted"
	reasonLost      = "the gateway ended while the command ran, and the command was ended with it"
)

// carryOut is what becomes of a command by what was decided. begun says that it was run, as far as
// is known.
func (b *Broker) carryOut(ctx context.Context, c command) (a grants.CommandAnswer, begun bool, err error) {
	status := grants.CommandAutoApproved
	var approved *runner.Approved
	switch {
	case c.decision.Verdict == policy.Deny:
		return denied(c.decision), false, nil
	// An expression that lets a command run without asking is the person's answer, except where
	// they want to be asked each time. It speaks of words: which variables may be set, nobody has
	// said.
	case c.decision.Verdict == policy.AskPerson && c.inside && c.byList == policy.Run && c.decision.Ask != policy.AskAlways && len(c.Env) == 0:
		approved = c.approved(policy.AnswerAllowOnce)
	case c.decision.Verdict == policy.AskPerson || c.byList == policy.AskPerson:
		said, reason, err := b.ask(ctx, c)
		if err != nil {
			return grants.CommandAnswer{}, false, err
		}
		after := c.decision.Answered(said)
		switch {
		case said == policy.AnswerDeny:
			return grants.CommandAnswer{Status: grants.CommandDenied, Reason: reason}, false, nil
		case said == policy.AnswerNone && (after.Verdict != policy.Run || c.byList == policy.AskPerson):
			return grants.CommandAnswer{Status: grants.CommandTimeout, Reason: reason}, false, nil
		case said != policy.AnswerNone:
			status = grants.CommandApproved
		}
		if c.decision.Verdict == policy.AskPerson {
			approved = c.approved(said)
		}
	}
	if status == grants.CommandAutoApproved {
		if err := b.recordSynced(c, autoApproved, line{Pattern: c.pattern}); err != nil {
			return grants.CommandAnswer{}, false, err
		}
	}
	return b.run(ctx, c, status, approved)
}

// approved is what the runner is told of an answer.
func (c *command) approved(answer policy.Answer) *runner.Approved {
	return &runner.Approved{Answer: answer.String(), Bound: c.decision.BoundTo, Runs: runner.RunsOf(c.decision)}
}

func denied(d policy.Decision) grants.CommandAnswer {
	text := d.Reason
	if n := len(d.Why); n > 0 {
		text += ": " + d.Why[n-1].Text
	}
	return grants.CommandAnswer{Status: grants.CommandDenied, Reason: text}
}

// run hands the command to the runner.
func (b *Broker) run(ctx context.Context, c command, status grants.CommandStatus, approved *runner.Approved) (_ grants.CommandAnswer, begun bool, err error) {
	if err := b.record(c, started, line{}); err != nil {
		return grants.CommandAnswer{}, false, err
	}
	stop := b.tellStarted(c)
	a, begun, err := b.options.Run(ctx, c.toRunner(approved))
	stop()
	begun = begun && a.Status != runner.Failed
	text := ""
	if begun {
		text = b.tellEnd(c, a)
	}
	switch {
	case ctx.Err() != nil:
		return grants.CommandAnswer{Status: grants.CommandError, Reason: "whoever asked has left"}, begun, ctx.Err()
	case err != nil && !begun:
		return grants.CommandAnswer{Status: grants.CommandError, Reason: "nothing was run: " + err.Error()}, false, nil
	case err != nil:
		return grants.CommandAnswer{Status: grants.CommandError, Reason: err.Error(), Text: text}, true, nil
	case a.Status == runner.Failed:
		return grants.CommandAnswer{Status: grants.CommandError, Reason: "nothing was run: " + a.Error}, false, nil
	}
	c.markUsed()
	return grants.CommandAnswer{Status: status, ExitCode: a.ExitCode, Stdout: a.Stdout, Stderr: a.Stderr, Truncated: a.Truncated, TimedOut: a.Status == runner.TimedOut, TookMs: a.TookMs, Text: text}, true, nil
}

// usedEvery is how often it is noted that an entry was used.
const usedEvery = time.Minute

// markUsed notes which entries let the command run. Nothing depends on it.
func (c *command) markUsed() {
	now := time.Now()
	var uses []policy.Used
	for _, e := range c.decision.Used {
		if now.Sub(time.UnixMilli(e.LastUsedAt)) < usedEvery {
			continue
		}
		used := policy.Used{Agent: c.Agent, Entry: e, At: now.UnixMilli(), Command: c.text()}
		if bound := c.decision.BoundTo; bound != nil && len(bound.Programs) > 0 {
			used.Resolved = bound.Programs[0].Real
		}
		uses = append(uses, used)
	}
	_ = c.host.Store.MarkUsed(uses)
}

// text is the command as it was asked for, in one line.
func (c *command) text() string {
	if c.Argv != nil {
		return policy.CanonicalArgv(c.Argv)
	}
	return c.Line
}

func unavailable(err error) error {
	var ready *grants.UnavailableError
	if errors.As(err, &ready) {
		return err
	}
	return &grants.UnavailableError{Why: err.Error(), Hint: "nothing was run: mend that, as by freeing the disk, and try again"}
}

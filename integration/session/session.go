package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
	"github.com/clairun/clai-sandbox/sandbox/sshagent"
)

// Options say what a session is for.
type Options struct {
	Caller  profile.Caller
	Config  *profile.Config
	Request profile.Request // what all sandboxes of the session ask for
	// Broker is asked by the inside, if there is one.
	Broker grants.Broker
	// Live sandboxes show what is granted, and lose what is taken away, while they run. It takes a broker.
	Live bool
	// PrivateTmp stands at /tmp in each sandbox of the session; see profile.Profile.
	PrivateTmp string
	// SSHAgent finds the program that serves a sandbox's ssh-agent; see sandbox.Launcher. Nil: there is none.
	SSHAgent func() ([]string, error)
	// Furnish puts into the agent's own home, where it has one, what belongs there. Nothing runs in it meanwhile.
	Furnish func(home string) error
	// Apart says that the agent itself is in a sandbox that PrepareAgent prepares, and all others of the session are its commands'. Each side has
	// a home of its own.
	Apart bool
	// Command tells the person who decides what the session runs.
	Command string
}

// A Session is one agent's session. Its methods may be called from any goroutine.
type Session struct {
	options Options
	state   string          // directory
	ctx     context.Context // it ends with, and with Close
	cancel  context.CancelFunc
	spec    grants.SessionSpec
	relay   *relay // where the inside asks; nil: nowhere
	asked   atomic.Bool

	mu      sync.Mutex
	broker  *grants.Session         // nil: without one. After the broker has ended, the last
	held    map[string]grants.Grant // what is granted now, by id
	version int                     // of held
	told    bool                    // the broker tells of every change
	where   string                  // the host of commands that name none, as an operator said; empty: nobody did
	endings grants.Endings          // of held
	expiry  *grants.Alarm           // when the next grant's time is over
	joining sync.Mutex              // held while the session is opened again
	closing chan struct{}           // closed when the session is to end
	running map[*running]bool
	left    []sandbox.Notice // about what is stored, for the next sandbox
	home    home             // of all sandboxes but the agent's own
	agent   home             // of the agent's own, where its commands run apart
	work    workspace
	notices []sandbox.Notice // about changes while commands ran

	connections held    // that wait for a person
	connected   account // that were let through or refused

	project   *profile.Project // of the workspace
	projectOf string           // that workspace
	ended     chan struct{}    // closed when nobody tells of changes any more
}

// running is a sandbox that can be changed.
type running struct {
	part
	live  *sandbox.Live      // nil: its paths cannot
	reach *sandbox.Reach     // nil: its network cannot
	end   context.CancelFunc // ends it
	mu    sync.Mutex         // held over each change, so that the last one counts
}

// A part is what one sandbox of a session has by itself.
type part struct {
	request  profile.Request
	home     *home
	commands string // see profile.Profile.CommandSocket
}

// Open begins a session. It ends with Close, and with the context. Without a broker there is nothing that could go wrong but
// the request.
func Open(ctx context.Context, o Options) (*Session, error) {
	agent, err := o.Config.AgentOf(o.Request)
	if err != nil {
		return nil, err
	}
	o.Request.Agent = agent
	s := &Session{options: o, home: home{name: wholeHome, furnish: o.Furnish}, agent: home{name: agentsHome}, state: o.Caller.Directories().State, running: map[*running]bool{}, ended: make(chan struct{}), closing: make(chan struct{})}
	if o.Apart {
		s.home.name = commandsHome
	}
	s.connected.tell = s.observe
	s.ctx, s.cancel = context.WithCancel(ctx)
	if o.Broker == nil {
		close(s.ended)
		return s, nil
	}
	request := o.Request
	request.Stored = nil
	p, err := s.narrowed(request)
	if err != nil {
		return nil, err
	}
	plan, err := sandbox.Build(p, sandbox.Host{})
	if err != nil {
		return nil, err
	}
	s.spec = spec(o, p, &plan)
	if s.broker, err = o.Broker.Open(ctx, s.spec); err != nil {
		return nil, err
	}
	if s.broker.Socket != "" {
		if s.relay, err = newRelay(s.broker.Socket, s.toBroker); err != nil {
			s.broker.Close()
			return nil, fmt.Errorf("a socket to ask at: %w", err)
		}
	}
	s.read(time.Now())
	s.told = true
	go s.follow()
	return s, nil
}

// spec describes the session to the broker. What was approved before, that knows itself.
func spec(o Options, p profile.Profile, plan *sandbox.Plan) grants.SessionSpec {
	spec := grants.SessionSpec{Agent: p.Agent, Workspace: p.Workspace, Command: shortened(o.Command), Live: o.Live && sandbox.CanBeLive(p) == ""}
	for _, step := range plan.Steps {
		switch {
		case step.Image, step.Kind == sandbox.Bind && strings.HasPrefix(step.Source, "/proc/"): // no path of the host's
		case step.Kind == sandbox.Bind:
			spec.Shown = append(spec.Shown, grants.Shown{Path: step.Path, Access: step.Access})
		case step.Kind == sandbox.Symlink:
			spec.Links = append(spec.Links, step.Path)
		case step.Kind == sandbox.Mask, step.Kind == sandbox.Private, step.Kind == sandbox.Empty:
			spec.Hidden = append(spec.Hidden, step.Path)
		}
	}
	spec.Hidden = append(spec.Hidden, plan.Hidden...)
	return spec
}

// maxCommand is what the broker takes of a command line, in bytes.
const maxCommand = 1000

func shortened(command string) string {
	command = strings.ToValidUTF8(command, "\uFFFD")
	if len(command) <= maxCommand {
		return command
	}
	return strings.ToValidUTF8(command[:maxCommand-len("…")], "") + "…"
}

// Socket is where the inside asks, on the host. It is empty without a broker.
func (s *Session) Socket() string {
	if s.relay == nil {
		return ""
	}
	return s.relay.path
}

// Asked reports whether the broker can have anything to tell of the session.
func (s *Session) Asked() bool { return s.asked.Load() }

// ID is the broker's name for the session.
func (s *Session) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broker == nil {
		return ""
	}
	return s.broker.ID
}

// key is under what a later broker knows the session.
func (s *Session) key() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broker.Key
}

// read takes what is stored. It is called when no change can be missed: before any, or after the broker is gone.
func (s *Session) read(now time.Time) {
	list, notices := grants.Current(s.state, agentOf(s.options.Request), now)
	domains, more := grants.CurrentDomains(s.state, agentOf(s.options.Request), now)
	list, notices = append(list, domains...), append(notices, more...)
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.held
	s.held = make(map[string]grants.Grant, len(list))
	for _, g := range list {
		s.held[g.ID] = g
		s.endings.Note(g)
	}
	for id := range was {
		if _, still := s.held[id]; !still {
			s.endings.Forget(id)
		}
	}
	s.version++
	s.scheduleExpiry()
	s.left = nil
	for _, n := range notices {
		s.left = append(s.left, sandbox.Notice{Kind: sandbox.NoticeKind(n.Kind), Path: n.Path, Text: n.Text})
	}
}

func agentOf(r profile.Request) string { return cmp.Or(r.Agent, profile.DefaultAgent) }

// stored are the grants of now, as a sandbox takes them.
func (s *Session) stored() []profile.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []grants.Grant
	for _, id := range slices.Sorted(maps.Keys(s.held)) {
		if g := s.held[id]; g.Domain == "" && !s.endings.Over(g) {
			list = append(list, g)
		}
	}
	slices.SortStableFunc(list, func(a, b grants.Grant) int { return cmp.Compare(a.Path, b.Path) })
	return grants.Profiles(list)
}

// Prepare builds the sandbox of one command. change, if there is one, adds to the session's request what is this command's own.
func (s *Session) Prepare(change func(*profile.Request)) (*Prepared, error) {
	return s.prepare(part{home: &s.home}, change, false)
}

// PrepareRun is Prepare for a command that is run right away, and once: see sandbox.Lookout.
func (s *Session) PrepareRun(change func(*profile.Request)) (*Prepared, error) {
	return s.prepare(part{home: &s.home}, change, true)
}

// PrepareAgent is PrepareRun for the agent itself, where its commands run apart. change adds what the commands' sandboxes must not have, furnish is
// as in Options, and commands is the socket at which the agent has its commands run.
func (s *Session) PrepareAgent(change func(*profile.Request), furnish func(home string) error, commands string) (*Prepared, error) {
	s.agent.furnish = furnish
	return s.prepare(part{home: &s.agent, commands: commands}, change, true)
}

func (s *Session) prepare(of part, change func(*profile.Request), watched bool) (*Prepared, error) {
	s.mu.Lock()
	told := s.told
	s.mu.Unlock()
	if !told {
		s.read(time.Now())
	}
	swept := sandbox.Sweep(s.state)
	moveHomes(s.state)
	p := &Prepared{part: of, session: s, watched: watched}
	p.request = s.options.Request
	if change != nil {
		change(&p.request)
	}
	if err := p.build(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.Plan.Notices = append(append(swept, s.left...), p.Plan.Notices...)
	if why := p.Profile.Closed(); why != "" && s.options.Broker == nil {
		p.Plan.Notices = append(p.Plan.Notices, sandbox.Notice{Kind: NoticeClosed, Text: why})
	}
	s.left = nil
	return p, nil
}

// Prepared is a sandbox before its command.
type Prepared struct {
	Profile profile.Profile
	Plan    sandbox.Plan

	part
	session  *Session
	version  int      // of what is granted
	programs []string // that the plan shows besides
	standIns []string // programs of the system's in whose place it has this one
	watched  bool     // it is run next
	lookout  *sandbox.Lookout
}

// ShowProgram shows this program inside under a name, and returns its path there; see sandbox.Plan.ShowProgram. It stays when Run
// builds the plan anew, because something was granted meanwhile.
func (p *Prepared) ShowProgram(name string) string {
	p.programs = append(p.programs, name)
	return p.Plan.ShowProgram(name, "")
}

// StandIn puts this program in place of others inside; see sandbox.Plan.StandIn. It stays as with ShowProgram.
func (p *Prepared) StandIn(paths []string) {
	p.standIns = append(p.standIns, paths...)
	for _, path := range paths {
		p.Plan.StandIn(path)
	}
}

func (p *Prepared) build() (err error) {
	p.session.mu.Lock()
	p.version = p.session.version
	p.session.mu.Unlock()
	if p.Profile, err = p.session.resolve(p.part); err == nil {
		err = p.session.makeHome(p.home, &p.Profile)
	}
	if err == nil {
		err = p.session.openWorkspace(&p.Profile)
	}
	if err != nil {
		return err
	}
	var host sandbox.Tree = sandbox.Host{}
	if p.lookout.Close(); p.watched {
		p.lookout = sandbox.NewLookout()
		host = p.lookout
	}
	if p.Plan, err = sandbox.Build(p.Profile, host); err == nil {
		err = checkLinks(p.Profile.OwnLinks, &p.Plan)
	}
	if err != nil {
		p.lookout.Close()
		return err
	}
	for _, name := range p.programs {
		p.Plan.ShowProgram(name, "")
	}
	for _, path := range p.standIns {
		p.Plan.StandIn(path)
	}
	return nil
}

// checkLinks refuses a sandbox that may put another link in the place of one that leads to this program's own files.
func checkLinks(links []string, plan *sandbox.Plan) error {
	for _, link := range links {
		for _, step := range plan.Steps {
			if step.Kind == sandbox.Bind && step.Access == profile.ReadWrite && profile.Within(link, step.Path) {
				return &sandbox.SetupError{Path: step.Path, Why: "cannot be writable: the link " + profile.Printable(link) + " in it leads to clai-sandbox's own files",
					Hint: "link to the file itself, or choose another directory with --workspace DIR"}
			}
		}
	}
	return nil
}

// narrowed is a profile with what the workspace's own file takes away. The file is read once: no command of the session loosens it.
func (s *Session) narrowed(r profile.Request) (profile.Profile, error) {
	p, err := profile.Resolve(s.options.Config, s.options.Caller, r)
	if err != nil || r.NoProject {
		return p, err
	}
	s.mu.Lock()
	if s.projectOf != p.Workspace {
		s.project, err = profile.ReadProject(p.Workspace)
		s.projectOf = p.Workspace
		if err != nil {
			s.projectOf = ""
		}
	}
	r.Project = s.project
	s.mu.Unlock()
	if err != nil || r.Project == nil {
		return p, err
	}
	return profile.Resolve(s.options.Config, s.options.Caller, r)
}

// resolve joins a request with what is granted now.
func (s *Session) resolve(of part) (profile.Profile, error) {
	r := of.request
	r.Stored, r.StoredDomains = s.stored(), s.domainRules()
	p, err := s.narrowed(r)
	p.AskSocket, p.PrivateTmp, p.PrivateHome, p.SandboxWorkspace = s.Socket(), s.options.PrivateTmp, of.home.directory(), s.work.directory()
	if p.CommandSocket = of.commands; of.commands != "" { // what its commands serve, and sign, is theirs
		p.Published, p.SSHKeys = nil, nil
	}
	return p, err
}

// Close is for what was prepared to be run, and is not.
func (p *Prepared) Close() { p.lookout.Close() }

// Run runs the command. See sandbox.Launcher.Run.
func (p *Prepared) Run(ctx context.Context, l sandbox.Launcher, command []string, stdio sandbox.Stdio) (sandbox.Result, error) {
	defer p.Close()
	ctx, leave, err := p.enter(ctx, &l)
	if err != nil {
		return sandbox.Result{}, err
	}
	defer leave()
	return l.Run(ctx, p.Plan, command, stdio)
}

// Open makes a sandbox in which commands are started one by one. See sandbox.Launcher.Open. What is granted comes and goes there, too.
func (p *Prepared) Open(ctx context.Context, l sandbox.Launcher) (*sandbox.Session, error) {
	ctx, leave, err := p.enter(ctx, &l)
	if err != nil {
		return nil, err
	}
	opened, err := l.Open(ctx, p.Plan)
	if err != nil {
		leave()
		p.Close()
		return nil, err
	}
	go func() {
		<-opened.Ended()
		leave()
		p.Close()
	}()
	return opened, nil
}

// enter makes a sandbox that is about to be made one that shows what is granted from now on, until leave.
func (p *Prepared) enter(ctx context.Context, l *sandbox.Launcher) (_ context.Context, leave func(), err error) {
	leave = func() {}
	if err := p.takeHome(); err != nil {
		return nil, nil, err
	}
	if o := p.session.options; len(p.Plan.SSHAgent.Keys) > 0 && o.SSHAgent != nil {
		if l.SSHAgent, err = o.SSHAgent(); err != nil {
			return nil, nil, err
		}
	}
	if p.session.options.Broker != nil {
		l.AskSSH = func(ctx context.Context, q sshagent.Question) sshagent.Answer {
			return p.session.askSSH(ctx, p.Profile.SSHKeys, q)
		}
		l.AskPublish = p.session.askPublish
	}
	s := p.session
	live := s.options.Live && s.options.Broker != nil && sandbox.CanBeLive(p.Profile) == ""
	filtered := s.options.Broker != nil && p.Profile.Network == profile.NetworkFiltered
	if live || filtered {
		r := &running{part: p.part}
		ctx, r.end = context.WithCancel(ctx)
		if live {
			r.live = &sandbox.Live{}
			l.Live = r.live
		}
		if filtered {
			r.reach = &sandbox.Reach{}
			l.Reach, l.AskNetwork, l.JudgedNetwork = r.reach, s.askNetwork, s.connected.note
		}
		s.mu.Lock()
		s.running[r] = true
		outdated := s.version != p.version
		s.mu.Unlock()
		leave = func() {
			s.mu.Lock()
			delete(s.running, r)
			s.mu.Unlock()
			r.end()
		}
		if outdated {
			notices := p.Plan.Notices
			if err := p.build(); err != nil {
				leave()
				return nil, nil, err
			}
			p.Plan.Notices = notices
		}
	}
	return ctx, leave, nil
}

// follow takes up what is granted and taken away, until the session ends. A broker that ends leaves the session without one, until
// the next has it.
func (s *Session) follow() {
	defer close(s.ended)
	for {
		s.mu.Lock()
		events := s.broker.Events
		s.mu.Unlock()
		for event := range events {
			s.asked.Store(true)
			switch {
			case event.Grant != nil:
				s.take(event)
			case event.Overrides != nil:
				s.override(*event.Overrides)
			case event.Kind == grants.EventRequestEnded && event.Notice != nil: // a person said no
				s.notice(sandbox.Notice{Kind: sandbox.NoticeKind(event.Notice.Kind), Path: event.Notice.Path, Text: event.Notice.Text})
			}
		}
		s.lose()
		if !s.rejoin() {
			return
		}
	}
}

// override takes up where an operator wants commands run that name no host.
func (s *Session) override(o grants.Overrides) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.where = o.Where()
}

// Where is the host that an operator wants commands run on that name none; empty: nobody said so.
func (s *Session) Where() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.where
}

// take takes up one change.
func (s *Session) take(event grants.Event) {
	g := *event.Grant
	s.mu.Lock()
	s.version++
	switch event.Kind {
	case grants.EventGranted, grants.EventDomainGranted, grants.EventConfirmed, grants.EventNarrowed:
		s.held[g.ID] = g
		s.endings.Note(g)
	case grants.EventRevoked, grants.EventExpired, grants.EventStale:
		delete(s.held, g.ID)
		s.endings.Forget(g.ID)
	}
	s.scheduleExpiry()
	s.mu.Unlock()
	given := event.Kind == grants.EventGranted || event.Kind == grants.EventDomainGranted || event.Kind == grants.EventConfirmed
	problem := s.updateAll(!given)
	if event.Kind == grants.EventDomainGranted {
		s.notice(sandbox.Notice{Kind: sandbox.NoticeKind(grants.NoticeDomainGranted), Domain: g.Domain, Text: "granted while the session ran: " + profile.Printable(g.Domain) + " (grant " + g.ID + ")"})
	}
	if event.Kind == grants.EventGranted {
		s.notice(sandbox.Notice{Kind: sandbox.NoticeKind(grants.NoticePathGranted), Path: g.Path,
			Text: "granted while the session ran: " + profile.Printable(g.Path) + ", " + g.Access.String() + " (grant " + g.ID + ")"})
	}
	if s.options.Live || g.Domain != "" {
		s.applied(grants.Applied{Grant: g.ID, Event: event.Kind, Problem: problem})
	}
}

// updateAll makes all running sandboxes show what is granted now. taken says that it may be less than before. The problem is the
// last that one had.
func (s *Session) updateAll(taken bool) (problem string) {
	s.mu.Lock()
	list := slices.Collect(maps.Keys(s.running))
	s.mu.Unlock()
	for _, r := range list {
		if err := s.update(r, taken); err != nil && err != sandbox.ErrNotLive {
			problem = err.Error()
		}
	}
	return problem
}

// lose is for the end of the broker: from here on nobody tells of what is taken away. What this session alone was granted is over,
// the rest is read anew, and its times run on here.
func (s *Session) lose() {
	s.read(time.Now())
	s.mu.Lock()
	s.told = false
	list := slices.Collect(maps.Keys(s.running))
	s.mu.Unlock()
	for _, r := range list {
		if s.update(r, true) != sandbox.ErrNotLive {
			s.notice(sandbox.Notice{Kind: NoticeBroker, Text: "the broker is gone: what was granted for this session only was taken away, and until there is one again nobody can be asked"})
		}
	}
}

// rejoinEvery is how often to look for another broker.
const rejoinEvery = 200 * time.Millisecond

// rejoin waits for another broker, which somebody else starts, and goes on there. It reports false if the session ends.
func (s *Session) rejoin() bool {
	look := time.NewTicker(rejoinEvery)
	defer look.Stop()
	for {
		select {
		case <-s.closing:
			return false
		case <-s.ctx.Done():
			return false
		case <-look.C:
		}
		if s.joined() || s.join(onlyRunning(s.options.Broker)) == nil {
			return true
		}
	}
}

// onlyRunning is a broker as far as it runs: to go on with a session starts none.
func onlyRunning(b grants.Broker) grants.Broker {
	if c, ok := b.(interface{ Running() grants.Broker }); ok {
		return c.Running()
	}
	return b
}

// join opens the session anew, at a broker that does not know it, and takes away what was taken away meanwhile.
func (s *Session) join(b grants.Broker) error {
	s.joining.Lock()
	defer s.joining.Unlock()
	if s.joined() {
		return nil
	}
	select {
	case <-s.closing:
		return errEnded
	default:
	}
	spec := s.spec
	spec.Previous = s.key()
	again, err := b.Open(s.ctx, spec) // it lasts as long as the session
	if err != nil {
		return err
	}
	s.read(time.Now())
	s.mu.Lock()
	s.broker, s.told, s.where = again, true, "" // what was said is told again
	s.mu.Unlock()
	s.updateAll(true)
	s.applied(grants.Applied{Event: grants.EventSession})
	return nil
}

var errEnded = &grants.UnavailableError{Why: "the session has ended", Hint: "begin another one"}

// joined reports whether a broker tells of changes.
func (s *Session) joined() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told
}

// scheduleExpiry wakes when the next grant's time is over, whether or not there is a broker that says so. The lock is held.
func (s *Session) scheduleExpiry() {
	s.expiry.Stop()
	next, any := time.Duration(0), false
	for _, g := range s.held {
		if left, ends := s.endings.Left(g); ends && (!any || left < next) {
			next, any = left, true
		}
	}
	if !any || s.options.Broker == nil {
		return
	}
	s.expiry = grants.NewAlarm(next, func() {
		select {
		case <-s.closing:
			return
		default:
		}
		s.mu.Lock()
		before := len(s.held)
		maps.DeleteFunc(s.held, func(id string, g grants.Grant) bool {
			over := s.endings.Over(g)
			if over {
				s.endings.Forget(id)
			}
			return over
		})
		over := len(s.held) < before
		if over {
			s.version++
		}
		s.mu.Unlock()
		if over {
			s.updateAll(true)
		}
		s.mu.Lock()
		s.scheduleExpiry()
		s.mu.Unlock()
	})
}

// applyTimeout bounds how long a change may take to be seen.
const applyTimeout = 30 * time.Second

// update makes a running sandbox show what is granted now. Where something was taken and it cannot even be said what is granted now, or
// the sandbox does not take it up, it would go on showing what it should not: then it is ended. A *sandbox.LiveError is about a path
// that could not be shown.
func (s *Session) update(r *running, taken bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), applyTimeout)
	defer cancel()
	p, err := s.resolve(r.part)
	var notices []sandbox.Notice
	if err == nil && r.reach != nil {
		r.reach.Set(p.Domains)
	}
	if err == nil && r.live != nil {
		notices, err = r.live.Show(ctx, p)
	}
	if taken && err != nil && err != sandbox.ErrNotLive && !errors.As(err, new(*sandbox.LiveError)) {
		r.end()
		err = fmt.Errorf("the sandbox was ended, because it could not be told what is granted now: %w", err)
	}
	for _, n := range notices {
		if n.Kind == sandbox.NoticeHeld {
			s.notice(n)
		}
	}
	if err != nil && err != sandbox.ErrNotLive {
		s.notice(sandbox.Notice{Kind: sandbox.NoticePathLeftOut, Text: "not changed while the command ran: " + err.Error()})
	}
	return err
}

// maxNotices bounds what is kept until somebody asks.
const maxNotices = 100

func (s *Session) notice(n sandbox.Notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.notices) < maxNotices {
		s.notices = append(s.notices, n)
	}
}

// NoticeClosed is about a filtered network that reaches nothing, because nothing is allowed.
const NoticeClosed sandbox.NoticeKind = "network_closed"

// NoticeBroker is about a broker that went away.
const NoticeBroker sandbox.NoticeKind = "broker_gone"

func (s *Session) applied(a grants.Applied) {
	ctx, cancel := context.WithTimeout(context.Background(), applyTimeout)
	defer cancel()
	_ = onlyRunning(s.options.Broker).Applied(ctx, s.ID(), a)
}

// Ask asks in the session's name, for a harness that asks outside the sandbox.
func (s *Session) Ask(ctx context.Context, a grants.Asking) (grants.Answer, error) {
	if s.options.Broker == nil {
		return grants.Answer{}, &grants.UnavailableError{Why: "this session was started without a broker", Hint: "start it with --broker"}
	}
	if err := s.join(s.options.Broker); err != nil { // where the last one has ended, one is started
		return grants.Answer{}, err
	}
	return s.options.Broker.Ask(ctx, s.ID(), a)
}

// RunOutside has a command run outside of any sandbox, in the session's name. Where a broker ends meanwhile, the next one is asked under the same name: that one
// knows what became of it.
func (s *Session) RunOutside(ctx context.Context, c grants.Command) (grants.CommandAnswer, error) {
	runner, ok := s.options.Broker.(grants.Runner)
	if !ok {
		return grants.CommandAnswer{}, &grants.UnavailableError{Why: "this session was started without a broker", Hint: "start it with --broker"}
	}
	ctx = grants.WithRequestID(ctx, rand.Text())
	for attempt := 0; ; attempt++ {
		if err := s.join(s.options.Broker); err != nil { // where the last one has ended, one is started
			return grants.CommandAnswer{}, err
		}
		answer, err := runner.RunOutside(ctx, s.ID(), false, c)
		var unknown *grants.UnknownError
		if attempt == 2 || !errors.As(err, &unknown) {
			return answer, err
		}
		select { // it takes a moment to hear that the session's broker is another
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return answer, ctx.Err()
		}
	}
}

// AskPerson asks a person in words, in the session's name.
func (s *Session) AskPerson(ctx context.Context, q grants.PersonQuestion) (grants.PersonAnswer, error) {
	questioner, ok := s.options.Broker.(grants.Questioner)
	if !ok {
		return grants.PersonAnswer{}, &grants.UnavailableError{Why: "this session was started without a broker", Hint: "start it with --broker"}
	}
	if err := s.join(s.options.Broker); err != nil { // where the last one has ended, one is started
		return grants.PersonAnswer{}, err
	}
	return questioner.AskPerson(ctx, s.ID(), q)
}

// WaitOutside waits for the end of a command that was accepted.
func (s *Session) WaitOutside(ctx context.Context, id string) (grants.CommandAnswer, error) {
	runner, ok := s.options.Broker.(grants.Runner)
	if !ok {
		return grants.CommandAnswer{}, &grants.UnknownError{What: "command", ID: id}
	}
	return runner.WaitOutside(ctx, id)
}

// Notices are what the person should know of changes while the commands ran, once.
func (s *Session) Notices() []sandbox.Notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.notices
	s.notices = nil
	return list
}

// Close ends the session: what was granted for it alone is over.
func (s *Session) Close() {
	defer s.cancel()
	defer s.home.close()
	defer s.agent.close()
	defer s.closeWorkspace()
	if s.options.Broker == nil {
		return
	}
	s.connected.end()
	s.mu.Lock()
	select {
	case <-s.closing:
	default:
		close(s.closing)
	}
	if !s.told {
		s.cancel() // a broker that does not answer holds nobody who leaves
	}
	s.mu.Unlock()
	s.joining.Lock() // not between two brokers
	s.mu.Lock()
	s.expiry.Stop()
	last := s.broker
	s.mu.Unlock()
	s.joining.Unlock()
	last.Close()
	<-s.ended
	if s.relay != nil {
		s.relay.close()
	}
}

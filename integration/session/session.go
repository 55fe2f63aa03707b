package session

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
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
	// Command tells the person who decides what the session runs.
	Command string
}

// A Session is one agent's sitting. Its methods may be called from any goroutine.
type Session struct {
	options Options
	state   string // directory
	broker  *grants.Session

	mu      sync.Mutex
	held    map[string]grants.Grant // what is granted now, by id
	version int                     // of held
	told    bool                    // the broker tells of every change
	running map[*running]bool
	left    []sandbox.Notice // about what is stored, for the next sandbox
	notices []sandbox.Notice // about changes while commands ran
	ended   chan struct{}    // closed when nobody tells of changes any more
}

// running is a sandbox that can be changed.
type running struct {
	live    *sandbox.Live
	request profile.Request
	mu      sync.Mutex // held over each change, so that the last one counts
}

// Open begins a session. It ends with Close, and with the context. Without a broker there is nothing that could go wrong but
// the request.
func Open(ctx context.Context, o Options) (*Session, error) {
	if err := o.Config.CheckConfigured(o.Request.Agent); err != nil {
		return nil, err
	}
	s := &Session{options: o, state: o.Caller.Directories().State, running: map[*running]bool{}, ended: make(chan struct{})}
	if o.Broker == nil {
		close(s.ended)
		return s, nil
	}
	request := o.Request
	request.Stored = nil
	p, err := profile.Resolve(o.Config, o.Caller, request)
	if err != nil {
		return nil, err
	}
	plan, err := sandbox.Build(p, sandbox.Host{})
	if err != nil {
		return nil, err
	}
	if s.broker, err = o.Broker.Open(ctx, spec(o, p, &plan)); err != nil {
		return nil, err
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
		case step.Kind == sandbox.Bind && strings.HasPrefix(step.Source, "/proc/"): // no path of the host's
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
	if s.broker == nil {
		return ""
	}
	return s.broker.Socket
}

// ID is the broker's name for the session.
func (s *Session) ID() string {
	if s.broker == nil {
		return ""
	}
	return s.broker.ID
}

// read takes what is stored. It is called when no change can be missed: before any, or after the broker is gone.
func (s *Session) read(now time.Time) {
	list, notices := grants.Current(s.state, agentOf(s.options.Request), now)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = make(map[string]grants.Grant, len(list))
	for _, g := range list {
		s.held[g.ID] = g
	}
	s.version++
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
	now := time.Now()
	var list []grants.Grant
	for _, id := range slices.Sorted(maps.Keys(s.held)) {
		if g := s.held[id]; !g.Expired(now) {
			list = append(list, g)
		}
	}
	slices.SortStableFunc(list, func(a, b grants.Grant) int { return cmp.Compare(a.Path, b.Path) })
	return grants.Profiles(list)
}

// Prepare builds the sandbox of one command. change, if there is one, adds to the session's request what is this command's own.
func (s *Session) Prepare(change func(*profile.Request)) (*Prepared, error) {
	s.mu.Lock()
	told := s.told
	s.mu.Unlock()
	if !told {
		s.read(time.Now())
	}
	p := &Prepared{session: s, request: s.options.Request}
	if change != nil {
		change(&p.request)
	}
	if err := p.build(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.Plan.Notices = append(s.left, p.Plan.Notices...)
	if why := p.Profile.Closed(); why != "" {
		p.Plan.Notices = append(p.Plan.Notices, sandbox.Notice{Kind: NoticeClosed, Text: why})
	}
	s.left = nil
	return p, nil
}

// Prepared is a sandbox before its command.
type Prepared struct {
	Profile profile.Profile
	Plan    sandbox.Plan

	session  *Session
	request  profile.Request
	version  int      // of what is granted
	programs []string // that the plan shows besides
}

// ShowProgram shows this program inside under a name, and returns its path there; see sandbox.Plan.ShowProgram. It stays when Run
// builds the plan anew, because something was granted meanwhile.
func (p *Prepared) ShowProgram(name string) string {
	p.programs = append(p.programs, name)
	return p.Plan.ShowProgram(name, "")
}

func (p *Prepared) build() (err error) {
	p.session.mu.Lock()
	p.version = p.session.version
	p.session.mu.Unlock()
	if p.Profile, err = p.session.resolve(p.request); err == nil {
		p.Plan, err = sandbox.Build(p.Profile, sandbox.Host{})
	}
	if err != nil {
		return err
	}
	for _, name := range p.programs {
		p.Plan.ShowProgram(name, "")
	}
	return nil
}

func (s *Session) resolve(r profile.Request) (profile.Profile, error) {
	r.Stored = s.stored()
	p, err := profile.Resolve(s.options.Config, s.options.Caller, r)
	p.AskSocket, p.PrivateTmp = s.Socket(), s.options.PrivateTmp
	return p, err
}

// Run runs the command. See sandbox.Launcher.Run.
func (p *Prepared) Run(ctx context.Context, l sandbox.Launcher, command []string, stdio sandbox.Stdio) (sandbox.Result, error) {
	if s := p.session; s.options.Live && s.broker != nil && sandbox.CanBeLive(p.Profile) == "" {
		r := &running{live: &sandbox.Live{}, request: p.request}
		l.Live = r.live
		s.mu.Lock()
		s.running[r] = true
		outdated := s.version != p.version
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			delete(s.running, r)
			s.mu.Unlock()
		}()
		if outdated {
			notices := p.Plan.Notices
			if err := p.build(); err != nil {
				return sandbox.Result{}, err
			}
			p.Plan.Notices = notices
		}
	}
	return l.Run(ctx, p.Plan, command, stdio)
}

// follow takes up what is granted and taken away.
func (s *Session) follow() {
	defer close(s.ended)
	for event := range s.broker.Events {
		if event.Grant == nil {
			continue
		}
		g := *event.Grant
		s.mu.Lock()
		s.version++
		switch event.Kind {
		case grants.EventGranted, grants.EventConfirmed, grants.EventNarrowed:
			s.held[g.ID] = g
		case grants.EventRevoked, grants.EventExpired, grants.EventStale:
			delete(s.held, g.ID)
		}
		list := slices.Collect(maps.Keys(s.running))
		s.mu.Unlock()
		var problem string
		for _, r := range list {
			if err := s.update(r); err != nil && err != sandbox.ErrNotLive {
				problem = err.Error()
			}
		}
		if event.Kind == grants.EventGranted {
			s.notice(sandbox.Notice{Kind: sandbox.NoticeKind(grants.NoticePathGranted), Path: g.Path,
				Text: "granted while the session ran: " + profile.Printable(g.Path) + ", " + g.Access.String() + " (grant " + g.ID + ")"})
			if s.options.Live {
				s.applied(g.ID, problem)
			}
		}
	}
	// From here on nobody tells of what is taken away: what this session alone was granted is over, the rest is read anew.
	s.read(time.Now())
	s.mu.Lock()
	s.told = false
	list := slices.Collect(maps.Keys(s.running))
	s.mu.Unlock()
	for _, r := range list {
		if s.update(r) != sandbox.ErrNotLive {
			s.notice(sandbox.Notice{Kind: NoticeBroker, Text: "the broker is gone: what was granted for this session only was taken away, and nobody can be asked"})
		}
	}
}

// applyPatience bounds how long a change may take to be seen.
const applyPatience = 30 * time.Second

// update makes a running sandbox show what is granted now.
func (s *Session) update(r *running) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, err := s.resolve(r.request)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), applyPatience)
	defer cancel()
	notices, err := r.live.Show(ctx, p)
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

func (s *Session) applied(grant, problem string) {
	ctx, cancel := context.WithTimeout(context.Background(), applyPatience)
	defer cancel()
	s.options.Broker.Applied(ctx, s.broker.ID, grant, problem)
}

// Ask asks in the session's name, for a harness that asks outside the sandbox.
func (s *Session) Ask(ctx context.Context, a grants.Asking) (grants.Answer, error) {
	if s.broker == nil {
		return grants.Answer{}, &grants.UnavailableError{Why: "this session was started without a broker", Hint: "start it with --broker"}
	}
	return s.options.Broker.Ask(ctx, s.broker.ID, a)
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
	if s.broker != nil {
		s.broker.Close()
		<-s.ended
	}
}

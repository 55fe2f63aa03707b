package session

import (
	"cmp"
	"context"
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
)

// Options say what a session is for.
type Options struct {
	Caller  profile.Caller
	Config  *profile.Config
	Request profile.Request // what all sandboxes of the session ask for
	// Broker is asked by the inside, if there is one.
	Broker grants.Broker
	// Live sandboxes show what is granted, and lose what is taken away, while they run. It takes a
	// broker.
	Live bool
	// PrivateTmp stands at /tmp in each sandbox of the session; see profile.Profile.
	PrivateTmp string
	// SSHAgent finds the program that serves a sandbox's ssh-agent; see sandbox.Launcher. Nil:
	// there is none.
	SSHAgent func() ([]string, error)
	// Furnish puts into the agent's own home, where it has one, what belongs there. Nothing runs in
	// it meanwhile.
	Furnish func(home string) error
	// Apart says that the agent itself is in a sandbox that PrepareAgent prepares, and all others
	// of the session are its commands'. Each side has a home of its own.
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

// Open begins a session. It ends with Close, and with the context. Without a broker there is
// nothing that could go wrong but the request.
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

// spec describes the session to the broker. It leaves out earlier grants,
// which the broker has.
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

// read takes what is stored. It is called when no change can be missed: before any, or after the
// broker is gone.
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

// Where is the host that an operator wants commands run on that name none; empty: nobody said so.
func (s *Session) Where() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.where
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

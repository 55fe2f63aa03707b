package mcp

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/clairun/clai-sandbox/integration/instructions"
	"github.com/clairun/clai-sandbox/integration/session"
	"github.com/clairun/clai-sandbox/sandbox"
)

// A client session is one client's.
type clientSession struct {
	options Options
	fields  map[string]reflect.Type // of each tool's result, once there is a server
	session *session.Session
	tmp     string // /tmp, on the host, for this process
	private privateTmp
	bwrap   sandbox.Bwrap
	ctx     context.Context // ends with the client session
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu          sync.Mutex
	unavailable error // why nothing can be run
	jobs        map[string]*job
	launching   int // jobs that are not in the map yet
	nextJob     int
	asks        map[askKey]*ask
	questions   map[string]*words      // to the person, in words
	outside     map[string]*outsideRun // what runs or waits outside of the sandbox, by its id
	denied      map[string]bool        // paths of which the agent has been told that they were denied
	later       []sandbox.Notice       // for the next result
	closed      bool

	opening sync.Mutex
	room    *room // once there is one
	alone   bool  // there can be none
}

// client session is one that has not begun.
func (o Options) clientSession(ctx context.Context) *clientSession {
	s := &clientSession{options: o, fields: map[string]reflect.Type{}, jobs: map[string]*job{}, asks: map[askKey]*ask{}, questions: map[string]*words{}, outside: map[string]*outsideRun{}, denied: map[string]bool{}}
	s.ctx, s.cancel = context.WithCancel(ctx)
	var err error
	if s.bwrap, err = sandbox.FindBwrap(o.Bwrap, o.Session.Caller.Directories().State); err != nil {
		s.unavailable = err
	}
	return s
}

// open begins a client session.
func (o Options) open(ctx context.Context) (*clientSession, error) {
	s := o.clientSession(ctx)
	return s, s.begun()
}

// begun begins the client session, if that has not been done.
func (s *clientSession) begun() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errors.New("the session has ended")
	case s.session != nil:
		return nil
	}
	options := s.options.Session
	tmp, err := newTmp(options.Caller.Directories().State)
	if err != nil {
		return fmt.Errorf("a private /tmp: %w", err)
	}
	options.PrivateTmp = tmp.source()
	opened, err := session.Open(s.ctx, options)
	if err != nil {
		tmp.clear()
		return err
	}
	s.tmp, s.private, s.session = tmp.path(), tmp, opened
	return nil
}

// unused reports whether nothing has been done in it.
func (s *clientSession) unused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session == nil
}

// close ends everything of the client session.
func (s *clientSession) close() {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return
	}
	s.cancel()
	s.running.Wait()
	if s.session != nil {
		s.session.Close()
		s.private.clear()
	}
}

// cannot says why nothing can be run, if nothing can.
func (s *clientSession) cannot() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unavailable
}

// about describes the sandbox to the agent.
func (s *clientSession) about() string {
	if err := s.cannot(); err != nil {
		return instructions.Text(instructions.About{Unavailable: explained(err)})
	}
	options := s.options.Session
	options.Broker = nil
	now, err := session.Open(s.ctx, options)
	if err != nil {
		return instructions.Text(instructions.About{Unavailable: explained(err)})
	}
	defer now.Close()
	prepared, err := now.Prepare(nil)
	if err != nil {
		return instructions.Text(instructions.About{Unavailable: explained(err)})
	}
	// That bwrap is there does not say that the kernel lets it work.
	if err := sandbox.Works(s.ctx, prepared.Plan, sandbox.Launcher{Bwrap: s.bwrap}); err != nil {
		return instructions.Text(instructions.About{Unavailable: explained(err)})
	}
	return instructions.Text(instructions.About{Profile: prepared.Profile, Plan: &prepared.Plan, CanAsk: s.options.Session.Broker != nil,
		HostExec: s.options.Session.Config.OffersHostExec(prepared.Profile.Agent)})
}

// explained is an error with what mends it.
func explained(err error) string {
	var unavailable *sandbox.UnavailableError
	var setup *sandbox.SetupError
	var command *sandbox.CommandError
	text, hint := err.Error(), ""
	switch {
	case errors.As(err, &unavailable):
		hint = unavailable.Hint
	case errors.As(err, &setup):
		hint = setup.Hint
	case errors.As(err, &command):
		hint = command.Hint
	}
	if hint != "" {
		text += "; " + hint
	}
	return text
}

// sittingsName is the directory of the client sessions' private files, in the state directory.
const sittingsName = "clientSessions"

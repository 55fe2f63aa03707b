package broker

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
)

// session is one that is open.
type session struct {
	id       string
	spec     grants.SessionSpec
	view     grants.View
	denials  []denial
	listener *listener
	applied  map[string]chan string // changes that the running sandboxes are to take up: what became of them
	ended    bool
	over     chan struct{} // closed when it has ended
	previous *presence     // the session of an earlier broker that it goes on with
	done     func()        // closes its socket

	overrides grants.Overrides // what somebody said for it
}

// denial is what a person said no to.
type denial struct {
	known  string // grants.Question.Known
	access profile.Access
	reason string
}

const (
	maxShown   = 2 * profile.MaxGrants
	maxCommand = 1000
)

// Open begins a session.
func (b *Broker) Open(ctx context.Context, spec grants.SessionSpec) (*grants.Session, error) {
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	shown := make([]profile.Grant, 0, len(spec.Shown))
	for _, s := range spec.Shown {
		shown = append(shown, profile.Grant{Path: s.Path, Access: s.Access})
	}
	s := &session{id: newID("s"), spec: spec, view: grants.NewView(shown, spec.Hidden, spec.Links), listener: newListener(0), applied: map[string]chan string{}, over: make(chan struct{})}
	s.spec.Shown, s.spec.Hidden, s.spec.Links = nil, nil, nil // the view has them
	// Whoever comes while something is taken away comes after it: what it reads then is without it.
	b.changing.Lock()
	defer b.changing.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return nil, errClosed
	case len(b.sessions) >= b.options.MaxSessions:
		return nil, &grants.BusyError{Why: fmt.Sprintf("%d sessions are open already", len(b.sessions))}
	}
	socket := ""
	if b.options.Listen != nil {
		var err error
		if socket, s.done, err = b.options.Listen(s.id); err != nil {
			return nil, unavailable(err)
		}
	}
	s.overrides = b.overridesOf(spec)
	if err := b.note(s); err != nil {
		if s.done != nil {
			s.done()
		}
		return nil, unavailable(err)
	}
	delete(b.away, spec.Key) // it was begun at a broker that was killed before it said so
	if p := b.away[spec.Previous]; p != nil && p.Agent == spec.Agent {
		s.previous = p
		delete(b.away, p.Key)
	}
	b.sessions[s.id] = s
	if s.overrides != (grants.Overrides{}) {
		b.tellOverrides(s)
	}
	b.agentOf(spec.Agent).sessions++
	context.AfterFunc(ctx, func() { b.endSession(s) })
	return &grants.Session{ID: s.id, Key: spec.Key, Socket: socket, Events: s.listener.events, Close: func() { b.endSession(s) }}, nil
}

// Of says who has a session and where it works. over is closed when it has ended.
func (b *Broker) Of(id string) (agent, workspace string, over <-chan struct{}, err error) {
	s, err := b.session(id)
	if err != nil {
		return "", "", nil, err
	}
	return s.spec.Agent, s.spec.Workspace, s.over, nil
}

// left is what was said for a session that has ended here. Whoever ran it may go on with it, and
// what was to make it stricter then still does.
type left struct {
	agent     string
	overrides grants.Overrides
}

// maxLeft bounds those that are kept.
const maxLeft = 1024

// overridesOf is what was said for the session that a new one goes on with, at this broker or at an
// earlier one.
func (b *Broker) overridesOf(spec grants.SessionSpec) grants.Overrides {
	if p := b.away[spec.Previous]; p != nil && p.Agent == spec.Agent {
		return p.Overrides
	}
	if l, found := b.left[spec.Previous]; found && l.agent == spec.Agent {
		return l.overrides
	}
	return grants.Overrides{}
}

// Override has commands of a session run where and how somebody said, from now on and as long as it
// lasts.
func (b *Broker) Override(id string, o grants.Overrides) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[id]
	if s == nil {
		return &grants.UnknownError{What: "session", ID: id}
	}
	before := s.overrides
	s.overrides = o
	if err := b.note(s); err != nil {
		s.overrides = before
		return unavailable(err)
	}
	b.tellOverrides(s)
	return nil
}

// Overrides are what was said for a session.
func (b *Broker) Overrides(id string) grants.Overrides {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.sessions[id]; s != nil {
		return s.overrides
	}
	return grants.Overrides{}
}

// tellOverrides tells the session, and everyone who listens. The lock is held.
func (b *Broker) tellOverrides(s *session) {
	o := s.overrides
	event := grants.Event{Kind: grants.EventOverridden, Session: s.id, Overrides: &o}
	b.publish(event)
	if !s.listener.send(event) {
		go b.endSession(s)
	}
}

// Sessions lists those that are open, by their ids.
func (b *Broker) Sessions(context.Context) ([]grants.OpenSession, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []grants.OpenSession{}
	for _, s := range b.sessions {
		list = append(list, grants.OpenSession{ID: s.id, Agent: s.spec.Agent, Workspace: s.spec.Workspace, Command: s.spec.Command, PID: s.spec.PID, Overrides: s.overrides})
	}
	slices.SortFunc(list, func(a, b grants.OpenSession) int { return strings.Compare(a.ID, b.ID) })
	return list, nil
}

func checkSpec(spec grants.SessionSpec) error {
	if err := checkAgent(spec.Agent); err != nil {
		return err
	}
	invalid := func(field, why string) error { return &grants.InvalidError{Field: field, Why: why} }
	clean := func(path string) bool { return filepath.IsAbs(path) && filepath.Clean(path) == path }
	switch {
	case !clean(spec.Workspace):
		return invalid("workspaceId", "must be an absolute, clean path")
	case !isKey(spec.Key) || !isKey(spec.Previous):
		return invalid("key", "must be at most 64 letters and digits")
	case len(spec.Command) > maxCommand || !utf8.ValidString(spec.Command):
		return invalid("command", fmt.Sprintf("must be UTF-8 of at most %d bytes", maxCommand))
	case len(spec.Shown) > maxShown || len(spec.Hidden) > maxShown || len(spec.Links) > maxShown:
		return invalid("shown", fmt.Sprintf("has more than %d paths", maxShown))
	}
	for _, s := range spec.Shown {
		if !clean(s.Path) || !s.Access.Grantable() {
			return invalid("shown", "must be absolute, clean paths, "+profile.Accesses)
		}
	}
	for _, path := range append(slices.Clone(spec.Hidden), spec.Links...) {
		if !clean(path) {
			return invalid("hidden", "must be absolute, clean paths, as must links")
		}
	}
	return nil
}

// endSession withdraws what the session asked and ends what it was granted for itself.
func (b *Broker) endSession(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	close(s.over)
	s.isBack(b)
	if !b.closed {
		b.forgetSession(s.spec.Key) // else its sandboxes go on, and the next broker has to know of them
	}
	delete(b.sessions, s.id)
	if s.spec.Key != "" && s.overrides != (grants.Overrides{}) {
		if len(b.left) >= maxLeft {
			clear(b.left)
		}
		b.left[s.spec.Key] = left{s.spec.Agent, s.overrides}
	}
	b.agentOf(s.spec.Agent).sessions--
	for _, r := range b.requests {
		if r.session == s && r.state == pending {
			b.end(r, grants.Answer{Outcome: grants.OutcomeWithdrawn, Reason: "the session ended"})
		}
	}
	for _, g := range b.granted.byAgent[s.spec.Agent] {
		if g.Session == s.id {
			b.granted.remove(g.ID)
			b.publish(grants.Event{Kind: grants.EventRevoked, Session: s.id, Grant: g})
		}
	}
	b.forget(s.spec.Agent)
	s.listener.close()
	if s.done != nil {
		s.done()
	}
}

// tell passes an event about a grant to everyone who listens and to the sessions that have the
// grant. A session that does not listen is ended: it would go on showing what was revoked, and
// nobody would know.
func (b *Broker) tell(kind grants.EventKind, g grants.Grant) {
	event := grants.Event{Kind: kind, Grant: &g, Session: g.Session}
	b.publish(event)
	for _, s := range b.sessions {
		if s.spec.Agent == g.Agent && (g.Scope == grants.ScopeAlways || g.Session == s.id) && !s.listener.send(event) {
			go b.endSession(s)
		}
	}
}

// Tell tells that a grant which somebody else keeps came or went. unreached waits until the
// sandboxes concerned have taken that up, and returns those that could not be reached.
func (b *Broker) Tell(kind grants.EventKind, g grants.Grant) (unreached func() []grants.Sandbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tell(kind, g)
	list := b.reach(kind, g)
	return func() []grants.Sandbox { return await(list) }
}

// isBack says that the sandboxes of an earlier broker's session show what they should.
func (s *session) isBack(b *Broker) {
	if s.previous != nil {
		close(s.previous.back)
		b.forgetSession(s.previous.Key)
		s.previous = nil
	}
}

// Applied tells what became of a change in a running sandbox.
func (b *Broker) Applied(_ context.Context, sessionID string, a grants.Applied) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sessions[sessionID]
	if s == nil {
		return &grants.UnknownError{What: "session", ID: sessionID}
	}
	if a.Event == grants.EventSession {
		s.isBack(b)
		return nil
	}
	key := appliedKey(a.Event, a.Grant)
	if waiting := s.applied[key]; waiting != nil {
		delete(s.applied, key)
		waiting <- a.Problem // buffered, and only once
	}
	return nil
}

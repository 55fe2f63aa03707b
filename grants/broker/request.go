package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/store"
	"github.com/clairun/clai-sandbox/profile"
)

// state is how far a request has come.
type state uint8

const (
	pending    state = iota
	committing       // a decision was claimed, and is being written
	over
)

// request is a question that waits. The broker's lock is held over everything in it but deciding.
type request struct {
	grants.Request
	question grants.Question
	session  *session
	state    state
	waiters  int
	timer    *time.Timer
	late     grants.Outcome // what ended it while a decision was being written

	answer grants.Answer
	done   chan struct{} // closed when there is an answer

	deciding sync.Mutex // one decision at a time; taken before the broker's lock
}

// Ask asks within a session and waits for the answer. Every question counts, and leaves a line in
// the audit file, whatever becomes of it.
func (b *Broker) Ask(ctx context.Context, sessionID string, a grants.Asking) (grants.Answer, error) {
	s, err := b.session(sessionID)
	if err != nil {
		return grants.Answer{}, err
	}
	if err := b.mayAsk(s); err != nil {
		return grants.Answer{}, err
	}
	name := grants.RequestID(ctx)
	if len(name) > grants.MaxRequestID {
		name = ""
	}
	if answer, told := b.toldBefore(s.spec.Agent, name); told {
		return b.answered(s, a, answer)
	}
	q, err := b.options.Rules.AskSeeing(b.sight(s), a.Path, a.Access, a.Reason)
	var never *grants.NeverError
	switch {
	case errors.As(err, &never):
		return b.answered(s, a, grants.Answer{Outcome: grants.OutcomeNever, Reason: never.Error()})
	case err != nil:
		if _, unrecorded := b.answered(s, a, grants.Answer{Outcome: outcomeInvalid, Reason: err.Error()}); unrecorded != nil {
			return grants.Answer{}, unrecorded
		}
		return grants.Answer{}, err
	case b.covered(s, q):
		return b.answered(s, a, alreadyGranted(q))
	}
	r, answer, err := b.join(s, q, name)
	switch {
	case err != nil:
		return answer, err
	case r == nil:
		return b.answered(s, a, answer)
	}
	select {
	case <-r.done:
		return r.answer, nil
	case <-ctx.Done():
		b.leave(r)
		return grants.Answer{}, ctx.Err()
	}
}

// sight says what a session sees by itself. A grant counts only while its path leads to what was
// granted: a sandbox shows no other.
func (b *Broker) sight(s *session) func(path string) bool {
	b.mu.Lock()
	held := b.granted.held(s.spec.Agent, s.id)
	b.mu.Unlock()
	intact := map[string]bool{}
	return func(path string) bool {
		var near []grants.Grant
		for _, g := range held {
			if !profile.Within(path, g.Resolved) && !profile.Within(g.Resolved, path) && !profile.Within(g.Path, path) {
				continue
			}
			ok, looked := intact[g.ID]
			if !looked {
				_, condition, _ := g.Check()
				ok = condition == grants.Intact
				intact[g.ID] = ok
			}
			if ok {
				near = append(near, g)
			}
		}
		return s.view.Sees(path, near)
	}
}

// outcomeInvalid is what the audit file says of a question that cannot be meant.
const outcomeInvalid grants.Outcome = "invalid"

// answered records an answer that nobody had to give. One that cannot be recorded is not given.
func (b *Broker) answered(s *session, a grants.Asking, answer grants.Answer) (grants.Answer, error) {
	a.Path, a.Reason = shortened(a.Path), shortened(a.Reason)
	e := event{Event: "grant_answered", Agent: s.spec.Agent, Session: s.id, Asking: &a, Outcome: answer.Outcome, Scope: answer.Scope, Reason: shortened(answer.Reason)}
	if err := b.audit(e); err != nil {
		return grants.Answer{}, unavailable(err)
	}
	return answer, nil
}

// maxRecorded bounds each text of an agent's in the audit file, in bytes.
const maxRecorded = 4096

func shortened(text string) string {
	if len(text) > maxRecorded {
		return strings.ToValidUTF8(text[:maxRecorded], "") + "…"
	}
	return text
}

// mayAsk counts a question, and refuses it if the agent asks too often. That is recorded once,
// until it may ask again.
func (b *Broker) mayAsk(s *session) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.agentOf(s.spec.Agent)
	if a.questions.Take(time.Now(), 1, b.options.askBurst(), b.options.AskEvery/2) {
		a.silenced = false
		return nil
	}
	if !a.silenced {
		a.silenced = true
		_ = b.audit(event{Event: "grant_asked_too_often", Agent: s.spec.Agent, Session: s.id})
	}
	return &grants.BusyError{Why: fmt.Sprintf("this agent asks too often: one question in %v, after the first %d", b.options.AskEvery/2, b.options.askBurst())}
}

// askBurst is how many questions an agent may ask at once, of which few reach a person.
func (o Options) askBurst() int { return 8 * o.MaxPending }

func (b *Broker) tooOften() error {
	return &grants.BusyError{Why: fmt.Sprintf("this agent asks too often: one request in %v, after the first %d", b.options.AskEvery, b.options.MaxPending)}
}

func (b *Broker) session(id string) (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.sessions[id]; s != nil {
		return s, nil
	}
	return nil, &grants.UnknownError{What: "session", ID: id}
}

func alreadyGranted(q grants.Question) grants.Answer {
	return grants.Answer{Granted: true, Outcome: grants.OutcomeGranted, Scope: grants.ScopeAlready, Path: q.Place.Typed, Access: q.Access, Visible: grants.VisibleNow}
}

// covered reports whether the session sees already what it asks for. A grant counts only if its
// path still leads to what was granted; one that does not is stale from now on.
func (b *Broker) covered(s *session, q grants.Question) bool {
	b.mu.Lock()
	list := b.granted.leadingTo(q.Known, s.spec.Agent, s.id)
	b.mu.Unlock()
	intact := list[:0]
	for _, g := range list {
		switch _, condition, why := g.Check(); condition {
		case grants.Intact, grants.Missing: // what is not there yet is granted all the same
			intact = append(intact, g)
		default:
			b.markStale(g, why)
		}
	}
	return s.view.Covers(q, grants.Approvals(intact))
}

// join makes a request of a question, or finds the one that waits already. No request and no error
// means an answer.
func (b *Broker) join(s *session, q grants.Question, name string) (*request, grants.Answer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.ended || b.closed {
		return nil, grants.Answer{}, &grants.UnknownError{What: "session", ID: s.id}
	}
	if reason, denied := s.denied(q); denied {
		return nil, grants.Answer{Outcome: grants.OutcomeDenied, Reason: reason}, nil
	}
	for _, r := range b.requests {
		if r.session == s && r.state == pending && r.question.Known == q.Known && r.question.Access == q.Access {
			if r.waiters >= b.options.MaxWaiters {
				return nil, grants.Answer{}, &grants.BusyError{Why: "too many wait for this answer already"}
			}
			r.waiters++
			return r, grants.Answer{}, nil
		}
	}
	a := b.agentOf(s.spec.Agent)
	if a.pending >= b.options.MaxPending {
		return nil, grants.Answer{}, &grants.BusyError{Why: fmt.Sprintf("%d requests of this agent wait for an answer already", a.pending)}
	}
	if !b.mayBother(a) {
		return nil, grants.Answer{}, b.tooOften()
	}
	r := b.newRequest(s, q)
	if err := b.audit(event{Event: "grant_requested", Request: &r.Request, Name: name}); err != nil {
		return nil, grants.Answer{}, unavailable(err)
	}
	a.pending++
	b.requests[r.ID] = r
	r.timer = time.AfterFunc(b.options.Timeout, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.end(r, grants.Answer{Outcome: grants.OutcomeTimeout, Reason: fmt.Sprintf("nobody answered within %v", b.options.Timeout)})
	})
	shown := r.Request
	b.publish(grants.Event{Kind: grants.EventRequestPending, Session: s.id, Request: &shown})
	return r, grants.Answer{}, nil
}

func (b *Broker) newRequest(s *session, q grants.Question) *request {
	now := time.Now()
	r := &request{session: s, question: q, waiters: 1, done: make(chan struct{})}
	r.Request = grants.Request{
		ID: newID("r"), Agent: s.spec.Agent, Workspace: s.spec.Workspace, Session: s.id, Command: s.spec.Command,
		RequestedPath: q.Place.Typed, ResolvedPath: q.Place.Resolved, RequestedAccess: q.Access, Reason: q.Reason,
		Warnings: b.options.Rules.Warnings(q), AskedAtUnixMs: now.UnixMilli(), ExpiresAtUnixMs: now.Add(b.options.Timeout).UnixMilli(),
	}
	return r
}

// denied reports whether a person said no to this in the same session: to the same, or to something
// that it lies in. Less access than was denied is another question.
func (s *session) denied(q grants.Question) (reason string, denied bool) {
	for _, d := range s.denials {
		if profile.Within(q.Known, d.known) && q.Access >= d.access {
			return d.reason, true
		}
	}
	return "", false
}

// leave is what whoever asked does when it does not wait any more. The last one takes the request
// along.
func (b *Broker) leave(r *request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.waiters--; r.waiters == 0 {
		b.end(r, grants.Answer{Outcome: grants.OutcomeWithdrawn, Reason: "whoever asked has left"})
	}
}

// end ends a request that is pending. While a decision is being written it has to wait for what
// becomes of that: the decision came first.
func (b *Broker) end(r *request, answer grants.Answer) {
	switch r.state {
	case over:
		return
	case committing:
		r.late = answer.Outcome
		return
	}
	b.finish(r, answer)
	b.keep(r, answer)
	close(r.done)
}

// finish takes a request out of those that wait. Whoever asked is told by closing done.
func (b *Broker) finish(r *request, answer grants.Answer) {
	answer.RequestID = r.ID
	r.state, r.answer = over, answer
	r.timer.Stop()
	delete(b.requests, r.ID)
	b.agentOf(r.Agent).pending--
	b.forget(r.Agent)
	if b.ended = append(b.ended, endedRequest{r.ID, answer.Outcome}); len(b.ended) > maxEnded {
		b.ended = append(b.ended[:0:0], b.ended[len(b.ended)-maxEnded/2:]...)
	}
	shown := r.Request
	e := grants.Event{Kind: grants.EventRequestEnded, Session: r.Session, Request: &shown, Outcome: answer.Outcome}
	if answer.Outcome == grants.OutcomeDenied {
		e.Notice = &grants.Notice{Kind: grants.NoticePathGrantDenied, Path: r.RequestedPath, Text: "denied: " + profile.Printable(r.RequestedPath)}
		if s := r.session; !s.ended && !s.listener.send(e) {
			go b.endSession(s)
		}
	}
	b.publish(e)
}

// keep records how a request ended that nobody decided. Nothing depends on the record, so nobody
// waits for it.
func (b *Broker) keep(r *request, answer grants.Answer) {
	record := grants.Record{Request: r.Request, Outcome: answer.Outcome, EndedAtUnixMs: time.Now().UnixMilli()}
	_ = b.audit(event{Event: "grant_request_ended", Request: &record.Request, Outcome: answer.Outcome, Reason: answer.Reason})
	go func() { _ = b.options.Store.Apply(store.Change{Records: []grants.Record{record}}) }()
}

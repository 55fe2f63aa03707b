package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/store"
	"github.com/clairun/clai-sandbox/profile"
)

// Decide answers a request.
func (b *Broker) Decide(ctx context.Context, id string, d grants.Decision) (grants.Answer, error) {
	if done, found := b.doneBefore(ctx); found && done.Answer != nil {
		return *done.Answer, nil
	}
	b.mu.Lock()
	r := b.requests[id]
	b.mu.Unlock()
	if r == nil {
		return grants.Answer{}, b.gone(id)
	}
	r.deciding.Lock()
	defer r.deciding.Unlock()

	b.mu.Lock()
	question := r.question
	b.mu.Unlock()
	place, err := b.options.Rules.Decide(question, d)
	var changed *grants.ChangedError
	if errors.As(err, &changed) {
		b.requestChanged(r, changed.Now)
	}
	if err != nil {
		return grants.Answer{}, err
	}
	if err := b.claim(r); err != nil {
		return grants.Answer{}, err
	}
	b.changing.Lock() // there is one grant of a kind
	defer b.changing.Unlock()
	granted := b.newGrant(r, d, place)
	if granted != nil {
		b.become(granted)
	}
	answer := answerTo(r, d, granted)
	done := doneAs(ctx, nil, &answer)
	if err := b.commit(r, d, granted, done); err != nil {
		b.release(r)
		return grants.Answer{}, unavailable(err)
	}
	b.remember(done)
	return b.deliver(r, d, granted, answer), nil
}

// gone says what became of a request that is not pending.
func (b *Broker) gone(id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range slices.Backward(b.ended) {
		if e.id == id {
			return &grants.EndedError{ID: id, Outcome: e.outcome}
		}
	}
	return &grants.UnknownError{What: "request", ID: id}
}

// requestChanged shows people what the path leads to now. Only what they have been shown can be
// granted.
func (b *Broker) requestChanged(r *request, now grants.Place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.state != pending {
		return
	}
	before := r.ResolvedPath
	r.question.Place, r.question.Problem = now, ""
	r.ResolvedPath = now.Resolved
	r.Warnings = append(b.options.Rules.Warnings(r.question),
		grants.Warning{Kind: grants.WarnChanged, Text: "it changed since it was asked for; it led to " + profile.Printable(before)})
	shown := r.Request
	b.publish(grants.Event{Kind: grants.EventRequestChanged, Session: r.Session, Request: &shown})
}

// claim makes this decision the one that counts.
func (b *Broker) claim(r *request) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.state != pending {
		return &grants.EndedError{ID: r.ID, Outcome: r.answer.Outcome}
	}
	r.state = committing
	return nil
}

// release takes back a claim that could not be written.
func (b *Broker) release(r *request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.state = pending
	switch {
	case r.late != "":
		b.end(r, grants.Answer{Outcome: r.late, Reason: "the decision could not be written"})
	case r.session.ended || r.waiters == 0:
		b.end(r, grants.Answer{Outcome: grants.OutcomeWithdrawn, Reason: "whoever asked has left"})
	}
}

// newGrant is what the decision grants, or nil.
func (b *Broker) newGrant(r *request, d grants.Decision, p grants.Place) *grants.Grant {
	if d.Kind == grants.Deny {
		return nil
	}
	now := time.Now()
	g := &grants.Grant{ID: newID("g"), Agent: r.Agent, Path: p.Typed, Resolved: p.Resolved, Access: d.Access, Scope: grants.ScopeAlways, Object: p.Object,
		Origin: grants.Origin{Kind: profile.OriginApproval, Reason: r.Reason, GrantedAtUnixMs: now.UnixMilli(), RequestedPath: r.RequestedPath,
			RequestedAccess: r.RequestedAccess, DecidedBy: b.options.User, Via: d.Via}}
	if d.Kind == grants.AllowOnce {
		g.Scope, g.Session = grants.ScopeOnce, r.Session
	}
	if d.ExpiresIn > 0 {
		g.ExpiresAtUnixMs = now.Add(time.Duration(d.ExpiresIn)).UnixMilli()
	}
	return g
}

// commit writes a decision down: first that it was made, then what it grants.
func (b *Broker) commit(r *request, d grants.Decision, g *grants.Grant, done *grants.Done) error {
	record := grants.Record{Request: r.Request, Outcome: grants.OutcomeDenied, Decision: &d, DecidedBy: b.options.User, EndedAtUnixMs: time.Now().UnixMilli()}
	change := store.Change{Done: done}
	if g != nil {
		record.Outcome, record.GrantID = grants.OutcomeGranted, g.ID
		if g.Scope == grants.ScopeAlways {
			change.Put = []grants.Grant{*g}
		}
	}
	change.Records = []grants.Record{record}
	position, err := b.auditSynced(event{Event: "grant_decided", Request: &record.Request, Decision: &d, Grant: g, Outcome: record.Outcome})
	if err != nil {
		return err
	}
	change.Audit = position
	if err := b.options.Store.Apply(change); err != nil {
		_ = b.audit(event{Event: "grant_decision_not_stored", Request: &record.Request, Reason: err.Error()})
		return err
	}
	return nil
}

// answerTo is what whoever asked is told of a decision.
func answerTo(r *request, d grants.Decision, g *grants.Grant) grants.Answer {
	if g == nil {
		return grants.Answer{RequestID: r.ID, Outcome: grants.OutcomeDenied, Reason: d.Reason}
	}
	return grants.Answer{RequestID: r.ID, Granted: true, Outcome: grants.OutcomeGranted, Scope: g.Scope, Path: g.Path, Access: g.Access,
		GrantID: g.ID, ExpiresAt: g.ExpiresAtUnixMs, Visible: grants.VisibleNextCommand}
}

// deliver tells everyone, and whoever asked at last.
func (b *Broker) deliver(r *request, d grants.Decision, g *grants.Grant, answer grants.Answer) grants.Answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := r.session
	if g == nil {
		if len(s.denials) < maxDenials {
			s.denials = append(s.denials, denial{r.question.Known, r.question.Access, d.Reason})
		}
		b.finish(r, answer)
		close(r.done)
		b.endDenied(s)
		return answer
	}
	b.finish(r, answer)
	if g.Scope == grants.ScopeAlways || !s.ended {
		b.granted.put(*g)
		b.scheduleExpiry()
		b.tell(grants.EventGranted, *g)
	}
	if s.spec.Live && !s.ended {
		b.answerWhenApplied(r, g.ID)
	} else {
		close(r.done)
	}
	b.endCovered(g)
	return answer
}

// answerWhenApplied lets the agent know when it can use what it was granted.
func (b *Broker) answerWhenApplied(r *request, grant string) {
	applied := make(chan string, 1)
	key := appliedKey(grants.EventGranted, grant)
	r.session.applied[key] = applied
	go func() {
		timeout := time.NewTimer(applyTimeout)
		defer timeout.Stop()
		select {
		case problem := <-applied:
			if problem == "" {
				r.answer.Visible = grants.VisibleNow
			} else {
				r.answer.Reason = problem
			}
		case <-timeout.C:
			b.mu.Lock()
			delete(r.session.applied, key)
			b.mu.Unlock()
		}
		close(r.done)
	}()
}

// endDenied answers what else of the session waits and was denied with it.
func (b *Broker) endDenied(s *session) {
	for _, r := range b.requests {
		if r.session != s || r.state != pending {
			continue
		}
		if reason, denied := s.denied(r.question); denied {
			b.end(r, grants.Answer{Outcome: grants.OutcomeDenied, Reason: reason})
		}
	}
}

// endCovered answers what else waits and need not any more.
func (b *Broker) endCovered(g *grants.Grant) {
	for _, r := range b.requests {
		if r.Agent != g.Agent || r.state != pending || g.Scope == grants.ScopeOnce && r.Session != g.Session {
			continue
		}
		list := b.granted.leadingTo(r.question.Known, r.Agent, r.Session)
		if r.session.view.Covers(r.question, grants.Approvals(list)) {
			answer := alreadyGranted(r.question)
			answer.Visible = grants.VisibleNextCommand
			b.end(r, answer)
		}
	}
}

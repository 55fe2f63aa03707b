package outside

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/broker"
)

// AskPerson has a person asked in an agent's words. It waits among paths and commands, and counts as they do.
func (b *Broker) AskPerson(ctx context.Context, session string, q grants.PersonQuestion) (grants.PersonAnswer, error) {
	if err := q.Check(); err != nil {
		return grants.PersonAnswer{}, err
	}
	c := command{session: session, id: newID(), Command: grants.Command{Line: q.Text}}
	if session == "" {
		return grants.PersonAnswer{}, &grants.InvalidError{Field: "sessionId", Why: "is missing"}
	}
	if err := b.whose(&c); err != nil {
		return grants.PersonAnswer{}, err
	}
	c.Cwd = ""
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	go func() {
		select {
		case <-c.over:
			leave()
		case <-ctx.Done():
		}
	}()
	done, err := b.admit(c.Agent, c.size())
	if err != nil {
		return grants.PersonAnswer{}, err
	}
	defer done()
	b.mu.Lock()
	allowed := b.agents[c.Agent].bothers.Take(time.Now(), 1, b.options.MaxPending, broker.DefaultAskEvery)
	b.mu.Unlock()
	if !allowed {
		return grants.PersonAnswer{}, &grants.BusyError{Why: fmt.Sprintf("this agent asks too often: one question in %v, after the first %d", broker.DefaultAskEvery, b.options.MaxPending)}
	}
	if err := b.record(c, asked, line{}); err != nil {
		return grants.PersonAnswer{}, err
	}
	got, err := b.wait(ctx, b.newQuestion(c, q))
	a := grants.PersonAnswer{RequestID: c.id, Outcome: got.outcome, Answer: got.text, Reason: got.reason}
	if err != nil {
		a.Outcome = grants.OutcomeWithdrawn
	} else if a.Outcome == grants.OutcomeTimeout {
		a.Reason = fmt.Sprintf("nobody answered within %v", b.options.Timeout)
	}
	closing := b.of(c, answered, line{Reason: cmp.Or(a.Reason, string(a.Outcome))})
	if _, unwritten := b.options.Audit.Append(closing, false); unwritten != nil {
		b.options.Audit.AppendTaking(closing)
	}
	return a, err
}

// newQuestion is what a person is shown.
func (b *Broker) newQuestion(c command, q grants.PersonQuestion) *pending {
	now := time.Now()
	return &pending{command: c, answer: make(chan got, 1), Request: grants.Request{ID: c.id, Agent: c.Agent, Workspace: c.workspace, Session: c.session, Question: &q, Warnings: []grants.Warning{},
		AskedAtUnixMs: now.UnixMilli(), ExpiresAtUnixMs: now.Add(b.options.Timeout).UnixMilli()}}
}

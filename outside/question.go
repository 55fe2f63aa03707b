package outside

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/broker"
)

// AskPerson has a person asked in an agent's words. It waits among paths and commands, and counts
// as they do.
func (b *Broker) AskPerson(ctx context.Context, session string, q grants.PersonQuestion) (grants.PersonAnswer, error) {
	if err := q.Check(); err != nil {
		return grants.PersonAnswer{}, err
	}
	c := command{session: session, id: newID(), Command: grants.Command{Line: q.Text}}
	got, err := b.bother(ctx, &c, asked, answered, func() *pending { return b.newQuestion(c, &q) })
	return grants.PersonAnswer{RequestID: c.id, Outcome: got.outcome, Answer: got.text, Reason: got.reason}, err
}

// bother has a person asked what is about no command, and waits. opening and closing are what the
// record is told.
func (b *Broker) bother(ctx context.Context, c *command, opening, closing string, ask func() *pending) (got, error) {
	if c.session == "" {
		return got{}, &grants.InvalidError{Field: "sessionId", Why: "is missing"}
	}
	if err := b.whose(c); err != nil {
		return got{}, err
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
		return got{}, err
	}
	defer done()
	b.mu.Lock()
	allowed := b.agents[c.Agent].bothers.Take(time.Now(), 1, b.options.MaxPending, broker.DefaultAskEvery)
	b.mu.Unlock()
	if !allowed {
		return got{}, &grants.BusyError{Why: fmt.Sprintf("this agent asks too often: one question in %v, after the first %d", broker.DefaultAskEvery, b.options.MaxPending)}
	}
	if err := b.record(*c, opening, line{}); err != nil {
		return got{}, err
	}
	got, err := b.wait(ctx, ask())
	switch {
	case err != nil:
		got.outcome = grants.OutcomeWithdrawn
	case got.outcome == grants.OutcomeTimeout:
		got.reason = fmt.Sprintf("nobody answered within %v", b.options.Timeout)
	}
	last := b.of(*c, closing, line{Outcome: got.outcome, Rule: got.rule, Reason: cmp.Or(got.reason, string(got.outcome))})
	if _, unwritten := b.options.Audit.Append(last, false); unwritten != nil {
		b.options.Audit.AppendTaking(last)
	}
	return got, err
}

// newQuestion is what a person is shown.
func (b *Broker) newQuestion(c command, q *grants.PersonQuestion) *pending {
	now := time.Now()
	return &pending{command: c, answer: make(chan got, 1), Request: grants.Request{ID: c.id, Agent: c.Agent, Workspace: c.workspace, Session: c.session, Question: q, Warnings: []grants.Warning{},
		AskedAtUnixMs: now.UnixMilli(), ExpiresAtUnixMs: now.Add(b.options.Timeout).UnixMilli()}}
}

package outside

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/outside/runner"
	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/profile"
)

// pending is a command, or a question in words, that waits for a person.
type pending struct {
	grants.Request
	command command
	claimed bool                // a decision is being written
	late    func()              // what ended it meanwhile
	answer  chan got            // has room for the one answer
	to      profile.Destination // of a connection
}

// got is what came of waiting for a person.
type got struct {
	said    policy.Answer
	reason  string
	outcome grants.Outcome
	text    string // the answer to a question
	rule    string // what is allowed of a connection
}

// ask waits for a person's word about a command. Where the configuration wants so, it does not
// while nobody would see the question.
func (b *Broker) ask(ctx context.Context, c command) (said policy.Answer, reason string, err error) {
	if c.host.Outside.Unattended == "fallback" && c.session != "" && !b.Heard() {
		return policy.AnswerNone, "nobody can be reached: no desktop shows requests, and nobody looks at them", nil
	}
	got, err := b.wait(ctx, b.newPending(c))
	if got.said == policy.AnswerNone {
		got.reason = fmt.Sprintf("nobody answered within %v", b.options.Timeout)
	}
	return got.said, got.reason, err
}

// wait waits for a person.
func (b *Broker) wait(ctx context.Context, p *pending) (got, error) {
	b.mu.Lock()
	a := b.agents[p.Agent]
	if a.waiting >= b.options.MaxPending {
		b.mu.Unlock()
		return got{}, &grants.BusyError{Why: fmt.Sprintf("%d requests of this agent wait for an answer already", a.waiting)}
	}
	a.waiting++
	b.pending[p.ID] = p
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		a.waiting--
	}()
	shown := p.Request
	b.Publish(grants.Event{Kind: grants.EventRequestPending, Session: p.Session, Request: &shown})
	timer := time.AfterFunc(b.options.Timeout, func() { b.endPending(p, grants.OutcomeTimeout, got{said: policy.AnswerNone}) })
	defer timer.Stop()
	select {
	case got := <-p.answer:
		return got, nil
	case <-ctx.Done():
		b.endPending(p, grants.OutcomeWithdrawn, got{said: policy.AnswerDeny})
		return got{}, ctx.Err()
	}
}

// newPending is what a person is shown.
func (b *Broker) newPending(c command) *pending {
	now := time.Now()
	d := c.decision
	shown := &grants.CommandRequest{Text: c.text(), Shell: c.Argv == nil, Cwd: c.Cwd, Host: d.Host.String(), Security: d.Security.String(), Ask: d.Ask.String(),
		Fallback: d.Fallback.String(), Why: cmp.Or(d.Reason, "hostexec.manualApprove")}
	if c.obeys != "" {
		shown.Why = "hostexec.obeysWorkspace"
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		shown.Env = append(shown.Env, name+"="+c.Env[name])
	}
	runs := d.Command
	if d.Argv != nil {
		runs = policy.CanonicalArgv(d.Argv)
	}
	if runs != shown.Text {
		shown.Runs = runs
	}
	if d.BoundTo != nil {
		for _, program := range d.BoundTo.Programs {
			shown.Programs = append(shown.Programs, program.Real)
		}
	}
	stored := d.Always
	if c.byList == policy.AskPerson { // the list would have them asked again
		stored = nil
	}
	for _, e := range stored {
		text := e.Pattern
		if e.ArgPattern != "" {
			text += " " + e.ArgPattern
		}
		shown.Always = append(shown.Always, text)
	}
	shown.Shown = digest(*shown, d)
	r := grants.Request{ID: c.id, Agent: c.Agent, Workspace: cmp.Or(c.workspace, c.Cwd), Session: c.session, Outside: shown, Reason: c.from.of(c.Reason), Warnings: []grants.Warning{},
		AskedAtUnixMs: now.UnixMilli(), ExpiresAtUnixMs: now.Add(b.options.Timeout).UnixMilli()}
	for _, s := range d.Why {
		if s.About == "bound" || s.About == "analysis" {
			r.Warnings = append(r.Warnings, grants.Warning{Kind: grants.WarnExecuted, Text: s.Text})
		}
	}
	if c.obeys != "" {
		r.Warnings = append(r.Warnings, grants.Warning{Kind: grants.WarnExecuted, Text: c.obeys + " executes what settings in the workspace name, and a command of the agent's can change them until it reads them"})
	}
	return &pending{Request: r, command: c, answer: make(chan got, 1)}
}

// of is a reason with what is known of the container that gives it.
func (a Asker) of(reason string) string {
	var who []string
	for _, said := range [][2]string{{"container", a.ID}, {"project", a.Project}, {"branch", a.Branch}} {
		if said[1] != "" {
			who = append(who, said[0]+" "+said[1])
		}
	}
	if who != nil && reason != "" { // what it says itself, which may read like the words before
		who = append(who, "says: "+reason)
		reason = ""
	}
	return strings.Join(who, " ") + reason
}

// digest is of what is shown, of what would run, and of what that is bound to.
func digest(shown grants.CommandRequest, d policy.Decision) string {
	shown.Shown = ""
	text, err := json.Marshal([]any{shown, runner.RunsOf(d), d.BoundTo})
	if err != nil {
		panic(err) // strings and numbers
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// endPending ends a request that waits, once. While a decision is being written, that came first.
func (b *Broker) endPending(p *pending, outcome grants.Outcome, with got) {
	b.mu.Lock()
	if p.claimed {
		p.late = func() { b.endPending(p, outcome, with) }
		b.mu.Unlock()
		return
	}
	b.finish(p, outcome, with)
}

// finish takes a request out of those that wait, if it is there. The lock is held, and given back.
func (b *Broker) finish(p *pending, outcome grants.Outcome, with got) {
	if b.pending[p.ID] != p {
		b.mu.Unlock()
		return
	}
	delete(b.pending, p.ID)
	if len(b.ended) >= maxTold {
		clear(b.ended)
	}
	b.ended[p.ID] = outcome
	with.outcome = outcome
	p.answer <- with
	b.mu.Unlock()
	shown := p.Request
	b.Publish(grants.Event{Kind: grants.EventRequestEnded, Session: p.Session, Request: &shown, Outcome: outcome})
}

// Decide answers a request for a command, a question, or a request for a path.
func (b *Broker) Decide(ctx context.Context, id string, d grants.Decision) (grants.Answer, error) {
	p, err := b.claim(id, d)
	if err != nil {
		return grants.Answer{}, err
	}
	if p == nil {
		return b.Broker.Decide(ctx, id, d)
	}
	if p.Domain != nil && d.Kind != grants.Deny {
		return b.decideDomain(p, d)
	}
	if err := b.write(p, d); err != nil {
		b.release(p)
		return grants.Answer{}, unavailable(err)
	}
	answer := grants.Answer{RequestID: id, Granted: true, Outcome: grants.OutcomeGranted, Scope: grants.ScopeOnce}
	with := got{said: policy.AnswerAllowOnce}
	switch d.Kind {
	case grants.GiveAnswer:
		answer, with = grants.Answer{RequestID: id, Outcome: grants.OutcomeAnswered}, got{text: d.Answer}
	case grants.AllowAlways:
		answer.Scope, with.said = grants.ScopeAlways, policy.AnswerAllowAlways
	case grants.Deny:
		answer = grants.Answer{RequestID: id, Outcome: grants.OutcomeDenied, Reason: cmp.Or(d.Reason, defaultDenial)}
		with = got{said: policy.AnswerDeny, reason: answer.Reason}
	}
	b.mu.Lock()
	b.finish(p, answer.Outcome, with)
	return answer, nil
}

// fits holds a decision against what is asked.
func (p *pending) fits(d grants.Decision) error {
	switch {
	case p.Question != nil:
		return d.ForQuestion(*p.Question)
	case p.Domain != nil:
		return d.ForDomain(*p.Domain)
	}
	return d.ForCommand(*p.Outside)
}

// claim makes this decision the one that counts, if it is a valid one. Nil and no error: it is
// about a path.
func (b *Broker) claim(id string, d grants.Decision) (*pending, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pending[id]
	if p == nil {
		if outcome, found := b.ended[id]; found {
			return nil, &grants.EndedError{ID: id, Outcome: outcome}
		}
		return nil, nil
	}
	if err := p.fits(d); err != nil {
		return nil, err
	}
	if p.claimed {
		return nil, &grants.BusyError{Why: "another answer to this is on its way"}
	}
	p.claimed = true
	return p, nil
}

// release takes back a claim that could not be written: the command waits on, unless it ended
// meanwhile.
func (b *Broker) release(p *pending) {
	b.mu.Lock()
	p.claimed = false
	late := p.late
	b.mu.Unlock()
	if late != nil {
		late()
	}
}

// write puts a decision on record, and then what it stores: nothing takes effect before.
func (b *Broker) write(p *pending, d grants.Decision) error {
	event := commandDecided
	switch {
	case p.Question != nil:
		event = questionDecided
	case p.Domain != nil:
		event = domainDecided
	}
	if err := b.recordSynced(p.command, event, line{Decision: &d}); err != nil {
		return err
	}
	if d.Kind != grants.AllowAlways {
		return nil
	}
	c := p.command
	_, err := c.host.Store.Update(func(a *policy.Approvals) error {
		if a.Agents[c.Agent] == nil {
			a.Agents[c.Agent] = &policy.AgentApprovals{}
		}
		list := &a.Agents[c.Agent].Allowlist
		for _, e := range c.decision.Always {
			same := func(have policy.Entry) bool {
				return have.Pattern == e.Pattern && have.ArgPattern == e.ArgPattern && have.Env == e.Env && have.Content == e.Content
			}
			if !slices.ContainsFunc(*list, same) {
				*list = append(*list, e)
			}
		}
		return nil
	})
	if err != nil {
		_ = b.record(c, "command_decision_not_stored", line{Reason: err.Error()})
	}
	return err
}

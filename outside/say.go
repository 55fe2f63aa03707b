package outside

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/policy"
)

const (
	maxSaid      = 1000 // bytes
	answerPrefix = 8    // characters: fewer could be the beginning of another id
)

// Say does what an operator typed. What they may not say, or what could not be put on record, is
// not done.
func (b *Broker) Say(ctx context.Context, session string, s grants.Saying) (grants.Said, error) {
	spoken, ok, err := policy.ParseSpoken(s.Text)
	var foreign policy.ForeignError
	switch {
	case len(s.Sender) > maxSaid:
		return grants.Said{}, &grants.InvalidError{Field: "sender", Why: fmt.Sprintf("must have at most %d bytes", maxSaid)}
	case !ok:
		return grants.Said{}, nil
	case len(s.Text) > maxSaid:
		return grants.Said{}, &grants.InvalidError{Field: "text", Why: fmt.Sprintf("must have at most %d bytes", maxSaid)}
	case errors.As(err, &foreign):
		return grants.Said{}, nil
	case session == "" && (spoken.Approve == nil || s.Sender != ""):
		return grants.Said{}, &grants.InvalidError{Field: "sessionId", Why: "is missing"}
	}
	c := command{session: session, Command: grants.Command{Line: s.Text}, id: newID()}
	if whose := b.whose(&c); whose != nil {
		return grants.Said{}, whose
	}
	c.Cwd = ""
	done, busy := b.admit(c.Agent, c.size())
	if busy != nil {
		return grants.Said{}, busy
	}
	defer done()
	if refused := b.maySay(c.Agent, s); refused != nil {
		_ = b.record(c, saidRefused, line{Sender: s.Sender, Reason: refused.Error()})
		return grants.Said{}, &grants.ForbiddenError{Why: refused.Error()}
	}
	switch {
	case err != nil:
		return grants.Said{}, &grants.InvalidError{Field: "text", Why: err.Error()}
	case spoken.Approve != nil:
		return b.sayAnswer(ctx, c, s, *spoken.Approve)
	}
	return b.override(c, s, spoken)
}

// maySay says whether somebody may. Who has the person's socket speaks for the person, or passes on
// what somebody typed whose name they have found out: that is for the configuration. What an agent
// writes never counts.
func (b *Broker) maySay(agent string, s grants.Saying) error {
	approvers, who := policy.Approvers{"person"}, policy.Answerer{ID: cmp.Or(s.Sender, "person"), Operator: true, Agent: s.FromAgent}
	if s.Sender != "" {
		h, err := b.options.Load(agent)
		if err != nil {
			return err
		}
		approvers = h.Outside.Approvers
	}
	return approvers.Check(who)
}

// override changes what holds for a session. It is on record before it takes effect.
func (b *Broker) override(c command, s grants.Saying, spoken policy.Spoken) (grants.Said, error) {
	b.saying.Lock()
	defer b.saying.Unlock()
	before := policy.Overrides(b.Overrides(c.session))
	now := before
	switch {
	case spoken.Reset:
		now = policy.Overrides{Elevated: before.Elevated}
	case spoken.Elevated != nil:
		now.Elevated = *spoken.Elevated
	default:
		now = before.With(*spoken.Exec)
	}
	answer := grants.Overrides(now)
	if now != before {
		if err := b.recordSynced(c, said, line{Sender: s.Sender, Overrides: &answer}); err != nil {
			return grants.Said{}, err
		}
		if err := b.Override(c.session, answer); err != nil {
			_ = b.record(c, saidRefused, line{Sender: s.Sender, Reason: err.Error()})
			return grants.Said{}, err
		}
	}
	text := "nothing is said for this session: the configuration holds"
	if holds := answer.String(); holds != "" {
		text = holds + "; the approvals file of the host that runs a command can be stricter"
	}
	return grants.Said{Understood: true, Text: text, Overrides: &answer}, nil
}

// sayAnswer answers a request of the session, or where none is named, of any. The request is the
// one that its id was shown with: it does not change.
func (b *Broker) sayAnswer(ctx context.Context, c command, s grants.Saying, a policy.ApproveCommand) (grants.Said, error) {
	list, err := b.Pending(ctx)
	if err != nil {
		return grants.Said{}, err
	}
	var found []grants.Request
	for _, r := range list {
		if (c.session == "" || r.Session == c.session) && (r.ID == a.ID || len(a.ID) >= answerPrefix && strings.HasPrefix(r.ID, a.ID)) {
			found = append(found, r)
		}
	}
	switch {
	case len(found) == 0:
		return grants.Said{}, &grants.UnknownError{What: "request", ID: a.ID}
	case len(found) > 1:
		return grants.Said{}, &grants.InvalidError{Field: "text", Why: fmt.Sprintf("means %d requests: write more of the id", len(found))}
	}
	r := found[0]
	d, err := decisionFor(r, a.Answer)
	if err != nil {
		return grants.Said{}, err
	}
	if s.Sender != "" {
		d.Via = "chat"
	}
	c.Agent = r.Agent
	if err := b.recordSynced(c, saidAnswer, line{Sender: s.Sender, Reason: r.ID, Decision: &d}); err != nil {
		return grants.Said{}, err
	}
	answer, err := b.Decide(ctx, r.ID, d)
	if err != nil {
		return grants.Said{}, err
	}
	return grants.Said{Understood: true, Text: r.ID + ": " + a.Answer.String(), Answer: &answer}, nil
}

// decisionFor is a request's decision for a word: what was asked for, and no more.
func decisionFor(r grants.Request, answer policy.Answer) (d grants.Decision, _ error) {
	d.Kind = map[policy.Answer]grants.DecisionKind{policy.AnswerAllowOnce: grants.AllowOnce, policy.AnswerAllowAlways: grants.AllowAlways}[answer]
	switch {
	case answer == policy.AnswerDeny:
		d.Kind = grants.Deny
		return d, nil
	case r.Question != nil:
		return d, &grants.InvalidError{Field: "text", Why: "allows a question, which wants an answer in words"}
	case r.Outside != nil:
		d.Shown = r.Outside.Shown
		return d, nil
	case r.Domain != nil:
		d.Domain = r.Domain.Rules[0].Rule
	default:
		d.Path, d.Access = r.ResolvedPath, r.RequestedAccess
	}
	if d.Kind == grants.AllowAlways {
		d.Scope = grants.ScopeAlways
	}
	return d, nil
}

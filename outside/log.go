package outside

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/profile"
)

// loggedFor is how far back the audit file is looked through for what a person was asked.
const loggedFor = 30 * 24 * time.Hour

// Log lists what a person was asked about and what came of it, the latest first: paths, commands,
// connections and questions. What no person was asked about is in the audit file alone.
func (b *Broker) Log(ctx context.Context, limit int) ([]grants.Record, error) {
	list, err := b.Broker.Log(ctx, limit)
	if err != nil {
		return nil, err
	}
	lines, err := b.options.Audit.Since(time.Now().Add(-loggedFor))
	if err != nil {
		return list, nil // there is no such file; of paths, the database knows
	}
	open := map[string]*request{}
	var over []grants.Record
	for raw := range lines {
		var l line
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !bytes.Contains(raw, []byte(`"command_`)) && !bytes.Contains(raw, []byte(`"question_`)) && !bytes.Contains(raw, []byte(`"domain_`)) || json.Unmarshal(raw, &l) != nil || l.ID == "" {
			continue
		}
		r := open[l.ID]
		switch l.Event {
		case requested, asked, domainAsked:
			open[l.ID] = &request{line: l, unasked: l.Event == requested && l.Verdict == policy.Deny.String()}
		case started, autoApproved:
			if r != nil {
				r.unasked = r.decided == nil
			}
		case commandDecided, questionDecided, domainDecided:
			if r != nil {
				decided := l
				r.decided = &decided
			}
		case ended, answered, domainEnded:
			delete(open, l.ID)
			if r != nil && !r.unasked {
				over = append(over, r.record(l))
			}
			if len(over) >= 2*limit {
				over = slices.Delete(over, 0, len(over)-limit)
			}
		}
	}
	slices.Reverse(over)
	list = append(list, over...)
	slices.SortStableFunc(list, func(a, b grants.Record) int { return cmp.Compare(b.EndedAtUnixMs, a.EndedAtUnixMs) })
	return list[:min(limit, len(list))], nil
}

// request is what the audit file has of one.
type request struct {
	line
	decided *line // by a person
	unasked bool  // no person was asked
}

// record is a request that has ended by a line.
func (r *request) record(last line) grants.Record {
	kept := grants.Record{Outcome: last.Outcome, EndedAtUnixMs: last.Time.UnixMilli(), Request: grants.Request{ID: r.ID, Agent: r.Agent, Session: r.Session, Workspace: cmp.Or(r.Workspace, r.Cwd),
		Warnings: []grants.Warning{}, AskedAtUnixMs: r.Time.UnixMilli()}}
	if r.decided != nil {
		kept.Decision, kept.DecidedBy, kept.GrantID = r.decided.Decision, r.decided.User, r.decided.Grant
	}
	switch r.Event {
	case asked:
		kept.Question = &grants.PersonQuestion{Text: r.Command}
	case domainAsked:
		kept.Domain = &grants.DomainRequest{To: r.Domain, Rules: []grants.DomainChoice{}}
		if to, err := profile.ParseDestination(r.Domain, 0); err == nil {
			kept.Domain.Rules = choices(to)
		}
	default:
		kept.Outside = &grants.CommandRequest{Text: r.Command, Cwd: r.Cwd, Env: r.Env, Host: policy.HostGateway.String(), Why: r.Reason}
		switch {
		case kept.Decision != nil && kept.Decision.Kind == grants.Deny || last.Reason == reasonRestarted:
			kept.Outcome = grants.OutcomeDenied
		case kept.Decision != nil:
			kept.Outcome = grants.OutcomeGranted
		case last.Status == grants.CommandTimeout:
			kept.Outcome = grants.OutcomeTimeout
		default:
			kept.Outcome = grants.OutcomeWithdrawn
		}
	}
	return kept
}

package outside

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/outside/runner"
	"github.com/clairun/clai-sandbox/policy"
)

// line is one of the audit file.
type line struct {
	Time      time.Time            `json:"time"`
	Event     string               `json:"event"`
	User      string               `json:"user,omitempty"`
	ID        string               `json:"runId"`
	Name      string               `json:"requestName,omitempty"` // under which it was asked
	Agent     string               `json:"agentId"`
	Session   string               `json:"sessionId,omitempty"`
	Workspace string               `json:"workspaceId,omitempty"`
	Project   string               `json:"project,omitempty"`
	Branch    string               `json:"branch,omitempty"`
	Inside    bool                 `json:"fromSandbox,omitempty"`
	Command   string               `json:"command,omitempty"`
	Domain    string               `json:"domain,omitempty"` // of a connection, or of a grant
	Grant     string               `json:"grantId,omitempty"`
	Outcome   grants.Outcome       `json:"outcome,omitempty"`
	Rule      string               `json:"rule,omitempty"` // of a connection: what decided
	Count     int64                `json:"count,omitempty"`
	Cwd       string               `json:"cwd,omitempty"`
	Env       []string             `json:"env,omitempty"`    // overrides, as NAME=value
	Sender    string               `json:"sender,omitempty"` // who said it, where that is not the user
	Overrides *grants.Overrides    `json:"overrides,omitempty"`
	Verdict   string               `json:"verdict,omitempty"`
	Pattern   string               `json:"pattern,omitempty"`
	Decision  *grants.Decision     `json:"decision,omitempty"`
	Status    grants.CommandStatus `json:"status,omitempty"`
	ExitCode  *int                 `json:"exitCode,omitempty"`
	TookMs    int64                `json:"tookMs,omitempty"`
	Reason    string               `json:"reason,omitempty"`
}

// of fills in whose line it is.
func (b *Broker) of(c command, event string, l line) line {
	l.Time, l.Event, l.User, l.ID, l.Name, l.Agent, l.Session, l.Workspace = time.Now().UTC(), event, b.options.User, c.id, c.name, c.Agent, c.session, c.workspace
	l.Domain = c.domain
	l.Command, l.Cwd, l.Env, l.Project, l.Branch = c.text(), c.Cwd, c.overrides(), c.from.Project, c.from.Branch
	if event == requested {
		l.Inside, l.Verdict, l.Pattern, l.Reason = c.inside, c.decision.Verdict.String(), c.pattern, c.decision.Reason
		if c.said != (grants.Overrides{}) {
			l.Overrides = &c.said
		}
	}
	// What may run is on record as a whole, once. Who asks for other things again and again fills
	// no disk.
	if event != requested || c.decision.Verdict == policy.Deny {
		l.Command, l.Cwd = brief(l.Command), brief(l.Cwd)
		if len(l.Env) > 0 {
			l.Env = []string{brief(strings.Join(l.Env, " "))}
		}
	}
	l.Reason = brief(l.Reason)
	return l
}

// maxBrief bounds what a line repeats of a text, in bytes as they are written.
const maxBrief = 512

// brief is a text, or its beginning with the length and the digest of all of it.
func brief(s string) string {
	written := 0
	for i, r := range s {
		switch {
		case r >= 0x10000:
			written += len(`\ud83d\ude00`)
		case r < ' ' || r >= 0x7f || strings.ContainsRune(`"\<>&`, r):
			written += len(`\u0000`)
		default:
			written++
		}
		if written > maxBrief {
			sum := sha256.Sum256([]byte(s))
			return fmt.Sprintf("%s… (%d bytes, sha256 %x)", s[:i], len(s), sum)
		}
	}
	return s
}

// overrides are the variables that a command sets.
func (c *command) overrides() (list []string) {
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		list = append(list, name+"="+c.Env[name])
	}
	return list
}

// Events in the audit file: what opens a command's record, what says that it was handed to the
// runner, and what closes it.
const (
	requested      = "command_requested"
	commandDecided = "command_decided"
	autoApproved   = "command_auto_approved"
	started        = "command_started"
	ended          = "command_ended"

	asked           = "question_asked" // of a person, in words
	questionDecided = "question_decided"
	answered        = "question_ended"

	domainAsked   = "domain_requested"
	domainDecided = "domain_decided"
	domainEnded   = "domain_ended"

	said        = "session_overridden"
	saidRefused = "session_override_refused"
	saidAnswer  = "answer_said"
)

func (b *Broker) record(c command, event string, l line) error {
	if _, err := b.options.Audit.Append(b.of(c, event, l), false); err != nil {
		return unavailable(err)
	}
	return nil
}

// recordSynced returns when the line is on the disk.
func (b *Broker) recordSynced(c command, event string, l line) error {
	if _, err := b.options.Audit.Append(b.of(c, event, l), true); err != nil {
		return unavailable(err)
	}
	return nil
}

// end closes a command's record, and remembers what to tell who asks again under its name. What
// could not be recorded at first is not remembered.
func (b *Broker) end(c command, a grants.CommandAnswer, err error) {
	l := line{Status: a.Status, Reason: a.Reason, TookMs: a.TookMs}
	switch {
	case err != nil && a.Status == "":
		l.Status, l.Reason = grants.CommandDenied, err.Error()
	case a.Ran():
		l.ExitCode = &a.ExitCode
	}
	closing := b.of(c, ended, l)
	if _, err := b.options.Audit.Append(closing, false); err != nil {
		b.options.Audit.AppendTaking(closing) // when there is room again
	}
	if c.name == "" {
		return
	}
	told := grants.CommandAnswer{RequestID: c.id, Status: l.Status, Pattern: a.Pattern, Reason: l.Reason}
	if a.Ran() {
		told = ranAlready(c.id)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.remember(askedAs{c.Agent, c.name}, told)
}

// claimName waits until nobody else has a command on its way that was asked for under the same
// name: what came of that is told then. done gives the name back.
func (b *Broker) claimName(ctx context.Context, as askedAs) (told *grants.CommandAnswer, done func(), err error) {
	if as.name == "" {
		return nil, func() {}, nil
	}
	for {
		b.mu.Lock()
		if a, found := b.told[as.agent][as.name]; found {
			b.mu.Unlock()
			return &a, nil, nil
		}
		first, found := b.onTheirWay[as]
		if !found {
			mine := make(chan struct{})
			b.onTheirWay[as] = mine
			b.mu.Unlock()
			return nil, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				delete(b.onTheirWay, as)
				close(mine)
			}, nil
		}
		b.mu.Unlock()
		select {
		case <-first:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

func ranAlready(id string) grants.CommandAnswer {
	return grants.CommandAnswer{RequestID: id, Status: grants.CommandError, Reason: "it ran already, and what it wrote is not kept"}
}

func (b *Broker) remember(as askedAs, a grants.CommandAnswer) {
	if b.told[as.agent] == nil || len(b.told[as.agent]) >= maxTold { // what one agent asks for makes the broker forget nothing of others
		b.told[as.agent] = map[string]grants.CommandAnswer{}
	}
	b.told[as.agent][as.name] = a
}

// unfinishedSince is how far back the record is looked through for what a killed gateway left: as
// far as a command may run.
const unfinishedSince = runner.MaxTimeout + time.Hour

// endUnfinished closes the records that a killed gateway left open: what waited is denied, and what
// ran was ended with it.
func (b *Broker) endUnfinished() {
	lines, err := b.options.Audit.Since(time.Now().Add(-b.options.Timeout - unfinishedSince))
	if err != nil {
		return
	}
	open := map[string]*line{}
	var order []string
	for raw := range lines {
		var l line
		if !bytes.Contains(raw, []byte(`"command_`)) && !bytes.Contains(raw, []byte(`"question_`)) && !bytes.Contains(raw, []byte(`"domain_`)) || json.Unmarshal(raw, &l) != nil || l.ID == "" {
			continue
		}
		switch l.Event {
		case requested, asked, domainAsked:
			open[l.ID] = &l
			order = append(order, l.ID)
		case started:
			if first := open[l.ID]; first != nil {
				first.Event = started
			}
		case commandDecided, domainDecided:
			if first := open[l.ID]; first != nil {
				first.Decision = l.Decision
			}
		case ended, answered, domainEnded:
			delete(open, l.ID)
			if l.Name != "" {
				if l.Event == domainEnded {
					if l.Outcome != grants.OutcomeWithdrawn { // whoever asks again then is asked for anew
						b.remember(askedAs{l.Agent, l.Name}, toldOfDomain(l.ID, l.Outcome, l.Rule, l.Reason))
					}
					continue
				}
				a := grants.CommandAnswer{RequestID: l.ID, Status: l.Status, Reason: l.Reason}
				if a.Ran() {
					a = ranAlready(l.ID)
				}
				b.remember(askedAs{l.Agent, l.Name}, a)
			}
		}
	}
	for _, id := range order {
		l := open[id]
		if l == nil {
			continue
		}
		decision := l.Decision
		l.Decision = nil
		if closing := map[string]string{asked: answered, domainAsked: domainEnded}[l.Event]; closing != "" {
			l.Time, l.Event, l.Outcome, l.Reason = time.Now().UTC(), closing, grants.OutcomeDenied, reasonRestarted
			if decision != nil && b.storedFor(l.Agent, decision.Domain) { // it took effect before whoever decided was told so
				l.Outcome, l.Reason, l.Rule = grants.OutcomeGranted, "", decision.Domain
			}
			b.options.Audit.AppendTaking(*l)
			b.ended[id] = l.Outcome
			if l.Name != "" && closing == domainEnded {
				b.remember(askedAs{l.Agent, l.Name}, toldOfDomain(id, l.Outcome, l.Rule, l.Reason))
			}
			continue
		}
		a := grants.CommandAnswer{RequestID: id, Status: grants.CommandDenied, Reason: reasonRestarted}
		outcome := grants.OutcomeDenied
		switch {
		case l.Event == started:
			a.Status, a.Reason, outcome = grants.CommandError, reasonLost, grants.OutcomeGranted
		case decision != nil && decision.Kind != grants.Deny: // what it allows for always may be stored, though this did not run
			outcome = grants.OutcomeGranted
		}
		l.Time, l.Event, l.Status, l.Reason, l.Verdict, l.Pattern = time.Now().UTC(), ended, a.Status, a.Reason, "", ""
		b.options.Audit.AppendTaking(*l)
		b.ended[id] = outcome
		over := &later{id: id, known: make(chan struct{}), over: make(chan struct{}), answer: a}
		close(over.known)
		close(over.over)
		b.laters[id], b.lately = over, append(b.lately, over)
		c := command{Command: grants.Command{Agent: l.Agent, Line: l.Command}, id: id, session: l.Session}
		if a.Status == grants.CommandError {
			b.tell(c, grants.EventExecFinished, grants.Run{Output: a.Reason})
		} else {
			b.tell(c, grants.EventExecDenied, grants.Run{Reason: a.Reason})
		}
		if l.Name != "" {
			b.remember(askedAs{l.Agent, l.Name}, a)
		}
	}
}

// storedFor reports whether a rule is stored for an agent.
func (b *Broker) storedFor(agent, rule string) bool {
	list, err := b.storedDomains()
	return err == nil && slices.ContainsFunc(list, func(g grants.Grant) bool { return g.Agent == agent && g.Domain == rule })
}

package outside

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
)

// AskDomain has a person asked about a connection of a sandbox. It waits among paths, commands and
// questions, and counts as they do.
func (b *Broker) AskDomain(ctx context.Context, session, to string) (grants.DomainAnswer, error) {
	destination, err := profile.ParseDestination(to, 0)
	switch {
	case err != nil:
		return grants.DomainAnswer{}, &grants.InvalidError{Field: "destination", Why: err.Error()}
	case !destination.Public():
		return grants.DomainAnswer{}, &grants.InvalidError{Field: "destination", Why: "is not the public network's, and no answer opens that"}
	}
	c := command{session: session, id: newID(), domain: destination.String()}
	if err := b.whose(&c); err != nil {
		return grants.DomainAnswer{}, err
	}
	if name := grants.RequestID(ctx); name != "" && len(name) <= grants.MaxRequestID {
		c.name = domainName + name // it is no command's
	}
	as := askedAs{c.Agent, c.name}
	told, done, err := b.claimName(ctx, as)
	if told != nil || err != nil {
		return domainTold(told), err
	}
	defer done()
	got, err := b.bother(ctx, &c, domainAsked, domainEnded, func() *pending { return b.newDomain(c, destination) })
	if err == nil && c.name != "" {
		b.mu.Lock()
		b.remember(as, toldOfDomain(c.id, got.outcome, got.rule, got.reason))
		b.mu.Unlock()
	}
	return grants.DomainAnswer{RequestID: c.id, Outcome: got.outcome, Rule: got.rule, Reason: got.reason}, err
}

// domainName begins the names of requests for connections.
const domainName = "domain "

// toldOfDomain is what is remembered of such a request, among what is remembered of commands.
func toldOfDomain(id string, outcome grants.Outcome, rule, reason string) grants.CommandAnswer {
	return grants.CommandAnswer{RequestID: id, Status: grants.CommandStatus(outcome), Pattern: rule, Reason: reason}
}

func domainTold(a *grants.CommandAnswer) grants.DomainAnswer {
	if a == nil {
		return grants.DomainAnswer{}
	}
	return grants.DomainAnswer{RequestID: a.RequestID, Outcome: grants.Outcome(a.Status), Rule: a.Pattern, Reason: a.Reason}
}

// newDomain is what a person is shown.
func (b *Broker) newDomain(c command, to profile.Destination) *pending {
	p := b.newQuestion(c, nil)
	p.Domain, p.to = &grants.DomainRequest{To: to.String(), Rules: choices(to)}, to
	return p
}

// maxSuffixes are offered of one name, the narrowest first.
const maxSuffixes = 4

// choices are the rules that a person may allow for a destination: host and port, the host, and
// what is above it in its name, as far as somebody owns that, and the first suffix under which
// anybody may have a name.
func choices(to profile.Destination) []grants.DomainChoice {
	host := profile.Destination{Name: to.Name, Address: to.Address}
	list := []grants.DomainChoice{{Rule: to.String()}, {Rule: ruleOf(host)}}
	if to.Name == "" {
		return list
	}
	for above := to.Name; len(list) < 2+maxSuffixes; {
		_, rest, found := strings.Cut(above, ".")
		if !found {
			break
		}
		warning := warningOf(rest)
		list, above = append(list, grants.DomainChoice{Rule: "*." + rest, Warning: warning}), rest
		if warning != "" {
			break
		}
	}
	return list
}

// ruleOf is the rule for a host, on every port.
func ruleOf(host profile.Destination) string {
	if host.Name != "" {
		return host.Name
	}
	return host.Address.String()
}

// warningOf says what a person should know of a rule for all names below one; empty: nothing.
func warningOf(above string) string {
	if wide := (profile.DomainRule{Name: above, Below: true}).Wide(); wide != "" {
		return wide
	}
	if suffix, _ := publicsuffix.PublicSuffix(above); suffix == above {
		return "a public suffix: anybody can have a name below it"
	}
	return ""
}

// decideDomain allows a connection.
func (b *Broker) decideDomain(p *pending, d grants.Decision) (grants.Answer, error) {
	g, err := b.grantDomain(p, d)
	if err != nil {
		b.release(p)
		return grants.Answer{}, unavailable(err)
	}
	b.mu.Lock()
	b.finish(p, grants.OutcomeGranted, got{rule: g.Domain})
	if rule, err := g.DomainRule(); err == nil {
		b.endCovered(g, rule)
	}
	return grants.Answer{RequestID: p.ID, Granted: true, Outcome: grants.OutcomeGranted, Scope: g.Scope, Domain: g.Domain, GrantID: g.ID, ExpiresAt: g.ExpiresAtUnixMs, Visible: grants.VisibleNow}, nil
}

// grantDomain makes the grant that a decision is about. It is on record, and takes effect before
// the answer does.
func (b *Broker) grantDomain(p *pending, d grants.Decision) (grants.Grant, error) {
	now := time.Now()
	g := grants.Grant{ID: "d" + newID(), Agent: p.Agent, Domain: d.Domain, Scope: grants.ScopeOnce, Session: p.Session,
		Origin: grants.Origin{Kind: profile.OriginApproval, GrantedAtUnixMs: now.UnixMilli(), DecidedBy: b.options.User, Via: d.Via}}
	if d.Kind == grants.AllowAlways {
		g.Scope, g.Session = grants.ScopeAlways, ""
	}
	for _, c := range p.Domain.Rules {
		if c.Rule == g.Domain {
			g.Warning = c.Warning
		}
	}
	if d.ExpiresIn > 0 {
		g.ExpiresAtUnixMs = now.Add(time.Duration(d.ExpiresIn)).UnixMilli()
	}
	if err := b.recordSynced(p.command, domainDecided, line{Decision: &d, Grant: g.ID}); err != nil {
		return g, err
	}
	g, unreached, err := b.putDomain(g, p.command.over)
	if err != nil {
		_ = b.record(p.command, "domain_decision_not_stored", line{Reason: err.Error()})
		return g, err
	}
	unreached() // who asked goes on when the answer comes
	return g, nil
}

// putDomain stores a grant, and tells of it. One of a session ends with it.
func (b *Broker) putDomain(g grants.Grant, over <-chan struct{}) (_ grants.Grant, unreached func() []grants.Sandbox, err error) {
	b.domains.Lock()
	defer b.domains.Unlock()
	if g.Scope == grants.ScopeAlways {
		list, err := b.storedDomains()
		if err != nil {
			return g, nil, err
		}
		same := func(other grants.Grant) bool { return other.Agent == g.Agent && other.Domain == g.Domain }
		if i := slices.IndexFunc(list, same); i >= 0 { // what is said now counts
			g.ID = list[i].ID
			list[i] = g
		} else {
			list = append(list, g)
		}
		if err := grants.StoreDomains(b.options.State, list); err != nil {
			return g, nil, err
		}
		b.mu.Lock()
		b.endings.Note(g)
		b.mu.Unlock()
	} else {
		b.mu.Lock()
		b.once[g.ID] = g
		b.mu.Unlock()
		go func() {
			<-over
			b.endOnce(g)
		}()
	}
	return g, b.Tell(grants.EventDomainGranted, g), nil
}

// endOnce ends a grant whose session has ended.
func (b *Broker) endOnce(g grants.Grant) {
	b.mu.Lock()
	_, found := b.once[g.ID]
	delete(b.once, g.ID)
	b.mu.Unlock()
	if found {
		b.Publish(grants.Event{Kind: grants.EventRevoked, Session: g.Session, Grant: &g})
	}
}

// storedDomains are the grants for always that hold.
func (b *Broker) storedDomains() ([]grants.Grant, error) {
	if b.options.State == "" {
		return nil, &grants.UnavailableError{Why: "this gateway stores no domains", Hint: "allow it for the session"}
	}
	list, err := grants.StoredDomains(b.options.State)
	if err != nil {
		return nil, &grants.UnavailableError{Why: err.Error(), Hint: "mend domains.json in the state directory, or move it away"}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(list, func(g grants.Grant) bool {
		b.endings.Note(g)
		return b.endings.Over(g)
	}), nil
}

// domainGrants are all that hold, by agent and rule.
func (b *Broker) domainGrants() ([]grants.Grant, error) {
	var list []grants.Grant
	if b.options.State != "" {
		stored, err := b.storedDomains()
		if err != nil {
			return nil, err
		}
		list = stored
	}
	b.mu.Lock()
	for _, g := range b.once {
		list = append(list, g)
	}
	b.mu.Unlock()
	slices.SortFunc(list, func(a, b grants.Grant) int {
		return cmp.Or(strings.Compare(a.Agent, b.Agent), strings.Compare(a.Domain, b.Domain), strings.Compare(a.ID, b.ID))
	})
	return list, nil
}

// Grants lists what is granted: paths, and then domains.
func (b *Broker) Grants(ctx context.Context) ([]grants.Grant, error) {
	list, err := b.Broker.Grants(ctx)
	if err != nil {
		return nil, err
	}
	domains, err := b.domainGrants()
	return append(list, domains...), err
}

// Add grants a path or a domain that nobody asked for.
func (b *Broker) Add(ctx context.Context, n grants.NewGrant) (grants.Grant, error) {
	if n.Domain == "" {
		return b.Broker.Add(ctx, n)
	}
	invalid := func(field, why string) (grants.Grant, error) {
		return grants.Grant{}, &grants.InvalidError{Field: field, Why: why}
	}
	rule, err := profile.ParseDomainRule(n.Domain)
	switch {
	case profile.CheckAgent(n.Agent) != nil:
		return invalid("agentId", profile.CheckAgent(n.Agent).Error())
	case n.Path != "" || n.Access != profile.NoAccess:
		return invalid("domain", "stands in the place of path and access")
	case err != nil:
		return invalid("domain", err.Error())
	case !rule.Public():
		return invalid("domain", "is not the public network's: that is opened by the configuration alone")
	}
	d := grants.Decision{Kind: grants.AllowAlways, Domain: rule.String(), Scope: grants.ScopeAlways, ExpiresIn: n.ExpiresIn, Reason: n.Reason, Via: n.Via}
	if err := d.ForDomain(grants.DomainRequest{Rules: []grants.DomainChoice{{Rule: d.Domain}}}); err != nil {
		return grants.Grant{}, err
	}
	g := grants.Grant{ID: "d" + newID(), Agent: n.Agent, Domain: d.Domain, Scope: grants.ScopeAlways,
		Origin: grants.Origin{Kind: profile.OriginManual, Reason: n.Reason, GrantedAtUnixMs: time.Now().UnixMilli(), DecidedBy: b.options.User, Via: n.Via}}
	if n.ExpiresIn > 0 {
		g.ExpiresAtUnixMs = time.Now().Add(time.Duration(n.ExpiresIn)).UnixMilli()
	}
	if rule.Below {
		g.Warning = warningOf(rule.Name)
	}
	c := command{Command: grants.Command{Agent: n.Agent}, id: g.ID, domain: d.Domain}
	if err := b.recordSynced(c, "domain_added", line{Decision: &d, Grant: g.ID}); err != nil {
		return grants.Grant{}, err
	}
	g, unreached, err := b.putDomain(g, nil)
	if err != nil {
		return g, unavailable(err)
	}
	unreached()
	b.endCovered(g, rule)
	return g, nil
}

// Revoke ends a grant: of a domain, the connections too that nothing else allows.
func (b *Broker) Revoke(ctx context.Context, id string) (grants.Taking, error) {
	b.domains.Lock()
	list, err := b.domainGrants()
	i := slices.IndexFunc(list, func(g grants.Grant) bool { return g.ID == id })
	if i < 0 {
		b.domains.Unlock()
		return b.Broker.Revoke(ctx, id)
	}
	g := list[i]
	b.mu.Lock()
	delete(b.once, id)
	b.mu.Unlock()
	if g.Scope == grants.ScopeAlways { // before it is told, so that who reads it from now on reads it without
		left := slices.DeleteFunc(slices.Clone(list), func(other grants.Grant) bool { return other.ID == id || other.Scope != grants.ScopeAlways })
		err = grants.StoreDomains(b.options.State, left)
	}
	unreached := b.Tell(grants.EventRevoked, g)
	b.domains.Unlock()
	t := grants.Taking{Grant: g, Unreached: unreached()}
	c := command{Command: grants.Command{Agent: g.Agent}, session: g.Session, id: g.ID, domain: g.Domain}
	b.options.Audit.AppendTaking(b.of(c, "domain_revoked", line{Grant: g.ID}))
	for _, other := range list {
		if other.Agent == g.Agent && other.ID != id && covers(other, g) {
			t.Covered = append(t.Covered, other)
		}
	}
	if err != nil {
		return t, &grants.UnavailableError{Why: "it is over in the sandboxes that run, and still stored: " + err.Error(), Hint: "mend that, and revoke it again"}
	}
	return t, nil
}

// covers reports whether one grant of a domain allows all that another does.
func covers(one, other grants.Grant) bool {
	a, err := one.DomainRule()
	b, err2 := other.DomainRule()
	return err == nil && err2 == nil && a.Covers(b)
}

// Confirm and Narrow are of paths alone.
func (b *Broker) Confirm(ctx context.Context, id, resolved string) (grants.Grant, error) {
	if b.isDomain(id) {
		return grants.Grant{}, &grants.InvalidError{Field: "grant", Why: "is of a domain, which leads nowhere else"}
	}
	return b.Broker.Confirm(ctx, id, resolved)
}

func (b *Broker) Narrow(ctx context.Context, id string) (grants.Taking, error) {
	if b.isDomain(id) {
		return grants.Taking{}, &grants.InvalidError{Field: "grant", Why: "is of a domain: revoke it, and add a narrower one"}
	}
	return b.Broker.Narrow(ctx, id)
}

func (b *Broker) isDomain(id string) bool {
	list, err := b.domainGrants()
	return err == nil && slices.ContainsFunc(list, func(g grants.Grant) bool { return g.ID == id })
}

// endCovered answers the other requests that a grant answers, too.
func (b *Broker) endCovered(g grants.Grant, rule profile.DomainRule) {
	b.mu.Lock()
	var list []*pending
	for _, p := range b.pending {
		if p.Domain != nil && p.Agent == g.Agent && (g.Scope == grants.ScopeAlways || p.Session == g.Session) && rule.Allows(p.to) {
			list = append(list, p)
		}
	}
	b.mu.Unlock()
	for _, p := range list {
		b.endPending(p, grants.OutcomeGranted, got{rule: g.Domain})
	}
}

package broker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/store"
	"github.com/clairun/clai-sandbox/profile"
)

// Grants lists what is granted.
func (b *Broker) Grants(context.Context) ([]grants.Grant, error) {
	b.countUses()
	b.mu.Lock()
	list := make([]grants.Grant, 0, len(b.granted.byID))
	now := time.Now()
	for _, g := range b.granted.byID {
		if !g.Expired(now) {
			list = append(list, *g)
		}
	}
	b.mu.Unlock()
	for i, g := range list {
		if g.Stale != "" {
			continue
		}
		if _, condition, why := g.Check(); condition == grants.Changed {
			list[i].Stale = why
			b.markStale(g, why)
		}
	}
	slices.SortFunc(list, func(a, b grants.Grant) int {
		return cmp.Or(strings.Compare(a.Agent, b.Agent), strings.Compare(a.Path, b.Path), strings.Compare(a.ID, b.ID))
	})
	return list, nil
}

// countUses takes over what runs left word of. What it cannot count now, it counts later.
func (b *Broker) countUses() {
	b.changing.Lock()
	defer b.changing.Unlock()
	folded, err := b.options.Store.CountUses(time.Now())
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range folded.Grants {
		if b.granted.byID[g.ID] != nil { // not revoked meanwhile
			b.granted.put(g)
		}
	}
	for _, g := range folded.Stale {
		_ = b.audit(event{Event: "grant_stale", Grant: &g, Reason: g.Stale})
		b.tell(grants.EventStale, g)
	}
}

// markStale leaves a grant out until a person confirms it.
func (b *Broker) markStale(g grants.Grant, why string) {
	_, _ = b.change(g.ID, func(g *grants.Grant) (grants.EventKind, string, bool, error) {
		g.Stale = why
		return grants.EventStale, "grant_stale", true, nil
	})
}

// change stores another state of a grant. narrows says that it is shown less than before.
func (b *Broker) change(id string, do func(*grants.Grant) (kind grants.EventKind, line string, narrows bool, err error)) (grants.Grant, error) {
	b.changing.Lock()
	defer b.changing.Unlock()
	b.mu.Lock()
	found := b.granted.byID[id]
	if found == nil {
		b.mu.Unlock()
		return grants.Grant{}, &grants.UnknownError{What: "grant", ID: id}
	}
	g := *found
	b.mu.Unlock()
	kind, line, narrows, err := do(&g)
	if err != nil {
		return g, err
	}
	position, err := b.auditSynced(event{Event: line, Grant: &g, Reason: g.Stale})
	if err == nil && g.Scope == grants.ScopeAlways {
		err = b.options.Store.Apply(store.Change{Put: []grants.Grant{g}, Audit: position, Narrows: narrows, OnlyThere: true})
	}
	if err != nil {
		return g, unavailable(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.Scope == grants.ScopeOnce && b.granted.byID[id] == nil {
		return g, &grants.UnknownError{What: "grant", ID: id} // its session ended meanwhile
	}
	b.granted.put(g)
	b.tell(kind, g)
	return g, nil
}

// Confirm takes a stale grant for what its path leads to now.
func (b *Broker) Confirm(_ context.Context, id, resolved string) (grants.Grant, error) {
	return b.change(id, func(g *grants.Grant) (grants.EventKind, string, bool, error) {
		now, err := grants.Resolve(g.Path)
		if err != nil {
			return "", "", false, err
		}
		if now.Resolved != resolved {
			return "", "", false, &grants.ChangedError{Asked: grants.Place{Typed: g.Path, Resolved: g.Resolved, Object: g.Object}, Now: now}
		}
		if err := b.options.Rules.Refuse(now, g.Access); err != nil {
			return "", "", false, err
		}
		g.Resolved, g.Object, g.Stale = now.Resolved, now.Object, ""
		return grants.EventConfirmed, "grant_confirmed", false, nil
	})
}

// Narrow takes writing away from a grant.
func (b *Broker) Narrow(_ context.Context, id string) (grants.Grant, error) {
	return b.change(id, func(g *grants.Grant) (grants.EventKind, string, bool, error) {
		if g.Access != profile.ReadWrite {
			return "", "", false, &grants.InvalidError{Field: "access", Why: "is read_only already"}
		}
		g.Access = profile.ReadOnly
		return grants.EventNarrowed, "grant_narrowed", true, nil
	})
}

// Revoke ends a grant.
func (b *Broker) Revoke(_ context.Context, id string) (grants.Grant, error) {
	return b.remove(id, grants.EventRevoked, "grant_revoked")
}

func (b *Broker) remove(id string, kind grants.EventKind, line string) (grants.Grant, error) {
	b.changing.Lock()
	defer b.changing.Unlock()
	b.mu.Lock()
	found := b.granted.byID[id]
	b.mu.Unlock()
	if found == nil {
		return grants.Grant{}, &grants.UnknownError{What: "grant", ID: id}
	}
	g := *found
	position, err := b.auditSynced(event{Event: line, Grant: &g})
	if err == nil && g.Scope == grants.ScopeAlways {
		err = b.options.Store.Apply(store.Change{Delete: []grants.Grant{g}, Audit: position})
	}
	if err != nil {
		return g, unavailable(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.granted.remove(id)
	b.tell(kind, g)
	return g, nil
}

// Add stores a grant that nobody asked for.
func (b *Broker) Add(_ context.Context, n grants.NewGrant) (grants.Grant, error) {
	if err := checkAgent(n.Agent); err != nil {
		return grants.Grant{}, err
	}
	q, err := b.options.Rules.Ask(n.Path, n.Access, n.Reason)
	if err != nil {
		return grants.Grant{}, err
	}
	// The form of what a person adds is that of a decision on what it names.
	d := grants.Decision{Kind: grants.AllowAlways, Path: q.Place.Typed, Access: n.Access, Scope: grants.ScopeAlways, ExpiresIn: n.ExpiresIn, Via: n.Via}
	place, err := b.options.Rules.Decide(q, d)
	if err != nil {
		return grants.Grant{}, err
	}
	now := time.Now()
	g := grants.Grant{ID: newID("g"), Agent: n.Agent, Path: place.Typed, Resolved: place.Resolved, Access: n.Access, Scope: grants.ScopeAlways, Object: place.Object,
		Origin: grants.Origin{Kind: profile.OriginManual, Reason: n.Reason, GrantedAtUnixMs: now.UnixMilli(), DecidedBy: b.options.User, Via: n.Via}}
	if n.ExpiresIn > 0 {
		g.ExpiresAtUnixMs = now.Add(time.Duration(n.ExpiresIn)).UnixMilli()
	}
	b.changing.Lock()
	defer b.changing.Unlock()
	position, err := b.auditSynced(event{Event: "grant_added", Grant: &g})
	if err == nil {
		err = b.options.Store.Apply(store.Change{Put: []grants.Grant{g}, Audit: position})
	}
	if err != nil {
		return grants.Grant{}, unavailable(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.granted.put(g)
	b.scheduleExpiry()
	b.tell(grants.EventGranted, g)
	b.endCovered(&g)
	return g, nil
}

// scheduleExpiry wakes when the next grant's time is over.
func (b *Broker) scheduleExpiry() {
	if b.expiry != nil {
		b.expiry.Stop()
	}
	next := int64(0)
	for _, g := range b.granted.byID {
		if e := g.ExpiresAtUnixMs; e != 0 && (next == 0 || e < next) {
			next = e
		}
	}
	if next == 0 || b.closed {
		return
	}
	// Not at once, should one that is over not go away; and not too late, should the clock be set.
	wait := min(max(time.Until(time.UnixMilli(next)), 10*time.Millisecond), time.Minute)
	b.expiry = time.AfterFunc(wait, b.expire)
}

// expire ends what has had its time. Where that cannot be written, it is over all the same: everyone looks at the time.
func (b *Broker) expire() {
	b.mu.Lock()
	var over []string
	now := time.Now()
	for id, g := range b.granted.byID {
		if g.Expired(now) {
			over = append(over, id)
		}
	}
	b.mu.Unlock()
	for _, id := range over {
		if _, err := b.remove(id, grants.EventExpired, "grant_expired"); err != nil {
			b.mu.Lock()
			if g := b.granted.byID[id]; g != nil {
				b.tell(grants.EventExpired, *g)
				b.granted.remove(id)
				b.publish(grants.Event{Kind: grants.EventNotice, Notice: &grants.Notice{Kind: grants.NoticeStore, Path: g.Path, Text: fmt.Sprintf("grant %s is over, and still stored: %v", id, err)}})
			}
			b.mu.Unlock()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.scheduleExpiry()
}

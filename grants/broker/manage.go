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
	_ = b.settle() // or it is told below what is owed
	b.countUses()
	b.mu.Lock()
	list := make([]grants.Grant, 0, len(b.granted.byID))
	for _, g := range b.owed {
		g.Stale = "revoked, and not stored yet: revoke it again when the disk has room"
		list = append(list, g)
	}
	for _, g := range b.granted.byID {
		if !b.granted.endings.Over(*g) {
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
	_, _, _ = b.change(context.Background(), g.ID, func(g *grants.Grant) (grants.EventKind, string, bool, error) {
		g.Stale = why
		return grants.EventStale, "grant_stale", true, nil
	})
}

// change stores another state of a grant. narrows says that it is shown less than before: then it
// is so before it is stored.
func (b *Broker) change(ctx context.Context, id string, do func(*grants.Grant) (kind grants.EventKind, line string, narrows bool, err error)) (grants.Grant, []wait, error) {
	b.changing.Lock()
	defer b.changing.Unlock()
	if d, found := b.doneBefore(ctx); found && d.Grant != nil {
		return *d.Grant, nil, nil
	}
	b.mu.Lock()
	found := b.granted.byID[id]
	if found == nil {
		b.mu.Unlock()
		return grants.Grant{}, nil, &grants.UnknownError{What: "grant", ID: id}
	}
	g := *found
	b.mu.Unlock()
	kind, line, narrows, err := do(&g)
	if err != nil {
		return g, nil, err
	}
	change := store.Change{Put: []grants.Grant{g}, Narrows: narrows, OnlyThere: true, Done: doneAs(ctx, &g, nil)}
	if same := b.sameAs(g); same != nil && kind == grants.EventNarrowed {
		// There is one such grant already, and it stays the only one.
		change = store.Change{Delete: []grants.Grant{g}, Done: doneAs(ctx, same, nil)}
		b.mu.Lock()
		b.granted.remove(g.ID)
		b.tell(grants.EventRevoked, g)
		list := b.reach(grants.EventRevoked, g)
		b.mu.Unlock()
		return *same, list, b.storeTaking(event{Event: line, Grant: &g}, change, g)
	}
	if narrows {
		list := b.put(kind, g)
		return g, list, b.storeTaking(event{Event: line, Grant: &g, Reason: g.Stale}, change, g)
	}
	position, err := b.auditSynced(event{Event: line, Grant: &g, Reason: g.Stale})
	if err == nil && g.Scope == grants.ScopeAlways {
		change.Audit = position
		err = b.options.Store.Apply(change)
	}
	if err != nil {
		return g, nil, unavailable(err)
	}
	b.remember(change.Done)
	if b.put(kind, g); g.Scope == grants.ScopeOnce && !b.has(id) {
		return g, nil, &grants.UnknownError{What: "grant", ID: id} // its session ended meanwhile
	}
	return g, nil, nil
}

// sameAs is another grant of the same, or nil.
func (b *Broker) sameAs(g grants.Grant) *grants.Grant {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, other := range b.granted.byAgent[g.Agent] {
		if other.ID != g.ID && isSame(*other, g) {
			found := *other
			return &found
		}
	}
	return nil
}

func (b *Broker) has(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.granted.byID[id] != nil
}

// put makes a changed grant the one that holds, and returns whom to wait for. One whose session has
// ended is over.
func (b *Broker) put(kind grants.EventKind, g grants.Grant) []wait {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.Scope == grants.ScopeOnce && b.granted.byID[g.ID] == nil {
		return nil
	}
	b.granted.put(g)
	b.tell(kind, g)
	return b.reach(kind, g)
}

// storeTaking writes down what was taken away. It is over already.
func (b *Broker) storeTaking(e event, change store.Change, g grants.Grant) error {
	change.Audit = b.auditTaking(e)
	if g.Scope != grants.ScopeAlways {
		return nil
	}
	err := b.options.Store.Apply(change)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.owed[g.ID] = g
		return unavailable(err)
	}
	clear(b.owed) // they come first
	if change.Done != nil {
		b.keepDone(*change.Done)
	}
	return nil
}

// doneBefore is what was done already under the name that this is asked for.
func (b *Broker) doneBefore(ctx context.Context) (grants.Done, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, found := b.done[grants.RequestID(ctx)]
	return d, found
}

func doneAs(ctx context.Context, g *grants.Grant, a *grants.Answer) *grants.Done {
	id := grants.RequestID(ctx)
	if id == "" || len(id) > grants.MaxRequestID {
		return nil
	}
	return &grants.Done{RequestID: id, Grant: g, Answer: a}
}

func (b *Broker) remember(d *grants.Done) {
	if d != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.keepDone(*d)
	}
}

// maxDone bounds the changes that are known by their names; the store bounds those that the next
// broker knows.
const maxDone = 4096

func (b *Broker) keepDone(d grants.Done) {
	if len(b.done) >= maxDone {
		clear(b.done)
		stored, _ := b.options.Store.Done()
		for _, d := range stored {
			b.done[d.RequestID] = d
		}
	}
	b.done[d.RequestID] = d
}

// Confirm takes a stale grant for what its path leads to now.
func (b *Broker) Confirm(ctx context.Context, id, resolved string) (grants.Grant, error) {
	g, _, err := b.change(ctx, id, func(g *grants.Grant) (grants.EventKind, string, bool, error) {
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
	return g, err
}

// Narrow takes writing away from a grant.
func (b *Broker) Narrow(ctx context.Context, id string) (grants.Taking, error) {
	g, list, err := b.change(ctx, id, func(g *grants.Grant) (grants.EventKind, string, bool, error) {
		if g.Access != profile.ReadWrite {
			return "", "", false, &grants.InvalidError{Field: "access", Why: "is read_only already"}
		}
		g.Access = profile.ReadOnly
		return grants.EventNarrowed, "grant_narrowed", true, nil
	})
	t := grants.Taking{Grant: g, Covered: b.covering(g, profile.ReadWrite)}
	if err == nil {
		t.Unreached = await(list)
	}
	return t, err
}

// Revoke ends a grant.
func (b *Broker) Revoke(ctx context.Context, id string) (grants.Taking, error) {
	g, list, err := b.remove(ctx, id, grants.EventRevoked, "grant_revoked")
	t := grants.Taking{Grant: g}
	if g.ID != "" {
		t.Covered = b.covering(g, profile.ReadOnly)
		t.Unreached = await(list)
	}
	return t, err
}

// covering lists the other grants that still give an agent that much of a path.
func (b *Broker) covering(g grants.Grant, access profile.Access) []grants.Grant {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []grants.Grant
	for _, other := range b.granted.byAgent[g.Agent] {
		if other.ID != g.ID && other.Stale == "" && !b.granted.endings.Over(*other) && other.Access >= access && profile.Within(g.Resolved, other.Resolved) {
			list = append(list, *other)
		}
	}
	slices.SortFunc(list, func(a, b grants.Grant) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.ID, b.ID))
	})
	return list
}

// remove ends a grant: first in the sandboxes that run, then on the disk. Where it cannot be stored
// it is over all the same.
func (b *Broker) remove(ctx context.Context, id string, kind grants.EventKind, line string) (grants.Grant, []wait, error) {
	b.changing.Lock()
	defer b.changing.Unlock()
	if d, found := b.doneBefore(ctx); found && d.Grant != nil {
		return *d.Grant, nil, nil
	}
	b.mu.Lock()
	found := b.granted.byID[id]
	g, isOwed := b.owed[id]
	var list []wait
	if found != nil {
		g = *found
		b.granted.remove(id)
		b.tell(kind, g)
		list = b.reach(kind, g)
	}
	b.mu.Unlock()
	switch {
	case found != nil:
		return g, list, b.storeTaking(event{Event: line, Grant: &g}, store.Change{Delete: []grants.Grant{g}, Done: doneAs(ctx, &g, nil)}, g)
	case isOwed:
		return g, nil, b.settle()
	}
	return g, nil, &grants.UnknownError{What: "grant", ID: id}
}

// settle stores what is owed.
func (b *Broker) settle() error {
	if err := b.options.Store.Settle(); err != nil {
		return unavailable(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.owed)
	return nil
}

// Add stores a grant that nobody asked for.
func (b *Broker) Add(ctx context.Context, n grants.NewGrant) (grants.Grant, error) {
	if err := checkAgent(n.Agent); err != nil {
		return grants.Grant{}, err
	}
	if d, found := b.doneBefore(ctx); found && d.Grant != nil {
		return *d.Grant, nil
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
	if d, found := b.doneBefore(ctx); found && d.Grant != nil { // asked twice at once
		return *d.Grant, nil
	}
	b.become(&g)
	change := store.Change{Put: []grants.Grant{g}, Done: doneAs(ctx, &g, nil)}
	position, err := b.auditSynced(event{Event: "grant_added", Grant: &g})
	if err == nil {
		change.Audit = position
		err = b.options.Store.Apply(change)
	}
	if err != nil {
		return grants.Grant{}, unavailable(err)
	}
	b.remember(change.Done)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.granted.put(g)
	b.scheduleExpiry()
	b.tell(grants.EventGranted, g)
	b.endCovered(&g)
	return g, nil
}

// become makes a new grant the one that there is already to the same agent, of the same path and
// access. What is said now counts.
func (b *Broker) become(g *grants.Grant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if same := b.granted.same(*g); same != nil {
		g.ID, g.Uses, g.LastUsedAtUnixMs = same.ID, same.Uses, same.LastUsedAtUnixMs
	}
}

// scheduleExpiry wakes when the next grant's time is over.
func (b *Broker) scheduleExpiry() {
	b.expiry.Stop()
	next, any := time.Duration(0), false
	for _, g := range b.granted.byID {
		if left, ends := b.granted.endings.Left(*g); ends && (!any || left < next) {
			next, any = left, true
		}
	}
	if any && !b.closed {
		b.expiry = grants.NewAlarm(max(next, 10*time.Millisecond), b.expire) // not at once, should one that is over not go away
	}
}

// expire ends what has had its time. Where that cannot be written, it is over all the same:
// everyone looks at the time.
func (b *Broker) expire() {
	b.mu.Lock()
	var over []string
	for id, g := range b.granted.byID {
		if b.granted.endings.Over(*g) {
			over = append(over, id)
		}
	}
	b.mu.Unlock()
	for _, id := range over {
		if g, _, err := b.remove(context.Background(), id, grants.EventExpired, "grant_expired"); err != nil {
			b.Notify(grants.Notice{Kind: grants.NoticeStore, Path: g.Path, Text: fmt.Sprintf("grant %s is over, and still stored: %v", id, err)})
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.scheduleExpiry()
}

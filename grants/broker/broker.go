package broker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clairun/clai-sandbox/audit"
	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/store"
	"github.com/clairun/clai-sandbox/profile"
)

// Options are what a broker works with and how much it takes on. Zero limits are the usual ones.
type Options struct {
	Rules grants.Rules
	Store *store.Store
	Audit *audit.Log
	User  string // who decides: the one whose broker it is

	Timeout     time.Duration // how long a request waits
	MaxPending  int           // requests of one agent
	MaxSessions int
	MaxWaiters  int           // on one request, and of these MaxSessions times as many in all
	AskEvery    time.Duration // an agent may bother a person once in this time, after a burst of MaxPending

	// Presence is a directory that outlives the broker and nothing else: what it keeps of open
	// sessions. Empty: nothing is kept.
	Presence string
	Clock    grants.Clock // by which grants are over; nil: the machine's
	// Listen, if there is one, makes the socket on which the inside of a session asks.
	Listen func(session string) (path string, done func(), err error)
}

// The usual limits.
const (
	DefaultTimeout     = 5 * time.Minute
	DefaultMaxPending  = 16
	DefaultMaxSessions = 4096
	DefaultMaxWaiters  = 16
	DefaultAskEvery    = 2 * time.Second

	maxDenials   = 1024 // remembered of one session
	maxEnded     = 1024 // requests of which it is known how they ended
	maxListeners = 64
	eventBuffer  = 256
	applyTimeout = 2 * time.Second // for a running sandbox to show what was granted
)

// A Broker is made by New.
type Broker struct {
	options Options

	mu       sync.Mutex
	closed   bool
	sessions map[string]*session
	requests map[string]*request
	agents   map[string]*agent
	granted  index
	ended    []endedRequest
	hub      hub
	expiry   *grants.Alarm
	away     map[string]*presence      // sessions of an earlier broker that have not come back
	left     map[string]left           // what was said for sessions that have ended here, by their keys
	owed     map[string]grants.Grant   // what was revoked, and could not be stored yet
	told     map[askedAs]grants.Answer // to questions of before this broker began
	done     map[string]grants.Done    // changes that were made, by the name that they were asked for under

	changing sync.Mutex // one change of a stored grant at a time; taken before mu
}

var _ grants.Broker = (*Broker)(nil)

// agent is what is counted of one agent while it has sessions.
type agent struct {
	sessions, pending int
	bothers           Allowance // of requests that a person hears of
	questions         Allowance // of questions at all
	silenced          bool      // it was recorded that it asks too often
}

// An Allowance is how often something may be done now.
type Allowance struct {
	tokens   float64
	filledAt time.Time
}

// Take takes some, of at most burst, if there are as many. Every so often there is one more.
func (a *Allowance) Take(now time.Time, some, burst int, every time.Duration) bool {
	if a.filledAt.IsZero() {
		a.tokens = float64(burst)
	} else {
		a.tokens = min(float64(burst), a.tokens+float64(now.Sub(a.filledAt))/float64(every))
	}
	a.filledAt = now
	if a.tokens < float64(some) {
		return false
	}
	a.tokens -= float64(some)
	return true
}

type endedRequest struct {
	id      string
	outcome grants.Outcome
}

// New returns a broker with what is stored.
func New(o Options) (*Broker, error) {
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.MaxPending = cmp.Or(o.MaxPending, DefaultMaxPending)
	o.MaxSessions = cmp.Or(o.MaxSessions, DefaultMaxSessions)
	o.MaxWaiters = cmp.Or(o.MaxWaiters, DefaultMaxWaiters)
	o.AskEvery = cmp.Or(o.AskEvery, DefaultAskEvery)
	b := &Broker{options: o, sessions: map[string]*session{}, requests: map[string]*request{}, agents: map[string]*agent{}, granted: newIndex(o.Clock),
		away: map[string]*presence{}, left: map[string]left{}, owed: map[string]grants.Grant{}, done: map[string]grants.Done{}, hub: newHub()}
	all, err := o.Store.Grants()
	if err != nil {
		return nil, err
	}
	for _, g := range all {
		b.granted.put(g)
	}
	done, err := o.Store.Done()
	if err != nil {
		return nil, err
	}
	for _, d := range done {
		b.done[d.RequestID] = d
	}
	if o.Presence != "" {
		b.readPresences()
	}
	b.endUnfinished()
	b.mu.Lock()
	b.scheduleExpiry()
	b.mu.Unlock()
	return b, nil
}

// Close ends all sessions, so that every question that waits is withdrawn.
func (b *Broker) Close() {
	b.mu.Lock()
	b.closed = true
	b.expiry.Stop()
	list := make([]*session, 0, len(b.sessions))
	for _, s := range b.sessions {
		list = append(list, s)
	}
	b.hub.close()
	b.mu.Unlock()
	for _, s := range list {
		b.endSession(s)
	}
}

// Idle reports whether nobody needs the broker now: no session, nobody who listens.
func (b *Broker) Idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.sessions) == 0 && len(b.requests) == 0 && !b.hub.needed()
}

// Heard reports whether anyone listens: who looks at the requests, or shows them to somebody.
func (b *Broker) Heard() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.hub.listeners) > 0
}

// Notify tells everyone who listens.
func (b *Broker) Notify(n grants.Notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.publish(grants.Event{Kind: grants.EventNotice, Notice: &n})
}

// Pending lists what waits for a decision.
func (b *Broker) Pending(context.Context) ([]grants.Request, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []grants.Request{}
	for _, r := range b.requests {
		if r.state == pending {
			list = append(list, r.Request)
		}
	}
	slices.SortFunc(list, func(a, b grants.Request) int {
		return cmp.Or(cmp.Compare(a.AskedAtUnixMs, b.AskedAtUnixMs), strings.Compare(a.ID, b.ID))
	})
	return list, nil
}

// Log lists requests that have ended.
func (b *Broker) Log(_ context.Context, limit int) ([]grants.Record, error) {
	if limit < 1 || limit > 1000 {
		return nil, &grants.InvalidError{Field: "limit", Why: "must be from 1 to 1000"}
	}
	list, err := b.options.Store.Records(limit)
	if err != nil {
		return nil, unavailable(err)
	}
	return list, nil
}

// Events tells of everything that happens.
func (b *Broker) Events(ctx context.Context, from grants.EventsFrom) (<-chan grants.Event, error) {
	return b.listen(ctx, from, false)
}

// Watch is Events for a part of the daemon itself: it keeps no broker from being idle.
func (b *Broker) Watch(ctx context.Context, from grants.EventsFrom) (<-chan grants.Event, error) {
	return b.listen(ctx, from, true)
}

func (b *Broker) listen(ctx context.Context, from grants.EventsFrom, quiet bool) (<-chan grants.Event, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errClosed
	}
	if len(b.hub.listeners) >= maxListeners {
		return nil, &grants.BusyError{Why: fmt.Sprintf("%d listeners are there already", maxListeners)}
	}
	l := b.hub.add(from)
	l.quiet = quiet
	if from.Ends {
		b.hub.remove(l)
		return l.events, nil
	}
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.hub.remove(l)
	})
	return l.events, nil
}

// Publish tells everyone who listens of something that is no grant's.
func (b *Broker) Publish(e grants.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.publish(e)
}

// publish tells listeners. The lock is held, so that all see the same order.
func (b *Broker) publish(e grants.Event) {
	e.AtUnixMs = time.Now().UnixMilli()
	b.hub.publish(e)
}

var errClosed = &grants.UnavailableError{Why: "the broker is about to stop", Hint: "try again"}

// unavailable is an error of the disk's.
func unavailable(err error) error {
	var ready *grants.UnavailableError
	if errors.As(err, &ready) {
		return err
	}
	var owed *store.OwedError
	if errors.As(err, &owed) {
		return &grants.UnavailableError{Why: "what was taken away is " + err.Error(), Hint: "it is gone from running sandboxes, and until it is stored no other shows anything stored: free the disk, and try again"}
	}
	return &grants.UnavailableError{Why: err.Error(), Hint: "nothing was changed: mend that, as by freeing the disk, and try again"}
}

// newID is one that a person can type. Knowing it permits nothing.
func newID(prefix string) string { return prefix + strings.ToLower(rand.Text()[:12]) }

// agentOf counts an agent from its first session on.
func (b *Broker) agentOf(name string) *agent {
	a := b.agents[name]
	if a == nil {
		a = &agent{}
		b.agents[name] = a
	}
	return a
}

// mayBother takes one of the times that an agent may bother a person.
func (b *Broker) mayBother(a *agent) bool {
	return a.bothers.Take(time.Now(), 1, b.options.MaxPending, b.options.AskEvery)
}

// forget drops an agent that has nothing any more. Its allowance is full again by the time that it
// takes to notice.
func (b *Broker) forget(name string) {
	if a := b.agents[name]; a != nil && a.sessions == 0 && a.pending == 0 && time.Since(a.questions.filledAt) > time.Duration(b.options.askBurst())*b.options.AskEvery {
		delete(b.agents, name)
	}
}

// checkAgent wants a name that can be an agent's.
func checkAgent(name string) error {
	if err := profile.CheckAgent(name); err != nil {
		return &grants.InvalidError{Field: "agentId", Why: err.Error()}
	}
	return nil
}

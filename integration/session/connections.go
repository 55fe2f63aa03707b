package session

import (
	"context"
	"sync"
	"time"

	"github.com/clairun/clai-sandbox/grants"
)

const (
	// maxSeen destinations of a session are told of by themselves. Others are counted.
	maxSeen = 1000
	// tellAfter is how long after a new one it is told: those of that time together.
	tellAfter = 2 * time.Second
	// tellTimeout is how long a session that ends waits for the broker to take the last of it.
	tellTimeout = 2 * time.Second
)

// An account is what a session's network let through and refused, for the record. A destination is
// told of soon after the first connection, and how many there were when the session ends.
type account struct {
	tell func(context.Context, grants.Connections) error

	mu    sync.Mutex
	seen  map[grants.Connection]*counted // by what is the same each time
	more  int64
	timer *time.Timer // until it is told
	ended bool
}

type counted struct {
	n    int64 // that were not told yet
	told bool
}

// note counts a connection.
func (a *account) note(to string, allowed bool, rule, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := grants.Connection{To: to, Allowed: allowed, Rule: rule, Why: why}
	c := a.seen[key]
	if c == nil {
		if len(a.seen) >= maxSeen {
			a.more++
			return
		}
		if a.seen == nil {
			a.seen = map[grants.Connection]*counted{}
		}
		c = &counted{}
		a.seen[key] = c
		if a.timer == nil && !a.ended {
			a.timer = time.AfterFunc(tellAfter, func() { a.report(context.Background(), false) })
		}
	}
	c.n++
}

// end tells the rest.
func (a *account) end() {
	a.mu.Lock()
	a.ended = true
	if a.timer != nil {
		a.timer.Stop()
	}
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), tellTimeout)
	defer cancel()
	a.report(ctx, true)
}

// report tells what is new, or all that was not told. What the broker does not take is not kept:
// the connections were made.
func (a *account) report(ctx context.Context, all bool) {
	a.mu.Lock()
	a.timer = nil
	var list []grants.Connection
	for key, c := range a.seen {
		if c.n == 0 || c.told && !all {
			continue
		}
		key.Count, c.n, c.told = c.n, 0, true
		list = append(list, key)
	}
	more := int64(0)
	if all {
		more, a.more = a.more, 0
	}
	a.mu.Unlock()
	for len(list) > 0 || more > 0 {
		n := min(len(list), grants.MaxConnections)
		if a.tell(ctx, grants.Connections{Connections: list[:n:n], More: more}) != nil {
			return
		}
		list, more = list[n:], 0
	}
}

// observe tells the broker, if one runs.
func (s *Session) observe(ctx context.Context, c grants.Connections) error {
	observer, ok := onlyRunning(s.options.Broker).(grants.Observer)
	if !ok {
		return &grants.UnavailableError{Why: "nobody keeps a record of connections", Hint: "start the session with --broker"}
	}
	return observer.Observe(ctx, s.ID(), c)
}

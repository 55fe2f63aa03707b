package outside

import (
	"context"
	"fmt"
	"time"

	"github.com/clairun/clai-sandbox/grants"
)

const (
	networkAllowed = "network_allowed"
	networkRefused = "network_refused"
	networkMore    = "network_more" // connections that are only counted

	// What an agent's connections may take of the record: so many lines, and then one more each
	// time.
	connectionBurst = 500
	connectionEvery = 10 * time.Second
)

// Observe puts on record what a session's network let through and refused. What is more than a
// share of lines is counted: who connects to one name after the other fills no disk.
func (b *Broker) Observe(_ context.Context, session string, o grants.Connections) error {
	c := command{session: session}
	if session == "" || len(o.Connections) > grants.MaxConnections || o.More < 0 {
		return &grants.InvalidError{Field: "connections", Why: fmt.Sprintf("must be at most %d, of a session", grants.MaxConnections)}
	}
	if err := b.whose(&c); err != nil {
		return err
	}
	c.Cwd = ""
	done, err := b.admit(c.Agent, 0)
	if err != nil {
		return err
	}
	defer done()
	b.mu.Lock()
	a := b.agents[c.Agent]
	a.unrecorded += o.More
	n := 0
	for ; n < len(o.Connections) && a.connections.Take(time.Now(), 1, connectionBurst, connectionEvery); n++ {
	}
	for _, other := range o.Connections[n:] {
		a.unrecorded += max(0, other.Count)
	}
	more := int64(0)
	if a.unrecorded > 0 && a.connections.Take(time.Now(), 1, connectionBurst, connectionEvery) {
		more, a.unrecorded = a.unrecorded, 0
	}
	b.mu.Unlock()
	for _, seen := range o.Connections[:n] {
		event := networkAllowed
		if !seen.Allowed {
			event = networkRefused
		}
		l := line{Rule: brief(seen.Rule), Count: seen.Count, Reason: seen.Why}
		c.domain = brief(seen.To)
		if err := b.record(c, event, l); err != nil {
			return err
		}
	}
	c.domain = ""
	if more > 0 {
		return b.record(c, networkMore, line{Count: more})
	}
	return nil
}

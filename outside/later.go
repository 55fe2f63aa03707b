package outside

import (
	"context"
	"slices"
	"time"

	"github.com/clairun/clai-sandbox/grants"
)

// A later is a command whose asker comes back for what became of it: they have an id at once, which
// is the request's and the run's.
type later struct {
	id     string
	asked  time.Time
	known  chan struct{} // closed when it has its id, or has ended without one
	over   chan struct{} // closed when it has ended
	answer grants.CommandAnswer
	err    error
}

// maxLater is how many of those that have ended are kept for who asked.
const maxLater = 64

// accept begins a command, or finds the one that was begun under the same name.
func (b *Broker) accept(ctx context.Context, c command) (grants.CommandAnswer, error) {
	if c.session == "" || c.inside {
		return grants.CommandAnswer{}, &grants.InvalidError{Field: "twoPhase", Why: "is for a session's backend: whoever else asks waits"}
	}
	as := askedAs{c.Agent, c.name}
	b.mu.Lock()
	l := b.laterAs[as]
	if l == nil || c.name == "" {
		l = &later{asked: time.Now(), known: make(chan struct{}), over: make(chan struct{})}
		if c.name != "" {
			b.laterAs[as] = l
		}
		go func() {
			l.answer, l.err = b.runOutside(context.WithoutCancel(ctx), c, func(id string) { b.know(l, id) }) // it ends with its session
			b.keepLater(as, l)
		}()
	}
	b.mu.Unlock()
	select {
	case <-l.known:
	case <-ctx.Done():
		return grants.CommandAnswer{}, ctx.Err()
	}
	if l.id == "" {
		return grants.CommandAnswer{}, l.err
	}
	return grants.CommandAnswer{RequestID: l.id, Status: grants.CommandAccepted, CreatedAtUnixMs: l.asked.UnixMilli(), ExpiresAtUnixMs: l.asked.Add(b.options.Timeout).UnixMilli()}, nil
}

// know tells whoever asked the id.
func (b *Broker) know(l *later, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.id = id
	b.laters[id] = l
	close(l.known)
}

// keepLater keeps what has ended until whoever asked comes back, as far as there is room.
func (b *Broker) keepLater(as askedAs, l *later) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.id == "" {
		l.id = l.answer.RequestID // of an earlier gateway
		if l.id != "" {
			b.laters[l.id] = l
		}
		close(l.known)
	}
	close(l.over)
	forget := func(l *later) {
		if l.id != "" && b.laters[l.id] == l {
			delete(b.laters, l.id)
		}
		for as, other := range b.laterAs {
			if other == l {
				delete(b.laterAs, as)
			}
		}
	}
	if l.id == "" { // it may be asked again
		forget(l)
		return
	}
	b.lately = append(b.lately, l)
	if len(b.lately) > maxLater {
		forget(b.lately[0])
		b.lately = slices.Delete(b.lately, 0, 1)
	}
}

// WaitOutside waits for the end of a command that was accepted.
func (b *Broker) WaitOutside(ctx context.Context, id string) (grants.CommandAnswer, error) {
	b.mu.Lock()
	l := b.laters[id]
	b.mu.Unlock()
	if l == nil {
		return grants.CommandAnswer{}, &grants.UnknownError{What: "command", ID: id}
	}
	select {
	case <-l.over:
		return l.answer, l.err
	case <-ctx.Done():
		return grants.CommandAnswer{}, ctx.Err()
	}
}

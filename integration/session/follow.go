package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// running is a sandbox that can be changed.
type running struct {
	part
	live  *sandbox.Live      // nil: its paths cannot
	reach *sandbox.Reach     // nil: its network cannot
	end   context.CancelFunc // ends it
	mu    sync.Mutex         // held over each change, so that the last one counts
}

// follow takes up what is granted and taken away, until the session ends. A broker that ends leaves
// the session without one, until the next has it.
func (s *Session) follow() {
	defer close(s.ended)
	for {
		s.mu.Lock()
		events := s.broker.Events
		s.mu.Unlock()
		for event := range events {
			s.asked.Store(true)
			switch {
			case event.Grant != nil:
				s.take(event)
			case event.Overrides != nil:
				s.override(*event.Overrides)
			case event.Kind == grants.EventRequestEnded && event.Notice != nil: // a person said no
				s.notice(sandbox.Notice{Kind: sandbox.NoticeKind(event.Notice.Kind), Path: event.Notice.Path, Text: event.Notice.Text})
			}
		}
		s.lose()
		if !s.rejoin() {
			return
		}
	}
}

// override takes up where an operator wants commands run that name no host.
func (s *Session) override(o grants.Overrides) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.where = o.Where()
}

// take takes up one change.
func (s *Session) take(event grants.Event) {
	g := *event.Grant
	s.mu.Lock()
	s.version++
	switch event.Kind {
	case grants.EventGranted, grants.EventDomainGranted, grants.EventConfirmed, grants.EventNarrowed:
		s.held[g.ID] = g
		s.endings.Note(g)
	case grants.EventRevoked, grants.EventExpired, grants.EventStale:
		delete(s.held, g.ID)
		s.endings.Forget(g.ID)
	}
	s.scheduleExpiry()
	s.mu.Unlock()
	given := event.Kind == grants.EventGranted || event.Kind == grants.EventDomainGranted || event.Kind == grants.EventConfirmed
	problem := s.updateAll(!given)
	if event.Kind == grants.EventDomainGranted {
		s.notice(sandbox.Notice{Kind: sandbox.NoticeKind(grants.NoticeDomainGranted), Domain: g.Domain, Text: "granted while the session ran: " + profile.Printable(g.Domain) + " (grant " + g.ID + ")"})
	}
	if event.Kind == grants.EventGranted {
		s.notice(sandbox.Notice{Kind: sandbox.NoticeKind(grants.NoticePathGranted), Path: g.Path,
			Text: "granted while the session ran: " + profile.Printable(g.Path) + ", " + g.Access.String() + " (grant " + g.ID + ")"})
	}
	if s.options.Live || g.Domain != "" {
		s.applied(grants.Applied{Grant: g.ID, Event: event.Kind, Problem: problem})
	}
}

// updateAll makes all running sandboxes show what is granted now. taken says that it may be less
// than before. The problem is the last that one had.
func (s *Session) updateAll(taken bool) (problem string) {
	s.mu.Lock()
	list := slices.Collect(maps.Keys(s.running))
	s.mu.Unlock()
	for _, r := range list {
		if err := s.update(r, taken); err != nil && err != sandbox.ErrNotLive {
			problem = err.Error()
		}
	}
	return problem
}

// lose is for the end of the broker: from here on nobody tells of what is taken away. What this
// session alone was granted is over, the rest is read anew, and its times run on here.
func (s *Session) lose() {
	s.read(time.Now())
	s.mu.Lock()
	s.told = false
	list := slices.Collect(maps.Keys(s.running))
	s.mu.Unlock()
	for _, r := range list {
		if s.update(r, true) != sandbox.ErrNotLive {
			s.notice(sandbox.Notice{Kind: NoticeBroker, Text: "the broker is gone: what was granted for this session only was taken away, and until there is one again nobody can be asked"})
		}
	}
}

// rejoinEvery is how often to look for another broker.
const rejoinEvery = 200 * time.Millisecond

// rejoin waits for another broker, which somebody else starts, and goes on there. It reports false
// if the session ends.
func (s *Session) rejoin() bool {
	look := time.NewTicker(rejoinEvery)
	defer look.Stop()
	for {
		select {
		case <-s.closing:
			return false
		case <-s.ctx.Done():
			return false
		case <-look.C:
		}
		if s.joined() || s.join(onlyRunning(s.options.Broker)) == nil {
			return true
		}
	}
}

// onlyRunning is a broker as far as it runs: to go on with a session starts none.
func onlyRunning(b grants.Broker) grants.Broker {
	if c, ok := b.(interface{ Running() grants.Broker }); ok {
		return c.Running()
	}
	return b
}

// join opens the session anew, at a broker that does not know it, and takes away what was taken
// away meanwhile.
func (s *Session) join(b grants.Broker) error {
	s.joining.Lock()
	defer s.joining.Unlock()
	if s.joined() {
		return nil
	}
	select {
	case <-s.closing:
		return errEnded
	default:
	}
	spec := s.spec
	spec.Previous = s.key()
	again, err := b.Open(s.ctx, spec) // it lasts as long as the session
	if err != nil {
		return err
	}
	s.read(time.Now())
	s.mu.Lock()
	s.broker, s.told, s.where = again, true, "" // what was said is told again
	s.mu.Unlock()
	s.updateAll(true)
	s.applied(grants.Applied{Event: grants.EventSession})
	return nil
}

var errEnded = &grants.UnavailableError{Why: "the session has ended", Hint: "begin another one"}

// joined reports whether a broker tells of changes.
func (s *Session) joined() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told
}

// scheduleExpiry wakes when the next grant's time is over, whether or not there is a broker that
// says so. The lock is held.
func (s *Session) scheduleExpiry() {
	s.expiry.Stop()
	next, any := time.Duration(0), false
	for _, g := range s.held {
		if left, ends := s.endings.Left(g); ends && (!any || left < next) {
			next, any = left, true
		}
	}
	if !any || s.options.Broker == nil {
		return
	}
	s.expiry = grants.NewAlarm(next, func() {
		select {
		case <-s.closing:
			return
		default:
		}
		s.mu.Lock()
		before := len(s.held)
		maps.DeleteFunc(s.held, func(id string, g grants.Grant) bool {
			over := s.endings.Over(g)
			if over {
				s.endings.Forget(id)
			}
			return over
		})
		over := len(s.held) < before
		if over {
			s.version++
		}
		s.mu.Unlock()
		if over {
			s.updateAll(true)
		}
		s.mu.Lock()
		s.scheduleExpiry()
		s.mu.Unlock()
	})
}

// applyTimeout bounds how long a change may take to be seen.
const applyTimeout = 30 * time.Second

// update makes a running sandbox show what is granted now. Where something was taken and it cannot
// even be said what is granted now, or the sandbox does not take it up, it would go on showing what
// it should not: then it is ended. A *sandbox.LiveError is about a path that could not be shown.
func (s *Session) update(r *running, taken bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), applyTimeout)
	defer cancel()
	p, err := s.resolve(r.part)
	var notices []sandbox.Notice
	if err == nil && r.reach != nil {
		r.reach.Set(p.Domains)
	}
	if err == nil && r.live != nil {
		notices, err = r.live.Show(ctx, p)
	}
	if taken && err != nil && err != sandbox.ErrNotLive && !errors.As(err, new(*sandbox.LiveError)) {
		r.end()
		err = fmt.Errorf("the sandbox was ended, because it could not be told what is granted now: %w", err)
	}
	for _, n := range notices {
		if n.Kind == sandbox.NoticeHeld {
			s.notice(n)
		}
	}
	if err != nil && err != sandbox.ErrNotLive {
		s.notice(sandbox.Notice{Kind: sandbox.NoticePathLeftOut, Text: "not changed while the command ran: " + err.Error()})
	}
	return err
}

func (s *Session) applied(a grants.Applied) {
	ctx, cancel := context.WithTimeout(context.Background(), applyTimeout)
	defer cancel()
	_ = onlyRunning(s.options.Broker).Applied(ctx, s.ID(), a)
}

package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
)

// What connections that wait for a person may take of a session.
const (
	// maxHeld connections wait at once. Further ones are refused.
	maxHeld = 32
	// maxDenied destinations are known to have been denied. Beyond that, nothing is asked any more.
	maxDenied = 1000
)

// held are a session's connections that wait for a person, and what that person said no to.
type held struct {
	mu      sync.Mutex
	waiting int
	asked   map[string]*askedHost // by the host: of one, one destination is asked for at a time
	denied  map[profile.Destination]string
}

// An askedHost is a question, and the connections that wait for its answer.
type askedHost struct {
	to     profile.Destination
	waits  int
	cancel context.CancelFunc // when none waits any more
	over   chan struct{}
	why    string
	rule   *profile.DomainRule // what was allowed
}

// domainRules are the domains that are granted now, as a sandbox takes them.
func (s *Session) domainRules() (list []profile.DomainRule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.held)) {
		if g := s.held[id]; g.Domain != "" && !s.endings.Over(g) {
			if rule, err := g.DomainRule(); err == nil {
				list = append(list, rule)
			}
		}
	}
	return list
}

// askNetwork holds a connection until a person has answered, or it ends. It returns why it is not
// allowed, if it is not.
func (s *Session) askNetwork(ctx context.Context, to profile.Destination) (why string) {
	h := &s.connections
	h.mu.Lock()
	if h.waiting >= maxHeld {
		h.mu.Unlock()
		return fmt.Sprintf("%d connections wait for an answer already", maxHeld)
	}
	h.waiting++
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		h.waiting--
		h.mu.Unlock()
	}()
	for {
		q, why := s.joinQuestion(to)
		if q == nil {
			return why
		}
		select {
		case <-q.over:
		case <-ctx.Done():
			h.leave(q)
			return "nobody answered"
		}
		// Another port of the same host is another question, unless it was answered for all.
		if q.to == to || q.rule != nil && q.rule.Allows(to) {
			return q.why
		}
	}
}

// joinQuestion joins the question about the host, or begins one. Nil: why says why nobody is asked.
func (s *Session) joinQuestion(to profile.Destination) (q *askedHost, why string) {
	h := &s.connections
	h.mu.Lock()
	defer h.mu.Unlock()
	if why, found := h.denied[to]; found {
		return nil, why
	}
	if q := h.asked[to.Host()]; q != nil {
		q.waits++
		return q, ""
	}
	if len(h.denied) >= maxDenied {
		return nil, "too much was denied already"
	}
	q = &askedHost{to: to, waits: 1, over: make(chan struct{})}
	var ctx context.Context
	ctx, q.cancel = context.WithCancel(s.ctx)
	if h.asked == nil {
		h.asked, h.denied = map[string]*askedHost{}, map[profile.Destination]string{}
	}
	h.asked[to.Host()] = q
	go func() {
		defer q.cancel()
		answer, err := s.askDomain(ctx, to)
		h.mu.Lock()
		defer h.mu.Unlock()
		q.why = whyNot(answer, err)
		if answer.Outcome == grants.OutcomeDenied {
			h.denied[to] = q.why
		}
		if rule, err := profile.ParseDomainRule(answer.Rule); err == nil && answer.Outcome == grants.OutcomeGranted {
			q.rule = &rule
		}
		delete(h.asked, to.Host())
		close(q.over)
	}()
	return q, ""
}

// leave takes a connection off a question, which is withdrawn with the last.
func (h *held) leave(q *askedHost) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if q.waits--; q.waits == 0 {
		q.cancel()
	}
}

// whyNot says in a few words why a connection was not allowed.
func whyNot(a grants.DomainAnswer, err error) string {
	switch {
	case err != nil:
		return "nobody could be asked: " + text.Line(err.Error())
	case a.Outcome == grants.OutcomeGranted:
		return ""
	case a.Outcome == grants.OutcomeDenied:
		return "a person said no: " + text.Line(cmp.Or(a.Reason, "without a reason"))
	}
	return text.Line(cmp.Or(a.Reason, "nobody answered"))
}

// askDomain asks in the session's name.
func (s *Session) askDomain(ctx context.Context, to profile.Destination) (grants.DomainAnswer, error) {
	asker, ok := s.options.Broker.(grants.DomainAsker)
	if !ok {
		return grants.DomainAnswer{}, &grants.UnavailableError{Why: "this session was started without a broker", Hint: "start it with --broker"}
	}
	s.asked.Store(true)
	ctx = grants.WithRequestID(ctx, rand.Text())
	for attempt := 0; ; attempt++ {
		if err := s.join(s.options.Broker); err != nil { // where the last one has ended, one is started
			return grants.DomainAnswer{}, err
		}
		answer, err := asker.AskDomain(ctx, s.ID(), to.String())
		var unknown *grants.UnknownError
		if attempt == 2 || !errors.As(err, &unknown) {
			return answer, err
		}
		select { // it takes a moment to hear that the session's broker is another
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return answer, ctx.Err()
		}
	}
}

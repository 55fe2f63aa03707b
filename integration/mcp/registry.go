package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	maxSittings = 64
	sittingIdle = 30 * time.Minute // without a request, a client is gone
	// unusedTimeout is how long a client that has called no tool keeps its seat when another wants
	// it.
	unusedTimeout = 10 * time.Second
)

// A registry is where several clients sit, as many as there are seats: from the first request on,
// before they have done anything.
type registry struct {
	ctx         context.Context
	options     Options
	bare        *sdk.Server
	waitTimeout time.Duration

	mu    sync.Mutex
	seats []*seat // in the order of their coming
}

// A seat is one client's.
type seat struct {
	clientSession *clientSession
	server        *sdk.Server
	came          time.Time
	left          chan struct{} // closed when the client has to go
	once          sync.Once
}

func newRegistry(ctx context.Context, o Options) *registry {
	return &registry{ctx: ctx, options: o, waitTimeout: unusedTimeout,
		bare: sdk.NewServer(&sdk.Implementation{Name: "clai-sandbox", Version: o.Version}, nil)}
}

// seatKey is where a request that begins a session has its seat.
type seatKey struct{}

// admit gives a client that begins a seat, or says that there is none.
func (h *registry) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !begins(r) {
			next.ServeHTTP(w, r)
			return
		}
		p, err := h.take()
		if err != nil {
			w.Header().Set("Retry-After", "10")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), seatKey{}, p)))
		if !p.taken() { // it was no beginning after all
			h.free(p)
		}
	})
}

// begins reports whether the protocol's library makes a session for a request.
func begins(r *http.Request) bool {
	return r.Method == http.MethodPost && r.Header.Get("Mcp-Session-Id") == ""
}

// server is the one of a client that begins. The protocol's library asks for one with each request,
// also where it goes by the session that there is: then any will do.
func (h *registry) server(r *http.Request) *sdk.Server {
	if p, ok := r.Context().Value(seatKey{}).(*seat); ok {
		return p.server
	}
	return h.bare
}

// take finds a seat. If there is none, the first client that has done nothing has to go.
func (h *registry) take() (*seat, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return nil, errors.New("the server ends")
	}
	if len(h.seats) >= maxSittings {
		at := slices.IndexFunc(h.seats, func(p *seat) bool { return p.clientSession.unused() && time.Since(p.came) >= h.waitTimeout })
		if at < 0 {
			return nil, fmt.Errorf("%d clients are served already: try again later", maxSittings)
		}
		h.seats[at].leave()
		h.seats = slices.Delete(h.seats, at, at+1)
	}
	s := h.options.clientSession(h.ctx)
	p := &seat{clientSession: s, server: s.server(), came: time.Now(), left: make(chan struct{})}
	h.seats = append(h.seats, p)
	go h.attend(p)
	return p, nil
}

// attend ends a client session when its client is gone, or has to go.
func (h *registry) attend(p *seat) {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for present := true; present; {
		select {
		case <-h.ctx.Done():
			present = false
		case <-p.left:
			present = false
		case <-look.C:
			present = p.taken() || time.Since(p.came) < headerTimeout
		}
	}
	for session := range p.server.Sessions() {
		session.Close()
	}
	p.clientSession.close()
	h.forget(p)
}

// taken reports whether the client has a session.
func (s *seat) taken() bool {
	for range s.server.Sessions() {
		return true
	}
	return false
}

func (s *seat) leave() { s.once.Do(func() { close(s.left) }) }

func (h *registry) free(p *seat) {
	h.forget(p)
	p.leave()
}

func (h *registry) forget(p *seat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := slices.Index(h.seats, p); at >= 0 {
		h.seats = slices.Delete(h.seats, at, at+1)
	}
}

// close ends all client sessions.
func (h *registry) close() {
	h.mu.Lock()
	list := slices.Clone(h.seats)
	h.mu.Unlock()
	for _, p := range list {
		p.clientSession.close()
	}
}

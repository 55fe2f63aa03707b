package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/clairun/clai-sandbox/profile"
)

// A Proxy connects the clients of one sandbox to what its rules allow. The fields are set before
// Serve.
type Proxy struct {
	Rules profile.Domains // later, SetRules changes them
	// Upstream is a proxy through which it connects. What the rules say holds before that is asked
	// for anything.
	Upstream profile.Upstream
	// Ask has somebody asked about a destination that no rule names. It returns when that was
	// answered; then the rules, which the answer may have changed, are looked at again. Why says in
	// a few words what came of it, for a refusal. It may take as long as a person does; the context
	// ends when the client has gone, the proxy is closed, or AskTimeout has passed. What is denied,
	// or is not on the public network, is never asked for. Nil asks nobody.
	Ask func(context.Context, profile.Destination) (why string)
	// Judged hears of each connection whether it is let through, by which rule, and if not why. It
	// must not block. Nil hears nothing.
	Judged func(to string, allowed bool, rule, why string)
	// Resolve returns the addresses of a name. Nil asks the host's name servers and hosts file.
	Resolve func(context.Context, string) ([]netip.Addr, error)
	// Own returns the addresses of this machine, which a name must not lead to. Nil asks the
	// kernel.
	Own func() ([]netip.Addr, error)

	waitTimeout waitTimeout // shorter in tests
	pool        *pool       // nil: the process's
	refusals    refusals

	mu      sync.Mutex
	closed  bool
	clients []*client // in the order of their coming
	serving int       // of those, for how many there was room
	serves  sync.WaitGroup
	ctx     context.Context // ends with Close, and everything with it
	cancel  context.CancelFunc
}

// What one sandbox may take of its launcher. At the limit of connections, further ones wait in the
// kernel's queue, and who has hung up makes room for them.
const (
	maxConnections = 256
	resolveTimeout = 10 * time.Second
	dialTimeout    = 20 * time.Second
	AskTimeout     = 10 * time.Minute
)

// waitTimeout is how long a client may keep a connection with nothing.
type waitTimeout struct {
	head time.Duration // to say what is wanted, and to send a TLS hello that was begun
	idle time.Duration // without a byte in either direction
}

var usualTimeout = waitTimeout{head: 30 * time.Second, idle: 15 * time.Minute}

// Serve serves the listener until Close, and closes it. It is called once.
func (p *Proxy) Serve(listener net.Listener) error {
	defer listener.Close()
	if !p.begin(listener) {
		return net.ErrClosed
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			var temporary interface{ Temporary() bool }
			if errors.As(err, &temporary) && temporary.Temporary() && !errors.Is(err, net.ErrClosed) {
				time.Sleep(50 * time.Millisecond) // out of descriptors: some will come back
				continue
			}
			return err
		}
		c := p.welcome(conn.(*net.TCPConn))
		if c == nil {
			return net.ErrClosed
		}
		if !p.makeRoom(c) {
			p.dismiss(c)
			continue
		}
		go func() {
			defer p.dismiss(c)
			defer p.leaveRoom()
			p.serve(c)
		}()
	}
}

// begin notes the listener, for Close to end it. It reports false after Close.
func (p *Proxy) begin(listener net.Listener) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if p.waitTimeout == (waitTimeout{}) {
		p.waitTimeout = usualTimeout
	}
	if p.pool == nil {
		p.pool = shared()
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	context.AfterFunc(p.ctx, func() { listener.Close() })
	return true
}

// Close ends all connections, on both sides, and waits until nothing of the proxy runs any more.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	if p.cancel != nil {
		p.cancel()
	}
	p.mu.Unlock()
	p.serves.Wait()
}

// serve finds out which protocol the client speaks. A SOCKS5 greeting begins with the number 5, and
// no HTTP request does.
func (p *Proxy) serve(c *client) {
	c.SetDeadline(time.Now().Add(p.waitTimeout.head))
	first, err := c.in.Peek(1)
	switch {
	case err != nil:
	case first[0] == socksVersion:
		p.serveSocks(c)
	default:
		p.serveHTTP(c)
	}
}

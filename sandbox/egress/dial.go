package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/clairun/clai-sandbox/profile"
)

// An UnreachableError is a destination that is allowed, and could not be reached.
type UnreachableError struct {
	To       string
	Resolved bool // it has addresses, and none of them answered
	Err      error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("%s cannot be reached: %v", e.To, e.Err)
}
func (e *UnreachableError) Unwrap() error { return e.Err }

// maxAddresses of one name are tried.
const maxAddresses = 16

// connect judges a destination and connects to it, for as long as there is the client. The error is a *RefusedError or an *UnreachableError.
func (p *Proxy) connect(c *client, to profile.Destination) (*net.TCPConn, error) {
	if err := p.admit(c, to); err != nil {
		return nil, err
	}
	if via := p.Upstream.For(to, false); via != nil {
		return p.through(c, via, to, true)
	}
	return p.directly(c, to)
}

// directly connects to a destination that is admitted.
func (p *Proxy) directly(c *client, to profile.Destination) (*net.TCPConn, error) {
	addresses, err := p.resolve(c.ctx, to)
	if err != nil {
		return nil, p.mayNeedUpstream(err)
	}
	ctx, cancel := context.WithTimeout(c.ctx, dialTimeout)
	defer cancel()
	unreachable := &UnreachableError{To: to.String(), Resolved: true}
	for i, address := range addresses {
		// To this very address: a name is never looked up twice.
		dialer := net.Dialer{Timeout: dialTimeout / time.Duration(len(addresses)-i)}
		conn, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(address, to.Port).String())
		if err == nil {
			context.AfterFunc(c.ctx, func() { conn.Close() })
			return conn.(*net.TCPConn), nil
		}
		unreachable.Err = inWords(err)
	}
	return nil, p.mayNeedUpstream(unreachable)
}

// admit decides by the rules, or by the answer of a person, whether to is connected to at all.
func (p *Proxy) admit(c *client, to profile.Destination) error {
	j := p.Rules.Judge(to)
	if j.Verdict == profile.DomainAllowed {
		return nil
	}
	if j.Verdict == profile.DomainUnlisted && p.Ask != nil && (p.answered.has(to) || p.ask(c, to)) {
		return nil
	}
	return p.refuse(refused(to, netip.Addr{}, j))
}

// refuse notes a refusal and returns it.
func (p *Proxy) refuse(e *RefusedError) error {
	p.refusals.add(e)
	return e
}

// ask holds the client until there is an answer. If the client goes away meanwhile, nobody needs one.
func (p *Proxy) ask(c *client, to profile.Destination) bool {
	ctx, cancel := context.WithTimeout(c.ctx, AskTimeout)
	defer cancel()
	c.SetDeadline(time.Time{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if _, err := c.in.Peek(1); err != nil {
			cancel()
		}
	}()
	answer := p.Ask(ctx, to)
	gone := ctx.Err() != nil
	c.SetReadDeadline(time.Now()) // the watch ends, and the buffer is ours again
	<-watched
	c.SetReadDeadline(time.Now().Add(p.patience.head))
	if answer == AllowSession && !gone {
		p.answered.add(to)
	}
	return !gone && (answer == AllowOnce || answer == AllowSession)
}

// answers are the destinations that were allowed for as long as the proxy lives.
type answers struct {
	mu   sync.Mutex
	list map[profile.Destination]struct{}
}

func (a *answers) has(to profile.Destination) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, found := a.list[to]
	return found
}

func (a *answers) add(to profile.Destination) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.list == nil {
		a.list = map[profile.Destination]struct{}{}
	}
	if len(a.list) < profile.MaxDomains {
		a.list[to] = struct{}{}
	}
}

// resolve returns the addresses that may be connected to, of a destination that is allowed.
func (p *Proxy) resolve(ctx context.Context, to profile.Destination) ([]netip.Addr, error) {
	addresses := []netip.Addr{to.Address}
	switch to.Name {
	case "":
	case "localhost":
		// Never a name server's to say (RFC 6761).
		addresses = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	default:
		ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
		defer cancel()
		var err error
		if addresses, err = p.lookup(ctx, to.Name); err != nil || len(addresses) == 0 {
			return nil, &UnreachableError{To: to.String(), Err: noAddress(err)}
		}
	}
	own, err := p.own()
	if err != nil {
		return nil, &UnreachableError{To: to.String(), Err: errors.New("the addresses of this machine cannot be told from others")}
	}
	var allowed []netip.Addr
	var refusal *RefusedError
	for _, address := range addresses[:min(len(addresses), maxAddresses)] {
		address = address.Unmap()
		j := p.Rules.JudgeResolved(to, address, own)
		if j.Verdict == profile.DomainAllowed {
			allowed = append(allowed, address)
		} else {
			refusal = refused(to, address, j)
		}
	}
	if allowed == nil {
		return nil, p.refuse(refusal)
	}
	return allowed, nil
}

func (p *Proxy) own() ([]netip.Addr, error) {
	if p.Own != nil {
		return p.Own()
	}
	interfaces, err := net.InterfaceAddrs()
	var list []netip.Addr
	for _, i := range interfaces {
		if prefix, err := netip.ParsePrefix(i.String()); err == nil {
			list = append(list, prefix.Addr().WithZone("").Unmap())
		}
	}
	return list, err
}

func (p *Proxy) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	if p.Resolve != nil {
		return p.Resolve(ctx, name)
	}
	// With the dot, it is the whole name: no search list makes another one of it.
	return (&net.Resolver{PreferGo: true}).LookupNetIP(ctx, "ip", name+".")
}

// inWords is why a connection failed, without the addresses on its way.
func inWords(err error) error {
	var errno syscall.Errno
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &errno):
		return errno
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("no answer in time")
	}
	return errors.New("the connection failed")
}

// noAddress says in a few words why a name has no address. The resolver's own words name the servers that it asked.
func noAddress(err error) error {
	var dns *net.DNSError
	switch {
	case err == nil, errors.As(err, &dns) && dns.IsNotFound:
		return errors.New("there is no such name")
	case errors.As(err, &dns) && dns.IsTimeout, errors.Is(err, context.DeadlineExceeded):
		return errors.New("no name server answered in time")
	}
	return errors.New("the name could not be resolved")
}

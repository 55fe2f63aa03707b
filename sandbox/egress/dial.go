package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
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

// connect judges a destination and connects to it, for as long as there is the client. The error is
// a *RefusedError or an *UnreachableError.
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

// admit decides by the rules whether to is connected to at all. Somebody may be asked, once, who
// can change the rules.
func (p *Proxy) admit(c *client, to profile.Destination) error {
	j := p.judge(c, to)
	if j.Verdict != profile.DomainUnlisted || p.Ask == nil || !to.Public() {
		return p.unlessAllowed(to, j, "")
	}
	if to.Name == "" { // what is an address of this machine's is not the public network's, either
		own, err := p.own()
		if err != nil {
			return &UnreachableError{To: to.String(), Err: errOwn}
		}
		if resolved := p.rules().JudgeResolved(to, to.Address, own); resolved.Verdict != profile.DomainAllowed {
			return p.unlessAllowed(to, resolved, "")
		}
	}
	why := p.ask(c, to)
	return p.unlessAllowed(to, p.judge(c, to), why)
}

// judge judges by the rules of now. A client that is let through is known by where it goes from
// then on.
func (p *Proxy) judge(c *client, to profile.Destination) profile.Judgement {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := p.Rules.Judge(to)
	if j.Verdict == profile.DomainAllowed {
		c.to = to
	}
	return j
}

func (p *Proxy) unlessAllowed(to profile.Destination, j profile.Judgement, asked string) error {
	if j.Verdict == profile.DomainAllowed {
		if p.Judged != nil {
			rule := ""
			if j.Rule != nil {
				rule = j.Rule.String()
			}
			p.Judged(to.String(), true, rule, "")
		}
		return nil
	}
	e := refused(to, netip.Addr{}, j)
	if asked != "" && j.Verdict == profile.DomainUnlisted {
		e.Why, e.Hint = e.Why+", and "+asked, "do not go round it: say what it is needed for, and leave it to the person"
	}
	return p.refuse(e)
}

// rules are those of now. What is in them does not change.
func (p *Proxy) rules() *profile.Domains {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.Rules
	return &now
}

// SetRules changes what may be connected to. It ends the connections that were let through and
// would not be now, and no others.
func (p *Proxy) SetRules(rules profile.Domains) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Rules = rules
	for _, c := range p.clients {
		if c.to.Port != 0 && p.Rules.Judge(c.to).Verdict != profile.DomainAllowed {
			c.end()
		}
	}
}

// refuse notes a refusal and returns it.
func (p *Proxy) refuse(e *RefusedError) error {
	p.refusals.add(e)
	if p.Judged != nil {
		p.Judged(e.To, false, e.Rule, e.Why)
	}
	return e
}

// ask holds the client until there is an answer, and returns what came of it. If the client goes
// away meanwhile, nobody needs one.
func (p *Proxy) ask(c *client, to profile.Destination) (why string) {
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
	why = p.Ask(ctx, to)
	if ctx.Err() != nil {
		why = "nobody answered while it was waited for"
	}
	c.SetReadDeadline(time.Now()) // the watch ends, and the buffer is ours again
	<-watched
	c.SetReadDeadline(time.Now().Add(p.waitTimeout.head))
	return cmp.Or(why, "that did not change")
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
		return nil, &UnreachableError{To: to.String(), Err: errOwn}
	}
	var allowed []netip.Addr
	var refusal *RefusedError
	rules := p.rules()
	for _, address := range addresses[:min(len(addresses), maxAddresses)] {
		address = address.Unmap()
		j := rules.JudgeResolved(to, address, own)
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

// errOwn refuses what cannot be held against this machine's own addresses.
var errOwn = errors.New("the addresses of this machine cannot be told from others")

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

// noAddress says in a few words why a name has no address. The resolver's own words name the
// servers that it asked.
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

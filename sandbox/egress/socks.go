package egress

import (
	"bufio"
	"errors"
	"io"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/clairun/clai-sandbox/profile"
)

// SOCKS5 as RFC 1928 has it, without authentication, and of its commands CONNECT alone: BIND and
// UDP ASSOCIATE would let in what nobody judged.
const (
	socksVersion      = 5
	socksNoAuth       = 0
	socksNoneAccepted = 0xff
	socksConnect      = 1
	socksIPv4         = 1
	socksName         = 3
	socksIPv6         = 4
)

// A socksReply is how a request ended.
type socksReply byte

const (
	socksGranted socksReply = iota
	socksFailed
	socksNotAllowed
	socksNoNetwork
	socksNoHost
	socksConnectionRefused
	socksExpired
	socksNoCommand
	socksNoAddressType
)

// serveSocks serves one SOCKS5 connection.
func (p *Proxy) serveSocks(c *client) {
	method, err := readGreeting(c.in)
	if err != nil {
		return
	}
	if _, err := c.Write([]byte{socksVersion, method}); err != nil || method != socksNoAuth {
		c.finish()
		return
	}
	to, reply, err := readSocksRequest(c.in)
	if err != nil {
		p.refuseSocks(c, reply, err)
		return
	}
	server, err := p.connect(c, to)
	if err != nil {
		p.refuseSocks(c, socksReplyTo(err), err)
		return
	}
	defer server.Close()
	c.SetDeadline(time.Time{})
	if c.reply(socksGranted) == nil {
		p.tunnel(c, server, to)
	}
}

// refuseSocks answers with a number, which is all that the protocol has.
func (p *Proxy) refuseSocks(c *client, reply socksReply, err error) {
	var domain *profile.DomainError
	if errors.As(err, &domain) {
		p.refusals.add(&RefusedError{To: quoted(domain.Text), Why: domain.Why, Hint: domain.Hint})
	}
	if reply != socksGranted {
		c.SetWriteDeadline(time.Now().Add(p.waitTimeout.head))
		c.reply(reply)
		c.finish()
	}
}

// reply writes a reply. Its address is that of no socket: which one leads out is nobody's business
// inside.
func (c *client) reply(code socksReply) error {
	_, err := c.Write([]byte{socksVersion, byte(code), 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	return err
}

// readGreeting reads the methods of authentication that a client offers, and chooses.
func readGreeting(in *bufio.Reader) (method byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return 0, err
	}
	methods := make([]byte, head[1])
	if _, err := io.ReadFull(in, methods); err != nil {
		return 0, err
	}
	if head[0] != socksVersion || !slices.Contains(methods, socksNoAuth) {
		return socksNoneAccepted, nil
	}
	return socksNoAuth, nil
}

var errSocks = errors.New("not a SOCKS5 request that is served here")

// readSocksRequest reads what a client asks for. With an error there is the reply to give, which is
// socksGranted where nobody is left to give one to.
func readSocksRequest(in *bufio.Reader) (profile.Destination, socksReply, error) {
	var none profile.Destination
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return none, socksGranted, err
	}
	length := 0
	switch head[3] {
	case socksIPv4:
		length = 4
	case socksIPv6:
		length = 16
	case socksName:
		n, err := in.ReadByte()
		if err != nil {
			return none, socksGranted, err
		}
		length = int(n)
	}
	rest := make([]byte, length+2)
	switch {
	case head[0] != socksVersion || head[2] != 0:
		return none, socksFailed, errSocks
	case head[1] != socksConnect:
		return none, socksNoCommand, errSocks
	case length == 0 && head[3] != socksName:
		return none, socksNoAddressType, errSocks
	}
	if _, err := io.ReadFull(in, rest); err != nil {
		return none, socksGranted, err
	}
	host, port := rest[:length], uint16(rest[length])<<8|uint16(rest[length+1])
	text := string(host)
	if head[3] != socksName {
		address, _ := netip.AddrFromSlice(host)
		text = address.String()
	}
	if port == 0 {
		return none, socksFailed, errSocks
	}
	to, err := profile.NewDestination(text, port)
	if err != nil {
		return none, socksNotAllowed, err
	}
	return to, socksGranted, nil
}

// socksReplyTo is the number for an error of connect.
func socksReplyTo(err error) socksReply {
	var unreachable *UnreachableError
	switch {
	case !errors.As(err, &unreachable):
		return socksNotAllowed
	case errors.Is(err, syscall.ECONNREFUSED):
		return socksConnectionRefused
	case errors.Is(err, syscall.ENETUNREACH):
		return socksNoNetwork
	case !unreachable.Resolved, errors.Is(err, syscall.EHOSTUNREACH):
		return socksNoHost
	}
	return socksExpired
}

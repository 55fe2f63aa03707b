package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/clairun/clai-sandbox/profile"
)

// errCredentials is a proxy upstream that does not take what it was told of who asks.
var errCredentials = errors.New("it wants other credentials (407)")

func upstreamError(via *profile.UpstreamProxy, err error) error {
	return fmt.Errorf("the upstream proxy %s: %w", via, err)
}

// through connects to a proxy upstream, and with tunnel has that connect to a destination that is
// admitted. An address is judged here, as it would be without; where a name leads, only that proxy
// knows.
func (p *Proxy) through(c *client, via *profile.UpstreamProxy, to profile.Destination, tunnel bool) (*net.TCPConn, error) {
	if to.Name == "" {
		if _, err := p.resolve(c.ctx, to); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(c.ctx, dialTimeout)
	defer cancel()
	conn, err := p.dialUpstream(ctx, via)
	if err == nil {
		context.AfterFunc(c.ctx, func() { conn.Close() })
		if !tunnel {
			return conn, nil
		}
		conn.SetDeadline(time.Now().Add(dialTimeout))
		if err = openTunnel(conn, via, to); err == nil {
			conn.SetDeadline(time.Time{})
			return conn, nil
		}
		conn.Close()
	}
	return nil, &UnreachableError{To: to.String(), Resolved: true, Err: upstreamError(via, err)}
}

// dialUpstream connects to the proxy itself, which a person named: it may be on any network.
func (p *Proxy) dialUpstream(ctx context.Context, via *profile.UpstreamProxy) (*net.TCPConn, error) {
	host := via.Host
	if _, err := netip.ParseAddr(host); err != nil && p.Resolve != nil {
		addresses, err := p.Resolve(ctx, host)
		if err != nil || len(addresses) == 0 {
			return nil, noAddress(err)
		}
		host = addresses[0].String()
	}
	dialer := net.Dialer{Resolver: &net.Resolver{PreferGo: true}}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(via.Port))))
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return nil, noAddress(err)
	case err != nil:
		return nil, inWords(err)
	}
	return conn.(*net.TCPConn), nil
}

// openTunnel asks a proxy for a connection to a destination. What comes behind the proxy's answer
// is the server's, and is not read.
func openTunnel(conn net.Conn, via *profile.UpstreamProxy, to profile.Destination) error {
	authority := net.JoinHostPort(to.Host(), strconv.Itoa(int(to.Port)))
	fields := []field{{"Host", authority}}
	if via.Authorization != "" {
		fields = append(fields, field{"Proxy-Authorization", via.Authorization})
	}
	if _, err := conn.Write(writeHead("CONNECT "+authority+" HTTP/1.1", fields)); err != nil {
		return inWords(err)
	}
	for range maxInterim {
		h, err := readHead(bufio.NewReaderSize(byByte{conn}, maxLine))
		if err != nil {
			return errors.New("it gave no answer that is HTTP/1")
		}
		version, rest, _ := strings.Cut(h.line, " ")
		code, _, _ := strings.Cut(rest, " ")
		switch {
		case version != "HTTP/1.1" && version != "HTTP/1.0" || len(code) != 3 || strings.Trim(code, "0123456789") != "":
			return errors.New("it gave no answer that is HTTP/1")
		case code[0] == '1' && code != "101":
		case code[0] == '2':
			return nil
		case code == "407":
			return errCredentials
		default:
			return errors.New("it answers " + code)
		}
	}
	return errors.New("it gave no answer that counts")
}

// byByte reads no further than it is asked to: a buffer before it holds nothing that was not
// wanted.
type byByte struct{ io.Reader }

func (b byByte) Read(p []byte) (int, error) { return b.Reader.Read(p[:min(len(p), 1)]) }

// mayNeedUpstream adds to a destination that cannot be reached that the person's own programs would
// ask a proxy.
func (p *Proxy) mayNeedUpstream(err error) error {
	if unreachable := new(UnreachableError); p.Upstream.Unused && errors.As(err, &unreachable) {
		unreachable.Err = fmt.Errorf("%w; your environment names a proxy: --upstream-proxy environment", unreachable.Err)
	}
	return err
}

// secret is what a proxy upstream is told of who asks, without its kind; empty: nothing, or too
// little to be told from other text.
func (r *request) secret() string {
	if r.via == nil {
		return ""
	}
	_, secret, _ := strings.Cut(r.via.Authorization, " ")
	return strings.TrimRight(secret, "=") // which some write in another way
}

// minSecret is from how many bytes on a secret is looked for in what is passed on.
const minSecret = 8

// A discreet writer ends with an error before a secret would be written whole. What may be the
// beginning of one waits for what follows.
type discreet struct {
	io.Writer
	secret []byte
	kept   []byte
}

var errSecret = errors.New("it answers with its own password")

func (d *discreet) Write(b []byte) (int, error) {
	if len(d.secret) < minSecret {
		return d.Writer.Write(b)
	}
	all := append(d.kept, b...)
	if bytes.Contains(all, d.secret) {
		return 0, errSecret
	}
	n := min(len(d.secret)-1, len(all))
	for !bytes.HasSuffix(all, d.secret[:n]) {
		n--
	}
	_, err := d.Writer.Write(all[:len(all)-n])
	d.kept = bytes.Clone(all[len(all)-n:])
	return len(b), err
}

// end writes what was no beginning.
func (d *discreet) end() error {
	_, err := d.Writer.Write(d.kept)
	return err
}

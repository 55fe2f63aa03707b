package egress

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/clairun/clai-sandbox/profile"
)

// tunnel carries bytes both ways until both ends have said all, or one is gone.
func (p *Proxy) tunnel(c *client, server *net.TCPConn, to profile.Destination) {
	touch, stop := p.whileBusy(c)
	defer stop()
	heard := newServerTalk()
	inward := make(chan struct{})
	go func() {
		defer close(inward)
		defer heard.settle(false)
		if _, err := io.Copy(lively{c.TCPConn, touch}, io.TeeReader(server, heard)); err != nil || c.CloseWrite() != nil {
			c.end()
		}
	}()
	outward := lively{server, touch}
	isTLS, err := p.passHello(c, outward, to)
	if err == nil && isTLS {
		err = p.passHandshake(c, outward, to, heard)
	}
	if err == nil {
		_, err = io.Copy(outward, c.in)
	}
	var refusal *RefusedError
	if errors.As(err, &refusal) {
		p.refusals.add(refusal)
		c.SetWriteDeadline(time.Now().Add(p.waitTimeout.head))
		c.Write(unrecognizedName)
	}
	if err != nil || server.CloseWrite() != nil {
		c.end()
	}
	<-inward
}

// unrecognizedName is a TLS alert: fatal, unrecognized_name (RFC 6066). The client says so, instead
// of a connection that was lost.
var unrecognizedName = []byte{recordAlert, 3, 1, 0, 2, 2, 112}

// passHello looks at what the client says first, before any of it is sent on. If that is TLS, the
// server name in it must be the one that the connection was asked for: a front that serves many
// names goes by it. A connection to a name without a server name in its hello is refused, because
// the front would then go by something that nobody can see here.
//
// A client that waits for the server to speak first is waited for: nothing of TLS begins so.
func (p *Proxy) passHello(c *client, server io.Writer, to profile.Destination) (isTLS bool, err error) {
	defer c.SetReadDeadline(time.Time{})
	for begun := false; ; {
		seen, _ := c.in.Peek(c.in.Buffered())
		name, size, state := readHello(seen)
		switch {
		case state == helloAbsent:
			return false, nil
		case state == helloComplete:
			if err := p.checkServerName(to, name); err != nil {
				return true, err
			}
			_, err := io.CopyN(server, c.in, int64(size))
			return true, err
		case state == helloMalformed || len(seen) == c.in.Size():
			return true, mistaken(to, "a TLS handshake that is malformed or too large")
		}
		if len(seen) > 0 && !begun {
			begun = true
			c.SetReadDeadline(time.Now().Add(p.waitTimeout.head)) // what was begun is said in full
		}
		if _, err := c.in.Peek(len(seen) + 1); err == io.EOF && (len(seen) == 0 || seen[0] != recordHandshake) {
			return false, nil // it says no more, and may yet be told something
		} else if err == io.EOF {
			return true, mistaken(to, "a TLS handshake that is not said in full")
		} else if err != nil {
			return true, err
		}
	}
}

// passHandshake passes on what follows the first hello, up to where it is encrypted. Until then
// there may be a second hello, which a server goes by as by the first: after a HelloRetryRequest
// (RFC 8446, 4.1.4), and for some old servers in the middle of the handshake. What is a handshake
// message in the clear and what is encrypted shows only in what the server has answered, so such a
// record waits for that; early data does not.
func (p *Proxy) passHandshake(c *client, server io.Writer, to profile.Destination, heard *serverTalk) error {
	var plain messages
	ciphered, retried := false, false
	for {
		header, err := c.in.Peek(5)
		if err == io.EOF {
			return nil // what is no record goes on as it is
		} else if err != nil {
			return err
		}
		kind, length := header[0], int64(binary.BigEndian.Uint16(header[3:]))
		if kind < recordChange || kind > recordHeartbeat || length > maxRecord {
			return mistaken(to, "a TLS handshake that is malformed")
		}
		switch kind {
		case recordHandshake:
			retry := heard.wait(c.ctx)
			switch {
			case retry && !retried:
				if isTLS, err := p.passHello(c, server, to); err != nil {
					return err
				} else if !isTLS {
					return nil
				}
				retried = true
				continue
			case ciphered:
				return nil
			}
			if err := plain.pass(c.in, server, length); err != nil {
				return orMistaken(err, to)
			}
			continue
		case recordChange:
			ciphered = true
		case recordData:
			if retry, known := heard.answered(); known && (!retry || retried) {
				return nil
			}
		}
		if _, err := io.CopyN(server, c.in, 5+length); err != nil {
			return orMistaken(err, to)
		}
	}
}

// checkServerName holds the name in a TLS hello against the destination, byte by byte: a server may
// read another spelling otherwise, and go on with the name that it serves to all. In a connection
// to an address that was named as such, any name may stand but one that is denied.
func (p *Proxy) checkServerName(to profile.Destination, said string) error {
	if to.Name == "" {
		return p.checkOtherName(to, said)
	}
	switch said {
	case to.Name:
		return nil
	case "":
		return mistaken(to, "the TLS handshake has no server name (SNI), which must be the name that the connection was asked for")
	}
	return mistaken(to, "the TLS handshake asks for "+quoted(said)+", and must ask for the name that the connection was asked for, as "+to.Name)
}

// checkOtherName judges a name in a connection to an address. It must be spelled as the rules are,
// or one that denies it could be passed by; only upper case counts as lower, as for all servers.
func (p *Proxy) checkOtherName(to profile.Destination, said string) error {
	if said == "" {
		return nil
	}
	lower := strings.ToLower(said)
	in, err := profile.NewDestination(lower, to.Port)
	if err != nil || in.Name != lower {
		return mistaken(to, "the TLS handshake asks for "+quoted(said)+", which is no name as it is written there")
	}
	if j := p.rules().Judge(in); j.Verdict == profile.DomainDenied {
		return mistaken(to, "the TLS handshake asks for "+quoted(said)+", which the rule "+j.Rule.String()+" denies")
	}
	return nil
}

func mistaken(to profile.Destination, why string) *RefusedError {
	return &RefusedError{To: to.String(), Why: why, Hint: "ask for the name that the connection is for"}
}

// orMistaken is an error of passing on, or the refusal of what was to be passed on.
func orMistaken(err error, to profile.Destination) error {
	if errors.Is(err, errSecondHello) {
		return mistaken(to, err.Error())
	}
	return err
}

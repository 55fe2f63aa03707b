package egress

import (
	"errors"
	"io"
	"net"
	"time"

	"github.com/clairun/clai-sandbox/profile"
)

// tunnel carries bytes both ways until both ends have said all, or one is gone.
func (p *Proxy) tunnel(c *client, server *net.TCPConn, to profile.Destination) {
	touch, stop := p.whileBusy(c, server)
	defer stop()
	closeBoth := func() {
		c.Close()
		server.Close()
	}
	inward := make(chan struct{})
	go func() {
		defer close(inward)
		if _, err := io.Copy(lively{c.TCPConn, touch}, server); err != nil || c.CloseWrite() != nil {
			closeBoth()
		}
	}()
	err := p.checkHello(c, to)
	if err == nil {
		_, err = io.Copy(lively{server, touch}, c.in)
	}
	var refusal *RefusedError
	if errors.As(err, &refusal) {
		p.refusals.add(refusal)
		c.SetWriteDeadline(time.Now().Add(p.patience.head))
		c.Write(unrecognizedName)
	}
	if err != nil || server.CloseWrite() != nil {
		closeBoth()
	}
	<-inward
}

// unrecognizedName is a TLS alert: fatal, unrecognized_name (RFC 6066). The client says so, instead of a connection that
// was lost.
var unrecognizedName = []byte{recordAlert, 3, 1, 0, 2, 2, 112}

// checkHello looks at what the client says first, before any of it is sent on. If that is TLS, the server name in it must
// be the one that the connection was asked for: a front that serves many names goes by it. A connection to a name without
// a server name in its hello is refused, because the front would then go by something that nobody can see here.
//
// A client that waits for the server to speak first is waited for: nothing of TLS begins so.
func (p *Proxy) checkHello(c *client, to profile.Destination) error {
	defer c.SetReadDeadline(time.Time{})
	for begun := false; ; {
		seen, _ := c.in.Peek(c.in.Buffered())
		name, state := readHello(seen)
		switch {
		case state == helloAbsent:
			return nil
		case state == helloComplete:
			return p.checkServerName(to, name)
		case state == helloMalformed || len(seen) == c.in.Size():
			return mistaken(to, "a TLS handshake that is malformed or too large")
		}
		if len(seen) > 0 && !begun {
			begun = true
			c.SetReadDeadline(time.Now().Add(p.patience.head)) // what was begun is said in full
		}
		if _, err := c.in.Peek(len(seen) + 1); err == io.EOF {
			return nil // it says no more, and may yet be told something
		} else if err != nil {
			return err
		}
	}
}

// checkServerName holds the name in a TLS hello against the destination. In a connection to an address that was named as
// such, any name may stand but one that is denied.
func (p *Proxy) checkServerName(to profile.Destination, said string) error {
	name := ""
	if said != "" {
		in, err := profile.NewDestination(said, to.Port)
		if err != nil || in.Name == "" {
			return mistaken(to, "the TLS handshake asks for "+quoted(said)+", which is no name")
		}
		name = in.Name
	}
	switch {
	case to.Name == "" && name == "":
		return nil
	case to.Name == "":
		if j := p.Rules.Judge(profile.Destination{Name: name, Port: to.Port}); j.Verdict == profile.DomainDenied {
			return mistaken(to, "the TLS handshake asks for "+quoted(said)+", which the rule "+j.Rule.String()+" denies")
		}
		return nil
	case name == "":
		return mistaken(to, "the TLS handshake has no server name (SNI), which must be the name that the connection was asked for")
	case name != to.Name:
		return mistaken(to, "the TLS handshake asks for "+quoted(said)+", and must ask for the name that the connection was asked for")
	}
	return nil
}

func mistaken(to profile.Destination, why string) *RefusedError {
	return &RefusedError{To: to.String(), Why: why}
}

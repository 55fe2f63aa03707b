package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/profile"
)

// A world is a proxy with clients that come from nowhere else, and servers on the loopback
// interface that only rules of their own let it reach. Names lead where the test says.
type world struct {
	t        *testing.T
	proxy    *Proxy
	address  string
	names    map[string]string // addresses, with spaces between them
	resolved atomic.Int32
}

// newWorld starts a proxy. allowed and denied are rules with spaces between them.
func newWorld(t *testing.T, allowed, denied string) *world {
	t.Helper()
	return newPatientWorld(t, allowed, denied, usualTimeout)
}

func newPatientWorld(t *testing.T, allowed, denied string, waitTimeout waitTimeout) *world {
	t.Helper()
	w := &world{t: t, proxy: &Proxy{Rules: rules(t, allowed, denied), waitTimeout: waitTimeout}, names: map[string]string{}}
	w.proxy.Resolve = func(_ context.Context, name string) ([]netip.Addr, error) {
		w.resolved.Add(1)
		var list []netip.Addr
		for text := range strings.FieldsSeq(w.names[name]) {
			list = append(list, netip.MustParseAddr(text))
		}
		if list == nil {
			return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
		}
		return list, nil
	}
	w.serve()
	return w
}

// serve starts the proxy.
func (w *world) serve() {
	w.t.Helper()
	listener := listen(w.t)
	w.address = listener.Addr().String()
	ended := make(chan error, 1)
	go func() { ended <- w.proxy.Serve(listener) }()
	w.t.Cleanup(func() {
		w.proxy.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			w.t.Errorf("Serve: %v", err)
		}
	})
}

func rules(t testing.TB, allowed, denied string) profile.Domains {
	t.Helper()
	var d profile.Domains
	for _, list := range []struct {
		text string
		into *[]profile.DomainRule
	}{{allowed, &d.Allowed}, {denied, &d.Denied}} {
		for word := range strings.FieldsSeq(list.text) {
			r, err := profile.ParseDomainRule(word)
			if err != nil {
				t.Fatal(err)
			}
			*list.into = append(*list.into, r)
		}
	}
	return d
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

func portOf(listener net.Listener) uint16 { return uint16(listener.Addr().(*net.TCPAddr).Port) }

// server runs serve for each connection to a listener of its own, and returns its port. It listens
// there at other addresses, too.
func server(t testing.TB, serve func(net.Conn), others ...string) uint16 {
	t.Helper()
	first := listen(t)
	listeners := []net.Listener{first}
	for _, other := range others {
		listener, err := net.Listen("tcp", net.JoinHostPort(other, fmt.Sprint(portOf(first))))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		listeners = append(listeners, listener)
	}
	for _, listener := range listeners {
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				conn.SetDeadline(time.Now().Add(20 * time.Second))
				go func() {
					defer conn.Close()
					serve(conn)
				}()
			}
		}()
	}
	return portOf(first)
}

// echo sends back what it gets.
func echo(conn net.Conn) {
	io.Copy(conn, conn)
	conn.(*net.TCPConn).CloseWrite()
}

// dial connects to the proxy.
func (w *world) dial() *net.TCPConn {
	w.t.Helper()
	conn, err := net.Dial("tcp", w.address)
	if err != nil {
		w.t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	w.t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

// says sends text and returns all that comes back.
func (w *world) says(text string) string {
	w.t.Helper()
	conn := w.dial()
	if _, err := io.WriteString(conn, text); err != nil {
		w.t.Fatal(err)
	}
	conn.CloseWrite()
	answer, _ := io.ReadAll(conn)
	return string(answer)
}

// tunnel opens one with CONNECT, and fails the test if there is none.
func (w *world) tunnel(to string) (*net.TCPConn, *bufio.Reader) {
	w.t.Helper()
	conn := w.dial()
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to)
	in := bufio.NewReader(conn)
	h, err := readHead(in)
	if err != nil || h.line != "HTTP/1.1 200 Connection established" {
		w.t.Fatalf("CONNECT %s: %q %v", to, h.line, err)
	}
	return conn, in
}

// refusedOnce checks that the list of what was refused has exactly this destination in it.
func (w *world) refusedOnce(to string) {
	w.t.Helper()
	list, more := w.proxy.Refusals()
	if len(list) != 1 || more != 0 || list[0].To != to {
		w.t.Errorf("refused: %v and %d more, want %s", list, more, to)
	}
}

func TestManyClientsAreServedAndFurtherOnesWait(t *testing.T) {
	port := server(t, echo)
	w := newWorld(t, fmt.Sprintf("127.0.0.1:%d", port), "")
	var held []*net.TCPConn
	for range maxConnections {
		conn, _ := w.tunnel(fmt.Sprintf("127.0.0.1:%d", port))
		held = append(held, conn)
	}
	late := w.dial()
	fmt.Fprintf(late, "CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n", port)
	late.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if n, err := late.Read(make([]byte, 1)); n != 0 || !errors.Is(err, context.DeadlineExceeded) && !isTimeout(err) {
		t.Fatalf("one more than the limit was served: %d %v", n, err)
	}
	held[0].Close()
	late.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := late.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("the one that waited: %d %v", n, err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func TestCloseEndsAllConnections(t *testing.T) {
	port := server(t, echo)
	w := newWorld(t, fmt.Sprintf("127.0.0.1:%d", port), "")
	conn, in := w.tunnel(fmt.Sprintf("127.0.0.1:%d", port))
	silent := w.dial()
	io.WriteString(conn, "x")
	in.ReadByte()
	w.proxy.Close()
	for _, conn := range []net.Conn{conn, silent} {
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil || isTimeout(err) {
			t.Errorf("open after Close: %d %v", n, err)
		}
	}
}

func TestAClientThatIsSlowOrSilentIsLetGo(t *testing.T) {
	port := server(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })
	to := fmt.Sprintf("127.0.0.1:%d", port)
	brief := 200 * time.Millisecond
	for name, c := range map[string]struct {
		waitTimeout waitTimeout
		said        string
	}{
		"nothing":             {waitTimeout{head: brief, idle: time.Hour}, ""},
		"half a request":      {waitTimeout{head: brief, idle: time.Hour}, "CONNECT " + to + " HTTP/1.1\r\nX: "},
		"half of SOCKS5":      {waitTimeout{head: brief, idle: time.Hour}, "\x05\x01\x00\x05\x01"},
		"half a hello":        {waitTimeout{head: brief, idle: time.Hour}, "CONNECT " + to + " HTTP/1.1\r\n\r\n\x16\x03\x01\x01\x00\x01"},
		"an idle tunnel":      {waitTimeout{head: time.Hour, idle: brief}, "CONNECT " + to + " HTTP/1.1\r\n\r\n"},
		"a body that is late": {waitTimeout{head: time.Hour, idle: brief}, "POST http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nContent-Length: 9\r\n\r\nx"},
	} {
		w := newPatientWorld(t, to, "", c.waitTimeout)
		conn := w.dial()
		io.WriteString(conn, c.said)
		began := time.Now()
		if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
			t.Errorf("%s: still open after %v", name, time.Since(began))
		}
		if took := time.Since(began); took < brief/2 {
			t.Errorf("%s: closed after %v", name, took)
		}
	}
}

func TestServeAfterCloseEndsAtOnce(t *testing.T) {
	p, listener := &Proxy{}, listen(t)
	p.Close()
	if err := p.Serve(listener); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

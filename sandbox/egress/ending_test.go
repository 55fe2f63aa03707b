package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/profile"
)

// silentServer accepts and says nothing, for as long as the test lasts. It tells of each
// connection.
func silentServer(t *testing.T) (port uint16, accepted chan struct{}) {
	t.Helper()
	hold, accepted := make(chan struct{}), make(chan struct{}, 4*maxConnections)
	t.Cleanup(func() { close(hold) })
	return server(t, func(net.Conn) {
		accepted <- struct{}{}
		<-hold
	}), accepted
}

// within fails the test if do has not returned in a time that is far beyond what it takes.
func within(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: it did not end", what)
	}
}

// What a client may have asked of a server that does not answer, when the run ends.
func TestCloseEndsWhatASilentServerHolds(t *testing.T) {
	port, accepted := silentServer(t)
	to := fmt.Sprintf("127.0.0.1:%d", port)
	post := "POST http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nContent-Length: "
	socks := string([]byte{5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, byte(port >> 8), byte(port)})
	halfClose, leave := func(c *net.TCPConn) { c.CloseWrite() }, func(c *net.TCPConn) { c.Close() }
	for name, c := range map[string]struct {
		said string
		then func(*net.TCPConn)
	}{
		"a tunnel":                   {"CONNECT " + to + " HTTP/1.1\r\n\r\n", func(*net.TCPConn) {}},
		"a tunnel, half closed":      {"CONNECT " + to + " HTTP/1.1\r\n\r\n", halfClose},
		"a tunnel, left":             {"CONNECT " + to + " HTTP/1.1\r\n\r\n", leave},
		"a hello without an answer":  {"CONNECT " + to + " HTTP/1.1\r\n\r\n" + string(madeHello()) + "\x16\x03\x03\x00\x01\x10", halfClose},
		"a request, half closed":     {post + "0\r\n\r\n", halfClose},
		"a request, left":            {post + "0\r\n\r\n", leave},
		"a request with half a body": {post + "9\r\n\r\nx", func(*net.TCPConn) {}},
		"a body that nobody reads":   {post + "99999999\r\n\r\n", func(c *net.TCPConn) { go io.Copy(c, endless{}) }},
		"SOCKS5, half closed":        {socks, halfClose},
	} {
		w := newWorld(t, to, "")
		conn := w.dial()
		io.WriteString(conn, c.said)
		<-accepted
		c.then(conn)
		within(t, name, w.proxy.Close)
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

func TestCloseEndsWhatIsBeingLookedUpAndAskedFor(t *testing.T) {
	begun := make(chan struct{}, 2)
	w := newWorld(t, "slow.example", "")
	w.proxy.Resolve = func(ctx context.Context, _ string) ([]netip.Addr, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	w.proxy.Ask = func(ctx context.Context, _ profile.Destination) string {
		begun <- struct{}{}
		<-ctx.Done()
		return ""
	}
	io.WriteString(w.dial(), "CONNECT slow.example:443 HTTP/1.1\r\n\r\n")
	io.WriteString(w.dial(), "CONNECT asked.example:443 HTTP/1.1\r\n\r\n")
	<-begun
	<-begun
	within(t, "a name that is looked up, and one that is asked for", w.proxy.Close)
}

func TestClientsThatGaveUpOnASilentServerMakeRoom(t *testing.T) {
	silent, accepted := silentServer(t)
	port := server(t, echo)
	for name, said := range map[string]string{
		"tunnels":  "CONNECT 127.0.0.1:%d HTTP/1.1\r\n\r\n",
		"requests": "GET http://127.0.0.1:%d/ HTTP/1.0\r\n\r\n",
	} {
		w := newPooledWorld(t, "127.0.0.1", newPool(maxPool))
		for range maxConnections {
			conn := w.dial()
			fmt.Fprintf(conn, said, silent)
			if name == "tunnels" {
				bufio.NewReader(conn).ReadString('\n')
			}
			conn.CloseWrite()
		}
		for range maxConnections {
			<-accepted
		}
		for range 3 {
			conn, in := w.tunnel(fmt.Sprintf("127.0.0.1:%d", port))
			io.WriteString(conn, "x")
			if c, err := in.ReadByte(); c != 'x' || err != nil {
				t.Fatalf("%s: %q %v", name, c, err)
			}
		}
		w.proxy.Close()
	}
}

func newPooledWorld(t *testing.T, allowed string, shared *pool) *world {
	t.Helper()
	w := &world{t: t, proxy: &Proxy{Rules: rules(t, allowed, ""), pool: shared}}
	w.serve()
	return w
}

// crowded waits until a client has been accepted for whom there is no room.
func (w *world) crowded() {
	w.t.Helper()
	for range 2000 {
		w.proxy.mu.Lock()
		waiting := len(w.proxy.clients) > w.proxy.serving
		taken, _ := w.proxy.pool.take(w.proxy.serving)
		w.proxy.mu.Unlock()
		if taken {
			w.proxy.pool.give()
		} else if waiting {
			return
		}
		time.Sleep(time.Millisecond)
	}
	w.t.Fatal("nobody has to wait")
}

func TestWhoIsThereKeepsTheConnectionWhenThereIsNoRoom(t *testing.T) {
	to := fmt.Sprintf("127.0.0.1:%d", server(t, echo))
	w := newPooledWorld(t, "127.0.0.1", newPool(32))
	var held []*net.TCPConn
	for range 16 {
		conn, _ := w.tunnel(to)
		held = append(held, conn)
	}
	fmt.Fprintf(w.dial(), "CONNECT %s HTTP/1.1\r\n\r\n", to)
	w.crowded()
	for _, conn := range held {
		io.WriteString(conn, "x")
		if n, err := conn.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Fatalf("%d %v", n, err)
		}
	}
}

func TestRunsThatTakeAllTheyCanLeaveRoomForOthers(t *testing.T) {
	to := fmt.Sprintf("127.0.0.1:%d", server(t, echo))
	shared := newPool(64)
	for greedy := range 6 {
		w := newPooledWorld(t, "127.0.0.1", shared)
		conn, in := w.tunnel(to)
		io.WriteString(conn, "x")
		if c, err := in.ReadByte(); c != 'x' || err != nil {
			t.Fatalf("beside %d greedy runs: %q %v", greedy, c, err)
		}
		for range shared.limit {
			fmt.Fprintf(w.dial(), "CONNECT %s HTTP/1.1\r\n\r\n", to)
		}
		w.crowded()
	}
	if shared.used >= shared.limit {
		t.Errorf("%d connections of %d", shared.used, shared.limit)
	}
}

func TestAllComesBackToThePool(t *testing.T) {
	to := fmt.Sprintf("127.0.0.1:%d", server(t, echo))
	shared := newPool(16)
	for range 10 {
		w := newPooledWorld(t, "127.0.0.1", shared)
		for range 5 {
			w.tunnel(to)
		}
		w.proxy.Close()
		if shared.used != 0 {
			t.Fatalf("%d connections are counted after the run", shared.used)
		}
	}
}

func TestTheLimitFollowsTheDescriptorsOfTheProcess(t *testing.T) {
	for files, want := range map[uint64]int{1 << 20: maxPool, 1024: 256, 256: 64, 0: minPool, ^uint64(0): maxPool} {
		if got := poolLimit(files); got != want {
			t.Errorf("%d descriptors: %d, want %d", files, got, want)
		}
	}
}

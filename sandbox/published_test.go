package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/process"
)

// freePort is a port of the host's loopback interface that nothing has. It is none of those that
// the kernel gives out by itself: who connects to one of those may be connected to itself.
func freePort(t *testing.T) uint16 {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", 20000+rand.N(12000)))
		if err == nil {
			l.Close()
			return uint16(l.Addr().(*net.TCPAddr).Port)
		}
	}
	t.Fatal("no port is free")
	return 0
}

// published gives the profile a network of its own with ports that are published, as flags would.
func (h *host) published(network profile.Network, ports ...string) {
	h.t.Helper()
	h.profile.Network, h.profile.Published = network, nil
	for _, text := range ports {
		port, err := profile.ParsePublished(text)
		if err != nil {
			h.t.Fatal(err)
		}
		port.Origin = profile.Origin{Kind: profile.OriginFlag, Source: "--publish " + text}
		h.profile.Published = append(h.profile.Published, port)
	}
}

// ask connects to a port of this machine until it is answered, and returns all that comes.
func ask(t *testing.T, port uint16, says string) string {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if errors.Is(err, unix.ECONNREFUSED) {
			t.Fatal("nobody listens on the host")
		}
		if err == nil { // else it was reset already: nothing listens inside yet
			conn.SetDeadline(time.Now().Add(10 * time.Second))
			var text []byte
			if _, err = io.WriteString(conn, says); err == nil { // who hears of a reset once is not told again
				err = conn.(*net.TCPConn).CloseWrite()
			}
			if err == nil {
				text, err = io.ReadAll(conn)
			}
			conn.Close()
			if err == nil {
				return string(text)
			}
		}
		if time.Since(began) > 20*time.Second {
			t.Fatalf("nothing answers: %v", err)
		}
	}
}

// servers are those that people start: each serves hello.txt of its directory at the port in $1.
var servers = []struct{ program, line string }{
	{"python3", `exec python3 -m http.server "$1" --bind 127.0.0.1`},
	{"python3", `exec python3 -m http.server "$1" --bind ::1`},
	{"node", `exec node -e 'require("http").createServer((q, s) => s.end(require("fs").readFileSync("." + q.url))).listen(+process.argv[1])' "$1"`},
}

func TestAPublishedPortIsReachedFromTheHost(t *testing.T) {
	needMounts(t)
	for _, network := range []profile.Network{profile.NetworkDisabled, profile.NetworkFiltered} {
		for _, s := range servers {
			t.Run(network.String()+" "+s.line, func(t *testing.T) {
				t.Parallel()
				needProgram(t, s.program)
				h := newHost(t)
				port := freePort(t)
				h.published(network, fmt.Sprintf("%d:3000", port))
				h.write(h.profile.Workspace+"/hello.txt", "hello from inside\n")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				go func() {
					_, err := h.launcher.Run(ctx, h.build(), []string{"/bin/sh", "-c", s.line, "sh", "3000"}, Stdio{})
					done <- err
				}()
				conn := awaitListener(t, port)
				if got := ask(t, port, "GET /hello.txt HTTP/1.0\r\n\r\n"); !strings.HasSuffix(got, "\r\n\r\nhello from inside\n") {
					t.Errorf("%q", got)
				}
				cancel()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				conn.SetDeadline(time.Now().Add(10 * time.Second))
				if n, err := conn.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("a connection goes on after the run: %v", err)
				}
				waitUntil(t, "the host's port is closed after the run", func() bool { // another test may have it for a while
					conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
					if err == nil {
						conn.Close()
					}
					return err != nil
				})
			})
		}
	}
}

// awaitListener connects to the host's port as soon as it is open.
func awaitListener(t *testing.T, port uint16) net.Conn {
	t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			t.Cleanup(func() { conn.Close() })
			return conn
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal(err)
		}
	}
}

func TestAPublishedPortIsOfTheLoopbackInterfaceAlone(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	port := freePort(t)
	h.published(profile.NetworkDisabled, fmt.Sprint(port))
	s := h.openSession()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	awaitListener(t, port)
	for _, address := range addresses {
		ip := address.(*net.IPNet).IP
		if ip.IsLoopback() || ip.IsLinkLocalUnicast() {
			continue
		}
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(ip.String(), fmt.Sprint(port)), 2*time.Second)
		if err == nil {
			conn.Close()
		}
		if !errors.Is(err, unix.ECONNREFUSED) { // what is reset was answered
			t.Errorf("%s answers: %v", ip, err)
		}
	}
	s.Close()
}

func TestAPortThatCannotBePublishedIsToldBeforeTheCommand(t *testing.T) {
	busy, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	port := busy.Addr().(*net.TCPAddr).Port
	h := newHost(t)
	for text, want := range map[string]string{
		fmt.Sprintf("%d:3000", port): fmt.Sprintf("127.0.0.1:%d is in use on the host, so port 3000 cannot be published there", port),
		"9000:17980":                 "port 17980 inside is the filtered network's own",
	} {
		h.published(profile.NetworkFiltered, text)
		r := h.run("/bin/sh", "-c", "touch ran")
		var setup *SetupError
		if !errors.As(r.Failure, &setup) || setup.Why != want || setup.Hint == "" {
			t.Errorf("%s: %v", text, r.Failure)
		}
	}
	if _, err := os.Stat(h.profile.Workspace + "/ran"); err == nil {
		t.Error("the command ran")
	}
	// What the configuration publishes for all of an agent's sandboxes may be the one's already.
	h.published(profile.NetworkDisabled, fmt.Sprint(port))
	h.profile.Published[0].Origin = profile.Origin{Kind: profile.OriginConfig, Source: "config.json:3"}
	r := h.run("/bin/true")
	if r.Failure != nil || len(r.Notices) != 1 || !strings.Contains(r.Notices[0].Text, "is not published (config config.json:3): 127.0.0.1:") {
		t.Errorf("%v %v", r.Failure, r.Notices)
	}
}

func TestSessionsPublishPortsWhileTheyRun(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	h.profile.Network = profile.NetworkDisabled
	s := h.openSession()
	port := freePort(t)
	p, wait := s.capture(t, Command{Argv: []string{"python3", "-c", `
import socket
l = socket.create_server(("127.0.0.1", 3000))
while True:
    c = l.accept()[0]
    c.sendall(b"got " + c.recv(99)); c.close()
`}})
	if err := s.Publish(profile.PublishedPort{Host: port, Inside: 3000}); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, port, "this"); got != "got this" {
		t.Errorf("%q", got)
	}
	var setup *SetupError
	if err := s.Publish(profile.PublishedPort{Host: port, Inside: 3000}); !errors.As(err, &setup) {
		t.Errorf("twice at one port: %v", err)
	}
	p.End(unix.SIGKILL)
	wait()
	s.Close()
	if err := s.Publish(profile.PublishedPort{Host: port, Inside: 3000}); !errors.Is(err, ErrSessionEnded) {
		t.Errorf("after the end: %v", err)
	}
	enabled := newHost(t).openSession()
	if err := enabled.Publish(profile.PublishedPort{Host: port, Inside: 3000}); !errors.As(err, &setup) {
		t.Errorf("with the host's network: %v", err)
	}
}

func TestAPortThatNothingOutsideReachesIsTold(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	h.published(profile.NetworkDisabled, fmt.Sprintf("%d:3001", freePort(t)))
	var told []string
	heard := make(chan string, 10)
	h.launcher.Unpublished = func(n Notice) { heard <- n.Text }
	r := make(chan ran, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		result, err := h.launcher.Run(ctx, h.build(), []string{"python3", "-c", `
import socket, time
l = [socket.create_server(("127.0.0.1", p)) for p in (3000, 3001)]
time.sleep(100)`}, Stdio{})
		r <- ran{Result: result, Failure: err}
	}()
	select {
	case text := <-heard:
		told = append(told, text)
	case <-time.After(30 * time.Second):
		t.Fatal("nothing is told")
	}
	cancel()
	result := <-r
	want := "port 3000 in the sandbox is reached from nowhere else; to reach it at 127.0.0.1:3000 of the host: start the command with --publish 3000"
	if told[0] != want || len(heard) != 0 || len(result.Notices) != 1 || result.Notices[0].Text != want {
		t.Errorf("%q %v", told, result.Notices)
	}
}

func TestAPortThatSomebodyAllowsIsPublished(t *testing.T) {
	needMounts(t)
	for _, allow := range []bool{true, false} {
		h := newHost(t)
		h.profile.Network = profile.NetworkDisabled
		port := freePort(t)
		asked, heard := make(chan uint16, 10), make(chan string, 10)
		h.launcher.AskPublish = func(_ context.Context, port uint16) bool { asked <- port; return allow }
		h.launcher.Unpublished = func(n Notice) { heard <- n.Text }
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.launcher.Run(ctx, h.build(), []string{"python3", "-c", fmt.Sprintf(`
import socket
l = socket.create_server(("127.0.0.1", %d))
while True:
    c = l.accept()[0]
    c.sendall(b"got " + c.recv(99)); c.close()`, port)}, Stdio{})
		}()
		for _, want := range []string{"a person is asked", "is reached at 127.0.0.1:"} {
			if strings.HasPrefix(want, "is reached") && !allow {
				continue
			}
			select {
			case text := <-heard:
				if !strings.Contains(text, want) {
					t.Errorf("%q, want %q", text, want)
				}
			case <-ctx.Done():
				t.Fatal("nothing is told")
			}
		}
		if got := <-asked; got != port {
			t.Errorf("asked about %d", got)
		}
		if allow {
			if got := ask(t, port, "this"); got != "got this" {
				t.Errorf("%q", got)
			}
		} else if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			conn.Close()
			t.Error("it is reached although nobody allowed it")
		}
		cancel()
		<-ended
	}
}

// What stands in the sandbox's network has nothing that it could be made to do.
func TestWhatConnectsInsideHasNoRights(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	h.published(profile.NetworkDisabled, fmt.Sprint(freePort(t)))
	s := h.openSession()
	found := 0
	for _, pid := range process.Children(os.Getpid()) {
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); string(name) != "dialer\x00" {
			continue
		}
		found++
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"CapInh:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n", "NoNewPrivs:\t1\n"} {
			if !strings.Contains(string(status), want) {
				t.Errorf("not %q:\n%s", want, status)
			}
		}
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err == nil && len(open) > 6 { // 0 to 4, and its own program
			t.Errorf("it has %d descriptors", len(open))
		}
	}
	if found == 0 {
		t.Fatal("there is no dialer")
	}
	if out, _ := s.sh(t, "cat /proc/*/cmdline | tr '\\0' ' '"); strings.Contains(out, "dialer") {
		t.Errorf("it is seen inside: %s", out)
	}
}

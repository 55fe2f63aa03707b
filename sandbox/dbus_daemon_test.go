package sandbox

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"

	"github.com/clairun/clai-sandbox/profile"
)

// testBus is a dbus-daemon of a test's own, with services of the test's on it.
type testBus struct {
	t       testing.TB
	address string // as the daemon prints it
	path    string // of its socket, where it has one
	marker  string // a file that the service org.example.Activatable makes when the bus starts it
}

// startBus starts a dbus-daemon that listens at an address; empty: at a path of its own.
func startBus(t testing.TB, listen string) *testBus {
	t.Helper()
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("no dbus-daemon: see packaging/setup.sh test")
	}
	dir := newDirectory(t)
	b := &testBus{t: t, marker: filepath.Join(dir, "activated")}
	if listen == "" {
		b.path = filepath.Join(dir, "socket")
		listen = BusAddress{Transport: "unix", Keys: map[string]string{"path": b.path}}.String()
	}
	service := fmt.Sprintf("[D-BUS Service]\nName=org.example.Activatable\nExec=/usr/bin/touch %s\n", b.marker)
	config := fmt.Sprintf(`<busconfig><type>session</type><listen>%s</listen><auth>EXTERNAL</auth><servicedir>%s</servicedir>
		<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy>
		</busconfig>`, listen, dir)
	for name, text := range map[string]string{"activatable.service": service, "bus.conf": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(daemon, "--config-file="+filepath.Join(dir, "bus.conf"), "--nofork", "--nopidfile", "--print-address=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if b.address, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("dbus-daemon at %s: %v", listen, err)
	}
	b.address = strings.TrimSpace(b.address)
	return b
}

// testService owns names on a bus and remembers every call that reaches it.
type testService struct {
	*dbus.Conn
	mu    sync.Mutex
	calls []string
}

// serve puts a service on the bus.
func (b *testBus) serve(names ...string) *testService {
	b.t.Helper()
	s := &testService{}
	connection, err := dbus.Connect(b.address, dbus.WithIncomingInterceptor(func(m *dbus.Message) {
		if m.Type == dbus.TypeMethodCall {
			s.mu.Lock()
			s.calls = append(s.calls, fmt.Sprint(m.Headers[dbus.FieldMember].Value()))
			s.mu.Unlock()
		}
	}))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { connection.Close() })
	s.Conn = connection
	for _, at := range append(slices.Collect(maps.Values(testObjects)), testObject{"/", "org.example.Test"}) {
		if err := connection.Export(testMethods{}, dbus.ObjectPath(at.path), at.face); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, name := range names {
		if reply, err := connection.RequestName(name, dbus.NameFlagDoNotQueue); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
			b.t.Fatalf("%s: %v %v", name, reply, err)
		}
	}
	return s
}

func (s *testService) called() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// A testObject is what a service is called at.
type testObject struct{ path, face string }

// testObjects are those of the usual names, which a filtered bus lets through. Any testService has them all.
var testObjects = map[string]testObject{
	"org.freedesktop.secrets":        {"/org/freedesktop/secrets", "org.freedesktop.Secret.Session"},
	"org.freedesktop.Notifications":  {"/org/freedesktop/Notifications", "org.freedesktop.Notifications"},
	"org.freedesktop.portal.Desktop": {"/org/freedesktop/portal/desktop", "org.freedesktop.portal.Settings"},
}

// testMethods is what a testService can do.
type testMethods struct{}

func (testMethods) Echo(text string) (string, *dbus.Error) { return text, nil }

// GetServerInformation is what of the notification service's goes through; the tests call it as they call Echo.
func (testMethods) GetServerInformation(text string) (string, *dbus.Error) { return text, nil }

func (testMethods) Reverse(data []byte) ([]byte, *dbus.Error) {
	slices.Reverse(data)
	return data, nil
}

// Exchange writes into a file that it is given, and hands out another.
func (testMethods) Exchange(given dbus.UnixFD) (dbus.UnixFD, *dbus.Error) {
	file := os.NewFile(uintptr(given), "given")
	defer file.Close()
	file.WriteString("written outside")
	read, write, err := os.Pipe()
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	write.WriteString("read inside")
	write.Close()
	return dbus.UnixFD(read.Fd()), nil // open until the reply is sent; a test has few
}

// newBusHost is a host with a bus, and a profile that filters it.
func newBusHost(t testing.TB) (*host, *testBus) {
	t.Helper()
	needProxy(t)
	h, bus := newHost(t), startBus(t, "")
	h.profile.SessionBus = profile.SessionBusFiltered
	h.profile.SessionBusNames = profile.DefaultSessionBusNames
	h.profile.SessionBusAddress = bus.address
	h.profile.RuntimeDirectory = newDirectory(t)
	h.profile.OwnDirectories = append(h.profile.OwnDirectories, h.mkdir(h.profile.RuntimeDirectory+"/clai-sandbox"))
	return h, bus
}

func needProxy(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath(proxyName); err != nil {
		t.Skip("no xdg-dbus-proxy: see packaging/setup.sh test")
	}
}

// newListener listens for a bus as a run does, without a sandbox.
func newListener(t testing.TB, bus *testBus) *busListener {
	t.Helper()
	return newListenerWith(t, bus, "")
}

// newListenerWith uses another proxy.
func newListenerWith(t testing.TB, bus *testBus, proxy string) *busListener {
	t.Helper()
	needProxy(t)
	h := newHost(t)
	h.profile.SessionBus = profile.SessionBusFiltered
	h.profile.SessionBusNames = profile.DefaultSessionBusNames
	h.profile.SessionBusAddress = bus.address
	reached := h.build().Bus
	if proxy != "" {
		reached.Proxy = proxy
	}
	l, err := listenBus(reached)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

// name is the address at which a listener's socket is reached from this process.
func (l *busListener) name() string { return fmt.Sprintf("/proc/self/fd/%d", l.socket) }

// connect is a client of the listener's.
func (l *busListener) connect(t testing.TB) *dbus.Conn {
	t.Helper()
	connection, err := dbus.Connect("unix:path=" + l.name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection
}

// knock connects without a word.
func (l *busListener) knock(t testing.TB) net.Conn {
	t.Helper()
	connection, err := net.Dial("unix", l.name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection
}

// proxiesOf are the xdg-dbus-proxies that a process has started.
func proxiesOf(parent int) []string {
	var found []string
	for _, line := range processesNaming("--filter") {
		pid, _, _ := strings.Cut(line, ":")
		status, _ := os.ReadFile("/proc/" + pid + "/status")
		if strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", parent)) {
			found = append(found, pid)
		}
	}
	return found
}

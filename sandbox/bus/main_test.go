package bus

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/godbus/dbus/v5"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/bus/bustest"
)

// TestMain makes the test binary, with CLAI_SANDBOX_TEST_HELPER, a launcher's listener in a process
// of its own.
func TestMain(m *testing.M) {
	if os.Getenv("CLAI_SANDBOX_TEST_HELPER") == "listen" {
		listen()
	}
	os.Exit(m.Run())
}

// newListener listens for a bus as a run does, without a sandbox.
func newListener(t testing.TB, bus *bustest.Bus) *Listener {
	t.Helper()
	return newListenerWith(t, bus, "")
}

// newListenerWith uses another proxy.
func newListenerWith(t testing.TB, bus *bustest.Bus, proxy string) *Listener {
	t.Helper()
	bustest.NeedProxy(t)
	addresses, err := ParseAddress(bus.Address)
	if err != nil {
		t.Fatal(err)
	}
	server, _ := addresses[0].Server("")
	if proxy == "" {
		proxy, _ = exec.LookPath(ProxyName)
	}
	l, err := Listen(Bus{Servers: []Server{server}, Names: profile.DefaultSessionBusNames, Proxy: proxy, Directories: []string{"/dev/shm"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// name is the address at which a listener's socket is reached from this process.
func (l *Listener) name() string { return fmt.Sprintf("/proc/self/fd/%d", l.socket) }

// connect is a client of the listener's.
func (l *Listener) connect(t testing.TB) *dbus.Conn {
	t.Helper()
	connection, err := dbus.Connect("unix:path=" + l.name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection
}

// knock connects without a word.
func (l *Listener) knock(t testing.TB) net.Conn {
	t.Helper()
	connection, err := net.Dial("unix", l.name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return connection
}

// Package bustest has a session bus of a test's own (dbus-daemon), with services on it that
// remember what reaches them.
package bustest

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"

	"github.com/clairun/clai-sandbox/sandbox/process/processtest"
)

// A Bus is a dbus-daemon of a test's own, with services of the test's on it.
type Bus struct {
	t       testing.TB
	Address string // as the daemon prints it
	Path    string // of its socket, where it has one
	Marker  string // a file that the service org.example.Activatable makes when the bus starts it
}

// Start starts a dbus-daemon that listens at an address; empty: at a path of its own.
func Start(t testing.TB, listen string) *Bus {
	t.Helper()
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("no dbus-daemon: see packaging/setup.sh test")
	}
	dir := processtest.Directory(t)
	b := &Bus{t: t, Marker: filepath.Join(dir, "activated")}
	if listen == "" {
		b.Path = filepath.Join(dir, "socket")
		listen = "unix:path=" + b.Path
	}
	service := fmt.Sprintf("[D-BUS Service]\nName=org.example.Activatable\nExec=/usr/bin/touch %s\n", b.Marker)
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
	if b.Address, err = bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("dbus-daemon at %s: %v", listen, err)
	}
	b.Address = strings.TrimSpace(b.Address)
	return b
}

// A Service owns names on a bus and remembers every call that reaches it.
type Service struct {
	*dbus.Conn
	mu    sync.Mutex
	calls []string
}

// Serve puts a service on the bus.
func (b *Bus) Serve(names ...string) *Service {
	b.t.Helper()
	s := &Service{}
	connection, err := dbus.Connect(b.Address, dbus.WithIncomingInterceptor(func(m *dbus.Message) {
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
	for _, at := range append(slices.Collect(maps.Values(Objects)), Object{"/", "org.example.Test"}) {
		if err := connection.Export(methods{}, dbus.ObjectPath(at.Path), at.Face); err != nil {
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

// Called are the methods that were called, in their order.
func (s *Service) Called() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// An Object is what a service is called at.
type Object struct{ Path, Face string }

// Objects are those of the usual names, which a filtered bus lets through. Any Service has them
// all.
var Objects = map[string]Object{
	"org.freedesktop.secrets":        {"/org/freedesktop/secrets", "org.freedesktop.Secret.Session"},
	"org.freedesktop.Notifications":  {"/org/freedesktop/Notifications", "org.freedesktop.Notifications"},
	"org.freedesktop.portal.Desktop": {"/org/freedesktop/portal/desktop", "org.freedesktop.portal.Settings"},
}

// methods is what a Service can do.
type methods struct{}

func (methods) Echo(text string) (string, *dbus.Error) { return text, nil }

// GetServerInformation is what of the notification service's goes through; the tests call it as
// they call Echo.
func (methods) GetServerInformation(text string) (string, *dbus.Error) { return text, nil }

func (methods) Reverse(data []byte) ([]byte, *dbus.Error) {
	slices.Reverse(data)
	return data, nil
}

// Exchange writes into a file that it is given, and hands out another.
func (methods) Exchange(given dbus.UnixFD) (dbus.UnixFD, *dbus.Error) {
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

// NeedProxy skips a test where xdg-dbus-proxy is not installed.
func NeedProxy(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("xdg-dbus-proxy"); err != nil {
		t.Skip("no xdg-dbus-proxy: see packaging/setup.sh test")
	}
}

// What a listed name's owner can do besides, at his other objects and on his other interfaces.
var Unlisted = []struct {
	Name string
	At   Object
}{
	// The shell of the desktop, which shows the notifications.
	{"org.freedesktop.Notifications", Object{"/org/Cinnamon", "org.Cinnamon"}},
	{"org.freedesktop.Notifications", Object{"/PlasmaShell", "org.kde.PlasmaShell"}},
	{"org.freedesktop.Notifications", Object{"/org/freedesktop/Notifications", "org.dunstproject.cmd0"}},
	{"org.freedesktop.Notifications", Object{"/org/freedesktop/Notifications/below", "org.freedesktop.Notifications"}},
	{"org.freedesktop.secrets", Object{"/org/freedesktop/secrets", "org.gnome.keyring.InternalUnsupportedGuiltRiddenInterface"}},
	{"org.freedesktop.secrets", Object{"/org/gnome/keyring/daemon", "org.freedesktop.Secret.Service"}},
	{"org.freedesktop.secrets", Object{"/org/freedesktop/secretsbeside", "org.freedesktop.Secret.Service"}},
	{"org.freedesktop.secrets", Object{"/", "org.example.Test"}},
	{"org.freedesktop.portal.Desktop", Object{"/org/freedesktop/portal/desktop", "org.freedesktop.host.portal.Registry"}},
	{"org.freedesktop.portal.Desktop", Object{"/", "org.freedesktop.portal.Settings"}},
	{"org.freedesktop.portal.Desktop", Object{"/org/freedesktop/portal/desktop", "org.freedesktop.portal.Background"}},
	{"org.freedesktop.portal.Desktop", Object{"/org/freedesktop/portal/desktop", "org.freedesktop.portal.OpenURI"}},
	{"org.freedesktop.portal.Desktop", Object{"/org/freedesktop/portal/desktop", "org.freedesktop.portal.DynamicLauncher"}},
	{"org.freedesktop.portal.Desktop", Object{"/org/freedesktop/portal/desktop", "org.freedesktop.portal.NetworkMonitor"}},
	{"org.freedesktop.portal.Desktop", Object{"/org/freedesktop/portal/desktop", "org.freedesktop.portal.Notification"}},
	{"org.freedesktop.portal.Desktop", Object{"/org/freedesktop/portal/desktop", "org.freedesktop.portal.RemoteDesktop"}},
	{"org.freedesktop.portal.Flatpak", Object{"/org/freedesktop/portal/Flatpak", "org.freedesktop.portal.Flatpak"}},
	{"org.freedesktop.portal.Documents", Object{"/org/freedesktop/portal/documents", "org.freedesktop.portal.Documents"}},
	{"org.freedesktop.portal.Tracker", Object{"/", "org.example.Test"}},
	{"org.freedesktop.portal", Object{"/", "org.example.Test"}},
}

// ServeAll has one program own names and answer at every object of Unlisted.
func (b *Bus) ServeAll(names ...string) *Service {
	b.t.Helper()
	service := b.Serve(names...)
	for _, c := range Unlisted {
		if err := service.Export(methods{}, dbus.ObjectPath(c.At.Path), c.At.Face); err != nil {
			b.t.Fatal(err)
		}
	}
	return service
}

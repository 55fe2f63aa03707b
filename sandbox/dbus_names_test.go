package sandbox

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"

	"github.com/clairun/clai-sandbox/profile"
)

// What a listed name's owner can do besides, at his other objects and on his other interfaces.
var unlistedCalls = []struct {
	name string
	at   testObject
}{
	// The shell of the desktop, which shows the notifications.
	{"org.freedesktop.Notifications", testObject{"/org/Cinnamon", "org.Cinnamon"}},
	{"org.freedesktop.Notifications", testObject{"/PlasmaShell", "org.kde.PlasmaShell"}},
	{"org.freedesktop.Notifications", testObject{"/org/freedesktop/Notifications", "org.dunstproject.cmd0"}},
	{"org.freedesktop.Notifications", testObject{"/org/freedesktop/Notifications/below", "org.freedesktop.Notifications"}},
	{"org.freedesktop.secrets", testObject{"/org/freedesktop/secrets", "org.gnome.keyring.InternalUnsupportedGuiltRiddenInterface"}},
	{"org.freedesktop.secrets", testObject{"/org/gnome/keyring/daemon", "org.freedesktop.Secret.Service"}},
	{"org.freedesktop.secrets", testObject{"/org/freedesktop/secretsbeside", "org.freedesktop.Secret.Service"}},
	{"org.freedesktop.secrets", testObject{"/", "org.example.Test"}},
	{"org.freedesktop.portal.Desktop", testObject{"/org/freedesktop/portal/desktop", "org.freedesktop.host.portal.Registry"}},
	{"org.freedesktop.portal.Desktop", testObject{"/", "org.freedesktop.portal.Settings"}},
	{"org.freedesktop.portal.Desktop", testObject{"/org/freedesktop/portal/desktop", "org.freedesktop.portal.Background"}},
	{"org.freedesktop.portal.Desktop", testObject{"/org/freedesktop/portal/desktop", "org.freedesktop.portal.OpenURI"}},
	{"org.freedesktop.portal.Desktop", testObject{"/org/freedesktop/portal/desktop", "org.freedesktop.portal.DynamicLauncher"}},
	{"org.freedesktop.portal.Desktop", testObject{"/org/freedesktop/portal/desktop", "org.freedesktop.portal.NetworkMonitor"}},
	{"org.freedesktop.portal.Desktop", testObject{"/org/freedesktop/portal/desktop", "org.freedesktop.portal.Notification"}},
	{"org.freedesktop.portal.Desktop", testObject{"/org/freedesktop/portal/desktop", "org.freedesktop.portal.RemoteDesktop"}},
	{"org.freedesktop.portal.Flatpak", testObject{"/org/freedesktop/portal/Flatpak", "org.freedesktop.portal.Flatpak"}},
	{"org.freedesktop.portal.Documents", testObject{"/org/freedesktop/portal/documents", "org.freedesktop.portal.Documents"}},
	{"org.freedesktop.portal.Tracker", testObject{"/", "org.example.Test"}},
	{"org.freedesktop.portal", testObject{"/", "org.example.Test"}},
}

// serveAll has one program own names and answer at every object of unlistedCalls.
func (b *testBus) serveAll(names ...string) *testService {
	b.t.Helper()
	service := b.serve(names...)
	for _, c := range unlistedCalls {
		if err := service.Export(testMethods{}, dbus.ObjectPath(c.at.path), c.at.face); err != nil {
			b.t.Fatal(err)
		}
	}
	return service
}

func TestAListedNameLetsThroughNothingElseThatItsOwnerCanDo(t *testing.T) {
	h, bus := newBusHost(t)
	service := bus.serveAll("org.freedesktop.secrets", "org.freedesktop.Notifications", "org.gnome.Shell", "org.freedesktop.portal.Desktop",
		"org.freedesktop.portal.Flatpak", "org.freedesktop.portal.Documents", "org.freedesktop.portal.Tracker", "org.freedesktop.portal")
	script, control := "", ""
	for i, c := range unlistedCalls {
		control += callAt(c.name, c.at) + " || echo missed;"
		for _, to := range []string{c.name, service.Names()[0], "org.gnome.Shell"} {
			script += fmt.Sprintf("%s && echo reached %d %s;", callAt(to, c.at), i, to)
		}
	}
	if out := h.sh(script + call("org.freedesktop.secrets") + ">/dev/null && echo end"); out != "end\n" {
		t.Errorf("inside: %s", out)
	}
	if calls := service.called(); len(calls) != 1 {
		t.Errorf("calls that arrived: %v", calls)
	}
	client := newListener(t, bus).connect(t)
	for _, c := range unlistedCalls { // without an interface, any one at the object that has the method answers
		if err := client.Object(c.name, dbus.ObjectPath(c.at.path)).Call("Echo", 0, "hello").Err; err == nil {
			t.Errorf("reached without an interface: %s %s", c.name, c.at.path)
		}
	}
	h.profile.SessionBus = profile.SessionBusAllow
	if out := h.sh(control); strings.Contains(out, "missed") || strings.Count(out, "hello") != len(unlistedCalls) {
		t.Errorf("an open bus does not let through either, so the test shows nothing: %s", out)
	}
}

func TestSystemdAndTheShellAreNotReached(t *testing.T) {
	h, bus := newBusHost(t)
	systemd := bus.serve("org.freedesktop.systemd1", "org.gnome.Shell")
	attempts := map[string]string{
		"systemd-run": "XDG_RUNTIME_DIR=/run/clai-sandbox systemd-run --user --no-block /bin/true",
		"busctl":      "busctl --user call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager StartTransientUnit 'ssa(sv)a(sa(sv))' x.service fail 0 0",
		"gdbus":       "gdbus call --session --dest org.gnome.Shell --object-path /org/gnome/Shell --method org.gnome.Shell.Eval 1",
		"dbus-send":   "dbus-send --session --print-reply --dest=org.gnome.Shell /org/gnome/Shell org.gnome.Shell.Eval string:1",
	}
	for program, attempt := range attempts {
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("no %s: its attempt is left out", program)
			continue
		}
		h.refused(attempt)
	}
	if calls := systemd.called(); calls != nil {
		t.Errorf("calls that arrived: %v", calls)
	}
	h.profile.SessionBus = profile.SessionBusAllow
	h.run("/bin/sh", "-c", attempts["busctl"]+"; "+attempts["dbus-send"])
	if calls := systemd.called(); !slices.Contains(calls, "StartTransientUnit") && !slices.Contains(calls, "Eval") {
		t.Errorf("an open bus does not let them through either, so the test shows nothing: %v", calls)
	}
}

// A daemon's policy may let everybody listen to everything, as the one of these tests does.
func TestNobodyListensToOthers(t *testing.T) {
	bus := startBus(t, "")
	bus.serve("org.freedesktop.secrets", "org.example.Other")
	overhears := func(client *dbus.Conn) bool {
		if err := client.BusObject().Call("org.freedesktop.DBus.AddMatch", 0, "eavesdrop=true").Err; err != nil {
			return false
		}
		heard := make(chan *dbus.Message, 100)
		client.Eavesdrop(heard)
		defer client.Eavesdrop(nil) // the library writes to it after Close otherwise, which has closed it
		var text string
		if err := bus.serve().Object("org.example.Other", "/").Call("org.example.Test.Echo", 0, "between others").Store(&text); err != nil {
			t.Fatal(err)
		}
		client.BusObject().Go("org.freedesktop.DBus.NameHasOwner", 0, nil, "org.example.Nobody") // its answer, false, comes after what was to be heard
		found := false
		for m := range heard {
			found = found || slices.Contains(m.Body, any("between others"))
			if slices.Equal(m.Body, []any{false}) {
				break
			}
		}
		return found
	}
	if overhears(newListener(t, bus).connect(t)) {
		t.Error("what others said was heard inside")
	}
	open, err := dbus.Connect(bus.address)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if !overhears(open) {
		t.Error("nor is it heard outside, so the test shows nothing")
	}
}

func TestSignalsOfAListedNameArrive(t *testing.T) {
	bus := startBus(t, "")
	service := bus.serveNotifications()
	client := newListener(t, bus).connect(t)
	if err := client.AddMatchSignal(dbus.WithMatchMember("ActionInvoked")); err != nil {
		t.Fatal(err)
	}
	if err := client.AddMatchSignal(dbus.WithMatchMember("Told")); err != nil {
		t.Fatal(err)
	}
	id := notifies(t, client, notificationsFace, notificationsFace+".Notify", "", 0, "my own")
	signals := make(chan *dbus.Signal, 10)
	client.Signal(signals)
	service.Emit("/org/freedesktop/Notifications", "org.gnome.Shell.Told", id, "not for you")
	service.Emit("/org/gnome/Shell", "org.freedesktop.Notifications.Told", id, "nor this")
	service.Emit("/org/freedesktop/Notifications", "org.freedesktop.Notifications.ActionInvoked", id, "default")
	if s := <-signals; s.Name != "org.freedesktop.Notifications.ActionInvoked" {
		t.Errorf("%v", s)
	}
}

func TestANameOfTheConfigurationIsLetThroughWhole(t *testing.T) {
	h, bus := newBusHost(t)
	bus.serveAll("org.example.Mine", "org.example.below.Mine", "org.example.Other", "org.freedesktop.portal.Desktop")
	h.profile.SessionBusNames = []string{"org.example.Mine", "org.example.below.*", "org.freedesktop.portal.Desktop"}
	plan := h.build()
	if len(plan.Notices) != 1 || !strings.Contains(plan.Notices[0].Text, "because org.freedesktop.portal.Desktop") {
		t.Errorf("notices %v", plan.Notices)
	}
	for _, name := range []string{"org.example.Mine", "org.example.below.Mine"} {
		if out := h.sh(call(name)); !strings.Contains(out, "hello") {
			t.Errorf("%s: %q", name, out)
		}
	}
	background := testObject{"/org/freedesktop/portal/desktop", "org.freedesktop.portal.Background"}
	if out := h.sh(callAt("org.freedesktop.portal.Desktop", background)); !strings.Contains(out, "hello") {
		t.Errorf("the portal's whole: %q", out)
	}
	h.profile.SessionBusNames = []string{"org.example.below.*"}
	h.refused(call("org.example.Mine"))
}

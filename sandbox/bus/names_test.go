package bus

import (
	"slices"
	"testing"

	"github.com/godbus/dbus/v5"

	"github.com/clairun/clai-sandbox/sandbox/bus/bustest"
)

func TestACallWithoutAnInterfaceReachesNoMoreThanOneWithIt(t *testing.T) {
	bus := bustest.Start(t, "")
	bus.ServeAll("org.freedesktop.secrets", "org.freedesktop.Notifications", "org.gnome.Shell", "org.freedesktop.portal.Desktop",
		"org.freedesktop.portal.Flatpak", "org.freedesktop.portal.Documents", "org.freedesktop.portal.Tracker", "org.freedesktop.portal")
	client := newListener(t, bus).connect(t)
	for _, c := range bustest.Unlisted { // without an interface, any one at the object that has the method answers
		if err := client.Object(c.Name, dbus.ObjectPath(c.At.Path)).Call("Echo", 0, "hello").Err; err == nil {
			t.Errorf("reached without an interface: %s %s", c.Name, c.At.Path)
		}
	}
}

// A daemon's policy may let everybody listen to everything, as the one of these tests does.
func TestNobodyListensToOthers(t *testing.T) {
	bus := bustest.Start(t, "")
	bus.Serve("org.freedesktop.secrets", "org.example.Other")
	overhears := func(client *dbus.Conn) bool {
		if err := client.BusObject().Call("org.freedesktop.DBus.AddMatch", 0, "eavesdrop=true").Err; err != nil {
			return false
		}
		heard := make(chan *dbus.Message, 100)
		client.Eavesdrop(heard)
		defer client.Eavesdrop(nil) // the library writes to it after Close otherwise, which has closed it
		var text string
		if err := bus.Serve().Object("org.example.Other", "/").Call("org.example.Test.Echo", 0, "between others").Store(&text); err != nil {
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
	open, err := dbus.Connect(bus.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if !overhears(open) {
		t.Error("nor is it heard outside, so the test shows nothing")
	}
}

func TestSignalsOfAListedNameArrive(t *testing.T) {
	bus := bustest.Start(t, "")
	service := serveNotifications(t, bus)
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

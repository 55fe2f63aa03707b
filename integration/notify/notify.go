// Package notify tells a person at a desktop that an agent asks, by the desktop's own notifications
// (the specification of org.freedesktop.Notifications), with buttons for the answers that need no
// second look.
package notify

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
)

const (
	service   = "org.freedesktop.Notifications"
	object    = "/org/freedesktop/Notifications"
	busName   = "org.freedesktop.DBus"
	appName   = "clai-sandbox"
	via       = "desktop"
	timeout   = 5 * time.Second
	longest   = 120 // of a path that can be allowed by a button: a notification shows so much in full
	longestBy = 200 // of a reason
)

// Run notifies of each request until the context ends or the bus goes away. Where there is no
// session bus, or nothing on it that shows notifications, it returns an error at once, and there is
// nothing to see.
func Run(ctx context.Context, address string, broker grants.Broker) error {
	conn, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("session bus: %w", err)
	}
	defer conn.Close()
	d := &desktop{broker: broker, conn: conn, shown: map[uint32]shown{}, ids: map[string]uint32{}}
	if err := d.attach(ctx); err != nil {
		return err
	}
	signals := make(chan *dbus.Signal, 64)
	conn.Signal(signals)
	for _, member := range []string{"ActionInvoked", "NotificationClosed"} {
		if err := conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(service), dbus.WithMatchInterface(service), dbus.WithMatchMember(member)); err != nil {
			return err
		}
	}
	events, err := broker.Events(ctx, grants.EventsFrom{})
	if err != nil {
		return err
	}
	list, err := broker.Pending(ctx)
	if err != nil {
		return err
	}
	for _, r := range list {
		d.show(ctx, r)
	}
	defer d.closeAll()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, open := <-events:
			if !open {
				return fmt.Errorf("the gateway sends no more events")
			}
			d.event(ctx, e)
		case s, open := <-signals:
			if !open {
				return fmt.Errorf("the session bus is gone")
			}
			d.signal(ctx, s)
		}
	}
}

// desktop is the one place where notifications are shown.
type desktop struct {
	broker  grants.Broker
	conn    *dbus.Conn
	owner   string // of the service's name; only its signals count
	buttons bool
	markup  bool
	shown   map[uint32]shown // by notification
	ids     map[string]uint32
}

// shown is the request of a notification, and the keys of its buttons; empty: there is no such
// button. A key is a word that nobody can guess, and counts once: a service may let any program
// replace a notification by its number, and tells everybody which key was pressed.
type shown struct{ request, allow, deny string }

// attach finds out who shows notifications, and how.
func (d *desktop) attach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var capabilities []string
	if err := d.conn.Object(service, object).CallWithContext(ctx, service+".GetCapabilities", 0).Store(&capabilities); err != nil {
		return fmt.Errorf("nothing shows notifications: %w", err)
	}
	if err := d.conn.BusObject().CallWithContext(ctx, busName+".GetNameOwner", 0, service).Store(&d.owner); err != nil {
		return fmt.Errorf("who shows notifications: %w", err)
	}
	for _, c := range capabilities {
		d.buttons = d.buttons || c == "actions"
		d.markup = d.markup || c == "body-markup"
	}
	return nil
}

func (d *desktop) event(ctx context.Context, e grants.Event) {
	if e.Request == nil {
		return
	}
	switch e.Kind {
	case grants.EventRequestPending, grants.EventRequestChanged:
		d.close(ctx, e.Request.ID)
		d.show(ctx, *e.Request)
	case grants.EventRequestEnded:
		d.close(ctx, e.Request.ID)
	}
}

// show puts a request on the desktop. To allow it by a button, a person must see all of it there:
// no more than one plain, short path without a warning. Everything else is for grants review.
func (d *desktop) show(ctx context.Context, r grants.Request) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var actions []string
	it := shown{request: r.ID}
	if d.buttons {
		if plain(r) {
			it.allow = rand.Text()
			actions = append(actions, it.allow, "Allow once")
		}
		it.deny = rand.Text()
		actions = append(actions, it.deny, "Deny")
	}
	wish := r.RequestedAccess.Verb()
	switch {
	case r.Outside != nil:
		wish = "run a command outside of any sandbox"
	case r.Question != nil:
		wish = "have an answer of yours"
	case r.Domain != nil:
		wish = "connect to"
	}
	summary := fmt.Sprintf("%s asks to %s", profile.Printable(r.Agent), wish)
	var id uint32
	err := d.conn.Object(service, object).CallWithContext(ctx, service+".Notify", 0, appName, uint32(0), "dialog-password", summary, d.body(r), actions,
		map[string]dbus.Variant{"urgency": dbus.MakeVariant(byte(1)), "category": dbus.MakeVariant("im.received")}, int32(0)).Store(&id)
	if err == nil {
		d.shown[id], d.ids[r.ID] = it, id
	}
}

// plain reports whether nothing about a request needs a second look.
func plain(r grants.Request) bool {
	if r.Domain != nil {
		return len(r.Warnings) == 0 && len(r.Domain.To) <= longest && profile.Printable(r.Domain.To) == r.Domain.To
	}
	return r.Outside == nil && r.Question == nil && len(r.Warnings) == 0 && r.ResolvedPath == r.RequestedPath && len(r.RequestedPath) <= longest && profile.Printable(r.RequestedPath) == r.RequestedPath
}

func (d *desktop) body(r grants.Request) string {
	lines := []string{profile.Printable(r.RequestedPath)}
	if r.Domain != nil {
		lines[0] = profile.Printable(r.Domain.To)
	}
	if r.Outside != nil || r.Question != nil {
		asked := ""
		if r.Question != nil {
			asked = r.Question.Text
		} else {
			asked = r.Outside.Text
		}
		lines[0] = profile.Printable(asked)
		if command := []rune(lines[0]); len(command) > longest {
			lines[0] = string(command[:longest]) + "…"
		}
	}
	if r.ResolvedPath != r.RequestedPath {
		lines = append(lines, "leads to "+profile.Printable(r.ResolvedPath))
	}
	for _, w := range r.Warnings {
		lines = append(lines, text.Line(w.Text))
	}
	if r.Reason != "" {
		reason := []rune(profile.Printable(r.Reason))
		if len(reason) > longestBy {
			reason = append(reason[:longestBy], '…')
		}
		lines = append(lines, "because "+string(reason))
	}
	lines = append(lines, "more: clai-sandbox grants review")
	text := strings.Join(lines, "\n")
	if d.markup {
		text = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
	}
	return text
}

// close takes a request off the desktop.
func (d *desktop) close(ctx context.Context, request string) {
	id, ok := d.ids[request]
	if !ok {
		return
	}
	delete(d.ids, request)
	delete(d.shown, id)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	d.conn.Object(service, object).CallWithContext(ctx, service+".CloseNotification", 0, id)
}

func (d *desktop) closeAll() {
	for request := range d.ids {
		d.close(context.Background(), request)
	}
}

// signal takes what the person did. Any program on the bus can send such a signal to us; only those
// of the service's owner count.
func (d *desktop) signal(ctx context.Context, s *dbus.Signal) {
	if s.Sender != d.owner || s.Path != object || len(s.Body) < 2 {
		return
	}
	id, ok := s.Body[0].(uint32)
	it, known := d.shown[id]
	if !ok || !known {
		return
	}
	switch s.Name {
	case service + ".NotificationClosed":
		delete(d.shown, id)
		delete(d.ids, it.request)
	case service + ".ActionInvoked":
		key, _ := s.Body[1].(string)
		if key == "" || key != it.allow && key != it.deny {
			return
		}
		d.shown[id] = shown{request: it.request}
		d.decide(ctx, it.request, key == it.allow)
	}
}

// decide answers as a button says, if the request still is what was shown.
func (d *desktop) decide(ctx context.Context, id string, allow bool) {
	decision := grants.Decision{Kind: grants.Deny, Via: via}
	if allow {
		list, err := d.broker.Pending(ctx)
		if err != nil {
			return
		}
		found := false
		for _, r := range list {
			if r.ID == id && plain(r) {
				found = true
				decision = grants.Decision{Kind: grants.AllowOnce, Path: r.ResolvedPath, Access: r.RequestedAccess, Via: via}
				if r.Domain != nil {
					decision = grants.Decision{Kind: grants.AllowOnce, Domain: r.Domain.Rules[0].Rule, Via: via}
				}
			}
		}
		if !found {
			return
		}
	}
	d.broker.Decide(ctx, id, decision)
}

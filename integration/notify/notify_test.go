package notify

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/clairun/clai-sandbox/audit"
	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/broker"
	"github.com/clairun/clai-sandbox/grants/store"
	"github.com/clairun/clai-sandbox/profile"
)

// startBus starts a real dbus-daemon.
func startBus(t *testing.T) string {
	t.Helper()
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("no dbus-daemon: see packaging/setup.sh test")
	}
	cmd := exec.Command(daemon, "--session", "--nofork", "--nopidfile", "--print-address=1", "--address=unix:path="+filepath.Join(t.TempDir(), "bus"))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(address)
}

// standIn is in the place of a desktop's notification service, none of which can run without a
// display: it keeps what it was asked to show, and presses buttons.
type standIn struct {
	t    *testing.T
	conn *dbus.Conn
	mu   sync.Mutex
	last uint32
	open map[uint32]note
}

type note struct {
	summary, body string
	actions       []string
}

// key is that of the button with a label; empty: there is none.
func (n note) key(label string) string {
	if at := slices.Index(n.actions, label); at > 0 {
		return n.actions[at-1]
	}
	return ""
}

func (n note) labels() string {
	var list []string
	for pair := range slices.Chunk(n.actions, 2) {
		list = append(list, pair[1])
	}
	return strings.Join(list, ",")
}

func newStandIn(t *testing.T, address string) *standIn {
	t.Helper()
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	s := &standIn{t: t, conn: conn, open: map[uint32]note{}}
	if err := conn.ExportMethodTable(map[string]any{
		"GetCapabilities": func() ([]string, *dbus.Error) { return []string{"actions", "body", "body-markup"}, nil },
		"Notify": func(app string, replaces uint32, icon, summary, body string, actions []string, hints map[string]dbus.Variant, expire int32) (uint32, *dbus.Error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if _, there := s.open[replaces]; !there { // and nobody looks whose it is
				s.last++
				replaces = s.last
			}
			s.open[replaces] = note{summary, body, actions}
			return replaces, nil
		},
		"CloseNotification": func(id uint32) *dbus.Error {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.open, id)
			return nil
		},
	}, object, service); err != nil {
		t.Fatal(err)
	}
	if reply, err := conn.RequestName(service, 0); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatal(reply, err)
	}
	return s
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(15 * time.Second); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// shows waits for the one notification that is open.
func (s *standIn) shows() (id uint32, n note) {
	s.t.Helper()
	until(s.t, "a notification", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for id, n = range s.open {
		}
		return len(s.open) == 1
	})
	return id, n
}

func (s *standIn) showsNothing() {
	s.t.Helper()
	until(s.t, "no notification", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.open) == 0
	})
}

func (s *standIn) press(id uint32, key string) {
	s.t.Helper()
	if err := s.conn.Emit(object, service+".ActionInvoked", id, key); err != nil {
		s.t.Fatal(err)
	}
}

// desk is a broker with somebody who asks, and a desktop.
type desk struct {
	t       *testing.T
	home    string
	broker  *broker.Broker
	session *grants.Session
	desktop *standIn
	address string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"state", "work", "data"} {
		os.Mkdir(filepath.Join(home, dir), 0o700)
	}
	kept, _, err := store.Open(home + "/state")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kept.Close() })
	record, _ := audit.Open(home+"/state/audit.log", 0)
	t.Cleanup(func() { record.Close() })
	b, err := broker.New(broker.Options{Rules: grants.Rules{Home: home}, Store: kept, Audit: record, User: "somebody"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	d := &desk{t: t, home: home, broker: b, address: startBus(t)}
	d.desktop = newStandIn(t, d.address)
	if d.session, err = b.Open(context.Background(), grants.SessionSpec{Agent: "main", Workspace: home + "/work"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- Run(ctx, d.address, b) }()
	t.Cleanup(func() { cancel(); <-over })
	return d
}

func (d *desk) ask(path, reason string) chan grants.Answer {
	answers := make(chan grants.Answer, 1)
	go func() {
		answer, err := d.broker.Ask(context.Background(), d.session.ID, grants.Asking{Path: path, Access: profile.ReadOnly, Reason: reason})
		if err != nil {
			d.t.Error(err)
		}
		answers <- answer
	}()
	return answers
}

func TestAButtonAnswers(t *testing.T) {
	d := newDesk(t)
	answer := d.ask(d.home+"/data", "<b>now</b> & \x1bhere")
	id, n := d.desktop.shows()
	if n.summary != "main asks to read" || !strings.Contains(n.body, d.home+"/data\n") || !strings.Contains(n.body, `&lt;b&gt;now&lt;/b&gt; &amp; \x1bhere`) ||
		n.labels() != "Allow once,Deny" {
		t.Errorf("%+v", n)
	}
	d.desktop.press(id, n.key("Allow once"))
	if a := <-answer; !a.Granted || a.Scope != grants.ScopeOnce || a.Access != profile.ReadOnly {
		t.Errorf("%+v", a)
	}
	d.desktop.showsNothing()
	os.Mkdir(d.home+"/other", 0o700)
	answer = d.ask(d.home+"/other", "")
	before := n
	id, n = d.desktop.shows()
	d.desktop.press(id, before.key("Allow once")) // the key of another one
	d.desktop.press(id, n.key("Deny"))
	if a := <-answer; a.Granted {
		t.Errorf("%+v", a)
	}
	if list, err := d.broker.Log(context.Background(), 2); err != nil || list[0].Decision.Via != "desktop" {
		t.Errorf("%+v, %v", list, err)
	}
}

// What has a warning, or leads elsewhere, is not allowed by one click.
func TestWhatNeedsASecondLookHasNoButtonToAllowIt(t *testing.T) {
	d := newDesk(t)
	if err := os.Symlink(d.home+"/data", d.home+"/link"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{d.home + "/link", d.home + "/missing", d.home + "/" + strings.Repeat("n", longest)} {
		answer := d.ask(path, "")
		id, n := d.desktop.shows()
		if n.labels() != "Deny" {
			t.Errorf("%s: %+v", path, n)
		}
		for _, key := range []string{"", "allow-once", "Allow once"} { // all the same, as a broken desktop might
			d.desktop.press(id, key)
		}
		d.desktop.press(id, n.key("Deny"))
		if a := <-answer; a.Granted {
			t.Errorf("%s: %+v", path, a)
		}
		d.desktop.showsNothing()
	}
}

// Any program on the bus can send such a signal to us by our own name.
func TestOnlyTheDesktopPressesButtons(t *testing.T) {
	d := newDesk(t)
	answer := d.ask(d.home+"/data", "")
	id, n := d.desktop.shows()
	allow := n.key("Allow once")
	stranger, err := dbus.Connect(d.address)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	var names []string
	if err := stranger.BusObject().Call(busName+".ListNames", 0).Store(&names); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, ":") {
			continue
		}
		message := &dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath(object)), dbus.FieldInterface: dbus.MakeVariant(service), dbus.FieldMember: dbus.MakeVariant("ActionInvoked"),
			dbus.FieldDestination: dbus.MakeVariant(name), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(id, allow))}, Body: []any{id, allow}}
		stranger.Send(message, nil)
	}
	// It is behind those in every queue.
	d.desktop.press(id, n.key("Deny"))
	if a := <-answer; a.Granted {
		t.Errorf("%+v", a)
	}
}

// A service lets any program replace a notification: its text and buttons are that program's then,
// and the click tells the program what it was told itself.
func TestAReplacedNotificationAllowsNothing(t *testing.T) {
	d := newDesk(t)
	answer := d.ask(d.home+"/data", "")
	id, n := d.desktop.shows()
	stranger, err := dbus.Connect(d.address)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	for _, key := range []string{"allow-once", "Allow once", "allow", "default", "", "deny", "0", "1"} {
		var got uint32
		err := stranger.Object(service, object).Call(service+".Notify", 0, "updates", id, "", "Updates are ready", "", []string{key, "OK"}, map[string]dbus.Variant{}, int32(0)).Store(&got)
		if err != nil || got != id {
			t.Fatalf("%d, %v", got, err)
		}
		_, replaced := d.desktop.shows()
		d.desktop.press(id, replaced.key("OK"))
	}
	d.desktop.press(id, n.key("Deny"))
	d.desktop.press(id, n.key("Allow once")) // told to everybody by now, it counts no more
	if a := <-answer; a.Granted {
		t.Errorf("%+v", a)
	}
}

func TestWhatIsAnsweredElsewhereGoesFromTheDesktop(t *testing.T) {
	d := newDesk(t)
	answer := d.ask(d.home+"/data", "")
	d.desktop.shows()
	list, err := d.broker.Pending(context.Background())
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if _, err := d.broker.Decide(context.Background(), list[0].ID, grants.Decision{Kind: grants.Deny}); err != nil {
		t.Fatal(err)
	}
	<-answer
	d.desktop.showsNothing()
}

func TestWithoutADesktopThereIsAnErrorAtOnce(t *testing.T) {
	if err := Run(context.Background(), "unix:path=/nonexistent", nil); err == nil {
		t.Error("it connects")
	}
	if err := Run(context.Background(), startBus(t), nil); err == nil || !strings.Contains(err.Error(), "nothing shows notifications") {
		t.Error(err)
	}
}

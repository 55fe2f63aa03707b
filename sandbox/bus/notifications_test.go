package bus

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"

	"github.com/clairun/clai-sandbox/sandbox/bus/bustest"
)

// notificationService counts from 1, and lets anybody replace and close what is there, as the
// desktops' own do.
type notificationService struct {
	*bustest.Service
	mu    sync.Mutex
	next  uint32
	shown map[uint32]string // summaries
}

func serveNotifications(t *testing.T, b *bustest.Bus) *notificationService {
	t.Helper()
	s := &notificationService{Service: b.Serve(), next: 1, shown: map[uint32]string{}}
	err := s.ExportMethodTable(map[string]any{
		"Notify": func(_ string, replaces uint32, _, summary, _ string, _ []string, _ map[string]dbus.Variant, _ int32) (uint32, *dbus.Error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.shown[replaces] == "" {
				replaces = s.next
				s.next++
			}
			s.shown[replaces] = summary
			return replaces, nil
		},
		"CloseNotification": func(id uint32) *dbus.Error {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.shown, id)
			return nil
		},
		"Inhibit": func(string) (uint32, *dbus.Error) { return 1, nil },
	}, notificationsPath, notificationsFace)
	if reply, taken := s.RequestName(notificationsFace, 0); err != nil || taken != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatal(err, taken, reply)
	}
	return s
}

func (s *notificationService) texts() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.shown)
}

// notifies shows a notification, by a method that may have no interface before it.
func notifies(t *testing.T, client *dbus.Conn, to, method, name string, replaces uint32, summary string) (id uint32) {
	t.Helper()
	err := client.Object(to, notificationsPath).Call(method, 0, name, replaces, "", summary, "", []string{}, map[string]dbus.Variant{}, int32(0)).Store(&id)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestACommandReachesItsOwnNotificationsOnly(t *testing.T) {
	bus := bustest.Start(t, "")
	service := serveNotifications(t, bus)
	const notify, closes = notificationsFace + ".Notify", notificationsFace + ".CloseNotification"
	question := notifies(t, bus.Serve().Conn, notificationsFace, notify, "", 0, "the question")
	l := newListener(t, bus)
	client, other := l.connect(t), l.connect(t)
	for _, to := range []string{notificationsFace, service.Names()[0]} {
		for _, name := range []string{"", "a", "abcdefg", strings.Repeat("n", maxFields)} {
			own := notifies(t, client, to, notify, name, question, "not the question")
			if own == question {
				t.Fatalf("replaced: %s", service.texts())
			}
			if again := notifies(t, other, to, notify, name, own, "my own, later"); again != own {
				t.Errorf("%d became %d", own, again)
			}
			if err := client.Object(to, notificationsPath).Call(closes, 0, question).Err; err != nil {
				t.Error(err)
			}
			client.Object(to, notificationsPath).Call("CloseNotification", 0, question)
			if err := other.Object(to, notificationsPath).Call(closes, 0, own).Err; err != nil {
				t.Error(err)
			}
			if texts := service.texts(); texts != "map[1:the question]" {
				t.Fatalf("%s, %d bytes of a name: %s", to, len(name), texts)
			}
		}
	}
	if err := client.Object(notificationsFace, notificationsPath).Call(notificationsFace+".Inhibit", 0, "x").Err; err == nil {
		t.Error("all notifications are switched off")
	}
}

func TestACommandHearsOfItsOwnNotificationsOnly(t *testing.T) {
	bus := bustest.Start(t, "")
	service := serveNotifications(t, bus)
	question := notifies(t, bus.Serve().Conn, notificationsFace, notificationsFace+".Notify", "", 0, "the question")
	client := newListener(t, bus).connect(t)
	if err := client.AddMatchSignal(dbus.WithMatchInterface(notificationsFace)); err != nil {
		t.Fatal(err)
	}
	heard := make(chan *dbus.Signal, 10)
	client.Signal(heard)
	own := notifies(t, client, notificationsFace, notificationsFace+".Notify", "", 0, "my own")
	for _, id := range []uint32{question, own + 1, 0, own} {
		service.Emit(notificationsPath, notificationsFace+".NotificationReplied", id, "the code is 123456")
		service.Emit(notificationsPath, notificationsFace+".ActionInvoked", id, "key")
	}
	service.Emit(notificationsPath, notificationsFace+".NotificationReplied", "no number", own)
	service.Emit(notificationsPath, notificationsFace+".NotificationClosed", own, uint32(1))
	for _, want := range []string{"NotificationReplied", "ActionInvoked", "NotificationClosed"} {
		if s := <-heard; s.Name != notificationsFace+"."+want || s.Body[0] != own {
			t.Errorf("%s %v", s.Name, s.Body)
		}
	}
}

// encoded is a message as it goes over the wire.
func encoded(t *testing.T, order binary.ByteOrder, kind dbus.Type, serial uint32, headers map[dbus.HeaderField]any, body ...any) []byte {
	t.Helper()
	m := dbus.Message{Type: kind, Headers: map[dbus.HeaderField]dbus.Variant{}, Body: body}
	for field, value := range headers {
		m.Headers[field] = dbus.MakeVariant(value)
	}
	if len(body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	var text bytes.Buffer
	if err := m.EncodeTo(&text, order); err != nil {
		t.Fatal(err)
	}
	order.PutUint32(text.Bytes()[8:], serial)
	return text.Bytes()
}

func notifyCall(t *testing.T, order binary.ByteOrder, serial, replaces uint32, member, name string) []byte {
	headers := map[dbus.HeaderField]any{dbus.FieldPath: dbus.ObjectPath(notificationsPath), dbus.FieldMember: member, dbus.FieldInterface: notificationsFace}
	return encoded(t, order, dbus.TypeMethodCall, serial, headers, name, replaces, "", "", "", []string{}, map[string]dbus.Variant{}, int32(0))
}

// What is sent is judged alike in every order of bytes, and however it is cut.
func TestANotificationsNumberIsFoundHoweverItIsSent(t *testing.T) {
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		var stream, want []byte
		for i, name := range []string{"", "abc", "abcd", "a longer name"} {
			serial := uint32(i + 1)
			stream = slices.Concat(stream, notifyCall(t, order, serial, 7, "Notify", name), notifyCall(t, order, serial, 7, "Other", name))
			want = slices.Concat(want, notifyCall(t, order, serial, 0, "Notify", name), notifyCall(t, order, serial, 7, "Other", name))
		}
		closing := func(id uint32) []byte {
			return encoded(t, order, dbus.TypeMethodCall, 9, map[dbus.HeaderField]any{dbus.FieldPath: dbus.ObjectPath(notificationsPath), dbus.FieldMember: "CloseNotification"}, id)
		}
		stream, want = append(stream, closing(7)...), append(want, closing(0)...)
		for cut := 1; cut < len(stream); cut += 1 + cut/20 {
			out, in := socketPair(t)
			go func() {
				defer out.close()
				n := &notifier{shown: &shownNotifications{}, waiting: map[uint32]bool{}}
				sender := &judged{dst: out, held: &heldRights{}, judge: n.said}
				for piece := range slices.Chunk(slices.Clone(stream), cut) {
					if err := sender.send(piece, nil); err != nil {
						t.Errorf("pieces of %d: %v", cut, err)
					}
				}
			}()
			got, err := io.ReadAll(in.file)
			in.close()
			if err != nil || !sameFields(got, want) {
				t.Fatalf("pieces of %d: %q, want %q (%v)", cut, got, want, err)
			}
		}
	}
}

// sameFields compares messages whose fields have no order.
func sameFields(a, b []byte) bool {
	read := func(data []byte) (list []string) {
		for r := bytes.NewReader(data); r.Len() > 0; {
			m, err := dbus.DecodeMessage(r)
			if err != nil {
				return nil
			}
			list = append(list, fmt.Sprint(m.Type, m.Headers, m.Body))
		}
		return list
	}
	return read(a) != nil && slices.Equal(read(a), read(b))
}

// The answer to another call, whose number the command chose, makes no notification its own.
func TestOnlyTheServiceSaysWhichNotificationIsWhose(t *testing.T) {
	order := binary.LittleEndian
	show := func(serial uint32) []byte { return notifyCall(t, order, serial, 0, "Notify", "") }
	quiet := func(serial uint32) []byte {
		m := show(serial)
		m[2] |= noReplyExpected
		return m
	}
	other := func(serial uint32) []byte { return notifyCall(t, order, serial, 0, "Other", "") }
	answer := func(kind dbus.Type, body ...any) []byte {
		headers := map[dbus.HeaderField]any{dbus.FieldReplySerial: uint32(5)}
		if kind == dbus.TypeError {
			headers[dbus.FieldErrorName] = "org.example.Wrong"
		}
		return encoded(t, order, kind, 1, headers, body...)
	}
	one := answer(dbus.TypeMethodReply, uint32(1))
	for name, c := range map[string]struct {
		said   [][]byte
		answer []byte
		own    bool
	}{
		"its answer":                {[][]byte{show(5)}, one, true},
		"after others":              {[][]byte{other(3), show(4), show(5), other(6)}, one, true},
		"another call":              {[][]byte{other(5)}, one, false},
		"the serial used again":     {[][]byte{show(5), other(5)}, one, false},
		"the serial used before":    {[][]byte{other(5), show(5)}, one, false},
		"and after more":            {[][]byte{other(5), other(9), show(5)}, one, false},
		"no answer wanted":          {[][]byte{quiet(5)}, one, false},
		"an error":                  {[][]byte{show(5)}, answer(dbus.TypeError, uint32(1)), false},
		"an answer of another type": {[][]byte{show(5)}, answer(dbus.TypeMethodReply, uint32(1), uint32(1)), false},
	} {
		n := &notifier{shown: &shownNotifications{}, waiting: map[uint32]bool{}}
		for _, m := range c.said {
			if _, err := n.said(m); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if v, err := n.heard(c.answer); err != nil || v.drop || v.need > 0 {
				t.Errorf("%s: %v %v", name, v, err)
			}
		}
		if n.shown.has(1) != c.own {
			t.Errorf("%s: it is its own: %v", name, !c.own)
		}
	}
}

func TestWhatIsRememberedOfNotificationsIsBounded(t *testing.T) {
	n := &notifier{shown: &shownNotifications{}, waiting: map[uint32]bool{}}
	for i := range uint32(2 * maxNotifications) {
		n.called(header{serial: i + 1}, true)
		n.shown.add(i)
	}
	if len(n.waiting) > maxNotifying || len(n.shown.ids) > maxNotifications || n.shown.has(1) || !n.shown.has(2*maxNotifications-1) {
		t.Errorf("%d wait, %d are shown", len(n.waiting), len(n.shown.ids))
	}
}

// A header that another reader could read otherwise ends the connection.
func TestAnUnclearHeaderIsNoMessage(t *testing.T) {
	order := binary.LittleEndian
	plain := notifyCall(t, order, 1, 7, "Notify", "")
	changed := func(from, to string) []byte { return bytes.Replace(plain, []byte(from), []byte(to), 1) }
	twice := slices.Concat(plain[:messageHeader], []byte("\x03\x01s\x00\x05\x00\x00\x00Other\x00\x00\x00\x00\x00\x00\x00\x00\x00"), plain[messageHeader:])
	order.PutUint32(twice[12:], order.Uint32(twice[12:])+24)
	long := typed(messageCall, order, maxFields+8, 0)
	for name, m := range map[string][]byte{
		"a zero in a name":       changed("Notify", "Not\x00fy"),
		"another type":           changed("\x03\x01s\x00", "\x03\x01o\x00"),
		"a field without number": changed("\x03\x01s\x00", "\x00\x01s\x00"),
		"an unknown field":       changed("\x03\x01s\x00", "\x0b\x01s\x00"),
		"a member twice":         twice,
		"a long name":            changed("\x06\x00\x00\x00Notify", "\x06\x00\x00\x01Notify"),
		"other types":            changed("susssasa{sv}i", "tusssasa{sv}i"),
		"many fields":            long,
		"cut in a field":         func() []byte { m := slices.Clone(plain); order.PutUint32(m[12:], 21); return m }(),
	} {
		n := &notifier{shown: &shownNotifications{}, waiting: map[uint32]bool{}}
		if v, err := n.said(m); err == nil {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if v, err := (&notifier{shown: &shownNotifications{}, waiting: map[uint32]bool{}}).said(slices.Clone(plain)); err != nil || v.need > 0 {
		t.Errorf("%+v, %v: the others show nothing", v, err)
	}
}

func FuzzNoMessageBreaksTheNotifier(f *testing.F) {
	f.Add([]byte("l\x01\x00\x01\x00\x00\x00\x00\x01\x00\x00\x00\x08\x00\x00\x00\x01\x01o\x00\x01\x00\x00\x00"), true)
	f.Fuzz(func(t *testing.T, data []byte, inside bool) {
		if len(data) < messageHeader {
			return
		}
		n := &notifier{shown: &shownNotifications{}, waiting: map[uint32]bool{1: true}}
		judge := n.heard
		if inside {
			judge = n.said
		}
		for have := messageHeader; have <= len(data); {
			v, err := judge(data[:have])
			if err != nil || v.need <= have {
				return
			}
			if v.need > 3*maxFields {
				t.Fatalf("%d bytes are needed", v.need)
			}
			have = v.need
		}
	})
}

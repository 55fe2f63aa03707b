package bus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/bus/bustest"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/process/processtest"
)

// typed is a message of a type.
func typed(kind byte, order binary.ByteOrder, fields, body int) []byte {
	m := message(order, fields, body)
	m[1] = kind
	return m
}

// noSignals judges as a notifier does what is not a call.
func noSignals(begin []byte) (judgement, error) {
	return judgement{drop: begin[1] == messageSignal}, nil
}

// A socketPair is two ends of a connection as the relay has them.
func socketPair(t *testing.T) (a, b conn) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []*conn{&a, &b} {
		if *c, err = newConn(descriptor.File(ends[i])); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.close)
	}
	return a, b
}

// What a client may say to a filtered bus, in a stream that may be cut anywhere.
func TestSignalsAreTakenOutOfAStreamHoweverItIsCut(t *testing.T) {
	var stream, want []byte
	for i, size := range []int{0, 9, 1, 100, 8, 300, 7, 0, 33, 5} {
		m := typed(byte(1+i%4), []binary.ByteOrder{binary.LittleEndian, binary.BigEndian}[i%2], size, 2*size)
		for j := messageHeader; j < len(m); j++ {
			m[j] = byte(i)
		}
		stream = append(stream, m...)
		if m[1] != messageSignal {
			want = append(want, m...)
		}
	}
	for cut := 1; cut <= len(stream); cut++ {
		out, in := socketPair(t)
		go func() {
			defer out.close()
			sender := &judged{dst: out, held: &heldRights{}, judge: noSignals}
			for piece := range slices.Chunk(stream, cut) {
				if err := sender.send(piece, nil); err != nil {
					t.Errorf("pieces of %d: %v", cut, err)
				}
			}
		}()
		got, err := io.ReadAll(in.file)
		in.close()
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("pieces of %d: %d bytes, want %d (%v)", cut, len(got), len(want), err)
		}
	}
}

func TestWhatIsNoMessageEndsAFilteredConnection(t *testing.T) {
	for _, text := range []string{
		string(typed(0, binary.LittleEndian, 8, 0)), string(typed(5, binary.LittleEndian, 8, 0)), string(typed(255, binary.BigEndian, 8, 0)),
		"AUTH EXTERNAL 30\r\nBEGIN\r\n", "l\x01\x00\x01\xff\xff\xff\xff\x01\x00\x00\x00\xff\xff\xff\xff",
	} {
		out, _ := socketPair(t)
		if err := (&judged{dst: out, held: &heldRights{}, judge: noSignals}).send([]byte(text), nil); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

// Descriptors go with the message that they came with, and with a signal nowhere.
func TestDescriptorsOfASignalAreDropped(t *testing.T) {
	call, signal := typed(messageCall, binary.LittleEndian, 24, 40), typed(messageSignal, binary.LittleEndian, 24, 40)
	for name, c := range map[string]struct {
		parts  [][]byte // each with a descriptor
		passed int
	}{
		"a call":                      {[][]byte{call}, 1},
		"a signal":                    {[][]byte{signal}, 0},
		"a signal, then a call":       {[][]byte{signal, call}, 1},
		"a call behind a signal":      {[][]byte{slices.Concat(signal, call)}, 1},
		"a signal behind a call":      {[][]byte{slices.Concat(call, signal)}, 0},
		"the beginning of a call":     {[][]byte{call[:3], call[3:]}, 2},
		"the beginning of a signal":   {[][]byte{signal[:3], signal[3:20], signal[20:]}, 0},
		"one that is never completed": {[][]byte{call[:3]}, 0},
	} {
		before := processtest.Descriptors(t)
		func() {
			out, in := socketPair(t)
			defer out.close()
			defer in.close()
			sender := &judged{dst: out, held: &heldRights{}, judge: noSignals}
			for _, part := range c.parts {
				fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
				if err == nil {
					err = sender.send(part, []int{fd})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			sender.close()
			out.close()
			passed := 0
			for {
				_, rights, err := in.receive(make([]byte, 1024), make([]byte, rightsSpace))
				passed += len(rights)
				closeAll(rights)
				if err != nil {
					break
				}
			}
			if passed != c.passed {
				t.Errorf("%s: %d descriptors, want %d", name, passed, c.passed)
			}
		}()
		if after := processtest.Descriptors(t); after != before {
			t.Errorf("%s: %d descriptors are open, and before there were %d", name, after, before)
		}
	}
}

// A message that never comes as a whole is waited for, with its descriptors: not with as many as
// this process may open.
func TestABusClientCannotMakeTheLauncherHoldDescriptors(t *testing.T) {
	before, ended := processtest.Descriptors(t), 0
	held := &heldRights{}
	var senders []*judged
	for range maxConnections {
		sender := &judged{held: held, judge: noSignals}
		senders = append(senders, sender)
		for range messageHeader - 1 {
			rights := make([]int, 16)
			for i := range rights {
				var err error
				if rights[i], err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
					t.Fatal(err)
				}
			}
			if err := sender.send([]byte("l"), rights); err != nil {
				ended++
				break
			}
		}
	}
	if after := processtest.Descriptors(t); after > before+maxHeldRights || ended == 0 {
		t.Errorf("%d descriptors are open, and before there were %d; %d connections ended", after, before, ended)
	}
	for _, sender := range senders {
		sender.close()
	}
	if after := processtest.Descriptors(t); after != before || held.n.Load() != 0 {
		t.Errorf("%d descriptors are open, and before there were %d; %d are counted", after, before, held.n.Load())
	}
}

// forgeries are signals that programs of the session believe, or that look so to one that is not
// careful.
func forgeries(to string) []dbus.Message {
	var list []dbus.Message
	for _, s := range []struct{ path, face, member string }{
		{"/org/freedesktop/Notifications", "org.freedesktop.Notifications", "ActionInvoked"},
		{"/org/freedesktop/DBus", "org.freedesktop.DBus", "NameOwnerChanged"},
		{"/org/freedesktop/secrets", "org.freedesktop.Secret.Service", "CollectionChanged"},
		{"/org/freedesktop/portal/desktop", "org.freedesktop.portal.Settings", "SettingChanged"},
		{"/x", "org.example.Anything", "Happened"},
	} {
		headers := map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath(s.path)), dbus.FieldInterface: dbus.MakeVariant(s.face),
			dbus.FieldMember: dbus.MakeVariant(s.member), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf("")),
		}
		if to != "" {
			headers[dbus.FieldDestination] = dbus.MakeVariant(to)
		}
		list = append(list, dbus.Message{Type: dbus.TypeSignal, Headers: headers, Body: []any{"forged"}})
	}
	return list
}

func TestNoSignalOfACommandsGoesOut(t *testing.T) {
	bus := bustest.Start(t, "")
	service := bus.Serve("org.freedesktop.Notifications")
	if err := service.AddMatchSignal(); err != nil {
		t.Fatal(err)
	}
	heard := make(chan *dbus.Signal, 100)
	service.Signal(heard)
	emit := func(client *dbus.Conn, to string) {
		for _, m := range forgeries(to) {
			m.Flags = dbus.FlagNoReplyExpected
			if call := client.Send(&m, nil); call != nil && call.Err != nil {
				t.Fatal(call.Err)
			}
		}
	}
	inside, outside := newListener(t, bus).connect(t), bus.Serve()
	object := inside.Object("org.freedesktop.Notifications", "/org/freedesktop/Notifications")
	var text string
	for _, to := range []string{"", "org.freedesktop.Notifications", service.Names()[0]} {
		emit(inside, to)
		// What is said afterwards has come, so what was said before would have.
		if err := object.Call("org.freedesktop.Notifications.GetServerInformation", 0, "hello").Store(&text); err != nil || text != "hello" {
			t.Fatalf("%q %v", text, err)
		}
	}
	emit(outside.Conn, "")
	for _, sender := range []string{outside.Names()[0], outside.Names()[0]} {
		s := <-heard
		for s.Sender == "org.freedesktop.DBus" {
			s = <-heard
		}
		if s.Sender != sender {
			t.Errorf("%s of a command's was heard, to %q", s.Name, s.Path)
		}
	}
}

func TestTheKeyringsThemselvesAreNotTheCommandsToChange(t *testing.T) {
	bus := bustest.Start(t, "")
	service := bus.Serve("org.freedesktop.secrets")
	client := newListener(t, bus).connect(t)
	for member, reaches := range map[string]bool{
		"Service.SetAlias": false, "Service.CreateCollection": false, "Collection.Delete": false, "Service.ChangeLock": false,
		"Service.OpenSession": true, "Service.SearchItems": true, "Service.Unlock": true, "Service.GetSecrets": true, "Service.ReadAlias": true,
		"Collection.SearchItems": true, "Collection.CreateItem": true, "Item.Delete": true, "Item.GetSecret": true, "Prompt.Prompt": true,
	} {
		before := len(service.Called())
		client.Object("org.freedesktop.secrets", "/org/freedesktop/secrets/collection/login").Call("org.freedesktop.Secret."+member, 0)
		if reached := len(service.Called()) > before; reached != reaches {
			t.Errorf("%s: reached %v, want %v", member, reached, reaches)
		}
	}
}

// signalBytes is a signal as it goes over the wire, with a line's end in it.
func signalBytes(t *testing.T) []byte {
	t.Helper()
	m := forgeries("")[0]
	m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(""))
	m.Body = []any{"\r\n\r\n"}
	var text bytes.Buffer
	if err := m.EncodeTo(&text, binary.LittleEndian); err != nil {
		t.Fatal(err)
	}
	return bytes.Replace(text.Bytes(), []byte{0, 0, 0, 0}, []byte{9, 0, 0, 0}, 1) // its serial
}

// Who does not say plainly where the authentication ends could send messages before we look at
// them, or in what we take for one message.
func TestNoSignalGoesOutPastTheAuthentication(t *testing.T) {
	bus := bustest.Start(t, "")
	service := bus.Serve("org.freedesktop.Notifications")
	if err := service.AddMatchSignal(); err != nil {
		t.Fatal(err)
	}
	heard := make(chan *dbus.Signal, 100)
	service.Signal(heard)
	l := newListener(t, bus)
	signal := signalBytes(t)
	inside := typed(messageCall, binary.LittleEndian, 8, 2000)
	copy(inside[messageHeader+8:], "\r\nBEGIN\r\n"+string(signal))
	auth := fmt.Sprintf("\x00AUTH EXTERNAL %x\r\n", fmt.Sprint(os.Getuid()))
	for name, said := range map[string]string{
		"more behind the word":        auth + "BEGIN x\r\n" + string(signal) + "\n",
		"a tab behind it":             auth + "BEGIN\tx\r\n" + string(signal) + "\n",
		"a bare line's end before it": auth + "x\nBEGIN\r\n" + string(inside),
		"a bare return":               auth + "x\rBEGIN\r\n" + string(inside),
		"a zero byte in it":           auth + "\x00BEGIN\r\n" + string(inside),
		"a line without its end":      auth + "BEGIN\n" + string(inside),
		"a word that is longer":       auth + "BEGINNING\r\n" + string(inside),
		"not ASCII":                   auth + "\xc3\xa4BEGIN\r\n" + string(inside),
	} {
		conn := l.knock(t)
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		io.WriteString(conn, said)
		if text, err := io.ReadAll(conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: it is open, after %q (%v)", name, text, err)
		}
		conn.Close()
	}
	outside := bus.Serve()
	outside.Emit("/x", "org.example.Anything.Happened")
	for s := range heard {
		if s.Sender == outside.Names()[0] {
			break
		}
		if s.Sender != "org.freedesktop.DBus" {
			t.Errorf("%s of a command's was heard", s.Name)
		}
	}
}

package strangers

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

func pipe(t *testing.T, l *Listener) *Conn {
	ours, theirs := net.Pipe()
	t.Cleanup(func() { theirs.Close() })
	return &Conn{Conn: ours, listener: l}
}

func TestStrangersMakeRoomForWhoComesLater(t *testing.T) {
	l := &Listener{Most: 20}
	var first *Conn
	for range 10 * l.Most {
		c := pipe(t, l)
		if first == nil {
			first = c
		}
		if !l.take(c) {
			t.Fatal("a stranger keeps another out")
		}
		if l.open > l.Most || len(l.strangers) > l.Most/2 {
			t.Fatalf("%d are open, %d of strangers", l.open, len(l.strangers))
		}
	}
	if first.Close() == nil {
		t.Error("the first has not had to go")
	}
	for range l.Most + 1 { // with those that are known, there is an end
		if c := pipe(t, l); l.take(c) {
			c.Known()
		}
	}
	if l.open != l.Most || len(l.strangers) != 0 {
		t.Errorf("%d are open, %d of strangers", l.open, len(l.strangers))
	}
}

// What a command can take of the user's shared means ends no listener.
type failing struct {
	net.Listener
	errors []error
}

func (f *failing) Accept() (net.Conn, error) {
	err := f.errors[0]
	f.errors = f.errors[1:]
	return nil, err
}

func TestAListenerOutlivesWhatCannotBeTaken(t *testing.T) {
	f := &failing{errors: []error{unix.ENOSPC, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.ECONNABORTED, net.ErrClosed}}
	if conn, err := (&Listener{Listener: f}).Accept(); conn != nil || err != net.ErrClosed || len(f.errors) > 0 {
		t.Errorf("%v, %v; not asked again: %v", conn, err, f.errors)
	}
}

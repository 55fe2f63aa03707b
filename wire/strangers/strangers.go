// Package strangers takes connections at an address that anybody reaches. Who has not shown yet who
// they are is a stranger, and makes room for who comes later: so nobody keeps those out who can
// show it, however many connections they make.
package strangers

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"
)

// acceptPause is how long nothing is taken when there is no room for a connection, of memory,
// descriptors or watches.
const acceptPause = 20 * time.Millisecond

// A Listener takes connections, and is never held up by one. At most half of Most are strangers';
// the one that has been there longest has to go.
type Listener struct {
	net.Listener
	Most   int
	Refuse func(net.Conn) bool // who is not even a stranger; nil: nobody

	mu        sync.Mutex
	open      int
	strangers []*Conn // the first of them came first
}

// A Conn is a connection that counts.
type Conn struct {
	net.Conn
	listener *Listener
	closed   sync.Once
}

// Accept waits for a connection, which is a *Conn. The only error is that of a listener that is
// closed.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil, err
		case err != nil:
			time.Sleep(acceptPause)
			continue
		}
		c := &Conn{Conn: conn, listener: l}
		if (l.Refuse == nil || !l.Refuse(conn)) && l.take(c) {
			return c, nil
		}
		conn.Close()
	}
}

// take counts a connection, and ends that of another stranger where there is no room.
func (l *Listener) take(c *Conn) bool {
	l.mu.Lock()
	var first *Conn
	full := l.open >= l.Most
	if len(l.strangers) > 0 && (full || len(l.strangers) >= l.Most/2) {
		first, full = l.strangers[0], false
	}
	if !full {
		l.open++
		l.strangers = append(l.strangers, c)
	}
	l.mu.Unlock()
	if first != nil {
		first.Close()
	}
	return !full
}

// Known takes a connection out of the strangers': it has shown who it is, and keeps its room.
func (c *Conn) Known() {
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := slices.Index(l.strangers, c); at >= 0 {
		l.strangers = slices.Delete(l.strangers, at, at+1)
	}
}

// Close ends a connection, once.
func (c *Conn) Close() error {
	err := net.ErrClosed
	c.closed.Do(func() {
		c.Known()
		c.listener.mu.Lock()
		c.listener.open--
		c.listener.mu.Unlock()
		err = c.Conn.Close()
	})
	return err
}

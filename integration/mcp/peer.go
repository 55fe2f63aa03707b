package mcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/clairun/clai-sandbox/integration/peer"
)

// ownListener takes connections, and is never held up by one: a command in a sandbox could make as many as it likes. At a unix socket it
// takes those of the same user outside of sandboxes. By TCP that costs a look at all processes, so it comes after the token (see admit);
// until then a connection is a stranger's, and where there are too many, the one that has been there longest has to go.
type ownListener struct {
	net.Listener

	mu        sync.Mutex
	open      int
	strangers []*ownConn // the first of them came first
	told      time.Time  // of a refusal
}

const (
	// maxHTTPConnections leave descriptors for the sandboxes, whoever knocks.
	maxHTTPConnections = 4 * maxSittings
	maxStrangers       = maxHTTPConnections / 2
	// acceptPause is how long nothing is taken when there is no room for a connection, of memory, descriptors or watches.
	acceptPause = 20 * time.Millisecond
)

// An ownConn is a connection that counts.
type ownConn struct {
	net.Conn
	listener *ownListener
	closed   sync.Once
	checked  sync.Once
	why      error // it may not call
}

// tellEvery is how often a refused client is told of: it may come back at once, and the messages go to somebody's log.
const tellEvery = time.Minute

func (l *ownListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil, err
		case err != nil:
			time.Sleep(acceptPause)
			continue
		}
		if _, isUnix := conn.(*net.UnixConn); isUnix {
			if err := checkPeer(conn); err != nil {
				conn.Close()
				l.tell(err)
				continue
			}
		}
		c := &ownConn{Conn: conn, listener: l}
		if l.take(c) {
			return c, nil
		}
		conn.Close()
	}
}

// take counts a connection, and ends that of another stranger where there is no room.
func (l *ownListener) take(c *ownConn) bool {
	l.mu.Lock()
	var first *ownConn
	full := l.open >= maxHTTPConnections
	if len(l.strangers) > 0 && (full || len(l.strangers) >= maxStrangers) {
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

// known takes a connection out of the strangers'.
func (l *ownListener) known(c *ownConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := slices.Index(l.strangers, c); at >= 0 {
		l.strangers = slices.Delete(l.strangers, at, at+1)
	}
}

func (l *ownListener) tell(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.told) > tellEvery {
		l.told = time.Now()
		fmt.Fprintf(os.Stderr, "clai-sandbox: a client was refused: %v\n", err)
	}
}

func (c *ownConn) Close() error {
	err := net.ErrClosed
	c.closed.Do(func() {
		c.listener.known(c)
		c.listener.mu.Lock()
		c.listener.open--
		c.listener.mu.Unlock()
		err = c.Conn.Close()
	})
	return err
}

// admit says why a connection may not be used that has brought the token, and keeps one that may.
func (c *ownConn) admit() error {
	c.checked.Do(func() {
		if _, isUnix := c.Conn.(*net.UnixConn); !isUnix {
			c.why = checkPeer(c.Conn)
		}
		if c.why == nil {
			c.listener.known(c)
		} else {
			c.listener.tell(c.why)
		}
	})
	return c.why
}

// connKey is where a request has its connection.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// checkPeer says why the process at the other end may not call: it is another user's, or in another mount or user
// namespace than this one, as a command in a sandbox is, to which a granted directory shows the socket.
func checkPeer(conn net.Conn) error {
	if c, ok := conn.(*net.TCPConn); ok {
		return checkTCPPeer(c.LocalAddr().(*net.TCPAddr).AddrPort(), c.RemoteAddr().(*net.TCPAddr).AddrPort())
	}
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return errors.New("it is at no socket that is known")
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var why error
	if err := raw.Control(func(fd uintptr) { why = peer.Check(int(fd)) }); err != nil {
		return err
	}
	return why
}

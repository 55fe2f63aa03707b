package mcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/clairun/clai-sandbox/integration/peer"
	"github.com/clairun/clai-sandbox/wire/strangers"
)

const (
	// maxHTTPConnections leave descriptors for the sandboxes, whoever knocks.
	maxHTTPConnections = 4 * maxSittings
	maxStrangers       = maxHTTPConnections / 2
	// tellEvery is how often a refused client is told of: it may come back at once, and the
	// messages go to somebody's log.
	tellEvery = time.Minute
)

// ownListener takes connections: at a unix socket those of the same user outside of sandboxes. By
// TCP that costs a look at all processes, so it comes after the token (see admit); until then a
// connection is a stranger's.
type ownListener struct {
	strangers.Listener

	mu   sync.Mutex
	told time.Time // of a refusal
}

func own(listener net.Listener) *ownListener {
	l := &ownListener{Listener: strangers.Listener{Listener: listener, Most: maxHTTPConnections}}
	l.Refuse = func(conn net.Conn) bool {
		if _, isUnix := conn.(*net.UnixConn); !isUnix {
			return false
		}
		err := checkPeer(conn)
		l.tell(err)
		return err != nil
	}
	return l
}

// tell tells of a refusal.
func (l *ownListener) tell(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && time.Since(l.told) > tellEvery {
		l.told = time.Now()
		fmt.Fprintf(os.Stderr, "clai-sandbox: a client was refused: %v\n", err)
	}
}

// An ownConn is what is known of a connection.
type ownConn struct {
	*strangers.Conn
	listener *ownListener
	checked  sync.Once
	why      error // it may not call
}

// admit says why a connection may not be used that has brought the token, and keeps one that may.
func (c *ownConn) admit() error {
	c.checked.Do(func() {
		if _, isUnix := c.Conn.Conn.(*net.UnixConn); !isUnix {
			c.why = checkPeer(c.Conn.Conn)
		}
		if c.why == nil {
			c.Known()
		}
		c.listener.tell(c.why)
	})
	return c.why
}

// connKey is where a request has its connection.
type connKey struct{}

func (l *ownListener) withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, &ownConn{Conn: c.(*strangers.Conn), listener: l})
}

// checkPeer says why the process at the other end may not call: it is another user's, or in another
// mount or user namespace than this one, as a command in a sandbox is, to which a granted directory
// shows the socket.
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

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

	"golang.org/x/sys/unix"
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
	if err := raw.Control(func(fd uintptr) { why = checkPeerOf(int(fd)) }); err != nil {
		return err
	}
	return why
}

func checkPeerOf(socket int) error {
	peer, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	switch {
	case err != nil:
		return err
	case int(peer.Uid) != os.Getuid():
		return fmt.Errorf("it is user %d's", peer.Uid)
	case peer.Pid <= 0:
		return errors.New("its process is not seen from here")
	}
	// The number of a process that has ended may be another's by now; its descriptor is not (Linux 6.5).
	process, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		process, err = unix.PidfdOpen(int(peer.Pid), 0)
	}
	if err != nil {
		return fmt.Errorf("process %d has ended", peer.Pid)
	}
	defer unix.Close(process)
	if err := checkNamespaces(int(peer.Pid)); err != nil {
		return err
	}
	if ended(process) {
		return fmt.Errorf("process %d has ended", peer.Pid)
	}
	return nil
}

// checkNamespaces refuses a process that is in another mount or user namespace than this one.
func checkNamespaces(pid int) error {
	for _, name := range []string{"mnt", "user"} {
		same, err := sameNamespace(pid, name)
		if err != nil {
			return fmt.Errorf("whether process %d is in a sandbox cannot be told: %w", pid, err)
		}
		if !same {
			return fmt.Errorf("process %d is in another %s namespace, as one in a sandbox is", pid, name)
		}
	}
	return nil
}

func sameNamespace(pid int, name string) (bool, error) {
	var ours, theirs unix.Stat_t
	if err := unix.Stat("/proc/self/ns/"+name, &ours); err != nil {
		return false, err
	}
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/%s", pid, name), &theirs); err != nil {
		return false, err
	}
	return ours.Dev == theirs.Dev && ours.Ino == theirs.Ino, nil
}

func ended(process int) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, 0)
	return err != nil || n > 0
}

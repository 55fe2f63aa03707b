package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/grants"
)

// Listen makes a socket that only its owner can reach. A socket that nobody listens on any more is replaced: whoever
// calls this holds the lock that makes it the only one.
func Listen(path string) (net.Listener, error) {
	if err := ownDirectory(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("%s: something is there that is no socket", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	short, done, err := grants.ShortSocketPath(path)
	if err != nil {
		return nil, err
	}
	defer done()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // by then another may have taken the name
	// The directory keeps others out until this is done.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// ownDirectory makes a directory that only its owner enters, or makes sure of one.
func ownDirectory(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || int(stat.Uid) != os.Getuid() {
		return fmt.Errorf("%s: is not a directory of our own", dir)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return os.Chmod(dir, 0o700)
	}
	return nil
}

// A guarded listener lets in only the user that this process is, and only so many at once.
type guarded struct {
	net.Listener
	session string // of an asking-only socket
	room    chan struct{}

	mu    sync.Mutex
	conns map[*guardedConn]bool
}

func guard(l net.Listener, session string, most int) *guarded {
	return &guarded{Listener: l, session: session, room: make(chan struct{}, most), conns: map[*guardedConn]bool{}}
}

// Accept waits for room before it takes a connection: the kernel queues, and refuses, what is too many.
func (g *guarded) Accept() (net.Conn, error) {
	for {
		g.room <- struct{}{}
		conn, err := g.Listener.Accept()
		if err != nil {
			<-g.room
			return nil, err
		}
		if uid, err := peerOf(conn); err != nil || uid != os.Getuid() {
			conn.Close()
			<-g.room
			continue
		}
		c := &guardedConn{Conn: conn, from: g}
		g.mu.Lock()
		g.conns[c] = true
		g.mu.Unlock()
		return c, nil
	}
}

// closeAll ends the listener and every connection that came through it.
func (g *guarded) closeAll() {
	g.Listener.Close()
	g.mu.Lock()
	list := make([]*guardedConn, 0, len(g.conns))
	for c := range g.conns {
		list = append(list, c)
	}
	g.mu.Unlock()
	for _, c := range list {
		c.Close()
	}
}

type guardedConn struct {
	net.Conn
	from *guarded
	once sync.Once
}

func (c *guardedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.from.mu.Lock()
		delete(c.from.conns, c)
		c.from.mu.Unlock()
		<-c.from.room
	})
	return err
}

// peerOf is the user on the other end, as the kernel has it.
func peerOf(conn net.Conn) (int, error) {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, errors.New("not a unix socket")
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) { peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if peerErr != nil {
		return 0, peerErr
	}
	return int(peer.Uid), nil
}

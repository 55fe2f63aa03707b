package socket

import (
	"errors"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A Guarded listener lets in only the user that this process is, and only so many at once.
type Guarded struct {
	net.Listener
	Name string // for whoever answers: through which listener a connection came

	admit func(Peer) bool
	room  chan struct{}

	mu    sync.Mutex
	conns map[*guardedConn]bool
}

// Guard keeps others out of a listener of unix sockets. Where admit is not nil, it says of each process of the same user whether it is let in.
func Guard(l net.Listener, name string, most int, admit func(Peer) bool) *Guarded {
	return &Guarded{Listener: l, Name: name, admit: admit, room: make(chan struct{}, most), conns: map[*guardedConn]bool{}}
}

// Accept waits for room before it takes a connection: the kernel queues, and refuses, what is too many.
func (g *Guarded) Accept() (net.Conn, error) {
	for {
		g.room <- struct{}{}
		conn, err := g.Listener.Accept()
		if err != nil {
			<-g.room
			return nil, err
		}
		if peer, err := PeerOf(conn); err != nil || peer.UID != os.Getuid() || g.admit != nil && !g.admits(conn, peer) {
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

// admits asks about the process that connected, and about no other that has got its number since.
func (g *Guarded) admits(conn net.Conn, peer Peer) bool {
	process, err := processOf(conn, peer)
	if err != nil {
		return false
	}
	defer unix.Close(process)
	if !g.admit(peer) {
		return false
	}
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, 0)
	return err == nil && n == 0 // it has not ended, so the number was its own all the time
}

// processOf is a descriptor of the process on the other end (pidfd_open(2)). Before Linux 6.5 it is of the one that has its number now.
func processOf(conn net.Conn, peer Peer) (int, error) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return -1, err
	}
	process := -1
	var why error
	if err := raw.Control(func(fd uintptr) { process, why = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD) }); err != nil {
		return -1, err
	}
	if errors.Is(why, unix.ENOPROTOOPT) {
		process, why = unix.PidfdOpen(peer.PID, 0)
	}
	return process, why
}

// CloseAll ends the listener and every connection that came through it.
func (g *Guarded) CloseAll() {
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
	from *Guarded
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

// A Peer is the process on the other end of a connection, as it was when it connected.
type Peer struct{ PID, UID int }

// PeerOf asks the kernel who is on the other end.
func PeerOf(conn net.Conn) (Peer, error) {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return Peer{}, errors.New("not a unix socket")
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var peer *unix.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) { peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return Peer{}, err
	}
	if peerErr != nil {
		return Peer{}, peerErr
	}
	return Peer{PID: int(peer.Pid), UID: int(peer.Uid)}, nil
}

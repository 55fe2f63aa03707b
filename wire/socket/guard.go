package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Guarded listener lets in only the user that this process is, and only so many at once.
type Guarded struct {
	net.Listener
	Name string // for whoever answers: through which listener a connection came
	// Refusal is what a process is told that is not let in, by why. Nil: nothing.
	Refusal func(why error) []byte

	admit    func(Peer) error
	room     chan struct{}
	refusing chan struct{}

	mu    sync.Mutex
	conns map[*guardedConn]bool
}

// Of those that are refused, so many at once hear why, and each has so long to listen.
const (
	maxRefusing  = 16
	refusingTime = time.Second
	maxUnheard   = 64 << 10
)

// Guard keeps others out of a listener of unix sockets. Where admit is not nil, it says of each
// process of the same user why it is not let in.
func Guard(l net.Listener, name string, most int, admit func(Peer) error) *Guarded {
	return &Guarded{Listener: l, Name: name, admit: admit, room: make(chan struct{}, most), refusing: make(chan struct{}, maxRefusing), conns: map[*guardedConn]bool{}}
}

// Accept waits for room before it takes a connection: the kernel queues, and refuses, what is too
// many.
func (g *Guarded) Accept() (net.Conn, error) {
	for {
		g.room <- struct{}{}
		conn, err := g.Listener.Accept()
		if err != nil {
			<-g.room
			return nil, err
		}
		peer, err := PeerOf(conn)
		if err != nil || peer.UID != os.Getuid() {
			conn.Close()
			<-g.room
			continue
		}
		if g.admit != nil {
			if why := g.admits(conn, peer); why != nil {
				g.refuse(conn, why)
				<-g.room
				continue
			}
		}
		c := &guardedConn{Conn: conn, from: g}
		g.mu.Lock()
		g.conns[c] = true
		g.mu.Unlock()
		return c, nil
	}
}

// refuse ends a connection. What was asked is read, so that the answer is: else there is an error
// in its place.
func (g *Guarded) refuse(conn net.Conn, why error) {
	if g.Refusal != nil {
		select {
		case g.refusing <- struct{}{}:
			go func() {
				defer func() { conn.Close(); <-g.refusing }()
				conn.SetDeadline(time.Now().Add(refusingTime))
				// A client of HTTP takes what comes before it has asked for no answer.
				if _, err := conn.Read(make([]byte, 1)); err != nil {
					return
				}
				if _, err := conn.Write(g.Refusal(why)); err == nil && conn.(*net.UnixConn).CloseWrite() == nil {
					io.Copy(io.Discard, io.LimitReader(conn, maxUnheard))
				}
			}()
			return
		default:
		}
	}
	conn.Close()
}

// errGone is said of a process that has ended: its number may be another's.
var errGone = errors.New("the process that connected has ended")

// admits asks about the process that connected, and about no other that has got its number since.
func (g *Guarded) admits(conn net.Conn, peer Peer) error {
	process, err := processOf(conn, peer)
	if err != nil {
		return err
	}
	defer unix.Close(process)
	if err := g.admit(peer); err != nil {
		return err
	}
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, 0); err != nil || n != 0 {
		return errGone
	}
	return nil
}

// processOf is a descriptor of the process on the other end (pidfd_open(2)). Before Linux 6.5 it is
// of the one that has its number now.
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

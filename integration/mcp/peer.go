package mcp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ownListener takes connections of the same user only at a unix socket, and none from a sandbox anywhere.
type ownListener struct {
	net.Listener
	told time.Time // of a refusal; Accept is called by one at a time
}

// tellEvery is how often a refused client is told of: it may come back at once, and the messages go to somebody's log.
const tellEvery = time.Minute

func (l *ownListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if err = checkPeer(conn); err == nil {
			return conn, nil
		}
		conn.Close()
		if time.Since(l.told) > tellEvery {
			l.told = time.Now()
			fmt.Fprintf(os.Stderr, "clai-sandbox: a client was refused: %v\n", err)
		}
	}
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

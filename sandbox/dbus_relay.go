package sandbox

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A busConn is one end of a relayed connection. It carries bytes, and the descriptors that come with them (unix(7),
// SCM_RIGHTS): the portals hand out files.
type busConn struct {
	file *os.File
	raw  syscall.RawConn
}

const (
	busBuffer = 16 << 10 // bytes that are under way in one direction of one connection
	maxRights = 253      // SCM_MAX_FD: the kernel passes no more at once
	busLinger = 20 * time.Millisecond
)

var rightsSpace = unix.CmsgSpace(maxRights * 4)

// newBusConn takes a connected socket over.
func newBusConn(d descriptor) (busConn, error) {
	if err := unix.SetNonblock(int(d), true); err != nil {
		d.close()
		return busConn{}, err
	}
	file := os.NewFile(uintptr(d), "bus")
	raw, err := file.SyscallConn()
	return busConn{file, raw}, err
}

func (c busConn) close() { c.file.Close() }

// relay carries everything both ways until the server has ended the connection, which it does when the client has. A
// client may say something and be gone at once: what it said still goes to the server, and the server's answers to nobody.
// xdg-dbus-proxy itself forgets what it has not passed on yet when its client goes, so it is told a little later.
func relay(client, server busConn) {
	if !handshake(client, server) {
		return
	}
	var up sync.WaitGroup
	up.Go(func() {
		var spoken time.Time
		pump(server, client, &spoken)
		time.Sleep(time.Until(spoken.Add(busLinger)))
		server.raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_WR) })
	})
	if gone := pump(client, server, new(time.Time)); gone {
		server.drain()
	}
	client.close()
	server.close()
	up.Wait()
}

// handshake carries the authentication ("Authentication Protocol" in the D-Bus specification), which is lines, each with
// its answer up to the last one. Clients as sd-bus do not wait for the answers, and some versions of xdg-dbus-proxy then
// take those for messages: so the lines go one at a time. It decides nothing, it only waits.
func handshake(client, server busConn) bool {
	buffer, held := make([]byte, busBuffer), 0
	for {
		end := bytes.IndexByte(buffer[:held], '\n') + 1
		if end == 0 {
			if held == len(buffer) {
				return false // no line is that long
			}
			n, rights, err := client.receive(buffer[held:], make([]byte, rightsSpace))
			closeAll(rights)
			if err != nil || rights != nil {
				return false // descriptors are for messages, and a client asks first whether it may send any
			}
			held += n
			continue
		}
		line := buffer[:end]
		begins := bytes.Equal(line, []byte("BEGIN\r\n"))
		if begins {
			line = buffer[:held] // and what it has said since
		}
		if server.send(line, nil) != nil {
			return false
		}
		if begins {
			return true
		}
		held = copy(buffer, buffer[end:held])
		if !answer(client, server) {
			return false
		}
	}
}

// answer carries one line to the client.
func answer(client, server busConn) bool {
	line := make([]byte, 512)
	for {
		n, rights, err := server.receive(line, make([]byte, rightsSpace))
		closeAll(rights)
		if err != nil || client.send(line[:n], nil) != nil {
			return false
		}
		if line[n-1] == '\n' {
			return true
		}
	}
}

// pump carries what comes from src to dst, at the pace of the slower one, until one of them ends. It reports whether that
// was dst, and keeps the time at which something was carried last.
func pump(dst, src busConn, last *time.Time) (gone bool) {
	data, control := make([]byte, busBuffer), make([]byte, rightsSpace)
	for {
		n, rights, err := src.receive(data, control)
		if err == nil {
			gone = dst.send(data[:n], rights) != nil
			*last = time.Now()
		}
		closeAll(rights)
		if err != nil || gone {
			return gone
		}
	}
}

// drain reads to the end.
func (c busConn) drain() {
	data, control := make([]byte, busBuffer), make([]byte, rightsSpace)
	for {
		_, rights, err := c.receive(data, control)
		closeAll(rights)
		if err != nil {
			return
		}
	}
}

// receive reads some bytes and the descriptors that came with them, which are the caller's to close.
func (c busConn) receive(data, control []byte) (n int, rights []int, err error) {
	var controls, flags int
	waited := c.raw.Read(func(fd uintptr) bool {
		n, controls, flags, _, err = unix.Recvmsg(int(fd), data, control, unix.MSG_CMSG_CLOEXEC)
		return !again(err)
	})
	if waited != nil {
		return 0, nil, waited
	}
	if err != nil {
		return 0, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:controls])
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
			rights = append(rights, fds...)
		}
	}
	switch {
	case err != nil:
		return 0, rights, err
	case flags&unix.MSG_CTRUNC != 0: // this process can open no more files; without them the message would be another one
		return 0, rights, unix.EMFILE
	case n == 0:
		return 0, rights, io.EOF
	}
	return n, rights, nil
}

// send writes bytes, and descriptors with the first of them.
func (c busConn) send(data []byte, rights []int) error {
	var control []byte
	if len(rights) > 0 {
		control = unix.UnixRights(rights...)
	}
	for len(data) > 0 {
		var n int
		var err error
		waited := c.raw.Write(func(fd uintptr) bool {
			n, err = unix.SendmsgN(int(fd), data, control, nil, unix.MSG_NOSIGNAL)
			return !again(err)
		})
		if err := errors.Join(waited, err); err != nil {
			return err
		}
		data, control = data[n:], nil
	}
	return nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// again reports whether a call is to be made again when the socket is ready.
func again(err error) bool { return err == unix.EAGAIN || err == unix.EINTR }

package publish

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// A Dialer makes sockets in a sandbox's network namespace. It ends with Close, and with this
// process.
type Dialer struct {
	mu     sync.Mutex
	pid    int
	lists  int // where it takes lists of calls from; -1 when it is closed
	sent   int // where what it has made comes from
	talks  int // a socket at which the kernel says what listens there; -1: none yet
	broken error
}

// Descriptors of the dialer.
const (
	listsFD = 3
	sentFD  = 4
	netFD   = 5
)

// timeout bounds the wait for the dialer and for a connection on a loopback interface: neither has
// anything to wait for.
const timeout = 5 * time.Second

// ErrClosed means that the sandbox has ended.
var ErrClosed = errors.New("the sandbox has ended")

// Enter starts a dialer in the network namespace that a descriptor is open for. The error says what
// the kernel refused.
func Enter(namespace int) (*Dialer, error) {
	d := &Dialer{lists: -1, sent: -1, talks: -1}
	lists, err := d.pair(&d.lists)
	if err != nil {
		return nil, err
	}
	defer unix.Close(lists)
	sent, err := d.pair(&d.sent)
	if err != nil {
		d.Close()
		return nil, err
	}
	defer unix.Close(sent)
	program, err := trampoline.Seal("dialer", new(trampoline.List).Server(listsFD))
	if err != nil {
		d.Close()
		return nil, err
	}
	defer unix.Close(program)
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		d.Close()
		return nil, err
	}
	defer unix.Close(null)
	files := []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(lists), uintptr(sent), uintptr(namespace), uintptr(program)}
	d.pid, _, err = syscall.StartProcess(fmt.Sprintf("/proc/self/fd/%d", len(files)-1), []string{"dialer"},
		&syscall.ProcAttr{Env: []string{}, Files: files, Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		d.pid = 0
		d.Close()
		return nil, fmt.Errorf("start what connects: %w", err)
	}
	if _, err := d.do(enter()); err != nil {
		d.Close()
		return nil, fmt.Errorf("enter the sandbox's network: %w", err)
	}
	return d, nil
}

// pair makes a socket of which the dialer gets the other end.
func (d *Dialer) pair(ours *int) (theirs int, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("socketpair: %w", err)
	}
	limit := unix.NsecToTimeval(timeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(ends[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		unix.Close(ends[0])
		unix.Close(ends[1])
		return 0, fmt.Errorf("setsockopt: %w", err)
	}
	*ours = ends[0]
	return ends[1], nil
}

// enter lists the calls that make a process the dialer: it enters, and gives away all that let it.
func enter() *trampoline.List {
	l := &trampoline.List{}
	owner := l.Call(0, unix.SYS_IOCTL, netFD, unix.NS_GET_USERNS)
	l.Call(0, unix.SYS_SETNS, l.Result(owner), unix.CLONE_NEWUSER)
	l.Call(0, unix.SYS_SETNS, netFD, unix.CLONE_NEWNET)
	l.Call(0, unix.SYS_CLOSE, l.Result(owner))
	l.Call(0, unix.SYS_CLOSE, netFD)
	l.Call(0, unix.SYS_CAPSET, l.Words(unix.LINUX_CAPABILITY_VERSION_3), l.Words(0, 0, 0))
	l.Call(0, unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	return l
}

// do has the dialer carry out a list. After an answer that did not come in time nothing more is
// asked: it would be taken for another's.
func (d *Dialer) do(l *trampoline.List) (*trampoline.Results, error) {
	switch {
	case d.lists < 0:
		return nil, ErrClosed
	case d.broken != nil:
		return nil, d.broken
	}
	var results *trampoline.Results
	err := l.Send(d.lists)
	if err == nil {
		results, err = l.Answer(d.lists)
	}
	var failed *trampoline.CallError
	if err != nil && !errors.As(err, &failed) {
		d.broken = err
	}
	return results, err
}

// Dial connects to a port of the sandbox's loopback interface: of 127.0.0.1, and where nothing
// listens there, of ::1.
func (d *Dialer) Dial(port uint16) (*net.TCPConn, error) {
	high, low := byte(port>>8), byte(port)
	conn, err := d.dial(unix.AF_INET, []byte{unix.AF_INET, 0, high, low, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}) // struct sockaddr_in
	if errors.Is(err, unix.ECONNREFUSED) {
		six := make([]byte, unix.SizeofSockaddrInet6)
		six[0], six[2], six[3], six[23] = unix.AF_INET6, high, low, 1
		if conn, other := d.dial(unix.AF_INET6, six); other == nil {
			return conn, nil
		}
	}
	return conn, err
}

func (d *Dialer) dial(family uint64, address []byte) (*net.TCPConn, error) {
	fd, err := d.begin(family, address)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "published")
	defer file.Close()
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	for until := time.Now().Add(timeout); ; {
		n, err := unix.Poll(poll, int(time.Until(until).Milliseconds())+1)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return nil, errors.Join(err, unix.ETIMEDOUT)
		}
		break
	}
	if failed, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || failed != 0 {
		return nil, errors.Join(err, unix.Errno(failed))
	}
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

// begin begins to connect, and returns the socket.
func (d *Dialer) begin(family uint64, address []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := &trampoline.List{}
	socket := l.Call(0, unix.SYS_SOCKET, family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	connect := l.Call(trampoline.MayFail, unix.SYS_CONNECT, l.Result(socket), l.Put(address), uint64(len(address)))
	fd, results, err := d.hand(l, socket)
	if err != nil {
		return -1, err
	}
	if err := results.Err(connect); err != nil && err != unix.EINPROGRESS {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// hand has a list carried out, and what one of its calls opened handed out and closed there.
func (d *Dialer) hand(l *trampoline.List, opened int) (int, *trampoline.Results, error) {
	const space = 24                                               // CMSG_SPACE of one descriptor
	control := l.Words(20, unix.SCM_RIGHTS<<32|unix.SOL_SOCKET, 0) // struct cmsghdr, and the descriptor
	l.Store(opened, control+16)
	vector := l.Words(l.Put([]byte{0}), 1)
	l.Call(0, unix.SYS_SENDMSG, sentFD, l.Words(0, 0, vector, 1, control, space, 0), unix.MSG_NOSIGNAL)
	l.Call(0, unix.SYS_CLOSE, l.Result(opened))
	results, err := d.do(l)
	if err != nil {
		return -1, nil, err
	}
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(d.sent, make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		d.broken = err
		return -1, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return -1, nil, errors.New("no socket came")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return -1, nil, errors.New("no socket came")
	}
	return fds[0], results, nil
}

// Close ends the dialer. Connections that it has made stay.
func (d *Dialer) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, fd := range []*int{&d.lists, &d.sent, &d.talks} {
		if *fd >= 0 {
			unix.Close(*fd)
		}
		*fd = -1
	}
	if d.pid == 0 {
		return
	}
	unix.Kill(d.pid, unix.SIGKILL)
	for {
		if _, err := unix.Wait4(d.pid, nil, 0, nil); err != unix.EINTR {
			break
		}
	}
	d.pid = 0
}

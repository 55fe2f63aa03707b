package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
)

// A busListener is the socket that stands in a sandbox for the session bus. Until something inside connects it costs a
// descriptor and a waiting goroutine. Then it starts xdg-dbus-proxy, which cannot take over a socket that somebody else
// listens at, and relays each connection to it: or, where the bus is open, to the bus itself.
type busListener struct {
	bus       Bus
	directory busDirectory
	socket    descriptor.File // the listening socket's file, to be bound
	listening busConn

	held   heldRights
	shown  shownNotifications
	slots  chan struct{} // one for each connection at work
	served sync.WaitGroup
	once   sync.Once
	// closing ends with the acceptance of connections, context with everything.
	closing chan struct{}
	context context.Context
	abort   context.CancelFunc

	starting sync.Mutex
	proxy    *busProxy
	starts   int

	mu      sync.Mutex
	failure error // the first one
}

const (
	// maxBusConnections bounds what one command can make the launcher hold: further clients wait to be let in.
	maxBusConnections = 64
	// maxProxyStarts bounds how often a proxy that dies is replaced.
	maxProxyStarts = 8
	// busDrain is how long connections may go on when the command has ended. Its ends of them are closed by then.
	busDrain = 250 * time.Millisecond
)

// listenBus makes the socket and begins to listen.
func listenBus(bus Bus) (*busListener, error) {
	l := &busListener{bus: bus, slots: make(chan struct{}, maxBusConnections), closing: make(chan struct{})}
	l.context, l.abort = context.WithCancel(context.Background())
	var err error
	if l.directory, err = newBusDirectory(bus.Directories); err != nil {
		return nil, err
	}
	if err := l.open(); err != nil {
		l.directory.remove()
		l.socket.Close()
		return nil, fmt.Errorf("session bus: %w", err)
	}
	l.served.Go(l.serve)
	return l, nil
}

func (l *busListener) open() error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = errors.Join(
		unix.Fchmod(fd, 0o600), // before there is a file: bind gives it this mode
		unix.Bind(fd, &unix.SockaddrUnix{Name: l.directory.name(busSocket)}),
		unix.Listen(fd, maxBusConnections))
	if err == nil {
		l.socket, err = l.directory.open(busSocket)
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	l.listening, err = newBusConn(descriptor.File(fd))
	return err
}

// serve lets connections in, as many as there are slots.
func (l *busListener) serve() {
	l.directory.sweep()
	for {
		select {
		case l.slots <- struct{}{}:
		case <-l.closing:
			return
		}
		client, err := l.accept()
		if err != nil {
			return
		}
		l.served.Go(func() {
			defer func() { <-l.slots }()
			l.attend(client)
		})
	}
}

// accept waits for a connection. The error means that no more will come.
func (l *busListener) accept() (descriptor.File, error) {
	for {
		var fd int
		var err error
		waited := l.listening.raw.Read(func(listening uintptr) bool {
			fd, _, err = unix.Accept4(int(listening), unix.SOCK_CLOEXEC)
			return !again(err)
		})
		if waited != nil {
			return 0, waited
		}
		if err == nil {
			return descriptor.File(fd), nil
		}
		select { // no descriptor or memory is left, perhaps only for now
		case <-time.After(10 * time.Millisecond):
		case <-l.closing:
			return 0, err
		}
	}
}

// attend serves one connection to its end.
func (l *busListener) attend(accepted descriptor.File) {
	client, err := newBusConn(accepted)
	if err != nil {
		return
	}
	defer client.close()
	server, err := l.dial()
	if err != nil {
		l.fail(err)
		return
	}
	defer server.close()
	stop := context.AfterFunc(l.context, func() {
		client.close()
		server.close()
	})
	defer stop()
	var n *notifier
	if l.bus.Proxy != "" {
		n = &notifier{shown: &l.shown, waiting: map[uint32]bool{}}
	}
	relay(client, server, n, &l.held)
}

// dial connects to where a connection from inside is to be relayed.
func (l *busListener) dial() (busConn, error) {
	if l.bus.Proxy != "" {
		return l.dialProxy()
	}
	var failure error
	for _, server := range l.bus.Servers {
		d, err := server.connect()
		if err == nil {
			return newBusConn(d)
		}
		failure = err
	}
	return busConn{}, failure
}

// dialProxy connects to the proxy, and starts it if it does not run.
func (l *busListener) dialProxy() (busConn, error) {
	l.starting.Lock() // held while connecting: nobody replaces the proxy meanwhile
	defer l.starting.Unlock()
	if l.proxy == nil || !l.proxy.running() {
		if err := l.startProxy(); err != nil {
			return busConn{}, err
		}
	}
	d, err := connect(fmt.Sprintf("/proc/self/fd/%d", l.proxy.socket))
	if err != nil {
		return busConn{}, fmt.Errorf("%s: %w", l.bus.Proxy, err)
	}
	return newBusConn(d)
}

func (l *busListener) startProxy() error {
	if l.starts == maxProxyStarts {
		return fmt.Errorf("%s ended %d times", l.bus.Proxy, l.starts)
	}
	l.starts++
	if l.proxy != nil {
		l.proxy.end()
		unix.Unlinkat(int(l.directory.fd), proxySocket, 0)
	}
	var err error
	l.proxy, err = l.bus.startProxy(l.context, l.directory)
	return err
}

func (l *busListener) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		l.failure = err
	}
}

// close ends everything. What the command's last words on the bus were is carried out first: its processes have ended,
// so its connections have ends too.
func (l *busListener) close() {
	if l == nil {
		return
	}
	l.once.Do(func() {
		close(l.closing)
		l.listening.close()
		patience := time.AfterFunc(busDrain, l.abort)
		l.served.Wait()
		patience.Stop()
		if l.proxy != nil {
			l.proxy.end()
		}
		l.abort()
		l.directory.remove()
		l.socket.Close()
	})
}

// notices closes the listener, and tells what became of it after those notices that there are.
func (l *busListener) notices(list []Notice) []Notice {
	l.close()
	if l == nil || l.failure == nil {
		return list
	}
	return append(slices.Clone(list), Notice{Kind: NoticeSessionBus,
		Text: "the session bus could not be reached: " + text.Line(l.failure.Error())})
}

// busOperand makes the socket for the plan's bus, and gives it to bwrap. Without one, the command has no bus and is told.
func (a *attempt) busOperand(step Step, byDescriptor bool) (operand, bool) {
	var err error
	if a.bus == nil {
		a.bus, err = listenBus(a.plan.Bus)
	}
	if err == nil {
		var fd int
		if fd, err = unix.FcntlInt(uintptr(a.bus.socket), unix.F_DUPFD_CLOEXEC, 0); err == nil {
			return a.bindDescriptor(step, descriptor.File(fd), byDescriptor), true
		}
	}
	a.plan.notice(NoticeSessionBus, "", "no session bus for the command: "+err.Error())
	return operand{}, false
}

// bindDescriptor binds what a descriptor has open.
func (a *attempt) bindDescriptor(step Step, file descriptor.File, byDescriptor bool) operand {
	fd := a.pass(file)
	if byDescriptor {
		return operand{bindOption(step.Access) + "-fd", fd}
	}
	return operand{bindOption(step.Access), "/proc/self/fd/" + fd}
}

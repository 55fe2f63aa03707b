package bus

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/descriptor"
)

// A Listener is the socket that stands in a sandbox for the session bus. Until something inside
// connects it costs a descriptor and a waiting goroutine. Then it starts xdg-dbus-proxy, which
// cannot take over a socket that somebody else listens at, and relays each connection to it: or,
// where the bus is open, to the bus itself.
type Listener struct {
	bus       Bus
	directory directory
	socket    descriptor.File // the listening socket's file, to be bound
	listening conn

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
	proxy    *proxy
	starts   int

	mu      sync.Mutex
	failure error // the first one
}

const (
	// maxConnections bounds what one command can make the launcher hold: further clients wait to be
	// let in.
	maxConnections = 64
	// maxProxyStarts bounds how often a proxy that dies is replaced.
	maxProxyStarts = 8
	// drain is how long connections may go on when the command has ended. Its ends of them are
	// closed by then.
	drain = 250 * time.Millisecond
)

// Listen makes the socket and begins to listen.
func Listen(bus Bus) (*Listener, error) {
	l := &Listener{bus: bus, slots: make(chan struct{}, maxConnections), closing: make(chan struct{})}
	l.context, l.abort = context.WithCancel(context.Background())
	var err error
	if l.directory, err = newDirectory(bus.Directories); err != nil {
		return nil, err
	}
	if l.socket, l.listening, err = l.directory.listen(); err != nil {
		l.directory.remove()
		return nil, fmt.Errorf("session bus: %w", err)
	}
	l.served.Go(l.serve)
	return l, nil
}

// serve lets connections in, as many as there are slots.
func (l *Listener) serve() {
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
func (l *Listener) accept() (descriptor.File, error) {
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
func (l *Listener) attend(accepted descriptor.File) {
	client, err := newConn(accepted)
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
func (l *Listener) dial() (conn, error) {
	if l.bus.Proxy != "" {
		return l.dialProxy()
	}
	var failure error
	for _, server := range l.bus.Servers {
		d, err := server.connect()
		if err == nil {
			return newConn(d)
		}
		failure = err
	}
	return conn{}, failure
}

// dialProxy connects to the proxy, and starts it if it does not run.
func (l *Listener) dialProxy() (conn, error) {
	l.starting.Lock() // held while connecting: nobody replaces the proxy meanwhile
	defer l.starting.Unlock()
	if l.proxy == nil || !l.proxy.running() {
		if err := l.startProxy(); err != nil {
			return conn{}, err
		}
	}
	d, err := connect(fmt.Sprintf("/proc/self/fd/%d", l.proxy.socket))
	if err != nil {
		return conn{}, fmt.Errorf("%s: %w", l.bus.Proxy, err)
	}
	return newConn(d)
}

func (l *Listener) startProxy() error {
	if l.starts == maxProxyStarts {
		return fmt.Errorf("%s ended %d times", l.bus.Proxy, l.starts)
	}
	l.starts++
	if l.proxy != nil {
		l.proxy.end()
		unix.Unlinkat(int(l.directory.fd), proxySocketName, 0)
	}
	var err error
	l.proxy, err = l.bus.startProxy(l.context, l.directory)
	return err
}

func (l *Listener) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		l.failure = err
	}
}

// Close ends everything, and returns why the bus could not be reached, if it could not. What the
// command's last words on the bus were is carried out first: its processes have ended, so its
// connections have ends too.
func (l *Listener) Close() error {
	if l == nil {
		return nil
	}
	l.once.Do(func() {
		close(l.closing)
		l.listening.close()
		timeout := time.AfterFunc(drain, l.abort)
		l.served.Wait()
		timeout.Stop()
		if l.proxy != nil {
			l.proxy.end()
		}
		l.abort()
		l.directory.remove()
		l.socket.Close()
	})
	return l.failure
}

// Place is the socket's file, to be bound: a descriptor of the caller's own.
func (l *Listener) Place() (descriptor.File, error) {
	return duplicate(uintptr(l.socket))
}

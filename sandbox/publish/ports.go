package publish

import (
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxConnections bounds those of one sandbox, to all of its ports. Where there are as many, the one that has been silent longest has to go for
	// the next, if that is for leastSilence; else the next waits in the kernel's queue. Anybody on the machine can connect, and say nothing.
	maxConnections = 128
	leastSilence   = time.Second
	fullPause      = 50 * time.Millisecond
)

// Ports are what one sandbox has published. The zero value has nothing.
type Ports struct {
	// Dial connects to a port inside.
	Dial func(port uint16) (*net.TCPConn, error)

	mu     sync.Mutex
	closed bool
	open   map[io.Closer]bool            // listeners and connections
	led    map[*net.TCPConn]*net.TCPConn // what each client is led to
	room   chan struct{}
	work   sync.WaitGroup
}

// Listen listens at a port of the host's loopback interface, and nowhere else.
func Listen(port uint16) (net.Listener, error) {
	return net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
}

// Serve leads whoever connects to a listener to a port inside, until Close. It takes the listener over and returns at once.
func (p *Ports) Serve(l net.Listener, inside uint16) error {
	if !p.keep(l) {
		l.Close()
		return ErrClosed
	}
	p.work.Go(func() {
		defer p.end(l)
		for {
			conn, err := l.Accept()
			if err != nil {
				if temporary := unix.Errno(0); errors.As(err, &temporary) && temporary.Temporary() && !errors.Is(err, net.ErrClosed) {
					time.Sleep(50 * time.Millisecond) // out of descriptors: some will come back
					continue
				}
				return
			}
			p.take()
			p.work.Go(func() {
				defer func() { <-p.room }()
				p.lead(conn.(*net.TCPConn), inside)
			})
		}
	})
	return nil
}

// take takes room for a connection.
func (p *Ports) take() {
	for {
		select {
		case p.room <- struct{}{}:
			return
		case <-time.After(fullPause):
		}
		if p.endSilent() {
			p.room <- struct{}{} // it gives its room back
			return
		}
	}
}

// endSilent ends the connection on which nobody has said anything for longest, as the kernel tells.
func (p *Ports) endSilent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var longest *net.TCPConn
	most := leastSilence
	for conn := range p.led {
		if silent := silence(conn); silent >= most {
			longest, most = conn, silent
		}
	}
	if longest == nil {
		return false
	}
	longest.Close()
	p.led[longest].Close()
	delete(p.led, longest)
	return true
}

// silence is how long nothing has come or gone on a connection.
func silence(conn *net.TCPConn) (silent time.Duration) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			silent = time.Duration(min(info.Last_data_sent, info.Last_data_recv)) * time.Millisecond
		}
	})
	return silent
}

// keep notes what Close is to end. It reports false after Close.
func (p *Ports) keep(c io.Closer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if p.open == nil {
		p.open, p.led, p.room = map[io.Closer]bool{}, map[*net.TCPConn]*net.TCPConn{}, make(chan struct{}, maxConnections)
	}
	p.open[c] = true
	return true
}

func (p *Ports) end(c io.Closer) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
	if client, is := c.(*net.TCPConn); is {
		delete(p.led, client)
	}
}

// lead carries a connection's bytes both ways, until both ends have said all, or one is gone. If nothing listens inside, it is reset.
func (p *Ports) lead(client *net.TCPConn, inside uint16) {
	if !p.keep(client) {
		client.Close()
		return
	}
	defer p.end(client)
	server, err := p.Dial(inside)
	if err != nil {
		client.SetLinger(0)
		return
	}
	if !p.keep(server) {
		server.Close()
		return
	}
	defer p.end(server)
	p.mu.Lock()
	p.led[client] = server
	p.mu.Unlock()
	var both sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{client, server}, {server, client}} {
		both.Go(func() {
			to, from := way[0], way[1]
			io.Copy(to, from) // where one of them is gone, what comes the other way ends by itself
			to.CloseWrite()
			from.CloseRead()
		})
	}
	both.Wait()
}

// Close ends all connections, on both sides, and waits until nothing is served any more.
func (p *Ports) Close() {
	p.mu.Lock()
	p.closed = true
	for c := range p.open {
		c.Close()
	}
	p.mu.Unlock()
	p.work.Wait()
}

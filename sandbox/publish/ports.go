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
	// maxConnections bounds those of one sandbox, to all of its ports. Where there are as many, one
	// has to go for the next that is of little use: silent for leastSilence, or as old, with less
	// than leastRate bytes in a second. Of those it is the one with the fewest bytes in its time.
	// If all are of use, the next waits in the kernel's queue. Anybody on the machine can connect,
	// and say nothing, or a byte from time to time.
	maxConnections = 128
	leastSilence   = time.Second
	leastRate      = 1000
	fullPause      = 50 * time.Millisecond
)

// Ports are what one sandbox has published. The zero value has nothing.
type Ports struct {
	// Dial connects to a port inside.
	Dial func(port uint16) (*net.TCPConn, error)

	mu     sync.Mutex
	closed bool
	open   map[io.Closer]bool   // listeners and connections
	led    map[*net.TCPConn]led // each client
	room   chan struct{}
	work   sync.WaitGroup
}

// A led client has a connection inside.
type led struct {
	to    *net.TCPConn
	since time.Time
}

// Listen listens at a port of the host's loopback interface, and nowhere else.
func Listen(port uint16) (net.Listener, error) {
	return net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
}

// Serve leads whoever connects to a listener to a port inside, until Close. It takes the listener
// over and returns at once.
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
		if p.endIdle() {
			p.room <- struct{}{} // it gives its room back
			return
		}
	}
}

// endIdle ends the connection that is of the least use, as the kernel tells.
func (p *Ports) endIdle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	var idlest *net.TCPConn
	var least float64
	for conn, led := range p.led {
		age := time.Since(led.since)
		silent, bytes := use(conn)
		rate := bytes / age.Seconds()
		if (silent >= leastSilence || age >= leastSilence && rate < leastRate) && (idlest == nil || rate < least) {
			idlest, least = conn, rate
		}
	}
	if idlest == nil {
		return false
	}
	idlest.Close()
	p.led[idlest].to.Close()
	delete(p.led, idlest)
	return true
}

// use is how long nothing has come or gone on a connection, and how much has in all.
func use(conn *net.TCPConn) (silent time.Duration, bytes float64) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0
	}
	raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			silent = time.Duration(min(info.Last_data_sent, info.Last_data_recv)) * time.Millisecond
			bytes = float64(info.Bytes_acked) + float64(info.Bytes_received)
		}
	})
	return silent, bytes
}

// keep notes what Close is to end. It reports false after Close.
func (p *Ports) keep(c io.Closer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if p.open == nil {
		p.open, p.led, p.room = map[io.Closer]bool{}, map[*net.TCPConn]led{}, make(chan struct{}, maxConnections)
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

// lead carries a connection's bytes both ways, until both ends have said all, or one is gone. If
// nothing listens inside, it is reset.
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
	p.led[client] = led{server, time.Now()}
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

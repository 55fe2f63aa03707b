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

// maxConnections bounds those of one sandbox, to all of its ports. Further ones wait in the kernel's queue.
const maxConnections = 128

// Ports are what one sandbox has published. The zero value has nothing.
type Ports struct {
	// Dial connects to a port inside.
	Dial func(port uint16) (*net.TCPConn, error)

	mu     sync.Mutex
	closed bool
	open   map[io.Closer]bool // listeners and connections
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
			p.room <- struct{}{}
			p.work.Go(func() {
				defer func() { <-p.room }()
				p.lead(conn.(*net.TCPConn), inside)
			})
		}
	})
	return nil
}

// keep notes what Close is to end. It reports false after Close.
func (p *Ports) keep(c io.Closer) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if p.open == nil {
		p.open, p.room = map[io.Closer]bool{}, make(chan struct{}, maxConnections)
	}
	p.open[c] = true
	return true
}

func (p *Ports) end(c io.Closer) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
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

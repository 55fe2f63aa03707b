package egress

import (
	"bufio"
	"context"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// A client is a connection from the sandbox. All that comes from it is read through the buffer.
type client struct {
	*net.TCPConn
	in *bufio.Reader
	// ctx is the connection's life. With its end the client's end of it is closed, and the server's
	// if there is one: a server that does not answer holds nobody.
	ctx context.Context
	end context.CancelFunc
	// to is where it was let connect to; before that, it is the zero value. The proxy's lock guards
	// it.
	to profile.Destination
}

// welcome notes a connection, which ends with the proxy. It returns nil if that has ended already.
func (p *Proxy) welcome(conn *net.TCPConn) *client {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		conn.Close()
		return nil
	}
	c := &client{TCPConn: conn, in: bufio.NewReaderSize(conn, maxLine)}
	c.ctx, c.end = context.WithCancel(p.ctx)
	context.AfterFunc(c.ctx, func() { conn.Close() })
	p.clients = append(p.clients, c)
	p.serves.Add(1)
	return c
}

// dismiss ends a connection, and forgets it.
func (p *Proxy) dismiss(c *client) {
	c.end()
	p.mu.Lock()
	for i, other := range p.clients {
		if other == c {
			p.clients = append(p.clients[:i], p.clients[i+1:]...)
			break
		}
	}
	p.mu.Unlock()
	p.serves.Done()
}

// hungUpEvery is how often it is looked whether somebody has gone, while another waits for room.
const hungUpEvery = 50 * time.Millisecond

// makeRoom waits until there is room for one more connection, and reports whether the client is to
// be served. Where there is none, those make room that have hung up, the first of them first: they
// may wait for a server that never answers.
func (p *Proxy) makeRoom(c *client) bool {
	for {
		p.mu.Lock()
		taken, freed := p.pool.take(p.serving)
		if taken {
			p.serving++
		}
		p.mu.Unlock()
		if taken {
			return true
		}
		p.endOneThatHungUp()
		look := time.NewTimer(hungUpEvery)
		select {
		case <-freed:
		case <-look.C:
		case <-c.ctx.Done():
			look.Stop()
			return false
		}
		look.Stop()
	}
}

// leaveRoom gives back what makeRoom took.
func (p *Proxy) leaveRoom() {
	p.mu.Lock()
	p.serving--
	p.mu.Unlock()
	p.pool.give()
}

func (p *Proxy) endOneThatHungUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.clients { // in the order of their coming
		if c.ctx.Err() == nil && c.hungUp() {
			c.end()
			return
		}
	}
}

// hungUp reports whether the client has closed its end, or at least says no more.
func (c *client) hungUp() bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(poll, 0)
		gone = err == nil && n > 0
	})
	return gone || err != nil
}

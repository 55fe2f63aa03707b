package session

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/wire/socket"
)

// A relay is the socket at which the inside of a session's sandboxes asks. It is the session's own,
// and stays as long as that: what comes is passed on to the broker's socket for the session,
// whichever broker that is now. A sandbox has the socket from its start, and another one could not
// be put in its place.
type relay struct {
	path     string
	listener *net.UnixListener
	room     chan struct{}
	serving  sync.WaitGroup
}

// maxAskers is how many connections there may be at once.
const maxAskers = 32

// newRelay listens beside a broker's socket for a session. to opens a connection to the broker of
// now.
func newRelay(beside string, to func() (*net.UnixConn, error)) (*relay, error) {
	r := &relay{path: filepath.Join(filepath.Dir(beside), grants.RelayPrefix+strings.ToLower(rand.Text()[:12])+".sock"), room: make(chan struct{}, maxAskers)}
	short, done, err := socket.ShortPath(r.path)
	if err != nil {
		return nil, err
	}
	defer done()
	if r.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"}); err != nil {
		return nil, err
	}
	r.listener.SetUnlinkOnClose(false)
	// The directory keeps others out until this is done.
	if err := os.Chmod(r.path, 0o600); err != nil {
		return nil, errors.Join(err, r.listener.Close())
	}
	r.serving.Go(func() { r.serve(to) })
	return r, nil
}

func (r *relay) close() {
	os.Remove(r.path)
	r.listener.Close()
	r.serving.Wait()
}

func (r *relay) serve(to func() (*net.UnixConn, error)) {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	for {
		conn, err := r.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || !isOurs(conn) {
			if conn != nil {
				conn.Close()
			}
			time.Sleep(time.Millisecond) // no descriptor is left: not at once again
			continue
		}
		select {
		case r.room <- struct{}{}:
			r.serving.Go(func() {
				defer func() { <-r.room }()
				pass(ctx, conn, to)
			})
		default:
			conn.Close()
		}
	}
}

// isOurs reports whether the user on the other end is the one that this process is.
func isOurs(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	ours := false
	err = raw.Control(func(fd uintptr) {
		peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		ours = err == nil && int(peer.Uid) == os.Getuid()
	})
	return err == nil && ours
}

// pass passes one connection on, until either end closes it: to leave is to withdraw a question.
func pass(ctx context.Context, inside *net.UnixConn, to func() (*net.UnixConn, error)) {
	defer inside.Close()
	stop := context.AfterFunc(ctx, func() { inside.Close() })
	defer stop()
	// Nobody is bothered, or started, for who says nothing.
	first := make([]byte, 4096)
	n, err := inside.Read(first)
	if err != nil {
		return
	}
	broker, err := to()
	if err != nil {
		return
	}
	defer broker.Close()
	if _, err := broker.Write(first[:n]); err != nil {
		return
	}
	over := make(chan struct{}, 2)
	go func() { io.Copy(broker, inside); over <- struct{}{} }()
	go func() { io.Copy(inside, broker); over <- struct{}{} }()
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// toBroker opens a connection to the socket for this session at the broker of now, which is started
// if there is none.
func (s *Session) toBroker() (*net.UnixConn, error) {
	s.asked.Store(true)
	if err := s.join(s.options.Broker); err != nil {
		return nil, err
	}
	s.mu.Lock()
	path := s.broker.Socket
	s.mu.Unlock()
	short, done, err := socket.ShortPath(path)
	if err != nil {
		return nil, err
	}
	defer done()
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: short, Net: "unix"})
}

package rooms

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/integration/peer"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
	"github.com/clairun/clai-sandbox/wire/socket"
)

// unfinished ends the name of a socket at which nobody listens yet: who sweeps would take it for
// one of somebody who was killed.
const unfinished = ".new"

// Serve lets the person reach a sandbox until end is called, which has to be when it has ended.
// ended, if there is one, is called when a command of theirs has ended, and says what there is to
// tell.
func Serve(dir string, about About, s *sandbox.Session, ended func() []sandbox.Notice) (id string, end func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	sweep(dir)
	r := &served{ended: ended, about: Room{ID: newID(), About: about, PID: os.Getpid(), Began: time.Now()}, sandbox: s}
	path := filepath.Join(dir, r.about.ID)
	end, err = listen(path, r.serve)
	if err != nil {
		return "", nil, err
	}
	s.Named(r.about.ID)
	return r.about.ID, end, nil
}

// listen takes calls at a socket until end is called.
func listen(path string, serve func(*net.UnixConn)) (end func(), err error) {
	short, done, err := socket.ShortPath(path + unfinished)
	if err != nil {
		return nil, err
	}
	defer done()
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: short, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // the short path is gone by then
	if err := os.Rename(path+unfinished, path); err != nil {
		listener.Close()
		os.Remove(path + unfinished)
		return nil, err
	}
	l := &listening{serve: serve, room: make(chan struct{}, maxCalls), over: make(chan struct{})}
	go l.accept(listener)
	return func() {
		os.Remove(path)
		listener.SetDeadline(time.Now().Add(lastCalls)) // who has found it meanwhile is told that it has ended
		<-l.over
		served := make(chan struct{})
		go func() { l.calls.Wait(); close(served) }()
		select {
		case <-served:
		case <-time.After(time.Second):
		}
		listener.Close()
	}, nil
}

// lastCalls is how long calls are still taken when the socket has no name any more.
const lastCalls = 10 * time.Millisecond

// sweep removes the sockets of those that were killed: nobody listens there any more.
func sweep(dir string) {
	for _, id := range append(names(dir), doors(dir)...) {
		conn, err := dial(filepath.Join(dir, id))
		switch {
		case err == nil:
			conn.Close()
		case errors.Is(err, unix.ECONNREFUSED):
			os.Remove(filepath.Join(dir, id))
		}
	}
	begun, _ := filepath.Glob(filepath.Join(dir, "*"+unfinished))
	for _, path := range begun {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > time.Minute {
			os.Remove(path)
		}
	}
}

type served struct {
	about   Room
	sandbox *sandbox.Session
	ended   func() []sandbox.Notice // nil: nothing is told
}

// listening is a socket that takes calls.
type listening struct {
	serve func(*net.UnixConn)
	room  chan struct{}
	calls sync.WaitGroup
	over  chan struct{} // closed when no call is taken any more
}

func (r *listening) accept(l *net.UnixListener) {
	defer close(r.over)
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return
		}
		select {
		case r.room <- struct{}{}:
			r.calls.Go(func() {
				defer func() { <-r.room }()
				defer conn.Close()
				r.serve(conn)
			})
		default:
			send(conn, answer{Error: "too many calls at once; try again"}, nil)
			conn.Close()
		}
	}
}

func (r *served) serve(conn *net.UnixConn) {
	raw, err := conn.SyscallConn()
	if err == nil {
		var why error
		if err = raw.Control(func(fd uintptr) { why = peer.Check(int(fd)) }); err == nil {
			err = why
		}
	}
	if err != nil { // it is told nothing
		return
	}
	c, files, err := takeCall(conn)
	if err != nil {
		return
	}
	defer closeAll(files)
	switch c.Do {
	case doShow:
		room := r.about
		room.Processes = []Process{}
		for _, job := range r.sandbox.Processes() {
			room.Processes = append(room.Processes, Process{job.PID, job.Command})
		}
		send(conn, answer{Room: &room}, nil)
	case doStop:
		r.sandbox.Close()
		send(conn, answer{}, nil)
	case doStart:
		r.start(conn, c, files)
	case doPublish:
		port, err := profile.ParsePublished(c.Port)
		if err == nil {
			err = r.sandbox.Publish(port)
		}
		a := answer{}
		if err != nil {
			a = failed(err)
		}
		send(conn, a, nil)
	default:
		send(conn, answer{Error: "there is no call " + c.Do}, nil)
	}
}

// start runs a command of the person's to its end. It is ended when they are gone.
func (r *served) start(conn *net.UnixConn, c call, files []*os.File) {
	if len(files) != 3 && len(files) != 4 {
		send(conn, answer{Error: "a command takes three streams"}, nil)
		return
	}
	if c.Dir != "" && !filepath.IsAbs(c.Dir) {
		send(conn, answer{Error: "a working directory is a whole path"}, nil)
		return
	}
	argv := c.Argv
	switch {
	case len(argv) > 0 && argv[0] == "":
		argv = append([]string{r.about.Shell}, argv[1:]...)
	case len(argv) == 0:
		argv = []string{"/bin/sh", "-c", `[ -z "$1" ] || export TERM="$1"; exec "$2" -i`, "sh", c.Term, r.about.Shell}
	}
	command := sandbox.Command{Argv: argv, Dir: c.Dir, In: files[0], Out: files[1], Err: files[2], Terminal: c.Terminal}
	if len(files) == 4 {
		command.Extra, command.ExtraFD = files[3], ExtraFD
	}
	p, err := r.sandbox.Start(command)
	closeAll(files)
	if errors.Is(err, sandbox.ErrSessionEnded) {
		send(conn, answer{Ended: true}, nil)
		return
	}
	if err != nil {
		send(conn, failed(err), nil)
		return
	}
	send(conn, answer{}, nil)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		conn.Read(make([]byte, 1)) // nothing more comes
	}()
	select {
	case <-p.Ended():
	case <-gone:
		var once sync.Once
		for began := time.Now(); time.Since(began) < timeout; {
			once.Do(func() { p.End(unix.SIGHUP) })
			select {
			case <-p.Ended():
				return
			case <-time.After(sandbox.DefaultGrace):
				p.End(unix.SIGKILL)
			}
		}
		return
	}
	result, err := p.Wait()
	if err != nil {
		send(conn, failed(err), nil)
		return
	}
	a := answer{ExitCode: result.ExitCode}
	if r.ended != nil {
		a.Notices = told(r.ended())
	}
	send(conn, a, nil)
}

// told are notices as they are sent, so many that they fit into a message.
func told(notices []sandbox.Notice) (list []string) {
	for _, n := range notices[:min(len(notices), maxNotices)] {
		list = append(list, n.Text[:min(len(n.Text), maxNotice)])
	}
	return list
}

// failed says why a command was not run.
func failed(err error) answer {
	var command *sandbox.CommandError
	var setup *sandbox.SetupError
	switch {
	case errors.As(err, &setup):
		return answer{Error: err.Error() + "; " + setup.Hint, Status: 125}
	case !errors.As(err, &command):
		return answer{Error: err.Error(), Status: 125}
	case command.Found:
		return answer{Error: err.Error(), Status: 126}
	}
	return answer{Error: err.Error(), Status: 127}
}

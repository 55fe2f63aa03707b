package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/clairun/clai-sandbox/audit"
	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/broker"
	"github.com/clairun/clai-sandbox/grants/server"
	"github.com/clairun/clai-sandbox/grants/store"
	"github.com/clairun/clai-sandbox/integration/notify"
	"github.com/clairun/clai-sandbox/integration/peer"
	"github.com/clairun/clai-sandbox/outside"
	"github.com/clairun/clai-sandbox/outside/door"
	"github.com/clairun/clai-sandbox/outside/runner"
	"github.com/clairun/clai-sandbox/policy/host"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/aside"
	"github.com/clairun/clai-sandbox/sandbox"
	sockets "github.com/clairun/clai-sandbox/wire/socket"
)

// Options are what one gateway works with.
type Options struct {
	Directories profile.Directories
	Home, User  string
	Version     string
	Programs    []string      // directories with bwrap and with our own programs
	Timeout     time.Duration // how long a request waits; 0: the usual time
	Idle        time.Duration // ends the gateway after this time without use; 0: never
	Listener    net.Listener  // the socket, where somebody else made it; nil: it makes its own
	Notify      func(grants.Notice)
	Runner      []string // the program that runs commands outside of sandboxes, with its arguments; nil: none are run
	Caller      profile.Caller
	Containers  string // the address on which containers are answered, beside a socket; empty: none
	Desktop     string // the address of the session bus of a desktop that is to notify the person; empty: none is
}

// watching is a broker for a part of the gateway: to listen does not keep it from being idle.
type watching struct{ *outside.Broker }

func (w watching) Events(ctx context.Context, from grants.EventsFrom) (<-chan grants.Event, error) {
	return w.Watch(ctx, from)
}

// RunningError means that a gateway runs already, and answers.
type RunningError struct{ Socket string }

func (e *RunningError) Error() string { return "a gateway answers already on " + e.Socket }

// lockTimeout is how long to wait for a gateway that is about to end, or to begin.
const lockTimeout = 5 * time.Second

// Run is the gateway, until the context ends or nobody needs it. A *RunningError is no failure.
func Run(ctx context.Context, o Options) error {
	socket := filepath.Join(grants.SocketDirectory(o.Directories), grants.SocketName)
	if err := os.MkdirAll(o.Directories.State, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if o.Runner != nil {
		if err := runner.Seclude(); err != nil {
			return err
		}
	}
	lock, err := takeLock(ctx, filepath.Join(o.Directories.State, "gateway.lock"), socket)
	if err != nil {
		return err
	}
	defer lock.Close()
	kept, notices, err := store.Open(o.Directories.State)
	if err != nil {
		return err
	}
	defer kept.Close()
	known, err := kept.AuditPosition()
	if err != nil {
		return err
	}
	path := filepath.Join(o.Directories.State, audit.Name)
	record, problems := audit.Open(path, known)
	defer record.Close()
	for _, problem := range problems {
		notices = append(notices, grants.Notice{Kind: grants.NoticeStore, Path: path, Text: problem})
	}

	looking, stop := context.WithCancel(ctx)
	var looked sync.WaitGroup
	looked.Go(func() { watchQuarantine(looking, o.Directories.State, o.User, record) })
	defer func() { stop(); looked.Wait() }()

	for _, n := range sandbox.Sweep(o.Directories.State) { // of commands whose launcher was killed
		notices = append(notices, grants.Notice{Kind: grants.NoticeKind(n.Kind), Path: n.Path, Text: n.Text})
	}

	asking := filepath.Join(grants.SocketDirectory(o.Directories), "ask")
	grants.SweepSockets(asking)
	s := server.New(asking, o.Version)
	paths, err := broker.New(broker.Options{Rules: o.rules(), Store: kept, Audit: record, User: o.User, Timeout: o.Timeout, Listen: s.ListenForSession,
		Presence: filepath.Join(grants.SocketDirectory(o.Directories), grants.SessionsName)})
	if err != nil {
		return err
	}
	defer paths.Close()
	b, busy, ran, end := o.commands(paths, record)
	defer end()
	// Neither what is in a sandbox that shows the socket, because it was made for another state or
	// runtime directory, nor what the gateway runs for an agent, which have the person's user both,
	// may answer for the person.
	s.Admit(func(p sockets.Peer) error {
		if err := peer.CheckNamespaces(p.PID); err != nil {
			return fmt.Errorf("%w; leave toolbox, distrobox, unshare or the like, and ask there", err)
		}
		if ran != nil && ran(p.PID) {
			return errors.New("a command that was let out of a sandbox has started it, and may not answer for you")
		}
		return nil
	})
	containers, opened, problem, err := o.open(b)
	if err != nil {
		return err
	}
	defer opened()
	if problem != "" {
		notices = append(notices, grants.Notice{Kind: NoticeDoor, Text: problem})
	}
	s.Attach(b, notices)
	for _, n := range notices {
		if o.Notify != nil {
			o.Notify(n)
		}
	}
	if o.Desktop != "" {
		ctx, cancel := context.WithCancel(ctx)
		over := make(chan struct{})
		go func() {
			defer close(over)
			_ = notify.Run(ctx, o.Desktop, watching{b}) // without a desktop there is nobody to tell
		}()
		defer func() { cancel(); <-over }()
	}
	return o.serve(ctx, s, func() bool { return !b.Idle() || busy() || containers.Needed() }, b, socket)
}

// NoticeDoor is that containers cannot ask at the socket.
const NoticeDoor grants.NoticeKind = "containers"

// open opens the door for containers, until it is closed. What a container to which the socket's
// directory is shown puts there keeps no gateway from starting: it is moved aside, or there is no
// socket for containers, which is the problem.
func (o Options) open(b *outside.Broker) (d *door.Door, end func(), problem string, err error) {
	socket := filepath.Join(grants.SocketDirectory(o.Directories), door.SocketName)
	var listeners []net.Listener
	l, err := sockets.Listen(socket)
	if err != nil && os.Rename(socket, fmt.Sprintf("%s.set-aside-%d", socket, time.Now().UnixNano())) == nil {
		l, err = sockets.Listen(socket)
	}
	if err != nil {
		problem = "no container can ask at the socket: " + err.Error()
	} else {
		listeners = append(listeners, l)
	}
	if o.Containers != "" {
		if l, err = door.Listen(o.Containers); err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return nil, nil, "", fmt.Errorf("listen for containers: %w", err)
		}
		listeners = append(listeners, l)
	}
	d = door.New(door.In(o.Directories.State), b)
	var served sync.WaitGroup
	for _, l := range listeners {
		served.Go(func() { _ = d.Serve(l) })
	}
	return d, func() {
		os.Remove(socket)
		d.Close()
		served.Wait()
	}, problem, nil
}

// commands puts the broker of commands before the one of paths. busy says whether something of what
// was run goes on, and ran, which may be nil, whether a process is of that.
func (o Options) commands(paths *broker.Broker, record *audit.Log) (b *outside.Broker, busy func() bool, ran func(pid int) bool, end func()) {
	run := func(context.Context, runner.Request) (runner.Answer, bool, error) {
		return runner.Answer{}, false, errors.New("this gateway runs no commands")
	}
	busy, end = func() bool { return false }, func() {}
	if o.Runner != nil {
		s := &runner.Starter{Program: o.Runner[0], Args: o.Runner[1:], Socket: filepath.Join(grants.SocketDirectory(o.Directories), runner.SocketName), Log: os.Stderr}
		run, busy, ran = s.Run, s.Busy, s.Ran
		stop := s.AdoptOrphans()
		end = func() { s.Close(); stop() }
	}
	return outside.New(paths, outside.Options{
		Load: func(agent string) (host.Host, error) {
			return host.Load(o.Caller, runner.PathOf(o.Caller.Environ), agent)
		},
		Run:   run,
		Audit: record, User: o.User, State: o.Directories.State, Timeout: o.Timeout}), busy, ran, end
}

// serve listens until the context ends or nobody needs the gateway.
func (o Options) serve(ctx context.Context, s *server.Server, needed func() bool, b *outside.Broker, socket string) error {
	l := o.Listener
	if l == nil {
		var err error
		if l, err = sockets.Listen(socket); err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		// The name goes first, while the lock is held: whoever comes then starts another gateway,
		// which waits for the lock.
		defer os.Remove(socket)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	idle := o.whenIdle(ctx, s, needed)
	select {
	case err := <-served:
		s.Close()
		return err
	case <-ctx.Done():
	case <-idle:
	}
	if o.Listener == nil {
		os.Remove(socket)
	}
	b.Close() // withdraws what waits, so that it is answered
	s.Shutdown()
	return <-served
}

// whenIdle is closed when nobody has needed the gateway for the time of Options.Idle.
func (o Options) whenIdle(ctx context.Context, s *server.Server, needed func() bool) <-chan struct{} {
	idle := make(chan struct{})
	if o.Idle <= 0 {
		return idle
	}
	go func() {
		tick := time.NewTicker(max(o.Idle/8, 5*time.Millisecond))
		defer tick.Stop()
		last, answered := time.Now(), s.Answered()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if now := s.Answered(); needed() || now != answered {
				last, answered = time.Now(), now
			} else if time.Since(last) >= o.Idle {
				close(idle)
				return
			}
		}
	}()
	return idle
}

// rules say what may be granted here.
func (o Options) rules() grants.Rules {
	d := o.Directories
	own, links := d.Places()
	own = append(append(own, links...), grants.SocketDirectory(d))
	return grants.NewRules(o.Home, own, o.Programs)
}

// takeLock makes this gateway the only one. The lock goes with the process, however that ends.
func takeLock(ctx context.Context, path, socket string) (*os.File, error) {
	// Whatever stands there keeps nobody from revoking.
	if err := aside.UnlessFile(path); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	const flags = os.O_RDWR | os.O_CREATE | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	file, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, os.ErrPermission) && os.Chmod(path, 0o600) == nil {
		file, err = os.OpenFile(path, flags, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	for deadline := time.Now().Add(lockTimeout); ; {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		}
		if answers(socket) {
			return nil, errors.Join(&RunningError{socket}, file.Close())
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(fmt.Errorf("another gateway holds %s, and does not answer on %s", path, socket), file.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func answers(socket string) bool {
	short, done, err := sockets.ShortPath(socket)
	if err != nil {
		return false
	}
	defer done()
	conn, err := net.DialTimeout("unix", short, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

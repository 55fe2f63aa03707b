package runner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/wire/socket"
)

// What a runner is handed when it is started, by descriptor.
const (
	secretFD   = 3 // the secret, to its end
	listenerFD = 4 // the socket
	gatewayFD  = 5 // ends when the gateway does
)

// A Starter starts runners, one at a time.
type Starter struct {
	Program string
	Args    []string // the program's own mode
	Socket  string
	Log     *os.File // takes what it says

	mu      sync.Mutex
	running *process
	kin     children
	adopts  bool
}

// SocketName is the runner's socket, beside those of the gateway.
const SocketName = "runner.sock"

// AdoptOrphans makes this process the parent of what a runner that was killed leaves behind, so
// that it is known for what it is. From then on all of its children but runners are waited for
// here.
func (s *Starter) AdoptOrphans() (stop func()) {
	s.adopts = true
	return s.kin.adopt()
}

// Busy reports whether something runs, or was left in the background by what ran. A gateway that
// ended now would not know the latter again.
func (s *Starter) Busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running != nil && len(childrenOf(s.running.pid)) > 0
}

// Ran reports whether a process is one that commands have started, or may be: it descends from this
// process, or from the runner.
func (s *Starter) Ran(pid int) bool {
	ancestors := []int{os.Getpid()}
	s.mu.Lock()
	if s.running != nil {
		ancestors = append(ancestors, s.running.pid)
	}
	s.mu.Unlock()
	descends, err := socket.Descends(pid, ancestors...)
	return err != nil || descends
}

// Run has a command run, by a runner that is started if there is none.
func (s *Starter) Run(ctx context.Context, q Request) (a Answer, started bool, err error) {
	for range 2 { // the first may find one that is just ending
		var c Client
		if c, err = s.Client(); err != nil {
			return a, false, err
		}
		if a, started, err = c.Run(ctx, q); err == nil || started || ctx.Err() != nil {
			break
		}
	}
	return a, started, err
}

type process struct {
	client Client
	pid    int
	hold   *os.File // the runner ends when this does
	ended  chan struct{}
}

// Client returns a client of the runner, which is started if it does not run.
func (s *Starter) Client() (Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.running; p != nil {
		select {
		case <-p.ended:
			p.hold.Close()
			s.running = nil
		default:
			return p.client, nil
		}
	}
	p, err := s.start()
	if err != nil {
		return Client{}, fmt.Errorf("start the runner: %w", err)
	}
	s.running = p
	return p.client, nil
}

// Close ends the runner, and with it what it runs.
func (s *Starter) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return
	}
	s.running.hold.Close()
	<-s.running.ended
	s.running = nil
	os.Remove(s.Socket)
}

func (s *Starter) start() (*process, error) {
	p := &process{client: Client{Socket: s.Socket}, ended: make(chan struct{})}
	_, _ = rand.Read(p.client.Secret[:]) // it never fails
	l, err := socket.Listen(s.Socket)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	listening, err := l.(*net.UnixListener).File()
	if err != nil {
		return nil, err
	}
	defer listening.Close()
	secret, handed, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer secret.Close()
	defer handed.Close()
	if _, err := handed.Write(p.client.Secret[:]); err != nil { // a pipe holds it
		return nil, err
	}
	handed.Close()
	lives, hold, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer lives.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, errors.Join(err, hold.Close())
	}
	defer null.Close()
	s.kin.mu.Lock()
	started, err := os.StartProcess(s.Program, append([]string{s.Program}, s.Args...), &os.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: []*os.File{null, s.Log, s.Log, secret, listening, lives}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err == nil {
		s.kin.know(started.Pid)
	}
	s.kin.mu.Unlock()
	if err != nil {
		return nil, errors.Join(err, hold.Close())
	}
	p.hold, p.pid = hold, started.Pid
	go func() {
		_, _ = started.Wait()
		s.kin.forget(started.Pid)
		if s.adopts {
			s.kin.end() // what it left, where it was killed
		}
		close(p.ended)
	}()
	return p, nil
}

// Seclude keeps other processes of this user from reading this one's memory, with the secret, from
// taking its descriptors, and from making it do something else (ptrace(2)): what is run has its
// user. The gateway does it, and the runner.
func Seclude() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// Main is the process of a runner, until its gateway ends.
func Main(ctx context.Context, caller profile.Caller) error {
	if err := Seclude(); err != nil {
		return err
	}
	for _, fd := range []int{secretFD, listenerFD, gatewayFD} {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			return errors.New("a gateway starts the runner, and hands it what it needs")
		}
		syscall.CloseOnExec(fd)
	}
	secret, err := ReadSecret(secretFD)
	if err != nil {
		return err
	}
	file := os.NewFile(listenerFD, "socket")
	l, err := net.FileListener(file)
	file.Close()
	if err != nil {
		return fmt.Errorf("the socket that the gateway hands over: %w", err)
	}
	defer l.Close()
	ctx, end := context.WithCancel(ctx)
	defer end()
	go func() {
		_, _ = os.NewFile(gatewayFD, "gateway").Read(make([]byte, 1))
		end()
	}()
	return (&Runner{Caller: caller, Secret: secret}).Serve(ctx, l)
}

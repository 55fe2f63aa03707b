package server

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// Options say which sandbox a server is for.
type Options struct {
	Init        int      // pid 1 of the sandbox, by its number outside
	Namespaces  int      // which of its namespaces are not the host's: CLONE_NEW*
	Filter      []byte   // struct sock_filter records
	Ruleset     int      // of Landlock, complete; -1: none
	Apart       bool     // each command gets a Landlock domain of its own, so that it cannot reach into others: Linux 5.19
	Scoped      bool     // and cannot connect to their abstract sockets: Linux 6.12
	Environment []string // of all commands
	CPU         uint64   // seconds of computing that each process may take; 0: as many as it likes
	// Prepare is called before the server does anything, with its process id.
	Prepare func(pid int) error
}

// A Server starts commands in one sandbox. It ends when Close is called, and when this process
// ends.
type Server struct {
	pid  int
	cpu  uint64
	land bool // each command restricts itself

	mu     sync.Mutex // one list at a time
	socket int
	err    error // why there is no server any more
	reaped chan struct{}
	ended  atomic.Bool
}

// Descriptors of the server.
const (
	socketFD  = 3 // where lists come from
	rulesetFD = 4 // the sandbox's Landlock rules; later those of a command's own domain
	programFD = 5 // the server itself; from here on, what is a command's
)

// timeout bounds the wait for the server, which does nothing that waits.
const timeout = 10 * time.Second

// ErrRefused means that this process may not enter the sandbox's namespaces.
var ErrRefused = errors.New("the kernel does not let this process enter its own sandbox")

// Start starts a server.
func Start(o Options) (*Server, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	defer unix.Close(ends[1])
	s := &Server{socket: ends[0], cpu: o.CPU, land: o.Apart, reaped: make(chan struct{})}
	failed := func(what string, err error) (*Server, error) {
		unix.Close(ends[0])
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	limit := unix.NsecToTimeval(timeout.Nanoseconds())
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(s.socket, unix.SOL_SOCKET, option, &limit); err != nil {
			return failed("setsockopt", err)
		}
	}
	program, err := trampoline.Seal("server", enter().Server(socketFD))
	if err != nil {
		return failed("memfd", err)
	}
	defer unix.Close(program)
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return failed(os.DevNull, err)
	}
	defer unix.Close(null)
	ruleset := o.Ruleset
	if ruleset < 0 {
		ruleset = null
	}
	s.pid, _, err = syscall.StartProcess(fmt.Sprintf("/proc/self/fd/%d", programFD), []string{"clai-sandbox-server"}, &syscall.ProcAttr{
		Env:   o.Environment,
		Files: []uintptr{uintptr(null), uintptr(null), uintptr(null), uintptr(ends[1]), uintptr(ruleset), uintptr(program)},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return failed("start the server", err)
	}
	if o.Prepare != nil {
		if err := o.Prepare(s.pid); err != nil {
			s.Close()
			return nil, err
		}
	}
	if _, err := s.serve(begin(o)); err != nil {
		s.Close()
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return s, nil
}

// enter lists the calls that make a process the server. It has done nothing yet when it waits for
// its first list, and is in no namespace of the sandbox: see begin.
func enter() *trampoline.List {
	l := &trampoline.List{}
	l.Call(0, unix.SYS_CLOSE, programFD)
	l.Call(0, unix.SYS_FCNTL, socketFD, unix.F_SETFD, unix.FD_CLOEXEC)
	l.Call(0, unix.SYS_FCNTL, rulesetFD, unix.F_SETFD, unix.FD_CLOEXEC)
	return l
}

// begin lists the calls that enter the sandbox and put on the server what every command has. They
// come as the first list, when the limits stand.
func begin(o Options) *trampoline.List {
	l := &trampoline.List{}
	init := l.Call(0, unix.SYS_PIDFD_OPEN, uint64(o.Init), 0)
	l.Call(0, unix.SYS_SETNS, l.Result(init), uint64(o.Namespaces))
	l.Call(0, unix.SYS_CLOSE, l.Result(init))
	l.Call(0, unix.SYS_CHDIR, l.Text("/"))
	for capability := range uint64(64) { // those that this kernel does not have are refused
		l.Call(trampoline.MayFail, unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
	}
	l.Call(0, unix.SYS_CAPSET, l.Words(unix.LINUX_CAPABILITY_VERSION_3), l.Words(0, 0, 0)) // the ambient ones go with the permitted
	l.Call(0, unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	l.Call(0, unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if o.Ruleset >= 0 {
		l.Call(0, unix.SYS_LANDLOCK_RESTRICT_SELF, rulesetFD, 0)
	}
	l.Call(0, unix.SYS_CLOSE, rulesetFD)
	if o.Apart {
		apart(l, o.Scoped)
	}
	// After this it can do no more than a command.
	filter := l.Put(o.Filter)
	l.Call(0, unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, l.Words(uint64(len(o.Filter)/8), filter), 0, 0)
	return l
}

// apart lists the calls that make the ruleset with which each command gets a domain of its own. It
// takes nothing away from the files that a command may open: a ruleset that does not speak of moves
// between directories would forbid them, so this one allows them everywhere.
func apart(l *trampoline.List, scoped bool) {
	scopes := uint64(0)
	if scoped {
		scopes = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	attr, size := l.Words(unix.LANDLOCK_ACCESS_FS_REFER, 0, scopes), uint64(24)
	if !scoped {
		size = 8 // of an older kernel's
	}
	ruleset := l.Call(0, unix.SYS_LANDLOCK_CREATE_RULESET, attr, size, 0)
	root := l.Call(0, unix.SYS_OPENAT, trampoline.AtCWD, l.Text("/"), unix.O_PATH|unix.O_CLOEXEC)
	beneath := l.Words(unix.LANDLOCK_ACCESS_FS_REFER, 0) // struct landlock_path_beneath_attr
	l.Store(root, beneath+8)
	l.Call(0, unix.SYS_LANDLOCK_ADD_RULE, l.Result(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, beneath, 0)
	l.Call(0, unix.SYS_CLOSE, l.Result(root))
	// It got the number that was free, and this is refused; or else it gets it now.
	l.Call(trampoline.MayFail, unix.SYS_DUP3, l.Result(ruleset), rulesetFD, unix.O_CLOEXEC)
}

// serve has a list carried out.
func (s *Server) serve(l *trampoline.List, files ...int) (*trampoline.Results, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served(l, files)
}

// ErrEnded means that the server has ended, and with it the sandbox.
var ErrEnded = errors.New("the sandbox's server has ended")

// served is serve, with the lock held. After a list whose answer did not come, no other one can be
// told from it: the server is ended.
func (s *Server) served(l *trampoline.List, files []int) (*trampoline.Results, error) {
	if s.err != nil {
		return nil, s.err
	}
	err := l.Send(s.socket)
	if err == unix.E2BIG || err == unix.EMSGSIZE {
		return nil, unix.E2BIG
	}
	if err == nil && files != nil {
		err = unix.Sendmsg(s.socket, []byte{0}, unix.UnixRights(files...), nil, unix.MSG_NOSIGNAL)
		if err != nil && err != unix.EPIPE { // it waits for them, and gets none: what it does without them fails
			err = unix.Sendmsg(s.socket, []byte{0}, nil, nil, unix.MSG_NOSIGNAL)
		}
		if err == unix.EPIPE {
			err = nil
		}
	}
	var results *trampoline.Results
	if err == nil {
		results, err = l.Answer(s.socket)
	}
	if err != nil && !errors.As(err, new(*trampoline.CallError)) {
		s.err = fmt.Errorf("%w: %w", ErrEnded, err)
		s.kill()
		err = s.err
	}
	return results, err
}

// Hold calls do while nothing is started.
func (s *Server) Hold(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// kill ends the server. The lock is held.
func (s *Server) kill() {
	if s.socket < 0 {
		return
	}
	s.ended.Store(true)
	unix.Close(s.socket)
	s.socket = -1
	unix.Kill(s.pid, unix.SIGKILL)
	go func() {
		defer close(s.reaped)
		for {
			if _, err := unix.Wait4(s.pid, nil, 0, nil); err != unix.EINTR {
				return
			}
		}
	}()
}

// PID is the server's process, whose children the commands are, or 0 if it has ended.
func (s *Server) PID() int {
	if s.ended.Load() {
		return 0
	}
	return s.pid
}

// Close ends the server, and waits until it has ended. Its commands it does not end: they end with
// the sandbox.
func (s *Server) Close() {
	s.mu.Lock()
	if s.err == nil {
		s.err = ErrEnded
	}
	s.kill()
	s.mu.Unlock()
	select {
	case <-s.reaped:
	case <-time.After(timeout):
	}
}

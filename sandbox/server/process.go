package server

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// A Command is one to start.
type Command struct {
	Argv []string
	Path string // where a name without a slash is looked for
	Dir  string // where it starts, absolute
	// Files are its standard streams, and perhaps one more, which comes first and becomes
	// descriptor Extra.
	Files    []*os.File
	Extra    int  // above 8
	Terminal bool // the first is a terminal, of which it gets control
}

// maxFiles bounds a command's descriptors. With the one for the report they are received as
// programFD and those after it: the first ones lie where none is put.
const maxFiles = 4

// A Process is a command that was started.
type Process struct {
	server *Server
	pid    int      // by its number outside
	handle *os.File // that tells of its end
	report int      // what went wrong before the command
	first  int      // the first call of the list that executes it, and
	change int      // the one that enters its directory

	ended  chan struct{}
	status syscall.WaitStatus // once it has ended
	err    error
	mu     sync.Mutex
	reaped bool // pid may be somebody else's by now
}

// A StartError says why a command was not executed.
type StartError struct {
	Directory bool // its working directory could not be entered
	Execute   bool // it could not be executed
	Err       error
}

func (e *StartError) Error() string { return e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

// cmsgSpace is CMSG_SPACE of so many descriptors.
func cmsgSpace(n int) int { return 16 + (4*n+7)&^7 }

// Start starts a command. Whether it could be executed, Wait tells.
func (s *Server) Start(c Command) (*Process, error) {
	if len(c.Argv) == 0 || len(c.Files) < 3 || len(c.Files) > maxFiles || len(c.Files) == maxFiles && c.Extra <= 8 {
		return nil, unix.EINVAL
	}
	var report [2]int
	if err := unix.Pipe2(report[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return nil, fmt.Errorf("pipe: %w", err)
	}
	defer unix.Close(report[1])
	p := &Process{server: s, report: report[0], ended: make(chan struct{})}
	l := p.list(c, s.land, s.cpu)
	files := []int{report[1]}
	for _, file := range c.Files {
		fd := -1
		raw, err := file.SyscallConn()
		if err == nil {
			err = raw.Control(func(n uintptr) { fd, _ = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 0) })
		}
		if err != nil || fd < 0 {
			unix.Close(report[0])
			return nil, errors.Join(err, unix.EBADF)
		}
		unix.SetNonblock(fd, false) // Go's own ends of pipes do not wait; a command's do
		defer unix.Close(fd)
		files = append(files, fd)
	}
	s.mu.Lock()
	results, err := s.served(l.List, files)
	if err != nil {
		s.served(closing(), nil) // what it was sent, it would keep open
	}
	s.mu.Unlock()
	if err != nil {
		unix.Close(report[0])
		return nil, fmt.Errorf("start a process: %w", err)
	}
	p.pid = results.Of(l.clone)
	// It is the server's child until the server has waited for it, so the number is its own.
	handle, err := unix.PidfdOpen(p.pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		unix.Kill(p.pid, unix.SIGKILL)
		unix.Close(report[0])
		return nil, fmt.Errorf("pidfd_open: %w", err)
	}
	p.handle = os.NewFile(uintptr(handle), "process")
	go p.attend()
	return p, nil
}

// A startList is the list that starts a command.
type startList struct {
	*trampoline.List
	clone int
}

// closing lists the calls that close all that may be a command's.
func closing() *trampoline.List {
	l := &trampoline.List{}
	l.Call(trampoline.MayFail, unix.SYS_CLOSE_RANGE, programFD, uint64(^uint32(0)), 0)
	return l
}

// list lists the calls that start a command.
func (p *Process) list(c Command, land bool, cpu uint64) startList {
	l := closing()
	// Descriptors come as a message of their own, after the list. Those that did not come are none.
	n := 1 + len(c.Files)
	control := make([]byte, cmsgSpace(n))
	for i := range control {
		control[i] = 0xff
	}
	at := l.Put(control)
	message := l.Words(0, 0, l.Words(l.Put([]byte{0}), 1), 1, at, uint64(len(control)), 0)
	l.Call(0, unix.SYS_RECVMSG, socketFD, message, unix.MSG_CMSG_CLOEXEC)
	received := func(i int) uint64 { return l.Load(at + 16 + uint64(4*i)) }
	// As fork(2): no memory is shared, so that a command that is stopped before it begins holds up
	// nobody.
	clone := l.Call(0, unix.SYS_CLONE, uint64(unix.SIGCHLD), 0, 0, 0, 0)
	child := l.Jump(trampoline.IfZero)
	l.Call(0, unix.SYS_CLOSE_RANGE, programFD, uint64(^uint32(0)), 0)
	end := l.Jump(0)

	header, failure := l.Header()
	l.Land(child, header)
	// A session of its own: kill(0, …) would reach the server's, and what that shares with it.
	l.Call(0, unix.SYS_SETSID)
	if land {
		l.Call(0, unix.SYS_LANDLOCK_RESTRICT_SELF, rulesetFD, 0)
	}
	if cpu > 0 {
		l.Call(0, unix.SYS_PRLIMIT64, 0, unix.RLIMIT_CPU, l.Words(cpu, cpu+1), 0)
	}
	for i := range 3 {
		l.Call(0, unix.SYS_DUP3, received(n-3+i), uint64(i), 0)
	}
	l.Call(0, unix.SYS_CLOSE_RANGE, 3, uint64(^uint32(0)), unix.CLOSE_RANGE_CLOEXEC)
	if len(c.Files) > 3 {
		l.Call(0, unix.SYS_DUP3, received(1), uint64(c.Extra), 0)
	}
	if c.Terminal {
		l.Call(0, unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 0)
	}
	p.change = l.Call(0, unix.SYS_CHDIR, l.Text(c.Dir))
	p.first = l.Len()
	l.Execute(c.Argv, c.Path, nil)
	l.Fails(header)
	l.Call(trampoline.MayFail, unix.SYS_WRITE, received(0), failure, trampoline.FailureSize)
	l.Call(trampoline.MayFail, unix.SYS_EXIT_GROUP, trampoline.StatusNotRun)

	l.Land(end, 0)
	return startList{l, clone}
}

// PID is its number outside. It is its own only until Wait returns.
func (p *Process) PID() int { return p.pid }

// Wait waits until the process has ended, and says how. The error is a *StartError if it was not
// executed, or that of the server.
func (p *Process) Wait() (syscall.WaitStatus, error) {
	<-p.ended
	return p.status, p.err
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// attend waits for the end, whether or not anybody wants to know: the namespace of process ids
// cannot end before all that was in it was waited for.
func (p *Process) attend() {
	defer close(p.ended)
	raw, err := p.handle.SyscallConn()
	if err == nil {
		err = raw.Read(func(fd uintptr) bool {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			n, err := unix.Poll(fds, 0)
			return err != nil && err != unix.EINTR || n > 0
		})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.status, p.err = p.reap()
	} else {
		p.err = err
	}
	p.reaped = true
	p.handle.Close()
	unix.Close(p.report)
}

// reap asks the server for the status of a process that has ended. That of one that is traced may
// be about something else than its end: only what says so counts.
func (p *Process) reap() (syscall.WaitStatus, error) {
	const waitAll = 0x40000000 // __WALL
	for range maxReaps {
		l := &trampoline.List{}
		info := l.Put(make([]byte, 128))
		l.Call(0, unix.SYS_WAITID, unix.P_PID, uint64(p.pid), info, unix.WEXITED|unix.WNOHANG|waitAll, 0)
		results, err := p.server.serve(l)
		if err != nil {
			return 0, err
		}
		said := results.Data(info, 128)
		code, status := int32(binary.LittleEndian.Uint32(said[8:])), int32(binary.LittleEndian.Uint32(said[24:]))
		switch code {
		case cldExited:
			return syscall.WaitStatus(status << 8), p.notStarted()
		case cldKilled, cldDumped:
			return syscall.WaitStatus(status & 0x7f), nil
		}
	}
	return 0, errors.New("the kernel does not say how it ended")
}

// maxReaps bounds how often the server is asked.
const maxReaps = 100

// Values of si_code for SIGCHLD.
const cldExited, cldKilled, cldDumped = 1, 2, 3

// notStarted is why the command was not executed, if it was not.
func (p *Process) notStarted() error {
	said := make([]byte, trampoline.FailureSize)
	n, _ := unix.Read(p.report, said)
	failed, is := trampoline.ReadFailure(said[:max(n, 0)])
	if !is {
		return nil
	}
	return &StartError{Directory: failed.Number == p.change, Execute: failed.Number >= p.first, Err: failed.Errno}
}

// While calls do with the process's number, if it has not been waited for: as long as do runs it is
// its own. It reports whether it did.
func (p *Process) While(do func(pid int)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		do(p.pid)
	}
	return !p.reaped
}

// Signal sends a signal to the process's group, which at first is the process alone. It reports
// false if the process has ended.
func (p *Process) Signal(s syscall.Signal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return false
	}
	return unix.Kill(-p.pid, s) == nil || unix.Kill(p.pid, s) == nil
}

// Package process starts a program outside of every sandbox, which may be bwrap: only one that
// nobody else could have put there, with streams that may be anything, without the launcher's
// capabilities where it must not have them, and so that it ends with the launcher. It also looks at
// the processes that one has started.
package process

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/descriptor"
)

// A Process is a program that was started. It is not os/exec's: that one first tries out, on a
// child of its own, what the kernel's process descriptors can do, which takes as long as all the
// rest of a start.
type Process struct {
	pid    int
	copies sync.WaitGroup // of streams that are not files
	begun  chan struct{}  // closed by Begin
	over   chan struct{}  // closed when the process has ended

	mu     sync.Mutex
	reaped bool // pid may be somebody else's by now
	status syscall.WaitStatus
}

// Start executes a program with an empty environment. files are its descriptors from 3 on.
func Start(path string, argv []string, stdio Stdio, files []descriptor.File, attr *syscall.SysProcAttr) (*Process, error) {
	p := &Process{begun: make(chan struct{}), over: make(chan struct{})}
	var ours []*os.File // the child's ends
	defer func() {
		for _, file := range ours {
			file.Close()
		}
	}()
	descriptors := make([]uintptr, 3, 3+len(files))
	for i, stream := range []any{stdio.In, stdio.Out, stdio.Err} {
		if m, is := stream.(*metered); i == 2 && is && m == stdio.Out {
			descriptors[2] = descriptors[1]
			continue
		}
		file, isOurs, err := p.stream(stream)
		if err != nil {
			return nil, err
		}
		if isOurs {
			ours = append(ours, file)
		}
		descriptors[i] = file.Fd()
	}
	for _, file := range files {
		descriptors = append(descriptors, uintptr(file))
	}
	pid, _, err := syscall.StartProcess(path, argv, &syscall.ProcAttr{Env: []string{}, Files: descriptors, Sys: attr})
	p.pid = pid
	return p, err
}

// PID is its number. It may be somebody else's once the process has ended: see While.
func (p *Process) PID() int { return p.pid }

// Begin lets what is to be its input come: before the command begins, nothing is taken out of that.
func (p *Process) Begin() { close(p.begun) }

// Begun is closed by Begin.
func (p *Process) Begun() <-chan struct{} { return p.begun }

// Wait returns when the process has ended and all its output has come.
func (p *Process) Wait() {
	var info unix.Siginfo
	for {
		// First without reaping, so that the process id stays its own as long as somebody may
		// signal it.
		err := unix.Waitid(unix.P_PID, p.pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	p.mu.Lock()
	p.reaped = true
	for {
		_, err := syscall.Wait4(p.pid, &p.status, 0, nil)
		if err != syscall.EINTR {
			break
		}
	}
	p.mu.Unlock()
	close(p.over)
	p.copies.Wait() // nothing inside is left that could hold the other ends
}

// While does something while the process's number, and so its children's, are their own. It reports
// false, and does nothing, if that is over.
func (p *Process) While(do func(pid int)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return false
	}
	do(p.pid)
	return true
}

// Kill ends the process, if it is still there.
func (p *Process) Kill() { p.While(func(pid int) { unix.Kill(pid, unix.SIGKILL) }) }

// ExitCode is as a shell has it. The process has ended.
func (p *Process) ExitCode() int {
	if p.status.Signaled() {
		return 128 + int(p.status.Signal())
	}
	return p.status.ExitStatus()
}

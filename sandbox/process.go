package sandbox

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/descriptor"
)

// A process is a bwrap that was started. It is not os/exec's: that one first tries out, on a child of its own, what the
// kernel's process descriptors can do, which takes as long as all the rest of a start.
type process struct {
	pid    int
	copies sync.WaitGroup // of streams that are not files
	begun  chan struct{}  // closed when the command begins: before, nothing is taken out of its input
	over   chan struct{}  // closed when the process has ended

	mu     sync.Mutex
	reaped bool // pid may be somebody else's by now
	status syscall.WaitStatus
}

// guard is how a bwrap is kept from outliving us.
//
// The kernel kills bwrap with the thread that started it. But bwrap asks for the same between itself and its child only
// when the sandbox is complete, so a bwrap that is killed before leaves the child running. In a process id namespace of
// its own bwrap is the first process, and with it the kernel kills all others: at any time, and before it reports
// bwrap's own end. The first process of a namespace is also deaf to the terminal's signals, as bwrap must be and the
// command must not.
//
// An ordinary user needs a user namespace to make one. Where AppArmor grants that to bwrap alone, plain is what is left.
type guard uint8

const (
	guardBest      guard = iota // what chooseGuard says
	guardPlain                  // none but the kernel's word that bwrap ends with its thread
	guardNamespace              // of process ids
	guardUser                   // of process ids, in a user namespace
)

// chooseGuard finds the best guard that this process may use.
func chooseGuard() guard {
	held, _ := permitted()
	switch {
	case os.Getuid() == 0 && held&(1<<unix.CAP_SYS_ADMIN) != 0:
		return guardNamespace
	case appArmorRestricts():
		return guardPlain
	default:
		return guardUser
	}
}

// appArmorRestricts reports whether user namespaces are for programs with an AppArmor profile only (Ubuntu 23.10 and
// later). Others get one without any rights in it, and bwrap would inherit that.
func appArmorRestricts() bool {
	setting, err := os.ReadFile("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
	if err != nil || len(setting) == 0 || setting[0] != '1' {
		return false
	}
	label, err := os.ReadFile("/proc/self/attr/apparmor/current")
	return err != nil || bytes.HasPrefix(label, []byte("unconfined"))
}

func (g guard) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	switch g {
	case guardNamespace:
		attr.Cloneflags = unix.CLONE_NEWPID
	case guardUser:
		attr.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	}
	return attr
}

// startProcess executes a program with an empty environment. files are its descriptors from 3 on.
func startProcess(path string, argv []string, stdio Stdio, files []descriptor.File, attr *syscall.SysProcAttr) (*process, error) {
	p := &process{begun: make(chan struct{}), over: make(chan struct{})}
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

// stream turns one of the caller's streams into a file for the child. A file goes as it is; for anything else there is a
// pipe, and somebody who carries the bytes.
func (p *process) stream(stream any) (file *os.File, ours bool, err error) {
	switch s := stream.(type) {
	case nil:
		file, err = os.OpenFile(os.DevNull, os.O_RDWR, 0)
	case *os.File:
		return s, false, nil
	case io.Writer:
		var read *os.File
		if read, file, err = os.Pipe(); err == nil {
			p.copies.Go(func() {
				io.Copy(s, read)
				read.Close()
			})
		}
	case io.Reader:
		var write *os.File
		if file, write, err = os.Pipe(); err == nil {
			go func() { // not waited for: it may be waiting for input that nobody wants any more
				if p.begins() {
					io.Copy(write, s)
				}
				write.Close()
			}()
		}
	}
	return file, true, err
}

// begins waits until the command begins. It reports false if it never will.
func (p *process) begins() bool {
	select {
	case <-p.begun:
		return true
	case <-p.over:
		return false
	}
}

// wait returns when the process has ended and all its output has come.
func (p *process) wait() {
	var info unix.Siginfo
	for {
		// First without reaping, so that the process id stays its own as long as somebody may signal it.
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

// kill ends the process, if it is still there.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		unix.Kill(p.pid, unix.SIGKILL)
	}
}

// exitCode is as a shell has it. The process has ended.
func (p *process) exitCode() int {
	if p.status.Signaled() {
		return 128 + int(p.status.Signal())
	}
	return p.status.ExitStatus()
}

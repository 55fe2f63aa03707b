package runner

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/wire/socket"
)

// killTimeout is how long a command has to end when its time is over.
const killTimeout = 2 * time.Second

// children are the commands that run.
type children struct {
	mu  sync.Mutex
	pid map[int]bool
}

// run starts a command and waits for it. When its time is over, or whoever asked has left, its
// process group is ended.
func (c *children) run(ctx context.Context, command *exec.Cmd, timeout time.Duration) (late bool, err error) {
	// The signal at the runner's death is sent when the thread ends that started the command.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err := c.start(command); err != nil {
		return false, err
	}
	defer c.forget(command.Process.Pid)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			// It is still there to be waited for, and so is its number: what is signalled is its
			// group and no other.
			err := unix.Waitid(unix.P_PID, command.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
			if err != unix.EINTR {
				return
			}
		}
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-ended:
		return false, wait(command)
	case <-timer.C:
		late = true
	case <-ctx.Done():
	}
	group := -command.Process.Pid
	_ = syscall.Kill(group, syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(killTimeout):
	}
	_ = syscall.Kill(group, syscall.SIGKILL)
	<-ended
	return late, wait(command)
}

// wait takes the status of a command that has ended. Its outputs are not waited for.
func wait(command *exec.Cmd) (err error) {
	command.ProcessState, err = command.Process.Wait()
	return err
}

func (c *children) start(command *exec.Cmd) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := command.Start(); err != nil {
		return err
	}
	c.know(command.Process.Pid)
	return nil
}

func (c *children) know(pid int) {
	if c.pid == nil {
		c.pid = map[int]bool{}
	}
	c.pid[pid] = true
}

func (c *children) forget(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pid, pid)
}

// adopt makes this process the parent of what commands leave behind, so that every process which
// descends from a command descends from this one as long as it lives: that is how it is known again
// (socket.Descends).
func (c *children) adopt() (stop func()) {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	over := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-died:
				c.bury()
			case <-over:
				return
			}
		}
	}()
	return func() {
		signal.Stop(died)
		close(over)
		<-done
	}
}

// bury waits for the dead that are no commands: nobody else does.
func (c *children) bury() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pid := range childrenOf(os.Getpid()) {
		if !c.pid[pid] {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// endTimeout bounds how long is tried to end what starts itself anew all the time, or cannot be
// ended because it waits in the kernel.
const endTimeout = 15 * time.Second

// end ends what commands have left in the background. Nobody could tell any more what it is, and it
// could answer for the person.
func (c *children) end() {
	for deadline := time.Now().Add(endTimeout); c.endAll() > 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
}

// endAll stops all that is left, parents first, so that none goes on to make others, and then ends
// it: a line of thousands takes no longer for being one. It returns how many there were.
func (c *children) endAll() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	stopped := c.left()
	for _, p := range stopped {
		p.signal(syscall.SIGSTOP)
	}
	for _, p := range append(stopped, c.left()...) { // with what they made until they were stopped
		p.signal(syscall.SIGKILL)
	}
	for _, pid := range childrenOf(os.Getpid()) {
		if !c.pid[pid] {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
	return len(stopped)
}

// A descendant is a process, and what its parent was.
type descendant struct{ pid, parent int }

// left are the processes that descend from this one, but for the commands themselves and what these
// have, parents first.
func (c *children) left() (list []descendant) {
	for _, pid := range childrenOf(os.Getpid()) {
		if !c.pid[pid] {
			list = append(list, descendant{pid, os.Getpid()})
		}
	}
	for at := 0; at < len(list); at++ {
		for _, pid := range childrenOf(list[at].pid) {
			list = append(list, descendant{pid, list[at].pid})
		}
	}
	return list
}

// signal signals a process if it still is what was listed: its number may be another's by now,
// whose parent is another, too.
func (d descendant) signal(s syscall.Signal) {
	process, err := unix.PidfdOpen(d.pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(process)
	if parent, err := socket.ParentOf(d.pid); err == nil && (parent == d.parent || parent == os.Getpid()) {
		_ = unix.PidfdSendSignal(process, s, nil, 0)
	}
}

// childrenOf are the processes whose parent a process is (proc_tid_children(5)).
func childrenOf(pid int) (list []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range files {
		text, _ := os.ReadFile(path)
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				list = append(list, child)
			}
		}
	}
	return list
}

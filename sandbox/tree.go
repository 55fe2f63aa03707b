package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// init is the process that is pid 1 inside, by its number outside, or 0 if there is none yet: bwrap's only child. The
// number is its own as long as bwrap has not been reaped, which the process's lock keeps off.
func (a *attempt) init() int {
	if children := childrenOf(a.process.pid); len(children) > 0 {
		return children[0]
	}
	return 0
}

// relay passes a signal on to the command. It reports false if there is no command, yet or any more.
func (a *attempt) relay(s syscall.Signal) bool {
	a.process.mu.Lock()
	defer a.process.mu.Unlock()
	if a.process.reaped {
		return true
	}
	first := childrenOf(a.init())
	if len(first) == 0 {
		return false
	}
	// The command is pid 1's first child; later ones are orphans that it took in.
	unix.Kill(first[0], s)
	return true
}

// A Control sends signals to the command of one run.
type Control struct{ attempt atomic.Pointer[attempt] }

// ErrNoCommand means that the command does not run, yet or any more.
var ErrNoCommand = errors.New("the command does not run")

// Signal sends a signal to the command.
func (c *Control) Signal(s syscall.Signal) error {
	a := c.attempt.Load()
	if a == nil {
		return ErrNoCommand
	}
	select {
	case <-a.ended:
		return ErrNoCommand
	default:
	}
	if !a.relay(s) {
		return ErrNoCommand
	}
	return nil
}

func (c *Control) begin(a *attempt) {
	if c != nil {
		c.attempt.Store(a)
	}
}

// terminate asks every process inside to end. Those that are stopped are woken, to hear it.
func (a *attempt) terminate() {
	a.process.mu.Lock()
	defer a.process.mu.Unlock()
	if a.process.reaped {
		return
	}
	list := a.processes()
	if len(list) == 0 {
		unix.Kill(a.process.pid, unix.SIGKILL) // nothing of the command's is running yet
	}
	for _, pid := range list {
		unix.Kill(pid, unix.SIGTERM)
		unix.Kill(pid, unix.SIGCONT)
	}
}

// kill ends every process inside: when the first process of a namespace of process ids dies, the kernel kills the rest.
// With a guard namespace that is bwrap, without it pid 1 inside, and bwrap ends after it. The error says that even so
// something stayed.
func (a *attempt) kill() error {
	a.process.mu.Lock()
	if !a.process.reaped {
		target := a.process.pid
		if first := a.init(); a.attr.Cloneflags == 0 && first != 0 {
			target = first
		}
		unix.Kill(target, unix.SIGKILL)
	}
	a.process.mu.Unlock()
	select {
	case <-a.ended:
		return nil
	case <-time.After(killPatience):
		a.process.kill()
		return fmt.Errorf("a process in the sandbox is still there %v after SIGKILL: it hangs in the kernel", killPatience)
	}
}

// maxDescendants bounds the walk through a tree of processes that may be growing.
const maxDescendants = 1 << 16

func descendantsOf(pid int) []int {
	list := childrenOf(pid)
	for i := 0; i < len(list) && len(list) < maxDescendants; i++ {
		list = append(list, childrenOf(list[i])...)
	}
	return list
}

// childrenOf lists the processes that pid started and has not lost, oldest first. Needs a kernel with
// CONFIG_PROC_CHILDREN, as all distributions' have.
func childrenOf(pid int) []int {
	if pid == 0 {
		return nil
	}
	var list []int
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				list = append(list, child)
			}
		}
	}
	return list
}

// baseName is the last component of a path.
func baseName(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

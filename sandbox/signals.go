package sandbox

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/process"
)

// init is the process that is pid 1 inside, by its number outside, or 0 if there is none yet:
// bwrap's only child. The number is its own as long as bwrap has not been reaped, which the
// process's lock keeps off.
func (a *attempt) init() int {
	if children := process.Children(a.process.PID()); len(children) > 0 {
		return children[0]
	}
	return 0
}

// relay passes a signal on to the command. It reports false if there is no command, yet or any
// more.
func (a *attempt) relay(s syscall.Signal) bool {
	sent := false
	there := a.process.While(func(int) {
		// The command is pid 1's first child; later ones are orphans that it took in.
		if first := process.Children(a.init()); len(first) > 0 {
			unix.Kill(first[0], s)
			sent = true
		}
	})
	return sent || !there
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

// Has reports whether a process, by its number outside, is in this run's sandbox. The number is the
// process's own as long as it has not been waited for, which is the caller's to see to.
func (c *Control) Has(pid int) (is bool) {
	a := c.attempt.Load()
	if a == nil {
		return false
	}
	a.process.While(func(int) {
		init := a.init()
		is = init != 0 && sameNamespace(init, pid, "pid") && sameNamespace(init, pid, "mnt")
	})
	return is
}

func sameNamespace(a, b int, name string) bool {
	var one, other unix.Stat_t
	return unix.Stat(fmt.Sprintf("/proc/%d/ns/%s", a, name), &one) == nil && unix.Stat(fmt.Sprintf("/proc/%d/ns/%s", b, name), &other) == nil &&
		one.Dev == other.Dev && one.Ino == other.Ino
}

func (c *Control) begin(a *attempt) {
	if c != nil {
		c.attempt.Store(a)
	}
}

// terminate asks every process inside to end. Those that are stopped are woken, to hear it.
func (a *attempt) terminate() {
	a.process.While(func(bwrap int) {
		list := a.processes()
		if len(list) == 0 {
			unix.Kill(bwrap, unix.SIGKILL) // nothing of the command's is running yet
		}
		for _, pid := range list {
			unix.Kill(pid, unix.SIGTERM)
			unix.Kill(pid, unix.SIGCONT)
		}
	})
}

// kill ends every process inside: when the first process of a namespace of process ids dies, the
// kernel kills the rest. With a guard namespace that is bwrap, without it pid 1 inside, and bwrap
// ends after it. The error says that even so something stayed.
func (a *attempt) kill() error {
	a.process.While(func(target int) {
		if first := a.init(); a.attr.Cloneflags == 0 && first != 0 {
			target = first
		}
		unix.Kill(target, unix.SIGKILL)
	})
	select {
	case <-a.ended:
		return nil
	case <-time.After(killTimeout):
		a.process.Kill()
		return fmt.Errorf("a process in the sandbox is still there %v after SIGKILL: it hangs in the kernel", killTimeout)
	}
}

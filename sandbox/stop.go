package sandbox

import (
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/process"
)

// What is set aside when it is made, covered anew or taken away in time, is so because this process
// runs. A terminal that stops a job stops this process, and those inside that do nothing about it:
// the others would go on with nobody looking, while a person is at the shell. The command can bring
// that about itself: it gives the foreground to a group of its own and reads from the background.
// So this process stops only when all of the command has.

// stopSignals are those by which a terminal stops a job.
var stopSignals = []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}

const (
	// stopTimeout is how long programs may take to stop by themselves: some put the terminal back
	// first.
	stopTimeout = 300 * time.Millisecond
	// freezeTimeout bounds the attempts to stop those that do not.
	freezeTimeout = 2 * time.Second
	// quietLooks is how often in a row nothing that runs must be found, as they can wake one
	// another.
	quietLooks = 3
)

// hearStops makes the terminal's stop signals come to a channel, but for those that the caller
// ignores, until done is called.
func hearStops() (heard chan os.Signal, done func()) {
	heard = make(chan os.Signal, 4)
	before := map[syscall.Signal]signalAction{}
	for _, s := range stopSignals {
		if !signal.Ignored(s) {
			before[s] = setAction(s, nil)
			signal.Notify(heard, s)
		}
	}
	return heard, func() {
		signal.Stop(heard)
		for s, action := range before { // which signal.Stop does not bring back for these
			setAction(s, &action)
		}
	}
}

// A signalAction is what the kernel does about a signal (struct kernel_sigaction). The zero value
// is what it does by itself.
type signalAction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// setAction sets an action, if there is one, and returns the one before.
func setAction(s syscall.Signal, action *signalAction) (before signalAction) {
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(action)), uintptr(unsafe.Pointer(&before)), unsafe.Sizeof(before.mask), 0, 0)
	return before
}

// stop stops everything inside, then this process, as the signal would have, and when that goes on,
// everything that it stopped. What cannot be stopped is ended.
func (a *attempt) stop(s syscall.Signal, heard chan os.Signal) {
	select {
	case <-a.process.Begun(): // or it could begin in between
	case <-a.ended:
		return
	}
	for deadline := time.Now().Add(stopTimeout); a.anyRuns() && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	stopped, all := a.freeze()
	if !all {
		a.endFor(Notice{Kind: NoticeProtected, Text: "the command was ended: it could not be stopped, and must not run while nobody looks after it"})
		return
	}
	stopSelf(s)
	for len(heard) > 0 { // the same stop, by another way
		<-heard
	}
	a.thaw(stopped)
}

// stopSelf stops this process. In the background of no shell the kernel does not stop anybody, and
// it returns at once.
func stopSelf(s syscall.Signal) {
	// To this thread, so that it is stopped before it does anything else.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := setAction(s, &signalAction{})
	unix.Tgkill(unix.Getpid(), unix.Gettid(), s)
	setAction(s, &before)
}

// anyRuns reports whether a process of the command is not stopped.
func (a *attempt) anyRuns() (is bool) {
	a.process.While(func(int) { is = slices.ContainsFunc(process.Descendants(a.init()), process.Runs) })
	return is
}

// freeze stops every process of the command that runs, and returns those.
func (a *attempt) freeze() (stopped []int, all bool) {
	for deadline := time.Now().Add(freezeTimeout); time.Now().Before(deadline); {
		found := a.freezeOnce()
		for looks := 0; len(found) == 0; looks++ {
			if looks == quietLooks {
				return stopped, true
			}
			found = a.freezeOnce()
		}
		for _, pid := range found {
			if !slices.Contains(stopped, pid) {
				stopped = append(stopped, pid)
			}
		}
	}
	return stopped, false
}

// freezeOnce sends SIGSTOP to what runs.
func (a *attempt) freezeOnce() (found []int) {
	a.process.While(func(int) {
		for _, pid := range a.processes() {
			if process.Runs(pid) && unix.Kill(pid, unix.SIGSTOP) == nil {
				found = append(found, pid)
			}
		}
	})
	return found
}

// thaw lets those go on that freeze has stopped, and no other: a job that was stopped before stays
// so.
func (a *attempt) thaw(stopped []int) {
	a.process.While(func(int) {
		inside := a.processes()
		for _, pid := range stopped {
			if slices.Contains(inside, pid) {
				unix.Kill(pid, unix.SIGCONT)
			}
		}
	})
}

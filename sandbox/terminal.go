package sandbox

import (
	"os"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// ControlsTerminal reports whether one of the files is this process's controlling terminal.
func ControlsTerminal(files ...*os.File) bool {
	for _, file := range files {
		// Only the controlling terminal answers which process group is in its foreground.
		if _, err := unix.IoctlGetInt(int(file.Fd()), unix.TIOCGPGRP); err == nil {
			return true
		}
	}
	return false
}

// terminalSignals are those that a terminal sends to its whole foreground group, and that end a program which does nothing
// about them. (The other one, SIGTSTP, may stop all of the group, as it would without the sandbox.)
var terminalSignals = []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT}

// ignoredSignals are those of the terminal's signals that the caller ignores, and so does the command. It is asked once: what
// signal.Ignore did is not undone for signal.Ignored.
func ignoredSignals() []syscall.Signal {
	return slices.DeleteFunc(slices.Clone(terminalSignals), func(s syscall.Signal) bool { return !signal.Ignored(s) })
}

// disregardTerminalSignals makes this process survive what the terminal sends to the whole group. In plain guard bwrap
// has to survive it too, so they are ignored, which bwrap inherits, and the trampoline restores them for the command. It
// returns what takes that back.
func (l Launcher) disregardTerminalSignals() func() {
	received := make(chan os.Signal, 1)
	var changed []os.Signal
	for _, s := range terminalSignals {
		if slices.Contains(l.ignored, s) {
			continue
		}
		changed = append(changed, s)
		if l.guard == guardPlain {
			signal.Ignore(s)
		} else {
			signal.Notify(received, s)
		}
	}
	return func() {
		if len(changed) > 0 {
			signal.Reset(changed...)
		}
	}
}

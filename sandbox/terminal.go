package sandbox

import (
	"bytes"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/process"
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

// terminalSignals are those that a terminal sends to its whole foreground group, and that end a
// program which does nothing about them. (The other one, SIGTSTP, may stop all of the group, as it
// would without the sandbox.)
var terminalSignals = []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT}

// ignoredSignals are those of the terminal's signals that the caller ignores, and so does the
// command. It is asked once: what signal.Ignore did is not undone for signal.Ignored.
func ignoredSignals() []syscall.Signal {
	return slices.DeleteFunc(slices.Clone(terminalSignals), func(s syscall.Signal) bool { return !signal.Ignored(s) })
}

// disregardTerminalSignals makes this process survive what the terminal sends to the whole group.
// In plain guard bwrap has to survive it too, so they are ignored, which bwrap inherits, and the
// trampoline restores them for the command. It returns what takes that back.
func (l Launcher) disregardTerminalSignals() func() {
	received := make(chan os.Signal, 1)
	var changed []os.Signal
	for _, s := range terminalSignals {
		if slices.Contains(l.ignored, s) {
			continue
		}
		changed = append(changed, s)
		if l.guard == process.GuardPlain {
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

// keepStreams notes the state that the command's streams share with whoever else has them open,
// such as the shell that the caller is at, and returns what puts it back: whether reads wait, to
// whom signals about them go, and a terminal's modes and foreground.
func keepStreams(stdio Stdio) (putBack func()) {
	var list []streamState
	for _, stream := range []any{stdio.In, stdio.Out, stdio.Err} {
		if file, ok := stream.(*os.File); ok && file != nil {
			if state, ok := stateOf(file); ok {
				list = append(list, state)
			}
		}
	}
	return func() {
		for _, state := range list {
			state.putBack()
		}
	}
}

// A streamState is that of an open file description.
type streamState struct {
	file          *os.File
	flags, signal int // to whom the signals go ends with the command
	// Of a terminal, if this process was in its foreground or it is not this process's own; then
	// modes is not nil.
	modes *unix.Termios
	group int // in the foreground; 0 if the terminal does not say
	// permissions are the terminal's, pipe's or file's: 0666 on a terminal, and every user reads
	// what is typed.
	permissions uint32
	list        []byte // the access control list; empty: none
}

func stateOf(file *os.File) (s streamState, ok bool) {
	s.file = file
	s.use(func(fd int) {
		var err error
		if s.flags, err = unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil {
			return
		}
		ok = true
		s.permissions = permissions(fd)
		s.list = accessList(fd)
		s.signal, _ = unix.FcntlInt(uintptr(fd), unix.F_GETSIG, 0)
		if s.group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil {
			s.group = 0
		} else if s.group != unix.Getpgrp() {
			return // its modes are those of somebody else now
		}
		if modes, err := unix.IoctlGetTermios(fd, unix.TCGETS2); err == nil {
			s.modes = modes
		}
	})
	return s, ok
}

// permissions is the mode of what a descriptor has open; 0: it has none.
func permissions(fd int) uint32 {
	var is unix.Stat_t
	if unix.Fstat(fd, &is) != nil {
		return 0
	}
	return is.Mode
}

// accessListName is the attribute that holds a file's access control list (acl(5)).
const accessListName = "system.posix_acl_access"

func accessList(fd int) []byte {
	if n, err := unix.Fgetxattr(fd, accessListName, nil); err != nil || n <= 0 {
		return nil // as most: the memory for one is not made, nor cleared
	}
	list := make([]byte, 64<<10)
	n, err := unix.Fgetxattr(fd, accessListName, list)
	if err != nil || n <= 0 {
		return nil
	}
	return list[:n]
}

// use lends the descriptor, and leaves alone whether it waits, as File.Fd would not.
func (s *streamState) use(do func(fd int)) {
	if raw, err := s.file.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { do(int(fd)) })
	}
}

func (s *streamState) putBack() {
	s.use(func(fd int) {
		if list := accessList(fd); len(s.list) > 0 && !bytes.Equal(list, s.list) {
			unix.Fsetxattr(fd, accessListName, s.list, 0)
		} else if len(s.list) == 0 && len(list) > 0 {
			unix.Fremovexattr(fd, accessListName)
		}
		if s.permissions != 0 && permissions(fd) != s.permissions {
			unix.Fchmod(fd, s.permissions&0o7777)
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err == nil && flags != s.flags {
			unix.FcntlInt(uintptr(fd), unix.F_SETFL, s.flags)
		}
		if number, err := unix.FcntlInt(uintptr(fd), unix.F_GETSIG, 0); err == nil && number != s.signal {
			unix.FcntlInt(uintptr(fd), unix.F_SETSIG, s.signal)
		}
		if s.modes != nil && s.foreground(fd) {
			unix.IoctlSetInt(fd, unix.TCXONC, unix.TCOON)
			unix.IoctlSetTermios(fd, unix.TCSETS2, s.modes)
		}
	})
}

// foreground reports whether the terminal's modes are this process's to set. Where the command has
// left a foreground group that nobody is in any more, it takes the foreground back; where somebody
// else is in it, this process has been put into the background, and leaves the terminal alone.
func (s *streamState) foreground(fd int) bool {
	if s.group == 0 {
		return true
	}
	now, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if err != nil || now == s.group {
		return err == nil
	}
	if now > 1 && unix.Kill(-now, 0) != unix.ESRCH {
		return false
	}
	signal.Ignore(syscall.SIGTTOU) // which would stop whoever does this from the background
	defer signal.Reset(syscall.SIGTTOU)
	return unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, s.group) == nil
}

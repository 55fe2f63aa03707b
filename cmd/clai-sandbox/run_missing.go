package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox"
	"github.com/clairun/clai-sandbox/sandbox/diagnosis"
)

// maxKept is how much of what a command said last is kept, to tell what it lacked.
const maxKept = 64 << 10

// A listener passes on what a command writes to its standard error, and keeps the end of it.
type listener struct {
	write *os.File
	done  chan struct{}
	tail  []byte
}

// listen stands between the command and its standard error, to know what the command lacked. A
// terminal is left as it is: what the command finds at it matters to the command. So does any other
// device but /dev/null, which may refuse what is written, and what is not open for writing. Both
// streams that go to one file stay one, in their order.
func listen(stdio *sandbox.Stdio) *listener {
	if _, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS); err == nil {
		return nil
	}
	var is unix.Stat_t
	flags, err := unix.FcntlInt(os.Stderr.Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_ACCMODE == unix.O_RDONLY || unix.Fstat(int(os.Stderr.Fd()), &is) != nil ||
		is.Mode&unix.S_IFMT == unix.S_IFCHR && is.Rdev != unix.Mkdev(1, 3) {
		return nil
	}
	// Not descriptor 2 itself: a write that nobody reads would end this process by SIGPIPE, in
	// place of the command.
	number, err := unix.FcntlInt(os.Stderr.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil
	}
	stderr := os.NewFile(uintptr(number), "stderr")
	read, write, err := os.Pipe()
	if err != nil {
		stderr.Close()
		return nil
	}
	l := &listener{write: write, done: make(chan struct{})}
	stdio.Err = write
	if sameFile(os.Stdout, os.Stderr) {
		stdio.Out = write
	}
	go func() {
		defer close(l.done)
		defer stderr.Close()
		defer read.Close()
		_, _ = io.Copy(io.MultiWriter(stderr, l), read) // nobody reads any more: the command is to hear of it by SIGPIPE
	}()
	return l
}

func sameFile(a, b *os.File) bool {
	first, err1 := a.Stat()
	second, err2 := b.Stat()
	return err1 == nil && err2 == nil && os.SameFile(first, second)
}

// Write keeps the end.
func (l *listener) Write(p []byte) (int, error) {
	l.tail = append(l.tail, p...)
	if extra := len(l.tail) - maxKept; extra > 0 {
		l.tail = append(l.tail[:0], l.tail[extra:]...)
	}
	return len(p), nil
}

// end returns what the command said last, when all of it has been passed on.
func (l *listener) end() []byte {
	if l == nil {
		return nil
	}
	l.write.Close()
	<-l.done
	return l.tail
}

// missing is what a command lacked, if that is why it failed.
func (j job) missing(command []string, result sandbox.Result, stderr []byte, unread bool) []diagnosis.Missing {
	if result.Outcome != sandbox.Exited {
		return nil
	}
	return diagnosis.Of(diagnosis.Failure{Plan: &j.prepared.Plan, Command: command, ExitCode: result.ExitCode, Stderr: stderr, Unread: unread, Notices: result.Notices, Own: j.prepared.Profile.OwnDirectories})
}

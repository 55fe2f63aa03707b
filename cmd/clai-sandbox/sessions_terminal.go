package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/integration/rooms"
)

func isTerminal(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// lastWords is how long output is waited for when the command has ended: something that it left may
// have the other end.
const lastWords = 200 * time.Millisecond

// joinPipes has a command read and write pipes, whatever this program's streams are: a file, or the
// person's terminal, is handed to nobody.
func joinPipes(start func(rooms.Command) (*rooms.Started, error), command rooms.Command) (int, error) {
	theirs := &command.Streams
	var outputs sync.WaitGroup
	for i, ours := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		if i == 2 && oneFile(os.Stdout, os.Stderr) { // what is written to both keeps its order
			theirs[i] = theirs[1]
			continue
		}
		read, write, err := os.Pipe()
		if err != nil {
			return 0, err
		}
		if i == 0 {
			theirs[i] = read
			go func() { io.Copy(write, ours); write.Close() }()
			continue
		}
		theirs[i] = write
		outputs.Go(func() { io.Copy(ours, read) })
	}
	p, err := start(command)
	for _, file := range theirs {
		file.Close()
	}
	if err != nil {
		return 0, err
	}
	status, notices, err := p.Wait()
	awaitOutput(&outputs)
	told(notices)
	return status, err
}

func oneFile(a, b *os.File) bool {
	one, err := a.Stat()
	if err != nil {
		return false
	}
	other, err := b.Stat()
	return err == nil && os.SameFile(one, other)
}

func awaitOutput(outputs *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { outputs.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(lastWords):
	}
}

// joinTerminal has a command at a terminal of its own, whose other end is here: the person's own
// terminal is handed to nobody.
func joinTerminal(start func(rooms.Command) (*rooms.Started, error), command rooms.Command) (int, error) {
	master, slave, err := newTerminal()
	if err != nil {
		return 0, fmt.Errorf("a terminal: %w", err)
	}
	defer master.Close()
	resize(master)
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	go func() {
		for range resized {
			resize(master)
		}
	}()
	command.Terminal, command.Streams = true, [3]*os.File{slave, slave, slave}
	p, err := start(command)
	slave.Close()
	if err != nil {
		return 0, err
	}
	restore, err := makeRaw(os.Stdin)
	if err != nil {
		return 0, err
	}
	defer restore()
	ended := make(chan os.Signal, 1) // or the terminal would stay raw
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	defer signal.Stop(ended)
	var output sync.WaitGroup
	output.Go(func() { io.Copy(os.Stdout, master) })
	go io.Copy(master, os.Stdin)
	type end struct {
		status  int
		notices []string
		err     error
	}
	over := make(chan end, 1)
	go func() { status, notices, err := p.Wait(); over <- end{status, notices, err} }()
	select {
	case e := <-over:
		awaitOutput(&output)
		restore()
		told(e.notices)
		return e.status, e.err
	case s := <-ended:
		return 128 + int(s.(syscall.Signal)), nil
	}
}

// newTerminal makes a pair of ends. The other one is opened by the first, and by no name.
func newTerminal() (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	master = os.NewFile(uintptr(fd), "terminal")
	if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
		var other uintptr
		var errno syscall.Errno
		if other, _, errno = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC); errno == 0 {
			return master, os.NewFile(other, "terminal"), nil
		}
		err = errno
	}
	master.Close()
	return nil, nil, err
}

// resize makes a terminal as large as this one.
func resize(master *os.File) {
	if size, err := unix.IoctlGetWinsize(int(os.Stdin.Fd()), unix.TIOCGWINSZ); err == nil {
		if raw, err := master.SyscallConn(); err == nil {
			raw.Control(func(fd uintptr) { unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size) })
		}
	}
}

// makeRaw has a terminal pass on all that is typed as it is (cfmakeraw(3)).
func makeRaw(file *os.File) (restore func(), err error) {
	fd := int(file.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	raw := *before
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &raw); err != nil {
		return nil, err
	}
	return func() { unix.IoctlSetTermios(fd, unix.TCSETS, before) }, nil
}

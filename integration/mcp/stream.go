package mcp

import (
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A stream is what comes out of commands by one pipe. Its reader never falls behind what a command
// has said before it ended.
type stream struct {
	raw  syscall.RawConn
	read *os.File
	done chan struct{} // closed when nobody has the other end any more

	mu     sync.Mutex
	to     io.Writer // nil: nowhere
	buffer []byte
}

// newStream makes the pipe. Its other end is a command's.
func newStream(to io.Writer) (*stream, *os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	raw, err := read.SyscallConn()
	if err != nil {
		read.Close()
		write.Close()
		return nil, nil, err
	}
	st := &stream{raw: raw, read: read, to: to, done: make(chan struct{}), buffer: make([]byte, 64<<10)}
	go st.carry()
	return st, write, nil
}

// carry reads until the end. Nothing is read and not handed on while nobody holds the lock.
func (st *stream) carry() {
	defer close(st.done)
	defer st.read.Close()
	for ended := false; !ended; {
		if err := st.raw.Read(func(fd uintptr) bool {
			st.mu.Lock()
			defer st.mu.Unlock()
			n, err := st.once(int(fd), len(st.buffer))
			ended = n == 0 || err != nil && err != unix.EAGAIN && err != unix.EINTR
			return err != unix.EAGAIN
		}); err != nil {
			return
		}
		if st.waits() { // nobody wants so much
			time.Sleep(idlePause)
		}
	}
}

// idlePause is between two reads of what nobody waits for: who writes it without end is to take no
// processor of ours.
const idlePause = 5 * time.Millisecond

func (st *stream) waits() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	_, idle := st.to.(*between)
	return idle || st.to == nil
}

// between keeps the end of what is written to it: what background jobs say while no line runs,
// which the next one's output begins with, as at a terminal.
type between struct {
	mu   sync.Mutex
	text []byte
}

const maxBetween = 8 << 10

func (b *between) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p[max(0, len(p)-maxBetween):]...)
	b.text = b.text[max(0, len(b.text)-maxBetween):]
	return len(p), nil
}

func (b *between) take() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := b.text
	b.text = nil
	return text
}

// once reads once. The lock is held.
func (st *stream) once(fd, most int) (int, error) {
	n, err := unix.Read(fd, st.buffer[:min(most, len(st.buffer))])
	if n > 0 && st.to != nil {
		st.to.Write(st.buffer[:n])
	}
	return n, err
}

// turn hands on what has come until now, which is what was written before, and what comes later to
// somebody else.
func (st *stream) turn(to io.Writer) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.raw.Control(func(fd uintptr) {
		left, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		for err == nil && left > 0 {
			var n int
			if n, err = st.once(int(fd), left); n <= 0 {
				return
			}
			left -= n
		}
	})
	st.to = to
}

// close lets go of the pipe: who still writes to it is told by SIGPIPE.
func (st *stream) close() { st.read.Close() }

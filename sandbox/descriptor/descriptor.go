// Package descriptor has open files by their descriptors: pipes, files in memory, objects that are
// held by what they are and not by their names, and the sockets through which a process inside
// sends one out.
package descriptor

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A File is an open file of this process, close-on-exec. 0 is none. It is not an *os.File, which
// asks the kernel several things about each file that it is given; a sandbox may have hundreds.
type File int

// Close closes it, once.
func (f *File) Close() {
	if *f > 0 {
		unix.Close(int(*f))
		*f = 0
	}
}

// Write writes all of the text.
func (f File) Write(text []byte) error {
	for len(text) > 0 {
		n, err := unix.Write(int(f), text)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// Pipe makes a pipe.
func Pipe() (read, write File, err error) {
	var fds [2]int
	err = unix.Pipe2(fds[:], unix.O_CLOEXEC)
	return File(fds[0]), File(fds[1]), err
}

// Open opens a file of the system's for reading, and waits for nothing.
func Open(path string) (File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	return File(max(fd, 0)), err
}

// CloseOnExec keeps every descriptor that this process inherited from reaching the command. Go
// marks its own so, but not what it was started with. Needs Linux 5.11 for CLOSE_RANGE_CLOEXEC;
// before, /proc lists what is open.
func CloseOnExec() error {
	err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	if err == nil || !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		fd := 0
		if _, err := fmt.Sscan(entry.Name(), &fd); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// Sealed puts text into a file in memory that nobody can change any more.
func Sealed(name string, text []byte) (File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return 0, fmt.Errorf("memfd_create: %w", err)
	}
	f := File(fd)
	if err = f.Write(text); err == nil {
		_, err = unix.Seek(fd, 0, unix.SEEK_SET)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
			unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		f.Close()
		return 0, fmt.Errorf("memfd: %w", err)
	}
	return f, nil
}

package sandbox

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// A descriptor is an open file of this process, close-on-exec. 0 is none. It is not an *os.File, which asks the kernel
// several things about each file that it is given; a sandbox may have hundreds.
type descriptor int

func (d *descriptor) close() {
	if *d > 0 {
		unix.Close(int(*d))
		*d = 0
	}
}

func (d descriptor) write(text []byte) error {
	for len(text) > 0 {
		n, err := unix.Write(int(d), text)
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

func pipe() (read, write descriptor, err error) {
	var fds [2]int
	err = unix.Pipe2(fds[:], unix.O_CLOEXEC)
	return descriptor(fds[0]), descriptor(fds[1]), err
}

// pin opens the object at path without following any symbolic link, so that what is bound is what Build saw: a command
// that ran before may have put a link in its place (CVE-2026-87766 and its kin). Needs Linux 5.6 for openat2(2).
func pin(path string) (descriptor, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC, // with O_NOFOLLOW, a link at the end would be opened as itself
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err == unix.ENOSYS {
		return pinBySteps(path)
	}
	return descriptor(max(fd, 0)), err
}

// openProgram opens the file that this process executes, to be bound. bwrap looks for the path of what it binds, and has no
// capability to do so in other users' directories: where they let nobody in, the file is open for reading, to be copied.
func openProgram() (file descriptor, reachable bool, err error) {
	flags := unix.O_PATH
	path, err := os.Readlink(ownProgram)
	if reachable = err == nil && searchable(path); !reachable {
		flags = unix.O_RDONLY
	}
	fd, err := unix.Open(ownProgram, flags|unix.O_CLOEXEC, 0)
	return descriptor(max(fd, 0)), reachable, err
}

// searchable reports whether this process's user may look into the directories above a path without any capability.
func searchable(path string) bool {
	for path != "/" {
		path = parent(path)
		var info unix.Stat_t
		if unix.Stat(path, &info) != nil {
			return false
		}
		bit := uint32(unix.S_IXOTH)
		switch {
		case int(info.Uid) == os.Getuid():
			bit = unix.S_IXUSR
		case int(info.Gid) == os.Getgid():
			bit = unix.S_IXGRP
		}
		if info.Mode&bit == 0 {
			return false
		}
	}
	return true
}

// errReplaced means that what was allowed is not what is there now.
var errReplaced = errors.New("something else stands in the place of what was allowed")

// pinExpected pins the object at path if it is the one that a person allowed. What is compared is what is bound: nothing
// can be put in its place in between.
func pinExpected(path string, want *profile.Expected) (descriptor, error) {
	file, err := pin(path)
	if err != nil || want == nil || want.Inode == 0 {
		return file, err
	}
	object, err := profile.ObjectOf(int(file))
	if err == nil && !want.Is(object) {
		err = errReplaced
	}
	if err != nil {
		file.close()
	}
	return file, err
}

// openFile opens a file of the system's for reading, and waits for nothing.
func openFile(path string) (descriptor, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	return descriptor(max(fd, 0)), err
}

// closeOnExec keeps every descriptor that this process inherited from reaching the command. Go marks its own so, but not
// what it was started with. Needs Linux 5.11 for CLOSE_RANGE_CLOEXEC; before, /proc lists what is open.
func closeOnExec() error {
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

// sealed puts text into a file in memory that nobody can change any more.
func sealed(name string, text []byte) (descriptor, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return 0, fmt.Errorf("memfd_create: %w", err)
	}
	d := descriptor(fd)
	if err = d.write(text); err == nil {
		_, err = unix.Seek(fd, 0, unix.SEEK_SET)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
			unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		d.close()
		return 0, fmt.Errorf("memfd: %w", err)
	}
	return d, nil
}

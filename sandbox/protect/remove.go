package protect

import (
	"crypto/rand"
	"fmt"

	"golang.org/x/sys/unix"
)

// Discard removes an entry, with all that is in it.
func (q *Quarantine) Discard(id string) error {
	in, err := q.openEntry(id)
	if err != nil {
		return err
	}
	unix.Close(in)
	return q.discard(id)
}

func (q *Quarantine) discard(id string) error {
	dir, err := q.open()
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return remove(dir, id)
}

// remove removes a name in an open directory, and all below it. However deep that is, few
// directories are open at a time: those below are moved up first.
func remove(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	top, err := openToRemove(dir, name)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	for {
		below, err := empty(top, top)
		if err != nil {
			return err
		}
		if len(below) == 0 {
			return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		}
		for _, b := range below {
			fd, err := openToRemove(top, b)
			if err != nil {
				return err
			}
			_, err = empty(fd, top)
			unix.Close(fd)
			if err != nil {
				return err
			}
			if err := unix.Unlinkat(top, b, unix.AT_REMOVEDIR); err != nil {
				return err
			}
		}
	}
}

func openToRemove(dir int, name string) (int, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.EACCES {
		makeReadable(dir, name)
		fd, err = unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if err == nil {
		unix.Fchmod(fd, 0o700)
	}
	return fd, err
}

// makeReadable gives its owner all rights in a directory.
func makeReadable(dir int, name string) {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Chmod(descriptorPath(fd), 0o700)
		unix.Close(fd)
	}
}

// empty removes what is in a directory, but for directories: those it names, or moves to top.
func empty(dir, top int) (below []string, err error) {
	var names []string
	if _, err := unix.Seek(dir, 0, unix.SEEK_SET); err != nil {
		return nil, err
	}
	if err := readDirectory(dir, func(name []byte, _ Kind) bool {
		names = append(names, string(name))
		return true
	}); err != nil {
		return nil, err
	}
	for i, name := range names {
		switch err := unix.Unlinkat(dir, name, 0); {
		case err == nil || err == unix.ENOENT:
		case err != unix.EISDIR && err != unix.EPERM:
			return nil, err
		case dir == top:
			below = append(below, name)
		default:
			var random [8]byte
			rand.Read(random[:])
			as := fmt.Sprintf("%x-%d", random, i)
			err := unix.Renameat(dir, name, top, as)
			if err == unix.EACCES { // one that may not be written cannot be moved
				makeReadable(dir, name)
				err = unix.Renameat(dir, name, top, as)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return below, nil
}

package unpack

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// whiteout takes away what earlier layers have: one name, or all in a directory. What this layer
// has itself stays.
func (u *unpacker) whiteout(dir, base string) error {
	if base != opaque {
		base = base[len(whiteout):]
		if base == "" || base == "." || base == ".." || len(base) >= len(whiteout) && base[:len(whiteout)] == whiteout {
			return unix.EINVAL
		}
	}
	u.forget()
	at, err := Beneath(u.root, dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if base == opaque {
		return u.removeEarlier(at, dir)
	}
	return u.removeOne(at, dir, base)
}

func (u *unpacker) removeEarlier(at int, dir string) error {
	names, err := namesIn(at)
	for _, name := range names {
		if err := u.removeOne(at, dir, name); err != nil {
			return err
		}
	}
	return err
}

func (u *unpacker) removeOne(at int, dir, base string) error {
	name := base
	if dir != "" {
		name = dir + "/" + base
	}
	if !u.has(name) {
		return Remove(at, base)
	}
	fd, err := Beneath(at, base, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil // this layer's, and no directory
	}
	defer unix.Close(fd)
	return u.removeEarlier(fd, name)
}

// Remove takes away what is at a name in an open directory, with all that is in it. Nothing there
// is nothing to do.
func Remove(at int, base string) error {
	err := unix.Unlinkat(at, base, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR {
		return err
	}
	fd, err := Beneath(at, base, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	names, err := namesIn(fd)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := Remove(fd, name); err != nil {
			return err
		}
	}
	return unix.Unlinkat(at, base, unix.AT_REMOVEDIR)
}

// namesIn lists an open directory, in order.
func namesIn(dir int) ([]string, error) {
	fd, err := Beneath(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "directory")
	defer file.Close()
	names, err := file.Readdirnames(-1)
	slices.Sort(names)
	return names, err
}

package repository

import (
	"errors"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked means that a git holds the lock on a file of settings, and has for as long as one
// waits.
var ErrLocked = errors.New("git holds a lock on it")

// Update changes the file of settings of an open git directory as git does: it takes the lock,
// reads, writes the lock's file, and renames that over the file, which keeps its permission bits.
// change gets what the file holds now. timeout bounds the wait for the lock.
func Update(dir int, name string, timeout time.Duration, change func(now string) (string, error)) error {
	fd, err := lock(dir, name+".lock", timeout)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), name+".lock")
	defer file.Close()
	var mine unix.Stat_t
	if err := unix.Fstat(fd, &mine); err != nil {
		return err
	}
	err = update(dir, name, file, mine, change)
	if err != nil && isThere(dir, name+".lock", mine) {
		unix.Unlinkat(dir, name+".lock", 0)
	}
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// errUnchanged ends an update that has nothing to do.
var errUnchanged = errors.New("nothing has changed")

func update(dir int, name string, file *os.File, mine unix.Stat_t, change func(now string) (string, error)) error {
	f, err := openSettings(dir, name)
	if err != nil {
		return err
	}
	text, err := change(f.text)
	if err != nil {
		return err
	}
	if text == f.text {
		return errUnchanged
	}
	if len(text) > MaxFile {
		return unix.EFBIG
	}
	if _, err := file.WriteString(text); err != nil {
		return err
	}
	if err := file.Chmod(os.FileMode(f.stat.Mode & 0o777)); err != nil {
		return err
	}
	if !isThere(dir, name+".lock", mine) {
		return errChanged
	}
	file.Close() // as git does: whoever looks sees nobody who could still write
	return unix.Renameat(dir, name+".lock", dir, name)
}

// lock makes a lock's file.
func lock(dir int, name string, timeout time.Duration) (int, error) {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != unix.EEXIST {
			return fd, err
		}
		if time.Since(began) > timeout {
			return -1, ErrLocked
		}
	}
}

// Set makes a change that was left out, because a person wants it: as "git config" would. Other
// values of a key that has several stay.
func Set(file string, l Left) error {
	dir, err := unix.Openat2(unix.AT_FDCWD, path.Dir(file), &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return Update(dir, path.Base(file), time.Second, func(now string) (string, error) {
		d, err := parseDocument(now)
		if err != nil {
			return "", ErrNotRead
		}
		key := sectionOf(l.Key) + "." + strings.ToLower(nameOf(l.Key))
		var values []string
		if !l.Removed {
			if values = d.values()[key]; len(values) < 2 {
				values = nil
			}
			values = append(values, l.Value)
		}
		d.set(key, nameOf(l.Key), values)
		return d.text(), nil
	})
}

// isThere reports whether a name stands for a file that was made.
func isThere(dir int, name string, made unix.Stat_t) bool {
	var there unix.Stat_t
	return unix.Fstatat(dir, name, &there, unix.AT_SYMLINK_NOFOLLOW) == nil && there.Ino == made.Ino && there.Dev == made.Dev
}

// Without is what a file of settings would be if nothing had been done to it since it was known,
// but what does no harm; and what that leaves out.
func Without(known, now string) (string, []Left) {
	text, left, err := Carry(known, now, known, Around{})
	if err != nil {
		return known, []Left{{Why: Unknown}}
	}
	return text, left
}

// Restore puts back what a file of settings was when it was known, with what was changed since and
// does no harm, whatever stands in its place. It waits for no lock.
func Restore(dir int, name, known string) error {
	for range maxReplaced {
		f, err := openSettings(dir, name)
		text := known
		switch {
		case err == nil:
			text, _ = Without(known, f.text)
			if text == f.text {
				return nil
			}
		case errors.Is(err, unix.ENOENT):
			return nil // whoever took it away knows
		default:
			f = &settingsFile{dir: dir, name: name}
			if unix.Fstatat(dir, name, &f.stat, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			if f.stat.Mode&unix.S_IFMT != unix.S_IFREG {
				f.stat.Mode = 0o644
			}
		}
		if err := f.replace(text); err == nil {
			return nil
		} else if !errors.Is(err, errChanged) && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return errChanged
}

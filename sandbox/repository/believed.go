package repository

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// With some extensions, an index says what git need not look at: which files no program has written
// (FSMN), and what is in directories beside the files that git knows (UNTR). Nothing shows whether
// that is so, and git makes them again. Nor does it of a split index's trees (TREE), whose entries
// are elsewhere.

// withoutBelieved is an index, which is right, without those, or nil for one that has none.
func withoutBelieved(data []byte, hash int) []byte {
	if !slices.ContainsFunc([]string{"FSMN", "UNTR", "link"}, func(name string) bool { return bytes.Contains(data, []byte(name)) }) {
		return nil // most
	}
	p, err := parseIndex(data, hash)
	if err != nil {
		return nil
	}
	drop := []string{"FSMN", "UNTR"}
	if slices.ContainsFunc(p.more, func(e extension) bool { return e.name == "link" }) {
		drop = append(drop, "TREE")
	}
	if !slices.ContainsFunc(p.more, func(e extension) bool { return slices.Contains(drop, e.name) }) {
		return nil
	}
	return p.with(slices.Clone(data[:p.end]), drop...)
}

// withoutTrees is an index without the names of trees.
func withoutTrees(data []byte, hash int) []byte {
	p, err := parseIndex(data, hash)
	if !errors.Is(err, errTree) {
		return nil
	}
	return p.with(slices.Clone(data[:p.end]), "TREE")
}

// with is an index with these entries, and without some extensions.
func (p *indexParser) with(entries []byte, drop ...string) []byte {
	drop = append(drop, "EOIE", "IEOT") // those say where the others are
	for _, e := range p.more {
		if !slices.Contains(drop, e.name) {
			entries = append(entries, e.text...)
		}
	}
	digest := digestOf(p.hash)
	digest.Write(entries)
	return digest.Sum(entries)
}

// lockTimeout is how long another git may hold the lock of an index.
const lockTimeout = time.Second

// replaceIndex puts another text in the place of an index, under git's lock, for which it waits so
// long. The time of the new one is that of the old one: git looks into files that are no older. All
// is written before the lock is taken, where the file system can: a git that meets it fails.
func replaceIndex(dir int, name string, text []byte, was *unix.Stat_t, timeout time.Duration) error {
	lock := name + ".lock"
	fill := func(fd int) error {
		written, err := unix.Write(fd, text) // the kernel writes up to 2 GiB at once
		if err == nil && written < len(text) {
			err = unix.ENOSPC
		}
		return errors.Join(err, unix.Fchmod(fd, was.Mode&0o777), unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), []unix.Timespec{was.Atim, was.Mtim}, 0))
	}
	take := func() error {
		fd, err := unix.Openat(dir, lock, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, was.Mode&0o777)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err = fill(fd); err != nil {
			unix.Unlinkat(dir, lock, 0)
		}
		return err
	}
	if fd, err := unix.Openat(dir, ".", unix.O_WRONLY|unix.O_TMPFILE|unix.O_CLOEXEC, was.Mode&0o777); err == nil {
		defer unix.Close(fd)
		if err := fill(fd); err != nil {
			return err
		}
		take = func() error {
			return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), dir, lock, unix.AT_SYMLINK_FOLLOW)
		}
	}
	err := take()
	for began := time.Now(); err == unix.EEXIST && time.Since(began) < timeout; err = take() {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", lock, err)
	}
	var now unix.Stat_t
	if unix.Fstatat(dir, name, &now, unix.AT_SYMLINK_NOFOLLOW) != nil || now.Ino != was.Ino || now.Ctim != was.Ctim || now.Size != was.Size {
		err = errChanged
	}
	if err == nil {
		err = unix.Renameat(dir, lock, dir, name)
	}
	if err != nil {
		unix.Unlinkat(dir, lock, 0)
	}
	return err
}

package repository

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// With some extensions, an index says what git need not look at: which files no program has written (FSMN), and what is in directories beside
// the files that git knows (UNTR). Nothing shows whether that is so, and git makes them again. Nor does it of a split index's trees (TREE), whose entries are elsewhere.

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
	kept := slices.Clone(data[:p.end])
	for _, e := range p.more {
		if !slices.Contains(append(drop, "EOIE", "IEOT"), e.name) { // the last two say where the others are
			kept = append(kept, e.text...)
		}
	}
	digest := digestOf(hash)
	digest.Write(kept)
	return digest.Sum(kept)
}

// lockPatience is how long another git may hold the lock of an index.
const lockPatience = time.Second

// replaceIndex puts another text in the place of an index, under git's lock. The time of the new one is that of the old one: git looks into files that are no older.
func replaceIndex(dir int, name string, text []byte, was *unix.Stat_t) error {
	lock := name + ".lock"
	fd, err := -1, error(nil)
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if fd, err = unix.Openat(dir, lock, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, was.Mode&0o777); err != unix.EEXIST || time.Since(began) > lockPatience {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", lock, err)
	}
	file := os.NewFile(uintptr(fd), lock)
	_, err = file.Write(text)
	err = errors.Join(err, unix.Fchmod(fd, was.Mode&0o777), unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), []unix.Timespec{was.Atim, was.Mtim}, 0), file.Close())
	var now unix.Stat_t
	if err == nil && (unix.Fstatat(dir, name, &now, unix.AT_SYMLINK_NOFOLLOW) != nil || now.Ino != was.Ino || now.Ctim != was.Ctim || now.Size != was.Size) {
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

package mcp

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile/shut"
)

// A clearing takes away a tree that commands have made, whatever it is like: 20,000 directories
// deep, wide, closed to its owner. It has two descriptors at a time, and follows no path but the
// root's: what lies in a directory below the root is moved up to the root, and is emptied there in
// its turn.
type clearing struct {
	root  int
	until time.Time
	moved int
}

// errLate means that a tree is larger than what could be taken away in time.
var errLate = errors.New("it took too long")

// clearTree takes a directory away with all in it.
func clearTree(dir string, until time.Time) error {
	root, err := openDirectory(unix.AT_FDCWD, dir)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	c := &clearing{root: root, until: until}
	for {
		left, err := c.empty(root, true)
		if err != nil {
			return err
		}
		if !left {
			break
		}
	}
	return unix.Rmdir(dir)
}

func openDirectory(at int, name string) (int, error) {
	return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// openClosed opens a directory also where its owner may not list it.
func openClosed(at int, name string) (int, error) {
	fd, err := openDirectory(at, name)
	if err != unix.EACCES {
		return fd, err
	}
	if err := permit(at, name); err != nil {
		return -1, err
	}
	return openDirectory(at, name)
}

// permit lets the owner do with a directory what has to be done.
func permit(at int, name string) error {
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o700)
}

// batch is how many names are read at once.
const batch = 512

// empty takes away what is in a directory; what is a directory itself and not empty, it moves to
// the root, or if this is the root, it empties it. It reports whether something may be left: then
// it has made room, and is to be called again.
func (c *clearing) empty(dir int, isRoot bool) (left bool, err error) {
	again, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0) // a descriptor with a place of its own in the list
	if err != nil {
		return false, err
	}
	list := os.NewFile(uintptr(again), "directory")
	defer list.Close()
	for {
		entries, err := list.ReadDir(batch)
		for _, e := range entries {
			if time.Now().After(c.until) {
				return true, errLate
			}
			left = true
			if err := c.take(dir, e.Name(), isRoot); err != nil {
				return true, err
			}
		}
		if err == io.EOF || err == nil && len(entries) == 0 {
			return left, nil
		}
		if err != nil {
			return left, err
		}
	}
}

// take takes one name away.
func (c *clearing) take(dir int, name string, isRoot bool) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM && err != unix.EACCES {
		return err
	}
	if err == unix.EACCES { // of the directory that it is in
		unix.Fchmod(dir, 0o700)
		if err := unix.Unlinkat(dir, name, 0); err == nil {
			return nil
		}
	}
	if err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err == nil {
		return nil
	}
	if err := permit(dir, name); err != nil { // or it could not be moved either
		return err
	}
	if !isRoot {
		for {
			c.moved++
			err := unix.Renameat2(dir, name, c.root, fmt.Sprintf(".cleared-%d", c.moved), unix.RENAME_NOREPLACE)
			if err != unix.EEXIST {
				return err
			}
		}
	}
	below, err := openClosed(dir, name)
	if err != nil {
		return err
	}
	defer unix.Close(below)
	for {
		left, err := c.empty(below, false)
		if err != nil {
			return err
		}
		if !left {
			break
		}
	}
	return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
}

const (
	// clearTimeout is how long the end of a client session waits for its /tmp to be cleared; what
	// is left then, the next server clears.
	clearTimeout = 2 * time.Second
	// clearTime bounds the clearing of one tree.
	clearTime = 10 * time.Minute
)

// A privateTmp is a client session's /tmp, on the host, where no path leads: see package shut.
type privateTmp struct {
	dir  string       // of the client session's, with a lock beside it
	in   *shut.Inside // of one that is this process's own
	lock *os.File     // held as long as it is somebody's
}

const tmpName = "tmp"

// source is what stands at /tmp.
func (t privateTmp) source() string { return shut.In(t.dir) + "/" + tmpName }

// path leads there in this process, until it is cleared.
func (t privateTmp) path() string { return t.in.Path() + "/" + tmpName }

// clearAll clears what is shut, and the directory.
func (t privateTmp) clearAll(until time.Time) error {
	var failed error
	err := shut.Remove(t.dir, func(path string) { failed = errors.Join(failed, clearTree(path, until)) })
	if failed != nil {
		return failed
	}
	if failed = clearTree(t.dir, until); failed != nil { // what a command of an earlier version's put in the place of what is shut goes with it
		return errors.Join(err, failed)
	}
	return nil
}

// clear takes it away. What takes longer than the waitTimeout goes on as long as this process.
func (t privateTmp) clear() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.lock.Close()
		defer t.in.Close()
		if t.clearAll(time.Now().Add(clearTime)) == nil {
			os.Remove(t.dir + ".lock")
		}
	}()
	select {
	case <-done:
	case <-time.After(clearTimeout):
	}
}

// newTmp makes a directory to stand at /tmp. What killed servers left is cleared meanwhile: nobody
// waits for it.
func newTmp(state string) (t privateTmp, err error) {
	base := filepath.Join(state, sittingsName)
	if err := os.MkdirAll(base, 0o700); err != nil {
		return t, err
	}
	turn, err := takeTurn(base)
	if err != nil {
		return t, err
	}
	defer turn.Close()
	if t.dir, err = os.MkdirTemp(base, "s-"); err != nil {
		return t, err
	}
	t.lock, err = os.OpenFile(t.dir+".lock", os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		err = unix.Flock(int(t.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		t.in, err = shut.Make(t.dir)
	}
	if err == nil {
		err = unix.Mkdirat(t.in.FD(), tmpName, 0o700)
	}
	if err == nil {
		err = unix.Fchmodat(t.in.FD(), tmpName, 0o700|unix.S_ISVTX, 0)
	}
	if err != nil {
		t.in.Close()
		_ = t.clearAll(time.Now().Add(clearTime))
		return privateTmp{}, err
	}
	go sweep(base)
	return t, nil
}

// takeTurn waits for the moment in which one is made, or is found to be nobody's: so none is taken
// for left before it is locked.
func takeTurn(base string) (*os.File, error) {
	turn, err := os.Open(base)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(turn.Fd()), unix.LOCK_EX); err != nil {
		turn.Close()
		return nil, err
	}
	return turn, nil
}

// sweep clears what killed servers left: nobody holds their locks.
func sweep(base string) {
	for _, t := range abandoned(base) {
		if err := t.clearAll(time.Now().Add(clearTime)); err == nil || errors.Is(err, unix.ENOENT) {
			os.Remove(t.dir + ".lock")
		}
		t.lock.Close()
	}
}

// maxSwept bounds how many one server clears.
const maxSwept = 100

// abandoned are those that are nobody's. They are this process's then.
func abandoned(base string) (list []privateTmp) {
	turn, err := takeTurn(base)
	if err != nil {
		return nil
	}
	defer turn.Close()
	entries, _ := os.ReadDir(base)
	for _, entry := range entries {
		dir, isLock := strings.CutSuffix(filepath.Join(base, entry.Name()), ".lock")
		if !isLock || len(list) == maxSwept {
			continue
		}
		lock, err := os.OpenFile(dir+".lock", os.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			lock.Close()
			continue
		}
		list = append(list, privateTmp{dir: dir, lock: lock})
	}
	return list
}

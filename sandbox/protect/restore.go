package protect

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Restore puts an entry back to where it came into being. Nothing that is there is replaced, and no
// link is followed. Directories that are missing on the way, right above it, are made.
func (q *Quarantine) Restore(id string) (Entry, error) {
	e, err := q.Load(id)
	if err != nil {
		return e, err
	}
	if e.Setting != nil {
		return e, errors.New("it is a setting of git's")
	}
	if !filepath.IsAbs(e.Path) || filepath.Clean(e.Path) != e.Path || e.Path == "/" {
		return e, fmt.Errorf("no path: %q", e.Path)
	}
	to, err := openMade(parent(e.Path))
	if err != nil {
		return e, err
	}
	defer unix.Close(to)
	if e.At != "" {
		from, err := openRoot(parent(e.At))
		if err != nil {
			return e, err
		}
		defer unix.Close(from)
		if err := detach(from, base(e.At), restoring(), 0); err != nil {
			return e, err
		}
		if err := unix.Renameat2(from, base(e.At), to, base(e.Path), unix.RENAME_NOREPLACE); err != nil {
			return e, err
		}
		return e, q.discard(id)
	}
	in, err := q.openEntry(id)
	if err != nil {
		return e, err
	}
	defer unix.Close(in)
	if err := detach(in, contentName, restoring(), 0); err != nil {
		return e, err
	}
	err = unix.Renameat2(in, contentName, to, base(e.Path), unix.RENAME_NOREPLACE)
	if err == unix.EXDEV {
		c := copying{bytes: maxCopyBytes, names: maxCopyNames}
		partial := asidePrefix + id
		if err = c.copy(in, contentName, to, partial, 0); err == nil {
			err = unix.Renameat2(to, partial, to, base(e.Path), unix.RENAME_NOREPLACE)
		}
		if err != nil {
			remove(to, partial)
		}
	}
	if err != nil {
		return e, err
	}
	return e, q.discard(id)
}

// restoring is what Restore copies at most.
func restoring() *copying { return &copying{bytes: 16 * maxCopyBytes, names: 100 * maxCopyNames} }

// detach puts a copy in the place of each file, and a new directory in that of each directory: by
// another name, where it is open, or where it is what another sandbox may write, a command could go
// on writing it when a person has looked at it, or put it back.
func detach(dir int, name string, c *copying, depth int) error {
	if c.names--; c.names < 0 || depth > maxCopyDepth {
		return errShared
	}
	var stat unix.Stat_t
	if err := unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	switch kind := kindOf(stat.Mode); {
	case kind == File:
		copied := asidePrefix + strings.ToLower(rand.Text()[:12])
		err := c.file(dir, name, dir, copied, stat.Mode&0o777)
		if err == nil {
			err = unix.Renameat(dir, copied, dir, name)
		}
		if err != nil {
			unix.Unlinkat(dir, copied, 0)
			return errors.Join(errShared, err)
		}
	case kind == Directory:
		fd, err := openOwn(dir, name)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		defer usable(fd)()
		names, err := namesIn(fd, c.names)
		for _, name := range names {
			if err == nil {
				err = detach(fd, name, c, depth+1)
			}
		}
		if err == nil {
			err = renew(dir, name, fd, stat.Mode&0o777)
		}
		return err
	}
	return nil
}

// renew puts a new directory in the place of an open one, and moves all that is in it there. What
// is made in the old one after that is lost.
func renew(dir int, name string, old int, mode uint32) error {
	made := asidePrefix + strings.ToLower(rand.Text()[:12])
	if err := unix.Mkdirat(dir, made, 0o700); err != nil {
		return errors.Join(errShared, err)
	}
	fd, err := openBelow(dir, made, unix.O_RDONLY)
	if err != nil {
		return errors.Join(errShared, err)
	}
	defer unix.Close(fd)
	if _, err = unix.Seek(old, 0, unix.SEEK_SET); err == nil {
		err = moveAll(old, fd)
	}
	if err == nil {
		err = unix.Fchmod(fd, mode)
	}
	gone := made + "-old"
	if err == nil {
		err = unix.Renameat(dir, name, dir, gone)
	}
	if err == nil {
		if err = unix.Renameat(dir, made, dir, name); err != nil {
			unix.Renameat(dir, gone, dir, name)
		}
	}
	if err != nil {
		moveAll(fd, old)
		unix.Unlinkat(dir, made, unix.AT_REMOVEDIR)
		return errors.Join(errShared, err)
	}
	for range maxRemoved {
		if remove(dir, gone) == nil {
			break
		}
	}
	return nil
}

// maxRemoved bounds how often a directory is removed in which somebody makes something at that
// moment.
const maxRemoved = 8

// moveAll moves what is in one open directory to another.
func moveAll(from, to int) error {
	names, err := namesIn(from, 100*maxCopyNames)
	for _, name := range names {
		if err == nil {
			err = moveTo(from, name, to)
		}
	}
	return err
}

// moveTo moves a name to another directory. A directory that may not be written cannot be moved: it
// is, for that moment.
func moveTo(from int, name string, to int) error {
	err := unix.Renameat2(from, name, to, name, unix.RENAME_NOREPLACE)
	if err != unix.EACCES {
		return err
	}
	fd, err := openBelow(from, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	defer usable(fd)()
	return unix.Renameat2(from, name, to, name, unix.RENAME_NOREPLACE)
}

// namesIn are the names in an open directory: one more than most, if there are more.
func namesIn(fd, most int) (names []string, err error) {
	err = readDirectory(fd, func(name []byte, _ Kind) bool {
		names = append(names, string(name))
		return len(names) <= most
	})
	return names, err
}

var errShared = errors.New("a command may have files of it open, or know them by other names, and there is too much to copy: copy it by hand, from the quarantine in the state directory")

// maxMissing is how many directories Restore makes.
const maxMissing = 8

// openMade opens a directory by its path, through no link, and makes what is missing at its end.
func openMade(path string) (int, error) {
	var missing []string
	fd, err := openRoot(path)
	for ; err == unix.ENOENT && len(missing) < maxMissing && path != "/"; fd, err = openRoot(path) {
		missing = append(missing, base(path))
		path = parent(path)
	}
	for _, name := range slices.Backward(missing) {
		if err != nil {
			break
		}
		if err = unix.Mkdirat(fd, name, 0o755); err == nil || err == unix.EEXIST {
			var next int
			next, err = unix.Openat(fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			unix.Close(fd)
			fd = next
		}
	}
	return fd, err
}

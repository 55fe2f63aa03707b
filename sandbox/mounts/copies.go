package mounts

import (
	"errors"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Files in a directory in memory that the command may write. Those with a directory of its own each
// the mounter keeps open: it can read and replace them whatever the command does with their paths,
// also when the sandbox has ended.

// copies lists the calls that make the files of a directory in memory.
func (a *assembly) copies(m *Mount, root *result) {
	for _, f := range m.Files {
		a.on("make", path.Join(m.Path, f.Path))
		dir, name := path.Split(f.Path)
		if dir == "" {
			a.write(a.do(unix.SYS_OPENAT, root, name, newFile, int(f.Mode.Perm())), f.Text)
			continue
		}
		dir = strings.TrimSuffix(dir, "/")
		a.do(unix.SYS_MKDIRAT, root, dir, 0o700)
		at := a.do(unix.SYS_OPENAT, root, dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC)
		a.write(a.do(unix.SYS_OPENAT, at, name, newFile, 0o600), f.Text)
		if a.m.copied == nil {
			a.m.copied = map[string]*result{}
		}
		a.m.copied[f.Path] = at
	}
}

const newFile = unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY | unix.O_CLOEXEC | unix.O_NOFOLLOW

// write writes a text into an open file, in as many calls as it takes, and closes it.
func (s *script) write(file *result, text string) {
	for len(text) > 0 {
		n := min(len(text), room/2)
		s.on(s.op, s.path).do(unix.SYS_WRITE, file, text[:n], n)
		text = text[n:]
	}
	s.close(file)
}

// ErrBusy means that a lock is held on a file, as git holds one.
var ErrBusy = errors.New("it is locked")

// copyOf is the open directory of a file in memory.
func (m *Mounter) copyOf(name string) (int, error) {
	at := m.copied[name]
	if m.socket < 0 || at == nil || at.script != nil || at.value <= 0 {
		return 0, &Error{Path: name, Op: "open", Err: unix.ENOENT}
	}
	return at.value, nil
}

// ReadCopy reads a file in memory, if it is a regular one that is no longer than the limit.
func (m *Mounter) ReadCopy(name string, limit int) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.readCopy(name, limit)
}

func (m *Mounter) readCopy(name string, limit int) (string, error) {
	dir, err := m.copyOf(name)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for text.Len() <= limit {
		piece, err := m.readPiece(dir, name, text.Len())
		if err != nil {
			return "", err
		}
		if text.WriteString(piece); len(piece) < room { // mostly it is one
			return text.String(), nil
		}
	}
	return "", &Error{Path: name, Op: "read", Err: unix.EFBIG}
}

// readPiece reads what a regular file has from a place on, as much as one answer takes.
func (m *Mounter) readPiece(dir int, name string, at int) (string, error) {
	s := m.script()
	how := s.list.Words(unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0, unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_BENEATH)
	open := s.on("read", name).do(unix.SYS_OPENAT2, dir, path.Base(name), how, howSize)
	stat := s.statx(open)
	buffer := s.list.Put(make([]byte, room))
	read := s.try(unix.SYS_PREAD64, open, buffer, room, at)
	read.buffer, read.size = buffer, room
	s.close(open)
	if err := s.flush(); err != nil {
		return "", err
	}
	err := read.failed()
	if err == nil && !identify(stat.data).isRegular {
		err = unix.EINVAL
	}
	if err != nil {
		return "", &Error{Path: name, Op: "read", Err: err}
	}
	return string(read.data[:read.value]), nil
}

// ReplaceCopy replaces a file in memory that holds a text by another one, by git's way to write:
// under a lock that a program which does so as well respects. If it holds something else by then,
// or the lock is taken, it is ErrBusy.
func (m *Mounter) ReplaceCopy(name, old, text string, limit int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, err := m.copyOf(name)
	if err != nil {
		return err
	}
	locked := path.Base(name) + ".lock"
	s := m.script()
	lock := s.on("lock", name).try(unix.SYS_OPENAT, dir, locked, newFile, 0o600)
	if err := s.flush(); err != nil {
		return err
	}
	if err := lock.failed(); err != nil {
		if errors.Is(err, unix.EEXIST) {
			err = ErrBusy
		}
		return &Error{Path: name, Op: "lock", Err: err}
	}
	now, err := m.readCopy(name, limit)
	s = m.script().on("write", name)
	if err != nil || now != old {
		s.try(unix.SYS_UNLINKAT, dir, locked, 0)
		s.close(lock)
		s.flush()
		return &Error{Path: name, Op: "write", Err: ErrBusy}
	}
	s.write(lock, text)
	s.do(unix.SYS_RENAMEAT2, dir, locked, dir, path.Base(name), 0)
	return s.flush()
}

// CoverLink is Cover for a file that a link is mounted over. There is nothing to do where nothing
// is, or the link is still there: then no id comes back. Where something else is than a regular
// file, it fails.
func (m *Mounter) CoverLink(name, text string) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.socket < 0 {
		return 0, nil
	}
	s := m.script()
	place := m.place()
	s.on("cover", name).do(unix.SYS_SYMLINKAT, text, stageFD, place)
	object := s.do(unix.SYS_OPEN_TREE, stageFD, place, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	setattr(s, 0, object, 0, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE})
	s.do(unix.SYS_SETNS, sandboxFD, unix.CLONE_NEWNS)
	at := s.try(unix.SYS_OPENAT2, atCWD, name, s.how(), howSize) // no link
	moved := s.try(unix.SYS_MOVE_MOUNT, object, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	stat := s.statx(object)
	there := s.try(unix.SYS_OPENAT2, atCWD, name, s.howItself(), howSize)
	is := s.statx(there)
	s.close(there)
	s.close(object)
	s.close(at)
	s.do(unix.SYS_SETNS, hostFD, unix.CLONE_NEWNS)
	if err := s.flush(); err != nil {
		m.home(err)
		return 0, err
	}
	what := identify(is.data)
	switch {
	case there.failed() == nil && !(what.isLink && what.root):
		err := moved.failed()
		if err == nil {
			err = unix.EBUSY // it was replaced in that very moment
		}
		return 0, &Error{Path: name, Op: "cover", Err: err}
	case moved.failed() != nil:
		return 0, nil
	}
	return identify(stat.data).mount, nil
}

package shell

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Found is the name of the owner's sandbox, in the directory of those that stay; empty: there is
// none.
func Found(dir string, o Owner) string {
	text, err := os.ReadFile(filepath.Join(dir, o.Name()))
	if err != nil {
		return ""
	}
	return string(text)
}

// Keep says which sandbox is the owner's, until forget is called. What was said of owners that have
// ended is removed.
func Keep(dir string, o Owner, id string) (forget func(), err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if other, is := named(entry.Name()); is && !other.Runs() {
			os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
	path := filepath.Join(dir, o.Name())
	if err := os.WriteFile(path+".new", []byte(id), 0o600); err != nil {
		return nil, err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return nil, err
	}
	return func() {
		if Found(dir, o) == id {
			os.Remove(path)
		}
	}, nil
}

// Lock keeps others from beginning a sandbox meanwhile: an agent's first lines may come at once.
func Lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, "owners.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(file.Fd()), unix.LOCK_EX); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return func() { file.Close() }, nil
}

// WriteNote writes the directory that a line ended in to the agent's file. Nothing else that has
// that name is written: a link, a device, a file of somebody else's.
func WriteNote(path, dir string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG || int(stat.Uid) != os.Getuid() || stat.Nlink != 1 {
		return &fs.PathError{Op: "write", Path: path, Err: errors.New("it is not a file of this user's alone")}
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err = file.WriteString(dir + "\n")
	return err
}

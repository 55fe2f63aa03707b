// Package shut keeps what sandboxed commands write below a directory that nobody enters, so that
// nothing outside comes upon it by a path: no git, no editor, no indexer, and no link that a
// command leaves. Mode 0 holds its owner, too. This program opens what is behind it once, for as
// long as a system call takes, and goes on by descriptor, for which the directories above need no
// permission. What is mounted is no path either; to mount it takes capabilities in a user namespace
// of the person's, which bubblewrap and the mounter have. Root is held by no mode.
//
//	DIR/shut       mode 0
//	DIR/shut/in    what commands write
package shut

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	gate  = "shut"
	in    = "in"
	inner = gate + "/" + in

	timeout = 5 * time.Second // for another process that is opening the same one, which takes it microseconds
	pause   = 100 * time.Microsecond
)

// In is where the inside of a directory is. Nobody gets there by that path but who mounts.
func In(dir string) string { return dir + "/" + inner }

// An Inside is what is behind a shut directory, open.
type Inside struct{ fd int }

// FD is its descriptor, for system calls with names below it.
func (i *Inside) FD() int { return i.fd }

// Path leads there in this process alone, as long as it is open.
func (i *Inside) Path() string { return fmt.Sprintf("/proc/self/fd/%d", i.fd) }

func (i *Inside) Close() {
	if i != nil && i.fd >= 0 {
		unix.Close(i.fd)
		i.fd = -1
	}
}

// Open opens the inside of a directory.
func Open(dir string) (*Inside, error) { return open(dir, false) }

// Make is Open for one that need not be there.
func Make(dir string) (*Inside, error) { return open(dir, true) }

func open(dir string, makes bool) (*Inside, error) {
	at, err := lock(dir, timeout)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	defer release(at)
	fd, err := enter(at, unix.S_IXUSR)
	if err == unix.ENOENT && makes {
		if err = unix.Mkdirat(at, gate, 0); err == nil || err == unix.EEXIST {
			fd, err = enter(at, unix.S_IWUSR|unix.S_IXUSR)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", In(dir), err)
	}
	return &Inside{fd}, nil
}

// enter opens what is behind the gate of a directory that is locked, and makes it if it may be
// made.
func enter(at int, mode uint32) (fd int, err error) {
	g, err := ours(at)
	if err != nil {
		return -1, err
	}
	defer unix.Close(g)
	if err := chmod(g, mode); err != nil {
		return -1, err
	}
	if mode&unix.S_IWUSR != 0 {
		if err = unix.Fchownat(g, "", -1, os.Getegid(), unix.AT_EMPTY_PATH); err == nil { // the group that a user namespace of ours knows
			err = unix.Mkdirat(g, in, 0o700)
		}
	}
	if err == nil || err == unix.EEXIST {
		fd, err = unix.Openat(g, in, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if e := chmod(g, rests(at)); e != nil && err == nil {
		unix.Close(fd)
		err = e
	}
	return fd, err
}

// ours opens the gate, and nothing else that stands in its place.
func ours(at int) (int, error) {
	g, err := unix.Openat(at, gate, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var is unix.Stat_t
	if err = unix.Fstat(g, &is); err == nil && int(is.Uid) != os.Geteuid() {
		err = unix.EPERM
	}
	if err != nil {
		unix.Close(g)
		return -1, err
	}
	return g, nil
}

// chmod changes the mode of what is open, whatever has its name by now.
func chmod(fd int, mode uint32) error { return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode) }

// elsewhere are file systems on which another machine, or a program, says who may enter: no
// capability of this one's opens what is shut there.
var elsewhere = []int64{unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC, unix.V9FS_MAGIC,
	unix.AFS_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC, unix.CODA_SUPER_MAGIC}

// rests is the mode of a gate that nobody is opening.
func rests(at int) uint32 {
	var s unix.Statfs_t
	if err := unix.Fstatfs(at, &s); err != nil {
		return 0
	}
	return restsOn(int64(uint32(s.Type)))
}

// restsOn is that mode on a file system of a type (statfs(2)).
func restsOn(kind int64) uint32 {
	if slices.Contains(elsewhere, kind) {
		return 0o700
	}
	return 0
}

// lock opens a directory when nobody else is opening or shutting what is in it.
func lock(dir string, timeout time.Duration) (int, error) {
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	for began := time.Now(); ; time.Sleep(pause) {
		err = unix.Flock(at, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return at, nil
		}
		if err != unix.EINTR && (err != unix.EWOULDBLOCK || time.Since(began) > timeout) {
			unix.Close(at)
			return -1, err
		}
	}
}

// release gives a directory back now, whatever is being started meanwhile and still has the
// descriptor.
func release(at int) {
	_ = unix.Flock(at, unix.LOCK_UN)
	unix.Close(at)
}

// Split takes a path in something that is shut apart: the directory, and what is behind its inside.
// Any other path is none.
func Split(path string) (dir, below string, is bool) {
	dir, below, is = strings.Cut(path, "/"+inner+"/")
	return dir, below, is && below != ""
}

// Reach is how this process gets to a path that may lie in something that is shut. done is called
// when nothing is looked at there any more.
func Reach(path string) (at string, done func(), err error) {
	dir, below, is := Split(path)
	if !is {
		return path, func() {}, nil
	}
	inside, err := Open(dir)
	if err != nil {
		return "", nil, err
	}
	return inside.Path() + "/" + below, inside.Close, nil
}

// MoveIn moves something from a directory into what is shut there, whatever its mode is. Nothing
// may be using it.
func (i *Inside) MoveIn(dir, name string) error {
	at := filepath.Join(dir, name)
	var is unix.Stat_t
	if err := unix.Lstat(at, &is); err != nil {
		return err
	}
	if is.Mode&unix.S_IFMT != unix.S_IFDIR {
		return unix.ENOTDIR
	}
	if err := unix.Chmod(at, 0o700); err != nil { // or it could not be moved
		return err
	}
	if err := unix.Renameat2(unix.AT_FDCWD, at, i.fd, name, unix.RENAME_NOREPLACE); err != nil {
		return err
	}
	return unix.Fchmodat(i.fd, name, is.Mode&0o7777, 0)
}

// Remove removes what is shut in a directory. empty removes what is at a path, by whatever way it
// takes.
func Remove(dir string, empty func(path string)) error {
	inside, err := Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer inside.Close()
	entries, err := os.ReadDir(inside.Path())
	if err != nil {
		return err
	}
	for _, entry := range entries {
		empty(inside.Path() + "/" + entry.Name())
	}
	at, err := lock(dir, timeout)
	if err != nil {
		return err
	}
	defer release(at)
	g, err := ours(at)
	if err != nil {
		return err
	}
	defer unix.Close(g)
	if err := chmod(g, unix.S_IWUSR|unix.S_IXUSR); err != nil {
		return err
	}
	if err := unix.Unlinkat(g, in, unix.AT_REMOVEDIR); err != nil {
		return errors.Join(err, chmod(g, rests(at)))
	}
	return unix.Unlinkat(at, gate, unix.AT_REMOVEDIR)
}

// Is reports whether a directory has something that is shut.
func Is(dir string) bool {
	info, err := os.Lstat(dir + "/" + gate)
	return err == nil && info.IsDir()
}

// places are where this program keeps what is shut, in its state.
var places = []string{"layers/*/*", "homes/*", "sittings/*"}

// Sweep shuts what a process left open that was killed at the very moment. It returns the
// directories of those places that have nothing that is shut.
func Sweep(state string) (without []string) {
	for _, place := range places {
		dirs, _ := filepath.Glob(filepath.Join(quoted(state), place))
		for _, dir := range dirs {
			info, err := os.Lstat(dir + "/" + gate)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				without = append(without, dir)
			case err == nil && info.IsDir() && info.Mode().Perm() != 0:
				shutAt(dir)
			}
		}
	}
	return without
}

// shutAt shuts what is open, unless somebody is just opening it.
func shutAt(dir string) {
	at, err := lock(dir, 0)
	if err != nil {
		return
	}
	defer release(at)
	if g, err := ours(at); err == nil {
		_ = chmod(g, rests(at))
		unix.Close(g)
	}
}

// quoted is a path as a pattern.
func quoted(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

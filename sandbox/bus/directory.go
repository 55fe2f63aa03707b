package bus

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/descriptor"
)

// A directory holds the sockets of one run, by name: bwrap binds only what has one. It is this
// user's alone, and locked as long as it is used, so that a later run knows the directory of one
// that was killed, and removes it.
type directory struct {
	path string
	fd   descriptor.File
}

const (
	directoryPrefix = "clai-sandbox-bus-"
	socketName      = "bus"   // where the launcher listens
	proxySocketName = "proxy" // where xdg-dbus-proxy does
)

// newDirectory makes a directory in the first of the bases that will do, or else where temporary
// files are.
func newDirectory(bases []string) (directory, error) {
	for _, base := range append(bases[:len(bases):len(bases)], os.TempDir()) {
		if !private(base) {
			continue
		}
		path, err := os.MkdirTemp(base, directoryPrefix)
		if err != nil {
			continue
		}
		d := directory{path: path}
		if d.fd, err = lockDirectory(path); err == nil {
			return d, nil
		}
		os.Remove(path)
	}
	return directory{}, fmt.Errorf("no directory to make a socket in: %s or %s", strings.Join(bases, ", "), os.TempDir())
}

// private reports whether nobody else can replace what this process makes in a directory.
func private(path string) bool {
	var stat unix.Stat_t
	if unix.Lstat(path, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		return false
	}
	return int(stat.Uid) == os.Getuid() && stat.Mode&0o022 == 0 || stat.Mode&unix.S_ISVTX != 0
}

// lockDirectory opens a directory and locks it, unless somebody has.
func lockDirectory(path string) (descriptor.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	d := descriptor.File(fd)
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		d.Close()
		return 0, err
	}
	return d, nil
}

// name is the path of a socket in the directory, short enough for an address whatever the
// directory's own path is.
func (d directory) name(socket string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.fd, socket)
}

// open opens a socket in the directory, as something to bind or connect to.
func (d directory) open(socket string) (descriptor.File, error) {
	fd, err := unix.Openat(int(d.fd), socket, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	return descriptor.File(max(fd, 0)), err
}

// remove takes the directory away.
func (d *directory) remove() {
	if d.fd == 0 {
		return
	}
	unix.Unlinkat(int(d.fd), socketName, 0)
	unix.Unlinkat(int(d.fd), proxySocketName, 0)
	unix.Rmdir(d.path)
	d.fd.Close()
}

// sweep removes the directories beside this one that runs left which were killed. A new one is not
// locked yet for a moment, so young ones stay.
func (d directory) sweep() {
	base := filepath.Dir(d.path)
	entries, _ := os.ReadDir(base)
	for _, entry := range entries {
		path := filepath.Join(base, entry.Name())
		if !strings.HasPrefix(entry.Name(), directoryPrefix) || path == d.path {
			continue
		}
		if info, err := entry.Info(); err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if stale, err := lockDirectory(path); err == nil {
			os.RemoveAll(path)
			stale.Close()
		}
	}
}

package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// Listen makes a socket that only its owner can reach. A socket that nobody listens on any more is
// replaced: whoever calls this holds the lock that makes it the only one.
func Listen(path string) (net.Listener, error) {
	if err := ownDirectory(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("%s: something is there that is no socket", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	short, done, err := ShortPath(path)
	if err != nil {
		return nil, err
	}
	defer done()
	// The permissions are there before the name is: at the name, somebody to whom the directory is
	// shown could put something else.
	private := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) }), err)
	}}
	l, err := private.Listen(context.Background(), "unix", short)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // by then another may have taken the name
	return l, nil
}

// ownDirectory makes a directory that only its owner enters, or makes sure of one.
func ownDirectory(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || int(stat.Uid) != os.Getuid() {
		return fmt.Errorf("%s: is not a directory of our own", dir)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return os.Chmod(dir, 0o700)
	}
	return nil
}

package gateway

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// firstPassed is the first descriptor that systemd passes (sd_listen_fds(3)).
const firstPassed = 3

// Passed returns the socket that systemd made for this process, or nil if there is none. What
// started us is told by the environment, which is cleared: it is not meant for what we start.
func Passed() (net.Listener, error) {
	pid, count := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name)
	}
	if pid != strconv.Itoa(os.Getpid()) || count == "" {
		return nil, nil
	}
	if count != "1" {
		return nil, fmt.Errorf("systemd passes %s sockets, and one is wanted", count)
	}
	syscall.CloseOnExec(firstPassed)
	file := os.NewFile(firstPassed, "LISTEN_FD_3")
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		return nil, fmt.Errorf("the socket that systemd passes: %w", err)
	}
	listener, ok := l.(*net.UnixListener)
	if !ok {
		l.Close()
		return nil, fmt.Errorf("systemd passes a socket of %s, and a unix socket is wanted", l.Addr().Network())
	}
	listener.SetUnlinkOnClose(false)
	return listener, nil
}

// CloseInherited closes what else this process was started with, but its standard streams. It
// outlives who started it: it would keep a lock of theirs, and the end of a pipe, and commands
// outside would have it, of whatever agent. What Go opened is closed on execution, and so is not
// meant.
func CloseInherited() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("what this process was started with: %w", err)
	}
	for _, entry := range open {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd <= 2 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
	return nil
}

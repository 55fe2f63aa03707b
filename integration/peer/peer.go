// Package peer tells a person's own programs from those in their sandboxes, which have the same
// user.
package peer

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Check says why the process at the other end of a unix socket may not call.
func Check(socket int) error { return CheckBy(socket, CheckNamespaces) }

// CheckBy is Check for processes that are to be somewhere else: where says why one is not there.
func CheckBy(socket int, where func(pid int) error) error {
	peer, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	switch {
	case err != nil:
		return err
	case int(peer.Uid) != os.Getuid():
		return fmt.Errorf("it is user %d's", peer.Uid)
	case peer.Pid <= 0:
		return errors.New("its process is not seen from here")
	}
	// The number of a process that has ended may be another's by now; its descriptor is not (Linux
	// 6.5).
	process, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		process, err = unix.PidfdOpen(int(peer.Pid), 0)
	}
	if err != nil {
		return fmt.Errorf("process %d has ended", peer.Pid)
	}
	defer unix.Close(process)
	if err := where(int(peer.Pid)); err != nil {
		return err
	}
	if Ended(process) {
		return fmt.Errorf("process %d has ended", peer.Pid)
	}
	return nil
}

// CheckNamespaces refuses a process that is in another mount or user namespace than this one.
func CheckNamespaces(pid int) error {
	for name, file := range map[string]string{"mount": "mnt", "user": "user"} {
		same, err := sameNamespace(pid, file)
		if err != nil {
			return fmt.Errorf("whether process %d is in a sandbox cannot be told: %w", pid, err)
		}
		if !same {
			return fmt.Errorf("process %d is in another %s namespace, as one in a sandbox is", pid, name)
		}
	}
	return nil
}

func sameNamespace(pid int, name string) (bool, error) {
	var ours, theirs unix.Stat_t
	if err := unix.Stat("/proc/self/ns/"+name, &ours); err != nil {
		return false, err
	}
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/%s", pid, name), &theirs); err != nil {
		return false, err
	}
	return ours.Dev == theirs.Dev && ours.Ino == theirs.Ino, nil
}

// Ended reports whether a process has ended, by its descriptor (pidfd_open(2)).
func Ended(process int) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, 0)
	return err != nil || n > 0
}

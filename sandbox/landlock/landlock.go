// Package landlock is the second layer of a sandbox (landlock(7)), beside its mounts: no signals
// and no abstract sockets across its edge, and where the kernel can, nothing is opened but what
// there is a rule for. Which rules those are, a plan says.
package landlock

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ScopeABI is the first Landlock version that can scope abstract sockets and signals (Linux 6.12).
const ScopeABI = 6

const scopes = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL

// ABI is the kernel's Landlock version (landlock(7)), or 0 where it has none.
func ABI() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// ScopeThread, where the command gets no rules for files that do it too, keeps this thread, and
// every process that it starts, from connecting to abstract unix sockets made outside and from
// sending signals outside. A shared network namespace shares the host's abstract sockets, which no
// mount hides. The ruleset has no file system rights, so bwrap's mounts are not disturbed. There is
// no way back for the thread.
//
// It reports false where the kernel has no such thing.
func ScopeThread() (bool, error) {
	if ABI() < ScopeABI {
		return false, nil
	}
	attr := unix.LandlockRulesetAttr{Scoped: scopes}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return false, fmt.Errorf("landlock_create_ruleset: %w", errno)
	}
	defer unix.Close(int(fd))
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return false, fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return false, fmt.Errorf("landlock_restrict_self: %w", errno)
	}
	return true, nil
}

package sandbox

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// landlockScopeABI is the first Landlock version that can scope abstract sockets and signals (Linux 6.12).
const landlockScopeABI = 6

const landlockScopes = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL

// LandlockABI is the kernel's Landlock version (landlock(7)), or 0 where it has none.
func LandlockABI() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(abi)
}

// scopeThread, where the command gets no rules for files that do it too, keeps this thread, and every process that it starts, from connecting to abstract unix sockets made outside
// and from sending signals outside. A shared network namespace shares the host's abstract sockets, which no mount hides.
// The ruleset has no file system rights, so bwrap's mounts are not disturbed. There is no way back for the thread.
//
// It reports false where the kernel has no such thing.
func scopeThread() (bool, error) {
	if LandlockABI() < landlockScopeABI {
		return false, nil
	}
	attr := unix.LandlockRulesetAttr{Scoped: landlockScopes}
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

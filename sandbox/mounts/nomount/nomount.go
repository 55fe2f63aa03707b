// Package nomount makes the kernel refuse this process, and what it starts, the calls that package
// mounts needs: as one before Linux 5.2 does, and many a container's filter. It is for tests of
// what holds there.
package nomount

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Variable makes Apply do its work: "mounts" refuses the calls, "enter" refuses to enter the
// sandbox's namespaces only.
const Variable = "CLAI_SANDBOX_TEST_REFUSED"

// Apply refuses what Variable says, with ENOSYS.
func Apply() error {
	calls := map[string][]uint32{
		"mounts": {unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_MOUNT_SETATTR},
		"enter":  {unix.SYS_SETNS},
	}[os.Getenv(Variable)]
	if calls == nil {
		return nil
	}
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: 0, Size: 4}}
	for i, call := range calls {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: call, SkipTrue: uint8(len(calls) - i)})
	}
	program = append(program, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}, bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)})
	raw, err := bpf.Assemble(program)
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	const setModeFilter, forAllThreads = 1, 1
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, forAllThreads,
		uintptr(unsafe.Pointer(&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}

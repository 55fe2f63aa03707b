package sandbox

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/process"
	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// Root's processes are exempt from the rlimit. Where no cgroup can count them, the namespace of process ids does that bwrap
// is the first process in: since Linux 6.14 it can have a kernel.pid_max of its own, and none below it has more. Only a
// process in it can set that, so bwrap is started through a trampoline that does.

// reservedPIDs are those that the kernel gives out once and not again in a namespace of process ids. It takes no pid_max
// below.
const reservedPIDs = 300

const (
	pidsSetting = "/proc/sys/kernel/pid_max"
	mostPIDs    = 1 << 22 // PID_MAX_LIMIT
)

// holdsPIDs reports whether root's namespaces of process ids can have a pid_max of their own. On an earlier kernel, and
// without a namespace, the trampoline would set the host's: so neither the version nor the guard may be guessed.
func holdsPIDs(g process.Guard) bool {
	return g == process.GuardNamespace && linuxSince(6, 14) && unix.Access(pidsSetting, unix.W_OK) == nil
}

// linuxSince reports whether the kernel is of this version or later.
func linuxSince(major, minor int) bool {
	var name unix.Utsname
	var a, b int
	if err := unix.Uname(&name); err != nil {
		return false
	}
	fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &a, &b)
	return a > major || a == major && b >= minor
}

// rootIsExempt reports whether this process is the kernel's root, and not that of a container's user namespace.
func rootIsExempt() bool {
	if os.Getuid() != 0 {
		return false
	}
	text, _ := os.ReadFile("/proc/self/uid_map")
	inside := strings.Fields(string(text))
	return len(inside) < 2 || inside[0] != "0" || inside[1] == "0"
}

// throughPIDsTrampoline makes bwrap start through the trampoline. It is the last that is passed to the child.
func (a *attempt) throughPIDsTrampoline() error {
	report, writer, err := descriptor.Pipe()
	if err != nil {
		return err
	}
	a.pidsReport = report
	p := &trampoline.List{}
	fd, err := strconv.Atoi(a.pass(writer))
	if err != nil {
		return err
	}
	program := 3 + len(a.files)
	for _, own := range []int{fd, program} { // neither is the command's
		p.Call(0, unix.SYS_FCNTL, uint64(own), unix.F_SETFD, unix.FD_CLOEXEC)
	}
	limitPIDs(p, a.plan.Limits.Of(profile.LimitProcesses))
	p.Call(0, unix.SYS_EXECVE, p.Text(a.path), p.Vector(a.argv), p.Vector(nil))
	own, err := trampoline.Seal("pids", p.Program(fd))
	if err != nil {
		return err
	}
	a.path = "/proc/self/fd/" + a.pass(descriptor.File(own))
	return nil
}

// limitPIDs lists the calls that set pid_max.
func limitPIDs(p *trampoline.List, most int64) {
	text := strconv.FormatInt(min(most+reservedPIDs, mostPIDs), 10)
	open := p.Call(0, unix.SYS_OPENAT, trampoline.AtCWD, p.Text(pidsSetting), unix.O_WRONLY|unix.O_CLOEXEC)
	p.Call(0, unix.SYS_WRITE, p.Result(open), p.Put([]byte(text)), uint64(len(text)))
}

// pidsFailed says what the trampoline reported, if it reported anything. bwrap has ended.
func (a *attempt) pidsFailed() error {
	if _, errno, failed := readReport(a.pidsReport); failed {
		return &SetupError{Why: "limit the processes and start bwrap: " + errno.Error(), Hint: "without the limit: --limit processes=0"}
	}
	return nil
}

package limits

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/process"
	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// ReservedPIDs are those that the kernel gives out once and not again in a namespace of process
// ids. It takes no pid_max below.
const ReservedPIDs = 300

const (
	pidsSetting = "/proc/sys/kernel/pid_max"
	mostPIDs    = 1 << 22 // PID_MAX_LIMIT
)

// holdsPIDs reports whether root's namespaces of process ids can have a pid_max of their own. On an
// earlier kernel, and without a namespace, the trampoline would set the host's: so neither the
// version nor the guard may be guessed.
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

// rootIsExempt reports whether this process is the kernel's root, and not that of a container's
// user namespace.
func rootIsExempt() bool {
	if os.Getuid() != 0 {
		return false
	}
	text, _ := os.ReadFile("/proc/self/uid_map")
	inside := strings.Fields(string(text))
	return len(inside) < 2 || inside[0] != "0" || inside[1] == "0"
}

// SetPIDMax lists the calls that set pid_max.
func SetPIDMax(p *trampoline.List, most int64) {
	text := strconv.FormatInt(min(most+ReservedPIDs, mostPIDs), 10)
	open := p.Call(0, unix.SYS_OPENAT, trampoline.AtCWD, p.Text(pidsSetting), unix.O_WRONLY|unix.O_CLOEXEC)
	p.Call(0, unix.SYS_WRITE, p.Result(open), p.Put([]byte(text)), uint64(len(text)))
}

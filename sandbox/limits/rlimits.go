package limits

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/process"
)

// An Rlimit is one limit of setrlimit(2)'s.
type Rlimit struct {
	Resource   int
	Soft, hard uint64
}

// Rlimits are the kernel's for some limits, but for what a cgroup holds. A core dump has always
// one: the host may pipe core dumps into a program (core(5)), which the kernel starts outside of
// every sandbox, as root, with what the command wrote into its memory. No size keeps it from that
// but 1, which stands for just this.
func Rlimits(limits profile.Limits, g *Cgroup) []Rlimit {
	list := []Rlimit{{unix.RLIMIT_CORE, 1, 1}}
	for _, r := range rlimitTable {
		if n := uint64(limits.Of(r.limit)); n > 0 && !g.has(r.limit) {
			list = append(list, Rlimit{r.resource, n, n + r.grace})
		}
	}
	return list
}

// rlimitTable says which of the kernel's limits stands for which of ours. RLIMIT_DATA counts the
// memory that a process may write, and not as RLIMIT_AS the addresses that it reserves: node and Go
// reserve a gigabyte before they begin. Who has computed too long gets SIGXCPU, and who does not
// heed it a second later SIGKILL.
var rlimitTable = []struct {
	limit    profile.Limit
	resource int
	grace    uint64
}{
	{profile.LimitMemory, unix.RLIMIT_DATA, 0},
	{profile.LimitProcesses, unix.RLIMIT_NPROC, 0},
	{profile.LimitCPU, unix.RLIMIT_CPU, 1},
	{profile.LimitFileSize, unix.RLIMIT_FSIZE, 0},
	{profile.LimitOpenFiles, unix.RLIMIT_NOFILE, 0},
}

// Impose sets the limit of a process. Where ours is lower already it stays as it is: nobody asked
// for more.
func (r Rlimit) Impose(pid int) error {
	var ours unix.Rlimit
	if err := unix.Prlimit(0, r.Resource, nil, &ours); err != nil {
		return fmt.Errorf("prlimit: %w", err)
	}
	limit := unix.Rlimit{Cur: min(r.Soft, ours.Max), Max: min(r.hard, ours.Max)}
	if r.Resource == unix.RLIMIT_CORE && mayRaise() {
		limit = unix.Rlimit{Cur: r.Soft, Max: r.hard} // 0 is less, and keeps no handler away
	}
	if err := unix.Prlimit(pid, r.Resource, &limit, nil); err != nil {
		return fmt.Errorf("prlimit: %w", err)
	}
	return nil
}

// mayRaise reports whether this thread may raise hard limits.
func mayRaise() bool {
	held, err := process.Permitted()
	return err == nil && held&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// DescribeCore says what becomes of core dumps.
func DescribeCore() string {
	var ours unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_CORE, nil, &ours); err != nil || ours.Max == 0 && !mayRaise() {
		return "core dumps: no file, but if the host has a handler for them (core_pattern) it gets them: the hard limit is 0 where clai-sandbox was started, and only 1 keeps it away"
	}
	return "core dumps: none, neither as a file nor into the host's handler"
}

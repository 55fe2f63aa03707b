package sandbox

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/process"
)

// A Holder is what keeps a command to a limit.
type Holder string

const (
	HeldByCgroup   Holder = "cgroup"        // the kernel, for all processes together
	HeldByRlimit   Holder = "rlimit"        // the kernel, for each process (setrlimit(2))
	HeldByPIDs     Holder = "pid_namespace" // the kernel, which has no more process ids for the sandbox
	HeldByLauncher Holder = "launcher"      // this program, while it waits for the command
	HeldByNothing  Holder = "nothing"       // a run with it is refused
)

// A HeldLimit is one limit of a plan, and what holds it on this host.
type HeldLimit struct {
	Limit  profile.Limit `json:"limit" jsonschema:"its name, as in configuration and flags"`
	Amount string        `json:"amount" jsonschema:"how much the command may take"`
	By     Holder        `json:"heldBy" jsonschema:"what holds it on this host; with nothing, a run is refused"`
	How    string        `json:"how" jsonschema:"what it counts and what it does not, for a person"`
}

// HeldLimits says of each limit that the plan has what holds it on this host. The time limit is not among them.
func (p *Plan) HeldLimits() []HeldLimit {
	places, _ := hostCgroups.reach(p.Limits)
	return p.heldLimits(process.ChooseGuard(), places)
}

func (p *Plan) heldLimits(g process.Guard, places map[profile.Limit]cgroupPlace) []HeldLimit {
	list := []HeldLimit{}
	for which, amount := range p.Limits.Amounts {
		limit := profile.Limit(which)
		if amount == 0 {
			continue
		}
		by, how := HeldByRlimit, ""
		place, grouped := places[limit]
		switch {
		case grouped && limit == profile.LimitMemory:
			by, how = HeldByCgroup, fmt.Sprintf("all in the sandbox together, with what is in /tmp (cgroup v%d)", place.version)
		case grouped && limit == profile.LimitCPUPercent:
			by, how = HeldByCgroup, fmt.Sprintf("all in the sandbox together; it is slowed down (cgroup v%d)", place.version)
		case limit == profile.LimitCPUPercent:
			by, how = HeldByNothing, "it takes a cgroup with the cpu controller in which you may make another"
		case grouped:
			by, how = HeldByCgroup, fmt.Sprintf("all in the sandbox together, threads too (cgroup v%d)", place.version)
		case limit == profile.LimitMemory:
			how = "each process on its own; neither shared memory nor what is in /tmp counts, and nothing tells when it is reached"
		case limit == profile.LimitProcesses:
			by, how = holdsProcesses(g)
		case limit == profile.LimitCPU || limit == profile.LimitOpenFiles:
			how = "each process on its own"
		case limit == profile.LimitFileSize:
			how = "each file on its own"
		case limit == profile.LimitOutput:
			by, how = HeldByLauncher, "standard output and standard error together, which are pipes for it; what is beyond is lost"
		}
		list = append(list, HeldLimit{limit, limit.Amount(amount), by, how})
	}
	return list
}

// holdsProcesses says what a limit on processes is worth without a cgroup. The kernel counts a user's processes in each
// user namespace (Linux 5.14), and compares the count outside with the limit of whoever made the namespace. Root's it
// never compares with anything, also not inside.
func holdsProcesses(g process.Guard) (Holder, string) {
	switch {
	case rootIsExempt() && holdsPIDs(g):
		return HeldByPIDs, fmt.Sprintf("all in the sandbox, threads too; up to %d more; nothing tells when it is reached", reservedPIDs)
	case rootIsExempt():
		return HeldByNothing, "the kernel exempts root's processes from the rlimit, and has no limit on process ids for a sandbox before Linux 6.14"
	case g == process.GuardPlain:
		return HeldByRlimit, "all in the sandbox, together with all others of the user; nothing tells when it is reached"
	}
	return HeldByRlimit, "all in the sandbox; nothing tells when it is reached"
}

// heldBy is what holds one limit, or empty where there is none.
func (p *Plan) heldBy(limit profile.Limit, g process.Guard, places map[profile.Limit]cgroupPlace) Holder {
	for _, held := range p.heldLimits(g, places) {
		if held.Limit == limit {
			return held.By
		}
	}
	return ""
}

// checkLimits refuses what nothing on this host would hold.
func (p *Plan) checkLimits(g process.Guard, places map[profile.Limit]cgroupPlace) error {
	for _, held := range p.heldLimits(g, places) {
		if held.By == HeldByNothing {
			return &SetupError{Why: fmt.Sprintf("the limit %s=%s cannot be held on this host: %s", held.Limit, held.Amount, held.How),
				Hint: fmt.Sprintf("leave it out, or set it to 0: --limit %s=0", held.Limit)}
		}
	}
	return nil
}

// An rlimit is one limit of setrlimit(2)'s.
type rlimit struct {
	resource   int
	soft, hard uint64
}

// rlimits are the plan's, but for what a cgroup holds. A core dump has always one: the host may pipe core dumps into a program (core(5)), which the
// kernel starts outside of every sandbox, as root, with what the command wrote into its memory. No size keeps it from
// that but 1, which stands for just this.
func (p *Plan) rlimits(g *cgroup) []rlimit {
	list := []rlimit{{unix.RLIMIT_CORE, 1, 1}}
	for _, r := range rlimitTable {
		if n := uint64(p.Limits.Of(r.limit)); n > 0 && !g.has(r.limit) {
			list = append(list, rlimit{r.resource, n, n + r.grace})
		}
	}
	return list
}

// rlimitTable says which of the kernel's limits stands for which of ours. RLIMIT_DATA counts the memory that a process
// may write, and not as RLIMIT_AS the addresses that it reserves: node and Go reserve a gigabyte before they begin. Who
// has computed too long gets SIGXCPU, and who does not heed it a second later SIGKILL.
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

// ownFiles is how many files bwrap itself opens at once, besides those that it is given.
const ownFiles = 16

// checkOpenFiles refuses a limit under which bwrap could not set the sandbox up.
func (a *attempt) checkOpenFiles() error {
	limit := a.plan.Limits.Of(profile.LimitOpenFiles)
	need := int64(3 + len(a.files) + ownFiles)
	if limit == 0 || limit >= need {
		return nil
	}
	return &SetupError{Why: fmt.Sprintf("the limit openFiles=%d is too low: the sandbox's own mounts take %d", limit, need),
		Hint: fmt.Sprintf("--limit openFiles=%d, or fewer grants", need)}
}

// limit holds a bwrap that has not read its options yet to the plan's limits, and with it all that it starts.
func (a *attempt) limit(pid int) error {
	err := a.cgroup.join(pid)
	for _, r := range a.plan.rlimits(a.cgroup) {
		if err == nil {
			err = r.impose(pid)
		}
	}
	if err != nil {
		return &SetupError{Why: "limit the command: " + err.Error(), Hint: tryAgain}
	}
	return nil
}

// impose sets the limit of a process. Where ours is lower already it stays as it is: nobody asked for more.
func (r rlimit) impose(pid int) error {
	var ours unix.Rlimit
	if err := unix.Prlimit(0, r.resource, nil, &ours); err != nil {
		return fmt.Errorf("prlimit: %w", err)
	}
	limit := unix.Rlimit{Cur: min(r.soft, ours.Max), Max: min(r.hard, ours.Max)}
	if r.resource == unix.RLIMIT_CORE && mayRaise() {
		limit = unix.Rlimit{Cur: r.soft, Max: r.hard} // 0 is less, and keeps no handler away
	}
	if err := unix.Prlimit(pid, r.resource, &limit, nil); err != nil {
		return fmt.Errorf("prlimit: %w", err)
	}
	return nil
}

// mayRaise reports whether this thread may raise hard limits.
func mayRaise() bool {
	held, err := process.Permitted()
	return err == nil && held&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// describeCore says what becomes of core dumps.
func describeCore() string {
	var ours unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_CORE, nil, &ours); err != nil || ours.Max == 0 && !mayRaise() {
		return "core dumps: no file, but if the host has a handler for them (core_pattern) it gets them: the hard limit is 0 where clai-sandbox was started, and only 1 keeps it away"
	}
	return "core dumps: none, neither as a file nor into the host's handler"
}

// limitsReached tells which limit ended the command, as far as its end shows.
func (a *attempt) limitsReached(result Result) []Notice {
	var notices []Notice
	reached := func(limit profile.Limit, what string) {
		amount, mend := a.plan.Limits.Of(limit), fmt.Sprintf("--limit %s=AMOUNT sets another", limit)
		if own := a.cgroup.amount(limit); own > 0 && own != amount {
			amount, mend = own, "the cgroup that clai-sandbox runs in has no more"
		}
		notices = append(notices, Notice{Kind: NoticeLimitReached, Limit: limit.String(), Text: fmt.Sprintf("limit reached: %s=%s: %s; %s", limit, limit.Amount(amount), what, mend)})
	}
	limits := a.plan.Limits
	if result.Outcome == TimedOut {
		notices = append(notices, Notice{Kind: NoticeLimitReached, Limit: "timeout",
			Text: fmt.Sprintf("limit reached: timeout=%v: the command was ended; --timeout DURATION sets another", limits.Timeout)})
	}
	if a.cgroup.reached(profile.LimitMemory) > 0 {
		reached(profile.LimitMemory, "it took more, and the kernel killed it")
	}
	if n := a.cgroup.reached(profile.LimitProcesses); n > 0 {
		reached(profile.LimitProcesses, fmt.Sprintf("further ones were not started, %d times", n))
	}
	if limits.Of(profile.LimitCPU) > 0 && result.Signal == syscall.SIGXCPU {
		reached(profile.LimitCPU, "a process computed longer and was ended")
	}
	if limits.Of(profile.LimitFileSize) > 0 && result.Signal == syscall.SIGXFSZ {
		reached(profile.LimitFileSize, "a process wrote a larger file and was ended")
	}
	if a.output.Exceeded() {
		reached(profile.LimitOutput, "the command wrote more and was ended; what came before is all there")
	}
	return notices
}

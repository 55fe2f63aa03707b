package sandbox

import (
	"fmt"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/limits"
	"github.com/clairun/clai-sandbox/sandbox/process"
	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// A HeldLimit is one limit of a plan, and what holds it on this host.
type HeldLimit = limits.Held

// hostCgroups are this machine's.
var hostCgroups = limits.Host()

// cgroups are where a cgroup for the plan's limits can be made, after this process has moved where
// it must to have them.
func (p *Plan) cgroups() (map[profile.Limit]limits.Place, error) {
	places, err := hostCgroups.Ready(p.Limits)
	if err != nil {
		return nil, &SetupError{Why: "limit the command in a scope of systemd's: " + err.Error(), Hint: "clai-sandbox explain says what holds each limit, and --limit NAME=0 sets none"}
	}
	return places, nil
}

// HeldLimits says of each limit that the plan has what holds it on this host. The time limit is not
// among them.
func (p *Plan) HeldLimits() []HeldLimit {
	places, _ := hostCgroups.Reach(p.Limits)
	return limits.HeldBy(p.Limits, process.ChooseGuard(), places)
}

// checkLimits refuses what nothing on this host would hold.
func (p *Plan) checkLimits(g process.Guard, places map[profile.Limit]limits.Place) error {
	for _, held := range limits.HeldBy(p.Limits, g, places) {
		if held.By == limits.HeldByNothing {
			return &SetupError{Why: fmt.Sprintf("the limit %s=%s cannot be held on this host: %s", held.Limit, held.Amount, held.How),
				Hint: fmt.Sprintf("leave it out, or set it to 0: --limit %s=0", held.Limit)}
		}
	}
	return nil
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

// limit holds a bwrap that has not read its options yet to the plan's limits, and with it all that
// it starts.
func (a *attempt) limit(pid int) error {
	err := a.cgroup.Join(pid)
	for _, r := range limits.Rlimits(a.plan.Limits, a.cgroup) {
		if err == nil {
			err = r.Impose(pid)
		}
	}
	if err != nil {
		return &SetupError{Why: "limit the command: " + err.Error(), Hint: tryAgain}
	}
	return nil
}

// limitsReached tells which limit ended the command, as far as its end shows.
func (a *attempt) limitsReached(result Result) []Notice {
	var notices []Notice
	reached := func(limit profile.Limit, what string) {
		amount, mend := a.plan.Limits.Of(limit), fmt.Sprintf("--limit %s=AMOUNT sets another", limit)
		if own := a.cgroup.Amount(limit); own > 0 && own != amount {
			amount, mend = own, "the cgroup that clai-sandbox runs in has no more"
		}
		notices = append(notices, Notice{Kind: NoticeLimitReached, Limit: limit.String(), Text: fmt.Sprintf("limit reached: %s=%s: %s; %s", limit, limit.Amount(amount), what, mend)})
	}
	limits := a.plan.Limits
	if result.Outcome == TimedOut {
		notices = append(notices, Notice{Kind: NoticeLimitReached, Limit: "timeout",
			Text: fmt.Sprintf("limit reached: timeout=%v: the command was ended; --timeout DURATION sets another", limits.Timeout)})
	}
	if a.cgroup.Reached(profile.LimitMemory) > 0 {
		reached(profile.LimitMemory, "it took more, and the kernel killed it")
	}
	if n := a.cgroup.Reached(profile.LimitProcesses); n > 0 {
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

// throughPIDsTrampoline makes bwrap start through the trampoline. It is the last that is passed to
// the child.
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
	limits.SetPIDMax(p, a.plan.Limits.Of(profile.LimitProcesses))
	p.Call(0, unix.SYS_EXECVE, p.Text(a.path), p.Vector(a.argv), p.Vector(nil))
	own, err := trampoline.Seal("pids", p.Program(fd))
	if err != nil {
		return err
	}
	a.path = "/proc/self/fd/" + a.pass(descriptor.File(own))
	return nil
}

// pidsFailed says what the trampoline reported, if it reported anything. bwrap has ended.
func (a *attempt) pidsFailed() error {
	if _, errno, failed := readReport(a.pidsReport); failed {
		return &SetupError{Why: "limit the processes and start bwrap: " + errno.Error(), Hint: "without the limit: --limit processes=0"}
	}
	return nil
}

// Package limits holds what a sandbox takes: what the kernel counts for all its processes together
// (a cgroup, which systemd may have to make room for, or the process ids of its namespace), and
// what it counts for each (setrlimit(2)).
package limits

import (
	"fmt"

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

// A Held is one limit of a plan, and what holds it on this host.
type Held struct {
	Limit  profile.Limit `json:"limit" jsonschema:"its name, as in configuration and flags"`
	Amount string        `json:"amount" jsonschema:"how much the command may take"`
	By     Holder        `json:"heldBy" jsonschema:"what holds it on this host; with nothing, a run is refused"`
	How    string        `json:"how" jsonschema:"what it counts and what it does not, for a person"`
}

// HeldBy says of each limit that is set what holds it, where a cgroup can be made at these places.
// The time limit is not among them.
func HeldBy(limits profile.Limits, g process.Guard, places map[profile.Limit]Place) []Held {
	list := []Held{}
	for which, amount := range limits.Amounts {
		limit := profile.Limit(which)
		if amount == 0 {
			continue
		}
		by, how := HeldByRlimit, ""
		place, grouped := places[limit]
		switch {
		case grouped && limit == profile.LimitMemory:
			by, how = HeldByCgroup, fmt.Sprintf("all in the sandbox together, with what is in /tmp (cgroup v%d)", place.Version)
		case grouped && limit == profile.LimitCPUPercent:
			by, how = HeldByCgroup, fmt.Sprintf("all in the sandbox together; it is slowed down (cgroup v%d)", place.Version)
		case limit == profile.LimitCPUPercent:
			by, how = HeldByNothing, "it takes a cgroup with the cpu controller in which you may make another"
		case grouped:
			by, how = HeldByCgroup, fmt.Sprintf("all in the sandbox together, threads too (cgroup v%d)", place.Version)
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
		list = append(list, Held{limit, limit.Amount(amount), by, how})
	}
	return list
}

// holdsProcesses says what a limit on processes is worth without a cgroup. The kernel counts a
// user's processes in each user namespace (Linux 5.14), and compares the count outside with the
// limit of whoever made the namespace. Root's it never compares with anything, also not inside.
func holdsProcesses(g process.Guard) (Holder, string) {
	switch {
	case rootIsExempt() && holdsPIDs(g):
		return HeldByPIDs, fmt.Sprintf("all in the sandbox, threads too; up to %d more; nothing tells when it is reached", ReservedPIDs)
	case rootIsExempt():
		return HeldByNothing, "the kernel exempts root's processes from the rlimit, and has no limit on process ids for a sandbox before Linux 6.14"
	case g == process.GuardPlain:
		return HeldByRlimit, "all in the sandbox, together with all others of the user; nothing tells when it is reached"
	}
	return HeldByRlimit, "all in the sandbox; nothing tells when it is reached"
}

// HolderOf is what holds one limit, or empty where there is none.
func HolderOf(limits profile.Limits, limit profile.Limit, g process.Guard, places map[profile.Limit]Place) Holder {
	for _, held := range HeldBy(limits, g, places) {
		if held.Limit == limit {
			return held.By
		}
	}
	return ""
}

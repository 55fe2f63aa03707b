package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/landlock"
	"github.com/clairun/clai-sandbox/sandbox/limits"
	"github.com/clairun/clai-sandbox/sandbox/mounts"
	"github.com/clairun/clai-sandbox/sandbox/process"
	"github.com/clairun/clai-sandbox/sandbox/seccomp"
)

// A CheckState is what a check came to.
type CheckState string

const (
	CheckOK   CheckState = "ok"
	CheckWeak CheckState = "weak" // it sandboxes, with one layer less
	CheckBad  CheckState = "bad"  // it cannot sandbox
)

// A Check is one thing that sandboxing needs of this host.
type Check struct {
	Name  string     `json:"name" jsonschema:"what was looked at"`
	State CheckState `json:"state" jsonschema:"weak: it sandboxes, with one layer less; bad: it cannot sandbox"`
	Found string     `json:"found" jsonschema:"what was found, for a person"`
	Mend  string     `json:"mend,omitempty" jsonschema:"what to do about it"`
}

// Examine checks everything that a plan needs of this host. bwrap and err are what FindBwrap
// returned.
func Examine(ctx context.Context, plan Plan, bwrap Bwrap, err error) []Check {
	checks := []Check{checkKernel(), checkBwrap(bwrap, err)}
	if err == nil {
		checks = append(checks, checkOptions(bwrap), checkSandbox(ctx, plan, bwrap), checkMounts(ctx, plan, bwrap), checkFiltered(ctx, plan, bwrap), checkLive(ctx, plan, bwrap))
	}
	return append(checks, checkSeccomp(), checkLandlock(), checkCapabilities(), checkLimits(), checkSessionBus(&plan))
}

// checkKernel looks for what mounts are pinned with.
func checkKernel() Check {
	var name unix.Utsname
	unix.Uname(&name)
	c := Check{Name: "kernel", State: CheckOK, Found: "Linux " + string(bytes.TrimRight(name.Release[:], "\x00"))}
	root, err := descriptor.Pin("/")
	if err != nil {
		c.State, c.Found, c.Mend = CheckBad, c.Found+", openat2: "+reason(err), "use Linux 5.6 or later, and in a container a seccomp profile that knows openat2"
		return c
	}
	root.Close()
	return c
}

func checkBwrap(bwrap Bwrap, err error) Check {
	c := Check{Name: "bubblewrap", State: CheckOK, Found: bwrap.Path}
	if err != nil {
		c.State, c.Found = CheckBad, err.Error()
		var unavailable *UnavailableError
		if errors.As(err, &unavailable) {
			c.Mend = unavailable.Hint
		}
		return c
	}
	if info, err := os.Stat(bwrap.Path); err == nil && info.Mode()&os.ModeSetuid != 0 {
		c.State, c.Found = CheckWeak, c.Found+" is setuid root, which nothing here needs"
		c.Mend = "sudo chmod u-s " + Quote(bwrap.Path)
	}
	return c
}

func checkOptions(bwrap Bwrap) Check {
	var missing []string
	for _, option := range []string{optionBindFD, optionDisableUserns} {
		if !bwrap.Has(option) {
			missing = append(missing, option)
		}
	}
	if missing == nil {
		return Check{Name: "bubblewrap's options", State: CheckOK, Found: "all that are used"}
	}
	return Check{Name: "bubblewrap's options", State: CheckWeak, Found: "without " + strings.Join(missing, ", "),
		Mend: "install your distribution's updates of bubblewrap (0.10.0 has all)"}
}

// checkSandbox runs a command with the options of a real run: nothing less tells whether a real run
// would work.
func checkSandbox(ctx context.Context, plan Plan, bwrap Bwrap) Check {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c := Check{Name: "sandbox", State: CheckOK}
	result, err := Launcher{Bwrap: bwrap}.Run(ctx, plan, []string{"/bin/sh", "-c", "exit 42"}, Stdio{})
	var unavailable *UnavailableError
	switch {
	case errors.As(err, &unavailable):
		c.State, c.Found, c.Mend = CheckBad, err.Error(), unavailable.Hint
	case err != nil:
		c.State, c.Found = CheckBad, err.Error()
	case result.ExitCode != 42:
		c.State, c.Found = CheckBad, fmt.Sprintf("a command that exits 42 came back with %d (%s)", result.ExitCode, result.Outcome)
	default:
		c.Found = fmt.Sprintf("ran a command with the options of a real run in %.1f ms", float64(result.Duration.Microseconds())/1000)
	}
	return c
}

// checkMounts tells who makes the mounts here.
func checkMounts(ctx context.Context, plan Plan, bwrap Bwrap) Check {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c := Check{Name: "mounts", State: CheckOK, Found: "by descriptor, put together apart from the sandbox, and watched"}
	l := Launcher{Bwrap: bwrap, guard: process.ChooseGuard()}
	why := "this kernel has not the calls for it, or something refuses them"
	if mounts.Supported() {
		_, err := l.once(ctx, &plan, []string{"/bin/true"}, Stdio{})
		if !errors.Is(err, errByBwrap) {
			return c // what else may be wrong, the check of the sandbox says
		}
		why = err.Error()
	}
	c.State = CheckWeak
	c.Found = "by bubblewrap, by path: " + why + "; no live grants, and a secret that comes into being while a command runs can be read by it"
	c.Mend = "use Linux 5.12 or later; in a container, a seccomp profile with open_tree, move_mount, mount_setattr, fsopen and setns"
	return c
}

// checkFiltered does the same with a filtered network.
func checkFiltered(ctx context.Context, plan Plan, bwrap Bwrap) Check {
	p := profile.Profile{Network: profile.NetworkFiltered, Home: "/", Workspace: plan.WorkingDirectory, WorkingDirectory: plan.WorkingDirectory}
	p.Grants = []profile.Grant{{Path: p.Workspace, Access: profile.ReadWrite, Origin: profile.Origin{Kind: profile.OriginWorkspace}}}
	filtered, err := Build(p, Host{})
	c := Check{Name: "filtered network", State: CheckWeak}
	if err == nil {
		c = checkSandbox(ctx, filtered, bwrap)
		c.Name = "filtered network"
	} else {
		c.Found = err.Error()
	}
	if c.State == CheckBad && plan.Network != profile.NetworkFiltered {
		c.State = CheckWeak // nobody asked for it
	}
	return c
}

// checkLive grants a directory to a command that runs and waits for it.
func checkLive(ctx context.Context, plan Plan, bwrap Bwrap) Check {
	c := Check{Name: "live grants", State: CheckWeak, Mend: "use Linux 5.12 or later; until then what is granted reaches the next command"}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	took, err := tryLive(ctx, plan.WorkingDirectory, bwrap)
	if err != nil {
		c.Found = err.Error()
		return c
	}
	return Check{Name: c.Name, State: CheckOK, Found: fmt.Sprintf("a grant reached a running command in %.1f ms", float64(took.Microseconds())/1000)}
}

func tryLive(ctx context.Context, work string, bwrap Bwrap) (time.Duration, error) {
	dir, err := os.MkdirTemp("", "clai-sandbox-doctor-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	p := profile.Profile{Network: profile.NetworkDisabled, Home: "/", Workspace: work, WorkingDirectory: work,
		Grants: []profile.Grant{{Path: work, Access: profile.ReadOnly, Origin: profile.Origin{Kind: profile.OriginWorkspace}}}}
	if why := CanBeLive(p); why != "" {
		return 0, errors.New(why)
	}
	plan, err := Build(p, Host{})
	if err != nil {
		return 0, err
	}
	live := &Live{}
	ended := make(chan error, 1)
	go func() {
		_, err := Launcher{Bwrap: bwrap, Live: live}.Run(ctx, plan, []string{"/bin/sh", "-c", "until [ -d " + Quote(dir) + " ]; do sleep 0.01; done"}, Stdio{})
		ended <- err
	}()
	p.Grants = append(p.Grants, profile.Grant{Path: dir, Access: profile.ReadOnly, Origin: profile.Origin{Kind: profile.OriginApproval}})
	if _, err := live.running(ctx); err != nil {
		return 0, err
	}
	began := time.Now()
	if _, err := live.Show(ctx, p); err != nil {
		return 0, err
	}
	took := time.Since(began)
	if err := <-ended; err != nil {
		return 0, err
	}
	return took, ctx.Err()
}

func checkSeccomp() Check {
	if _, err := seccomp.Assemble(runtime.GOARCH, nil); err != nil {
		return Check{Name: "system call filter", State: CheckBad, Found: err.Error(), Mend: "use amd64 or arm64"}
	}
	return Check{Name: "system call filter", State: CheckOK, Found: runtime.GOARCH}
}

func checkLandlock() Check {
	abi := landlock.ABI()
	c := Check{Name: "Landlock", State: CheckOK, Found: fmt.Sprintf("version %d", abi)}
	if abi < landlock.ScopeABI {
		c.State = CheckWeak
		c.Found = fmt.Sprintf("version %d: with the network enabled, a command can connect to the host's abstract unix sockets", abi)
		if abi < landlock.FilesABI {
			c.Found += ", and files have no Landlock layer (explain tells)"
		}
		c.Mend = "use Linux 6.12 or later with landlock among its security modules (lsm=…,landlock), or --network disabled"
	}
	return c
}

func checkCapabilities() Check {
	names, err := process.Capabilities()
	switch {
	case err != nil:
		return Check{Name: "capabilities", State: CheckWeak, Found: err.Error()}
	case len(names) == 0:
		return Check{Name: "capabilities", State: CheckOK, Found: "none to drop"}
	}
	return Check{Name: "capabilities", State: CheckOK, Found: "dropped for every command: " + strings.Join(names, " ")}
}

// checkLimits says what would hold a limit on memory and on processes, which rlimits hold worse.
func checkLimits() Check {
	c := Check{Name: "limits", State: CheckOK}
	p := Plan{Limits: profile.Limits{Amounts: profile.Amounts{profile.LimitMemory: 1, profile.LimitProcesses: 1}}}
	var found []string
	for _, held := range p.HeldLimits() {
		found = append(found, fmt.Sprintf("%s: %s, %s", held.Limit, held.By, held.How))
		if held.By != limits.HeldByCgroup {
			c.State = CheckWeak
			c.Mend = "start it where a cgroup with the memory and pids controllers is yours: systemd-run --user --scope clai-sandbox run …"
			if os.Getuid() == 0 {
				c.Mend = "mount cgroup v2 writable, with the memory and pids controllers enabled below the root"
			}
		}
	}
	c.Found = strings.Join(found, "; ")
	return c
}

// Protections says in a line each what keeps a command of this plan in, on this host, and what does
// not.
func Protections(plan *Plan) []string {
	lines := []string{"namespaces: user, mount, pid, ipc, uts, cgroup"}
	if plan.Network != profile.NetworkEnabled {
		lines[0] += ", network"
	}
	if plan.Network == profile.NetworkFiltered {
		lines = append(lines, fmt.Sprintf("network: no interface but a loopback of its own; the proxy on %s is the only way out", proxyAddress))
	}
	lines = append(lines, limits.DescribeCore(), "capabilities: none, and no new privileges", "system call filter: "+filtered(plan))
	if plan.NestedNamespaces {
		lines = append(lines, "user namespaces inside: allowed")
	} else {
		lines = append(lines, "user namespaces inside: refused")
	}
	if p := plan.Protection; p != nil && len(p.unseen) > 0 {
		lines = append(lines, "protected names: in the home are more directories than are looked through for links into what is writable: "+unseenIn(p.unseen))
	}
	if plan.locksFiles() {
		lines = append(lines, "Landlock layer on files: what the mounts show, and no more")
	} else if plan.NestedNamespaces {
		lines = append(lines, "Landlock layer on files: none, for with it no namespace inside could mount anything")
	} else {
		lines = append(lines, fmt.Sprintf("Landlock layer on files: none, for this kernel's Landlock is version %d and not %d", landlock.ABI(), landlock.FilesABI))
	}
	if landlock.ABI() >= landlock.ScopeABI {
		return append(lines, "Landlock: no abstract unix sockets and no signals across the sandbox's edge")
	}
	return append(lines, "Landlock: this kernel cannot scope abstract unix sockets, so with the network enabled the host's can be connected to")
}

// unseenIn names the first of some directories.
func unseenIn(dirs []string) string {
	const most = 3
	text := printable(dirs[0])
	for _, dir := range dirs[1:min(len(dirs), most)] {
		text += ", " + printable(dir)
	}
	if more := len(dirs) - most; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// filtered counts the system calls that are refused. docs/syscalls.md names them, with the reasons.
func filtered(plan *Plan) string {
	calls := map[string]bool{}
	for _, rule := range seccomp.Rules(plan.NestedNamespaces) {
		calls[rule.Call] = true
	}
	return fmt.Sprintf("%d calls refused, in whole or in part", len(calls))
}

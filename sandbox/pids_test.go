package sandbox

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/limits"
	"github.com/clairun/clai-sandbox/sandbox/process"
)

// needPIDs makes this a host where a namespace of process ids is what holds root's processes.
func needPIDs(t *testing.T) *host {
	t.Helper()
	withoutCgroups(t)
	h := newHost(t)
	h.limit(profile.LimitProcesses, 50)
	plan := h.build()
	if by := limits.HolderOf(plan.Limits, profile.LimitProcesses, process.ChooseGuard(), nil); by != limits.HeldByPIDs {
		t.Skipf("held by %s: a pid_max of a namespace's own takes root and Linux 6.14", by)
	}
	return h
}

func TestANamespacesOwnPIDMaxLeavesTheHostsAlone(t *testing.T) {
	h := needPIDs(t)
	before, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		t.Fatal(err)
	}
	for _, nesting := range []bool{true, false} { // with it, no second stub closes what the first one leaves
		h.profile.NestedNamespaces = nesting
		if out := h.sh("ls /proc/self/fd"); strings.Join(lines(out), " ") != "0 1 2 3" { // 3 is the directory itself
			t.Errorf("nesting %v: the command has descriptors of the stub's: %q", nesting, out)
		}
	}
	h.refused("echo 4194304 >" + "/proc/sys/kernel/pid_max")
	if after, _ := os.ReadFile("/proc/sys/kernel/pid_max"); string(after) != string(before) {
		t.Errorf("the host has %s instead of %s", after, before)
	}
}

func TestAForkBombInANamespaceBelowEndsInsideItsLimit(t *testing.T) {
	h := needPIDs(t)
	h.profile.NestedNamespaces = true
	r := h.run("unshare", "--user", "--pid", "--fork", "/bin/sh", "-c", forkBomb)
	if n := strings.Count(r.Out, "started"); r.Failure != nil || n < 20 || n > 50+limits.ReservedPIDs {
		t.Errorf("%d were started: %+v %v %s", n, r.Result, r.Failure, r.Err)
	}
}

// An ordinary user may not set pid_max. If root may not, either, nothing runs.
func TestAPIDMaxThatCannotBeSetRunsNothing(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may set it")
	}
	h := newHost(t)
	h.launcher.guard = process.ChooseGuard()
	plan := h.build()
	a, err := h.launcher.prepare(&plan, []string{"/bin/sh", "-c", "echo ran"})
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	if err := a.throughPIDsTrampoline(); err != nil {
		t.Fatal(err)
	}
	out := process.KeepAtMost(100)
	if err := a.start(Stdio{Out: out}); err != nil {
		t.Fatal(err)
	}
	a.wait()
	_, err = h.launcher.conclude(a, Result{})
	var setup *SetupError
	if !errors.As(err, &setup) || !strings.Contains(setup.Why, "permission denied") || out.String() != "" {
		t.Errorf("%q %v", out.String(), err)
	}
}

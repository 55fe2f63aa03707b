package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/limits"
	"github.com/clairun/clai-sandbox/sandbox/process"
)

var bothLimits = profile.Limits{Amounts: profile.Amounts{profile.LimitMemory: 64 << 20, profile.LimitProcesses: 50}}

// A limit that a cgroup should hold is not given up when the cgroup cannot be made.
func TestACgroupThatCannotBeMadeRefusesTheRun(t *testing.T) {
	real := hostCgroups
	t.Cleanup(func() { hostCgroups = real })
	base := newDirectory(t)
	hostCgroups = limits.Tree{Root: base + "/tree", Membership: base + "/membership"}

	h := newHost(t)
	h.write(base+"/membership", "0::/own\n")
	for name, text := range map[string]string{"cgroup.subtree_control": "memory pids\n", "cgroup.procs": "", "own/cgroup.subtree_control": "", "own/cgroup.procs": ""} {
		h.write(base+"/tree/"+name, text)
	}
	h.profile.Limits = bothLimits
	r := h.run("/bin/sh", "-c", "echo ran")
	var setup *SetupError
	if !errors.As(r.Failure, &setup) || r.Out != "" || !strings.Contains(setup.Why, "make a cgroup: write ") {
		t.Errorf("%q %v", r.Out, r.Failure)
	}
	if left, _ := filepath.Glob(hostCgroups.Root + "/" + limits.Prefix + "*"); left != nil {
		t.Errorf("it left %q", left)
	}
}

// In version 2 the kernel kills all of the cgroup, bwrap as well: that is no failure of the host's.
// A directory with the kernel's count stands in for the cgroup, and SIGKILL is a real one.
func TestACommandThatIsKilledForMemoryWithItsBwrapIsNoFailure(t *testing.T) {
	dir := newDirectory(t)
	if err := os.WriteFile(dir+"/memory.events", []byte("oom_kill 3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h := newHost(t)
	plan := h.build()
	h.launcher.guard = process.ChooseGuard()
	a, err := h.launcher.prepare(&plan, []string{"/bin/true"})
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	a.attr.Pdeathsig = 0 // this goroutine may change its thread
	if a.process, err = process.Start(a.path, a.argv, Stdio{}, a.files, a.attr); err != nil {
		t.Fatal(err)
	}
	for i := range a.files {
		a.files[i].Close() // or the status would never end
	}
	a.files = nil
	a.process.Kill()
	a.process.Wait()
	a.cgroup = &limits.Cgroup{Holds: map[profile.Limit]limits.Place{profile.LimitMemory: {Dir: dir, Version: 2}}}
	a.plan.Limits = bothLimits
	result, err := h.launcher.conclude(a, Result{})
	if err != nil || result.Outcome != Signalled || result.ExitCode != 128+int(unix.SIGKILL) {
		t.Errorf("%+v, %v", result, err)
	}
	ran{Result: result}.wantLimitNotice(t, "memory")
}

// ownCgroups skips where this process cannot have a cgroup that holds memory and processes.
func ownCgroups(t *testing.T) map[profile.Limit]limits.Place {
	t.Helper()
	places, err := hostCgroups.Ready(bothLimits)
	if err != nil {
		t.Fatal(err)
	}
	if len(places) != 2 {
		t.Skipf("no cgroup with the memory and pids controllers can be made by this user here, only %v: rlimits hold", places)
	}
	return places
}

func TestACgroupOfVersion2HoldsHere(t *testing.T) {
	for limit, place := range ownCgroups(t) {
		if place.Version != 2 {
			t.Skipf("the controllers of this host are in cgroup version 1 (%s: %s): of version 2 only what is written is tested", limit, place.Dir)
		}
	}
}

func TestAMemoryHogOfAnyKindEndsInItsCgroup(t *testing.T) {
	places := ownCgroups(t)
	h := newHost(t)
	for _, c := range []struct{ name, script string }{
		{"one process", "head -c 150000000 /dev/zero | tail >/dev/null"},
		{"many processes, none of which takes much", "for i in 1 2 3 4 5 6 7 8; do head -c 30000000 /dev/zero | tail & done >/dev/null; wait"},
		{"files in the private /tmp", "head -c 150000000 /dev/zero >/tmp/large"},
		{"files in the private /dev/shm", "head -c 150000000 /dev/zero >/dev/shm/large"},
	} {
		h.profile.Limits = bothLimits
		h.limit(profile.LimitProcesses, 0)
		r := h.run("/bin/sh", "-c", c.script)
		r.wantLimitNotice(t, "memory")
		if r.Failure != nil {
			t.Errorf("%s: %+v %v", c.name, r.Result, r.Failure)
		}
		h.limit(profile.LimitMemory, 1<<30)
		if r := h.run("/bin/sh", "-c", c.script); r.ExitCode != 0 || r.limitNotices() != nil {
			t.Errorf("%s with a limit that is high enough: %+v", c.name, r.Result)
		}
	}
	wantNoCgroupLeft(t, places)
}

func wantNoCgroupLeft(t *testing.T, places map[profile.Limit]limits.Place) {
	t.Helper()
	for _, place := range places {
		left, _ := filepath.Glob(place.Dir + "/" + limits.Prefix + "*")
		for _, dir := range left {
			if strings.HasPrefix(filepath.Base(dir), limits.Prefix+strconv.Itoa(os.Getpid())+"-") {
				t.Errorf("%s is left", dir)
			}
		}
	}
}

func TestAForkBombEndsInItsCgroupAndIsTold(t *testing.T) {
	places := ownCgroups(t)
	h := newHost(t)
	h.limit(profile.LimitProcesses, 50)
	r := h.run("/bin/sh", "-c", forkBomb)
	r.wantLimitNotice(t, "processes")
	if n := strings.Count(r.Out, "started"); n < 20 || n > 50 {
		t.Errorf("%d were started: %+v %v", n, r.Result, r.Failure)
	}
	wantNoCgroupLeft(t, places)
}

func TestACgroupSlowsACommandDown(t *testing.T) {
	h := newHost(t)
	h.limit(profile.LimitCPUPercent, 10)
	places, err := hostCgroups.Ready(h.profile.Limits)
	if err != nil {
		t.Fatal(err)
	}
	if len(places) == 0 {
		var setup *SetupError
		if r := h.run("/bin/true"); !errors.As(r.Failure, &setup) || !strings.Contains(setup.Why, "the limit cpuPercent=10 cannot be held") {
			t.Errorf("%+v %v", r.Result, r.Failure)
		}
		t.Skip("no cgroup with the cpu controller can be made by this user here; that the limit is refused then is tested")
	}
	// Two processes compute for a second. Of two processors they would have two seconds, and alone
	// on a busy one still much.
	out := h.sh("timeout 1 sh -c 'while :; do :; done' & timeout 1 sh -c 'while :; do :; done'; wait; times")
	var minutes int
	var user, system float64
	fields := strings.Fields(out)
	fmt.Sscanf(fields[2], "%dm%fs", &minutes, &user)
	fmt.Sscanf(fields[3], "%dm%fs", &minutes, &system)
	if used := user + system; used > 0.3 {
		t.Errorf("they had %.2f s", used)
	}
	wantNoCgroupLeft(t, places)
}

func TestNothingInsideLeavesItsCgroup(t *testing.T) {
	places := ownCgroups(t)
	h := newHost(t)
	h.profile.Limits = bothLimits
	for _, place := range places {
		for _, script := range []string{
			"echo $$ >" + place.Dir + "/cgroup.procs",
			"echo 1 >" + place.Dir + "/cgroup.procs",
			"mkdir " + place.Dir + "/clai-test-escape",
			"for f in " + place.Dir + "/" + limits.Prefix + "*/*.max; do echo max >$f && exit; done; exit 1",
			"mount -o remount,rw /sys/fs/cgroup",
			"mkdir /tmp/c && mount -t cgroup2 none /tmp/c",
		} {
			h.refused(script)
		}
	}
}

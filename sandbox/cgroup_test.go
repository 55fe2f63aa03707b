package sandbox

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/process"
)

var bothLimits = profile.Limits{Amounts: profile.Amounts{profile.LimitMemory: 64 << 20, profile.LimitProcesses: 50}}

// fakeCgroups is a directory that stands in for a tree of cgroups: files that nobody reads but this program. Each path
// of delegated, if it ends in "!", is one that the caller may not write. Behind its controllers stand settings, as
// "pids; memory.max=1".
func fakeCgroups(t *testing.T, membership string, delegated map[string]string) cgroupTree {
	t.Helper()
	root := newDirectory(t)
	tree := cgroupTree{root: filepath.Join(root, "tree"), membership: filepath.Join(root, "membership")}
	if err := os.WriteFile(tree.membership, []byte(membership), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, controllers := range delegated {
		path, closed := strings.CutSuffix(path, "!")
		dir := filepath.Join(tree.root, path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		files := strings.Split(controllers, "; ")
		files[0] = "cgroup.subtree_control=" + files[0]
		for _, file := range files {
			name, text, _ := strings.Cut(file, "=")
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if !closed { // what is not there nobody may write, not even root
			if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return tree
}

func TestACgroupIsMadeWhereItWouldHold(t *testing.T) {
	memory, processes := profile.LimitMemory, profile.LimitProcesses
	type held map[profile.Limit]cgroupPlace
	var none cgroupBounds
	for name, c := range map[string]struct {
		membership string
		delegated  map[string]string
		want       held
	}{
		"next to the own one": {"0::/user/app/own\n",
			map[string]string{"": "cpu memory pids", "user": "memory pids", "user/app": "memory pids", "user/app/own": ""},
			held{memory: {"user/app", 2, none}, processes: {"user/app", 2, none}}},
		"further up": {"0::/user/app/own\n",
			map[string]string{"": "memory pids", "user": "memory pids", "user/app": "cpu", "user/app/own": ""},
			held{memory: {"user", 2, none}, processes: {"user", 2, none}}},
		"not where processes may not be moved": {"0::/user/app\n",
			map[string]string{"!": "memory pids", "user!": "memory pids", "user/app": ""}, held{}},
		"one controller is better than none": {"0::/user/app\n",
			map[string]string{"": "", "user": "memory", "user/app": ""}, held{memory: {"user", 2, none}}},
		"with what the own one is held to": {"0::/user/app/own\n",
			map[string]string{"": "memory pids", "user": "memory pids", "user/app": "cpu; memory.max=5000; pids.max=max",
				"user/app/own": "; memory.max=7000; pids.max=30; cpu.max=max 100000; io.max=; cpuset.cpus="},
			held{memory: {"user", 2, cgroupBounds{5000, 30}}, processes: {"user", 2, cgroupBounds{5000, 30}}}},
		"where all that the own one is held to can be held": {"0::/user/app/own\n",
			map[string]string{"": "memory pids", "user": "memory", "user/app": "memory", "user/app/own": "; pids.max=30"},
			held{memory: {"", 2, cgroupBounds{0, 30}}, processes: {"", 2, cgroupBounds{0, 30}}}},
		"not where a limit of the own one cannot be held": {"0::/user/app\n",
			map[string]string{"": "memory", "user": "memory", "user/app": "; pids.max=30"}, held{}},
		"not out of a limit on processors": {"0::/user/app\n",
			map[string]string{"": "cpu memory pids", "user": "cpu memory pids", "user/app": "; cpu.max=50000 100000"}, held{}},
		"not out of a limit on swap": {"0::/user/app\n",
			map[string]string{"user": "memory pids", "user/app": "; memory.swap.max=0"}, held{}},
		"in the root": {"0::/\n", map[string]string{"": "memory pids"}, held{memory: {"", 2, none}, processes: {"", 2, none}}},
		"not outside of the own namespace": {"0::/../other\n",
			map[string]string{"": "memory pids", "other": "memory pids"}, held{}},
		"version 1": {"8:pids:/\n4:memory:/a/b\n0::/\n", map[string]string{"": "", "pids": "", "memory/a/b": ""},
			held{memory: {"memory/a/b", 1, none}, processes: {"pids", 1, none}}},
		"version 1 without rights": {"8:pids:/\n4:memory:/a/b\n", map[string]string{"pids!": "", "memory/a/b!": ""}, held{}},
		"one of each version":      {"4:memory:/a\n0::/a\n", map[string]string{"memory/a": "", "": "pids"}, held{memory: {"memory/a", 1, none}}},
		"a controller of a similar name": {"0::/\n5:memory2,xpids:/\n", map[string]string{"": "memory2 xpids", "memory": "", "pids": ""},
			held{}},
		"nonsense": {"\n:\n::\n0::relative\n9:memory\n:::::/\n", map[string]string{"": "memory pids", "memory": ""}, held{}},
	} {
		tree := fakeCgroups(t, c.membership, c.delegated)
		want := map[profile.Limit]cgroupPlace{}
		for limit, place := range c.want {
			want[limit] = cgroupPlace{filepath.Join(tree.root, place.dir), place.version, place.bounds}
		}
		if got := tree.places(bothLimits); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if got := tree.places(profile.Limits{Amounts: profile.Amounts{profile.LimitOutput: 1}}); got != nil {
			t.Errorf("%s: a place for nothing: %v", name, got)
		}
	}
}

// Without this, a limit on processes would take a command out of a service that has a limit on memory.
func TestACgroupKeepsWhatTheLauncherIsHeldTo(t *testing.T) {
	place := cgroupPlace{"/a", 2, cgroupBounds{memory: 100, processes: 30}}
	for name, c := range map[string]struct{ set, want [2]int64 }{
		"more":            {[2]int64{200, 50}, [2]int64{100, 30}},
		"less":            {[2]int64{50, 20}, [2]int64{50, 20}},
		"processes alone": {[2]int64{0, 20}, [2]int64{100, 20}},
		"memory alone":    {[2]int64{50, 0}, [2]int64{50, 30}},
	} {
		limits, places := profile.Limits{}, map[profile.Limit]cgroupPlace{}
		for i, limit := range []profile.Limit{profile.LimitMemory, profile.LimitProcesses} {
			if limits.Amounts[limit] = c.set[i]; c.set[i] > 0 {
				places[limit] = place
			}
		}
		got := place.bounds.amounts(limits)
		if [2]int64{got.Of(profile.LimitMemory), got.Of(profile.LimitProcesses)} != c.want || len(withBounds(places)) != 2 {
			t.Errorf("%s: %v in %v", name, got, withBounds(places))
		}
	}
}

// A directory stands in for the new cgroup: what is written where is all that can be seen of version 2 on a host whose
// controllers are all in version 1.
func TestWhatIsWrittenIntoACgroup(t *testing.T) {
	limits := bothLimits
	limits.Amounts[profile.LimitCPUPercent] = 150
	for _, c := range []struct {
		version int
		files   []string
		want    map[string]string
	}{
		{2, []string{"memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max"},
			map[string]string{"memory.max": "67108864", "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": "50", "cpu.max": "150000 100000"}},
		{2, []string{"memory.max", "pids.max", "cpu.max"}, map[string]string{"memory.max": "67108864", "pids.max": "50"}},
		{1, []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "pids.max", "cpu.cfs_period_us", "cpu.cfs_quota_us"},
			map[string]string{"memory.limit_in_bytes": "67108864", "memory.memsw.limit_in_bytes": "67108864", "pids.max": "50",
				"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "150000"}},
	} {
		dir := newDirectory(t)
		for _, name := range c.files {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, row := range cgroupLimits {
			if err := configureCgroup(dir, cgroupSettings(row.limit, c.version, limits.Of(row.limit))); err != nil {
				t.Error(err)
			}
		}
		for name, want := range c.want {
			if text, _ := os.ReadFile(filepath.Join(dir, name)); string(text) != want {
				t.Errorf("version %d: %s holds %q", c.version, name, text)
			}
		}
	}
	if err := configureCgroup(newDirectory(t), cgroupSettings(profile.LimitMemory, 2, 1<<30)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without memory.max: %v", err)
	}
}

func TestTheEventsOfACgroupAreRead(t *testing.T) {
	dir := newDirectory(t)
	for name, text := range map[string]string{
		"memory.events":      "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 1\n",
		"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n",
		"pids.events":        "max 9\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for version, want := range map[int]int64{1: 4, 2: 2} {
		g := &cgroup{holds: map[profile.Limit]cgroupPlace{profile.LimitMemory: {dir: dir, version: version}, profile.LimitProcesses: {dir: dir, version: version}}}
		if memory, processes := g.reached(profile.LimitMemory), g.reached(profile.LimitProcesses); memory != want || processes != 9 {
			t.Errorf("version %d: %d and %d", version, memory, processes)
		}
	}
	var none *cgroup
	if none.reached(profile.LimitMemory) != 0 || none.has(profile.LimitMemory) {
		t.Error("no cgroup, and yet")
	}
}

// A limit that a cgroup should hold is not given up when the cgroup cannot be made.
func TestACgroupThatCannotBeMadeRefusesTheRun(t *testing.T) {
	real := hostCgroups
	t.Cleanup(func() { hostCgroups = real })
	hostCgroups = fakeCgroups(t, "0::/own\n", map[string]string{"": "memory pids", "own": ""})
	h := newHost(t)
	h.profile.Limits = bothLimits
	r := h.run("/bin/sh", "-c", "echo ran")
	var setup *SetupError
	if !errors.As(r.Failure, &setup) || r.Out != "" || !strings.Contains(setup.Why, "make a cgroup: write ") {
		t.Errorf("%q %v", r.Out, r.Failure)
	}
	if left, _ := filepath.Glob(hostCgroups.root + "/" + cgroupPrefix + "*"); left != nil {
		t.Errorf("it left %q", left)
	}
}

// In version 2 the kernel kills all of the cgroup, bwrap as well: that is no failure of the host's. A directory with the
// kernel's count stands in for the cgroup, and SIGKILL is a real one.
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
	a.cgroup = &cgroup{holds: map[profile.Limit]cgroupPlace{profile.LimitMemory: {dir: dir, version: 2}}}
	a.plan.Limits = bothLimits
	result, err := h.launcher.conclude(a, Result{})
	if err != nil || result.Outcome != Signalled || result.ExitCode != 128+int(unix.SIGKILL) {
		t.Errorf("%+v, %v", result, err)
	}
	ran{Result: result}.wantLimitNotice(t, "memory")
}

// ownCgroups skips where this process cannot have a cgroup that holds memory and processes.
func ownCgroups(t *testing.T) map[profile.Limit]cgroupPlace {
	t.Helper()
	places, err := hostCgroups.ready(bothLimits)
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
		if place.version != 2 {
			t.Skipf("the controllers of this host are in cgroup version 1 (%s: %s): of version 2 only what is written is tested", limit, place.dir)
		}
	}
}

// The controllers aside, a cgroup of version 2 is made, joined and removed here as anywhere.
func TestACgroupOfVersion2IsJoinedAndRemoved(t *testing.T) {
	needRoot(t)
	root := hostCgroups.root
	if _, err := os.Stat(root + "/cgroup.controllers"); err != nil {
		root += "/unified"
	}
	dir := filepath.Join(root, cgroupPrefix+"test-join")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no cgroup of version 2 can be made here: %v", err)
	}
	cmd := helperCommand(t, "wait")
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	g := &cgroup{dirs: []string{dir}}
	if err := g.join(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	membership, _ := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/cgroup")
	if !strings.Contains(string(membership), "0::/"+filepath.Base(dir)+"\n") {
		t.Errorf("it is in %s", membership)
	}
	input.Close()
	cmd.Wait()
	g.remove()
	if err := unix.Rmdir(dir); err != unix.ENOENT {
		t.Errorf("it is left: %v", err)
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

func wantNoCgroupLeft(t *testing.T, places map[profile.Limit]cgroupPlace) {
	t.Helper()
	for _, place := range places {
		left, _ := filepath.Glob(place.dir + "/" + cgroupPrefix + "*")
		for _, dir := range left {
			if strings.HasPrefix(filepath.Base(dir), cgroupPrefix+strconv.Itoa(os.Getpid())+"-") {
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
	places, err := hostCgroups.ready(h.profile.Limits)
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
	// Two processes compute for a second. Of two processors they would have two seconds, and alone on a busy one still much.
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
			"echo $$ >" + place.dir + "/cgroup.procs",
			"echo 1 >" + place.dir + "/cgroup.procs",
			"mkdir " + place.dir + "/clai-test-escape",
			"for f in " + place.dir + "/" + cgroupPrefix + "*/*.max; do echo max >$f && exit; done; exit 1",
			"mount -o remount,rw /sys/fs/cgroup",
			"mkdir /tmp/c && mount -t cgroup2 none /tmp/c",
		} {
			h.refused(script)
		}
	}
}

func init() {
	helpers["wait"] = func() { io.Copy(io.Discard, os.Stdin) }
}

func TestCgroupsOfKilledLaunchersAreSwept(t *testing.T) {
	for _, place := range ownCgroups(t) {
		stale, fresh := filepath.Join(place.dir, cgroupPrefix+"test-stale"), filepath.Join(place.dir, cgroupPrefix+"test-fresh")
		busy := filepath.Join(place.dir, cgroupPrefix+"test-busy")
		cmd := helperCommand(t, "wait")
		input, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{stale, fresh, busy} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := writeCgroup(busy, "cgroup.procs", strconv.Itoa(cmd.Process.Pid)); err != nil {
			t.Error(err)
		}
		old := time.Now().Add(-2 * cgroupAge)
		for _, dir := range []string{stale, busy} {
			if err := os.Chtimes(dir, old, old); err != nil {
				t.Fatal(err)
			}
		}
		sweepCgroups(place.dir)
		input.Close()
		cmd.Wait()
		for dir, want := range map[string]error{stale: unix.ENOENT, fresh: nil, busy: nil} {
			if err := unix.Rmdir(dir); err != want && (err != nil || want != nil) {
				t.Errorf("%s: %v", dir, err)
			}
		}
	}
}

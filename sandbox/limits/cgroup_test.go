package limits

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/process/processtest"
)

// fakeCgroups is a directory that stands in for a tree of cgroups: files that nobody reads but this
// program. Each path of delegated, if it ends in "!", is one that the caller may not write. Behind
// its controllers stand settings, as "pids; memory.max=1".
func fakeCgroups(t *testing.T, membership string, delegated map[string]string) Tree {
	t.Helper()
	root := processtest.Directory(t)
	tree := Tree{Root: filepath.Join(root, "tree"), Membership: filepath.Join(root, "membership")}
	if err := os.WriteFile(tree.Membership, []byte(membership), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, controllers := range delegated {
		path, closed := strings.CutSuffix(path, "!")
		dir := filepath.Join(tree.Root, path)
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
	type held map[profile.Limit]Place
	var none bounds
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
			held{memory: {"user", 2, bounds{5000, 30}}, processes: {"user", 2, bounds{5000, 30}}}},
		"where all that the own one is held to can be held": {"0::/user/app/own\n",
			map[string]string{"": "memory pids", "user": "memory", "user/app": "memory", "user/app/own": "; pids.max=30"},
			held{memory: {"", 2, bounds{0, 30}}, processes: {"", 2, bounds{0, 30}}}},
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
		want := map[profile.Limit]Place{}
		for limit, place := range c.want {
			want[limit] = Place{filepath.Join(tree.Root, place.Dir), place.Version, place.bounds}
		}
		if got := tree.places(bothLimits); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if got := tree.places(profile.Limits{Amounts: profile.Amounts{profile.LimitOutput: 1}}); got != nil {
			t.Errorf("%s: a place for nothing: %v", name, got)
		}
	}
}

// Without this, a limit on processes would take a command out of a service that has a limit on
// memory.
func TestACgroupKeepsWhatTheLauncherIsHeldTo(t *testing.T) {
	place := Place{"/a", 2, bounds{memory: 100, processes: 30}}
	for name, c := range map[string]struct{ set, want [2]int64 }{
		"more":            {[2]int64{200, 50}, [2]int64{100, 30}},
		"less":            {[2]int64{50, 20}, [2]int64{50, 20}},
		"processes alone": {[2]int64{0, 20}, [2]int64{100, 20}},
		"memory alone":    {[2]int64{50, 0}, [2]int64{50, 30}},
	} {
		limits, places := profile.Limits{}, map[profile.Limit]Place{}
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

// A directory stands in for the new cgroup: what is written where is all that can be seen of
// version 2 on a host whose controllers are all in version 1.
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
		dir := processtest.Directory(t)
		for _, name := range c.files {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, row := range cgroupLimits {
			if err := configure(dir, settings(row.limit, c.version, limits.Of(row.limit))); err != nil {
				t.Error(err)
			}
		}
		for name, want := range c.want {
			if text, _ := os.ReadFile(filepath.Join(dir, name)); string(text) != want {
				t.Errorf("version %d: %s holds %q", c.version, name, text)
			}
		}
	}
	if err := configure(processtest.Directory(t), settings(profile.LimitMemory, 2, 1<<30)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without memory.max: %v", err)
	}
}

func TestTheEventsOfACgroupAreRead(t *testing.T) {
	dir := processtest.Directory(t)
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
		g := &Cgroup{Holds: map[profile.Limit]Place{profile.LimitMemory: {Dir: dir, Version: version}, profile.LimitProcesses: {Dir: dir, Version: version}}}
		if memory, processes := g.Reached(profile.LimitMemory), g.Reached(profile.LimitProcesses); memory != want || processes != 9 {
			t.Errorf("version %d: %d and %d", version, memory, processes)
		}
	}
	var none *Cgroup
	if none.Reached(profile.LimitMemory) != 0 || none.has(profile.LimitMemory) {
		t.Error("no cgroup, and yet")
	}
}

// The controllers aside, a cgroup of version 2 is made, joined and removed here as anywhere.
func TestACgroupOfVersion2IsJoinedAndRemoved(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make one at the top")
	}
	root := Host().Root
	if _, err := os.Stat(root + "/cgroup.controllers"); err != nil {
		root += "/unified"
	}
	dir := filepath.Join(root, Prefix+"test-join")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("no cgroup of version 2 can be made here: %v", err)
	}
	cmd := exec.Command("/bin/cat")
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	g := &Cgroup{dirs: []string{dir}}
	if err := g.Join(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	membership, _ := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/cgroup")
	if !strings.Contains(string(membership), "0::/"+filepath.Base(dir)+"\n") {
		t.Errorf("it is in %s", membership)
	}
	input.Close()
	cmd.Wait()
	g.Remove()
	if err := unix.Rmdir(dir); err != unix.ENOENT {
		t.Errorf("it is left: %v", err)
	}
}

func TestCgroupsOfKilledLaunchersAreSwept(t *testing.T) {
	places, err := Host().Ready(bothLimits)
	if err != nil || len(places) != 2 {
		t.Skipf("no cgroup with the memory and pids controllers can be made by this user here, only %v (%v)", places, err)
	}
	for _, place := range places {
		stale, fresh := filepath.Join(place.Dir, Prefix+"test-stale"), filepath.Join(place.Dir, Prefix+"test-fresh")
		busy := filepath.Join(place.Dir, Prefix+"test-busy")
		cmd := exec.Command("/bin/cat")
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
		if err := write(busy, "cgroup.procs", strconv.Itoa(cmd.Process.Pid)); err != nil {
			t.Error(err)
		}
		old := time.Now().Add(-2 * sweepAge)
		for _, dir := range []string{stale, busy} {
			if err := os.Chtimes(dir, old, old); err != nil {
				t.Fatal(err)
			}
		}
		sweep(place.Dir)
		input.Close()
		cmd.Wait()
		for dir, want := range map[string]error{stale: unix.ENOENT, fresh: nil, busy: nil} {
			if err := unix.Rmdir(dir); err != want && (err != nil || want != nil) {
				t.Errorf("%s: %v", dir, err)
			}
		}
	}
}

package limits

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/process/processtest"
)

var bothLimits = profile.Limits{Amounts: profile.Amounts{profile.LimitMemory: 64 << 20, profile.LimitProcesses: 50}}

// fakeSession is a host on which the caller, an ordinary user, came in by ssh: beside the cgroups
// of the user's systemd.
func fakeSession(t *testing.T, change map[string]string) Tree {
	t.Helper()
	uid := os.Getuid()
	if uid == 0 {
		uid = 1000
	}
	slice := fmt.Sprintf("user.slice/user-%d.slice", uid)
	manager := fmt.Sprintf("%s/user@%d.service", slice, uid)
	dirs := map[string]string{
		"!": "memory pids", "user.slice!": "memory pids", slice + "!": "memory pids; pids.max=30000",
		slice + "/session-3.scope": "; memory.max=max; pids.max=max",
		manager:                    "memory pids; cgroup.controllers=memory pids",
		manager + "/app.slice":     "memory pids",
	}
	for path, settings := range change {
		dirs[strings.NewReplacer("SLICE", slice, "MANAGER", manager).Replace(path)] = settings
	}
	tree := fakeCgroups(t, "0::/"+slice+"/session-3.scope\n", dirs)
	tree.uid, tree.busctl = uid, systemBusctl
	runtime := processtest.Directory(t)
	listener, err := net.Listen("unix", runtime+"/bus")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	if err := os.Lchown(runtime+"/bus", uid, -1); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	return tree
}

func TestAScopeIsAskedForWhereOnlyThatHelps(t *testing.T) {
	for name, c := range map[string]struct {
		change  map[string]string
		limits  profile.Limits
		alter   func(*Tree)
		offered bool
	}{
		"in a session":     {limits: bothLimits, offered: true},
		"for memory alone": {limits: profile.Limits{Amounts: profile.Amounts{profile.LimitMemory: 1 << 30}}, offered: true},
		"for processors alone": {limits: profile.Limits{Amounts: profile.Amounts{profile.LimitCPUPercent: 50}}, offered: true,
			change: map[string]string{"MANAGER": "; cgroup.controllers=cpu"}},
		"not for processes, which rlimits do": {limits: profile.Limits{Amounts: profile.Amounts{profile.LimitProcesses: 50}}},
		"not for nothing":                     {},
		"not for another user":                {limits: bothLimits, alter: func(t *Tree) { t.uid++ }},
		"not out of a service": {limits: bothLimits, alter: func(t *Tree) {
			os.WriteFile(t.Membership, []byte("0::/system.slice/some.service\n"), 0o644)
		}},
		"not without busctl":           {limits: bothLimits, alter: func(t *Tree) { t.busctl = "" }},
		"not without the controller":   {limits: bothLimits, change: map[string]string{"MANAGER": "; cgroup.controllers=pids"}},
		"not out of a limit on memory": {limits: bothLimits, change: map[string]string{"SLICE/session-3.scope": "; memory.max=5000"}},
		"not out of one on processors": {limits: bothLimits, change: map[string]string{"SLICE/session-3.scope": "; cpu.max=50000 100000"}},
	} {
		tree := fakeSession(t, c.change)
		if c.alter != nil {
			c.alter(&tree)
		}
		if places, scoped := tree.Reach(c.limits); scoped != c.offered || (len(places) > 0) != c.offered {
			t.Errorf("%s: %v %v", name, scoped, places)
		}
	}
}

func TestAScopeIsAskedForOnTheUsersOwnBusAlone(t *testing.T) {
	for name, change := range map[string]func(bus string, uid int) error{
		"none": func(bus string, _ int) error { return os.Remove(bus) },
		"a file": func(bus string, uid int) error {
			return errors.Join(os.Remove(bus), os.WriteFile(bus, nil, 0o600), os.Lchown(bus, uid, -1))
		},
		"another path": func(string, int) error { return os.Setenv("XDG_RUNTIME_DIR", ".") },
		"another user's": func(bus string, uid int) error {
			if os.Getuid() != 0 {
				return os.Remove(bus) // only root can give it away
			}
			return os.Lchown(bus, uid+1, -1)
		},
	} {
		tree := fakeSession(t, nil)
		bus := os.Getenv("XDG_RUNTIME_DIR") + "/bus"
		if err := change(bus, tree.uid); err != nil {
			t.Fatal(err)
		}
		if _, scoped := tree.Reach(bothLimits); scoped {
			t.Error(name)
		}
	}
}

// A shell script stands in for busctl, and for systemd behind it.
func TestWhatSystemdIsAskedFor(t *testing.T) {
	tree := fakeSession(t, nil)
	asked := filepath.Join(processtest.Directory(t), "asked")
	fake := func(script string) {
		tree.busctl = filepath.Join(filepath.Dir(asked), "busctl")
		if err := os.WriteFile(tree.busctl, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	app := strings.TrimPrefix(tree.userManager(), tree.Root) + "/app.slice"
	fake(`printf '%s\n' "$@" >` + asked + `; mkdir "` + tree.Root + app + `/$8"; echo "0::` + app + `/$8" >` + tree.Membership)
	places, err := tree.Ready(bothLimits)
	if err != nil || places[profile.LimitMemory].Dir != tree.Root+app {
		t.Errorf("%v %v", places, err)
	}
	text, _ := os.ReadFile(asked)
	want := fmt.Sprintf("--user call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager StartTransientUnit "+
		"ssa(sv)a(sa(sv)) %s fail 7 PIDs au 1 %d Description s clai-sandbox run CollectMode s inactive-or-failed "+
		"MemoryAccounting b true TasksAccounting b true CPUWeight t 100 TasksMax t 18446744073709551615 0", filepath.Base(tree.unified()), os.Getpid())
	if got := strings.Join(strings.Split(strings.TrimSpace(string(text)), "\n"), " "); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}

	// What systemd refuses is told, and nothing is run with less.
	tree = fakeSession(t, nil)
	fake("echo 'Call failed: Process 7 is not yours' >&2; exit 1")
	if _, err := tree.Ready(bothLimits); err == nil || !strings.Contains(err.Error(), "Process 7 is not yours") {
		t.Errorf("%v", err)
	}
	fake("echo '0::/elsewhere' >" + tree.Membership)
	if _, err := tree.Ready(bothLimits); err == nil || !strings.Contains(err.Error(), "systemd made no scope") {
		t.Errorf("%v", err)
	}
}

// TestMain makes the test binary, with CLAI_SANDBOX_TEST_HELPER, a program that has itself moved
// into a scope.
func TestMain(m *testing.M) {
	if os.Getenv("CLAI_SANDBOX_TEST_HELPER") == "enter-scope" {
		places, err := Host().Ready(bothLimits)
		fmt.Println(len(places), err, Host().unified())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestTheCallersSystemdMakesAScope(t *testing.T) {
	made := strings.Contains(Host().unified(), "/app.slice/"+scopePrefix) // by another test
	if _, scoped := Host().Reach(bothLimits); !scoped && !made {
		t.Skipf("nothing to try: this process (cgroup %q, uid %d) is root's, or already where its cgroups can be made, or has no systemd of its user's (%s)",
			Host().unified(), os.Getuid(), Host().userManager())
	}
	helper := exec.Command("/proc/self/exe")
	helper.Env = append(os.Environ(), "CLAI_SANDBOX_TEST_HELPER=enter-scope")
	out, err := helper.Output()
	if err != nil || !strings.HasPrefix(string(out), "2 <nil> ") || !strings.Contains(string(out), "/app.slice/"+scopePrefix) {
		t.Errorf("%s %v", out, err)
	}
	left, _ := exec.Command("systemctl", "--user", "list-units", "--all", "--no-legend", scopePrefix+"*").Output()
	if strings.Contains(string(left), "failed") {
		t.Errorf("left: %s", left)
	}
}

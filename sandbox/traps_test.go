package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/landlock"
)

// Each of these was a bug in a published sandbox.

func TestProcessOneShowsNothingOfTheCallersEnvironment(t *testing.T) {
	t.Setenv("CALLERS_SECRET", "tell-nobody")
	h := newHost(t)
	h.profile.Environment = append(h.profile.Environment, profile.Variable{Name: "GIVEN", Value: "for-the-command"})
	out := h.sh("cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'; echo end; cat /proc/1/environ /proc/1/cmdline | tr '\\0' '\\n'")
	if strings.Contains(out, "tell-nobody") {
		t.Errorf("the caller's variable is visible:\n%s", out)
	}
	_, ofInit, _ := strings.Cut(out, "end\n")
	if strings.Contains(ofInit, "for-the-command") || strings.Contains(ofInit, h.profile.Home) {
		t.Errorf("bwrap's own environment or arguments show the options:\n%s", ofInit)
	}
}

func TestTheCommandGetsItsOwnVariablesOnly(t *testing.T) {
	h := newHost(t)
	h.profile.Environment = []profile.Variable{{Name: "A", Value: "1"}, {Name: "B", Value: "two words\nand a line"}}
	got := h.run("/usr/bin/env", "-0")
	want := map[string]bool{"A=1": true, "B=two words\nand a line": true, "PWD=" + h.profile.Workspace: true}
	for _, variable := range strings.Split(strings.TrimSuffix(got.Out, "\x00"), "\x00") {
		if !want[variable] {
			t.Errorf("unexpected %q", variable)
		}
		delete(want, variable)
	}
	for variable := range want {
		t.Errorf("missing %q", variable)
	}
}

func TestInheritedDescriptorsDoNotReachTheCommand(t *testing.T) {
	h := newHost(t)
	secret := h.write(filepath.Join(h.profile.Home, "open-in-the-launcher"), "secret")
	fd, err := unix.Open(secret, unix.O_RDONLY, 0) // without O_CLOEXEC, as a careless parent opens
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, terminal := range []bool{false, true} {
		h.launcher.Terminal = terminal
		out := h.sh("for fd in /proc/self/fd/*; do echo ${fd##*/}; done")
		for _, fd := range lines(out) {
			if n, err := strconv.Atoi(fd); err != nil || n > 3 { // 3 is the directory that the shell is reading
				t.Errorf("terminal %v: descriptor %s is open inside:\n%s", terminal, fd, out)
			}
		}
	}
}

func TestProcessOneHoldsNoDescriptorOfTheHosts(t *testing.T) {
	h := newHost(t)
	h.grant(h.mkdir(filepath.Join(h.profile.Home, "granted")), profile.ReadWrite)
	for _, line := range lines(h.sh("ls -l /proc/1/fd | sed -n 's/.* -> //p'")) {
		if strings.HasPrefix(line, "/") && line != "/dev/null" {
			t.Errorf("pid 1 has %s open", line)
		}
	}
}

func TestASwappedSymlinkGrantsNothingAtTheNextRun(t *testing.T) {
	h := newHost(t)
	netrc := h.write(filepath.Join(h.profile.Home, "outside/netrc"), "password")
	h.profile.Grants = h.profile.Grants[1:] // no home
	data := h.mkdir(filepath.Join(h.profile.Workspace, "data"))
	secret := h.write(filepath.Join(data, "x/secret"), "harmless")
	h.grant(secret, profile.ReadOnly)
	plan := h.build()
	// A command in the workspace could have done this between Build and Run.
	os.RemoveAll(filepath.Dir(secret))
	h.symlink(filepath.Dir(netrc), filepath.Join(data, "x"))
	h.write(filepath.Join(filepath.Dir(netrc), "secret"), "password")
	r := h.runPlan(plan, "/bin/sh", "-c", "cat "+secret+" "+netrc)
	if strings.Contains(r.Out, "password") {
		t.Errorf("the link was followed: %s", r.Out)
	}
	// Left out, the path would be as writable as the workspace around it.
	var setup *SetupError
	if !errors.As(r.Failure, &setup) || !strings.Contains(setup.Why, "changed while the sandbox was made") {
		t.Errorf("%v", r.Failure)
	}
}

func TestAnObjectThatReplacesAGrantThroughALinkIsNotBound(t *testing.T) {
	h := newHost(t)
	outside := h.mkdir(filepath.Join(filepath.Dir(h.profile.Home), "outside"))
	h.write(filepath.Join(outside, "f"), "password")
	granted := h.mkdir(filepath.Join(h.profile.Workspace, "granted"))
	h.grant(granted, profile.ReadOnly)
	plan := h.build()
	os.Remove(granted)
	h.symlink(outside, granted)
	var setup *SetupError
	if r := h.runPlan(plan, "/bin/cat", granted+"/f"); r.Out != "" || !errors.As(r.Failure, &setup) {
		t.Errorf("read %q through the new link, %v", r.Out, r.Failure)
	}
}

func TestAStaleGrantIsLeftOutAndStopsNothing(t *testing.T) {
	h := newHost(t)
	home := h.profile.Home
	h.write(home+"/file", "")
	h.symlink("loop", home+"/loop")
	h.symlink("/nowhere/at/all", home+"/dangling")
	h.mkdir(home + "/closed/inner")
	os.Chmod(home+"/closed", 0)
	defer os.Chmod(home+"/closed", 0o700)
	stale := []string{home + "/gone", home + "/file/below", home + "/loop", home + "/dangling"}
	if os.Getuid() != 0 {
		stale = append(stale, home+"/closed/inner")
	}
	stale = append(stale, "/"+strings.Repeat("n", 256))
	for _, path := range stale {
		h.grant(path, profile.ReadWrite)
	}
	r := h.run("/bin/echo", "still runs")
	if r.Failure != nil || r.Out != "still runs\n" {
		t.Fatalf("%v %q %q", r.Failure, r.Out, r.Err)
	}
	if len(r.Notices) != len(stale) {
		t.Errorf("%d notices for %d stale grants: %v", len(r.Notices), len(stale), r.Notices)
	}
	for i, n := range r.Notices {
		kind := NoticePathLeftOut
		if stale[i] == home+"/loop" {
			kind = NoticePathDenied // it never led anywhere
		}
		if n.Path != stale[i] || n.Kind != kind {
			t.Errorf("notice %d is %+v, want one about %s", i, n, stale[i])
		}
	}
}

func TestOurOwnDirectoriesAreMasked(t *testing.T) {
	h := newHost(t)
	h.profile.OwnDirectories = append(h.profile.OwnDirectories, filepath.Join(h.profile.Home, "linked/clai-sandbox"))
	h.mkdir(h.profile.Home + "/elsewhere/clai-sandbox")
	h.symlink("elsewhere", h.profile.Home+"/linked")
	for _, own := range h.profile.OwnDirectories {
		if strings.HasPrefix(own, "/etc") {
			continue
		}
		h.write(own+"/grants.db", "token")
		h.refused("cat " + own + "/grants.db")
		h.refused("touch " + own + "/new")
		h.refused("chmod 777 " + own)
		h.refused("rmdir " + own)
		if got := h.sh("ls -A " + own); got != "" {
			t.Errorf("%s shows %s", own, got)
		}
	}
	h.refused("cat " + h.profile.Home + "/elsewhere/clai-sandbox/grants.db")
}

func TestNoGrantReachesIntoOrAroundOurOwnDirectories(t *testing.T) {
	h := newHost(t)
	h.write(h.profile.Home+"/.config/clai-sandbox/config.json", "{}")
	h.symlink(".config", h.profile.Home+"/alias")
	for _, c := range []struct {
		path   string
		access profile.Access
	}{
		{"/.config/clai-sandbox", profile.ReadOnly},
		{"/.config/clai-sandbox/config.json", profile.ReadOnly},
		{"/.config", profile.ReadWrite},
		{"/alias", profile.ReadWrite},
		{"/alias/clai-sandbox/config.json", profile.ReadWrite},
		{"", profile.ReadWrite},
	} {
		h.grant(h.profile.Home+c.path, c.access)
		plan := h.build()
		if len(plan.Notices) != 1 || plan.Notices[0].Kind != NoticePathDenied {
			t.Errorf("%s %s: notices %v", c.path, c.access, plan.Notices)
		}
		h.refused("cat " + h.profile.Home + "/.config/clai-sandbox/config.json")
		h.refused("mv " + h.profile.Home + "/.config " + h.profile.Home + "/moved")
		h.profile.Grants = h.profile.Grants[:2]
	}
	h.profile.Workspace, h.profile.Grants[1].Path = h.profile.Home, h.profile.Home
	if _, err := Build(h.profile, Host{}); err == nil {
		t.Error("a workspace around our own state was accepted")
	}
}

func TestNothingIsLeftOnTheHost(t *testing.T) {
	h := newHost(t)
	os.RemoveAll(h.profile.OwnDirectories[1])
	h.grant(h.mkdir(h.profile.Workspace+"/sub"), profile.ReadOnly)
	before := listing(t, h.profile.Home)
	h.sh("ls -laR $HOME > /dev/null; echo x > /tmp/x; mkdir /dev/shm/y")
	if after := listing(t, h.profile.Home); after != before {
		t.Errorf("before:\n%safter:\n%s", before, after)
	}
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.Command("find", dir, "-printf", "%p %m %y\\n").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestPrivateTmpIsWritableByAllAndOthersAreNot(t *testing.T) {
	h := newHost(t)
	if mode := h.sh("stat -c %a /tmp /dev/shm"); mode != "1777\n1777\n" {
		t.Errorf("modes %q", mode)
	}
	h.sh("touch /tmp/a /dev/shm/a")
	for _, path := range []string{"/a", "/dev/a", "/etc/a", "/usr/a", "/sys/a", "/proc/sys/a", "/etc/ssh/a", "/run/a", "/home/a"} {
		h.refused("touch " + path)
		h.refused("mkdir -p " + path)
	}
	h.refused("rm /bin")
}

func TestTheLoopbackInterfaceWorksWithoutANetwork(t *testing.T) {
	h := newHost(t)
	h.profile.Network = profile.NetworkDisabled
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	out := h.sh(fmt.Sprintf(`python3 - <<'EOF'
import socket
s = socket.create_server(("127.0.0.1", 0))
socket.create_connection(s.getsockname())
print("inside: connected")
try:
    socket.create_connection(("127.0.0.1", %d), 2)
    print("host: connected")
except OSError:
    print("host: refused")
print([name for _, name in socket.if_nameindex()])
EOF`, port))
	if out != "inside: connected\nhost: refused\n['lo']\n" {
		t.Error(out)
	}
}

func TestNoCapabilityIsLeftAndNoneCanBeGained(t *testing.T) {
	h := newHost(t)
	out := h.sh("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status")
	for _, line := range lines(out) {
		name, value, _ := strings.Cut(line, ":\t")
		want := map[string]string{"NoNewPrivs": "1", "Seccomp": "2"}[name]
		if want == "" {
			want = "0000000000000000"
		}
		if value != want {
			t.Errorf("%s is %s, want %s", name, value, want)
		}
	}
}

func TestUserNamespacesInsideAreRefusedUnlessNestingIsAllowed(t *testing.T) {
	h := newHost(t)
	h.refused("unshare -U true")
	h.refused("unshare -Ur true")
	h.launcher.Bwrap.Options = withoutOption(h.launcher.Bwrap.Options, optionDisableUserns)
	h.refused("unshare -U true") // by the filter alone
	h.profile.NestedNamespaces = true
	h.sh("unshare -U true")
}

func withoutOption(options []string, option string) []string {
	return without(append([]string{}, options...), option)
}

func TestASymlinkedParentDoesNotRedirectAMount(t *testing.T) {
	h := newHost(t)
	outside := h.mkdir(filepath.Join(filepath.Dir(h.profile.Home), "outside"))
	hooks := h.mkdir(h.profile.Workspace + "/.git/hooks")
	h.grant(hooks, profile.ReadOnly)
	plan := h.build()
	os.RemoveAll(h.profile.Workspace + "/.git")
	h.symlink("/oldroot"+outside, h.profile.Workspace+"/.git") // CVE-2026-87766
	r := h.runPlan(plan, "/bin/true")
	var setup *SetupError
	if !errors.As(r.Failure, &setup) || setup.Path != h.profile.Workspace+"/.git" {
		t.Errorf("%v %d", r.Failure, r.ExitCode)
	}
	// The next run finds the link, and does not follow it.
	if r := h.run("/bin/true"); r.Failure != nil || r.ExitCode != 0 {
		t.Errorf("%v %d", r.Failure, r.ExitCode)
	}
	if left := listing(t, outside); len(lines(left)) != 1 {
		t.Errorf("bwrap made something outside: %s", left)
	}
}

func TestAHostsAbstractSocketIsOutOfReach(t *testing.T) {
	if landlock.ABI() < landlock.ScopeABI {
		t.Skipf("this kernel's Landlock is version %d; %d scopes abstract sockets", landlock.ABI(), landlock.ScopeABI)
	}
	h := newHost(t)
	listener, err := net.Listen("unix", fmt.Sprintf("@clai-sandbox-test-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	h.refused(fmt.Sprintf(`python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect("\0%s")'`, listener.Addr().String()[1:]))
	h.sh(`python3 -c '
import socket
s = socket.socket(socket.AF_UNIX); s.bind("\0inside"); s.listen()
socket.socket(socket.AF_UNIX).connect("\0inside")'`)
}

func TestAHostWithoutSSHSettingsIsNoProblem(t *testing.T) {
	h := newHost(t)
	h.tree = without1{Host{}, "/etc/ssh"}
	h.sh("true")
}

// without1 is a tree that lacks one path.
type without1 struct {
	Tree
	path string
}

func (w without1) Lstat(path string) (Object, error) {
	if path == w.path {
		return Object{}, unix.ENOENT
	}
	return w.Tree.Lstat(path)
}

func TestTheCommandIsLookedUpInThePathOfTheSandbox(t *testing.T) {
	h := newHost(t)
	h.write(h.profile.Workspace+"/bin/greet", "#!/bin/sh\necho from the workspace\n")
	os.Chmod(h.profile.Workspace+"/bin/greet", 0o755)
	if r := h.run("greet"); r.Failure == nil {
		t.Errorf("found greet outside of PATH: %q", r.Out)
	}
	h.profile.Environment[1].Value = h.profile.Workspace + "/bin:/usr/bin"
	if r := h.run("greet"); r.Out != "from the workspace\n" {
		t.Errorf("%v %q %q", r.Failure, r.Out, r.Err)
	}
}

func TestRootInsideCannotChangeTheKernel(t *testing.T) {
	h := newHost(t)
	before, _ := os.ReadFile("/proc/sys/kernel/core_pattern")
	for _, attempt := range []string{
		"cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern",
		"cat /proc/sys/vm/overcommit_memory > /proc/sys/vm/overcommit_memory",
		"echo h > /proc/sysrq-trigger",
		"mount -o remount,rw,bind /usr",
		"mount -o remount,rw,bind /proc/sys",
		"umount /proc/sys",
		"mount -t tmpfs none /tmp",
		"mount -t proc proc /tmp",
		"umount /tmp",
		"mknod /tmp/sda b 8 0",
		"chroot / true",
		"echo 0 > /sys/kernel/mm/transparent_hugepage/enabled || echo madvise > /sys/kernel/mm/ksm/run",
	} {
		h.refused(attempt)
	}
	if after, _ := os.ReadFile("/proc/sys/kernel/core_pattern"); string(after) != string(before) {
		t.Errorf("core_pattern changed to %q", after)
	}
}

func TestSetuidProgramsGainNothing(t *testing.T) {
	h := newHost(t)
	h.sh("for m in $(awk '{print $2}' /proc/mounts); do grep -q \" $m [^ ]* [^ ]*nosuid\" /proc/mounts || { echo $m; exit 1; }; done")
}

func TestOtherProcessesOfTheHostCannotBeSeen(t *testing.T) {
	h := newHost(t)
	if n := len(lines(h.sh("ls -d /proc/[0-9]*"))); n > 4 {
		t.Errorf("%d processes are visible", n)
	}
	h.refused(fmt.Sprintf("kill -0 %d", os.Getpid()))
}

func TestMemoryIsNotSharedWithTheHost(t *testing.T) {
	h := newHost(t)
	if out := h.sh("ipcs -m | grep -c 0x || true"); out != "0\n" {
		t.Errorf("SysV segments inside: %s", out)
	}
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o666)
	if err != nil {
		t.Skip("SysV shared memory: ", err)
	}
	defer unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	if out := h.sh("ipcs -m | grep -c 0x || true"); out != "0\n" {
		t.Errorf("the host's segment is visible inside: %s", out)
	}
}

func TestRunIsNeverShown(t *testing.T) {
	h := newHost(t)
	out := h.sh("find /run -type s -o -type f 2>/dev/null || true")
	if strings.TrimSpace(out) != "" && !strings.Contains(out, "resolv") {
		t.Errorf("/run shows %s", out)
	}
	for _, path := range []string{"/run", "/run/user", "/proc", "/sys/kernel", "/dev/null", "/"} {
		h.profile.Grants = append(h.profile.Grants[:2:2], profile.Grant{Path: path, Access: profile.ReadOnly,
			Origin: profile.Origin{Kind: profile.OriginFlag, Source: "--grant"}})
		if _, err := Build(h.profile, Host{}); err == nil {
			t.Errorf("%s was granted", path)
		}
		h.symlink(path, h.profile.Home+"/alias")
		h.profile.Grants[2] = profile.Grant{Path: h.profile.Home + "/alias", Access: profile.ReadOnly}
		if plan := h.build(); len(plan.Notices) != 1 {
			t.Errorf("a link to %s was granted", path)
		}
		os.Remove(h.profile.Home + "/alias")
	}
}

func TestRootInsideIsNotTheMachinesRoot(t *testing.T) {
	needRoot(t)
	h := newHost(t)
	// What an owner may write of /proc and /sys, outside its own processes, but for what takes a
	// capability as well.
	writable := h.sh(`find /proc /sys -path '/proc/[0-9]*' -prune -o -path /proc/self -prune -o -path /proc/thread-self -prune -o -path /proc/pressure -prune -o -path /proc/mtrr -o ! -type l -writable -print 2>/dev/null || true`)
	if writable != "" {
		t.Errorf("root inside may write:\n%s", writable)
	}
	for _, dir := range rootsDirectories {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
			if out := h.sh("ls -A " + dir); out != "" {
				t.Errorf("root inside sees %s:\n%s", dir, out)
			}
		}
	}
}

package sandbox

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/seccomp"
)

// executeBwrap runs the real bwrap with the options given, and a status channel if wanted.
func executeBwrap(t *testing.T, status bool, args ...string) (Evidence, *exec.Cmd) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	if status {
		args = append([]string{"--json-status-fd", "3"}, args...)
	}
	var out, errs bytes.Buffer
	cmd := exec.Command("bwrap", args...)
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = []*os.File{write}, &out, &errs
	cmd.WaitDelay = time.Second
	cmd.Run()
	write.Close()
	e := Evidence{ExitStatus: cmd.ProcessState.ExitCode(), StdoutEmpty: out.Len() == 0, Stderr: errs.String()}
	if status {
		e.Status = []byte{}
		records, _ := io.ReadAll(read)
		e.Status = append(e.Status, records...)
	}
	return e, cmd
}

func TestEachFailureOfTheRealBwrapIsClassified(t *testing.T) {
	dir := newDirectory(t)
	os.WriteFile(dir+"/file", nil, 0o644)
	os.WriteFile(dir+"/plain", []byte("#!/bin/sh\n"), 0o644)
	os.Mkdir(dir+"/dir", 0o755)
	base := []string{"--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--die-with-parent"}
	with := func(args ...string) []string { return append(append([]string{}, base...), args...) }
	for _, c := range []struct {
		name string
		args []string
		want Verdict
		// rule is what the fallback without a status channel says, where it differs: it cannot do
		// better.
		rule Verdict
	}{
		{"unknown option", with("--no-such-option", "true"), VerdictUnavailable, 0},
		{"unreadable args", with("--args", "77", "true"), VerdictUnavailable, 0},
		{"no command", with(), VerdictUnavailable, VerdictRan},
		{"too many arguments", with(strings.Split(strings.Repeat("--dir /tmp/x ", 4600), " ")...), VerdictUnavailable, 0},
		{"source missing", with("--ro-bind", dir+"/gone", "/tmp/x", "true"), VerdictSetup, 0},
		{"source below a file", with("--ro-bind", dir+"/file/x", "/tmp/x", "true"), VerdictSetup, 0},
		{"directory in a read-only parent", with("--dir", "/usr/nothing-here", "true"), VerdictSetup, 0},
		{"file in a read-only parent", with("--ro-bind", dir+"/file", "/usr/nothing-here", "true"), VerdictSetup, 0},
		{"directory on a file", with("--ro-bind", dir+"/dir", dir+"/file", "true"), VerdictSetup, 0},
		{"file on a directory", with("--ro-bind", dir+"/file", dir+"/dir", "true"), VerdictSetup, 0},
		{"working directory", with("--chdir", "/no/such/dir", "true"), VerdictSetup, 0},
		{"command missing", with("no-such-command"), VerdictNoCommand, 0},
		{"command not executable", with(dir + "/plain"), VerdictNoCommand, 0},
		{"success", with("true"), VerdictRan, 0},
		{"exit 7", with("sh", "-c", "exit 7"), VerdictRan, 0},
		{"killed by TERM", with("sh", "-c", "kill -TERM $$"), VerdictRan, 0},
		{"killed by KILL", with("sh", "-c", "kill -KILL $$"), VerdictRan, 0},
		{"a command that says bwrap:", with("sh", "-c", "echo 'bwrap: fake' >&2; exit 1"), VerdictRan, VerdictUnavailable},
		{"a command that says bwrap: after output", with("sh", "-c", "echo out; echo 'bwrap: fake' >&2; exit 1"), VerdictRan, 0},
		{"a nested bwrap", with("bwrap", "--unshare-user", "--disable-userns", "--ro-bind", dir+"/gone", "/tmp/x", "true"), VerdictRan, VerdictSetup},
	} {
		e, _ := executeBwrap(t, true, c.args...)
		if got := Classify(e); got != c.want {
			t.Errorf("%s: %d, want %d: %+v %s", c.name, got, c.want, e, e.Status)
		}
		e, _ = executeBwrap(t, false, c.args...)
		want := c.want
		if c.rule != 0 {
			want = c.rule
		}
		if got := Classify(e); got != want {
			t.Errorf("%s, without a status channel: %d, want %d: %+v", c.name, got, want, e)
		}
	}
}

func TestABwrapThatWeKilledIsNoFailureOfTheHost(t *testing.T) {
	e := Evidence{ExitStatus: 137, Status: []byte(`{ "child-pid": 5 }`), Killed: true}
	if Classify(e) != VerdictKilled {
		t.Error("killed by us, and not recognised")
	}
	e.Killed = false
	if Classify(e) != VerdictSetup {
		t.Errorf("killed by somebody else: %d", Classify(e))
	}
}

func TestWhatBwrapSaysHasAReason(t *testing.T) {
	for _, c := range []struct {
		stderr string
		host   facts
		want   Reason
	}{
		{"bwrap: Unknown option --x", facts{}, ReasonBwrapTooOld},
		{"bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user namespaces.", facts{usernsClone: "0"}, ReasonUsernsDisabled},
		{"bwrap: No permissions to create new namespace, likely because …", facts{seccomp: "2"}, ReasonSeccompBlocked},
		{"bwrap: No permissions to creating new namespace, likely because …", facts{apparmorRestricts: "1"}, ReasonAppArmorRestricted},
		{"bwrap: No permissions to creating new namespace, likely because …", facts{}, ReasonUsernsDisabled},
		{"bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)", facts{maxUserNamespaces: "100"}, ReasonUsernsLimit},
		{"bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)", facts{maxUserNamespaces: "0"}, ReasonUsernsDisabled},
		{"bwrap: Creating new namespace failed, likely because the kernel does not support user namespaces.  bwrap must be installed setuid on such systems.", facts{}, ReasonUsernsDisabled},
		{"bwrap: Creating new namespace failed: Resource temporarily unavailable", facts{}, ReasonResources},
		{"bwrap: setting up uid map: Permission denied", facts{}, ReasonAppArmorRestricted},
		{"bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", facts{}, ReasonAppArmorRestricted},
		{"bwrap: Can't mount proc on /newroot/proc: Operation not permitted", facts{}, ReasonProcMasked},
		{"bwrap: something new", facts{}, ReasonUnknown},
		{"", facts{}, ReasonUnknown},
	} {
		if got := unavailable(c.stderr, c.host); got.Reason != c.want || got.Hint == "" {
			t.Errorf("%q: %s, want %s", c.stderr, got.Reason, c.want)
		}
	}
}

func TestEveryReasonHasAHint(t *testing.T) {
	for _, reason := range []Reason{ReasonBwrapMissing, ReasonBwrapTooOld, ReasonBwrapUntrusted, ReasonUsernsDisabled, ReasonUsernsLimit,
		ReasonAppArmorRestricted, ReasonSeccompBlocked, ReasonProcMasked, ReasonResources, ReasonUnknown} {
		if hints[reason] == "" {
			t.Errorf("%s has none", reason)
		}
	}
}

func TestAHostThatRefusesIsNamedAndNothingRuns(t *testing.T) {
	// In a namespace of their own, the limits can be set without changing the machine's.
	inNamespace := func(set string) []string {
		return []string{"unshare", "-Urm", "sh", "-c", set + ` && me=$1 && shift && exec "$me" "$@"`, "sh"}
	}
	for _, c := range []struct {
		name, set string
		network   profile.Network
		want      []Reason
	}{
		{"no user namespaces", "echo 0 > /proc/sys/user/max_user_namespaces", profile.NetworkEnabled, []Reason{ReasonUsernsDisabled}},
		{"no more network namespaces", "echo 0 > /proc/sys/user/max_net_namespaces", profile.NetworkDisabled, []Reason{ReasonUsernsLimit}},
		{"no more mount namespaces", "echo 0 > /proc/sys/user/max_mnt_namespaces", profile.NetworkEnabled, []Reason{ReasonUsernsLimit}},
		{"no more process namespaces", "echo 0 > /proc/sys/user/max_pid_namespaces", profile.NetworkEnabled, []Reason{ReasonUsernsLimit}},
		{"/proc partly hidden", "mount --bind /dev/null /proc/version", profile.NetworkEnabled, []Reason{ReasonProcMasked}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			h.profile.Network = c.network
			self := h.copyOfTest()
			h.profile.Workspace = h.mkdir(h.profile.Home + "/other")
			h.profile.WorkingDirectory, h.profile.Grants[1].Path = h.profile.Workspace, h.profile.Workspace
			prepare := inNamespace(c.set)
			cmd := h.launch("/usr/bin/touch", h.profile.Workspace+"/it-ran")
			cmd.Args = append(append(append([]string{}, prepare...), self), cmd.Args[1:]...)
			path, err := exec.LookPath("unshare")
			if err != nil {
				t.Skip(err)
			}
			cmd.Path = path
			out, err := cmd.CombinedOutput()
			if _, exists := os.Stat(h.profile.Workspace + "/it-ran"); err == nil || exists == nil {
				t.Errorf("the command was run: %s", out)
			}
			if !strings.Contains(string(out), "("+string(c.want[0])+")") {
				t.Errorf("want %v: %s", c.want, out)
			}
		})
	}
}

func init() {
	// A launcher below a seccomp filter that refuses user namespaces, as Docker's does.
	helpers["launch-filtered"] = func() {
		runtime.LockOSThread()
		refuseNamespaces()
		launch()
	}
}

func refuseNamespaces() {
	program, err := seccomp.Assemble(runtime.GOARCH, []seccomp.Rule{
		{Call: "clone", AMD64: 56, ARM64: 220, Errno: unix.EPERM,
			When: []seccomp.Condition{{Argument: 0, Mask: unix.CLONE_NEWUSER | unix.CLONE_NEWPID, NotIn: []uint32{0}}}},
		{Call: "clone3", AMD64: 435, ARM64: 435, Errno: unix.ENOSYS},
		{Call: "unshare", AMD64: 272, ARM64: 97, Errno: unix.EPERM},
	})
	exitOn(err)
	filters := make([]unix.SockFilter, len(program)/8)
	for i := range filters {
		filters[i] = *(*unix.SockFilter)(unsafe.Pointer(&program[8*i]))
	}
	fprog := unix.SockFprog{Len: uint16(len(filters)), Filter: &filters[0]}
	exitOn(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	const setModeFilter, allThreads = 1, 1
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, setModeFilter, allThreads, uintptr(unsafe.Pointer(&fprog))); errno != 0 {
		exitOn(errno)
	}
}

func TestAContainersFilterIsNamed(t *testing.T) {
	h := newHost(t)
	cmd := h.launch("/usr/bin/touch", h.profile.Workspace+"/it-ran")
	cmd.Env = append(os.Environ(), "CLAI_SANDBOX_TEST_HELPER=launch-filtered")
	out, err := cmd.CombinedOutput()
	if _, exists := os.Stat(h.profile.Workspace + "/it-ran"); err == nil || exists == nil {
		t.Errorf("the command was run: %s", out)
	}
	if !strings.Contains(string(out), "("+string(ReasonSeccompBlocked)+")") {
		t.Errorf("%s", out)
	}
}

func TestABwrapIsFoundOrNamed(t *testing.T) {
	dir := newDirectory(t)
	reasonOf := func(err error) Reason {
		var unavailable *UnavailableError
		if !errors.As(err, &unavailable) {
			return ""
		}
		return unavailable.Reason
	}
	script := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		os.WriteFile(path, []byte(text), 0o755)
		os.Chmod(path, mode)
		return path
	}
	if _, err := FindBwrap(dir+"/none", ""); reasonOf(err) != ReasonBwrapMissing {
		t.Error(err)
	}
	if _, err := FindBwrap(script("world", "#!/bin/sh\n", 0o757), ""); reasonOf(err) != ReasonBwrapUntrusted {
		t.Error(err)
	}
	old := script("old", "#!/bin/sh\necho '    --args FD   Parse'\n", 0o755)
	if _, err := FindBwrap(old, ""); reasonOf(err) != ReasonBwrapTooOld {
		t.Error(err)
	}
	// One that a command could have written, or a link to it, is not even asked for its help.
	asked := filepath.Join(dir, "asked")
	planted := script("workspace/bwrap", "#!/bin/sh\ntouch "+asked+"\n", 0o755)
	link := filepath.Join(dir, "link")
	if err := errors.Join(os.Symlink("workspace/bwrap", link), addWritten(filepath.Join(dir, "state", profile.WrittenName), []string{filepath.Dir(planted)})); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{planted, link} {
		if _, err := FindBwrap(path, filepath.Join(dir, "state")); reasonOf(err) != ReasonBwrapUntrusted || !strings.Contains(err.Error(), "a command in a sandbox could write") {
			t.Error(err)
		}
	}
	if _, err := os.Stat(asked); err == nil {
		t.Error("it was executed")
	}
	if _, err := FindBwrap(script("broken", "#!/bin/sh\nexit 3\n", 0o755), ""); reasonOf(err) != ReasonUnknown {
		t.Error(err)
	}
}

// A bwrap that a command left in a directory of PATH is not executed, though it is the caller's own
// file.
func TestProgramsThatRunOutsideAreNotLookedForInPATH(t *testing.T) {
	dir := newDirectory(t)
	for _, name := range []string{"bwrap", "xdg-dbus-proxy"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\ntouch "+dir+"/executed\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	programs := programDirectories
	t.Cleanup(func() { programDirectories = programs })
	programDirectories = []string{newDirectory(t), dir + "/none"}
	if b, err := FindBwrap("", ""); err == nil || !strings.Contains(err.Error(), "CLAI_SANDBOX_BWRAP") {
		t.Errorf("found %+v, %v", b, err)
	}
	if _, err := os.Stat(dir + "/executed"); err == nil {
		t.Error("it was executed")
	}
}

func TestTheOptionsOfABwrapAreLearnedOnceAndAgainWhenItChanges(t *testing.T) {
	dir, cache := newDirectory(t), newDirectory(t)
	calls := dir + "/calls"
	write := func(options string) string {
		path := dir + "/bwrap"
		text := "#!/bin/sh\necho >> " + calls + "\ncat <<'EOF'\n"
		for option := range strings.FieldsSeq(strings.Join(requiredOptions, " ") + options) {
			text += "    " + option + " X   Words\n"
		}
		os.WriteFile(path+".new", []byte(text+"EOF\n"), 0o755)
		os.Rename(path+".new", path)
		return path
	}
	count := func() int {
		text, _ := os.ReadFile(calls)
		return len(text)
	}
	path := write("")
	for range 3 {
		if b, err := FindBwrap(path, cache); err != nil || b.Has("--bind-fd") {
			t.Fatalf("%+v %v", b, err)
		}
	}
	if count() != 1 {
		t.Errorf("asked %d times", count())
	}
	write(" --bind-fd")
	if b, err := FindBwrap(path, cache); err != nil || !b.Has("--bind-fd") || count() != 2 {
		t.Errorf("after a change: %+v, %v, asked %s times", b, err, strconv.Itoa(count()))
	}
	os.Chmod(cache+"/"+memoName, 0o666) // somebody else may have written it
	if _, err := FindBwrap(path, cache); err != nil || count() != 3 {
		t.Errorf("%v, asked %d times", err, count())
	}
	if _, err := FindBwrap(path, dir+"/no/such/cache"); err != nil || count() != 4 {
		t.Errorf("%v, asked %d times", err, count())
	}
}

func TestABwrapThatTheCommandCouldReplaceIsNotUsed(t *testing.T) {
	h := newHost(t)
	text, err := os.ReadFile(h.launcher.Bwrap.Path)
	if err != nil {
		t.Fatal(err)
	}
	h.launcher.Bwrap.Path = h.profile.Workspace + "/bwrap"
	os.WriteFile(h.launcher.Bwrap.Path, text, 0o755)
	var setup *SetupError
	if r := h.run("true"); !errors.As(r.Failure, &setup) {
		t.Errorf("%v %+v", r.Failure, r.Result)
	}
}

func TestAnOldBwrapBindsThroughProcAndLeavesNoDescriptor(t *testing.T) {
	h := newHost(t)
	h.launcher.Bwrap.Options = withoutOption(withoutOption(h.launcher.Bwrap.Options, optionBindFD), optionDisableUserns)
	h.write(h.profile.Workspace+"/f", "text")
	if out := h.sh("cat f; for fd in /proc/self/fd/*; do echo ${fd##*/}; done"); out != "text0\n1\n2\n3\n" {
		t.Errorf("%q", out)
	}
}

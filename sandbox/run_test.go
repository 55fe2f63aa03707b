package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/process"
	"github.com/clairun/clai-sandbox/sandbox/process/processtest"
)

func TestAResultTellsHowTheCommandEnded(t *testing.T) {
	h := newHost(t)
	for _, c := range []struct {
		script  string
		outcome Outcome
		code    int
		signal  syscall.Signal
	}{
		{"true", Exited, 0, 0},
		{"exit 7", Exited, 7, 0},
		{"exit 125", Exited, 125, 0},
		{"kill -TERM $$", Signalled, 143, syscall.SIGTERM},
		{"kill -KILL $$", Signalled, 137, syscall.SIGKILL},
		{"kill -SEGV $$", Signalled, 139, syscall.SIGSEGV},
		{"echo 'bwrap: fake' >&2; exit 1", Exited, 1, 0},
		{"echo 'bwrap: execvp sh: No such file or directory' >&2; exit 1", Exited, 1, 0},
		{"bwrap --ro-bind / / true", Exited, 1, 0}, // a nested bwrap prints the same messages as ours
	} {
		r := h.run("/bin/sh", "-c", c.script)
		if r.Failure != nil || r.Outcome != c.outcome || r.ExitCode != c.code || r.Signal != c.signal {
			t.Errorf("%s: %+v, %v", c.script, r.Result, r.Failure)
		}
	}
}

func TestStreamsAreTheCallersOwn(t *testing.T) {
	h := newHost(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	want := int64(1 << 30)
	counted := make(chan int64)
	go func() {
		n, _ := io.Copy(io.Discard, read)
		counted <- n
	}()
	result, err := h.launcher.Run(context.Background(), h.build(),
		[]string{"/bin/sh", "-c", "head -c 1073741824 /dev/zero | cat"}, Stdio{Out: write})
	write.Close()
	if n := <-counted; n != want || err != nil || result.ExitCode != 0 {
		t.Errorf("%d of %d bytes came through, %v", n, want, err)
	}
}

func TestEveryByteComesThroughUnchanged(t *testing.T) {
	h := newHost(t)
	data := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{1}).Read(data)
	var out, errs bytes.Buffer
	_, err := h.launcher.Run(context.Background(), h.build(), []string{"/bin/sh", "-c", "tee /dev/stderr"},
		Stdio{In: bytes.NewReader(data), Out: &out, Err: &errs})
	if err != nil || !bytes.Equal(out.Bytes(), data) || !bytes.Equal(errs.Bytes(), data) {
		t.Errorf("stdout %d, stderr %d of %d bytes, %v", out.Len(), errs.Len(), len(data), err)
	}
}

func TestACommandThatCannotBeStartedIsACommandError(t *testing.T) {
	h := newHost(t)
	work := h.profile.Workspace
	h.write(work+"/plain", "#!/bin/sh\n")
	h.write(work+"/no-interpreter", "#!/nowhere/sh\n")
	h.write(work+"/script", "echo \"script $1\"\n")
	for _, name := range []string{"no-interpreter", "script"} {
		os.Chmod(work+"/"+name, 0o755)
	}
	for _, c := range []struct {
		name  string
		found bool
	}{
		{"no-such-command", false}, {"/no/such/command", false}, {"./no-such-command", false}, {"", false},
		{work + "/plain", true}, {"./plain", true}, {"/", true}, {work, true},
		{work + "/no-interpreter", true},
	} {
		for _, terminal := range []bool{false, true} {
			h.launcher.Terminal = terminal
			r := h.run(c.name)
			var failure *CommandError
			if !errors.As(r.Failure, &failure) || failure.Found != c.found {
				t.Errorf("terminal %v: %q: %v (%+v)", terminal, c.name, r.Failure, r.Result)
			}
		}
	}
	for _, terminal := range []bool{false, true} {
		h.launcher.Terminal = terminal
		if r := h.run(work+"/script", "runs"); r.Out != "script runs\n" {
			t.Errorf("terminal %v: a script without a first line: %q %v", terminal, r.Out, r.Failure)
		}
	}
}

func TestACommandThatOnlyTheHostHasIsExplained(t *testing.T) {
	h := newHost(t)
	h.profile.Grants = h.profile.Grants[1:]
	tool := h.write(h.profile.Home+"/tools/tool", "#!/bin/sh\n")
	os.Chmod(tool, 0o755)
	h.profile.Environment[1].Value += ":" + h.profile.Home + "/tools"
	for _, name := range []string{"tool", tool} {
		var failure *CommandError
		if r := h.run(name); !errors.As(r.Failure, &failure) || !strings.Contains(failure.Hint, "--grant "+h.profile.Home+"/tools") {
			t.Errorf("%s: %+v", name, r.Failure)
		}
	}
}

func TestATimeoutEndsTheWholeTree(t *testing.T) {
	h := newHost(t)
	h.launcher.Grace = 200 * time.Millisecond
	for name, script := range map[string]string{
		"obedient":        "sleep 1000",
		"deaf":            "trap '' TERM; sleep 1000 & wait; sleep 1000",
		"own session":     "setsid sh -c 'trap \"\" TERM; sleep 1000' & setsid sleep 1000 & sleep 1000",
		"double fork":     "(sh -c 'trap \"\" TERM HUP; sleep 1000 &' &) ; sleep 1000",
		"stopped":         "kill -STOP $$",
		"holds the pipes": "sleep 1000 & sleep 1000 & exec sleep 1000",
	} {
		marker := fmt.Sprintf("marker-%d", rand.Uint32())
		h.profile.Limits.Timeout = 300 * time.Millisecond
		began := time.Now()
		r := h.run("/bin/sh", "-c", script+"\n: "+marker)
		if texts := r.limitNotices(); len(texts) != 1 || !strings.HasPrefix(texts[0], "limit reached: timeout=300ms: ") {
			t.Errorf("%s: %q", name, texts)
		}
		if r.Failure != nil || r.Outcome != TimedOut {
			t.Errorf("%s: %+v %v", name, r.Result, r.Failure)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
		if left := processesNaming(marker); left != nil {
			t.Errorf("%s: left behind: %v", name, left)
		}
	}
}

func TestEveryProcessIsAskedToEndBeforeItIsKilled(t *testing.T) {
	h := newHost(t)
	h.profile.Limits.Timeout = 2 * time.Second
	r := h.run("/bin/sh", "-c", `say() { trap "echo $1 ends; exit 0" TERM; while :; do sleep 0.02; done; }
(say child) & (setsid sh -c 'trap "echo stranger ends; exit 0" TERM; while :; do sleep 0.02; done') & trap 'wait; echo parent ends; exit 0' TERM; while :; do sleep 0.02; done`)
	for _, who := range []string{"child", "stranger", "parent"} {
		if !strings.Contains(r.Out, who+" ends\n") {
			t.Errorf("the %s was not asked: %q", who, r.Out)
		}
	}
	if r.Outcome != TimedOut {
		t.Errorf("%+v", r.Result)
	}
}

func processesNaming(word string) []string { return processtest.Naming(word) }

func TestCancellingTheContextEndsTheCommand(t *testing.T) {
	h := newHost(t)
	h.launcher.Grace = 100 * time.Millisecond
	delays := []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 50 * time.Millisecond}
	for i := range 25 { // while it is mounted
		delays = append(delays, time.Duration(6+i)*time.Millisecond)
	}
	for _, delay := range delays {
		ctx, cancel := context.WithTimeout(context.Background(), delay)
		marker := fmt.Sprintf("marker-%d", rand.Uint32())
		result, err := h.launcher.Run(ctx, h.build(), []string{"/bin/sh", "-c", "trap '' TERM; sleep 1000; : " + marker}, Stdio{})
		cancel()
		if err != nil || result.Outcome != Cancelled {
			t.Errorf("after %v: %+v, %v", delay, result, err)
		}
		if left := processesNaming(marker); left != nil {
			t.Errorf("left behind: %v", left)
		}
	}
}

func TestBackgroundProcessesEndWithTheCommand(t *testing.T) {
	h := newHost(t)
	marker := fmt.Sprintf("marker-%d", rand.Uint32())
	began := time.Now()
	h.sh("setsid sh -c 'sleep 1000; : " + marker + "' >/dev/null 2>&1 & sh -c 'sleep 1000; : " + marker + "' & sleep 0.1; echo done")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the background process held the run up for %v", took)
	}
	waitUntil(t, "the background processes are gone", func() bool { return processesNaming(marker) == nil })
}

func waitUntil(t testing.TB, what string, done func() bool) {
	t.Helper()
	processtest.Until(t, what, done)
}

// launch is a launcher in a process of its own: it gets a profile as JSON, and a command.
func init() { helpers["launch"] = launch }

func launch() {
	var p profile.Profile
	err := json.Unmarshal([]byte(os.Args[1]), &p)
	exitOn(err)
	plan, err := Build(p, Host{})
	exitOn(err)
	bwrap, err := FindBwrap("", "")
	exitOn(err)
	terminal := ControlsTerminal(os.Stdin)
	relay := []os.Signal{syscall.SIGTERM, syscall.SIGUSR1}
	if !terminal {
		relay = append(relay, syscall.SIGINT, syscall.SIGHUP)
	}
	launcher := Launcher{Bwrap: bwrap, State: os.Getenv("CLAI_SANDBOX_TEST_STATE"), Terminal: terminal, Relay: relay}
	if os.Getenv("CLAI_SANDBOX_TEST_GUARD") == "plain" {
		launcher.guard = process.GuardPlain
	}
	result, err := launcher.Run(context.Background(), plan, os.Args[2:],
		Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	exitOn(err)
	os.Exit(result.ExitCode)
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
}

func (h *host) launch(command ...string) *exec.Cmd {
	h.t.Helper()
	text, err := json.Marshal(h.profile)
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := helperCommand(h.t, "launch", append([]string{string(text)}, command...)...)
	cmd.Env = append(cmd.Env, "CLAI_SANDBOX_TEST_STATE="+h.launcher.State)
	return cmd
}

func TestNothingIsLeftWhenTheLauncherIsKilled(t *testing.T) {
	h := newHost(t)
	marker := fmt.Sprintf("marker-%d", rand.Uint32())
	rounds := 150
	if testing.Short() {
		rounds = 20
	}
	started := h.profile.Workspace + "/started"
	// As long as a start takes here and now, and as long again.
	began := time.Now()
	h.sh("true")
	delays := 2 * time.Since(began)
	for i := range rounds {
		cmd := h.launch("/bin/sh", "-c", "echo >> "+started+"; trap '' TERM HUP; setsid sleep 1000 & sleep 1000; : "+marker)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rand.N(delays)) // at any point of the set-up
		cmd.Process.Kill()
		cmd.Wait()
		if i%10 == 9 {
			waitUntil(t, "everything is gone", func() bool { return processesNaming(marker) == nil })
		}
	}
	// Some were killed before their command began, and some after, or the delays are wrong.
	if text, _ := os.ReadFile(started); len(text) == 0 || len(text) == rounds {
		t.Errorf("%d of %d commands had begun", len(text), rounds)
	}
}

func TestSignalsReachTheCommand(t *testing.T) {
	h := newHost(t)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGINT, syscall.SIGHUP} {
		signal.Notify(make(chan os.Signal, 1), s) // not ignored, even where the tests run in the background
		defer signal.Reset(s)
		cmd := h.launch("/bin/sh", "-c", fmt.Sprintf("trap 'echo got %d; exit 3' %d; echo ready; while :; do sleep 0.01; done", s, s))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Start()
		reader := bufio.NewReader(out)
		if line, _ := reader.ReadString('\n'); line != "ready\n" {
			t.Fatalf("%q", line)
		}
		cmd.Process.Signal(s)
		rest, _ := io.ReadAll(reader)
		cmd.Wait()
		if string(rest) != fmt.Sprintf("got %d\n", s) || cmd.ProcessState.ExitCode() != 3 {
			t.Errorf("%v: %q, %v", s, rest, cmd.ProcessState)
		}
	}
}

func TestASignalThatEndsTheCommandIsItsExitStatus(t *testing.T) {
	h := newHost(t)
	cmd := h.launch("/bin/sh", "-c", "echo ready; exec sleep 1000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Start()
	bufio.NewReader(out).ReadString('\n')
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 143 {
		t.Errorf("exit status %d", code)
	}
}

func TestACallerWithCapabilitiesCanSandbox(t *testing.T) {
	needRoot(t)
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("no setpriv (util-linux)")
	}
	h := newHost(t)
	os.Chmod(strings.TrimSuffix(h.profile.Home, "/home"), 0o755)
	os.Chown(h.profile.Workspace, 65534, 65534)
	os.Chown(h.launcher.State, 65534, 65534)
	cmd := h.launch("/bin/grep", "CapEff", "/proc/self/status")
	cmd.Args = append([]string{setpriv, "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps", "+net_raw,+sys_admin",
		"--ambient-caps", "+net_raw,+sys_admin", h.copyOfTest()}, cmd.Args[1:]...)
	cmd.Path = setpriv
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "CapEff:\t0000000000000000\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// copyOfTest is the test binary at a place that every user can read.
func (h *host) copyOfTest() string {
	h.t.Helper()
	text, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		h.t.Fatal(err)
	}
	path := h.profile.Workspace + "/test"
	if err := os.WriteFile(path, text, 0o755); err != nil {
		h.t.Fatal(err)
	}
	return path
}

func TestManyGrantsAreRefusedOrMounted(t *testing.T) {
	h := newHost(t)
	for i := range 200 {
		h.grant(h.mkdir(fmt.Sprintf("%s/many/%d", h.profile.Home, i)), profile.ReadWrite)
	}
	if out := h.sh("for i in 0 99 199; do touch ~/many/$i/f || exit 1; done; touch ~/many/f 2>/dev/null || echo refused"); out != "refused\n" {
		t.Error(out)
	}
}

func TestRunsAtTheSameTimeDoNotDisturbEachOther(t *testing.T) {
	h := newHost(t)
	plan := h.build()
	failures := make(chan error, 16)
	for i := range 16 {
		go func() {
			var out bytes.Buffer
			_, err := h.launcher.Run(context.Background(), plan, []string{"/bin/sh", "-c", "echo $0 > /tmp/f; sleep 0.05; cat /tmp/f", strconv.Itoa(i)},
				Stdio{Out: &out})
			if err == nil && strings.TrimSpace(out.String()) != strconv.Itoa(i) {
				err = fmt.Errorf("run %d saw %q", i, out.String())
			}
			failures <- err
		}()
	}
	for range 16 {
		if err := <-failures; err != nil {
			t.Error(err)
		}
	}
}

func TestNoDescriptorOrThreadStays(t *testing.T) {
	h := newHost(t)
	plan := h.build()
	count := func() (int, int) {
		fds, _ := os.ReadDir("/proc/self/fd")
		tasks, _ := os.ReadDir("/proc/self/task")
		return len(fds), len(tasks)
	}
	h.runPlan(plan, "/bin/true")
	fds, tasks := count()
	for range 50 {
		h.runPlan(plan, "/bin/true")
	}
	moreFds, moreTasks := count()
	if moreFds > fds+1 || moreTasks > tasks+8 {
		t.Errorf("descriptors %d, then %d; threads %d, then %d", fds, moreFds, tasks, moreTasks)
	}
}

// Somebody who ends the sandbox from outside, an administrator or the kernel for want of memory, is
// not the command's mistake.
func TestASandboxThatIsKilledFromOutsideSaysSo(t *testing.T) {
	h := newHost(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := h.launcher.Run(context.Background(), h.build(), []string{"/bin/sh", "-c", "echo; exec sleep 1000"}, Stdio{Out: write})
		write.Close()
		ended <- err
	}()
	read.Read(make([]byte, 1))
	for _, pid := range process.Descendants(os.Getpid()) {
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); string(name) == "bwrap\n" {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	var setup *SetupError
	if err := <-ended; !errors.As(err, &setup) || !strings.Contains(setup.Why, "bwrap ended") {
		t.Errorf("%v", err)
	}
}

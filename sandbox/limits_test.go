package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/limits"
	"github.com/clairun/clai-sandbox/sandbox/process"
)

// limit sets a limit as a configuration would.
func (h *host) limit(which profile.Limit, amount int64) { h.profile.Limits.Amounts[which] = amount }

// withoutCgroups makes this a host whose cgroups are not the caller's.
func withoutCgroups(t *testing.T) {
	real := hostCgroups
	t.Cleanup(func() { hostCgroups = real })
	hostCgroups = limits.Tree{}
}

// limitNotices are the texts of the notices that name a limit.
func (r ran) limitNotices() []string {
	var texts []string
	for _, n := range r.Notices {
		if n.Kind == NoticeLimitReached {
			texts = append(texts, n.Text)
		}
	}
	return texts
}

// wantLimitNotice expects one notice, about one limit.
func (r ran) wantLimitNotice(t *testing.T, name string) {
	t.Helper()
	if texts := r.limitNotices(); len(texts) != 1 || !strings.HasPrefix(texts[0], "limit reached: "+name+"=") {
		t.Errorf("%q instead of one notice about %s", texts, name)
	}
}

func TestALargeFileEndsInsideItsLimit(t *testing.T) {
	h := newHost(t)
	h.limit(profile.LimitFileSize, 1<<20)
	r := h.run("/bin/sh", "-c", "head -c 3145728 /dev/zero >large")
	r.wantLimitNotice(t, "fileSize")
	info, err := os.Stat(h.profile.Workspace + "/large")
	if r.Signal != syscall.SIGXFSZ || r.ExitCode != 128+int(syscall.SIGXFSZ) || err != nil || info.Size() != 1<<20 {
		t.Errorf("%+v, %v, %v", r.Result, info, err)
	}
}

func TestComputingTooLongEndsInsideItsLimit(t *testing.T) {
	h := newHost(t)
	h.limit(profile.LimitCPU, 1)
	r := h.run("/bin/sh", "-c", "while :; do :; done")
	r.wantLimitNotice(t, "cpuSeconds")
	if r.Signal != syscall.SIGXCPU || r.Outcome != Signalled {
		t.Errorf("%+v, %v", r.Result, r.Failure)
	}
	// Deaf to the signal, it is killed.
	r = h.run("/bin/sh", "-c", "trap '' XCPU; while :; do :; done")
	if r.Signal != syscall.SIGKILL || r.Outcome != Signalled {
		t.Errorf("%+v, %v", r.Result, r.Failure)
	}
}

func TestOpenFilesEndInsideTheirLimit(t *testing.T) {
	h := newHost(t)
	h.limit(profile.LimitOpenFiles, 200)
	r := h.run("/bin/bash", "-c", `for i in {1..400}; do exec {fd}</dev/null || exit 9; echo $fd; done 2>&1`)
	opened := lines(r.Out)
	if !strings.Contains(r.Out, "\n199\n") || strings.Contains(r.Out, "\n200\n") || !strings.Contains(opened[len(opened)-1], "Too many open files") {
		t.Errorf("%+v %v %s", r.Result, r.Failure, opened[len(opened)-1])
	}
}

func TestTooFewOpenFilesForTheSandboxIsSaid(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	h.limit(profile.LimitOpenFiles, 8)
	var setup *SetupError
	if r := h.run("/bin/true"); !errors.As(r.Failure, &setup) || !strings.Contains(setup.Why, "openFiles=8 is too low") {
		t.Fatalf("%v", r.Failure)
	}
	// What the hint says is enough.
	_, text, _ := strings.Cut(setup.Hint, "openFiles=")
	text, _, _ = strings.Cut(text, ",")
	enough, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	h.limit(profile.LimitOpenFiles, enough)
	if r := h.run("/bin/true"); r.Failure != nil || r.ExitCode != 0 {
		t.Errorf("with %d: %+v, %v", enough, r.Result, r.Failure)
	}
}

// The hog is bounded in itself: without the limit it would take 150 MB, and end well.
func TestAMemoryHogEndsInsideItsLimit(t *testing.T) {
	withoutCgroups(t)
	h := newHost(t)
	h.limit(profile.LimitMemory, 64<<20)
	hog := "head -c 150000000 /dev/zero | tail >/dev/null"
	r := h.run("/bin/sh", "-c", hog)
	if r.Failure != nil || r.ExitCode == 0 {
		t.Errorf("%+v %v %s", r.Result, r.Failure, r.Err)
	}
	h.limit(profile.LimitMemory, 0)
	if r := h.run("/bin/sh", "-c", hog); r.Failure != nil || r.ExitCode != 0 {
		t.Errorf("without a limit: %+v %v %s", r.Result, r.Failure, r.Err)
	}
}

// forkBomb starts at most 500 processes, and says of each that it runs. They wait for their input,
// which ends with it.
const forkBomb = `mkfifo f; (i=0; while [ $i -lt 500 ]; do { echo started; read x <&3; } & i=$((i+1)); done) 3<>f; wait; echo after`

func TestAForkBombEndsInsideItsLimit(t *testing.T) {
	withoutCgroups(t)
	h := newHost(t)
	h.limit(profile.LimitProcesses, 50)
	r := h.run("/bin/sh", "-c", forkBomb)
	var setup *SetupError
	if os.Getuid() == 0 && errors.As(r.Failure, &setup) {
		if r.Out != "" || !strings.Contains(setup.Why, "the limit processes=50 cannot be held on this host") || setup.Hint == "" {
			t.Errorf("%q %+v", r.Out, setup)
		}
		t.Skip("without a cgroup nothing holds root's processes; that they are refused then is tested")
	}
	most := 50
	if os.Getuid() == 0 {
		most += limits.ReservedPIDs
	}
	if n := strings.Count(r.Out, "started"); r.Failure != nil || n < 20 || n > most {
		t.Errorf("%d were started: %+v %v %s", n, r.Result, r.Failure, r.Err)
	}
}

// crash leaves a core dump where nothing keeps it from that, and the host's core_pattern writes one
// at all.
func TestACrashInsideDumpsNoCore(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &before); err != nil {
		t.Fatal(err)
	}
	if before.Max <= 1 {
		t.Skip("this process may not dump cores, so that nothing would show")
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: before.Max, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_CORE, &before) })
	h := newHost(t)
	for _, terminal := range []bool{false, true} {
		h.launcher.Terminal = terminal
		r := h.run("/bin/sh", "-c", "grep 'core file' /proc/self/limits; kill -SEGV $$")
		if fields := strings.Fields(r.Out); r.Signal != syscall.SIGSEGV || len(fields) < 6 || fields[4] != "1" || fields[5] != "1" {
			t.Errorf("%+v %v %s", r.Result, r.Failure, r.Out)
		}
		if found, _ := filepath.Glob(h.profile.Workspace + "/*"); found != nil {
			t.Errorf("it left %q", found)
		}
	}
}

// Where the hard limit is 0, which hands core dumps to a handler all the same, only who may raise
// it can have 1.
func TestAHardLimitOfZeroIsToldOrRaised(t *testing.T) {
	out, err := helperCommand(t, "no-core").CombinedOutput()
	want := "0 0 no file, but"
	if held, _ := process.Permitted(); held&(1<<unix.CAP_SYS_RESOURCE) != 0 {
		want = "1 1 none"
	}
	if err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("%v, %s", err, out)
	}
}

func init() {
	helpers["no-core"] = func() {
		unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
		bwrap, err := FindBwrap("", "")
		if err == nil {
			plan := Plan{WorkingDirectory: "/", Steps: []Step{
				{Kind: Bind, Path: "/", Source: "/", Access: profile.ReadOnly}, {Kind: Proc, Path: "/proc"}, {Kind: Dev, Path: "/dev"}}}
			plan.Environment = []profile.Variable{{Name: "PATH", Value: "/usr/bin:/bin"}}
			_, err = Launcher{Bwrap: bwrap}.Run(context.Background(), plan,
				[]string{"/bin/sh", "-c", `set -- $(grep "core file" /proc/self/limits); printf "$5 $6 "`}, Stdio{Out: os.Stdout, Err: os.Stdout})
		}
		fmt.Println(strings.TrimPrefix(limits.DescribeCore(), "core dumps: "), err)
	}
}

// A limit that came later would leave out what bwrap had started by then.
func TestBwrapStartsNothingBeforeItsLimitsStand(t *testing.T) {
	h := newHost(t)
	plan := h.build()
	h.launcher.guard = process.ChooseGuard()
	a, err := h.launcher.prepare(&plan, []string{"/bin/true"})
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	a.attr.Pdeathsig = 0 // this goroutine may change its thread
	held, err := process.Start(a.path, a.argv, Stdio{}, a.files, a.attr)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Wait()
	defer held.Kill()
	deadline := time.Now().Add(10 * time.Second)
	for waits := false; !waits; time.Sleep(time.Millisecond) {
		at, err := os.ReadFile(fmt.Sprintf("/proc/%d/wchan", held.PID()))
		if err != nil || len(process.Descendants(held.PID())) > 0 || time.Now().After(deadline) {
			t.Fatalf("it is at %q with the descendants %v, %v", at, process.Descendants(held.PID()), err)
		}
		waits = strings.Contains(string(at), "pipe_read")
	}
}

func TestLimitsCannotBeRaisedInside(t *testing.T) {
	h := newHost(t)
	withoutCgroups(t)
	h.limit(profile.LimitMemory, 512<<20)
	h.limit(profile.LimitFileSize, 1<<20)
	h.limit(profile.LimitOpenFiles, 200)
	h.limit(profile.LimitCPU, 10)
	for _, script := range []string{
		"ulimit -c 2", "ulimit -c unlimited", "ulimit -Hc unlimited",
		"ulimit -d unlimited", "ulimit -Hd 524289",
		"ulimit -f 2049", "ulimit -f unlimited",
		"ulimit -n 201", "ulimit -Hn 100000",
		"ulimit -t 12", "ulimit -Ht unlimited",
		"prlimit --pid $$ --nofile=201:201", "prlimit --pid 1 --core=unlimited:unlimited",
	} {
		h.refused(script)
	}
}

func TestEveryLimitAtItsLeastLetsACommandRun(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		h := newHost(t)
		h.launcher.Terminal = terminal
		h.limit(profile.LimitMemory, 16<<20)
		h.limit(profile.LimitFileSize, 1<<20)
		h.limit(profile.LimitCPU, 1)
		h.limit(profile.LimitOutput, 1)
		if os.Getuid() != 0 {
			h.limit(profile.LimitProcesses, 16)
		}
		if r := h.run("/bin/sh", "-c", "/bin/true"); r.Failure != nil || r.ExitCode != 0 || r.limitNotices() != nil {
			t.Errorf("terminal %v: %+v %v %s", terminal, r.Result, r.Failure, r.Err)
		}
	}
}

func TestALimitThatIsNotReachedIsNotTold(t *testing.T) {
	h := newHost(t)
	for _, script := range []string{"kill -XCPU $$", "kill -XFSZ $$", "kill -KILL $$"} {
		if r := h.run("/bin/sh", "-c", script); r.Failure != nil || r.limitNotices() != nil {
			t.Errorf("%s: %q %v", script, r.limitNotices(), r.Failure)
		}
	}
}

func TestTheLaunchersOwnLimitsStayAsTheyAre(t *testing.T) {
	limits := func() (list []unix.Rlimit) {
		for resource := range 16 {
			var limit unix.Rlimit
			if err := unix.Getrlimit(resource, &limit); err != nil {
				t.Fatal(err)
			}
			list = append(list, limit)
		}
		return list
	}
	before := limits()
	h := newHost(t)
	h.limit(profile.LimitMemory, 512<<20)
	h.limit(profile.LimitCPU, 10)
	h.limit(profile.LimitOpenFiles, 200)
	h.limit(profile.LimitFileSize, 1<<20)
	h.sh("true")
	if !slices.Equal(before, limits()) {
		t.Errorf("%v became %v", before, limits())
	}
}

func TestWhatHoldsEachLimitIsTold(t *testing.T) {
	plan := Plan{}
	if held := plan.HeldLimits(); len(held) != 0 {
		t.Errorf("without limits: %v", held)
	}
	for i := range plan.Limits.Amounts {
		plan.Limits.Amounts[i] = 1 << 30
	}
	held := plan.HeldLimits()
	if len(held) != len(profile.LimitNames()) {
		t.Fatalf("%v", held)
	}
	for i, h := range held {
		if h.Limit.String() != profile.LimitNames()[i] || h.Amount == "" || h.By == "" || h.How == "" {
			t.Errorf("%+v", h)
		}
	}
}

func TestFloodsOfOutputEndWithTheBeginningKept(t *testing.T) {
	h := newHost(t)
	h.limit(profile.LimitOutput, 64<<10)
	for _, c := range []struct {
		script string
		deaf   bool
	}{
		{"head -c 5000000 /dev/zero; exec sleep 60", false},
		{"head -c 5000000 /dev/zero >&2; exec sleep 60", false},
		{"head -c 5000000 /dev/zero & head -c 5000000 /dev/zero >&2; exec sleep 60", false},
		{"trap '' TERM; head -c 5000000 /dev/zero; exec sleep 60", true},
	} {
		h.launcher.Grace = DefaultGrace / 20
		r := h.run("/bin/sh", "-c", c.script)
		r.wantLimitNotice(t, "outputBytes")
		if r.Failure != nil || len(r.Out)+len(r.Err) != 64<<10 || r.Outcome != Signalled || r.Signal != syscall.SIGTERM && r.Signal != syscall.SIGKILL {
			t.Errorf("%s: %d and %d bytes, %+v, %v", c.script, len(r.Out), len(r.Err), r.Result, r.Failure)
		}
		if c.deaf != (r.Signal == syscall.SIGKILL) {
			t.Errorf("%s: ended by %v", c.script, r.Signal)
		}
	}
	// To the byte, and not one more.
	r := h.run("/bin/sh", "-c", "head -c 65536 /dev/zero")
	if r.ExitCode != 0 || len(r.Out) != 64<<10 || r.limitNotices() != nil {
		t.Errorf("%+v %q", r.Result, r.limitNotices())
	}
}

func TestOutputIsCountedOnItsWayIntoAFile(t *testing.T) {
	h := newHost(t)
	h.limit(profile.LimitOutput, 1000)
	path := filepath.Join(newDirectory(t), "out")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	result, err := h.launcher.Run(context.Background(), h.build(), []string{"/bin/sh", "-c", "yes | head -c 5000000; exec sleep 60"},
		Stdio{Out: file, Err: file})
	text, _ := os.ReadFile(path)
	if err != nil || !bytes.Equal(text, []byte(strings.Repeat("y\n", 500))) || result.Signal != syscall.SIGTERM {
		t.Errorf("%d bytes, %+v, %v", len(text), result, err)
	}
}

func TestCountedStreamsOfOneFileStayInTheirOrder(t *testing.T) {
	h := newHost(t)
	h.limit(profile.LimitOutput, 1<<20)
	path := filepath.Join(newDirectory(t), "out")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), os.O_WRONLY|os.O_APPEND, 0) // as 2>&1 is another *os.File
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	var want strings.Builder
	for i := range 300 {
		fmt.Fprintf(&want, "out %d\nerr %d\n", i, i)
	}
	_, err = h.launcher.Run(context.Background(), h.build(), []string{"/bin/sh", "-c", "for i in $(seq 0 299); do echo out $i; echo err $i >&2; done"},
		Stdio{Out: file, Err: again})
	if text, _ := os.ReadFile(path); err != nil || string(text) != want.String() {
		t.Errorf("%v\n%s", err, text)
	}
}

// What the kernel's limits add to a start.
func BenchmarkLimits(b *testing.B) {
	for name, limits := range map[string]profile.Limits{
		"none": {},
		"all":  {Amounts: profile.Amounts{profile.LimitCPU: 10, profile.LimitFileSize: 1 << 30, profile.LimitOpenFiles: 1000}},
	} {
		b.Run(name, func(b *testing.B) {
			cmd := exec.Command("/bin/cat")
			input, err := cmd.StdinPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				b.Fatal(err)
			}
			defer cmd.Wait()
			defer input.Close()
			a := &attempt{plan: &Plan{Limits: limits}}
			for b.Loop() {
				hostCgroups.Reach(limits)
				if err := a.limit(cmd.Process.Pid); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package sandbox

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/profile"
)

// What a session's command could do to what starts commands, and to another command. Each line says
// "through" where it got through; a victim runs beside it, whose output and end must be its own.
// processes(n) are the numbers that it could mean.
const attackTools = `import ctypes, os, resource, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
me = os.getpid()
others = [int(n) for n in os.listdir('/proc') if n.isdigit() and int(n) != me]
def tries(what, *arguments):
    try:
        return what(*arguments)
    except OSError:
        return None
def through(what):
    print('through:', what)
`

// A sessionAttack is a script, and what holds against it.
type sessionAttack struct{ title, by, script string }

var sessionAttacks = []sessionAttack{
	{"the parent has no number", "the server is outside of the process id namespace", `if os.getppid() != 0: through(os.getppid())`},
	{"trace the first process", "it is not dumpable; Landlock", `if libc.ptrace(16, 1, None, None) == 0: through('attached')`},
	{"trace other commands", "a Landlock domain for each command", `for n in others:
    if libc.ptrace(16, n, None, None) == 0 or libc.ptrace(0x4206, n, None, None) == 0: through(n)`},
	{"memory of others", "a Landlock domain for each command", `for n in others:
    if tries(open, '/proc/%d/mem' % n, 'r+b'): through(n)
    if libc.process_vm_readv(n, None, 0, None, 0, 0) == 0 and tries(open, '/proc/%d/maps' % n): through(n)`},
	{"descriptors of others", "a Landlock domain for each command", `for n in others:
    for d in tries(os.listdir, '/proc/%d/fd' % n) or []: # their numbers any process of the user sees
        if tries(os.readlink, '/proc/%d/fd/%s' % (n, d)): through((n, d))
    for d in (0, 1, 2, 3, 4, 5, 250):
        if tries(open, '/proc/%d/fd/%d' % (n, d), 'wb'): through((n, d))
        if libc.syscall(434, n, 0) >= 0 and libc.syscall(438, libc.syscall(434, n, 0), d, 0) >= 0: through('pidfd_getfd')`},
	{"environment and root of others", "a Landlock domain for each command", `for n in others:
    for f in ('environ', 'auxv', 'stack'):
        if tries(lambda: open('/proc/%d/%s' % (n, f)).read()): through((n, f))
    for f in ('cwd', 'root', 'exe', 'ns/mnt', 'ns/user'):
        if tries(os.readlink, '/proc/%d/%s' % (n, f)): through((n, f))`},
	{"descriptors of its own", "all others are closed", `for d in os.listdir('/proc/self/fd'):
    if int(d) > 2 and tries(os.readlink, '/proc/self/fd/' + d) and 'socket' in os.readlink('/proc/self/fd/' + d): through(d)`},
	{"stop and kill what starts commands", "process 1 takes no signals from inside; the server has no number", `for s in (signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL):
    tries(os.kill, 1, s)
    tries(os.kill, os.getppid() or 1, s)`},
	{"limits of the first process", "it does nothing that a limit could stop", `for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_CPU, resource.RLIMIT_AS):
    tries(resource.prlimit, 1, kind, (0, 0))`},
	{"priorities of all of the user", "the server is outside of the process id namespace", `libc.setpriority(2, os.getuid(), 19)
libc.setpriority(1, 0, 19)
libc.syscall(251, 3, os.getuid(), 3 << 13)
for n in others: tries(os.sched_setaffinity, n, {0})`},
	{"its own process group", "a session and process group for each command", `signal.signal(signal.SIGTERM, signal.SIG_IGN); os.kill(0, signal.SIGTERM)`},
	{"the group of its parent", "a session and process group for each command", `tries(os.kill, -os.getpgid(0), 0); tries(os.setpgid, 0, 1); tries(os.kill, -1, 0)`},
	{"another session's terminal", "no terminal", `if tries(open, '/dev/tty'): through('a terminal')`},
	{"an abstract socket of another command", "a Landlock domain for each command (Linux 6.12)", `import socket
c = socket.socket(socket.AF_UNIX)
if tries(lambda: c.connect('\0clai-sandbox-victim') or True): through('connected')`},
	{"many zombies", "the sandbox's end ends them", `for i in range(300):
    if os.fork() == 0:
        if os.fork() == 0: os._exit(0)
        os._exit(0)`},
	{"orphans that end", "process 1 ignores SIGCHLD", `for i in range(100):
    if os.fork() == 0:
        if os.fork() == 0: time.sleep(0.01); os._exit(0)
        os._exit(0)
for i in range(100): os.wait()
def orphans():
    for n in os.listdir('/proc'):
        stat = n.isdigit() and tries(lambda: open('/proc/%s/stat' % n).read())
        if stat and stat.rsplit(')', 1)[1].split()[:2] == ['Z', '1']: return n
until = time.time() + 10
while orphans() and time.time() < until: time.sleep(0.01)
if orphans(): through(orphans())`},
	{"an orphan that stays", "pidfds tell of the command's own end", `if os.fork() == 0:
    os.setsid()
    for d in (0, 1, 2): os.close(d)
    time.sleep(300)`},
	{"other namespaces", "seccomp filter; process 1 is not dumpable", `for n in ('user', 'mnt', 'pid', 'net'):
    f = tries(os.open, '/proc/1/ns/' + n, os.O_RDONLY)
    if f is not None and libc.setns(f, 0) == 0: through(n)
f = libc.syscall(434, 1, 0)
if f >= 0 and libc.setns(f, 0x10000000 | 0x20000) == 0: through('by pidfd')`},
}

// Attacks that take more than a script beside a victim.
var sessionAttacksElsewhere = []struct{ title, by, test string }{
	{"make the server its tracer (PTRACE_TRACEME), and stop", "an end is what a pidfd tells, and wait says to be one", "TestASessionsCommandThatStopsHasNotEnded, TestAStopIsNotTakenForAnEnd"},
	{"end or stop all there is (kill -1, kill 0)", "the server has no number, and is in another session", "TestASessionsCommandsThatEndOrStopAllOthersEndNothingElse"},
	{"a fork bomb", "limits; the end of process 1 ends all", "TestASessionsForkBombIsEndedAndTheServerLives"},
	{"change settings while they are carried over", "all that runs is stopped meanwhile, and nothing starts", "TestNothingRunsNorStartsWhileASessionSettles"},
	{"something that whoever started the launcher left open", "all others are closed", "TestNothingThatIsOpenElsewhereReachesACommand"},
	{"stop the shell; stop all; heed no signal", "time, then SIGKILL", "TestASessionEndsSoonWhateverItsCommandsDo, TestAStoppedShellIsBegunAnew"},
	{"a command that never reads, or never stops writing", "bounds on what is kept, and time", "TestASessionEndsSoonWhateverItsCommandsDo, TestAGibibyteOfOutputIsReadInBoundedMemory"},
	{"a deep tree in /tmp", "it is cleared by descriptor, in bounded time, and later by the next server", "TestASessionEndsSoonWhateverItsCommandsDo, TestATreeIsClearedWhateverItIsLike"},
	{"fill the disk of /tmp", "nothing that the server needs lies there", "TestASessionWhoseTmpIsFull"},
	{"forge a line's end, a result, or the line in brackets", "a word that nobody knows, on a descriptor of the shell's own; the status comes from wait", "TestWhatACommandWritesIsOutputAndNoMore"},
	{"end the file tools' program", "what only reads is asked again of a new one", "TestAllToolsOfASessionShareItsSandbox"},
}

var updateSessionAttacks = flag.Bool("update-session-attacks", false, "write the end of docs/escapes.md anew")

// The end of docs/escapes.md is this table; -update-session-attacks writes it.
func TestTheTableOfASessionsAttacksIsUpToDate(t *testing.T) {
	const heading = "\n## A session's commands against its server and each other\n"
	var text strings.Builder
	text.WriteString(heading + "\nWritten by `go test ./sandbox -run TestTheTableOfASessionsAttacksIsUpToDate -update-session-attacks`. Each is made by a command of a session, where it must come to\n" +
		"nothing: the server goes on, and so does another command, whose output and end are its own. `make test` makes them all, as root and as an ordinary user.\n\n" +
		"| | attempt | what holds | tried by |\n|---|---|---|---|\n")
	for i, a := range sessionAttacks {
		fmt.Fprintf(&text, "| %d | %s | %s | TestASessionsServerAndOtherCommandsCannotBeTouched |\n", i+1, a.title, a.by)
	}
	for i, a := range sessionAttacksElsewhere {
		fmt.Fprintf(&text, "| %d | %s | %s | %s |\n", len(sessionAttacks)+i+1, a.title, a.by, a.test)
	}
	const path = "../docs/escapes.md"
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(file), heading)
	if *updateSessionAttacks {
		if err := os.WriteFile(path, []byte(before+text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(file) != before+text.String() {
		t.Errorf("%s is out of date", path)
	}
}

func TestASessionsServerAndOtherCommandsCannotBeTouched(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	h := newHost(t)
	s := h.openSession()
	pid := s.server.Load().PID()
	before := nicenessOf(t, pid)
	ready := filepath.Join(h.profile.Workspace, "ready")
	const victim = `import socket, time, sys
s = socket.socket(socket.AF_UNIX); s.bind('\0clai-sandbox-victim'); s.listen(1)
print('ready', flush=True)
open('ready', 'w')
sys.stdin.readline()
print('done')`
	for _, attack := range sessionAttacks {
		t.Run(attack.title, func(t *testing.T) {
			in, goOn, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			_, end := s.capture(t, Command{Argv: []string{"python3", "-c", victim}, In: in})
			in.Close()
			for began := time.Now(); os.Remove(ready) != nil; time.Sleep(2 * time.Millisecond) {
				if time.Since(began) > 30*time.Second {
					t.Fatal("no victim")
				}
			}
			attacker, attacked := s.capture(t, Command{Argv: []string{"python3", "-c", attackTools + attack.script}})
			late := time.AfterFunc(20*time.Second, func() { attacker.End(syscall.SIGKILL) })
			out, r, err := attacked()
			late.Stop()
			if err != nil || r.ExitCode != 0 || out != "" {
				t.Errorf("%v, %d, %s", err, r.ExitCode, out)
			}
			goOn.Close()
			if out, r, err := end(); err != nil || out != "ready\ndone\n" || r.ExitCode != 0 {
				t.Errorf("the victim: %q, %d, %v", out, r.ExitCode, err)
			}
			if out, _ := s.sh(t, "echo alive"); out != "alive\n" {
				t.Errorf("%q", out)
			}
		})
	}
	if now := nicenessOf(t, pid); now != before {
		t.Errorf("the server's priority became %s, was %s", now, before)
	}
}

// nicenessOf is a process's priority and niceness, and on which processors it may run.
func nicenessOf(t *testing.T, pid int) string {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	status, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	_, allowed, _ := strings.Cut(string(status), "Cpus_allowed:")
	allowed, _, _ = strings.Cut(allowed, "\n")
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')'):]))
	return strings.Join(fields[16:18], " ") + allowed
}

func TestASessionsCommandsThatEndOrStopAllOthersEndNothingElse(t *testing.T) {
	h := newHost(t)
	s := h.openSession()
	for _, line := range []string{"kill -9 -1; kill -9 $$", "kill -STOP -1; kill -9 $$", "kill -9 0", "kill -STOP $PPID & kill -9 $$; wait"} {
		victim, err := s.Start(Command{Argv: []string{"sleep", "300"}})
		if err != nil {
			t.Fatal(err)
		}
		_, r := s.sh(t, line)
		if r.Outcome != Signalled {
			t.Errorf("%s: %+v", line, r)
		}
		if out, _ := s.sh(t, "echo alive"); out != "alive\n" {
			t.Errorf("%s: %q", line, out)
		}
		victim.End(syscall.SIGKILL)
		if r, err := victim.Wait(); err != nil || r.Signal != syscall.SIGKILL {
			t.Errorf("%s: %+v, %v", line, r, err)
		}
	}
}

// A process that is traced by its parent, which PTRACE_TRACEME makes the server, has not ended when
// it stops.
func TestASessionsCommandThatStopsHasNotEnded(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	s := newHost(t).openSession()
	p, wait := s.capture(t, Command{Argv: []string{"python3", "-c", attackTools + "libc.ptrace(0, 0, None, None); os.kill(me, signal.SIGSTOP)"}})
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/stat")
		if strings.Contains(string(stat), ") t ") || strings.Contains(string(stat), ") T ") {
			break
		}
		if time.Since(began) > 10*time.Second {
			t.Fatal("it does not stop")
		}
	}
	ended := make(chan Result, 1)
	go func() { _, r, _ := wait(); ended <- r }()
	select {
	case r := <-ended:
		t.Fatalf("%+v", r)
	case <-time.After(100 * time.Millisecond):
	}
	p.End(syscall.SIGKILL)
	if r := <-ended; r.Signal != syscall.SIGKILL {
		t.Errorf("%+v", r)
	}
}

func TestASessionsForkBombIsEndedAndTheServerLives(t *testing.T) {
	h := newHost(t)
	h.profile.Limits.Amounts[profile.LimitProcesses] = 60
	s := h.openSession()
	// A bounded one, should nothing hold it.
	_, wait := s.capture(t, Command{Argv: []string{"sh", "-c", "for i in $(seq 400); do sleep 300 & done 2>/dev/null; wait"}})
	full := false
	for range 400 {
		p, err := s.Start(Command{Argv: []string{"sleep", "300"}})
		if err != nil {
			if !strings.Contains(err.Error(), "the limit on processes") {
				t.Fatal(err)
			}
			full = true
			break
		}
		go p.Wait()
	}
	if !full {
		t.Error("nothing held it")
	}
	// What was for a command that was not started, nobody keeps open. Others of the user's may end
	// meanwhile, and leave room for one.
	refused := false
	for range 400 {
		out, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Start(Command{Argv: []string{"sleep", "300"}, Out: write})
		write.Close()
		if refused = err != nil; refused {
			out.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, err := out.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("the server keeps what it was sent: %v", err)
			}
		} else {
			go p.Wait()
		}
		out.Close()
		if refused {
			break
		}
	}
	if !refused {
		t.Error("all others were started")
	}
	began := time.Now()
	s.Close()
	if _, _, err := wait(); err == nil {
		t.Log("it ended before the sandbox")
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("to end it took %v", took)
	}
}

func TestASessionEndsWithItsContext(t *testing.T) {
	h := newHost(t)
	ctx, cancel := context.WithCancel(context.Background())
	s, err := h.launcher.Open(ctx, h.build())
	if err != nil {
		t.Fatal(err)
	}
	server := s.server.Load().PID()
	p, err := s.Start(Command{Argv: []string{"sh", "-c", "trap '' TERM; kill -STOP $$"}})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case <-s.Ended():
	case <-time.After(10 * time.Second):
		t.Fatal("it does not end")
	}
	if _, err := p.Wait(); err != nil && !errors.Is(err, ErrSessionEnded) {
		t.Error(err)
	}
	if err := syscall.Kill(server, 0); err != syscall.ESRCH {
		t.Errorf("the server is still there: %v", err)
	}
}

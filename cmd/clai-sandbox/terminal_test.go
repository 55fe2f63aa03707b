package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// A terminal is a real one, with a person at it.
type terminal struct {
	t       *testing.T
	cmd     *exec.Cmd
	fd      int
	closed  atomic.Bool
	mu      sync.Mutex
	screen  bytes.Buffer
	changed chan struct{}
	read    int // how much of the screen was expected already
}

// sit starts a command on a new terminal, in an empty project of a home of its own.
func sit(t *testing.T, command ...string) *terminal {
	t.Helper()
	home := newHome(t)
	project := filepath.Join(home, "project")
	if err := os.Mkdir(project, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP} {
		signal.Notify(make(chan os.Signal, 1), s) // so that children do not ignore them, wherever the tests run
	}
	term := &terminal{t: t, cmd: exec.Command(command[0], command[1:]...), changed: make(chan struct{}, 1)}
	term.cmd.Dir = project
	term.cmd.Env = append(os.Environ(), "HOME="+home, "PS1=prompt> ", "TERM=dumb")
	keys, err := pty.StartWithSize(term.cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	if term.fd, err = unix.FcntlInt(keys.Fd(), unix.F_DUPFD_CLOEXEC, 3); err != nil {
		t.Fatal(err)
	}
	keys.Close()
	t.Cleanup(func() {
		term.closed.Store(true)
		term.cmd.Process.Kill()
	})
	go term.watch()
	return term
}

// watch reads the screen. It does not wait in a read: a terminal is closed only when nobody reads
// from it.
func (term *terminal) watch() {
	buffer := make([]byte, 4096)
	for {
		poll := []unix.PollFd{{Fd: int32(term.fd), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 20); err == nil && n == 0 && !term.closed.Load() || err == unix.EINTR {
			continue
		}
		if term.closed.Load() {
			unix.Close(term.fd)
			return
		}
		n, err := unix.Read(term.fd, buffer)
		n = max(n, 0)
		term.mu.Lock()
		term.screen.Write(buffer[:n])
		term.mu.Unlock()
		select {
		case term.changed <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

func (term *terminal) kind(keys string) {
	if _, err := unix.Write(term.fd, []byte(keys)); err != nil {
		term.t.Error(err)
	}
}

// expect waits until the screen shows something that was not expected before.
func (term *terminal) expect(text string) {
	term.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		term.mu.Lock()
		unread := term.screen.String()[term.read:]
		i := strings.Index(unread, text)
		if i >= 0 {
			term.read += i + len(text)
		}
		term.mu.Unlock()
		if i >= 0 {
			return
		}
		select {
		case <-term.changed:
		case <-deadline:
			term.t.Fatalf("no %q on the screen:\n%s", text, unread)
		}
	}
}

// leave waits for the command to end, with one of some exit statuses; -1 is a signal.
func (term *terminal) leave(want ...int) {
	term.t.Helper()
	timer := time.AfterFunc(20*time.Second, func() { term.cmd.Process.Kill() })
	defer timer.Stop()
	err := term.cmd.Wait()
	var exitErr *exec.ExitError
	if err != nil && !errors.As(err, &exitErr) {
		term.t.Fatal(err)
	}
	if got := term.cmd.ProcessState.ExitCode(); !slices.Contains(want, got) {
		term.mu.Lock()
		defer term.mu.Unlock()
		term.t.Errorf("exit status %d (%v), want %v; the screen:\n%s", got, term.cmd.ProcessState, want, term.screen.String())
	}
}

const (
	controlC         = "\x03"
	controlD         = "\x04"
	controlZ         = "\x1a"
	controlBackslash = "\x1c"
)

func TestControlCReachesTheCommandOnceAndTheSandboxSurvivesIt(t *testing.T) {
	term := sit(t, "clai-sandbox", "run", "--", "sh", "-c",
		`n=0; trap 'n=$((n+1)); echo interrupt $n' INT; trap 'echo $n in all; exit 5' USR1; echo ready; while :; do sleep 0.05; done`)
	term.expect("ready")
	term.kind(controlC)
	term.expect("interrupt 1")
	term.kind(controlC)
	term.expect("interrupt 2")
	// What the launcher passes on, it passes on in this order: were a SIGINT among it, it would be
	// counted by now.
	term.cmd.Process.Signal(syscall.SIGUSR1)
	term.expect("2 in all")
	term.leave(5)
}

func TestControlCEndsACommandThatDoesNothingAboutIt(t *testing.T) {
	for keys, status := range map[string]int{controlC: 130, controlBackslash: 131} {
		term := sit(t, "clai-sandbox", "run", "--", "sh", "-c", "ulimit -c 0; echo ready; exec sleep 1000")
		term.expect("ready")
		term.kind(keys)
		term.leave(status)
	}
}

func TestControlCInterruptsAnInterpreterAndNoMore(t *testing.T) {
	needProgram(t, "python3")
	term := sit(t, "clai-sandbox", "run", "--env", "PYTHON_BASIC_REPL=1", "--", "python3", "-q")
	term.expect(">>> ")
	// Many short sleeps: Python misses an interrupt that comes just before it begins a long one.
	term.kind("print('sleep' + 'ing'); import time; [time.sleep(0.01) for _ in range(100000)]\n")
	term.expect("sleeping")
	term.kind(controlC)
	term.expect("KeyboardInterrupt")
	term.expect(">>> ")
	term.kind("print(6 * 7)\n")
	term.expect("42")
	term.kind("raise SystemExit(4)\n")
	term.leave(4)
}

func TestControlZStopsTheJobAndFgGoesOn(t *testing.T) {
	term := sit(t, "bash", "--norc", "--noprofile", "-i")
	marker := newMarker(t)
	term.expect("prompt> ")
	term.kind("clai-sandbox run -- sh -c 'echo rea''dy; read x; echo got $x; exit 3' " + marker + "; echo status $?\n")
	term.expect("ready")
	for range 2 {
		term.kind(controlZ)
		term.expect("Stopped")
		term.expect("prompt> ")
		// The command, and the launcher, which the shell waits for. bwrap has nothing to do, and
		// does nothing.
		waitUntil(t, "both are stopped", func() bool { return stopped(marker) == 2 })
		term.kind("jobs\n")
		term.expect("Stopped")
		term.expect("prompt> ")
		term.kind("fg\n")
		term.expect("clai-sandbox run") // which the shell says before it wakes them
		waitUntil(t, "both go on", func() bool { return stopped(marker) == 0 })
	}
	term.kind("a line\n")
	term.expect("got a line")
	term.expect("prompt> ")
	term.kind("exit\n") // with the status of the last job
	term.leave(3)
}

// What protects the person's files runs in the launcher: while that is stopped, nothing of the
// command's may run.
func TestNothingInsideRunsWhileTheJobIsStopped(t *testing.T) {
	needProgram(t, "python3")
	const beats = `
import ctypes, os, signal, sys, threading, time
def beat():
    while True:
        open("beat", "a").write("x"); time.sleep(0.005)
def deaf():
    for s in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU): signal.signal(s, signal.SIG_IGN)
`
	const ready = "\nprint('rea' 'dy', flush=True)\n"
	for name, c := range map[string]struct {
		script string
		itself bool // it has its job stopped
	}{
		"deaf to the signal":                         {"deaf()" + ready + "beat()", false},
		"a session of its own":                       {ready + "if os.fork() == 0: os.setsid(); beat()\ntime.sleep(100)", false},
		"a thread whose process seems to have ended": {"deaf()" + ready + "threading.Thread(target=beat).start()\nctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[os.uname().machine], 0)", false},
		"two that wake each other":                   {"deaf()" + ready + "first = os.getpid(); second = os.fork()\nwhile True: os.kill(second or first, signal.SIGCONT); open('beat', 'a').write('x')", false},
		"one that takes the foreground away": {ready + `
if os.fork() == 0:
    deaf(); os.setpgid(0, 0); os.tcsetpgrp(0, os.getpid()); beat()
time.sleep(0.1); os.read(0, 1); time.sleep(100)`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			term := sit(t, "bash", "--norc", "--noprofile", "-i")
			if err := os.WriteFile(filepath.Join(term.cmd.Dir, "beat.py"), []byte(beats+c.script), 0o644); err != nil {
				t.Fatal(err)
			}
			term.expect("prompt> ")
			term.kind("clai-sandbox run -- python3 beat.py\n")
			term.expect("ready")
			if !c.itself {
				term.kind(controlZ)
			}
			term.expect("Stopped")
			term.expect("prompt> ")
			size := func() int64 {
				info, err := os.Stat(filepath.Join(term.cmd.Dir, "beat"))
				if err != nil {
					return 0
				}
				return info.Size()
			}
			before := size()
			time.Sleep(100 * time.Millisecond)
			if after := size(); after != before {
				t.Errorf("it went on: %d beats, and then %d", before, after)
			}
			term.kind("bg\n")
			waitUntil(t, "it goes on", func() bool { return size() > before || c.itself })
			term.kind("kill -KILL %1; wait; exit; exit\n") // twice: the shell may not have heard yet that its job is gone
			term.leave(0, 1, 137)
		})
	}
}

// stopped counts the processes with a word in their arguments that are.
func stopped(marker string) int {
	n := 0
	for _, p := range processesNaming(marker) {
		if p.state == "T" {
			n++
		}
	}
	return n
}

func TestAJobInTheBackgroundIsAsAnyOther(t *testing.T) {
	term := sit(t, "bash", "--norc", "--noprofile", "-i")
	term.expect("prompt> ")
	term.kind("clai-sandbox run -- cat &\n") // it reads, so it is stopped
	term.expect("prompt> ")
	term.kind("while ! jobs | grep Stop''ped; do sleep 0.02; done\n")
	term.expect("Stopped")
	term.expect("prompt> ")
	term.kind("fg\n")
	term.expect("cat")
	term.kind("to the foreground\n")
	term.expect("to the foreground\r\nto the foreground")
	term.kind(controlD)
	term.expect("prompt> ")
	term.kind("clai-sandbox run -- sh -c 'trap \"exit 9\" TERM; echo rea''dy; while :; do sleep 0.05; done' &\n")
	term.expect("ready")
	term.kind("kill %1; wait %1; echo status $?\n")
	term.expect("status 9")
	term.kind("exit\n")
	term.leave(0)
}

// A shell signals a job as a whole, so that the command hears of it twice, and may be gone at the
// second time. A launcher that has only just started it may end as any program does.
func TestASignalToTheWholeJobLeavesTheCommandItsExitStatus(t *testing.T) {
	for range 25 {
		term := sit(t, "clai-sandbox", "run", "--", "sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done")
		term.expect("ready")
		unix.Kill(-term.cmd.Process.Pid, syscall.SIGTERM)
		if term.leave(9, -1); t.Failed() {
			break
		}
	}
}

func TestATimeoutOnATerminalGivesItBack(t *testing.T) {
	term := sit(t, "bash", "--norc", "--noprofile", "-i")
	term.expect("prompt> ")
	term.kind("clai-sandbox run --timeout 200ms -- bash --norc --noprofile -i -c 'sleep 1000'; echo status $?\n")
	term.expect("status 124")
	term.expect("prompt> ")
	term.kind("echo st''ill here; exit\n")
	term.expect("still here")
	term.leave(0)
}

func TestTheSizeOfTheWindowReachesTheCommand(t *testing.T) {
	term := sit(t, "clai-sandbox", "run", "--", "sh", "-c",
		`trap 'stty size; exit' WINCH; stty size; echo ready; while :; do sleep 0.05; done`)
	term.expect("24 80")
	term.expect("ready")
	if err := unix.IoctlSetWinsize(term.fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 132}); err != nil {
		t.Fatal(err)
	}
	term.expect("40 132")
	term.leave(0)
}

func TestAShellInsideHasJobControl(t *testing.T) {
	term := sit(t, "clai-sandbox", "run", "--env", "PS1=inside> ", "--", "bash", "--norc", "--noprofile", "-i")
	term.expect("inside> ")
	term.kind("python3 -c 'import os, signal, time; signal.signal(signal.SIGCONT, lambda *a: os.write(1, b\"resu\" + b\"med\")); os.write(1, b\"sleep\" + b\"ing\"); [time.sleep(0.01) for _ in range(100000)]'\n")
	term.expect("sleeping")
	term.kind(controlZ)
	term.expect("Stopped")
	term.expect("inside> ")
	term.kind("fg\n")
	term.expect("resumed")
	term.kind(controlC)
	term.expect("inside> ")
	term.kind("echo st''ill here\n")
	term.expect("still here")
	term.kind("exit 3\n")
	term.leave(3)
	if screen := term.seen(); strings.Contains(screen, "job control") || strings.Contains(screen, "process group") {
		t.Errorf("%s", screen)
	}
}

func TestAShellInsideOpensTerminalsOfItsOwn(t *testing.T) {
	needProgram(t, "python3")
	term := sit(t, "clai-sandbox", "run", "--", "python3", "-c",
		`import os, pty, sys; sys.exit(pty.spawn(["sh", "-c", "test -t 0 && tty && exit 6"]) >> 8)`)
	term.expect("/dev/pts/0")
	term.leave(6)
}

func TestTheTerminalIsReachedPastRedirections(t *testing.T) {
	term := sit(t, "clai-sandbox", "run", "--", "sh", "-c",
		`(echo rea''dy >/dev/tty; read x </dev/tty; echo got $x >/dev/tty) </dev/null >/dev/null 2>&1`)
	term.expect("ready")
	term.kind("a line\n")
	term.expect("got a line")
	term.leave(0)
}

func TestNobodyInsideTypesIntoTheTerminal(t *testing.T) {
	needProgram(t, "python3")
	ioctl := map[string]int{"amd64": 16, "arm64": 29}[runtime.GOARCH]
	term := sit(t, "bash", "--norc", "--noprofile", "-i")
	term.expect("prompt> ")
	script := filepath.Join(term.cmd.Dir, "type.py")
	// The kernel looks at the low half of a request alone, so the high half must not change the
	// answer.
	err := os.WriteFile(script, fmt.Appendf(nil, `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for request in (0x5412, 0x541c, 0x1_0000_5412, 0xffffffff_0000_5412, 0x1_0000_541c):
    for fd in (0, 1, 2, os.open("/dev/tty", os.O_RDWR)):
        for byte in b"echo in" b"jected\n":
            argument = ctypes.create_string_buffer(bytes([2 if request & 0xffff == 0x541c else byte]))
            if libc.syscall(%d, fd, ctypes.c_ulong(request), argument) == 0:
                print("ty" "ped")
            elif ctypes.get_errno() != 1:
                print("er" "rno", ctypes.get_errno(), hex(request))
print("fini" "shed")
`, ioctl), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	term.kind("clai-sandbox run -- python3 type.py\n")
	term.expect("finished")
	term.expect("prompt> ")
	term.kind("exit\n")
	term.leave(0)
	for _, sign := range []string{"typed", "errno", "injected"} {
		if strings.Contains(term.seen(), sign) {
			t.Errorf("%s", term.seen())
		}
	}
}

func TestClosingTheTerminalEndsTheSandbox(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		status int // of a command that is ended in order, by SIGTERM first
	}{
		"as any other": {"echo ready; sleep 1000", 143},
		"deaf":         {"trap '' HUP TERM; echo ready; sleep 1000; sleep 1000", 137},
		"own session":  {"setsid sleep 1000 & echo ready; sleep 1000", 143},
	} {
		t.Run(name, func(t *testing.T) {
			marker := newMarker(t)
			term := sit(t, "clai-sandbox", "run", "--", "sh", "-c", c.script+"; : "+marker)
			term.expect("ready")
			term.closed.Store(true)
			term.leave(c.status)
			waitUntil(t, "the sandbox is gone", func() bool { return len(processesNaming(marker)) == 0 })
		})
	}
}

func TestAPipelineOnATerminalIsTheShellsOwn(t *testing.T) {
	term := sit(t, "bash", "--norc", "--noprofile", "-i")
	term.expect("prompt> ")
	term.kind("clai-sandbox run -- yes | head -n 2; echo ${PIPESTATUS[*]} done\n")
	term.expect("141 0 done")
	term.kind("clai-sandbox run -- sh -c 'echo rea''dy >&2; exec sleep 1000' | cat; echo stat''us $?\n")
	term.expect("ready")
	term.kind(controlC)
	term.expect("prompt> ")
	term.kind("echo al''ive\n")
	term.expect("alive")
	term.kind("exit\n")
	term.leave(0)
}

func TestStreamsThatAreNoTerminalAreWhatTheyAre(t *testing.T) {
	term := sit(t, "bash", "--norc", "--noprofile", "-i")
	term.expect("prompt> ")
	term.kind("echo typed | clai-sandbox run -- sh -c 'cat; test -t 0 || test -t 1 && echo half'\n")
	term.expect("typed\r\nhalf")
	term.kind("clai-sandbox run -- sh -c 'echo rea''dy >&2; cat' | tr a-z A-Z\n")
	term.expect("ready")
	term.kind("through a pipe\n" + controlD)
	term.expect("THROUGH A PIPE")
	term.expect("prompt> ")
	term.kind("clai-sandbox run -- sh -c 'echo rea''dy >&2; cat' >file; cat file file\n")
	term.expect("ready")
	term.kind("to a file\n" + controlD)
	term.expect("to a file\r\nto a file\r\nto a file")
	term.kind("exit\n")
	term.leave(0)
}

func (term *terminal) seen() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.screen.String()
}

// newMarker is a word for a command line, to find its processes by.
func newMarker(t *testing.T) string {
	return fmt.Sprintf("%s-%d-%d", t.Name(), os.Getpid(), time.Now().UnixNano())
}

type processState struct {
	pid   int
	state string // as in ps: R, S, T, Z
	args  string
}

// processesNaming lists the processes with a word in their arguments.
func processesNaming(word string) []processState {
	var found []processState
	dirs, _ := os.ReadDir("/proc")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(dir.Name())
		if err != nil {
			continue
		}
		args, _ := os.ReadFile("/proc/" + dir.Name() + "/cmdline")
		stat, _ := os.ReadFile("/proc/" + dir.Name() + "/stat")
		_, state, _ := strings.Cut(string(stat), ") ")
		if bytes.Contains(args, []byte(word)) && state != "" {
			found = append(found, processState{pid, state[:1], strings.ReplaceAll(string(args), "\x00", " ")})
		}
	}
	return found
}

func waitUntil(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 10 s until %s", what)
		}
	}
}

// needProgram skips a test whose program the sandbox cannot show, because this machine lacks it.
func needProgram(t *testing.T, name string) {
	t.Helper()
	if out, err := exec.Command("clai-sandbox", "run", "--workspace", newHome(t), "--", "sh", "-c", "command -v "+name).CombinedOutput(); err != nil {
		t.Skipf("this machine has no %s in its system directories %s", name, out)
	}
}

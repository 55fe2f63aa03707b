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
	home, err := os.MkdirTemp("/var/tmp", "clai-sandbox-terminal-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	project := filepath.Join(home, "project")
	if err := os.Mkdir(project, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGQUIT} {
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

// watch reads the screen. It does not wait in a read: a terminal is closed only when nobody reads from it.
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

// leave waits for the command to end.
func (term *terminal) leave(want int) {
	term.t.Helper()
	timer := time.AfterFunc(20*time.Second, func() { term.cmd.Process.Kill() })
	defer timer.Stop()
	err := term.cmd.Wait()
	var exitErr *exec.ExitError
	if err != nil && !errors.As(err, &exitErr) {
		term.t.Fatal(err)
	}
	if got := term.cmd.ProcessState.ExitCode(); got != want {
		term.mu.Lock()
		defer term.mu.Unlock()
		term.t.Errorf("exit status %d (%v), want %d; the screen:\n%s", got, term.cmd.ProcessState, want, term.screen.String())
	}
}

const (
	controlC         = "\x03"
	controlZ         = "\x1a"
	controlBackslash = "\x1c"
)

func TestControlCReachesTheCommandOnceAndTheSandboxSurvivesIt(t *testing.T) {
	term := sit(t, "clai-sandbox", "run", "--", "sh", "-c",
		`n=0; trap 'n=$((n+1)); echo interrupt $n' INT; echo ready; while [ $n -lt 2 ]; do sleep 0.05; done; sleep 0.3; echo $n in all; exit 5`)
	term.expect("ready")
	term.kind(controlC)
	term.expect("interrupt 1")
	term.kind(controlC)
	term.expect("interrupt 2")
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

func TestControlZStopsTheJobAndFgGoesOn(t *testing.T) {
	term := sit(t, "bash", "--norc", "--noprofile", "-i")
	term.expect("prompt> ")
	term.kind("clai-sandbox run -- sh -c 'echo rea''dy; read x; echo got $x'; echo status $?\n")
	term.expect("ready")
	term.kind(controlZ)
	term.expect("Stopped")
	term.expect("prompt> ")
	term.kind("jobs\n")
	term.expect("Stopped")
	term.expect("prompt> ")
	term.kind("fg\n")
	term.expect("clai-sandbox run")
	term.kind("a line\n")
	term.expect("got a line")
	term.kind("exit\n")
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
	term.kind("python3 -c 'import os, signal, time; signal.signal(signal.SIGCONT, lambda *a: os.write(1, b\"resu\" + b\"med\")); os.write(1, b\"sleep\" + b\"ing\"); time.sleep(1000)'\n")
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
	if screen := term.screen.String(); strings.Contains(screen, "job control") || strings.Contains(screen, "process group") {
		t.Errorf("%s", screen)
	}
}

func TestNobodyInsideTypesIntoTheTerminal(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	ioctl := map[string]int{"amd64": 16, "arm64": 29}[runtime.GOARCH]
	term := sit(t, "clai-sandbox", "run", "--", "/usr/bin/python3", "-c", fmt.Sprintf(`
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for request in (0x5412, 0x541c, 0x1_0000_5412, 0xffffffff_0000_5412, 0x1_0000_541c):
    for fd in (0, 1, 2, os.open("/dev/tty", os.O_RDWR)):
        r = libc.syscall(%d, fd, ctypes.c_ulong(request), ctypes.c_char_p(b"\x02x"))
        print("typed" if r == 0 else "refused" if ctypes.get_errno() == 1 else "errno %%d" %% ctypes.get_errno())
print("finished")
`, ioctl))
	term.expect("finished")
	term.leave(0)
	if screen := term.screen.String(); strings.Count(screen, "refused") != 20 {
		t.Errorf("%s", screen)
	}
}

func TestClosingTheTerminalEndsTheSandbox(t *testing.T) {
	marker := "marker-" + strconv.Itoa(os.Getpid())
	term := sit(t, "clai-sandbox", "run", "--", "sh", "-c", "echo ready; sleep 1000; : "+marker)
	term.expect("ready")
	term.closed.Store(true)
	deadline := time.Now().Add(10 * time.Second)
	for {
		out, _ := exec.Command("sh", "-c", "ps -eo pid,ppid,stat,tty,args | grep "+marker+" | grep -v grep | cut -c1-150").Output()
		if len(out) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("still there: %s", out)
		}
		time.Sleep(10 * time.Millisecond)
	}
	term.cmd.Wait()
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

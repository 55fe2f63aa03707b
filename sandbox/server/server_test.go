package server

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// allowed is a filter that allows all calls.
var allowed = []byte{unix.BPF_RET | unix.BPF_K, 0, 0, 0, 0, 0, 0xff, 0x7f}

// newInit is a process that does nothing, in namespaces of its own.
func newInit(t *testing.T) (pid int) {
	t.Helper()
	init := exec.Command("/bin/sleep", "300")
	init.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}}
	if err := init.Start(); err != nil {
		t.Skipf("no user namespace: %v", err)
	}
	t.Cleanup(func() { init.Process.Kill(); init.Wait() })
	return init.Process.Pid
}

// newServer starts a server in the namespaces of a process.
func newServer(t *testing.T, init int) *Server {
	t.Helper()
	s, err := Start(Options{Init: init, Namespaces: unix.CLONE_NEWUSER | unix.CLONE_NEWUTS, Filter: allowed, Ruleset: -1, Environment: []string{"PATH=/usr/bin:/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// start starts a command whose output can be read.
func start(t *testing.T, s *Server, argv ...string) (*Process, *os.File) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	out, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	out.SetReadDeadline(time.Now().Add(20 * time.Second)) // it ends when nobody has the other end any more
	p, err := s.Start(Command{Argv: argv, Path: "/usr/bin:/bin", Dir: "/", Files: []*os.File{null, write, write}})
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	return p, out
}

// A command can make the server its tracer (PTRACE_TRACEME), which is then told by wait of each
// stop, too.
func TestAStopIsNotTakenForAnEnd(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
	s := newServer(t, newInit(t))
	for name, lines := range map[string]string{
		"traced":     "ctypes.CDLL(None).ptrace(0, 0, None, None); os.kill(os.getpid(), 19)",
		"not traced": "os.kill(os.getpid(), 19)",
	} {
		p, _ := start(t, s, "python3", "-c", "import ctypes, os; "+lines)
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
			if strings.Contains(string(stat), ") t ") || strings.Contains(string(stat), ") T ") {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: it does not stop: %s", name, stat)
			}
		}
		if status, err := p.reap(); err == nil {
			t.Errorf("%s: the end of what has stopped: %v", name, status)
		}
		p.Signal(unix.SIGKILL)
		if status, err := p.Wait(); err != nil || status.Signal() != unix.SIGKILL {
			t.Errorf("%s: %v, %v", name, status, err)
		}
	}
}

// Whatever whoever started this process left open in it, neither the server keeps nor a command
// gets.
func TestNothingThatIsOpenElsewhereReachesACommand(t *testing.T) {
	init := newInit(t)
	secret, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	left, err := unix.FcntlInt(write.Fd(), unix.F_DUPFD, 40) // it stays open when another program is executed
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, init)
	unix.Close(left)
	write.Close()
	for range 2 {
		p, out := start(t, s, "sh", "-c", "echo /proc/self/fd/*")
		text, err := io.ReadAll(out)
		if status, failed := p.Wait(); failed != nil || status != 0 {
			t.Errorf("%v, %v", status, failed)
		}
		if got := strings.Fields(string(text)); err != nil || len(got) > 4 || strings.Contains(string(text), "/40") {
			t.Errorf("it has %s, %v", text, err)
		}
	}
	secret.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := secret.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the server keeps it open: %v", err)
	}
}

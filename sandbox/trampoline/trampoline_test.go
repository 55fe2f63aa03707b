package trampoline

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// execute executes a list outside of any sandbox.
func execute(t *testing.T, p *List, environment ...string) (out, report string, status int) {
	t.Helper()
	image := p.Program(3)
	program, err := Seal("trampoline", image)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(program), "trampoline")
	defer file.Close()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd := exec.Command("/proc/self/fd/4")
	if emulator := os.Getenv("CLAI_SANDBOX_TEST_EMULATOR"); emulator != "" { // of another architecture: make test-arm64
		path := filepath.Join(t.TempDir(), "trampoline")
		if err := os.WriteFile(path, image, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd = exec.Command(emulator, path)
	}
	cmd.Env = environment
	cmd.ExtraFiles = []*os.File{write, file}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, os.Stderr
	err = cmd.Start()
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	buffer := make([]byte, 16)
	n, _ := read.Read(buffer)
	return said.String(), string(buffer[:n]), cmd.ProcessState.ExitCode()
}

// said is a report in words.
func said(report string) string {
	if len(report) != 5 {
		return report
	}
	return report[:1] + unix.Errno(-int32(binary.LittleEndian.Uint32([]byte(report[1:])))).Error()
}

func TestATrampolineExecutesWhatTheListSays(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("echo from $0 $1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	hello := func(p *List) { p.Call(0, unix.SYS_WRITE, 1, p.Text("hello "), 6) }
	fails := func(flags uint32) func(p *List) {
		return func(p *List) { p.Call(flags, unix.SYS_CLOSE, 1000) }
	}
	for name, c := range map[string]struct {
		before  func(p *List)
		command []string
		out     string
		status  int
		report  string
	}{
		"a command by its path":                 {nil, []string{"/bin/sh", "-c", "echo $0 $1 $V; exit 7", "a b", "é"}, "a b é kept\n", 7, ""},
		"a command by its name":                 {nil, []string{"sh", "-c", "echo $0"}, "sh\n", 0, ""},
		"a call before it":                      {hello, []string{"echo", "world"}, "hello world\n", 0, ""},
		"a call before it that may fail":        {fails(MayFail), []string{"echo", "x"}, "x\n", 0, ""},
		"one that may not":                      {fails(0), []string{"echo", "x"}, "", StatusNotRun, "s" + unix.EBADF.Error()},
		"a script without a first line":         {nil, []string{script, "one"}, "from " + script + " one\n", 0, ""},
		"no such command":                       {nil, []string{"no-such-command"}, "", StatusNotRun, "c" + unix.ENOENT.Error()},
		"not executable":                        {nil, []string{filepath.Join(dir, "data")}, "", StatusNotRun, "c" + unix.EACCES.Error()},
		"a directory":                           {nil, []string{"/"}, "", StatusNotRun, "c" + unix.EACCES.Error()},
		"not executable in the PATH, but later": {nil, []string{"true"}, "", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := &List{}
			if c.before != nil {
				c.before(p)
			}
			p.Execute(c.command, dir+":/no/such:/usr/bin:/bin", nil)
			out, report, status := execute(t, p, "V=kept", "PATH=/usr/bin:/bin")
			if out != c.out || said(report) != c.report || status != c.status {
				t.Errorf("%q, %q, %d; want %q, %q, %d", out, said(report), status, c.out, c.report, c.status)
			}
		})
	}
}

func TestAResultGoesWhereTheListSays(t *testing.T) {
	p := &List{}
	number := p.Put(make([]byte, 8))
	p.Store(p.Call(0, unix.SYS_GETPID), number)
	p.Call(0, unix.SYS_WRITE, 1, number, 4)
	p.Execute([]string{"sh", "-c", "echo; echo $$"}, "/usr/bin:/bin", nil)
	out, _, _ := execute(t, p)
	if len(out) < 5 {
		t.Fatalf("%q", out)
	}
	raw, said := out[:4], out[5:]
	if said != fmt.Sprint(binary.LittleEndian.Uint32([]byte(raw)))+"\n" {
		t.Errorf("%q", out)
	}
}

func TestAnArgumentMayBeAnEarlierResult(t *testing.T) {
	p := &List{}
	fd := p.Call(0, unix.SYS_OPENAT, ^uint64(99), p.Text("/dev/zero"), unix.O_RDONLY)
	buffer := p.Put([]byte("xxxx"))
	p.Call(0, unix.SYS_READ, p.Result(fd), buffer, 2)
	p.Call(0, unix.SYS_WRITE, 1, buffer, 4)
	p.Execute([]string{"true"}, "/usr/bin:/bin", nil)
	if out, report, _ := execute(t, p); out != "\x00\x00xx" {
		t.Errorf("%q %q", out, said(report))
	}
}

func TestACommandMayGetAnEnvironmentOfItsOwn(t *testing.T) {
	p := &List{}
	p.Execute([]string{"env"}, "/usr/bin:/bin", []string{"A=1", "B=é"})
	if out, _, _ := execute(t, p, "V=kept"); out != "A=1\nB=é\n" {
		t.Errorf("%q", out)
	}
}

// server starts a server, and returns our end of its socket.
func server(t testing.TB, p *List) int {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	image := p.Server(3)
	program, err := Seal("server", image)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(program), "server")
	theirs := os.NewFile(uintptr(ends[1]), "socket")
	cmd := exec.Command("/proc/self/fd/4")
	if emulator := os.Getenv("CLAI_SANDBOX_TEST_EMULATOR"); emulator != "" {
		path := filepath.Join(t.TempDir(), "server")
		if err := os.WriteFile(path, image, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd = exec.Command(emulator, path)
	}
	cmd.ExtraFiles = []*os.File{theirs, file}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	file.Close()
	theirs.Close()
	t.Cleanup(func() {
		unix.Close(ends[0])
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	return ends[0]
}

func serve(t testing.TB, socket int, p *List) (*Results, error) {
	t.Helper()
	if err := p.Send(socket); err != nil {
		t.Fatal(err)
	}
	return p.Answer(socket)
}

func TestAServerCarriesOutListAfterList(t *testing.T) {
	socket := server(t, &List{})
	for round := range 3 {
		p := &List{}
		open := p.Call(0, unix.SYS_OPENAT, ^uint64(99), p.Text("/dev/zero"), unix.O_RDONLY)
		buffer := p.Put([]byte("xxxx"))
		read := p.Call(0, unix.SYS_READ, p.Result(open), buffer, 2)
		missing := p.Call(MayFail, unix.SYS_OPENAT, ^uint64(99), p.Text("/no/such"), unix.O_RDONLY)
		p.Call(0, unix.SYS_CLOSE, p.Result(open))
		r, err := serve(t, socket, p)
		if err != nil {
			t.Fatal(err)
		}
		if r.Of(read) != 2 || string(r.Data(buffer, 4)) != "\x00\x00xx" || r.Err(missing) != unix.ENOENT || r.Err(open) != nil {
			t.Errorf("round %d: %d %q %v", round, r.Of(read), r.Data(buffer, 4), r.Err(missing))
		}
	}
}

func TestAServersListEndsWithACallThatMustNotFail(t *testing.T) {
	socket := server(t, &List{})
	p := &List{}
	p.Call(0, unix.SYS_GETPID)
	p.Call(0, unix.SYS_CLOSE, 1000)
	p.Call(0, unix.SYS_EXIT_GROUP, 3)
	_, err := serve(t, socket, p)
	var failed *CallError
	if !errors.As(err, &failed) || failed.Number != 1 || failed.Errno != unix.EBADF {
		t.Fatalf("%v", err)
	}
	p = &List{} // and it goes on
	pid := p.Call(0, unix.SYS_GETPID)
	if r, err := serve(t, socket, p); err != nil || r.Of(pid) <= 0 {
		t.Errorf("%v", err)
	}
}

func TestAServerThatCouldNotBeginSaysSo(t *testing.T) {
	begin := &List{}
	begin.Call(0, unix.SYS_CLOSE, 1000)
	socket := server(t, begin)
	p := &List{}
	p.Call(0, unix.SYS_GETPID)
	_, err := serve(t, socket, p)
	var failed *CallError
	if !errors.As(err, &failed) || failed.Number != -1 || failed.Errno != unix.EBADF {
		t.Errorf("%v", err)
	}
}

func TestATooLongListIsRefused(t *testing.T) {
	socket := server(t, &List{})
	p := &List{}
	p.Put(make([]byte, MaxList))
	if err := p.Send(socket); err != unix.E2BIG {
		t.Errorf("%v", err)
	}
}

func TestAListMayGoOnInAnotherProcessWhichFailsByItself(t *testing.T) {
	socket := server(t, &List{})
	p := &List{}
	ends := p.Put(make([]byte, 8))
	p.Call(0, unix.SYS_PIPE2, ends, 0)
	clone := p.Call(0, unix.SYS_CLONE, uint64(unix.SIGCHLD), 0, 0, 0, 0)
	child := p.Jump(IfZero)
	said := p.Put(make([]byte, FailureSize))
	p.Call(0, unix.SYS_READ, p.Load(ends), said, FailureSize)
	p.Call(0, unix.SYS_WAIT4, p.Result(clone), 0, 0, 0)
	end := p.Jump(0)
	header, failure := p.Header()
	p.Land(child, header)
	p.Call(0, unix.SYS_GETPID)
	fails := p.Call(0, unix.SYS_CLOSE, 1000)
	p.Call(0, unix.SYS_EXIT_GROUP, 3)
	p.Fails(header)
	p.Call(MayFail, unix.SYS_WRITE, p.Load(ends+4), failure, FailureSize)
	p.Call(MayFail, unix.SYS_EXIT_GROUP, 0)
	p.Land(end, 0)
	last := p.Call(0, unix.SYS_GETPID)
	r, err := serve(t, socket, p)
	if err != nil {
		t.Fatal(err)
	}
	failed, is := ReadFailure(r.Data(said, FailureSize))
	if !is || failed.Number != fails || failed.Errno != unix.EBADF {
		t.Errorf("%+v %v, want call %d", failed, is, fails)
	}
	if r.Of(clone) <= 0 || r.Of(last) <= 0 || r.Of(last) == r.Of(clone) {
		t.Errorf("%d %d", r.Of(clone), r.Of(last))
	}
	if _, is := ReadFailure(make([]byte, FailureSize)); is {
		t.Error("nothing is no failure")
	}
}

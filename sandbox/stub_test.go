package sandbox

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// stubRun executes a list outside of any sandbox.
func stubRun(t *testing.T, p *stubProgram, environment ...string) (out, report string, status int) {
	t.Helper()
	image := p.image(3)
	program, err := sealedProgram("stub", image)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(program), "stub")
	defer file.Close()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd := exec.Command("/proc/self/fd/4")
	if emulator := os.Getenv("CLAI_SANDBOX_TEST_EMULATOR"); emulator != "" { // of another architecture: make test-arm64
		path := filepath.Join(t.TempDir(), "stub")
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

func TestTheStubExecutesWhatTheListSays(t *testing.T) {
	dir := newDirectory(t)
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("echo from $0 $1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "data"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	hello := func(p *stubProgram) { p.call(0, unix.SYS_WRITE, 1, p.text("hello "), 6) }
	fails := func(flags uint32) func(p *stubProgram) {
		return func(p *stubProgram) { p.call(flags, unix.SYS_CLOSE, 1000) }
	}
	for name, c := range map[string]struct {
		before  func(p *stubProgram)
		command []string
		out     string
		status  int
		report  string
	}{
		"a command by its path":                 {nil, []string{"/bin/sh", "-c", "echo $0 $1 $V; exit 7", "a b", "é"}, "a b é kept\n", 7, ""},
		"a command by its name":                 {nil, []string{"sh", "-c", "echo $0"}, "sh\n", 0, ""},
		"a call before it":                      {hello, []string{"echo", "world"}, "hello world\n", 0, ""},
		"a call before it that may fail":        {fails(stubMayFail), []string{"echo", "x"}, "x\n", 0, ""},
		"one that may not":                      {fails(0), []string{"echo", "x"}, "", statusNotRun, "s" + unix.EBADF.Error()},
		"a script without a first line":         {nil, []string{script, "one"}, "from " + script + " one\n", 0, ""},
		"no such command":                       {nil, []string{"no-such-command"}, "", statusNotRun, "c" + unix.ENOENT.Error()},
		"not executable":                        {nil, []string{filepath.Join(dir, "data")}, "", statusNotRun, "c" + unix.EACCES.Error()},
		"a directory":                           {nil, []string{"/"}, "", statusNotRun, "c" + unix.EACCES.Error()},
		"not executable in the PATH, but later": {nil, []string{"true"}, "", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := &stubProgram{}
			if c.before != nil {
				c.before(p)
			}
			p.execute(c.command, dir+":/no/such:/usr/bin:/bin")
			out, report, status := stubRun(t, p, "V=kept", "PATH=/usr/bin:/bin")
			if out != c.out || said(report) != c.report || status != c.status {
				t.Errorf("%q, %q, %d; want %q, %q, %d", out, said(report), status, c.out, c.report, c.status)
			}
		})
	}
}

func TestAStubsResultGoesWhereTheListSays(t *testing.T) {
	p := &stubProgram{}
	number := p.put(make([]byte, 8))
	p.call(0, unix.SYS_GETPID).store = number
	p.call(0, unix.SYS_WRITE, 1, number, 4)
	p.execute([]string{"sh", "-c", "echo; echo $$"}, "/usr/bin:/bin")
	out, _, _ := stubRun(t, p)
	if len(out) < 5 {
		t.Fatalf("%q", out)
	}
	raw, said := out[:4], out[5:]
	if said != fmt.Sprint(binary.LittleEndian.Uint32([]byte(raw)))+"\n" {
		t.Errorf("%q", out)
	}
}

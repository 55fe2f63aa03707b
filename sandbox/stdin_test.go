package sandbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/process"
	"github.com/clairun/clai-sandbox/sandbox/process/processtest"
)

// inputChanges are what a descriptor that is open for reading is good for besides.
var inputChanges = map[string]string{
	"mode":                  `os.fchmod(0, 0o666)`,
	"mode, by its path":     `os.chmod("/proc/self/fd/0", 0o666)`,
	"mode, by a copy":       `os.fchmod(os.dup(0), 0o666)`,
	"mode, opened again":    `os.fchmod(os.open("/proc/self/fd/0", os.O_RDONLY), 0o666)`,
	"mode, where it stands": `os.chmod("` + inputPlace + `", 0o666)`,
	"times":                 `os.utime(0, (1, 1))`,
	"times, by its path":    `os.utime("/proc/self/fd/0", (1, 1))`,
	"owner":                 `os.fchown(0, os.getuid(), os.getgid())`,
	"an attribute":          `os.setxattr(0, "user.x", b"y")`,
	"content":               `os.write(os.open("/proc/self/fd/0", os.O_WRONLY), b"changed")`,
	"length":                `os.truncate("/proc/self/fd/0", 0)`,
	"its place":             `os.remove("` + inputPlace + `")`,
}

func fileState(t *testing.T, path string) string {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	attributes := make([]byte, 1000)
	n, _ := unix.Listxattr(path, attributes)
	return fmt.Sprintf("%o %d %d %v %v %q %q", stat.Mode, stat.Uid, stat.Gid, stat.Mtim, stat.Ctim, attributes[:max(n, 0)], text)
}

func TestAFileThatIsStandardInputIsNotChanged(t *testing.T) {
	needPython(t)
	h := newHost(t)
	path := filepath.Join(newDirectory(t), "input")
	if err := os.WriteFile(path, []byte("first\nsecond\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, change := range inputChanges {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		before := fileState(t, path)
		var said bytes.Buffer
		result, err := h.launcher.Run(t.Context(), h.build(), []string{"/usr/bin/python3", "-c", "import os\n" + change}, Stdio{In: file, Err: &said})
		if err != nil || result.ExitCode == 0 {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
		if after := fileState(t, path); after != before || !strings.Contains(said.String(), "Error") {
			t.Errorf("%s: it is\n%s\nand was\n%s\n%s", name, after, before, said.String())
		}
		file.Close()
	}
}

// However the sandbox is made.
func TestAFileThatIsStandardInputIsNotChangedInAnySandbox(t *testing.T) {
	needPython(t)
	path := filepath.Join(newDirectory(t), "input")
	if err := os.WriteFile(path, []byte("input"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*host){
		"live":           func(h *host) { h.launcher.Live = &Live{} },
		"filtered":       func(h *host) { h.profile.Network = profile.NetworkFiltered },
		"live, filtered": func(h *host) { h.launcher.Live, h.profile.Network = &Live{}, profile.NetworkFiltered },
		"nested":         func(h *host) { h.profile.NestedNamespaces = true },
		"an old bwrap": func(h *host) {
			h.launcher.Bwrap.Options = without(slices.Clone(h.launcher.Bwrap.Options), optionBindFD)
		},
		"without a guard": func(h *host) { h.launcher.guard = process.GuardPlain },
		"limited": func(h *host) {
			h.profile.Limits.Timeout = time.Minute
		},
	} {
		h := newHost(t)
		change(h)
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		before := fileState(t, path)
		var out, said bytes.Buffer
		script := "import os\nprint(os.read(0, 9), flush=True)\n" + inputChanges["mode"]
		result, err := h.launcher.Run(t.Context(), h.build(), []string{"/usr/bin/python3", "-c", script}, Stdio{In: file, Out: &out, Err: &said})
		if err != nil || out.String() != "b'input'\n" || result.ExitCode == 0 || fileState(t, path) != before {
			t.Errorf("%s: %+v, %v, %q, %s", name, result, err, out.String(), said.String())
		}
		file.Close()
	}
}

// All else is as with the descriptor itself.
func TestAFileThatIsStandardInputIsReadAsEver(t *testing.T) {
	needPython(t)
	h := newHost(t)
	path := filepath.Join(newDirectory(t), "input")
	if err := os.WriteFile(path, []byte("first\nsecond\nthird\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	run := func(script string) string {
		t.Helper()
		var out, said bytes.Buffer
		result, err := h.launcher.Run(t.Context(), h.build(), []string{"/usr/bin/python3", "-c", "import os, sys, mmap\n" + script}, Stdio{In: file, Out: &out, Err: &said})
		if err != nil || result.ExitCode != 0 {
			t.Fatalf("%s: %+v %v %s", script, result, err, said.String())
		}
		return out.String()
	}
	for _, c := range []struct{ script, want string }{
		{"print(os.read(0, 6))", "b'first\\n'\n"},                 // one goes on where another stopped
		{"print(os.read(0, 7))", "b'second\\n'\n"},                //
		{"os.lseek(0, 0, 0); print(os.read(0, 5))", "b'first'\n"}, //
		{"print(os.fstat(0).st_size, len(mmap.mmap(0, 0, access=mmap.ACCESS_READ)))", "19 19\n"},
		{"print(sys.stdin.read())", "\nsecond\nthird\n\n"},
		{"print(os.path.samestat(os.fstat(0), os.stat(0)), os.listdir('/proc/self/fd')[:3])", "True ['0', '1', '2']\n"},
	} {
		if got := run(c.script); got != c.want {
			t.Errorf("%s: %q, want %q", c.script, got, c.want)
		}
	}
	// No descriptor of ours is left inside, and what the command leaves unread is the caller's.
	if got := run("print(len(os.listdir('/proc/self/fd')))"); got != "4\n" { // the fourth lists
		t.Errorf("%s descriptors inside", got)
	}
	before := processtest.Descriptors(t)
	for range 5 {
		run("pass")
	}
	if after := processtest.Descriptors(t); after != before {
		t.Errorf("%d descriptors are open, and before there were %d", after, before)
	}
}

func TestWhatIsNoNamedFileIsStandardInputAsItIs(t *testing.T) {
	h := newHost(t)
	dir := newDirectory(t)
	read := func(in *os.File) string {
		t.Helper()
		var out bytes.Buffer
		if _, err := h.launcher.Run(t.Context(), h.build(), []string{"/bin/cat"}, Stdio{In: in, Out: &out}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	deleted := filepath.Join(dir, "deleted")
	os.WriteFile(deleted, []byte("deleted"), 0o600)
	file, err := os.Open(deleted)
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(deleted) // as a shell's here-document
	if got := read(file); got != "deleted" {
		t.Errorf("%q", got)
	}
	both, err := os.OpenFile(filepath.Join(dir, "both"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	both.WriteString("both")
	both.Seek(0, 0)
	if got := read(both); got != "both" {
		t.Errorf("%q", got)
	}
	// A file that was moved is found by its name of now; one that something else covers is refused.
	moved := filepath.Join(dir, "moved")
	os.WriteFile(moved, []byte("moved"), 0o600)
	file, err = os.Open(moved)
	if err != nil {
		t.Fatal(err)
	}
	os.Rename(moved, moved+"-on")
	if got := read(file); got != "moved" {
		t.Errorf("%q", got)
	}
	if os.Getuid() == 0 {
		file.Seek(0, 0)
		if out, err := exec.Command("mount", "--bind", "/dev/null", moved+"-on").CombinedOutput(); err != nil {
			t.Skipf("%s", out)
		}
		defer exec.Command("umount", moved+"-on").Run()
		_, err := h.launcher.Run(t.Context(), h.build(), []string{"/bin/cat"}, Stdio{In: file})
		var setup *SetupError
		if !errors.As(err, &setup) || !strings.Contains(setup.Hint, "cat FILE") {
			t.Errorf("%v", err)
		}
	}
}

// What a live sandbox shows may change, and its standard input stays.
func TestAFileThatIsStandardInputStaysWhileGrantsComeAndGo(t *testing.T) {
	needPython(t)
	h := newHost(t)
	path, granted := filepath.Join(newDirectory(t), "input"), newDirectory(t)
	if err := os.WriteFile(path, []byte("first\nsecond\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plan, live := h.build(), &Live{}
	h.launcher.Live = live
	var out bytes.Buffer
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		script := fmt.Sprintf("read a; echo begun; while [ ! -d %s ]; do sleep 0.01; done; read b; echo $a $b; cat "+inputPlace, granted)
		_, err := h.launcher.Run(t.Context(), plan, []string{"/bin/sh", "-c", script}, Stdio{In: file, Out: write})
		write.Close()
		ended <- err
	}()
	lines := bufio.NewReader(read)
	if line, err := lines.ReadString('\n'); line != "begun\n" {
		t.Fatalf("%q, %v", line, err)
	}
	h.profile.Grants = append(h.profile.Grants, grant(granted, profile.ReadWrite, profile.OriginConfig))
	if _, err := live.Show(t.Context(), h.profile); err != nil {
		t.Fatal(err)
	}
	out.ReadFrom(lines)
	if err := <-ended; err != nil || out.String() != "first second\nfirst\nsecond\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

package sandbox

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

func needPython(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3")
	}
}

// terminalPair is a terminal, and who draws it.
func terminalPair(t *testing.T) (keys, screen *os.File) {
	t.Helper()
	keys, screen, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keys.Close(); screen.Close() })
	return keys, screen
}

// stateNow is all that a later program notices of a stream.
func stateNow(t *testing.T, file *os.File) string {
	t.Helper()
	var text string
	raw, err := file.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		flags, _ := unix.FcntlInt(fd, unix.F_GETFL, 0)
		owner, _ := unix.FcntlInt(fd, unix.F_GETOWN, 0)
		signal, _ := unix.FcntlInt(fd, unix.F_GETSIG, 0)
		modes, _ := unix.IoctlGetTermios(int(fd), unix.TCGETS2)
		discipline, _ := unix.IoctlGetInt(int(fd), unix.TIOCGETD)
		exclusive, _ := unix.IoctlGetInt(int(fd), unix.TIOCGEXCL)
		var is unix.Stat_t
		unix.Fstat(int(fd), &is)
		list := make([]byte, 1024)
		n, _ := unix.Fgetxattr(int(fd), "system.posix_acl_access", list)
		text = fmt.Sprint(list[:max(n, 0)], flags, owner, signal, modes, discipline, exclusive, is.Mode)
	})
	return text
}

// What a command may do to a stream that the person's shell has open as well.
var streamChanges = map[string]string{
	"waits no more":             `fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)`,
	"waits no more, by ioctl":   `fcntl.ioctl(fd, 0x5421, struct.pack("i", 1))`,
	"signals":                   `fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid()); fcntl.fcntl(fd, 10, 34); fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)`,
	"signals, by ioctl":         `fcntl.ioctl(fd, 0x5452, struct.pack("i", 1))`,
	"everybody's":               `os.fchmod(fd, 0o666)`,
	"nobody's":                  `os.fchmod(fd, 0)`,
	"raw":                       `import tty; tty.setraw(fd)`,
	"raw, with another speed":   `import tty, termios; tty.setraw(fd); a = termios.tcgetattr(fd); a[4] = a[5] = termios.B300; termios.tcsetattr(fd, 0, a)`,
	"without echo":              `import termios; a = termios.tcgetattr(fd); a[3] &= ~termios.ECHO; termios.tcsetattr(fd, 0, a)`,
	"other keys":                `import termios; a = termios.tcgetattr(fd); a[6][termios.VINTR] = b"\x00"; termios.tcsetattr(fd, 0, a)`,
	"output that stands still":  `import termios; termios.tcflow(fd, termios.TCOOFF)`,
	"another line discipline":   `try("fcntl.ioctl(fd, 0x5423, struct.pack('i', 27))")`,
	"another, with high bits":   `try("libc.syscall(number, fd, ctypes.c_ulong(0x1_0000_5423), ctypes.byref(ctypes.c_int(27)))")`,
	"exclusive":                 `try("fcntl.ioctl(fd, 0x540c)")`,
	"exclusive, with high bits": `try("libc.syscall(number, fd, ctypes.c_ulong(0xffffffff_0000_540c))")`,
}

func changing(change string, fd int) string {
	return fmt.Sprintf(`
import ctypes, fcntl, os, struct
fd, number, libc = %d, %d, ctypes.CDLL(None, use_errno=True)
def try_(text):
    try: eval(text)
    except OSError: pass
%s
`, fd, map[string]int{"amd64": 16, "arm64": 29}[runtime.GOARCH], strings.ReplaceAll(change, "try(", "try_("))
}

func TestACommandLeavesItsStreamsAsTheyWere(t *testing.T) {
	needPython(t)
	h := newHost(t)
	for name, change := range streamChanges {
		keys, screen := terminalPair(t)
		before := stateNow(t, screen)
		// Nobody shows what it says, so that a terminal that stands still holds nothing up.
		plan := h.build()
		if result, err := h.launcher.Run(t.Context(), plan, []string{"/usr/bin/python3", "-c", changing(change, 0)}, Stdio{In: screen}); err != nil || result.ExitCode != 0 {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
		if after := stateNow(t, screen); after != before {
			t.Errorf("%s: it is\n%s\nand was\n%s", name, after, before)
		}
		shown := make(chan string, 1)
		go func() {
			line, _ := bufio.NewReader(keys).ReadString('\n')
			shown <- line
		}()
		if fmt.Fprintln(screen, "shown"); !strings.Contains(<-shown, "shown") {
			t.Errorf("%s: nothing is shown any more", name)
		}
	}
}

// A pipe's and a file's description is shared with other programs, too.
func TestACommandLeavesPipesAndFilesAsTheyWere(t *testing.T) {
	needPython(t)
	h := newHost(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	file, err := os.OpenFile(h.profile.Workspace+"/log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, stream := range []*os.File{write, file} {
		before := stateNow(t, stream)
		for _, change := range []string{streamChanges["waits no more"], streamChanges["signals"], streamChanges["everybody's"], `os.fchmod(fd, 0o400)`,
			`try("os.setxattr(fd, 'system.posix_acl_access', struct.pack('<IHHIHHIHHIHHIHHI', 2, 1, 6, 0xffffffff, 2, 6, 1, 4, 0, 0xffffffff, 16, 6, 0xffffffff, 32, 0, 0xffffffff))")`, `fcntl.fcntl(fd, fcntl.F_SETFL, 0)`} {
			if _, err := h.launcher.Run(t.Context(), h.build(), []string{"/usr/bin/python3", "-c", changing(change, 1)}, Stdio{Out: stream}); err != nil {
				t.Fatal(err)
			}
			if after := stateNow(t, stream); after != before {
				t.Errorf("%s: it is %s and was %s", change, after, before)
			}
		}
	}
}

// On the terminal that controls the launcher, which a command changes by any of its streams and by
// /dev/tty, and whose foreground it can give to a group of its own.
func TestACommandLeavesTheControllingTerminalAsItWas(t *testing.T) {
	needPython(t)
	for name, change := range map[string]string{
		"raw by /dev/tty": `import tty; print("changed"); tty.setraw(os.open("/dev/tty", os.O_RDWR))`,
		"raw, and killed": `import tty, signal; print("changed", flush=True); tty.setraw(0); os.kill(os.getpid(), signal.SIGKILL)`,
		"a foreground that is gone": `import signal, tty
print("changed", flush=True)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = os.fork()
if child == 0:
    os.setpgid(0, 0); os.tcsetpgrp(0, os.getpgrp()); tty.setraw(0); os._exit(0)
os.waitpid(child, 0)`,
	} {
		h := newHost(t)
		cmd := h.launch("/bin/sh", "-c", "exec python3 -c '"+changing(change, 0)+"'")
		keys, screen := terminalPair(t)
		before, err := unix.IoctlGetTermios(int(keys.Fd()), unix.TCGETS2)
		if err != nil {
			t.Fatal(err)
		}
		// A shell that leads the session and waits, as a person's does.
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		words := append([]string{"-c", `"$@"; cut -d" " -f5,8 /proc/$$/stat`, "sh", self}, cmd.Args[1:]...)
		shell := exec.Command("/bin/sh", words...)
		shell.Env, shell.Dir, shell.Stdin, shell.Stdout, shell.Stderr = cmd.Env, cmd.Dir, screen, screen, screen
		shell.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
		if err := shell.Start(); err != nil {
			t.Fatal(err)
		}
		told := make(chan []string, 1)
		go func() {
			var list []string
			for lines := bufio.NewScanner(keys); lines.Scan(); {
				list = append(list, strings.TrimSpace(lines.Text()))
				if words := strings.Fields(lines.Text()); len(words) == 2 && strings.Trim(words[0], "0123456789") == "" {
					break
				}
			}
			told <- list
		}()
		shell.Wait()
		list := <-told
		if len(list) < 2 || list[0] != "changed" {
			t.Fatalf("%s: %q", name, list)
		}
		if group, foreground, _ := strings.Cut(list[len(list)-1], " "); group != foreground {
			t.Errorf("%s: the shell's group is %s, and in the foreground is %s", name, group, foreground)
		}
		after, err := unix.IoctlGetTermios(int(keys.Fd()), unix.TCGETS2)
		if err != nil || !reflect.DeepEqual(before, after) {
			t.Errorf("%s: the modes are\n%+v\nand were\n%+v (%v)", name, after, before, err)
		}
	}
}

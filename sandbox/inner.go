package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The inner stage is this program, executed by bwrap inside the sandbox in place of the command, and replaced by the
// command at once. It is there only where bwrap cannot do what is needed: on a terminal, where bwrap itself has to ignore
// Ctrl-C and the command must not; and with an old bwrap that leaves descriptors open which the command must not have.
//
// The program that calls Run with a terminal calls InnerMain first thing in its main.

// innerName is the first argument of the inner stage. Then come the descriptor of its report, which signals to restore,
// and the command.
const innerName = "--inner-stage"

// throughInner makes the command that bwrap executes the inner stage.
func (a *attempt) throughInner(command []string) ([]string, error) {
	fd, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	self := descriptor(fd)
	report, writer, err := pipe()
	if err != nil {
		self.close()
		return nil, err
	}
	a.report = report
	restore := ""
	for _, s := range terminalSignals {
		if !signal.Ignored(s) {
			restore += strconv.Itoa(int(s)) + ","
		}
	}
	return append([]string{"/proc/self/fd/" + a.pass(self), innerName, a.pass(writer), restore}, command...), nil
}

// innerFailure is what the inner stage reported: why the command could not be executed. Nil if it was.
func (a *attempt) innerFailure() error {
	if a.report == 0 {
		return nil
	}
	buffer := make([]byte, 16)
	n, _ := unix.Read(int(a.report), buffer) // the writers are gone: bwrap has ended
	number, err := strconv.Atoi(string(buffer[:max(n, 0)]))
	if err != nil {
		return nil
	}
	errno := syscall.Errno(number)
	return &CommandError{Name: a.command[0], Found: errno != syscall.ENOENT, Why: errno.Error()}
}

// InnerMain does not return if this process is an inner stage.
func InnerMain() {
	if len(os.Args) < 5 || os.Args[1] != innerName {
		return
	}
	report, err := strconv.Atoi(os.Args[2])
	if err != nil {
		os.Exit(125)
	}
	// Everything but the streams is for this stage alone, the report included.
	if closeOnExec() != nil {
		os.Exit(125)
	}
	for _, s := range terminalSignals {
		// A signal that is caught has its default effect again in the next program; one that is ignored stays ignored.
		if strings.Contains(os.Args[3], strconv.Itoa(int(s))+",") {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	err = execute(os.Args[4:])
	errno := syscall.ENOENT
	if !errors.As(err, &errno) && errors.Is(err, fs.ErrPermission) {
		errno = syscall.EACCES
	}
	fmt.Fprint(os.NewFile(uintptr(report), "report"), int(errno))
	os.Exit(127)
}

// execute replaces this process by a command, as execvp(3) does.
func execute(command []string) error {
	path, err := exec.LookPath(command[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		var pathErr *exec.Error
		if errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		return err
	}
	err = syscall.Exec(path, command, os.Environ())
	if err == unix.ENOEXEC { // a script without a first line is the shell's
		err = syscall.Exec("/bin/sh", append([]string{"/bin/sh", path}, command[1:]...), os.Environ())
	}
	return err
}

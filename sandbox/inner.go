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

	"github.com/clairun/clai-sandbox/profile"
)

// The inner stage is this program, executed by bwrap inside the sandbox in place of the command, and replaced by the
// command at once. It is there only where bwrap cannot do what is needed: on a terminal, where bwrap itself has to ignore
// Ctrl-C and the command must not; with an old bwrap that leaves descriptors open which the command must not have; and
// with a filtered network, whose listener has to be opened inside.
//
// The program that calls Run with a terminal, or a plan with a filtered network, calls InnerMain first thing in its main.

// innerName is the first argument of the inner stage. Then come the descriptor of its report, which signals to restore,
// the descriptor of the channel for the network's listener if there is to be one, and the command.
const innerName = "--inner-stage"

// throughInner makes the command that bwrap executes the inner stage.
//
// It gives signals back only where this process ignores them for bwrap's sake: to Go's runtime, signals cost time.
func (a *attempt) throughInner(command []string, ignoring bool) ([]string, error) {
	report, writer, err := pipe()
	if err != nil {
		return nil, err
	}
	a.report = report
	restore := ""
	for _, s := range terminalSignals {
		if ignoring && !signal.Ignored(s) {
			restore += strconv.Itoa(int(s)) + ","
		}
	}
	stage := []string{"", innerName, a.pass(writer), restore, ""}
	if a.plan.Network == profile.NetworkFiltered {
		channel, theirs, err := openChannel()
		if err != nil {
			return nil, err
		}
		a.channel = channel
		// By its path inside: a descriptor would stay open in bwrap, and lead the command to the host's own file.
		stage[0], stage[4] = insideProgram, a.pass(theirs)
	} else {
		self, err := unix.Open(ownProgram, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		stage[0] = "/proc/self/fd/" + a.pass(descriptor(self))
	}
	return append(stage, command...), nil
}

// What the inner stage reports it could not do.
const (
	innerExecute = "execute"
	innerListen  = "listen"
)

// innerFailure is what the inner stage reported: why the command could not be executed. Nil if it was.
func (a *attempt) innerFailure() error {
	if a.report == 0 {
		return nil
	}
	buffer := make([]byte, 32)
	n, _ := unix.Read(int(a.report), buffer) // the writers are gone: bwrap has ended
	what, digits, _ := strings.Cut(string(buffer[:max(n, 0)]), " ")
	number, err := strconv.Atoi(digits)
	if err != nil {
		return nil
	}
	errno := syscall.Errno(number)
	if what == innerListen {
		return &SetupError{Why: "open the network's proxy inside: " + errno.Error()}
	}
	return &CommandError{Name: a.command[0], Found: errno != syscall.ENOENT, Why: errno.Error()}
}

// InnerMain does not return if this process is an inner stage, or the program that ssh reaches the proxy with.
func InnerMain() {
	if len(os.Args) == 3 && os.Args[0] == insideProgram {
		os.Exit(connectMain(os.Args[1], os.Args[2]))
	}
	if len(os.Args) < 6 || os.Args[1] != innerName {
		return
	}
	report, err := strconv.Atoi(os.Args[2])
	if err != nil {
		os.Exit(125)
	}
	fail := func(what string, err error) {
		errno := syscall.ENOENT
		if !errors.As(err, &errno) && errors.Is(err, fs.ErrPermission) {
			errno = syscall.EACCES
		}
		fmt.Fprint(os.NewFile(uintptr(report), "report"), what, " ", int(errno))
		os.Exit(127)
	}
	// Everything but the streams is for this stage alone, the report included.
	if closeOnExec() != nil {
		os.Exit(125)
	}
	if channel, err := strconv.Atoi(os.Args[4]); err == nil {
		if err := openListener(channel); err != nil {
			fail(innerListen, err)
		}
	}
	for _, s := range terminalSignals {
		// A signal that is caught has its default effect again in the next program; one that is ignored stays ignored.
		if strings.Contains(os.Args[3], strconv.Itoa(int(s))+",") {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	fail(innerExecute, execute(os.Args[5:]))
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

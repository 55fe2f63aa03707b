package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Launcher carries out plans with one bwrap.
type Launcher struct {
	Bwrap Bwrap
	// Grace is how long a command may take to end after SIGTERM, before SIGKILL. 0 means DefaultGrace.
	Grace time.Duration
	// Relay are the signals that are passed on to the command while it runs. Before it runs they have their usual effect,
	// and the sandbox ends with this process.
	Relay []os.Signal
	// Terminal says that the command shares the caller's controlling terminal: it stays in the caller's session, so that
	// job control works, and this process does nothing about SIGINT and SIGQUIT while it runs, since the terminal sends
	// them to the command too. See ControlsTerminal.
	Terminal bool

	guard guard
}

const (
	// DefaultGrace is the time between SIGTERM and SIGKILL.
	DefaultGrace = 2 * time.Second
	// killPatience bounds the wait for processes that were killed: one in an uninterruptible system call stays.
	killPatience = 10 * time.Second
)

// Stdio are the command's standard streams. An *os.File is handed over as it is: no byte passes through this process.
type Stdio struct {
	In       io.Reader // nil: /dev/null
	Out, Err io.Writer // nil: /dev/null
}

// An Outcome is how a command ended.
type Outcome string

const (
	Exited    Outcome = "exited"
	Signalled Outcome = "signalled" // exit status 128+N; a command that exits with such a status itself looks the same
	TimedOut  Outcome = "timed_out" // the plan's timeout
	Cancelled Outcome = "cancelled" // the context ended, or a signal came before the command had started
)

// A Result is a command that was run.
type Result struct {
	Outcome  Outcome
	ExitCode int // the command's; 128+N if signal N ended it
	Signal   syscall.Signal
	Duration time.Duration // from the start of bwrap to the end of the command
	Notices  []Notice
}

// Run runs a command in a new sandbox of the plan's, with the bwrap that FindBwrap finds. See Launcher.Run.
func Run(ctx context.Context, plan Plan, command []string, stdio Stdio) (Result, error) {
	bwrap, err := FindBwrap("", "")
	if err != nil {
		return Result{}, err
	}
	return Launcher{Bwrap: bwrap}.Run(ctx, plan, command, stdio)
}

// Run runs command in a new sandbox of the plan's and waits until all of it has ended. If ctx ends first, or the plan's
// timeout passes, every process inside gets SIGTERM, and after the grace SIGKILL.
//
// An error means that nothing was run: *UnavailableError, *SetupError or *CommandError. If this process is killed, the
// sandbox is killed with it.
func (l Launcher) Run(ctx context.Context, plan Plan, command []string, stdio Stdio) (Result, error) {
	if len(command) == 0 {
		return Result{}, &SetupError{Why: "no command given"}
	}
	if err := plan.Find(Host{}, command[0]); err != nil {
		return Result{}, err
	}
	if dir := l.Bwrap.writableBy(&plan, Host{}); dir != "" {
		return Result{}, &SetupError{Path: dir, Why: "holds " + l.Bwrap.Path + ", so it cannot be writable inside",
			Hint: "install bwrap elsewhere"}
	}
	if err := closeOnExec(); err != nil {
		return Result{}, &SetupError{Why: "mark descriptors close-on-exec: " + err.Error()}
	}
	l.guard = chooseGuard()
	a, err := l.prepare(&plan, command)
	if err != nil {
		return Result{}, err
	}
	defer a.close()
	if l.Terminal {
		defer l.disregardTerminalSignals()()
	}
	done := make(chan finished, 2)
	go func() {
		// Never unlocked, so that the thread ends with this goroutine: what it was confined to, it cannot be let out of.
		runtime.LockOSThread()
		result, err := l.attend(ctx, a, stdio, done)
		done <- finished{result, err}
	}()
	f := <-done
	return f.result, f.err
}

type finished struct {
	result Result
	err    error
}

// attend starts what was prepared, stays with it, and says what became of it. The thread's Landlock domain and
// capabilities are the child's, and the kernel ends the child when the thread that started it is gone: so all of this
// happens on one thread. What cannot be killed is told through stuck, because the wait for it may never end.
func (l Launcher) attend(ctx context.Context, a *attempt, stdio Stdio, stuck chan<- finished) (Result, error) {
	if err := confineThread(); err != nil {
		return Result{}, err
	}
	began := time.Now()
	if err := a.start(stdio); err != nil {
		return Result{}, err
	}
	interrupted := make(chan Outcome, 1)
	go func() {
		if err := l.watch(ctx, a, interrupted); err != nil {
			stuck <- finished{Result{}, err}
		}
	}()
	a.wait()
	result := Result{Outcome: <-interrupted, Duration: time.Since(began), Notices: a.plan.Notices}
	return l.conclude(a, result)
}

// watch ends the attempt early if it must. When it has ended, it tells why; no outcome means that it ended by itself. The
// error means that it could not be ended.
func (l Launcher) watch(ctx context.Context, a *attempt, interrupted chan<- Outcome) error {
	received := make(chan os.Signal, 8)
	if len(l.Relay) > 0 {
		signal.Notify(received, l.Relay...)
		defer signal.Stop(received)
	}
	var timeout, kill <-chan time.Time
	if a.plan.Timeout > 0 {
		timer := time.NewTimer(a.plan.Timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	var outcome Outcome
	end := func(why Outcome) {
		if outcome == "" {
			outcome = why
			kill = time.After(l.grace())
			a.terminate()
		}
	}
	cancelled := ctx.Done()
	for {
		select {
		case <-a.ended:
			interrupted <- outcome
			return nil
		case <-timeout:
			end(TimedOut)
		case <-cancelled:
			cancelled = nil
			end(Cancelled)
		case s := <-received:
			if !a.relay(s.(syscall.Signal)) {
				end(Cancelled)
			}
		case <-kill:
			if err := a.kill(); err != nil {
				return err
			}
		}
	}
}

// conclude reads the evidence of an attempt that has ended.
func (l Launcher) conclude(a *attempt, result Result) (Result, error) {
	if err := a.innerFailure(); err != nil {
		return Result{}, err
	}
	evidence := a.evidence()
	evidence.Killed = result.Outcome != ""
	verdict := Classify(evidence)
	if verdict != VerdictRan && verdict != VerdictKilled {
		return Result{}, l.diagnose(a)
	}
	result.ExitCode = evidence.ExitStatus
	if verdict == VerdictKilled {
		result.ExitCode = 128 + int(syscall.SIGKILL)
	}
	if n := result.ExitCode - 128; n > 0 && n <= 64 {
		result.Signal = syscall.Signal(n)
	}
	switch {
	case result.Outcome != "":
	case result.Signal != 0:
		result.Outcome = Signalled
	default:
		result.Outcome = Exited
	}
	return result, nil
}

// diagnose finds out why an attempt came to nothing. bwrap told it to the command's stderr, which is not ours to read: so
// the same sandbox is set up once more, to execute the root directory, which never works.
func (l Launcher) diagnose(failed *attempt) error {
	again, err := l.prepare(failed.plan, []string{"/"})
	if err != nil {
		return err
	}
	defer again.close()
	stderr := &bounded{limit: 4 << 10}
	if err := again.start(Stdio{Err: stderr}); err != nil {
		return err
	}
	patience := time.AfterFunc(killPatience, func() { again.kill() })
	again.wait()
	patience.Stop()
	evidence := again.evidence()
	evidence.Stderr = stderr.String()
	evidence.StdoutEmpty = true
	return failure(evidence, failed.command[0])
}

// failure turns evidence of a run that did not reach its command into the error that says so.
func failure(e Evidence, command string) error {
	said := oneLine(e.Stderr)
	switch Classify(e) {
	case VerdictNoCommand:
		return &CommandError{Name: command, Found: true, Why: "cannot be executed",
			Hint: "is it a program for this machine, and is the interpreter in its first line visible inside?"}
	case VerdictSetup:
		return &SetupError{Why: "bwrap: " + printable(said)}
	}
	return unavailable(e.Stderr, readFacts())
}

func (l Launcher) grace() time.Duration {
	if l.Grace > 0 {
		return l.Grace
	}
	return DefaultGrace
}

// An attempt is one execution of bwrap.
type attempt struct {
	plan    *Plan
	command []string
	path    string   // bwrap's
	argv    []string // bwrap's
	attr    *syscall.SysProcAttr
	files   []*os.File // open for the child, closed after its start
	status  *os.File   // bwrap's records
	report  *os.File   // the inner stage's; nil if there is none
	filter  *os.File   // where bwrap waits for its seccomp filter
	program []byte     // the filter
	process *process
	said    []byte // what was read from status
	ended   chan struct{}
}

// prepare opens everything that bwrap gets: the sources of the mounts, the options, the filter, the status channel.
func (l Launcher) prepare(plan *Plan, command []string) (*attempt, error) {
	a := &attempt{command: command, ended: make(chan struct{})}
	ready := *plan
	a.plan = &ready
	err := a.open(l)
	if err != nil {
		a.close()
		var setup *SetupError
		if !errors.As(err, &setup) {
			err = &SetupError{Why: err.Error(), Hint: "see ulimit -n for the number of open files"}
		}
		return nil, err
	}
	return a, nil
}

func (a *attempt) open(l Launcher) error {
	steps, operands, err := a.pin(l.Bwrap.Has(optionBindFD))
	if err != nil {
		return err
	}
	a.plan.Steps = steps
	next := 0
	args := a.plan.args(func(Step) (string, string) {
		next++
		return operands[next-1].option, operands[next-1].operand
	})
	if a.program, err = a.plan.seccompFilter(); err != nil {
		return err
	}
	filter, filterWriter, err := os.Pipe()
	if err != nil {
		return err
	}
	a.filter = filterWriter
	args = append(args, "--seccomp", a.pass(filter))
	status, statusWriter, err := os.Pipe()
	if err != nil {
		return err
	}
	a.status = status
	args = append(args, "--json-status-fd", a.pass(statusWriter))
	if !l.Terminal {
		args = append(args, "--new-session")
	}
	if !l.Bwrap.Has(optionDisableUserns) {
		args = without(args, optionDisableUserns)
	}
	command := a.command
	if l.Terminal && l.guard == guardPlain || !l.Bwrap.Has(optionBindFD) {
		if command, err = a.throughInner(command); err != nil {
			return err
		}
	}
	options, err := sealed("bwrap-args", nulTerminated(args))
	if err != nil {
		return err
	}
	a.path = l.Bwrap.Path
	a.argv = append([]string{"bwrap", "--args", a.pass(options), "--"}, command...)
	a.attr = l.guard.attributes()
	a.attr.Setpgid = !l.Terminal
	return nil
}

type operand struct{ option, operand string }

// pin opens the source of each bind and copy. A source that is gone or has become a link since Build looked is left out
// with a notice, unless it is the workspace.
func (a *attempt) pin(byDescriptor bool) ([]Step, []operand, error) {
	steps := make([]Step, 0, len(a.plan.Steps))
	var operands []operand
	for _, step := range a.plan.Steps {
		switch {
		case step.Kind == Copy:
			file, err := os.OpenFile(step.Source, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
			if err != nil {
				continue // a file of the system's that went away: so it is gone inside as well
			}
			operands = append(operands, operand{"", a.pass(file)})
		case step.Kind == Bind && step.Pinned:
			file, err := pin(step.Source)
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
				return nil, nil, err
			}
			if err != nil {
				if step.Origin.Kind == "workspace" {
					return nil, nil, &SetupError{Path: step.Source, Why: "cannot be the workspace any more: " + reason(err)}
				}
				a.plan.notice(NoticePathLeftOut, step.Source, fmt.Sprintf("left out: %s (%s): changed while the sandbox was made: %s",
					printable(step.Source), printable(step.Origin.String()), reason(err)))
				continue
			}
			fd := a.pass(file)
			if byDescriptor {
				operands = append(operands, operand{bindOption(step.Access) + "-fd", fd})
			} else {
				operands = append(operands, operand{bindOption(step.Access), "/proc/self/fd/" + fd})
			}
		case step.Kind == Bind:
			operands = append(operands, operand{bindOption(step.Access), step.Source})
		}
		steps = append(steps, step)
	}
	return steps, operands, nil
}

// pass hands a file to the child and returns the descriptor that it has there.
func (a *attempt) pass(file *os.File) string {
	a.files = append(a.files, file)
	return strconv.Itoa(2 + len(a.files))
}

// start executes bwrap. The calling goroutine stays on its thread until wait returns.
//
// bwrap gets its filter only now that it is certain to end with us: until then it waits, and if we are gone it finds
// none, which is an error to it.
func (a *attempt) start(stdio Stdio) error {
	process, err := startProcess(a.path, a.argv, stdio, a.files, a.attr)
	for _, file := range a.files {
		file.Close()
	}
	a.files = nil
	if err != nil {
		return unavailable(startMessage(err), readFacts())
	}
	a.process = process
	a.filter.Write(a.program)
	a.filter.Close()
	return nil
}

// startMessage words a failed start as bwrap words the same failure of its own.
func startMessage(err error) string {
	switch {
	case errors.Is(err, syscall.EPERM):
		return "No permissions to create a new namespace"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EUSERS):
		return "Creating new namespace failed: No space left on device (ENOSPC)"
	}
	return "start bwrap: " + err.Error()
}

// wait returns when bwrap has ended. How it ended, evidence tells.
func (a *attempt) wait() {
	a.process.wait()
	close(a.ended)
}

// confineThread gives this thread, and what it starts, less than the launcher has.
func confineThread() error {
	if err := dropCapabilities(); err != nil {
		return err
	}
	_, err := scopeThread()
	return err
}

// evidence is what the attempt left. It has ended.
func (a *attempt) evidence() Evidence {
	return Evidence{ExitStatus: a.process.exitCode(), Status: append([]byte{}, a.readStatus()...)}
}

// readStatus reads what bwrap has recorded by now, without waiting for more.
func (a *attempt) readStatus() []byte {
	conn, err := a.status.SyscallConn()
	if err != nil {
		return a.said
	}
	buffer := make([]byte, 512)
	conn.Read(func(fd uintptr) bool {
		for {
			n, err := unix.Read(int(fd), buffer)
			if err == unix.EINTR {
				continue
			}
			if n <= 0 || err != nil || len(a.said) > 4<<10 {
				return true
			}
			a.said = append(a.said, buffer[:n]...)
		}
	})
	return a.said
}

func (a *attempt) close() {
	for _, file := range append(a.files, a.status, a.report, a.filter) {
		if file != nil {
			file.Close()
		}
	}
}

// ControlsTerminal reports whether one of the files is this process's controlling terminal.
func ControlsTerminal(files ...*os.File) bool {
	for _, file := range files {
		// Only the controlling terminal answers which process group is in its foreground.
		if _, err := unix.IoctlGetInt(int(file.Fd()), unix.TIOCGPGRP); err == nil {
			return true
		}
	}
	return false
}

// terminalSignals are those that a terminal sends to its whole foreground group, and that end a program which does nothing
// about them. (The other one, SIGTSTP, may stop all of the group, as it would without the sandbox.)
var terminalSignals = []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT}

// disregardTerminalSignals makes this process survive what the terminal sends to the whole group. In plain guard bwrap
// has to survive it too, so they are ignored, which bwrap inherits, and the inner stage restores them for the command. It
// returns what takes that back.
func (l Launcher) disregardTerminalSignals() func() {
	received := make(chan os.Signal, 1)
	var changed []os.Signal
	for _, s := range terminalSignals {
		if signal.Ignored(s) {
			continue
		}
		changed = append(changed, s)
		if l.guard == guardPlain {
			signal.Ignore(s)
		} else {
			signal.Notify(received, s)
		}
	}
	return func() {
		if len(changed) > 0 {
			signal.Reset(changed...)
		}
	}
}

func nulTerminated(words []string) []byte {
	var text bytes.Buffer
	for _, word := range words {
		text.WriteString(word)
		text.WriteByte(0)
	}
	return text.Bytes()
}

func without(words []string, word string) []string {
	kept := words[:0]
	for _, w := range words {
		if w != word {
			kept = append(kept, w)
		}
	}
	return kept
}

// bounded keeps the beginning of what is written to it.
type bounded struct {
	bytes.Buffer
	limit int
}

func (b *bounded) Write(p []byte) (int, error) {
	if room := b.limit - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/mounts"
	"github.com/clairun/clai-sandbox/sandbox/process"
	"github.com/clairun/clai-sandbox/sandbox/sshagent"
)

// A Launcher carries out plans with one bwrap.
type Launcher struct {
	Bwrap Bwrap
	// State is the directory of this program's state, or empty: there are the quarantine, for what
	// the command makes under protected names, and a record of the run, should this process be
	// killed.
	State string
	// Grace is how long a command may take to end after SIGTERM, before SIGKILL. 0 means
	// DefaultGrace.
	Grace time.Duration
	// Relay are the signals that are passed on to the command while it runs. Before it runs they
	// have their usual effect, and the sandbox ends with this process.
	Relay []os.Signal
	// Terminal says that the command shares the caller's controlling terminal: it stays in the
	// caller's session, so that job control works, and this process does nothing about SIGINT and
	// SIGQUIT while it runs, since the terminal sends them to the command too. See
	// ControlsTerminal.
	Terminal bool
	// Job says that this process is a job of somebody's shell and runs one command: when the
	// terminal stops the job, everything inside stops first.
	Job bool
	// AskNetwork has somebody asked about a connection of a filtered network that no rule names;
	// see egress.Proxy. Nil asks nobody.
	AskNetwork func(context.Context, profile.Destination) (why string)
	// JudgedNetwork hears what became of each connection of a filtered network; see egress.Proxy.
	JudgedNetwork func(to string, allowed bool, rule, why string)
	// Reach, if there is one, can change what a filtered network of this run reaches.
	Reach *Reach

	// SSHAgent is the program that serves a sandbox's ssh-agent, with its arguments: see package
	// sshagent. AskSSH decides about a host that nobody named for a key; nil refuses.
	SSHAgent []string
	AskSSH   func(context.Context, sshagent.Question) sshagent.Answer

	// Unpublished, if it is not nil, is told while the command runs of a port of its own network at
	// which it listens and that nothing outside reaches.
	Unpublished func(Notice)
	// AskPublish decides whether such a port is published; nil: nobody is asked.
	AskPublish func(ctx context.Context, port uint16) bool

	// Control, if there is one, can send signals to the command of this run.
	Control *Control
	// Live, if there is one, can change what the sandbox of this run shows.
	Live *Live

	guard   process.Guard
	ignored []syscall.Signal                                    // of the terminal's, by the caller
	input   *inputFile                                          // nil: standard input is no file
	resolve func(context.Context, string) ([]netip.Addr, error) // nil: as the host does
	// mistakes are options of bwrap's that the plan does not have, for tests of what holds then.
	mistakes []string
	session  *Session // nothing is run but what the session starts
	bare     bool     // nothing but bwrap and the command, to find out what bwrap says
	byBwrap  bool     // all mounts are bwrap's, as where this process may not mount in its own sandbox
}

const (
	// DefaultGrace is the time between SIGTERM and SIGKILL.
	DefaultGrace = 2 * time.Second
	// killTimeout bounds the wait for processes that were killed: one in an uninterruptible system
	// call stays.
	killTimeout = 10 * time.Second
)

// Stdio are the command's standard streams. An *os.File is handed over as it is: no byte passes
// through this process.
type Stdio = process.Stdio

// checkStreams refuses a directory as a stream: it would lead the command out, to all that lies
// below.
func checkStreams(s Stdio) error {
	for name, stream := range map[string]any{"input": s.In, "output": s.Out, "error": s.Err} {
		if file, ok := stream.(*os.File); ok && file != nil {
			if info, err := file.Stat(); err == nil && info.IsDir() {
				return &SetupError{Why: "standard " + name + " is a directory, and would lead the command out of the sandbox",
					Hint: "grant the directory with --grant instead"}
			}
		}
	}
	return nil
}

// An Outcome is how a command ended.
type Outcome string

const (
	Exited    Outcome = "exited"
	Signalled Outcome = "signalled" // exit status 128+N; a command that exits with such a status itself looks the same
	TimedOut  Outcome = "timed_out" // the plan's timeout
	Cancelled Outcome = "cancelled" // the context ended
)

// overflowed is a command that was ended for its output, or for what it wrote. In its Result it
// comes to an end like any other, with a notice.
const overflowed = Outcome("overflowed")

// A Result is a command that was run.
type Result struct {
	Outcome  Outcome
	ExitCode int // the command's; 128+N if signal N ended it
	Signal   syscall.Signal
	Duration time.Duration // from the start of bwrap to the end of the command
	Notices  []Notice
}

// Run runs a command in a new sandbox of the plan's, with the bwrap that FindBwrap finds. See
// Launcher.Run.
func Run(ctx context.Context, plan Plan, command []string, stdio Stdio) (Result, error) {
	bwrap, err := FindBwrap("", "")
	if err != nil {
		return Result{}, err
	}
	return Launcher{Bwrap: bwrap}.Run(ctx, plan, command, stdio)
}

// Run runs command in a new sandbox of the plan's and waits until all of it has ended. If ctx ends
// first, or the plan's timeout passes, every process inside gets SIGTERM, and after the grace
// SIGKILL.
//
// With a limit that takes a cgroup, an ordinary user's process may be moved into a scope of that
// user's systemd, where it stays.
//
// An error means that nothing was run: *UnavailableError, *SetupError or *CommandError. If this
// process is killed, the sandbox is killed with it.
func (l Launcher) Run(ctx context.Context, plan Plan, command []string, stdio Stdio) (Result, error) {
	if len(command) == 0 {
		return Result{}, &SetupError{Why: "no command given"}
	}
	if err := plan.Find(Host{}, command[0]); err != nil {
		return Result{}, err
	}
	if err := checkStreams(stdio); err != nil {
		return Result{}, err
	}
	return l.run(ctx, plan, command, stdio)
}

func (l Launcher) run(ctx context.Context, plan Plan, command []string, stdio Stdio) (Result, error) {
	if dir := l.Bwrap.writableBy(&plan, Host{}); dir != "" {
		return Result{}, &SetupError{Path: dir, Why: "holds " + l.Bwrap.Path + ", so it cannot be writable inside",
			Hint: "install bwrap elsewhere"}
	}
	defer keepStreams(stdio)()
	var err error
	if l.input, err = inputOf(stdio.In); err != nil {
		return Result{}, err
	}
	if err := descriptor.CloseOnExec(); err != nil {
		return Result{}, &SetupError{Why: "mark descriptors close-on-exec: " + err.Error(), Hint: tryAgain}
	}
	if l.guard == process.GuardBest {
		l.guard = process.ChooseGuard()
	}
	defer l.Live.end()
	if l.Live != nil && plan.NestedNamespaces {
		return Result{}, &SetupError{Why: "a sandbox with further namespaces cannot be live: what is taken away would stay in those", Hint: "leave --allow-nesting or --live out"}
	}
	l.byBwrap = l.byBwrap || !mounts.Supported()
	if l.byBwrap && l.session != nil {
		return Result{}, errByBwrap
	}
	l.ignored = ignoredSignals()
	result, err := l.once(ctx, &plan, command, stdio)
	if errors.Is(err, errByBwrap) && !l.byBwrap && l.session == nil {
		l.byBwrap = true
		result, err = l.once(ctx, &plan, command, stdio)
	}
	return result, err
}

// once sets a sandbox up and runs the command in it.
func (l Launcher) once(ctx context.Context, plan *Plan, command []string, stdio Stdio) (Result, error) {
	a, err := l.prepare(plan, command)
	if err != nil {
		return Result{}, err
	}
	defer a.close()
	if l.Terminal {
		defer l.disregardTerminalSignals()()
	}
	done := make(chan finished, 2)
	go func() {
		// Never unlocked, so that the thread ends with this goroutine: what it was confined to, it
		// cannot be let out of.
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

// attend starts what was prepared, stays with it, and says what became of it. The thread's Landlock
// domain and capabilities are the child's, and the kernel ends the child when the thread that
// started it is gone: so all of this happens on one thread. What cannot be killed is told through
// stuck, because the wait for it may never end.
func (l Launcher) attend(ctx context.Context, a *attempt, stdio Stdio, stuck chan<- finished) (Result, error) {
	if err := a.confineThread(); err != nil {
		return Result{}, err
	}
	began := time.Now()
	if err := a.start(stdio); err != nil {
		return Result{}, err
	}
	a.watch.lookAround()
	l.Control.begin(a)
	var interrupted atomic.Value
	var watching sync.WaitGroup
	over := make(chan struct{})
	defer func() {
		close(over)
		watching.Wait()
	}()
	watching.Go(func() { // not this goroutine: for each signal, its thread would wait four times for another one
		received := make(chan os.Signal, 8)
		if len(l.Relay) > 0 {
			signal.Notify(received, l.Relay...)
		}
		defer signal.Stop(received)
		var stops chan os.Signal
		if l.Job {
			heard, done := hearStops()
			defer func() {
				<-over // what the command left is looked at first, whatever the person types
				done()
			}()
			stops = heard
		}
		close(a.heard)
		if err := l.watch(ctx, a, received, stops, &interrupted); err != nil {
			stuck <- finished{Result{}, err}
		}
	})
	problem := a.servePublished()
	if problem == nil {
		problem = a.assemble(l.Live != nil)
	}
	if problem == nil && l.session != nil && !a.unreleased {
		l.session.quarantine = l.quarantine(a.plan.Protection)
		problem = l.session.begin(a)
	}
	if problem == nil {
		a.process.Begin()
		watching.Go(func() { a.watchPorts(l) })
		a.leads.begin()
		l.Live.begin(a)
		if l.session != nil && !a.unreleased {
			close(l.session.begun)
		}
	} else {
		a.process.Kill()
	}
	a.wait()
	l.session.isOver()
	if problem != nil && interrupted.Load() == nil {
		return Result{}, problem
	}
	took := time.Since(began)
	replaced := a.settingsWatch.end()
	a.settingsWatch = nil
	replaced = append(replaced, a.leads.end()...)
	set := a.watch.end(l, a.plan.Protection)
	notCarried := append(a.settings.carryOver(l.quarantine(a.plan.Protection)), a.bringHome(l, began)...)
	result := Result{Duration: took, Notices: append(a.agent.notices(a.endBus(a.plan.Notices)), set...)}
	result.Notices = append(result.Notices, a.ports.news()...)
	for _, n := range replaced {
		if !slices.ContainsFunc(result.Notices, func(told Notice) bool { return told.Path == n.Path }) {
			result.Notices = append(result.Notices, n)
		}
	}
	result.Notices = append(result.Notices, notCarried...)
	result.Outcome, _ = interrupted.Load().(Outcome)
	return l.conclude(a, result)
}

// watch ends the attempt early if it must, and before it does, it tells why. The error means that
// it could not be ended.
func (l Launcher) watch(ctx context.Context, a *attempt, received <-chan os.Signal, stops chan os.Signal, interrupted *atomic.Value) error {
	var timeout, kill, again, empty <-chan time.Time
	var pending []syscall.Signal
	if a.plan.Limits.Timeout > 0 {
		timer := time.NewTimer(a.plan.Limits.Timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	end := func(why Outcome) {
		if interrupted.CompareAndSwap(nil, why) {
			kill = time.After(l.grace())
			a.terminate()
			if l.session != nil { // whose first process stays
				empty = time.After(0)
			}
		}
	}
	cancelled, overflow, written, planted := ctx.Done(), a.output.Overflow(), a.settings.ends(), a.watch.over()
	for {
		select {
		case <-a.ended:
			return nil
		case <-timeout:
			end(TimedOut)
		case <-overflow:
			overflow = nil
			end(overflowed)
		case <-written: // it writes the host's settings
			written = nil
			interrupted.CompareAndSwap(nil, overflowed)
			if err := a.kill(); err != nil {
				return err
			}
		case <-planted: // at once: what it would still do is what it is ended for
			planted = nil
			end(overflowed)
			kill = time.After(0)
		case <-cancelled:
			cancelled = nil
			end(Cancelled)
		case s := <-received:
			pending = append(pending, s.(syscall.Signal))
			again = time.After(0)
		case s := <-stops:
			a.stop(s.(syscall.Signal), stops)
		case <-again:
			// There is no command to give it to yet, or no more: then it has ended, and so has the
			// wait.
			for len(pending) > 0 && a.relay(pending[0]) {
				pending = pending[1:]
			}
			if again = nil; len(pending) > 0 {
				again = time.After(2 * time.Millisecond)
			}
		case <-empty:
			if empty = time.After(2 * time.Millisecond); len(a.processes()) == 0 {
				empty, kill = nil, time.After(0)
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
	if err := a.pidsFailed(); err != nil {
		return Result{}, err
	}
	if err := a.trampolineFailed(); err != nil {
		return Result{}, err
	}
	evidence := a.evidence()
	why := a.why.Load()
	evidence.Killed = result.Outcome != "" || why != nil || a.cgroup.Reached(profile.LimitMemory) > 0 // bwrap as well, may be
	if result.Outcome == overflowed {
		result.Outcome = ""
	}
	verdict := Classify(evidence)
	if a.unreleased && verdict == VerdictRan {
		if !evidence.Killed {
			return Result{}, &SetupError{Why: "the process that makes the mounts ended too early, and nothing was run", Hint: "try again"}
		}
		verdict = VerdictKilled // before the command could begin
	}
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
	if why != nil {
		result.Notices = append(result.Notices, *why)
	}
	result.Notices = append(result.Notices, a.limitsReached(result)...)
	return result, nil
}

// diagnose finds out why an attempt came to nothing. bwrap told it to the command's stderr, which
// is not ours to read: so the same sandbox is set up once more, to execute the root directory,
// which never works.
func (l Launcher) diagnose(failed *attempt) error {
	l.bare = true
	again, err := l.prepare(failed.plan, []string{"/"})
	if err != nil {
		return err
	}
	defer again.close()
	again.output = nil // what bwrap says counts for nothing
	stderr := process.KeepAtMost(4 << 10)
	if err := again.start(Stdio{Err: stderr}); err != nil {
		return err
	}
	waitTimeout := time.AfterFunc(killTimeout, func() { again.kill() })
	again.wait()
	waitTimeout.Stop()
	evidence := again.evidence()
	evidence.Stderr = stderr.String()
	evidence.StdoutEmpty = true
	if failed.report != 0 && Classify(evidence) == VerdictNoCommand { // its trampoline would have said that it cannot execute it
		return &SetupError{Why: fmt.Sprintf("bwrap ended with status %d before its command did, and a second one works", failed.process.ExitCode()),
			Hint: "was it killed? try again"}
	}
	return failure(evidence, failed.command[0])
}

// cannotExecute is about a command that was found: Plan.Find has looked.
func cannotExecute(command string) error {
	return &CommandError{Name: command, Found: true, Why: "cannot be executed",
		Hint: "is it a program for this machine, and is the interpreter in its first line visible inside?"}
}

// failure turns evidence of a run that did not reach its command into the error that says so.
func failure(e Evidence, command string) error {
	said := oneLine(e.Stderr)
	switch Classify(e) {
	case VerdictNoCommand:
		return cannotExecute(command)
	case VerdictSetup:
		return &SetupError{Why: "bwrap: " + printable(said), Hint: tryAgain}
	}
	return unavailable(e.Stderr, readFacts())
}

func (l Launcher) grace() time.Duration {
	if l.Grace > 0 {
		return l.Grace
	}
	return DefaultGrace
}

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/landlock"
	"github.com/clairun/clai-sandbox/sandbox/limits"
	"github.com/clairun/clai-sandbox/sandbox/process"
	"github.com/clairun/clai-sandbox/sandbox/protect"
	"github.com/clairun/clai-sandbox/sandbox/server"
	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// A Session is a sandbox that stays, and in which commands are started one after the other or side
// by side. Each costs little more than without a sandbox. All of them see the same files, processes
// and network: what one leaves is there for the next, and they can signal each other, as those of
// one user can. What starts them none of them can reach; see package server. Into each other's
// memory and descriptors they cannot (Linux 5.19).
type Session struct {
	plan       Plan
	server     atomic.Pointer[server.Server]
	layers     atomic.Pointer[openLayers]
	attempt    *attempt // once it has begun
	quarantine *protect.Quarantine
	null       *os.File
	cancel     context.CancelFunc
	begun      chan struct{} // closed when commands can be started
	ended      chan struct{}
	result     Result
	failure    error

	settling sync.Mutex // held while somebody looks at the sandbox
	gone     bool       // nothing of it is there to be looked at any more
	told     [2]int     // how often the limits on memory and processes were reached, as told
}

// ErrNoSession means that no sandbox can stay here: each command takes one of its own.
var ErrNoSession = errors.New("no sandbox can stay here")

// optionAsPID1 is bwrap's since 0.4.
const optionAsPID1 = "--as-pid-1"

// CanStay returns why a sandbox of this plan cannot be a Session's; empty: it can.
func (p *Plan) CanStay() string {
	switch {
	case p.NestedNamespaces:
		return "with further namespaces allowed, commands would have to be kept apart from each other in those, too"
	case p.Limits.Of(profile.LimitOutput) > 0:
		return "the limit on output is one for each command"
	}
	return ""
}

// Open makes a sandbox of the plan's and returns when commands can be started in it. It ends with
// ctx, with Close, and with this process. The plan's timeout is the caller's to hold, because it is
// each command's.
//
// The error is ErrNoSession, or as Run's.
func (l Launcher) Open(ctx context.Context, plan Plan) (*Session, error) {
	why := plan.CanStay()
	if why == "" && !l.Bwrap.Has(optionAsPID1) {
		why = "bwrap has no " + optionAsPID1
	}
	if why != "" {
		return nil, fmt.Errorf("%w: %s", ErrNoSession, why)
	}
	plan.Limits.Timeout = 0
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	s := &Session{plan: plan, null: null, begun: make(chan struct{}), ended: make(chan struct{})}
	ctx, s.cancel = context.WithCancel(ctx)
	l.session, l.Terminal, l.Job, l.Relay = s, false, false, nil
	go func() {
		s.result, s.failure = l.run(ctx, plan, []string{"session"}, Stdio{})
		s.cancel()
		close(s.ended)
	}()
	select {
	case <-s.begun:
		return s, nil
	case <-s.ended:
	}
	switch {
	case errors.Is(s.failure, errByBwrap):
		return nil, fmt.Errorf("%w: %w", ErrNoSession, s.failure)
	case s.failure == nil:
		return nil, &SetupError{Why: "the sandbox ended before a command could begin", Hint: "try again"}
	}
	return nil, s.failure
}

// pauseTimeout bounds the wait for the sandbox's first process, which has nothing to wait for.
const pauseTimeout = 10 * time.Second

// pausing makes the command that bwrap executes, as pid 1, a program that does nothing. It can be
// asked for nothing: it cannot be traced nor signalled from inside, and has nothing open. The
// children of those that are gone become its own, and the kernel takes them away.
func (a *attempt) pausing(p *trampoline.List) ([]string, error) {
	report, writer, err := descriptor.Pipe()
	if err != nil {
		return nil, err
	}
	a.report = report
	reports, err := strconv.Atoi(a.pass(writer))
	if err != nil {
		return nil, err
	}
	paused, tells, err := descriptor.Pipe()
	if err != nil {
		return nil, err
	}
	a.paused = paused
	told, err := strconv.Atoi(a.pass(tells))
	if err != nil {
		return nil, err
	}
	p.Call(0, unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	ignore := p.Words(1, 0, 0, 0) // struct sigaction of the kernel: SIG_IGN
	p.Call(0, unix.SYS_RT_SIGACTION, uint64(unix.SIGCHLD), ignore, 0, 8)
	p.Call(0, unix.SYS_WRITE, uint64(told), p.Put(make([]byte, 8)), 1)
	p.Call(0, unix.SYS_CLOSE_RANGE, 0, uint64(^uint32(0)), 0)
	p.Forever(unix.SYS_PPOLL)
	program, err := trampoline.Seal("pause", p.Program(reports))
	if err != nil {
		return nil, err
	}
	return []string{"/proc/self/fd/" + a.pass(descriptor.File(program))}, nil
}

// begin starts the server of a sandbox that is complete. It is called on the thread that started
// bwrap: what that was confined to, the server is, too.
func (s *Session) begin(a *attempt) error {
	if err := awaitByte(a.paused, pauseTimeout); err != nil {
		return &SetupError{Why: "the sandbox's first process: " + err.Error(), Hint: "try again"}
	}
	a.paused.Close()
	init, err := a.awaitInit()
	if err != nil || init == 0 {
		return &SetupError{Why: "the sandbox ended before a command could begin", Hint: "try again"}
	}
	abi := landlock.ABI()
	o := server.Options{Init: init, Namespaces: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWPID,
		Filter: a.program, Ruleset: -1, Apart: abi >= 2, Scoped: abi >= landlock.ScopeABI,
		Prepare: a.limitServer}
	if a.plan.Network != profile.NetworkEnabled {
		o.Namespaces |= unix.CLONE_NEWNET
	}
	if _, err := os.Stat("/proc/self/ns/cgroup"); err == nil { // as --unshare-cgroup-try finds out
		o.Namespaces |= unix.CLONE_NEWCGROUP
	}
	if a.rules != nil {
		o.Ruleset = a.rules.Kept()
	}
	for _, v := range a.plan.Environment {
		o.Environment = append(o.Environment, v.Name+"="+v.Value)
	}
	for _, r := range limits.Rlimits(a.plan.Limits, a.cgroup) {
		if r.Resource == unix.RLIMIT_CPU {
			o.CPU = r.Soft
		}
	}
	started, err := server.Start(o)
	switch {
	case errors.Is(err, server.ErrRefused):
		return fmt.Errorf("%w: %w", errByBwrap, err)
	case err != nil:
		return &SetupError{Why: "start what starts commands: " + err.Error(), Hint: tryAgain}
	}
	a.server.Store(started)
	s.attempt = a
	s.server.Store(started)
	s.layers.Store(&a.layers)
	return nil
}

// limitServer holds the server, and so its children, to the plan's limits. How long it computes is
// its own: it stays.
func (a *attempt) limitServer(pid int) error {
	if err := a.cgroup.Join(pid); err != nil {
		return fmt.Errorf("limit the commands: %w", err)
	}
	for _, r := range limits.Rlimits(a.plan.Limits, a.cgroup) {
		if r.Resource == unix.RLIMIT_CPU {
			continue
		}
		if err := r.Impose(pid); err != nil {
			return fmt.Errorf("limit the commands: %w", err)
		}
	}
	return nil
}

// awaitByte waits until somebody writes to a pipe.
func awaitByte(fd descriptor.File, waitTimeout time.Duration) error {
	until := time.Now().Add(waitTimeout)
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(time.Until(until).Milliseconds())+1)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return errors.New("it does not begin")
		}
		if n, err := unix.Read(int(fd), make([]byte, 1)); n != 1 {
			return errors.Join(errors.New("it has ended"), err)
		}
		return nil
	}
}

// processes are those inside, by their numbers outside.
func (a *attempt) processes() []int {
	list := process.Descendants(a.init())
	if s := a.server.Load(); s != nil {
		list = append(list, process.Descendants(s.PID())...)
	}
	return list
}

// Ended is closed when the sandbox has ended.
func (s *Session) Ended() <-chan struct{} { return s.ended }

// Result is how the sandbox ended, with its notices. Call it when Ended is closed.
func (s *Session) Result() (Result, error) { return s.result, s.failure }

// News returns what a person should know and what happened since the last call: what was set aside,
// and at which ports something listens that nothing outside reaches.
func (s *Session) News() []Notice {
	s.settling.Lock()
	defer s.settling.Unlock()
	if s.gone {
		return nil
	}
	return append(s.attempt.watch.news(), s.attempt.ports.news()...)
}

// LimitsReached returns notices of the plan's limits that a command with this result reached.
func (s *Session) LimitsReached(r Result) []Notice {
	s.settling.Lock()
	defer s.settling.Unlock()
	if s.gone {
		return nil
	}
	reached := [2]int{int(s.attempt.cgroup.Reached(profile.LimitMemory)), int(s.attempt.cgroup.Reached(profile.LimitProcesses))}
	told := s.told
	s.told = reached
	return slices.DeleteFunc(s.attempt.limitsReached(r), func(n Notice) bool { // what is counted for all commands together is told once; a time is the caller's
		return n.Limit == "timeout" || n.Limit == profile.LimitMemory.String() && reached[0] == told[0] || n.Limit == profile.LimitProcesses.String() && reached[1] == told[1]
	})
}

// isOver comes when nothing runs any more.
func (s *Session) isOver() {
	if s != nil {
		s.settling.Lock()
		defer s.settling.Unlock()
		s.gone = true
	}
}

// Settle carries over to the host's repositories what commands have changed of their settings,
// which otherwise happens at the end. Everything that runs is stopped meanwhile, for some
// milliseconds. It returns what was left out.
func (s *Session) Settle() (notices []Notice) {
	s.settling.Lock()
	defer s.settling.Unlock()
	a := s.attempt
	if s.gone {
		return nil
	}
	a.watch.objects()
	if !a.settings.changed() {
		return nil
	}
	s.server.Load().Hold(func() { // nothing is started meanwhile
		stopped, all := a.freeze()
		if all {
			notices = a.settings.settle(s.quarantine)
		}
		a.thaw(stopped)
	})
	return notices
}

// Close ends the sandbox: what runs in it gets SIGTERM, and after the launcher's grace SIGKILL. It
// returns when it has ended.
func (s *Session) Close() {
	s.cancel()
	<-s.ended
}

// Keep keeps the originals of what commands changed where they see it copy on write, as when one of
// them has ended: see changes.Keep.
func (s *Session) Keep() {
	if layers := s.layers.Load(); layers != nil {
		layers.keep()
	}
}

// A Command is one to start in a session.
type Command struct {
	Argv []string
	Dir  string // where it starts, absolute; empty: the plan's
	// The streams are pipes or sockets; nil: /dev/null. A file could be written, or read on from,
	// by its name in /proc.
	In, Out, Err *os.File
	Extra        *os.File // becomes its descriptor ExtraFD
	ExtraFD      int      // above 8
	Terminal     bool     // In is a terminal, of which it gets control
}

// A Process is a command of a session.
type Process struct {
	session *Session
	process *server.Process
	command Command
	began   time.Time
}

// Start starts a command. Whether it could be executed, Wait tells.
func (s *Session) Start(c Command) (*Process, error) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return nil, &SetupError{Why: "no command given"}
	}
	select {
	case <-s.ended:
		return nil, ErrSessionEnded
	default:
	}
	if c.Dir == "" {
		c.Dir = s.plan.WorkingDirectory
	}
	files := []*os.File{c.In, c.Out, c.Err}
	for i, file := range files {
		if file == nil {
			files[i] = s.null
		} else if err := checkSessionStream(file); err != nil {
			return nil, err
		}
	}
	s.settleLeads()
	if c.Extra != nil {
		if err := checkSessionStream(c.Extra); err != nil {
			return nil, err
		}
		files = append([]*os.File{c.Extra}, files...)
	}
	began := time.Now()
	started, err := s.server.Load().Start(server.Command{Argv: c.Argv, Path: s.plan.variable("PATH"), Dir: c.Dir, Files: files, Extra: c.ExtraFD, Terminal: c.Terminal})
	switch {
	case errors.Is(err, server.ErrEnded):
		s.cancel()
		return nil, ErrSessionEnded
	case errors.Is(err, unix.E2BIG):
		return nil, &SetupError{Why: "the command is too long", Hint: "write it to a file, and run that"}
	case errors.Is(err, unix.EAGAIN):
		return nil, &SetupError{Why: "the limit on processes is reached in the session's sandbox", Hint: "end what runs there"}
	case err != nil:
		return nil, &SetupError{Why: err.Error(), Hint: tryAgain}
	}
	return &Process{s, started, c, began}, nil
}

// settleLeads protects what the person has named since the last command was started.
func (s *Session) settleLeads() {
	s.settling.Lock()
	defer s.settling.Unlock()
	if !s.gone {
		s.attempt.leads.settle()
	}
}

// ErrSessionEnded means that the session's sandbox has ended.
var ErrSessionEnded = errors.New("the session's sandbox has ended")

func checkSessionStream(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Mode()&(os.ModeNamedPipe|os.ModeSocket|os.ModeCharDevice) == 0 {
		return &SetupError{Why: "a stream of a session's command is no pipe", Hint: "give it a pipe, a socket or a terminal"}
	}
	return nil
}

// Wait waits until the command has ended. What it left in the background may go on. The error means
// that it was not run: *CommandError or *SetupError; or that the sandbox ended, ErrSessionEnded.
func (p *Process) Wait() (Result, error) {
	status, err := p.process.Wait()
	p.session.Keep()
	r := Result{Outcome: Exited, Duration: time.Since(p.began)}
	var failed *server.StartError
	switch {
	case errors.As(err, &failed):
		return r, p.notStarted(failed)
	case errors.Is(err, server.ErrEnded):
		p.session.cancel()
		return r, ErrSessionEnded
	case err != nil:
		return r, err
	case status.Signaled():
		r.Outcome, r.Signal = Signalled, status.Signal()
		r.ExitCode = 128 + int(r.Signal)
	default:
		r.ExitCode = status.ExitStatus()
		if n := r.ExitCode - 128; n > 0 && n <= 64 {
			r.Outcome, r.Signal = Signalled, syscall.Signal(n)
		}
	}
	return r, nil
}

// notStarted words why a command was not executed.
func (p *Process) notStarted(failed *server.StartError) error {
	name := p.command.Argv[0]
	errno, _ := failed.Err.(unix.Errno)
	switch {
	case failed.Directory:
		return &SetupError{Path: p.command.Dir, Why: "cannot be the working directory: " + reason(errno) + " inside the sandbox", Hint: "grant it, or choose another"}
	case !failed.Execute:
		return &SetupError{Why: "the last preparations inside: " + reason(errno), Hint: tryAgain}
	case errno == unix.ENOENT || errno == unix.ENOTDIR:
		if err := p.session.plan.Find(Host{}, name); err != nil {
			return err
		}
		return &CommandError{Name: name, Why: "command not found inside the sandbox"}
	case errno == unix.EACCES:
		return &CommandError{Name: name, Found: true, Why: errno.Error()}
	case errno == unix.E2BIG:
		return &SetupError{Why: "the command is too long", Hint: "write it to a file, and run that"}
	}
	return cannotExecute(name)
}

// Ended is closed when the command has ended.
func (p *Process) Ended() <-chan struct{} { return p.process.Ended() }

// PID is the command's process, by its number outside. It is its own only until Wait returns.
func (p *Process) PID() int { return p.process.PID() }

// Signal sends a signal to the command and what shares its process group. It reports false if the
// command has ended.
func (p *Process) Signal(s syscall.Signal) bool { return p.process.Signal(s) }

// End sends a signal to the command, and to all that it started and that is still its descendant.
// Those that are stopped are woken. It reports false if the command has ended.
func (p *Process) End(s syscall.Signal) bool {
	return p.process.While(func(pid int) {
		for _, child := range process.Descendants(pid) {
			unix.Kill(child, s)
			unix.Kill(child, unix.SIGCONT)
		}
		unix.Kill(-pid, s)
		unix.Kill(-pid, unix.SIGCONT)
		unix.Kill(pid, s)
	})
}

// Descendants are the numbers, outside, of what the command has started and what that has started,
// as far as it has not been left by those in between.
func (p *Process) Descendants() (list []int) {
	p.process.While(func(pid int) { list = process.Descendants(pid) })
	return list
}

// EndDescendants sends a signal to its descendants, but for some.
func (p *Process) EndDescendants(s syscall.Signal, spare []int) {
	p.process.While(func(pid int) {
		for _, child := range process.Descendants(pid) {
			if !slices.Contains(spare, child) {
				unix.Kill(child, s)
				unix.Kill(child, unix.SIGCONT)
			}
		}
	})
}

// Stopped reports whether the command itself was stopped, as by SIGSTOP, and does not go on by
// itself.
func (p *Process) Stopped() (is bool) {
	p.process.While(func(pid int) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		state := string(text[strings.LastIndexByte(string(text), ')')+1:]) // its name may hold anything
		is = err == nil && (strings.HasPrefix(state, " T") || strings.HasPrefix(state, " t"))
	})
	return is
}

// Directory is the command's working directory, as it is named inside, or empty.
func (p *Process) Directory() (dir string) {
	p.process.While(func(pid int) { dir, _ = os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)) })
	return dir
}

// A Job is a descendant of a command.
type Job struct {
	PID     int    // inside
	Command string // its words, as it says; at most maxJobCommand bytes
}

// maxJobs and maxJobCommand bound what is said of jobs.
const (
	maxJobs       = 100
	maxJobCommand = 200
)

// Jobs are the command's descendants.
func (p *Process) Jobs() (list []Job) {
	p.process.While(func(pid int) { list = jobsOf(process.Descendants(pid)) })
	return list
}

// Processes are all in the sandbox but the first, which does nothing.
func (s *Session) Processes() []Job {
	s.settling.Lock()
	defer s.settling.Unlock()
	if s.gone {
		return nil
	}
	return jobsOf(s.attempt.processes())
}

func jobsOf(pids []int) (list []Job) {
	for _, pid := range pids {
		if inside := numberInside(pid); inside != 0 && len(list) < maxJobs {
			list = append(list, Job{inside, wordsOf(pid)})
		}
	}
	return list
}

// SignalJob sends a signal to the descendant that has a number inside. It reports false if there is
// none.
func (p *Process) SignalJob(inside int, s syscall.Signal) (sent bool) {
	p.process.While(func(pid int) {
		for _, child := range process.Descendants(pid) {
			if numberInside(child) == inside {
				sent = unix.Kill(child, s) == nil
				return
			}
		}
	})
	return sent
}

// numberInside is a process's number in its own namespace, or 0 if it is gone.
func numberInside(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	numbers := strings.Fields(line)
	if len(numbers) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(numbers[len(numbers)-1])
	return n
}

func wordsOf(pid int) string {
	file, err := os.Open(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	defer file.Close()
	text := make([]byte, maxJobCommand)
	n, _ := file.Read(text)
	return strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(string(text[:max(n, 0)]), "\uFFFD"), "\x00", " "))
}

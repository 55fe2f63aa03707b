package sandbox

import (
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/process"
	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// inner is what bwrap executes: a trampoline that waits until the mounts are there, does what only
// a process inside can, and executes the command in its own place.
func (a *attempt) inner(l Launcher) ([]string, error) {
	onTerminal := l.Terminal && l.guard == process.GuardPlain // where bwrap itself has to ignore Ctrl-C, and the command must not
	leaky := !l.Bwrap.Has(optionBindFD)                       // an old bwrap leaves open what it was given
	if l.bare || l.byBwrap && a.rules == nil && a.proxy == nil && a.input == nil && !onTerminal && !leaky {
		return a.command, nil
	}
	p := &trampoline.List{}
	p.Call(trampoline.MayFail, unix.SYS_CLOSE_RANGE, 3, uint64(^uint32(0)), unix.CLOSE_RANGE_CLOEXEC)
	if leaky {
		for fd := range len(a.files) + 12 { // close_range is newer than such a bwrap
			p.Call(trampoline.MayFail, unix.SYS_FCNTL, uint64(3+fd), unix.F_SETFD, unix.FD_CLOEXEC)
		}
	}
	if onTerminal {
		restoreSignals(p, l.ignored)
	}
	if !l.byBwrap {
		if err := a.awaitMounts(p); err != nil {
			return nil, err
		}
	}
	if a.proxy != nil {
		channel, theirs, err := descriptor.Channel()
		if err != nil {
			return nil, err
		}
		a.channel = channel
		fd, err := strconv.Atoi(a.pass(theirs))
		if err != nil {
			return nil, err
		}
		listenForProxy(p, fd, 3+len(a.files)+8)
	}
	if a.input != nil {
		if err := a.inputThroughTrampoline(p); err != nil {
			return nil, err
		}
	}
	if a.rules != nil {
		ruleset, err := strconv.Atoi(a.ruleset)
		if err != nil {
			return nil, err
		}
		a.rules.AllowInside(p, a.plan.landlockRules(l.Live != nil), uint64(ruleset))
		p.Call(0, unix.SYS_LANDLOCK_RESTRICT_SELF, uint64(ruleset), 0)
	}
	if l.session != nil {
		return a.pausing(p)
	}
	return a.throughTrampoline(p, l)
}

// awaitMounts lists the calls that tell the mounter that the base is complete, wait until it is
// done, and enter the working directory, which was not there before.
func (a *attempt) awaitMounts(p *trampoline.List) error {
	ready, readyWriter, err := descriptor.Pipe()
	if err != nil {
		return err
	}
	a.ready = ready
	released, release, err := descriptor.Pipe()
	if err != nil {
		readyWriter.Close()
		return err
	}
	a.release = release
	told, err := strconv.Atoi(a.pass(readyWriter))
	if err != nil {
		return err
	}
	wait, err := strconv.Atoi(a.pass(released))
	if err != nil {
		return err
	}
	word := p.Put(make([]byte, 8))
	p.Call(0, unix.SYS_WRITE, uint64(told), word, 1)
	p.Call(0, unix.SYS_CLOSE, uint64(told))
	p.Call(0, unix.SYS_READ, uint64(wait), word, 1)
	p.Call(trampoline.IfZero, unix.SYS_EXIT_GROUP, trampoline.StatusNotRun) // the launcher gave up, and says why
	p.Call(0, unix.SYS_CHDIR, p.Text(a.plan.WorkingDirectory))
	return nil
}

// restoreSignals gives the terminal's signals their usual effect again, as far as the launcher
// itself had it.
func restoreSignals(p *trampoline.List, ignored []syscall.Signal) {
	usual := p.Put(make([]byte, 32)) // struct sigaction of the kernel: SIG_DFL, no flags, no mask
	for _, s := range terminalSignals {
		if !slices.Contains(ignored, s) {
			p.Call(trampoline.MayFail, unix.SYS_RT_SIGACTION, uint64(s), usual, 0, 8)
		}
	}
}

// throughTrampoline makes the command that bwrap executes the trampoline, with a list that ends in
// the command.
func (a *attempt) throughTrampoline(p *trampoline.List, l Launcher) ([]string, error) {
	report, writer, err := descriptor.Pipe()
	if err != nil {
		return nil, err
	}
	a.report = report
	fd, err := strconv.Atoi(a.pass(writer))
	if err != nil {
		return nil, err
	}
	var environment []string
	if !l.byBwrap {
		for _, v := range a.plan.Environment {
			if v.Name != "PWD" {
				environment = append(environment, v.Name+"="+v.Value)
			}
		}
		environment = append(environment, "PWD="+a.plan.WorkingDirectory)
	}
	p.Execute(a.command, a.plan.variable("PATH"), environment)
	program, err := trampoline.Seal("trampoline", p.Program(fd))
	if err != nil {
		return nil, err
	}
	return []string{"/proc/self/fd/" + a.pass(descriptor.File(program))}, nil
}

// trampolineFailed says what the trampoline reported, if it reported anything. bwrap has ended.
func (a *attempt) trampolineFailed() error {
	what, errno, failed := readReport(a.report)
	if !failed {
		return nil
	}
	if dir := a.plan.WorkingDirectory; what != trampoline.ReportCommand && errno == unix.EACCES && unix.Access(dir, unix.X_OK) != nil {
		return &SetupError{Path: dir, Why: "cannot be the working directory: you may not enter it, with or without a sandbox", Hint: "choose another with --cwd DIR, or --workspace DIR"}
	}
	if what != trampoline.ReportCommand {
		return &SetupError{Why: "the last preparations inside: " + errno.Error(), Hint: tryAgain}
	}
	if errno == unix.EACCES {
		return &CommandError{Name: a.command[0], Found: true, Why: errno.Error()}
	}
	return cannotExecute(a.command[0])
}

// readReport reads a trampoline's report, if there is one. Nobody has the other end any more.
func readReport(report descriptor.File) (what byte, errno unix.Errno, failed bool) {
	if report == 0 {
		return 0, 0, false
	}
	said := make([]byte, 5)
	n, _ := unix.Read(int(report), said)
	return trampoline.ReadReport(said[:max(n, 0)])
}

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/shut"
	"github.com/clairun/clai-sandbox/sandbox/bus"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/egress"
	"github.com/clairun/clai-sandbox/sandbox/image"
	"github.com/clairun/clai-sandbox/sandbox/landlock"
	"github.com/clairun/clai-sandbox/sandbox/limits"
	"github.com/clairun/clai-sandbox/sandbox/mounts"
	"github.com/clairun/clai-sandbox/sandbox/process"
	"github.com/clairun/clai-sandbox/sandbox/seccomp"
	"github.com/clairun/clai-sandbox/sandbox/server"
)

// An attempt is one execution of bwrap.
type attempt struct {
	plan          *Plan
	command       []string
	path          string   // bwrap's
	written       string   // the file of what commands could write; empty: there is none
	argv          []string // bwrap's
	attr          *syscall.SysProcAttr
	files         []descriptor.File             // open for the child, closed after its start
	status        descriptor.File               // bwrap's records
	report        descriptor.File               // of the trampoline inside, if there is one
	paused        descriptor.File               // where a session's first process tells that it is there
	server        atomic.Pointer[server.Server] // of a session
	pidsReport    descriptor.File               // of the one before bwrap, if there is one
	rules         *landlock.Ruleset             // nil: no Landlock layer on files
	ruleset       string                        // its descriptor inside
	requests      []mounts.Request
	mounter       *mounts.Mounter
	watch         *commandWatch // nil: nothing to watch
	leads         *leadsWatch   // nil: nothing is named elsewhere that could be protected while it runs
	settings      *settings     // git's, of which the command has copies; nil: none
	settingsWatch *mountWatch   // of the same
	mounted       []mounts.Mounted
	layers        openLayers
	image         *image.Hold
	ready         descriptor.File // where the base tells that it is complete, and
	release       descriptor.File // what the command waits for: the mounter's ends
	recorded      []byte          // what was read of bwrap's records so far
	unreleased    bool            // the mounter ended before it released the command
	gate          descriptor.File // where bwrap waits before it reads its options
	filter        descriptor.File // where bwrap waits for its seccomp filter
	program       []byte          // the filter
	channel       *net.UnixConn   // where a filtered network's listener comes from
	proxy         *egress.Proxy   // that serves it
	ports         ports
	input         *inputFile     // nil: standard input is no file
	output        *process.Meter // nil: not measured
	cgroup        *limits.Cgroup // nil: none
	process       *process.Process
	bus           *bus.Listener  // nil: none
	agent         *agentListener // nil: none
	heard         chan struct{}  // closed when signals for the command come to this process
	ended         chan struct{}
	why           atomic.Pointer[Notice] // why this process ended it, if it did and the Outcome does not say so
}

// prepare opens everything that bwrap gets: the sources of the mounts, the options, the filter, the
// status channel.
func (l Launcher) prepare(plan *Plan, command []string) (*attempt, error) {
	a := &attempt{command: command, heard: make(chan struct{}), ended: make(chan struct{})}
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

func (a *attempt) open(l Launcher) (err error) {
	if !l.bare {
		a.input = l.input
	}
	a.plan.Steps = a.input.stand(slices.Clone(a.plan.Steps))
	if a.plan.locksFiles() && !l.bare {
		if a.rules, err = landlock.NewRuleset(); err != nil {
			return err
		}
		if l.session != nil {
			if err := a.rules.Keep(); err != nil {
				return err
			}
		}
		a.ruleset = a.pass(a.rules.File)
	}
	if a.image, err = a.plan.Rootfs.hold(); err != nil {
		return err
	}
	base := a.plan
	if l.byBwrap {
		err = a.plan.withoutMounter()
	} else if !l.bare {
		err = a.layers.open(a.plan)
	}
	if err != nil {
		return err
	}
	if !l.byBwrap {
		base = a.divide(l.Live != nil)
		if !l.bare {
			a.watchMounts()
			a.copySettings()
			a.privateHooks()
		}
	}
	if !l.bare {
		if l.State != "" {
			a.written = join(l.State, profile.WrittenName)
		}
		if err := recordWritten(a.written, a.plan); err != nil {
			return err
		}
		if err := a.watchDirectories(l); err != nil {
			return err
		}
	}
	if l.byBwrap {
		if err := a.watchedByBwrap(); err != nil {
			return err
		}
	}
	args, err := a.bwrapArgs(l, base)
	if err != nil {
		return err
	}
	places, err := a.plan.cgroups()
	if err != nil {
		return err
	}
	if err := a.plan.checkLimits(l.guard, places); err != nil {
		return err
	}
	if a.cgroup, err = limits.NewCgroup(places, a.plan.Limits); err != nil {
		return &SetupError{Why: "make a cgroup: " + printable(err.Error()), Hint: "clai-sandbox doctor says which limits this machine can hold; or leave the limit out"}
	}
	a.output = process.NewMeter(a.plan.Limits.Of(profile.LimitOutput))
	if a.plan.Network == profile.NetworkFiltered && !l.bare {
		a.proxy = &egress.Proxy{Rules: a.plan.Domains, Upstream: a.plan.Upstream, Ask: l.AskNetwork, Judged: l.JudgedNetwork, Resolve: l.resolve}
		l.Reach.begin(a.proxy)
	}
	if !l.bare {
		if err := a.listenPublished(l); err != nil {
			return err
		}
	}
	command, err := a.inner(l)
	if err != nil {
		return err
	}
	gate, gateWriter, err := descriptor.Pipe()
	if err != nil {
		return err
	}
	a.gate = gateWriter
	wait := a.pass(gate)
	options, err := descriptor.Sealed("bwrap-args", nulTerminated(args))
	if err != nil {
		return err
	}
	a.path = l.Bwrap.Path
	a.argv = append([]string{"bwrap", "--args", wait, "--args", a.pass(options), "--"}, command...)
	a.attr = l.guard.Attributes()
	a.attr.Setpgid = !l.Terminal
	if limits.HolderOf(a.plan.Limits, profile.LimitProcesses, l.guard, places) == limits.HeldByPIDs && !l.bare {
		if err := a.throughPIDsTrampoline(); err != nil {
			return err
		}
	}
	return a.checkOpenFiles()
}

// bwrapArgs are the options for the base, whose sources it opens. What it leaves out, the plan has
// no more.
func (a *attempt) bwrapArgs(l Launcher, base *Plan) ([]string, error) {
	steps, operands, err := a.pin(l, base.Steps, l.Bwrap.Has(optionBindFD))
	if err != nil {
		return nil, err
	}
	a.leaveOut(base.Steps, steps)
	ready := *base
	ready.Steps = steps
	next := 0
	args := ready.args(func(Step) (string, string) {
		next++
		return operands[next-1].option, operands[next-1].operand
	})
	args = append(slices.Clone(l.mistakes), args...)
	filter, filterWriter, err := descriptor.Pipe()
	if err != nil {
		return nil, err
	}
	a.filter = filterWriter
	args = append(args, "--seccomp", a.pass(filter))
	status, statusWriter, err := descriptor.Pipe()
	if err != nil {
		return nil, err
	}
	a.status = status
	args = append(args, "--json-status-fd", a.pass(statusWriter))
	if !l.Terminal {
		args = append(args, "--new-session")
	}
	if l.session != nil && !l.bare {
		args = append(args, optionAsPID1)
	}
	if !l.Bwrap.Has(optionDisableUserns) {
		args = without(args, optionDisableUserns)
	}
	return args, nil
}

// leaveOut takes out of the plan what the base was to have, and does not.
func (a *attempt) leaveOut(wanted, made []Step) {
	if len(wanted) == len(made) {
		return
	}
	is := map[string]bool{}
	for _, step := range made {
		is[step.Path] = true
	}
	a.plan.Steps = slices.DeleteFunc(slices.Clone(a.plan.Steps), func(step Step) bool {
		return !is[step.Path] && slices.ContainsFunc(wanted, func(w Step) bool { return w.Path == step.Path && w.Kind == step.Kind })
	})
}

type operand struct{ option, operand string }

// pin opens the source of each bind and copy. A source that is gone or has become a link since
// Build looked is left out with a notice, unless it is the workspace.
func (a *attempt) pin(l Launcher, wanted []Step, byDescriptor bool) ([]Step, []operand, error) {
	steps := make([]Step, 0, len(wanted))
	var operands []operand
	for _, step := range wanted {
		switch {
		case step.Kind == Copy:
			file, err := descriptor.Open(step.Source)
			if err != nil {
				continue // a file of the system's that went away: so it is gone inside as well
			}
			operands = append(operands, operand{"", a.pass(file)})
		case step.Kind == Bind && step.Source == ownProgram:
			file, reachable, err := openProgram()
			if err != nil {
				return nil, nil, err
			}
			if !reachable {
				step.Kind, step.Mode = Empty, 0o555 // bwrap fills it from the descriptor
				operands = append(operands, operand{"", a.pass(file)})
				break
			}
			operands = append(operands, a.bindDescriptor(step, file, byDescriptor))
		case step.Kind == Private && step.Source != "":
			file, err := pinKept(step.Source)
			if err != nil {
				return nil, nil, &SetupError{Path: step.Source, Why: "cannot stand at " + step.Path + ": " + reason(err), Hint: tryAgain}
			}
			writable := step
			writable.Access = profile.ReadWrite
			operands = append(operands, a.bindDescriptor(writable, file, byDescriptor))
		case step.Kind == Device:
			file, err := a.openDevice(step)
			if err != nil {
				return nil, nil, err
			}
			operands = append(operands, operand{optionDevice, "/proc/self/fd/" + a.pass(file)})
		case step.Kind == Empty:
			nothing, err := descriptor.Open(os.DevNull)
			if err != nil {
				return nil, nil, err
			}
			operands = append(operands, operand{"", a.pass(nothing)})
		case step.Kind == Socket && step.Source == "":
			o, ok := operand{}, false
			if step.Path == agentPlace {
				o, ok = a.agentOperand(l, step, byDescriptor)
			} else {
				o, ok = a.busOperand(step, byDescriptor)
			}
			if !ok {
				continue
			}
			operands = append(operands, o)
		case step.Pinned:
			file, err := descriptor.PinExpected(step.Source, step.expected)
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
				return nil, nil, err
			}
			if err != nil {
				if err := a.notMounted(step, err); err != nil {
					return nil, nil, err
				}
				continue
			}
			operands = append(operands, a.bindDescriptor(step, file, byDescriptor))
		case step.Kind == Bind || step.Kind == Socket:
			operands = append(operands, operand{bindOption(step.Access), step.Source})
		}
		steps = append(steps, step)
	}
	return steps, operands, nil
}

// pinKept opens what is kept of this program's for commands, where no path leads.
func pinKept(path string) (descriptor.File, error) {
	dir, below, is := shut.Split(path)
	if !is {
		return descriptor.Pin(path)
	}
	inside, err := shut.Open(dir)
	if err != nil {
		return 0, err
	}
	defer inside.Close()
	return descriptor.PinBelow(inside.FD(), below)
}

// notMounted is about a step whose source is not what it was when Build looked: a notice, or an
// error where the sandbox would be another one without it.
func (a *attempt) notMounted(step Step, err error) error {
	switch {
	case step.inLayer && (errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EINVAL)):
		return nil // something of the command's is there, or nothing, and the host's does not show through
	case step.inLayer:
		return &SetupError{Path: step.Path, Why: "cannot be hidden: " + reason(err), Hint: "try again"}
	case step.strict():
		return &SetupError{Path: step.Path, Why: "cannot be written at the end only: " + whyNotLayered(err), Hint: "use --protect-mode watch"}
	case step.orEntries():
		a.plan.notice(NoticePathLeftOut, step.Source, fmt.Sprintf("only read: %s (%s): cannot be seen copy on write: %s",
			printable(step.Source), printable(step.Origin.String()), whyNotLayered(err)))
		return nil
	case step.narrows:
		return &SetupError{Path: step.Source, Why: "is read-only in something writable, and changed while the sandbox was made: " + reason(err), Hint: "try again"}
	case step.required():
		// Left out, it would be open to the command.
		return &SetupError{Path: step.Source, Why: "is protected, and changed while the sandbox was made: " + reason(err), Hint: "try again"}
	case step.Origin.Kind == profile.OriginWorkspace:
		return &SetupError{Path: step.Source, Why: "cannot be the workspace any more: " + reason(err), Hint: "choose another directory with --workspace DIR"}
	}
	a.plan.notice(NoticePathLeftOut, step.Source, fmt.Sprintf("left out: %s (%s): changed while the sandbox was made: %s",
		printable(step.Source), printable(step.Origin.String()), reason(err)))
	return nil
}

// pass hands a file to the child and returns the descriptor that it has there.
func (a *attempt) pass(file descriptor.File) string {
	a.files = append(a.files, file)
	return strconv.Itoa(2 + len(a.files))
}

// start executes bwrap. The calling goroutine stays on its thread until wait returns.
//
// bwrap reads its options only when its limits stand: until then it waits for the end of a file
// before them, which is empty, and has started nothing that could be without limits. It gets its
// filter only now that it is certain to end with us; if we are gone it finds none, which is an
// error to it.
func (a *attempt) start(stdio Stdio) error {
	stdio = a.output.Measure(stdio)
	if a.rules != nil {
		for _, stream := range []any{stdio.In, stdio.Out, stdio.Err} {
			a.rules.AllowStream(stream)
		}
	}
	started, err := process.Start(a.path, a.argv, stdio, a.files, a.attr)
	for i := range a.files {
		a.files[i].Close()
	}
	a.files = nil
	if err != nil {
		return unavailable(startMessage(err), readFacts())
	}
	a.process = started
	if err = a.limit(started.PID()); err == nil {
		a.gate.Close()
		a.program, err = seccomp.Assemble(runtime.GOARCH, seccomp.Rules(a.plan.NestedNamespaces)) // while bwrap starts
	}
	if err != nil {
		a.process.Kill()
		a.process.Wait()
		return err
	}
	a.filter.Write(a.program)
	a.filter.Close()
	a.serveNetwork()
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
	a.process.Wait()
	if s := a.server.Load(); s != nil {
		s.Close()
	}
	a.endNetwork()
	a.ports.close()
	a.input.finish()
	close(a.ended)
}

// confineThread gives this thread, and what it starts, less than the launcher has.
func (a *attempt) confineThread() error {
	if err := process.DropCapabilities(); err != nil || a.rules != nil {
		return err
	}
	_, err := landlock.ScopeThread()
	return err
}

// evidence is what the attempt left. It has ended.
func (a *attempt) evidence() Evidence {
	return Evidence{ExitStatus: a.process.ExitCode(), Status: a.readStatus()}
}

// readStatus reads what bwrap has recorded by now. It does not wait: the pipe is drained only after
// bwrap has ended.
func (a *attempt) readStatus() []byte {
	said := a.recorded
	if said == nil {
		said = []byte{}
	}
	buffer := make([]byte, 512)
	for {
		n, err := unix.Read(int(a.status), buffer)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return said
		}
		said = append(said, buffer[:n]...)
	}
}

// endFor ends the attempt at once, and says why in its result.
func (a *attempt) endFor(why Notice) {
	a.why.CompareAndSwap(nil, &why)
	a.kill()
}

func (a *attempt) close() {
	a.watch.close()
	a.leads.close()
	a.settingsWatch.end()
	a.settings.close()
	a.bus.Close()
	a.agent.close()
	a.ports.close()
	a.cgroup.Remove()
	for i := range a.files {
		a.files[i].Close()
	}
	if a.mounter != nil {
		a.mounter.Close()
	}
	for _, file := range []*descriptor.File{&a.status, &a.report, &a.paused, &a.pidsReport, &a.gate, &a.filter, &a.ready, &a.release} {
		file.Close()
	}
	if a.channel != nil {
		a.channel.Close()
	}
	a.rules.Close()
	a.input.close()
	a.layers.close()
	a.image.Close()
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

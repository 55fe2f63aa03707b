package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/mounts"
	"github.com/clairun/clai-sandbox/sandbox/process"
)

// A Live is a sandbox whose grants can change while its command runs. Hand a new one to
// Launcher.Live before Run, and call Show, from any goroutine, with each new profile.
//
// What is granted appears at its real path in a moment, complete with what hides and protects below
// it. What is taken away is gone from every path; nothing can be changed there any more, also
// through a directory that a process holds, and where Landlock locks files (Linux 6.2) nothing more
// opened. A process that has a file open for writing there is ended. What is open for reading stays
// open, as no kernel can take it back: Show says who holds what. If something cannot be taken away,
// the sandbox is ended.
//
// The Landlock layer of a Live sandbox is a weaker one: it allows what is mounted, whatever that
// comes to be, because its rules cannot be added to. Needs Linux 5.12.
type Live struct {
	mu      sync.Mutex
	attempt *attempt
	ready   chan struct{} // closed when there is an attempt
	once    sync.Once
	mounter *mounts.Mounter
	init    atomic.Int64 // pid 1 inside, by its number outside, once the command has begun
	base    []Step       // what the sandbox began with, as far as it still shows
	begun   map[string]mounts.Mounted
	layers  []layer
	notices []Notice // of the change at work
	over    bool
	gap     bool // as with a kernel before Linux 6.5
}

// ErrNotLive means that the sandbox has ended, or never came to be.
var ErrNotLive = errors.New("the sandbox has ended")

// A LiveError says that a path could not be made visible in a running sandbox. What was visible
// before still is.
type LiveError struct {
	Path string
	Err  error
}

func (e *LiveError) Error() string { return printable(e.Path) + ": " + e.Err.Error() }
func (e *LiveError) Unwrap() error { return e.Err }

// CanBeLive returns why sandboxes of this profile cannot be Live on this host; empty: they can.
func CanBeLive(p profile.Profile) string {
	switch {
	case p.Image != "":
		return "what an image shows is put together at the start"
	case p.NestedNamespaces:
		return "with further namespaces allowed, what is taken away would stay in those that the command makes"
	case !mounts.Supported():
		return "it takes Linux 5.12, and no filter that refuses its calls for mounting"
	}
	return ""
}

func (l *Live) start() chan struct{} {
	l.once.Do(func() { l.ready = make(chan struct{}) })
	return l.ready
}

// begin takes a sandbox that has been started.
func (l *Live) begin(a *attempt) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempt, l.mounter, l.base = a, a.mounter, slices.Clone(a.plan.Steps)
	l.begun = map[string]mounts.Mounted{}
	for _, m := range a.mounted {
		l.begun[m.Path] = m
	}
	if l.gap && l.mounter != nil {
		l.mounter.WithGap()
	}
	close(l.start())
}

// end is for a sandbox that has ended, or never began.
func (l *Live) end() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.attempt == nil {
		close(l.start())
	}
	l.mounter = nil // it ends with the attempt
	l.over = true
}

// running waits until the command runs: before, bwrap is still making the sandbox.
func (l *Live) running(ctx context.Context) (init int, err error) {
	select {
	case <-l.start():
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if l.attempt == nil {
		return 0, ErrNotLive
	}
	for {
		init := int(l.init.Load())
		over := !l.attempt.process.While(func(int) {
			if init != 0 {
				return
			}
			init = l.attempt.init()
			if (l.attempt.server.Load() != nil || len(process.Children(init)) > 0) && l.attempt.executed() {
				l.init.Store(int64(init))
			}
		})
		switch {
		case over:
			return 0, ErrNotLive
		case l.init.Load() != 0:
			return init, nil
		}
		select {
		case <-l.attempt.ended:
			return 0, ErrNotLive
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(time.Millisecond / 2):
		}
	}
}

// executed reports whether the trampoline has become the command: before, it still enters
// directories and makes rules. Its report's other end is closed by that.
func (a *attempt) executed() bool {
	if a.report == 0 {
		return true
	}
	fds := []unix.PollFd{{Fd: int32(a.report), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// Show makes the running sandbox show what a profile grants, no more and no less. It waits until
// the command runs. The notices are about grants that lead nowhere, and about what the command
// still holds of those that were taken away.
//
// Of several calls, the last one to begin counts: whoever calls from several goroutines makes sure
// that it has the newest profile.
//
// The error is a *LiveError for a path that could not be made visible, ErrNotLive, or that of
// Build, or of ctx.
func (l *Live) Show(ctx context.Context, p profile.Profile) ([]Notice, error) {
	init, err := l.running(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	plan, err := Build(p, Host{})
	if err != nil {
		return nil, err
	}
	switch {
	case l.over:
		return nil, ErrNotLive
	case len(differences(l.view(l.layers), &plan)) == 0:
		return plan.Notices, nil
	}
	if l.mounter == nil {
		return nil, l.failed(&plan, errByBwrap)
	}
	if err := l.attempt.layers.open(&plan); err != nil {
		return nil, l.failed(&plan, err)
	}
	if err := recordWritten(l.attempt.written, &plan); err != nil {
		return nil, l.failed(&plan, err)
	}
	l.notices = nil
	if err := l.watch(&plan); err != nil {
		return nil, l.failed(&plan, fmt.Errorf("watch what would be writable: %w", err))
	}
	took, err := l.reconcile(&plan)
	if err != nil {
		return nil, l.failed(&plan, err)
	}
	l.unwatch(&plan)
	notices := append(slices.Clone(plan.Notices), l.notices...)
	if took {
		notices = append(notices, stillOpen(init, l.attempt.processes(), l.mounter.There(), l.attempt.rules != nil)...)
	}
	return notices, nil
}

// watch has what is about to be writable watched, before the command sees it, and lets go what is
// not any more.
func (l *Live) watch(plan *Plan) error {
	w := l.attempt.watch
	if plan.Protection == nil || plan.Protection.strict {
		return nil
	}
	if w == nil {
		return errors.New("nothing was watched from the start")
	}
	p := plan.Protection
	for _, root := range p.Roots {
		if err := w.watch.Add(root, p.names, p.known, p.git, p.apart); err != nil {
			return err
		}
	}
	return nil
}

// unwatch lets go what the command may not write any more, and has what came watched for being
// replaced.
func (l *Live) unwatch(plan *Plan) {
	w := l.attempt.watch
	if w == nil {
		return
	}
	p := plan.Protection
	if p == nil || p.strict {
		p = &Protection{}
	}
	w.follow(plan)
	l.attempt.leads.follows(plan.Protection)
	w.watch.Retain(p.Roots, p.known, p.git, p.apart)
}

// failed ends the sandbox if it shows something that the plan does not.
func (l *Live) failed(plan *Plan, err error) error {
	select {
	case <-l.attempt.ended:
		return ErrNotLive
	default:
	}
	have := Plan{Steps: l.view(l.layers)}
	for _, name := range differences(have.Steps, plan) {
		if plan.access(name) < have.access(name) {
			why := fmt.Sprintf("%s could not be %s, so the sandbox was ended", printable(name), lessened(plan.access(name)))
			l.attempt.endFor(Notice{Kind: NoticeHeld, Path: name, Text: why + ": " + printable(err.Error())})
			return fmt.Errorf("%s: %w", why, err)
		}
	}
	return err
}

// lessened is what was to become of a path that is to be seen with less access than before.
func lessened(to profile.Access) string {
	if to == profile.NoAccess {
		return "taken away"
	}
	return "made " + to.String()
}

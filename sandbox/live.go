package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clairun/clai-sandbox/profile"
)

// A Live is a sandbox whose grants can change while its command runs. Hand a new one to Launcher.Live before Run, and call
// Show, from any goroutine, with each new profile.
//
// What is granted appears at its real path in a moment, complete with what hides and protects below it. What is taken away is
// gone from every path, and where Landlock locks files (Linux 6.2) also from the directories that a process holds: nothing more can be
// opened there. What it has open stays open, as no kernel can take it back: Show says who holds what. If something cannot be taken
// away, the sandbox is ended.
//
// The second lock on files of a Live sandbox is a weaker one: it allows what is mounted, whatever that comes to be, because its rules
// cannot be added to. Needs Linux 5.12.
type Live struct {
	mu      sync.Mutex
	attempt *attempt
	ready   chan struct{} // closed when there is an attempt
	once    sync.Once
	mounter *mounterProcess
	base    []Step // what bwrap made, as far as it still shows
	layers  []layer
	numbers int
	watched []Watched // what is looked through for the grants that came
	over    bool
	gap     bool // as with a kernel before Linux 6.5
}

// A layer is a tree that was mounted over what was there before.
type layer struct {
	id    int
	path  string
	steps []Step // all at path or below
}

// ErrNotLive means that the sandbox has ended, or never came to be.
var ErrNotLive = errors.New("the sandbox has ended")

// A LiveError says that a path could not be made visible in a running sandbox. What was visible before still is.
type LiveError struct {
	Path string
	Err  error
}

func (e *LiveError) Error() string { return printable(e.Path) + ": " + e.Err.Error() }
func (e *LiveError) Unwrap() error { return e.Err }

// CanBeLive says why sandboxes of this profile cannot be Live here, or nothing.
func CanBeLive(p profile.Profile) string {
	switch {
	case p.NestedNamespaces:
		return "with further namespaces allowed, what is taken away would stay in those that the command makes"
	case !linuxSince(5, 12):
		return "it takes Linux 5.12"
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
	l.attempt, l.base = a, slices.Clone(a.plan.Steps)
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
	if l.mounter != nil {
		l.mounter.close()
		l.mounter = nil
	}
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
		l.attempt.process.mu.Lock()
		init, over := 0, l.attempt.process.reaped
		if !over {
			init = l.attempt.init()
		}
		begun := len(childrenOf(init)) > 0
		l.attempt.process.mu.Unlock()
		switch {
		case over:
			return 0, ErrNotLive
		case begun:
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

// Show makes the running sandbox show what a profile grants, no more and no less. It waits until the command runs. The
// notices are about grants that lead nowhere, and about what the command still holds of those that were taken away.
//
// Of several calls, the last one to begin counts: whoever calls from several goroutines makes sure that it has the newest profile.
//
// The error is a *LiveError for a path that could not be made visible, ErrNotLive, or that of Build, or of ctx.
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
	case len(changes(l.view(l.layers), &plan)) == 0:
		return plan.Notices, nil
	}
	if l.mounter == nil {
		if l.mounter, err = startMounter(init); err != nil {
			return nil, l.failed(&plan, err)
		}
	}
	took, err := l.reconcile(&plan)
	if err != nil {
		return nil, l.failed(&plan, err)
	}
	l.watch(&plan)
	notices := slices.Clone(plan.Notices)
	if took {
		notices = append(notices, holders(init, l.attempt.rules != nil)...)
	}
	return notices, nil
}

// watch remembers what is to be looked through when the command has ended, as it is before the command has seen it.
func (l *Live) watch(plan *Plan) {
	for _, w := range plan.Watched {
		known := func(other Watched) bool { return other.Root == w.Root }
		if !slices.ContainsFunc(l.attempt.plan.Watched, known) && !slices.ContainsFunc(l.watched, known) {
			l.watched = append(l.watched, w)
		}
	}
}

// alsoWatched is what came while the command ran.
func (l *Live) alsoWatched() []Watched {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watched
}

// failed ends the sandbox if it shows something that the plan does not.
func (l *Live) failed(plan *Plan, err error) error {
	select {
	case <-l.attempt.ended:
		return ErrNotLive
	default:
	}
	have := Plan{Steps: l.view(l.layers)}
	for _, name := range changes(have.Steps, plan) {
		if plan.access(name) < have.access(name) {
			l.attempt.kill()
			return fmt.Errorf("%s could not be taken away, so the sandbox was ended: %w", printable(name), err)
		}
	}
	return err
}

// access is what a plan's mounts let a command do at a path of the host's.
func (p *Plan) access(name string) profile.Access {
	switch step := p.decides(name); {
	case step == nil || step.Kind != Bind:
		return profile.NoAccess
	case step.Access == profile.NoAccess: // not known: see change
		return profile.ReadWrite
	default:
		return step.Access
	}
}

// decisive are the steps that a change of the grants can change, by their paths: what grants show, and what hides below them.
func decisive(steps []Step) map[string]Step {
	shown := map[string]Step{}
	for _, step := range steps {
		if step.Kind == Bind && step.Pinned && step.Purpose == "" || step.Purpose == Hides {
			shown[step.Path] = step
		}
	}
	return shown
}

// view are the steps that decide, under these layers.
func (l *Live) view(layers []layer) []Step {
	list := slices.Clone(l.base)
	for _, layer := range layers {
		list = slices.DeleteFunc(list, func(step Step) bool { return within(step.Path, layer.path) })
		list = append(list, layer.steps...)
	}
	return list
}

// changes are the paths of grants that a plan has otherwise than these steps.
func changes(have []Step, plan *Plan) []string {
	old, next := decisive(have), decisive(plan.Steps)
	var list []string
	for name, step := range next {
		if was, ok := old[name]; !ok || !sameStep(was, step) {
			list = append(list, name)
		}
	}
	for name := range old {
		if _, ok := next[name]; !ok {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// sameStep reports whether nothing has changed about a step.
func sameStep(a, b Step) bool {
	return a.Kind == b.Kind && a.Access == b.Access && a.explicit == b.explicit && (a.expected == nil || b.expected == nil || *a.expected == *b.expected)
}

// topmost leaves out what is below another path of the list, which is sorted.
func topmost(list []string) []string {
	var tops []string
	for _, name := range list {
		if !slices.ContainsFunc(tops, func(top string) bool { return within(name, top) }) {
			tops = append(tops, name)
		}
	}
	return tops
}

// reconcile makes the sandbox what the plan says. It reports whether anything was taken away.
//
// Layers that a change lies in, above or below are taken off, the last one first, and what the plan has there is mounted
// anew over what bwrap made. Only a layer at the very path of the one change is replaced without a gap.
func (l *Live) reconcile(plan *Plan) (took bool, err error) {
	changed := changes(l.view(l.layers), plan)
	related := l.related(changed)
	have := Plan{Steps: l.view(l.layers)}
	for _, name := range changed {
		took = took || plan.access(name) < have.access(name)
	}
	if swapped, err := l.swap(plan, changed, related); swapped || err != nil {
		return took, err
	}
	for _, i := range slices.Backward(related) {
		if err := l.mounter.do(mountOrder{Do: mountEnd, ID: l.layers[i].id}); err != nil {
			return took, err
		}
		l.layers = slices.Delete(l.layers, i, i+1)
	}
	// What is kept below a change is taken over as it is, and changed in the next round: as many rounds as grants lie in each other.
	for range maxRounds {
		tops := topmost(changes(l.view(l.layers), plan))
		if len(tops) == 0 {
			return took, nil
		}
		// What is taken away goes first.
		slices.SortStableFunc(tops, func(a, b string) int { return int(plan.access(a)) - int(plan.access(b)) })
		for _, top := range tops {
			if err := l.change(plan, top); err != nil {
				return took, &LiveError{top, err}
			}
		}
	}
	return took, errors.New("the grants lie too deep in each other")
}

// maxRounds bounds how deep grants may lie in each other.
const maxRounds = 64

// related are the layers that changes at these paths lie in, above or below; and what is mounted in one of those goes with it.
func (l *Live) related(changed []string) []int {
	var list []int
	for i, layer := range l.layers {
		if slices.ContainsFunc(changed, func(name string) bool { return within(name, layer.path) || within(layer.path, name) }) ||
			slices.ContainsFunc(list, func(j int) bool { return within(layer.path, l.layers[j].path) }) {
			list = append(list, i)
		}
	}
	return list
}

// swap replaces the layer at the path of the one change, if that is all that there is to do.
func (l *Live) swap(plan *Plan, changed []string, related []int) (bool, error) {
	if len(changed) != 1 || len(related) != 1 || l.layers[related[0]].path != changed[0] {
		return false, nil
	}
	at := related[0]
	old := l.layers[at]
	steps, parts := l.tree(plan, old.path, l.view(l.layers))
	if len(parts) == 0 {
		return false, nil
	}
	order := mountOrder{Do: mountSwap, ID: old.id, Path: old.path, Parts: parts, Gap: l.gap, Narrow: narrowing(old.steps[0], parts)}
	if err := l.mounter.do(order); err != nil {
		return false, &LiveError{old.path, err}
	}
	l.layers[at].steps = steps
	return true, nil
}

// narrowing says what of a mount that is to become these parts becomes read-only as it is.
func narrowing(was Step, parts []mountPart) mountNarrowing {
	switch {
	case was.Kind != Bind || was.Access != profile.ReadWrite || parts[0].Kind != Bind || parts[0].Writable:
		return narrowNothing
	case slices.ContainsFunc(parts[1:], func(p mountPart) bool { return p.Writable || p.Kind == Bind && p.Source == "" }):
		return narrowRoot // something below stays as it is
	}
	return narrowAll
}

// change makes one path, and what is below it, what the plan says.
func (l *Live) change(plan *Plan, top string) error {
	have := l.view(l.layers)
	steps, parts := l.tree(plan, top, have)
	own := (&Plan{Steps: have}).ownDirectory(parent(top))
	if len(parts) == 0 {
		if !slices.ContainsFunc(have, func(s Step) bool { return s.Path == top && (s.Kind == Bind || s.Kind == Mask || s.Kind == Empty) }) {
			return nil // an ancestor shows it as it should be
		}
		return l.remove(top, own)
	}
	if slices.ContainsFunc(have, func(s Step) bool { return s.Path == top && s.Kind == Empty }) {
		// bwrap has no name for its empty file any more, and the kernel mounts nothing on that. The file below is one that was granted.
		if err := l.remove(top, false); err != nil {
			return err
		}
	}
	l.numbers++
	order := mountOrder{Do: mountTree, ID: l.numbers, Path: top, Make: own, Parts: parts, Narrow: narrowing(decisive(have)[top], parts)}
	if err := l.mounter.do(order); err != nil {
		return err
	}
	l.layers = append(l.layers, layer{l.numbers, top, steps})
	for i := range l.base {
		if name := l.base[i].Path; name == top && order.Narrow != narrowNothing || within(name, top) && order.Narrow == narrowAll {
			l.base[i].Access = profile.NoAccess // it may be read-only now, or not
		}
	}
	return nil
}

// remove takes away what is mounted at a path. own says that the place itself goes as well.
func (l *Live) remove(name string, own bool) error {
	if err := l.mounter.do(mountOrder{Do: mountRemove, Path: name, Make: own}); err != nil {
		return err
	}
	deciding := &l.base
	for i := range l.layers {
		if within(name, l.layers[i].path) {
			deciding = &l.layers[i].steps
		}
	}
	*deciding = slices.DeleteFunc(*deciding, func(s Step) bool { return within(s.Path, name) })
	return nil
}

// ownDirectory reports whether a directory inside is the sandbox's own, and not the host's.
func (p *Plan) ownDirectory(name string) bool {
	step := p.decides(name)
	return step == nil || step.Kind == Private || step.Kind == Mask || step.Kind == Dir
}

// tree is what the plan has at top and below it: as steps, and as the parts that the mounter makes it of. What the sandbox
// has there already and keeps is taken over as it is, with all that is mounted below it. There are no parts if the plan
// mounts nothing at top, and nothing has to be kept below.
func (l *Live) tree(plan *Plan, top string, have []Step) (steps []Step, parts []mountPart) {
	var below []Step
	var root *Step
	for i, step := range plan.Steps {
		switch {
		case step.Path == top && (step.Kind == Bind || step.Kind == Mask || step.Kind == Empty):
			root = &plan.Steps[i]
		case step.Path != top && within(step.Path, top):
			below = append(below, step)
		}
	}
	isMask := root == nil && plan.leadingTo(top).Kind == Mask || root != nil && root.Kind == Mask
	old, next := decisive(have), decisive(below)
	kept := func(step Step) bool {
		if step.Kind == Private {
			return slices.ContainsFunc(have, func(s Step) bool { return s.Kind == Private && s.Path == step.Path })
		}
		was, ok := old[step.Path]
		_, is := next[step.Path]
		return ok && is && sameStep(was, step) && step.Kind == Bind && step.Purpose == ""
	}
	var carried []string
	for _, step := range below {
		part, ok := partOf(step)
		switch {
		case slices.ContainsFunc(carried, func(dir string) bool { return within(step.Path, dir) }):
			continue
		case kept(step):
			carried = append(carried, step.Path)
			part, ok = mountPart{Kind: Bind, Path: step.Path}, true
			steps = append(steps, stepsWithin(have, step.Path)...)
		case ok:
			steps = append(steps, step)
		}
		if ok {
			part.Make = isMask
			for _, s := range steps {
				if s.Path != step.Path && within(step.Path, s.Path) && s.Kind != Seal {
					part.Make = s.Kind == Mask
				}
			}
			parts = append(parts, part)
		}
	}
	if root == nil && !slices.ContainsFunc(parts, func(p mountPart) bool { return p.Kind == Bind }) {
		return nil, nil
	}
	if root == nil {
		root = plan.leadingTo(top)
	}
	part, _ := partOf(*root)
	return append([]Step{*root}, steps...), append([]mountPart{part}, parts...)
}

// leadingTo is a step for a directory that the plan has none for, to put something below it: the same as is shown there by a grant
// above, or an empty directory.
func (p *Plan) leadingTo(dir string) *Step {
	if above := p.decides(dir); above != nil && above.Kind == Bind {
		return &Step{Kind: Bind, Path: dir, Source: dir, Access: above.Access, Origin: above.Origin, Pinned: true, Purpose: Anchors}
	}
	return &Step{Kind: Mask, Path: dir, Mode: fileMode(0o555), Origin: baseline}
}

func stepsWithin(steps []Step, dir string) []Step {
	var list []Step
	for _, step := range steps {
		if within(step.Path, dir) {
			list = append(list, step)
		}
	}
	return list
}

// partOf is a step as the mounter makes it. Some kinds it never has to.
func partOf(step Step) (mountPart, bool) {
	part := mountPart{Kind: step.Kind, Path: step.Path, Source: step.Source, Writable: step.Access == profile.ReadWrite, Mode: uint32(step.Mode.Perm())}
	if step.expected != nil {
		part.Device, part.Inode = step.expected.Device, step.expected.Inode
	}
	switch step.Kind {
	case Bind:
		return part, step.Purpose != StandsIn && !strings.HasPrefix(step.Source, "/proc/")
	case Mask, Empty, Copy, Seal:
		return part, true
	}
	return part, false
}

package sandbox

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/mounts"
)

// A layer is a tree that was mounted over what was there before.
type layer struct {
	path  string
	steps []Step // all at path or below
	place mounts.Place
	// mounted are its root, and what below it may have to be taken away for itself, by their paths.
	mounted map[string]mounts.Mounted
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

// AccessTo is what the plan's grants let a command do at a path of the host's.
func (p *Plan) AccessTo(path string) profile.Access { return p.access(path) }

// decisive are the steps that a change of the grants can change, by their paths: what grants show,
// and what hides below them.
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

// differences are the paths of grants that a plan has otherwise than these steps.
func differences(have []Step, plan *Plan) []string {
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
// Layers that a change lies in, above or below are taken off, the last one first, and what the plan
// has there is mounted anew over what bwrap made. Only a layer at the very path of the one change
// is replaced without a gap.
func (l *Live) reconcile(plan *Plan) (took bool, err error) {
	changed := differences(l.view(l.layers), plan)
	related := l.related(changed)
	have := Plan{Steps: l.view(l.layers)}
	for _, name := range changed {
		took = took || plan.access(name) < have.access(name)
	}
	if swapped, err := l.swap(plan, changed, related); swapped || err != nil {
		return took, err
	}
	for _, i := range slices.Backward(related) {
		layer := l.layers[i]
		if err := l.takeAway(layer.mounted[layer.path], layer.place); err != nil {
			return took, err
		}
		l.layers = slices.Delete(l.layers, i, i+1)
	}
	// What is kept below a change is taken over as it is, and changed in the next round: as many
	// rounds as grants lie in each other.
	for range maxRounds {
		tops := topmost(differences(l.view(l.layers), plan))
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

// related are the layers that changes at these paths lie in, above or below; and what is mounted in
// one of those goes with it.
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
	layer := &l.layers[related[0]]
	if below := plan.decides(layer.path); below != nil && below.Path == layer.path && below.Kind == Private {
		return false, nil // it is there, below the layer, with what the command has in it
	}
	steps, tree := l.tree(plan, layer.path, l.view(l.layers))
	if len(tree) == 0 {
		return false, nil
	}
	root := layer.mounted[layer.path]
	if err := l.narrow(root, narrowing(layer.steps[0], tree)); err != nil {
		return false, err
	}
	mounted, err := l.put(l.mounter.Swap(root, l.request(tree, mounts.Place{})))
	if err != nil {
		return false, &LiveError{layer.path, err}
	}
	layer.steps, layer.mounted = steps, mounted
	return true, nil
}

// request is a tree with what of it may have to be taken away for itself.
func (l *Live) request(tree mounts.Tree, place mounts.Place) mounts.Request {
	r := mounts.Request{Tree: tree, Place: place, Keep: []string{tree.Path()}}
	for _, m := range tree[1:] {
		if m.Kind == mounts.Bind || m.Kind == mounts.Entries || m.Kind == mounts.Carried || m.Kind == mounts.Overlay {
			r.Keep = append(r.Keep, m.Path)
		}
	}
	root := tree[0]
	r = inOrder(mounts.Request{Tree: tree[1:], Place: place, Keep: r.Keep})
	r.Tree = append(mounts.Tree{root}, r.Tree...)
	return r
}

// put takes what the mounter answers.
func (l *Live) put(list []mounts.Mounted, left []mounts.LeftOut, err error) (map[string]mounts.Mounted, error) {
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.Join(append([]error{errors.New("it is not there")}, errorsOf(left)...)...)
	}
	mounted := map[string]mounts.Mounted{}
	for _, m := range list {
		mounted[m.Path] = m
	}
	return mounted, nil
}

func errorsOf(left []mounts.LeftOut) []error {
	var list []error
	for _, l := range left {
		list = append(list, l.Err)
	}
	return list
}

// A narrowed mount becomes read-only as it is.
type narrowed uint8

const (
	narrowNothing narrowed = iota
	narrowRoot             // without what is mounted below
	narrowAll
)

// narrowing says what of a mount that is to become this tree becomes read-only as it is.
func narrowing(was Step, tree mounts.Tree) narrowed {
	switch {
	case was.Kind != Bind || was.Access != profile.ReadWrite || tree[0].Kind != mounts.Bind || tree[0].Writable:
		return narrowNothing
	case slices.ContainsFunc(tree[1:], func(m mounts.Mount) bool { return m.Writable || m.Kind == mounts.Carried }):
		return narrowRoot // something below stays as it is
	}
	return narrowAll
}

// narrow makes what is mounted read-only, for whoever is in it. What is open for writing there
// keeps the kernel from it: then the processes that have it open are ended.
func (l *Live) narrow(m mounts.Mounted, how narrowed) error {
	if how == narrowNothing || m.ID == 0 {
		return nil
	}
	err := l.mounter.Narrow(m, how == narrowAll)
	if errors.Is(err, unix.EBUSY) {
		l.notices = append(l.notices, endWriters(l.attempt, m)...)
		err = l.mounter.Narrow(m, how == narrowAll)
	}
	return err
}

// takeAway takes away what is mounted. It is made read-only first: who stands there, or has a
// directory there open, can change nothing there afterwards, neither content nor permissions nor
// times.
func (l *Live) takeAway(m mounts.Mounted, place mounts.Place) error {
	if m.ID == 0 {
		return errors.New("it is not known what is mounted there")
	}
	err := l.mounter.Unmount(m, place)
	if !errors.Is(err, mounts.ErrWritten) {
		return err
	}
	if err := l.narrow(m, narrowRoot); err != nil {
		return err
	}
	return l.mounter.Unmount(m, place)
}

// change makes one path, and what is below it, what the plan says.
func (l *Live) change(plan *Plan, top string) error {
	have := l.view(l.layers)
	now := &Plan{Steps: have}
	if lead := plan.leadTo(top); lead != "" && now.leadTo(top) == "" {
		top = lead
	}
	steps, tree := l.tree(plan, top, have)
	if len(tree) == 0 {
		if !slices.ContainsFunc(have, func(s Step) bool { return s.Path == top && s.decides() }) {
			return nil // an ancestor shows it as it should be
		}
		if !now.inOwn(top) || plan.access(top) == profile.NoAccess {
			return l.remove(top, now.place(top))
		}
		// What covers it is a directory or a file of the sandbox's own: it can only be covered in
		// its turn.
		shown := plan.leadingTo(top)
		if object, err := (Host{}).Lstat(top); err == nil {
			shown.file = !object.Mode.IsDir()
		}
		m, _ := shown.mountLive()
		steps, tree = []Step{*shown}, mounts.Tree{m}
	}
	if slices.ContainsFunc(have, func(s Step) bool { return s.Path == top && s.Kind == Empty && !now.inOwn(top) }) {
		// The kernel mounts nothing on a file that nobody has a name for. The file below is one
		// that was granted.
		if err := l.remove(top, mounts.Place{}); err != nil {
			return err
		}
	}
	how := narrowing(decisive(have)[top], tree)
	place := now.place(top)
	var mounted map[string]mounts.Mounted
	if old, is := l.mountedAt(top); is && plan.access(top) < now.access(top) {
		if err := l.narrow(old, how); err != nil {
			return err
		}
		m, err := l.put(l.mounter.Swap(old, l.request(tree, place)))
		if err != nil {
			return err
		}
		mounted = m
		l.forget(top)
	} else {
		m, err := l.put(l.mounter.Mount(l.request(tree, place)))
		if err != nil {
			return err
		}
		mounted = m
	}
	l.layers = append(l.layers, layer{path: top, steps: steps, place: place, mounted: mounted})
	return nil
}

// mountedAt is what is mounted at a path, as the one that is seen.
func (l *Live) mountedAt(path string) (mounts.Mounted, bool) {
	for _, layer := range slices.Backward(l.layers) {
		if within(path, layer.path) {
			m, is := layer.mounted[path]
			return m, is
		}
	}
	m, is := l.begun[path]
	return m, is
}

// forget takes what was at a path and below out of the account: it is not mounted any more.
func (l *Live) forget(path string) {
	steps, mounted := &l.base, l.begun
	for i := range l.layers {
		if within(path, l.layers[i].path) {
			steps, mounted = &l.layers[i].steps, l.layers[i].mounted
		}
	}
	*steps = slices.DeleteFunc(*steps, func(s Step) bool { return within(s.Path, path) })
	for name := range mounted {
		if within(name, path) {
			delete(mounted, name)
		}
	}
}

// remove takes away what is mounted at a path.
func (l *Live) remove(name string, place mounts.Place) error {
	old, is := l.mountedAt(name)
	if !is {
		return errors.New("it is not known what is mounted there")
	}
	if err := l.takeAway(old, place); err != nil {
		return err
	}
	l.forget(name)
	return nil
}

// inOwn reports whether what a path is in is the sandbox's own directory, in which nothing need be
// mounted to be there.
func (p *Plan) inOwn(name string) bool {
	above := p.decides(parent(name))
	return above != nil && (above.Kind == Mask || above.Entries)
}

// leadTo is the directory of the sandbox's own, in one of the command's, that leads to a path; or
// nothing.
func (p *Plan) leadTo(name string) string {
	for _, step := range p.Steps {
		if step.Kind == Mask && step.Purpose == Anchors && within(name, step.Path) {
			return step.Path
		}
	}
	return ""
}

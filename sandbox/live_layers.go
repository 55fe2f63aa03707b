package sandbox

import (
	"errors"
	"slices"

	"github.com/clairun/clai-sandbox/profile"
)

// A layer is a tree that was mounted over what was there before.
type layer struct {
	id    int
	path  string
	steps []Step // all at path or below
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

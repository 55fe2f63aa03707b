package sandbox

import (
	"cmp"
	"slices"
)

// layers are the steps that decide what a path is, by path. At equal paths the one that was put
// last decides; that is the whole rule of precedence, and profile.Profile orders its grants for it.
type layers map[string]*Step

func (l *layers) put(step Step) {
	if *l == nil {
		*l = layers{}
	}
	(*l)[step.Path] = &step
}

// at returns the layer that decides what path is: the nearest one at or above it. It is nil on the
// empty root.
func (l layers) at(path string) *Step {
	for {
		if step := l[path]; step != nil {
			return step
		}
		if path == "/" {
			return nil
		}
		path = parent(path)
	}
}

// shows reports whether the host's object at path is visible through a bind.
func (l layers) shows(path string) bool {
	step := l.at(path)
	return step != nil && step.Kind == Bind && !step.Image
}

// needed returns the layers without those that change nothing, because the nearest one above is a
// bind of the same access. bwrap's time grows with the square of its mounts.
func (l layers) needed() []Step {
	list := make([]Step, 0, len(l))
	for path, step := range l {
		above := l.at(parent(path))
		if step.Kind == Bind && above != nil && above != step && above.Kind == Bind && above.Access == step.Access && step.Purpose != Anchors && !step.Entries && !step.Settings && !step.Image && !above.Image {
			continue
		}
		list = append(list, *step)
	}
	return list
}

// largestLast moves what is in /sys behind the rest: it is a dozen mounts on many hosts, nothing
// else is above it or below it, and bwrap reads the list of all mounts for each bind.
func largestLast(steps []Step) []Step {
	inSys := func(step Step) bool { return within(step.Path, "/sys") }
	late := slices.DeleteFunc(slices.Clone(steps), func(step Step) bool { return !inSys(step) })
	return append(slices.DeleteFunc(steps, inSys), late...)
}

// shallowestFirst puts steps in mounting order: a mount hides what was mounted below it before.
// Equal depths are in the order of their paths, so that a plan does not depend on the order of the
// grants.
func shallowestFirst(steps []Step) {
	type key struct {
		depth, index int
		path         string
	}
	keys := make([]key, len(steps)) // steps are large: to move each once is what makes this quick
	for i := range steps {
		keys[i] = key{depth(steps[i].Path), i, steps[i].Path}
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.depth, b.depth), cmp.Compare(a.path, b.path), cmp.Compare(a.index, b.index))
	})
	unsorted := slices.Clone(steps)
	for i, k := range keys {
		steps[i] = unsorted[k.index]
	}
}

package sandbox

import (
	"slices"
	"strings"

	"github.com/clairun/clai-sandbox/sandbox/mounts"
)

// tree is what the plan has at top and below it: as steps, and as a tree for the mounter. What the
// sandbox has there already and keeps is carried over as it is, with all that is mounted below it.
// The tree is empty if the plan mounts nothing at top, and nothing has to be kept below.
func (l *Live) tree(plan *Plan, top string, have []Step) (steps []Step, tree mounts.Tree) {
	var below []Step
	var root *Step
	for i, step := range plan.Steps {
		switch {
		case step.Path == top && step.decides():
			root = &plan.Steps[i]
		case step.Path != top && within(step.Path, top):
			below = append(below, step)
		}
	}
	old, next := decisive(have), decisive(below)
	kept := func(step Step) bool {
		if step.Kind == Private || step.Purpose == Caches {
			return slices.ContainsFunc(have, func(s Step) bool { return s.Kind == step.Kind && s.Path == step.Path })
		}
		was, ok := old[step.Path]
		_, is := next[step.Path]
		return ok && is && sameStep(was, step) && step.Kind == Bind && step.Purpose == ""
	}
	var carried []string
	for _, step := range below {
		switch {
		case slices.ContainsFunc(carried, func(dir string) bool { return within(step.Path, dir) }):
		case kept(step):
			carried = append(carried, step.Path)
			tree = append(tree, mounts.Mount{Kind: mounts.Carried, Path: step.Path, File: step.file})
			steps = append(steps, stepsWithin(have, step.Path)...)
		default:
			if m, ok := step.mountLive(); ok {
				steps, tree = append(steps, step), append(tree, m)
			}
		}
	}
	if root == nil && !slices.ContainsFunc(tree, func(m mounts.Mount) bool {
		return m.Kind == mounts.Bind || m.Kind == mounts.Carried || m.Kind == mounts.Entries || m.Kind == mounts.Overlay
	}) {
		return nil, nil
	}
	if root == nil {
		root = plan.leadingTo(top)
	}
	m, _ := root.mountLive()
	return append([]Step{*root}, steps...), append(mounts.Tree{m}, tree...)
}

// decides reports whether the step is one that a change of the grants may have to take away for
// itself.
func (s *Step) decides() bool { return s.Kind == Bind || s.Kind == Mask || s.Kind == Empty }

// leadingTo is a step for a directory that the plan has none for, to put something below it: the
// same as is shown there by a grant above, or an empty directory.
func (p *Plan) leadingTo(dir string) *Step {
	if above := p.decides(dir); above != nil && above.Kind == Bind {
		return &Step{Kind: Bind, Path: dir, Source: dir, Access: above.Access, Origin: above.Origin, Pinned: true, Purpose: Anchors, noExec: above.noExec}
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

// mountLive is a step as the mounter makes it in a running sandbox, where nothing is left out: what
// cannot be shown is told.
func (s *Step) mountLive() (mounts.Mount, bool) {
	m, ok := s.mount()
	m.Optional = false
	return m, ok && s.Kind != Socket && s.Kind != Dir && !strings.HasPrefix(s.Source, "/proc/")
}

package sandbox

import (
	"slices"
	"strings"

	"github.com/clairun/clai-sandbox/profile"
)

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

package sandbox

import (
	"slices"

	"github.com/clairun/clai-sandbox/profile"
)

// insideDirectory is where a sandbox has what is this program's.
const insideDirectory = "/run/clai-sandbox/"

// ShowProgram shows a program read-only at /run/clai-sandbox/NAME inside, and returns that path: source on the host, which
// has no symbolic link in its path, or where that is empty the program that carries the plan out. It is executed there as
// any other command of the plan, and can do no more than one.
func (p *Plan) ShowProgram(name, source string) string {
	step := Step{Kind: Bind, Path: insideDirectory + name, Source: source, Access: profile.ReadOnly, Origin: baseline, Pinned: true, file: true}
	if source == "" {
		step.Source, step.Pinned = ownProgram, false
	}
	if slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Path == step.Path }) {
		return step.Path
	}
	// Build's order: the shallowest first.
	at := slices.IndexFunc(p.Steps, func(s Step) bool { return depth(s.Path) > depth(step.Path) || s.Kind == Seal })
	p.Steps = slices.Insert(slices.Clone(p.Steps), at, step)
	return step.Path
}

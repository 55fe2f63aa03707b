package sandbox

import (
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/landlock"
)

// The Landlock layer on files: rules from the same plan as the mounts. Should a mount show more
// than it was meant to, the kernel still refuses to open it. The trampoline adds the rules inside,
// for the very objects that stand at the paths of the plan, right before it becomes the command.

// locksFiles reports whether the plan's files get the Landlock layer here.
func (p *Plan) locksFiles() bool {
	// A program in a Landlock domain can mount nothing, also in a namespace of its own.
	return !p.NestedNamespaces && landlock.ABI() >= landlock.FilesABI
}

// landlockRules are the rules for what the sandbox shows, by its paths inside. live says that what
// is shown can change.
func (p *Plan) landlockRules(live bool) []landlock.Rule {
	if live {
		// One rule, for the root: rules cannot be added when a grant comes. It allows what is
		// mounted below the root at the time, and so nothing that is not: a stream that leads out,
		// or what is held of a grant that was taken away.
		return []landlock.Rule{{Path: "/", Rights: landlock.ReadWrite}}
	}
	rules := []landlock.Rule{{Path: "/", Rights: landlock.ReadDir}} // names may be listed, as far as the mounts show them
	for _, step := range p.Steps {
		rights := uint64(0)
		switch step.Kind {
		case Bind, Socket:
			if step.Purpose == Protects || step.Purpose == Anchors || within(step.Path, "/proc") {
				continue // below something that has a rule
			}
			rights = landlock.ReadOnly
			if step.Access > profile.ReadOnly {
				rights = landlock.ReadWrite
			}
			if step.file || step.Kind == Socket {
				rights &= landlock.Files
			}
		case Private:
			rights = landlock.ReadWrite
		case Mask:
			rights = landlock.ReadFile | landlock.ReadDir
		case Empty:
			rights = landlock.ReadFile
		case Proc:
			rights = landlock.Processes
		case Dev:
			rights = landlock.Devices
		default:
			continue
		}
		rules = append(rules, landlock.Rule{Path: step.Path, Rights: rights})
	}
	return rules
}

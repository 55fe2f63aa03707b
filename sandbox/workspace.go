package sandbox

import (
	"slices"

	"github.com/clairun/clai-sandbox/profile"
)

// skillsName is the directory of an agent's workspace that every sandbox workspace has.
const skillsName = "skills"

var skillsOrigin = profile.Origin{Kind: profile.OriginWorkspace, Source: skillsName}

// ownWorkspace puts the workspace of a session's own where commands work that may not write the
// agent's: at one path for all, because it lies in this program's state. A link leads to the
// agent's, where that may be read. The agent's skills are seen in it as they are now.
func (b *builder) ownWorkspace() {
	p := &b.profile
	if !p.OwnsWorkspace() {
		return
	}
	for _, path := range []string{profile.SandboxWorkspace, profile.AgentWorkspace} {
		for _, step := range b.layers {
			if within(step.Path, path) || within(path, step.Path) && step.Kind == Bind {
				b.refused = &SetupError{Path: step.Path, Why: "is granted, and the session's own workspace stands at " + profile.SandboxWorkspace + ", the agent's at " + profile.AgentWorkspace,
					Hint: "move it, leave the grant out, or let the command write the workspace: --workspace-access rw or cow"}
				return
			}
		}
	}
	b.layers.put(Step{Kind: Private, Path: profile.SandboxWorkspace, Source: p.SandboxWorkspace, Mode: fileMode(0o700), Origin: p.AccessOrigin, Purpose: OwnWork})
	if p.WorkspaceAccess == profile.ReadOnly {
		b.links = append(b.links, Link{Path: profile.AgentWorkspace, Text: p.Workspace})
	}
	b.skills()
}

// skills shows the agent's skills, read-only. What hides in them stands at another path, so they
// are left out where something does; and a link, which a command in the agent's workspace may have
// made, is not followed.
func (b *builder) skills() {
	source := join(b.profile.Workspace, skillsName)
	w, err := follow(b.tree, source)
	if err != nil {
		return
	}
	real, err := follow(b.tree, b.profile.Workspace)
	why := b.forbidden(w, profile.ReadOnly)
	switch {
	case err != nil || w.Real != join(real.Real, skillsName):
		why = "a symbolic link"
	case !w.Object.Mode.IsDir():
		why = "not a directory"
	case b.holdsOwn(w.Real):
		why = "clai-sandbox keeps its own files in it"
	case slices.ContainsFunc(b.profile.Hidden, func(h profile.HiddenPath) bool {
		hidden := h.Path
		if at, err := follow(b.tree, h.Path); err == nil {
			hidden = at.Real
		}
		return within(hidden, w.Real) || within(w.Real, hidden)
	}):
		why = "something of it is hidden"
	}
	if why != "" {
		b.notices = append(b.notices, Notice{Kind: NoticePathLeftOut, Path: source, Text: "left out: the agent's skills (" + printable(source) + "): " + why})
		return
	}
	b.layers.put(Step{Kind: Bind, Path: join(profile.SandboxWorkspace, skillsName), Source: w.Real, Access: profile.ReadOnly, Origin: skillsOrigin, Purpose: Skills, Pinned: true})
}

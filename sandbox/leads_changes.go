package sandbox

import (
	"strings"
	"sync"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/cow/changes"
)

// ExecutedIn says of changes in a directory that was seen copy on write why something outside would
// execute them, or do as they say: what would be protected there if the command had written the
// directory itself. That is by its name, or because the person's settings, links and tools lead
// there, as they are when the first change is asked about. It is empty for any other change. If it
// cannot be worked out, it is empty for no change.
func ExecutedIn(p profile.Profile, dir string, tree Tree) func(changes.Change) string {
	look := sync.OnceValues(func() (*Protection, map[string]bool) {
		b := builder{profile: p, tree: newMemory(tree)}
		b.own = b.ownDirectories()
		b.layers.put(Step{Kind: Bind, Path: dir, Source: dir, Access: profile.ReadWrite, Pinned: true})
		b.protect()
		if b.refused != nil || b.protection == nil {
			return nil, nil
		}
		plan := Plan{Steps: b.steps()}
		return b.protection, plan.guarded()
	})
	return func(c changes.Change) string {
		protection, guarded := look()
		if protection == nil {
			return "it cannot be worked out whether something outside executes it, or does as it says"
		}
		if rule := protection.holds(guarded, dir, c); rule != "" {
			return "your settings, a link or a tool of yours lead to it (" + printable(rule) + ")"
		}
		return ""
	}
}

// holds names what protects something that changed below a directory, or is empty. guarded is what
// is there and protected.
func (p *Protection) holds(guarded map[string]bool, dir string, c changes.Change) string {
	path := join(dir, c.Path)
	if c.Kind != changes.Deleted {
		rule, is := p.awaits(path)
		if !is && c.Type != "directory" {
			rule, is = p.names.MatchLeaf(parent(path), baseName(path), strings.Contains(path, ".git/"))
		}
		if !is && c.Type == "link" {
			rule, is = p.names.MatchLink(parent(path), baseName(path))
		}
		if is {
			return rule
		}
	}
	for at := path; at != dir && at != "/"; at = parent(at) {
		if guarded[at] {
			return at
		}
	}
	if c.Kind == changes.Deleted || c.Kind == changes.Replaced {
		for known := range guarded {
			if within(known, path) {
				return known
			}
		}
	}
	return ""
}

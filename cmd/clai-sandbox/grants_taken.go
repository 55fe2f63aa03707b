package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
)

// tellTaken says what still gives an agent that much of a path that was taken away, and which
// sandboxes show it until they end. It reports whether all were reached.
func tellTaken(t grants.Taking, access profile.Access) bool {
	if t.Domain != "" {
		return tellTakenDomain(t)
	}
	for _, g := range t.Covered {
		fmt.Printf("still granted: %s, %s %s; clai-sandbox grants revoke %s\n", g.ID, g.Access, profile.Printable(g.Path), g.ID)
	}
	if g := configured(t.Grant, access); g != nil {
		fmt.Printf("still given by %s: %s %s\n", oneLine(g.Origin.String()), g.Access, profile.Printable(g.Path))
	}
	for _, s := range t.Unreached {
		fmt.Fprintf(os.Stderr, "clai-sandbox: a running sandbox shows %s until it ends (process %d, %s): %s; to end it: kill %d\n", oneLine(t.Path), s.PID,
			oneLine(s.Command), oneLine(s.Why), s.PID)
	}
	return len(t.Unreached) == 0
}

// configured is the deepest path of the agent's configuration that gives it that much of a grant's
// path, or nil.
func configured(taken grants.Grant, access profile.Access) *profile.Grant {
	caller, err := profile.CurrentCaller()
	if err != nil {
		return nil
	}
	config, err := profile.Load(caller.Directories())
	if err != nil {
		return nil
	}
	p, err := profile.Resolve(config, caller, profile.Request{Agent: taken.Agent})
	if err != nil {
		return nil
	}
	var found *profile.Grant
	for i, g := range p.Grants {
		if g.Origin.Kind != profile.OriginWorkspace && profile.Within(taken.Resolved, g.Path) && (found == nil || len(g.Path) >= len(found.Path)) {
			found = &p.Grants[i]
		}
	}
	if found == nil || found.Access < access {
		return nil
	}
	isHidden := func(h profile.HiddenPath) bool {
		return profile.Within(taken.Resolved, h.Path) && profile.Within(h.Path, found.Path) && h.Path != found.Path
	}
	if !found.Explicit && slices.ContainsFunc(p.Hidden, isHidden) {
		return nil
	}
	return found
}

// tellTakenDomain is the same of a domain.
func tellTakenDomain(t grants.Taking) bool {
	for _, g := range t.Covered {
		fmt.Printf("still granted: %s, %s; clai-sandbox grants revoke %s\n", g.ID, profile.Printable(g.Domain), g.ID)
	}
	for _, s := range t.Unreached {
		fmt.Fprintf(os.Stderr, "clai-sandbox: a running sandbox reaches %s until it ends (process %d, %s): %s; to end it: kill %d\n", oneLine(t.Domain), s.PID,
			oneLine(s.Command), oneLine(s.Why), s.PID)
	}
	return len(t.Unreached) == 0
}

package sandbox

import (
	"slices"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

func TestTheSessionsWorkspaceAndWhatItShows(t *testing.T) {
	for name, c := range map[string]struct {
		tree    []string
		change  func(*profile.Profile)
		refused bool
		skills  bool // are seen
	}{
		"nothing beside it":     {},
		"skills":                {tree: []string{"/home/u/work/skills/a"}, skills: true},
		"skills are a file":     {tree: []string{"/home/u/work/skills"}},
		"skills are a link":     {tree: []string{"/home/u/work/skills -> /home/u/secret", "/home/u/secret/"}},
		"in skills is a secret": {tree: []string{"/home/u/work/skills/a"}, change: func(p *profile.Profile) { p.Hidden = []profile.HiddenPath{{Path: "/home/u/work/skills/a"}} }},
		"skills are hidden":     {tree: []string{"/home/u/work/skills/a"}, change: func(p *profile.Profile) { p.Hidden = []profile.HiddenPath{{Path: "/home/u/work"}} }},
		"skills by another name are hidden": {tree: []string{"/home/u/work/skills/a", "/home/u/w -> work"},
			change: func(p *profile.Profile) { p.Hidden = []profile.HiddenPath{{Path: "/home/u/w/skills"}} }},
		"skills hold our files": {tree: []string{"/home/u/work/skills/state/"}, change: func(p *profile.Profile) {
			p.OwnDirectories = append(p.OwnDirectories, "/home/u/work/skills/state")
		}},
		"it is granted": {tree: []string{"/workspace/"}, refused: true, change: func(p *profile.Profile) {
			p.Grants = append(p.Grants, grant("/workspace", profile.ReadOnly, profile.OriginFlag))
		}},
		"something in it is": {tree: []string{"/workspace/x/"}, refused: true, change: func(p *profile.Profile) {
			p.Grants = append(p.Grants, grant("/workspace/x", profile.ReadOnly, profile.OriginFlag))
		}},
		"the agent's is there": {tree: []string{"/agent/"}, refused: true, change: func(p *profile.Profile) {
			p.Workspace = "/agent"
			p.Grants = []profile.Grant{grant("/agent", profile.ReadOnly, profile.OriginWorkspace)}
		}},
		"the agent's is writable": {tree: []string{"/workspace/"}, change: func(p *profile.Profile) {
			p.WorkspaceAccess, p.WorkingDirectory = profile.ReadWrite, "/home/u/work"
			p.Grants = append(p.Grants, grant("/workspace", profile.ReadOnly, profile.OriginFlag))
		}},
	} {
		p := fakeProfile(home)
		p.Session, p.WorkspaceAccess, p.WorkingDirectory = &profile.Session{}, profile.ReadOnly, "/workspace"
		p.Grants[len(p.Grants)-1].Access = profile.ReadOnly
		if c.change != nil {
			c.change(&p)
		}
		plan, err := Build(p, newFakeTree(append(slices.Clone(usual), c.tree...)...))
		if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "the session's own workspace stands at /workspace") {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if step := plan.at("/workspace/skills"); (step != nil && step.Purpose == Skills) != c.skills || !c.skills && len(c.tree) > 0 && c.change == nil && len(plan.Notices) == 0 {
			t.Errorf("%s: skills: %+v, %v", name, step, plan.Notices)
		}
		if step := plan.at("/workspace"); !c.refused && (step != nil && step.Purpose == OwnWork) != (p.WorkspaceAccess == profile.ReadOnly) {
			t.Errorf("%s: %+v", name, step)
		}
	}
}

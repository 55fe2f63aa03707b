package changes

import (
	"path"
	"slices"
	"strings"

	"github.com/clairun/clai-sandbox/profile"
)

// A Selection says what is applied.
type Selection struct {
	Paths []string // with all that is below; none is everything
	// Force are paths that are applied although the host changed them meanwhile, with what is below
	// them. A file that is named itself keeps a setuid or setgid bit.
	Force  []string
	DryRun bool
	// Seen is what a person looked at, if they did: what commands changed after that is left out.
	Seen Shown
	// ByRules applies what the layer's rules apply without anybody, and leaves the rest out.
	ByRules bool
	// Leave, if there is one, says why a change is not applied, or nothing.
	Leave func(Change) string
	// Hunks, if any, are the parts of the one file in Paths that are applied, counted from 1.
	Hunks []int
}

// covers reports whether a path is one of those selected, or below one.
func covers(selected []string, name string) bool {
	for _, s := range selected {
		if s = path.Clean(s); s == "." || s == name || strings.HasPrefix(name, s+"/") {
			return true
		}
	}
	return len(selected) == 0
}

// choose takes what was selected, with the new directories above it, and leaves out what must not
// be applied.
func (a *applier) choose(r *Review, s Selection) ([]*Change, error) {
	above := map[string]bool{}
	found := map[string]bool{}
	for i := range r.Changes {
		c := &r.Changes[i]
		if !covers(s.Paths, c.Path) {
			continue
		}
		if s.ByRules && c.Verdict != profile.VerdictApply {
			for _, p := range s.Paths {
				found[p] = found[p] || covers([]string{p}, c.Path)
			}
			continue
		}
		for _, p := range s.Paths {
			found[p] = found[p] || covers([]string{p}, c.Path)
		}
		for dir := path.Dir(c.Path); dir != "."; dir = path.Dir(dir) {
			above[dir] = true
		}
	}
	for _, p := range s.Paths {
		if !found[p] {
			a.result.skip(p, "nothing was changed there")
		}
	}
	var chosen []*Change
	refused := map[string]string{}
	changes := make([]*Change, len(r.Changes))
	for i := range r.Changes {
		changes[i] = &r.Changes[i]
	}
	for _, d := range r.dirs {
		if d.opaque && d.lower && !s.DryRun {
			refused[d.path] = "the directory cannot be changed in the layer"
		}
	}
	slices.SortFunc(changes, func(x, y *Change) int { return strings.Compare(x.Path, y.Path) })
	for _, c := range changes {
		selected := covers(s.Paths, c.Path)
		asks := selected && s.ByRules && c.Verdict != profile.VerdictApply
		if asks {
			selected = false
		}
		if asks && (!above[c.Path] || c.Kind != Added || c.Type != "directory" || c.Held != "" || c.Verdict == profile.VerdictNever) {
			why := asked(c)
			if c.Kind == Added || c.Kind == Replaced {
				refused[c.Path] = why
			}
			a.result.skip(c.Path, why)
			continue
		}
		if !selected && !(above[c.Path] && c.Type == "directory" && (c.Kind == Added || c.Kind == Replaced)) {
			continue
		}
		why := a.refused(c, s.Force, refused)
		if why == "" {
			why = s.Seen.lacks(c)
		}
		if why == "" && s.Leave != nil {
			why = s.Leave(*c)
		}
		if !selected && c.Kind == Replaced {
			why = "it takes the place of something else; name it itself"
		}
		if why != "" {
			refused[c.Path] = why
			a.result.skip(c.Path, why)
			continue
		}
		chosen = append(chosen, c)
	}
	return chosen, nil
}

// refused says why a change is not applied.
func (a *applier) refused(c *Change, force []string, refused map[string]string) string {
	for dir := path.Dir(c.Path); dir != "."; dir = path.Dir(dir) {
		if why, no := refused[dir]; no {
			if c.lower == nil || strings.HasPrefix(why, "the directory cannot") {
				return "the directory that it is in is not applied: " + dir
			}
		}
	}
	switch {
	case c.Never != "":
		return c.Never
	case c.Verdict == profile.VerdictNever:
		return never(c)
	case c.implicit && !a.dry:
		return "the directory that it was in cannot be changed in the layer"
	case c.Conflict != "" && (len(force) == 0 || !covers(force, c.Path)):
		return c.Conflict
	case strings.HasPrefix(path.Base(c.Path), ".clai-sandbox-"):
		return "the name is one of this program's temporary files'"
	}
	return ""
}

// asked says why no rule applies a change.
func asked(c *Change) string {
	switch {
	case c.Verdict == profile.VerdictNever:
		return never(c)
	case c.Rule == "":
		return "a person is asked, as there are no rules"
	}
	return "a person is asked: " + c.Rule
}

// never says which rule keeps a change from the host.
func never(c *Change) string { return "a rule of the configuration never applies it: " + c.Rule }

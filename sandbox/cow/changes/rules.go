package changes

import (
	"path"
	"slices"
	"strings"

	"github.com/clairun/clai-sandbox/profile"
)

// judge says of each change what the rules have it be. A rule applies nothing that it does not
// mean: what something outside executes is applied where a pattern has its name written out, and
// what leads out, or gives away rights, never.
func (w *walker) judge(rules *profile.ChangeRules, bare map[string]bool) error {
	j := judge{walker: w, rules: rules, protected: protected(rules), bare: bare}
	byPath := map[string]*Change{}
	for i := range w.review.Changes {
		c := &w.review.Changes[i]
		byPath[c.Path] = c
		if err := j.change(c); err != nil {
			return err
		}
	}
	for i := range w.review.Changes { // a new name is judged as both, and so is the old one
		c := &w.review.Changes[i]
		if old := byPath[c.From]; old != nil {
			old.stricter(c.Verdict, c.Rule)
			c.stricter(old.Verdict, old.Rule)
		}
	}
	return nil
}

type judge struct {
	*walker
	rules     *profile.ChangeRules
	protected []profile.ProtectedPath
	bare      map[string]bool
}

// protected are the names that are executed elsewhere, with those of the rules.
func protected(rules *profile.ChangeRules) []profile.ProtectedPath {
	var own []profile.ProtectedPath
	if rules != nil {
		own = rules.Protected
	}
	return (&profile.Profile{Protected: own}).ProtectedIn(true)
}

// stricter keeps the stricter verdict: never, ask, apply.
func (c *Change) stricter(v profile.Verdict, rule string) {
	order := []profile.Verdict{profile.VerdictApply, profile.VerdictAsk, profile.VerdictNever}
	if now := slices.Index(order, c.Verdict); slices.Index(order, v) > now || v == c.Verdict && c.Rule == "" {
		c.Verdict, c.Rule = v, rule
	}
}

// path judges a change by one path.
func (j *judge) path(c *Change, name string, as *Change) {
	parts := strings.Split(name, "/")
	fixed := j.fixed(parts)
	if as.Note != "" && len(fixed) == 0 {
		fixed = []int{len(parts) - 1}
	}
	v, p := j.rules.Judge(name, fixed)
	rule := "no rule has it"
	if p.Text != "" {
		rule = p.Text + " (" + p.Origin.Source + ")"
	} else if len(fixed) > 0 {
		if open, _ := j.rules.Judge(name, nil); open == profile.VerdictApply {
			rule = "no rule has it by its name, and it may be executed elsewhere"
		}
	}
	c.stricter(v, rule)
}

func (j *judge) change(c *Change) error {
	c.Verdict = profile.VerdictApply
	j.path(c, c.Path, c)
	if c.Held != "" {
		c.stricter(profile.VerdictAsk, c.Held)
	}
	if c.Type == "link" && c.Kind != Deleted {
		j.target(c)
	}
	if c.Kind != Deleted && c.Kind != Replaced {
		return nil
	}
	switch j.rules.Deletions {
	case profile.DeletionsNever:
		c.stricter(profile.VerdictNever, "deletions: never")
	case profile.DeletionsAsk:
		c.stricter(profile.VerdictAsk, "deletions: ask")
	}
	if c.lower == nil || !c.lower.directory() || c.Verdict == profile.VerdictNever {
		return nil
	}
	all, err := tree(j.ctx, j.lower, c.Path, j.left)
	if j.left -= len(all); err != nil {
		if j.ctx.Err() != nil || j.left < 0 {
			return err
		}
		c.stricter(profile.VerdictNever, "what is in it cannot be read: "+reason(err))
	}
	for name := range all {
		j.path(c, c.Path+"/"+name, &Change{})
	}
	return nil
}

// target judges a link by what it leads to. Where something on the way is a link itself, nobody can
// say where that is.
func (j *judge) target(c *Change) {
	to := path.Join(path.Dir(c.Path), c.Target)
	switch {
	case leadsOut(c.Path, c.Target):
		c.stricter(profile.VerdictAsk, "it leads out of the directory")
		return
	case path.Clean(c.Target) != strings.TrimSuffix(c.Target, "/"):
		c.stricter(profile.VerdictAsk, "the link goes up again")
		return
	}
	at := ""
	for part := range strings.SplitSeq(to, "/") {
		at = path.Join(at, part)
		for _, root := range []int{j.upper, j.lower} {
			if o, err := lookAt(root, at); err == nil && o.link() {
				c.stricter(profile.VerdictAsk, "it leads to another link")
				return
			}
		}
	}
	j.path(c, to, &Change{})
}

// fixed are the places in a path of names that are executed elsewhere, or obeyed.
func (j *judge) fixed(parts []string) []int {
	var fixed []int
	inGit := false
	for i, part := range parts {
		switch {
		case strings.EqualFold(part, ".git"):
			fixed = append(fixed, i)
		case inGit && isIn(gitNames, part), !inGit && strings.EqualFold(part, "HEAD"), isIn(ciFiles, part), isIn(buildFiles, part):
			fixed = append(fixed, i)
		case strings.HasSuffix(strings.ToLower(part), ".mk"), i > 0 && isIn(gitNames, part) && j.bare[strings.Join(parts[:i], "/")]:
			fixed = append(fixed, i)
		}
		inGit = inGit || isGits(part)
	}
	for _, p := range j.protected {
		if at, n := named(parts, p); at >= 0 {
			for i := at; i < at+n; i++ {
				fixed = append(fixed, i)
			}
		}
	}
	return fixed
}

package changes

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

// rules are written as "apply; ask; never".
func rules(t *testing.T, text string, deletions profile.Deletions) *profile.ChangeRules {
	r := &profile.ChangeRules{Deletions: deletions}
	lists := []*[]profile.ChangePattern{&r.Apply, &r.Ask, &r.Never}
	for i, list := range strings.Split(text, "; ") {
		for word := range strings.FieldsSeq(list) {
			p, err := profile.ParseChangePattern(word)
			if err != nil {
				t.Fatal(err)
			}
			*lists[i] = append(*lists[i], p)
		}
	}
	return r
}

// applied is what an apply by rules brings to the host, with the directories that it takes.
func (b *bench) applied(r *profile.ChangeRules, s Selection) string {
	b.t.Helper()
	l := b.layer()
	l.Rules = r
	l.Leads = func(c Change) string {
		if c.Path == "n/lead" {
			return "somebody's settings say so"
		}
		return ""
	}
	result, err := l.Apply(b.t.Context(), s)
	if err != nil {
		b.t.Fatal(err)
	}
	slices.Sort(result.Applied)
	return strings.Join(result.Applied, " ")
}

func TestRulesApplyNoMoreThanTheyMean(t *testing.T) {
	for name, c := range map[string]struct {
		rules  string
		host   []string
		upper  string // a script in the layer
		del    string // names that are deleted
		opaque string
		delete profile.Deletions
		want   string
	}{
		"a file":                                     {rules: "src/**", upper: "echo x >src/a; echo x >b", host: []string{"src/o", "b"}, want: "src/a"},
		"nothing without rules":                      {upper: "echo x >a", want: ""},
		"with its new directories":                   {rules: "**/*.go", upper: "mkdir -p n/m; echo x >n/m/a.go; echo x >n/m/a.txt", want: "n n/m n/m/a.go"},
		"a directory open to all":                    {rules: "n/*.go", upper: "mkdir n; chmod 777 n; echo x >n/a.go", want: ""},
		"a file open to all":                         {rules: "**", upper: "echo x >a; chmod 666 a", want: ""},
		"git's hooks":                                {rules: "**", upper: "mkdir -p .git/hooks; echo x >.git/hooks/post-commit; echo x >a", want: "a"},
		"a link in a git directory":                  {rules: "**/.git/**", host: []string{".git/logs/o"}, upper: "mkdir -p .git/logs; ln -s o .git/logs/HEAD; ln -s o .git/o; echo x >.git/a", want: ".git/a"},
		"a link in a repository without .git":        {rules: "n/**", upper: "mkdir -p n/logs; echo x >n/HEAD; ln -s HEAD n/logs/HEAD", want: "n n/logs"},
		"git's hooks below":                          {rules: "src/**", upper: "mkdir -p src/.GIT/hooks; echo x >src/.GIT/hooks/post-commit", want: "src"},
		"git's hooks, half by their name":            {rules: "**/.git/**", host: []string{".git/o"}, upper: "mkdir -p .git/hooks; echo x >.git/a; echo x >.git/hooks/x", want: ".git/a"},
		"a repository without .git":                  {rules: "**", upper: "mkdir -p n/hooks; echo x >n/HEAD; echo x >n/config; echo x >n/hooks/x", want: "n"},
		"one that is called so":                      {rules: "**", upper: "mkdir -p q.git/hooks q.git/modules/a q.git/info; echo x >q.git/hooks/update; echo x >q.git/config; echo x >q.git/modules/a/config; echo x >q.git/info/attributes; echo x >q.git/a", want: "q.git q.git/a q.git/info"},
		"half of one on the host":                    {rules: "**", host: []string{"n/config", "n/hooks/x"}, upper: "mkdir -p n/objects n/refs; echo x >n/HEAD; echo x >n/refs/x", want: "n/objects n/refs n/refs/x"},
		"what is led to":                             {rules: "**", host: []string{"n/o"}, upper: "mkdir -p n; echo x >n/lead; echo x >n/a", want: "n/a"},
		"what is led to, by its name":                {rules: "n/lead", host: []string{"n/o"}, upper: "mkdir -p n; echo x >n/lead; echo x >n/a", want: "n/lead"},
		"what is led to goes":                        {rules: "**", host: []string{"n/lead", "n/a"}, del: "n/lead n/a", delete: profile.DeletionsApply, want: "n/a"},
		"a build file":                               {rules: "src/**", upper: "echo x >src/Makefile", host: []string{"src/o"}, want: ""},
		"names in another case":                      {rules: "**", upper: "echo x >JUSTFILE; echo x >gnumakefile; echo x >.ENVRC; echo x >a.MK; mkdir .Github; echo x >.Github/a; echo x >a", want: "a"},
		"a build file by its name":                   {rules: "src/** **/Makefile", upper: "echo x >src/Makefile", host: []string{"src/o"}, want: "src/Makefile"},
		"a protected name":                           {rules: "**", upper: "mkdir -p a/.vscode; echo x >a/.vscode/tasks.json; echo x >.envrc", want: "a"},
		"a protected path deep down":                 {rules: "**", upper: "mkdir -p a/.hg; echo x >a/.hg/hgrc", want: "a a/.hg"},
		"a name that somebody protects":              {rules: "**", upper: "echo x >own.sh; mkdir d; echo x >d/own.sh", want: "d"},
		"a program":                                  {rules: "**", upper: "echo x >a; chmod 755 a; echo x >b; chmod 4755 b", want: ""},
		"a program by its name":                      {rules: "a b", upper: "echo x >a; chmod 755 a; echo x >b; chmod 4755 b", want: "a"},
		"a program's new content":                    {rules: "**", upper: "echo x >a; chmod 755 a", host: []string{"a"}, want: ""},
		"ask wins":                                   {rules: "**; sub/**", upper: "mkdir sub; echo x >sub/a; echo x >b", want: "b"},
		"never":                                      {rules: "**; ; sub/**", upper: "mkdir sub; echo x >sub/a; echo x >b", want: "b"},
		"a deletion":                                 {rules: "**", host: []string{"a", "b"}, del: "a", want: ""},
		"a deletion, allowed":                        {rules: "a", host: []string{"a", "b"}, del: "a b", delete: profile.DeletionsApply, want: "a"},
		"a directory that goes with something never": {rules: "**; ; d/x/secret", host: []string{"d/x/secret", "d/a"}, del: "d", delete: profile.DeletionsApply, want: ""},
		"a directory that goes with hooks":           {rules: "**", host: []string{"d/.git/hooks/x", "d/a"}, del: "d", delete: profile.DeletionsApply, want: ""},
		"a directory that goes":                      {rules: "d/**", host: []string{"d/b/x", "d/a"}, del: "d", delete: profile.DeletionsApply, want: "d"},
		"a directory of which only some may go":      {rules: "d d/a", host: []string{"d/b", "d/a"}, del: "d", delete: profile.DeletionsApply, want: ""},
		"a directory that becomes a file":            {rules: "**", host: []string{"d/x", "e"}, upper: "echo x >d", want: ""},
		"a directory that becomes a file, allowed":   {rules: "**; d/x", host: []string{"d/x", "e"}, upper: "echo x >d", delete: profile.DeletionsApply, want: ""},
		"a directory made anew":                      {rules: "d/n; d/x", host: []string{"d/x", "d/y"}, opaque: "d", upper: "echo x >d/n", delete: profile.DeletionsApply, want: "d/n"},
		"a new name for what may not go":             {rules: "src/**", host: []string{"keep/a", "src/o"}, upper: "echo old keep/a >src/a", del: "keep/a", delete: profile.DeletionsApply, want: ""},
		"a new name in a place that asks":            {rules: "src/**", host: []string{"src/a", "src/o"}, upper: "echo old src/a >a", del: "src/a", delete: profile.DeletionsApply, want: ""},
		"a new name":                                 {rules: "src/**", host: []string{"src/a", "src/o"}, upper: "echo old src/a >src/b", del: "src/a", delete: profile.DeletionsApply, want: "src/a src/b"},
		"a link out":                                 {rules: "**", upper: "ln -s /etc a; ln -s ../x b; ln -s x/../.. c; mkdir d; ln -s ../../x d/e", want: "d"},
		"a link by its name, out":                    {rules: "a", upper: "ln -s /etc a", want: ""},
		"a link to itself":                           {rules: "**", upper: "ln -s a a; ln -s a/b/c d; echo x >e", want: "e"},
		"a link to what would ask":                   {rules: "src/**", host: []string{"src/o", "conf"}, upper: "ln -s ../conf src/a; ln -s ../.git/hooks src/b", want: ""},
		"a link to a link":                           {rules: "**", upper: "ln -s b a; ln -s c b; echo x >c", want: "b c"},
		"a link that goes up again":                  {rules: "src/**", host: []string{"src/o"}, upper: "ln -s x/../o src/a", want: ""},
		"a repository of the host's":                 {rules: "**", host: []string{"n.git/HEAD", "n.git/config"}, upper: "mkdir n.git; echo x >n.git/config; echo x >n.git/a", want: "n.git/a"},
		"a link inside":                              {rules: "src/**", host: []string{"src/o"}, upper: "ln -s o src/a", want: "src/a"},
		"a FIFO":                                     {rules: "**", upper: "mkfifo a", want: ""},
		"names":                                      {rules: "*", upper: "echo x >'-rf'; echo x >\"$(printf 'a\\377')\"", want: "-rf a\xff"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t).files(c.host...).begin()
			for _, dir := range []string{"src"} {
				if strings.Contains(c.upper, dir+"/") {
					if _, err := os.Stat(b.host + "/" + dir); err == nil {
						b.sh(b.upper, "mkdir -p "+dir)
					}
				}
			}
			if c.opaque != "" {
				b.opaque(c.opaque)
			}
			if c.upper != "" {
				b.sh(b.upper, "umask 022;"+c.upper)
			}
			for name := range strings.FieldsSeq(c.del) {
				b.whiteout(name)
			}
			r := rules(t, c.rules, c.delete)
			r.Protected = []profile.ProtectedPath{{Name: "own.sh"}}
			if got := b.applied(r, Selection{ByRules: true}); got != c.want {
				t.Errorf("applied %q, want %q: %s", got, c.want, words(b.review()))
			}
		})
	}
}

// A person who wants what a rule forbids changes the rule.
func TestNeverIsNeverAppliedByNameEither(t *testing.T) {
	b := newBench(t).files("x/a", "d/x/a", "e").begin()
	b.sh(b.upper, "mkdir x; echo new >x/a; echo new >e")
	b.whiteout("d")
	r := rules(t, "; ; x/** d/x", 0)
	if got := b.applied(r, Selection{Paths: []string{"x/a", "d", "e"}, Force: []string{"x/a", "d", "e"}}); got != "e" {
		t.Errorf("applied %q", got)
	}
	if text, err := os.ReadFile(b.host + "/x/a"); err != nil || string(text) != "old x/a\n" {
		t.Errorf("%q %v", text, err)
	}
}

// What is committed in a worktree is in a layer of its repository's own directory, where nothing is
// called .git.
func TestNoRuleAppliesWhatIsInAGitDirectory(t *testing.T) {
	b := newBench(t).files("HEAD", "objects/a", "refs/heads/main", "config").begin()
	b.sh(b.upper, "mkdir -p refs/heads modules/x/hooks; echo new >refs/heads/main; echo x >modules/x/hooks/post-checkout; echo x >note")
	if got := b.applied(rules(t, "** refs/** note", 0), Selection{ByRules: true}); got != "" {
		t.Errorf("applied %q", got)
	}
	r := b.review()
	if first := r.Changes[0]; !strings.HasPrefix(first.Path, "modules") || first.Note == "" {
		t.Errorf("%s", words(r))
	}
}

// A command that cannot see a credential may make its own in that place. A person is told first,
// and no rule applies it.
func TestWhatCommandsDidNotSeeIsShownFirst(t *testing.T) {
	b := newBench(t).files("a", "s/token").begin()
	b.write(b.dir+"/veil/s/token", "")
	b.sh(b.upper, "echo new >a; mkdir s; echo new >s/token; echo x >Makefile")
	if got := b.applied(rules(t, "** s/token", 0), Selection{ByRules: true}); got != "a" {
		t.Errorf("applied %q", got)
	}
	if first := b.review().Changes[0]; first.Path != "s/token" || first.Held == "" || first.Note == "" {
		t.Errorf("%+v", first)
	}
}

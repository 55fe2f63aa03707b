package repository

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// edited is a file of settings in which keys were set ("key=value"), got a value more
// ("key+=value"), or were taken away with all below them ("-key").
func edited(t *testing.T, text string, edits ...string) string {
	t.Helper()
	d, err := parseDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, edit := range edits {
		if gone, is := strings.CutPrefix(edit, "-"); is {
			for key := range d.values() {
				if key == gone || sectionOf(key) == gone {
					d.set(key, nameOf(key), nil)
				}
			}
			continue
		}
		key, value, _ := strings.Cut(edit, "=")
		key, more := strings.CutSuffix(key, "+")
		values := []string{value}
		if more {
			values = append(d.values()[key], value)
		}
		d.set(key, nameOf(key), values)
	}
	return d.text()
}

const (
	heads    = "+refs/heads/*:refs/remotes/"
	upstream = "[remote \"upstream\"]\n\turl = /srv/up\n\tfetch = " + heads + "upstream/*\n"
	twoOfThe = upstream + "[remote \"fork\"]\n\turl = /srv/fork\n"
	origin   = "[remote \"origin\"]\n\turl = /srv/a\n\tfetch = " + heads + "origin/*\n"
	main     = origin + "[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n"
)

// Whatever key says it, and over however many runs: git goes where it went.
func TestGitGoesWhereItWent(t *testing.T) {
	evil := []string{"remote.evil.url=/srv/evil", "remote.evil.fetch=" + heads + "evil/*"}
	for name, c := range map[string]struct {
		base   string
		runs   [][]string
		person []Setting
		gone   string   // a branch that is not there any more
		left   []string // keys that are kept out in the last run; those of the runs before do not count
	}{
		"a pull request is merged":             {base: main, runs: [][]string{{"branch.main.merge=refs/pull/6/head"}}, left: []string{"branch.main.merge"}},
		"another branch, too":                  {base: main, runs: [][]string{{"branch.main.merge+=refs/heads/evil"}}, left: []string{"branch.main.merge"}},
		"the branch is unset, then set":        {base: main, runs: [][]string{{"-branch.main.merge"}, {"branch.main.merge=refs/heads/evil"}}, left: []string{"branch.main.merge"}},
		"a new branch's pull request":          {base: main, runs: [][]string{{"branch.x.remote=origin", "branch.x.merge=refs/pull/6/head"}}, left: []string{"branch.x.remote", "branch.x.merge"}},
		"origin beside the only one":           {base: upstream, runs: [][]string{{"remote.origin.url=/srv/evil"}}, left: []string{"remote.origin.url"}},
		"origin beside it, and a branch":       {base: upstream, runs: [][]string{{"remote.origin.url=/srv/evil", "branch.x.remote=origin"}}, left: []string{"remote.origin.url", "branch.x.remote"}},
		"another one first, then origin":       {base: upstream, runs: [][]string{evil, {"remote.origin.url=/srv/evil"}}, left: []string{"remote.origin.url"}},
		"origin beside two":                    {base: twoOfThe, runs: [][]string{{"remote.origin.url=/srv/evil"}}, left: []string{"remote.origin.url"}},
		"where a name is looked for":           {base: main, runs: [][]string{append(evil, "checkout.defaultremote=evil")}, left: []string{"checkout.defaultremote"}},
		"that, in two runs":                    {base: main, runs: [][]string{{"checkout.defaultremote=origin"}, {"-checkout.defaultremote"}, append(evil, "checkout.defaultremote=evil")}, left: []string{"checkout.defaultremote"}},
		"a branch without one is pushed":       {base: main, runs: [][]string{append(evil, "branch.feat.pushremote=evil")}, left: []string{"branch.feat.pushremote"}},
		"a branch without one is fetched":      {base: main, runs: [][]string{append(evil, "branch.feat.remote=evil", "branch.feat.merge=refs/heads/feat")}, left: []string{"branch.feat.remote", "branch.feat.merge"}},
		"an address for a remote's name":       {base: main, runs: [][]string{{"branch.feat.remote=/srv/evil"}}, left: []string{"branch.feat.remote"}},
		"all branches are pushed":              {base: main, runs: [][]string{append(evil, "remote.pushdefault=evil")}, left: []string{"remote.pushdefault"}},
		"a branch in two runs":                 {base: main, runs: [][]string{{"-branch.main"}, append(evil, "branch.main.remote=evil")}, left: []string{"branch.main.remote"}},
		"a branch that is gone, in two runs":   {base: main, gone: "main", runs: [][]string{{"-branch.main"}, append(evil, "branch.main.remote=evil")}, left: []string{"branch.main.remote"}},
		"origin's new name, and another one":   {base: main, runs: [][]string{{"-remote.origin", "remote.old.url=/srv/a", "branch.main.remote=old"}, {"remote.origin.url=/srv/evil"}}, left: []string{"remote.origin.url"}},
		"what is fetched":                      {base: main, runs: [][]string{{"remote.origin.fetch=+refs/pull/6/head:refs/remotes/origin/main"}}, left: []string{"remote.origin.fetch"}},
		"what is fetched besides":              {base: main, runs: [][]string{{"remote.origin.fetch+=+refs/heads/evil:refs/remotes/origin/main"}}, left: []string{"remote.origin.fetch"}},
		"what is not fetched":                  {base: main, runs: [][]string{{"remote.origin.fetch=+refs/heads/x:refs/remotes/origin/x"}}, left: []string{"remote.origin.fetch"}},
		"another's branches over origin's":     {base: main, runs: [][]string{{"remote.evil.url=/srv/evil", "remote.evil.fetch=" + heads + "origin/*"}}, left: []string{"remote.evil.fetch"}},
		"another's tags over one's own":        {base: main, runs: [][]string{append(evil, "remote.evil.fetch+=+refs/tags/*:refs/tags/*")}, left: []string{"remote.evil.fetch"}},
		"an address that is pushed to":         {base: main, runs: [][]string{{"remote.origin.pushurl=/srv/evil"}}, left: []string{"remote.origin.pushurl"}},
		"an address that is pushed to no more": {base: edited(t, main, "remote.origin.pushurl=/srv/mine"), runs: [][]string{{"-remote.origin.pushurl"}}, left: []string{"remote.origin.pushurl"}},
		"what is pushed":                       {base: main, runs: [][]string{{"remote.origin.push=refs/heads/x:refs/heads/main"}}, left: []string{"remote.origin.push"}},
		"to which branch it is":                {base: main, runs: [][]string{{"push.default=upstream"}}, left: []string{"push.default"}},
		"from one of the person's to another":  {base: edited(t, main, "remote.fork.url=/srv/fork"), runs: [][]string{{"branch.main.remote=fork"}}, left: []string{"branch.main.remote"}},
		"a name that the person's settings have": {base: main, person: []Setting{{"remote.pushdefault", "fork"}},
			runs: [][]string{{"remote.fork.url=/srv/evil"}}, left: []string{"remote.fork.url"}},
		"a name that a branch has": {base: edited(t, main, "branch.x.remote=fork"), runs: [][]string{{"remote.fork.url=/srv/evil", "remote.fork.fetch=" + heads + "fork/*"}},
			left: []string{"remote.fork.url", "remote.fork.fetch"}},
		"a submodule's address": {base: main + "[submodule \"x\"]\n\turl = /srv/x\n", runs: [][]string{{"submodule.x.url=/srv/evil"}}, left: []string{"submodule.x.url"}},

		"the first remote":                 {runs: [][]string{{"remote.origin.url=/srv/a", "branch.main.remote=origin", "branch.main.merge=refs/heads/main"}}},
		"one remote more":                  {base: main, runs: [][]string{evil, {"remote.third.url=/srv/third"}}},
		"one beside the only one":          {base: upstream, runs: [][]string{evil}},
		"push -u":                          {base: main, runs: [][]string{{"branch.x.remote=origin", "branch.x.merge=refs/heads/x", "push.default=current"}}},
		"a branch of one's own":            {base: main, runs: [][]string{{"branch.x.remote=.", "branch.x.merge=refs/heads/main"}, {"branch.x.remote=origin", "branch.x.merge=refs/heads/x"}}},
		"another name for a branch":        {base: main, gone: "main", runs: [][]string{{"-branch.main", "branch.trunk.remote=origin", "branch.trunk.merge=refs/heads/main"}}},
		"a branch that goes":               {base: edited(t, main, "remote.fork.url=/srv/fork", "branch.x.remote=fork"), gone: "x", runs: [][]string{{"-branch.x"}}},
		"the same address by another name": {base: main, runs: [][]string{{"remote.up.url=/srv/a", "branch.main.remote=up", "remote.pushdefault=up"}}},
		"one branch more of a remote":      {base: main, runs: [][]string{{"remote.origin.fetch+=+refs/heads/x:refs/remotes/origin/x", "remote.origin.fetch+=refs/tags/*:refs/tags/*"}}},
	} {
		t.Run(name, func(t *testing.T) {
			host := c.base
			var left []Left
			for _, run := range c.runs {
				var err error
				if host, left, err = Carry(host, edited(t, host, run...), host, Around{Person: c.person, Has: func(branch string) bool { return branch != c.gone }}); err != nil {
					t.Fatal(err)
				}
			}
			var keys []string
			for _, l := range left {
				keys = append(keys, l.Key)
			}
			slices.Sort(keys)
			slices.Sort(c.left)
			if !slices.Equal(keys, c.left) {
				t.Errorf("left out: %q, and not %q\n%s", keys, c.left, host)
			}
		})
	}
}

// A working tree's own file of settings has precedence over the repository's: nothing of where git
// goes is carried over to it.
func TestAWorkingTreesOwnSettingsLeadNowhere(t *testing.T) {
	inside := edited(t, "", "branch.main.pushremote=evil", "remote.evil.url=/srv/evil", "checkout.defaultremote=evil", "user.name=A")
	text, left, err := Carry("", inside, "", Around{Worktree: true})
	if err != nil || len(left) != 3 || text != "[user]\n\tname = A\n" {
		t.Errorf("%q %+v %v", text, left, err)
	}
}

func TestABranchIsThereAsGitHasIt(t *testing.T) {
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "x")
	git(t, dir, "branch", "a/packed")
	git(t, dir, "pack-refs", "--all")
	git(t, dir, "branch", "a/loose")
	open, err := os.Open(dir + "/.git")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for _, where := range []string{"", "commondir", "reftable"} {
		if where != "" {
			write(t, dir+"/.git/"+where, "")
		}
		has := Branches(int(open.Fd()))
		for branch, want := range map[string]bool{"main": true, "a/packed": true, "a/loose": true, "gone": false, "a/loose/gone": false, "../../../../etc/passwd": true} {
			if got := has(branch); got != (want || where != "") {
				t.Errorf("%s %s: %v", where, branch, got)
			}
		}
		os.Remove(dir + "/.git/" + where)
	}
}

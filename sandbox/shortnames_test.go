package sandbox

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// "git show 1a2b3c4" shows what a ref has that is called so, and "git reset --hard main" goes where
// .git/main says. In the scripts, $S is how git abbreviates the first commit, $D what "git
// describe" makes of it, and $E another commit.
func TestRefsThatAreCalledAsObjectsAreSetAside(t *testing.T) {
	const first = `S=$(git rev-parse --short main~1); D=v1-0-g$S; E=$(git commit-tree main^{tree} -m evil); `
	for name, inside := range map[string]string{
		"a branch":                       "git branch $S $E",
		"a tag":                          "git tag $S $E; git tag $D $E",
		"with an annotation":             "git tag -am x $S $E",
		"in capitals":                    "git branch $(echo $S | tr a-f A-F) $E",
		"shorter, longer":                "git branch $(git rev-parse --short=10 main~1) $E; git tag $(git rev-parse --short=39 main~1) $E",
		"of a remote repository's":       "git update-ref refs/remotes/$S $E; mkdir -p .git/refs/remotes/$D; echo $E > .git/refs/remotes/$D/HEAD",
		"right in .git":                  "echo $E > .git/$S; echo 'ref: refs/heads/main' > .git/$D; echo $E > .git/main",
		"right in .git/refs":             "echo $E > .git/refs/$S; echo $E > .git/refs/main",
		"in a directory there":           "git update-ref refs/remotes/origin/main main~1; mkdir -p .git/origin .git/refs/origin; echo $E > .git/origin/main; echo $E > .git/refs/origin/main",
		"written in place":               "git branch $S main~1; sleep 0.1; echo $E > .git/refs/heads/$S",
		"renamed to it":                  "echo $E > .git/x.lock; sleep 0.1; mv .git/x.lock .git/refs/heads/$S",
		"by an open file":                "git branch $S main~1; exec 5<>.git/refs/heads/$S; sleep 0.1; echo $E >&5",
		"packed":                         "git branch $S $E; echo $E refs/tags/$D >> .git/packed-refs",
		"packed, without refs":           "printf '# pack-refs with: peeled fully-peeled sorted \\n%s %s\\n' $E $S > .git/packed-refs",
		"packed by git":                  "git pack-refs --all; sed -i s,refs/tags/v1,refs/tags/$S, .git/packed-refs; sed -i /tags/s/^[0-9a-f]*/$E/ .git/packed-refs",
		"of an object that is in a pack": "git gc -q; git branch $S $E",
	} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s strict=%v", name, strict), func(t *testing.T) {
				needMounts(t)
				t.Parallel()
				h := gitHost(t)
				if strict {
					h.strict()
				}
				work := h.profile.Workspace
				h.git(work, "tag", "v1")
				h.git(work, "commit", "-q", "--allow-empty", "-m", "second")
				second := h.git(work, "rev-parse", "main")
				want := h.git(work, "rev-parse", "main~1")
				r := h.run("/bin/sh", "-ec", first+inside+"; sleep 0.1")
				if r.Failure != nil || r.ExitCode != 0 || len(r.Notices) == 0 {
					t.Errorf("%v %d %s %v", r.Failure, r.ExitCode, r.Err, r.Notices)
				}
				for _, name := range []string{want[:7], want[:10], want[:39], strings.ToUpper(want[:7]), "v1-0-g" + want[:7]} {
					if is := h.git(work, "rev-parse", name); is != want {
						t.Errorf("%s is %s, not %s: %v", name, is, want, r.Notices)
					}
				}
				if is := h.git(work, "rev-parse", "main"); is != second {
					t.Errorf("main is %s, not %s", is, second)
				}
				if strings.Contains(inside, "origin") {
					if is := h.git(work, "rev-parse", "origin/main"); is != want {
						t.Errorf("origin/main is %s, not %s", is, want)
					}
				}
			})
		}
	}
}

// opencode keeps the first commit's name right in .git, and git itself for a moment what a clone
// lacks of a repository without its history. A ref that is called as such a file is not taken for
// another one.
func TestFilesOfToolsRightInGitStay(t *testing.T) {
	const opencode = "R=$(git rev-list --max-parents=0 HEAD); echo $R > .git/opencode; git worktree add -q wt; echo $R > .git/worktrees/wt/opencode; sleep 0.1; echo $R > .git/opencode"
	for name, c := range map[string]struct {
		inside string
		stays  bool
	}{
		"opencode":              {opencode, true},
		"a branch":              {opencode + "; git branch opencode", false},
		"a branch, packed":      {"git branch opencode; git pack-refs --all; " + opencode, false},
		"a remote repository's": {"git update-ref refs/remotes/opencode/HEAD HEAD; " + opencode, false},
		"another name":          {opencode + "; echo $R > .git/opencode2; rm .git/opencode .git/worktrees/wt/opencode", false},
		"of a shallow clone":    {"git clone -q --depth 1 file://$PWD s1; git clone -q file://$PWD/s1 s2; git -C s2 log", true},
	} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s strict=%v", name, strict), func(t *testing.T) {
				needMounts(t)
				t.Parallel()
				h := gitHost(t)
				if strict {
					h.strict()
				}
				work := h.profile.Workspace
				h.git(work, "commit", "-q", "--allow-empty", "-m", "second")
				r := h.run("/bin/sh", "-ec", c.inside+"; sleep 0.1")
				if r.Failure != nil || r.ExitCode != 0 || c.stays != (len(r.Notices) == 0) {
					t.Errorf("%v %d %s %v", r.Failure, r.ExitCode, r.Err, r.Notices)
				}
				if has := exists(work+"/.git/opencode") || exists(work+"/.git/opencode2"); strings.Contains(c.inside, "opencode") && has != c.stays {
					t.Errorf("it is there: %v", has)
				}
			})
		}
	}
}

// Numbers and words are what branches are called, too, and what names a commit after itself
// misleads nobody.
func TestOrdinaryRefsStay(t *testing.T) {
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprintf("strict=%v", strict), func(t *testing.T) {
			needMounts(t)
			t.Parallel()
			h := gitHost(t)
			if strict {
				h.strict()
			}
			work := h.profile.Workspace
			h.git(work, "branch", "0ddba11")
			h.git(work, "branch", "0ddba12")
			h.git(work, "pack-refs", "--all")
			h.git(work, "branch", "-f", "0ddba12")
			r := h.run("/bin/sh", "-ec", `git config user.name x; git commit -q --allow-empty -m x; for b in 2024 20241123 cafe feed decade dead-code deadbee fix-1234567 origin/1a2b3c4 v1.2.3 abc; do git branch $b; git tag t-$b; done
git tag $(git rev-parse --short HEAD) HEAD; git branch -f 0ddba11; git branch -f 0ddba12; sleep 0.1; git pack-refs --all; git branch -f 0ddba12 HEAD~1; git stash -q || true; echo x >> file; git stash -q; git merge -q --no-ff abc || true
git bisect start HEAD HEAD~1 >/dev/null; git bisect reset; git notes add -m x; git worktree add -q wt; git -C wt commit -q --allow-empty -m wt; git update-ref FOO_HEAD HEAD; git cherry-pick --no-commit main || true; git gc -q`)
			if r.Failure != nil || r.ExitCode != 0 || slices.ContainsFunc(r.Notices, func(n Notice) bool { return strings.Contains(n.Text+n.Path, "refs") }) {
				t.Errorf("%v %d %s %v", r.Failure, r.ExitCode, r.Err, r.Notices)
			}
			if list := h.git(work, "for-each-ref", "--format=%(refname)"); len(lines(list)) < 29 {
				t.Errorf("%d: %s", len(lines(list)), list)
			}
			h.git(work, "stash", "show")
		})
	}
}

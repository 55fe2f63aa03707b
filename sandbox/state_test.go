package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Who goes on with a rebase, a cherry-pick or "git am" that has stopped has git obey the files of it. In the scripts, evil is a commit that
// has .envrc, and ./e a program that leaves a trace.
func TestTheStateOfWhatStoppedIsNoCommandsToChoose(t *testing.T) {
	const prepare = `git switch -q -c evil; echo evil > .envrc; git add -f .envrc; git commit -qm evil; git tag evil-one; git switch -q main; git branch -D -q evil
git switch -q -c other; echo other > file; git commit -qam other; git format-patch -q -1 --stdout > ../p1; echo 2 > two; git add two; git commit -qm two; git format-patch -q -1 --stdout > ../p2
git switch -q main; echo mine > file; git commit -qam mine; git branch mine; `
	const (
		rebase = prepare + "git rebase -q other; true"
		pick   = prepare + "git cherry-pick other~1 other; true"
		am     = prepare + "git am -q -3 ../p1 ../p2; true"
		solve  = "echo solved > file; git add file; "
		trace  = `printf '#!/bin/sh\necho >> "$HOME/trace"\n' > e; chmod +x e; mkdir -p git-merge-; `
	)
	for name, c := range map[string]struct {
		before, inside, after string
		told                  bool
	}{
		"a line to execute":                           {rebase, trace + "echo exec ./e >> .git/rebase-merge/git-rebase-todo; " + solve, "git -c core.editor=true rebase --continue", true},
		"by a rename":                                 {rebase, trace + "echo exec ./e > t; mv t .git/rebase-merge/git-rebase-todo; " + solve, "git -c core.editor=true rebase --continue", true},
		"the directory for another":                   {rebase, trace + "cp -r .git/rebase-merge m; echo x ./e > m/git-rebase-todo; rm -r .git/rebase-merge; mv m .git/rebase-merge; " + solve, "git -c core.editor=true rebase --continue", true},
		"another commit":                              {rebase, "echo pick $(git rev-parse evil-one) >> .git/rebase-merge/git-rebase-todo; " + solve, "git -c core.editor=true rebase --continue", true},
		"the same one made anew, with another commit": {rebase, "cp -r .git/rebase-merge m; echo pick $(git rev-parse evil-one) > m/git-rebase-todo; rm -r .git/rebase-merge; mv m .git/rebase-merge; " + solve, "git -c core.editor=true rebase --continue", true},
		"the same one made anew, file by file":        {rebase, "cp -r .git/rebase-merge m; rm -r .git/rebase-merge; mkdir .git/rebase-merge; git rev-parse evil-one > .git/rebase-merge/autostash; sleep 0.1; cp m/* .git/rebase-merge; rm -r m; " + solve, "git -c core.editor=true rebase --continue", true},
		"a strategy":                                  {rebase, trace + "echo pick $(git rev-parse other) > /dev/null; echo /../e > .git/rebase-merge/strategy; " + solve, "git -c core.editor=true rebase --continue", true},
		"a stash":                                     {rebase, "git rev-parse evil-one > .git/rebase-merge/autostash; " + solve, "git -c core.editor=true rebase --continue", true},
		"a number for a prompt":                       {rebase, "echo '$(./e)' > .git/rebase-merge/end; " + trace, "for f in .git/rebase-merge/*; do if grep -q '[$]' $f; then echo >> $HOME/trace; fi; done", true},
		"of a rebase that a command began": {"true", trace + `mkdir .git/rebase-merge; cd .git/rebase-merge; git rev-parse HEAD > onto; cp onto orig-head; echo refs/heads/main > head-name; echo exec ./e > git-rebase-todo
: > done; : > interactive; echo 1 > msgnum; echo 1 > end`, "git rebase --continue", true},
		"a cherry-pick's strategy":           {pick, trace + `printf '[options]\n\tstrategy = /../e\n' > .git/sequencer/opts; ` + solve, "git -c core.editor=true cherry-pick --continue", true},
		"a cherry-pick's other commit":       {pick, "echo pick $(git rev-parse evil-one) > .git/sequencer/todo; " + solve, "git -c core.editor=true cherry-pick --continue", true},
		"another patch":                      {am, "sed -i 's/two/.envrc/g' .git/rebase-apply/0002; " + solve, "git am --continue", true},
		"a bisection's argument":             {"true", "echo -- -f > .git/BISECT_START; git bisect start", "grep -qe -f .git/BISECT_START && echo >> $HOME/trace", true},
		"git goes on":                        {rebase, solve + "git -c core.editor=true rebase --continue", "git log -1 --format=%s | grep -x mine", false},
		"git begins one with commands":       {prepare + "true", "git switch -q -c t main~1; git commit -q --allow-empty -m t; git rebase -q -x 'test -f file' -x 'echo ran > /tmp/ran' other; cat /tmp/ran", "true", false},
		"git stops, and goes on":             {prepare + "true", "git rebase -q other || true; " + solve + "git -c core.editor=true rebase --continue && git am ../p1 || git am --abort", "true", false},
		"git aborts one, and begins another": {rebase, "git rebase --abort; echo more > more; git add more; git commit -q -m more; git rebase -q other || true; " + solve + "git -c core.editor=true rebase --continue", "git log -1 --format=%s | grep -x more", false},
		"git am of many":                     {prepare + "true", "git switch -q -c n; for i in $(seq 30); do git commit -q --allow-empty -m $i; done; git format-patch -q --always -30 -o /tmp/p; git switch -q main; git am -q --empty=keep /tmp/p/*", "true", false},
		"git bisect":                         {prepare + "true", "git bisect start -q mine mine~1; git bisect reset", "true", false},
	} {
		for _, strict := range []bool{false, true} {
			if strict && !slices.Contains([]string{"a line to execute", "the directory for another", "a stash", "git goes on"}, name) {
				continue // which text is right is decided at the same place
			}
			t.Run(fmt.Sprintf("%s strict=%v", name, strict), func(t *testing.T) {
				needMounts(t)
				t.Parallel()
				h := gitHost(t)
				if strict {
					h.strict()
				}
				work := h.profile.Workspace
				person := func(script string) {
					cmd := exec.Command("sh", "-c", script)
					cmd.Dir, cmd.Env = work, append(h.gitEnvironment(), "HOME="+h.profile.Home)
					cmd.CombinedOutput() // what stops fails
				}
				person(c.before)
				r := h.run("/bin/sh", "-c", "{\n"+c.inside+"\n} 2>&1")
				if !c.told && r.ExitCode != 0 || r.Failure != nil || strings.Contains(fmt.Sprint(r.Notices), "--unprotect .git") != c.told {
					t.Fatalf("%v %d %s %v", r.Failure, r.ExitCode, r.Out, r.Notices)
				}
				person(c.after)
				if _, err := os.Lstat(h.profile.Home + "/trace"); err == nil {
					t.Error("it was executed")
				}
				if _, err := os.Lstat(work + "/.envrc"); err == nil {
					t.Error("another commit's file stands in the working tree")
				}
			})
		}
	}
}

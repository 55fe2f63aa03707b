package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// swapInIndex is a function of a shell's: swap INDEX OLD NEW puts another id in the place of one.
const swapInIndex = `swap() { python3 -c 'import hashlib, sys
p, old, new = sys.argv[1:]; b = open(p, "rb").read()[:-20].replace(bytes.fromhex(old), bytes.fromhex(new)); open(p, "wb").write(b + hashlib.sha1(b).digest())' "$1" "$2" "$3"; }
`

// git believes the paths in an index: "git checkout ." of the person's would write, and execute,
// .git/hooks/post-checkout. patch OLD NEW changes a path in the index to another one of the same
// length.
func TestAnIndexWithPathsThatNoCommitHasIsSetAside(t *testing.T) {
	needProgram(t, "python3")
	functions := swapInIndex + `patch() { python3 -c 'import hashlib, sys
import os
p, old, new = sys.argv[1:]; b = open(p, "rb").read()[:-20].replace(old.encode(), new.encode())
q = p if os.environ.get("PLACE") else p + ".lock"
f = open(q, "r+b" if p == q else "wb"); f.write(b + hashlib.sha1(b).digest()); f.close()
p == q or os.rename(q, p)' "$1" "$2" "$3"; }
add() { mkdir -p "$1/hooks"; printf '#!/bin/sh\ntouch '$V'\n' > "$1/hooks/post-checkout"; chmod +x "$1/hooks/post-checkout"; git add "$1"; rm -r "$1"; echo z >> file; }
`
	for name, c := range map[string]struct{ inside, index, after string }{
		"a hook":               {"add xgit; git update-index --index-version 2; patch .git/index xgit/hooks .git/hooks", "", "git restore ."},
		"a hook, version 4":    {"add xgit; git update-index --index-version 4; patch .git/index xgit/hooks .git/hooks", "", "git checkout ."},
		"written in its place": {"add xgit; sleep 0.1; PLACE=1 patch .git/index xgit/hooks .GIT/hooks", "", "git checkout ."},
		"outside":              {"mkdir -p xx; echo evil > xx/victim; git add xx; patch .git/index xx/victim ../victim", "", "git restore ."},
		"a file is removed":    {"mkdir -p xx; echo evil > xx/victim; git add xx; rm -r xx; patch .git/index xx/victim ../victim", "", "git rm -rfq ."},
		"a split one":          {"add xgit; git update-index --split-index; for i in .git/sharedindex.*; do patch $i xgit/hooks .git/hooks; done", "sharedindex.", "git restore ."},
		"a worktree's":         {"git worktree add -q wt; cd wt; add xgit; patch ../.git/worktrees/wt/index xgit/hooks .git/hooks", "worktrees/wt/index", "cd wt; git restore ."},
		"no index":             {"printf 'DIRC\\0\\0\\0\\2\\0\\0\\0\\1abcdefghijklmnopqrstuvwxyz0123456789' > .git/index", "", "git checkout ."},
	} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s strict=%v", name, strict), func(t *testing.T) {
				needMounts(t)
				t.Parallel()
				h := gitHost(t)
				if strict {
					h.strict()
				}
				work, victim := h.profile.Workspace, h.profile.Home+"/victim"
				h.write(victim, "mine\n")
				ran := h.profile.Home + "/ran"
				r := h.run("/bin/sh", "-c", "V="+ran+"\n"+functions+"{ "+c.inside+"; } 2>&1")
				if index := work + "/.git/" + c.index; r.Failure != nil || r.ExitCode != 0 || !slices.ContainsFunc(r.Notices, func(n Notice) bool {
					return strings.HasPrefix(n.Path, index) && strings.Contains(n.Path, "index") && strings.Contains(n.Text, "git reset")
				}) {
					t.Errorf("%v %d %s %v", r.Failure, r.ExitCode, r.Out, r.Notices)
				}
				cmd := exec.Command("sh", "-c", c.after)
				cmd.Dir, cmd.Env = work, h.gitEnvironment()
				out, _ := cmd.CombinedOutput()
				if text, _ := os.ReadFile(victim); string(text) != "mine\n" {
					t.Errorf("the person's file holds %q %s", text, out)
				}
				if _, err := os.Lstat(ran); err == nil {
					t.Errorf("git executed it: %s", out)
				}
				if c.index == "" {
					h.git(work, "reset", "-q", "--hard")
				}
			})
		}
	}
}

// git commits the trees that an index names without a look at its entries. Those are taken out, and
// the entries stay: without an index, the person's "git commit -a" would commit that all files are
// removed.
func TestTreesThatAreNotThoseOfAnIndexAreTakenOut(t *testing.T) {
	needProgram(t, "python3")
	const evil = `evil() { printf '100644 blob %s\tevil\n' $(git hash-object -w --stdin </dev/null) | git mktree; }
`
	for name, inside := range map[string]string{
		"another tree":       "swap .git/index $(git write-tree) $(evil)",
		"one of a directory": "mkdir d; echo x > d/x; git add d; git commit -qm d; swap .git/index $(git rev-parse HEAD:d) $(evil)",
		"with more":          "git update-index --force-untracked-cache; git status; swap .git/index $(git write-tree) $(evil)",
		"a worktree's":       "git worktree add -q w; cd w; git write-tree; swap ../.git/worktrees/w/index $(git write-tree) $(evil); cd ..",
	} {
		for _, how := range []string{"", "strict", "session"} {
			t.Run(name+" "+how, func(t *testing.T) {
				needMounts(t)
				t.Parallel()
				h := gitHost(t)
				work := h.profile.Workspace
				if how == "strict" {
					h.strict()
				}
				inside := "set -e; " + swapInIndex + evil + inside
				if how == "session" {
					s := h.openSession()
					if out, r := s.sh(t, inside); r.ExitCode != 0 {
						t.Fatal(out)
					}
					s.Settle()
				} else {
					h.sh(inside)
				}
				tree := work
				if exists(work + "/w") {
					tree += "/w"
				}
				before := h.git(tree, "ls-tree", "-r", "HEAD")
				if staged := h.git(tree, "diff", "--cached", "--stat"); staged != "" {
					t.Errorf("git status shows %s", staged)
				}
				h.git(tree, "commit", "-qa", "--allow-empty", "-m", "the person's")
				if after := h.git(tree, "ls-tree", "-r", "HEAD"); after != before {
					t.Errorf("committed is\n%s, not\n%s", after, before)
				}
				for _, e := range h.quarantined() {
					t.Errorf("set aside: %s", e.Path)
				}
			})
		}
	}
}

// With some extensions, an index says what git need not look at.
func TestWhatAnIndexHasGitBelieveIsTakenOut(t *testing.T) {
	needProgram(t, "python3")
	for name, c := range map[string]struct{ inside, gone string }{
		"what is not tracked":    {"mkdir d; git update-index --force-untracked-cache; git status; touch d/evil; grep -q UNTR .git/index", "UNTR"},
		"what nobody wrote":      {"git -c core.fsmonitor=/bin/true update-index --fsmonitor; grep -q FSMN .git/index", "FSMN"},
		"a split one's trees":    {"git update-index --split-index; git write-tree; echo x > x; git add x; git write-tree; git commit -qm x; grep -q TREE .git/index; swap .git/index $(git rev-parse HEAD^{tree}) $(git rev-parse HEAD^^{tree})", "TREE"},
		"with blocks of entries": {"export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=index.threads GIT_CONFIG_VALUE_0=2; git update-index --force-untracked-cache; git status; echo x > x; git add x; grep -q IEOT .git/index; grep -q UNTR .git/index", "UNTR"},
	} {
		for _, how := range []string{"", "strict", "session"} {
			t.Run(name+" "+how, func(t *testing.T) {
				needMounts(t)
				t.Parallel()
				h := gitHost(t)
				work := h.profile.Workspace
				h.git(work, "commit", "-q", "--allow-empty", "-m", "x")
				if how == "strict" {
					h.strict()
				}
				inside := swapInIndex + c.inside + "; stat -c 'time %.9Y ' .git/index"
				var out string
				if how == "session" {
					s := h.openSession()
					out, _ = s.sh(t, "set -e; "+inside)
					s.Settle()
				} else {
					r := h.run("/bin/sh", "-ec", inside)
					if out = r.Out; r.Failure != nil || r.ExitCode != 0 || len(r.Notices) > 0 {
						t.Fatalf("%v %d %s %v", r.Failure, r.ExitCode, r.Err, r.Notices)
					}
				}
				text, err := os.ReadFile(work + "/.git/index")
				if err != nil || strings.Contains(string(text), c.gone) || strings.Contains(string(text), "EOIE") {
					t.Errorf("%v %q", err, text)
				}
				if info, err := os.Stat(work + "/.git/index"); err != nil || how != "strict" && !strings.Contains(out, fmt.Sprintf("time %d.%09d ", info.ModTime().Unix(), info.ModTime().Nanosecond())) {
					t.Errorf("its time is %v, another one than in %s", info.ModTime().UnixNano(), out)
				}
				h.git(work, "fsck", "--strict")
				if status := h.git(work, "status", "--porcelain"); strings.Contains(c.inside, "evil") && !strings.Contains(status, "d/") {
					t.Errorf("git status shows %q", status)
				}
			})
		}
	}
}

func TestGitGoesOnWithItsIndex(t *testing.T) {
	h := gitHost(t)
	r := h.run("/bin/sh", "-ec", `for v in 2 3 4; do git update-index --index-version $v; echo $v > f$v; git add f$v; git commit -qm $v; done
git update-index --split-index; echo a > a; git add -N a; git stash -qu || true; git update-index --no-split-index; git worktree add -q wt; cd wt; echo b > b; git add b; git commit -qm b; cd ..; git merge -q wt
git init -q --object-format=sha256 long; cd long; echo x > x; git add x; git commit -qm x; git branch index; sleep 0.05`)
	if r.Failure != nil || r.ExitCode != 0 || slices.ContainsFunc(r.Notices, func(n Notice) bool { return strings.Contains(n.Text, "set aside") }) {
		t.Errorf("%v %d %s %v", r.Failure, r.ExitCode, r.Err, r.Notices)
	}
}

// git copies what is at a path in MERGE_RR to rr-cache at the person's next commit, where a command
// reads it.
func TestConflictsThatNoMergeHasAreSetAside(t *testing.T) {
	const id = "0123456789012345678901234567890123456789"
	for name, c := range map[string]struct {
		inside, repository string
		told               bool
	}{
		"beside the workspace":   {`printf '$id\t../secret\0' > $g/MERGE_RR`, ".git", true},
		"by its whole path":      {`printf '$id\t/etc/hostname\0$id\t'$HOME'/secret\0' > $g/MERGE_RR`, ".git", true},
		"with a variant":         {`printf '$id.1\t../secret\0' > x; mv x $g/MERGE_RR`, ".git", true},
		"written in its place":   {`: > $g/MERGE_RR; sleep 0.1; printf '$id\t../secret\0' >> $g/MERGE_RR`, ".git", true},
		"in git's own directory": {`printf '$id\t.git/config\0' > $g/MERGE_RR`, ".git", true},
		"not as git writes it":   {`printf '$id ../secret\0' > $g/MERGE_RR`, ".git", true},
		"a worktree's":           {`git worktree add -q w; printf '$id\t../../secret\0' > $g/worktrees/w/MERGE_RR`, ".git/worktrees/w", true},
		"a link in the tree":     {`printf '$id\tx\0' > $g/MERGE_RR; ln -s ../secret x`, ".git", true},
		"a link on the way":      {`ln -s .. d; printf '$id\td/secret\0' > $g/MERGE_RR`, ".git", true},
		"of a conflict":          {`git config rerere.enabled true; for b in a b; do git checkout -qb $b main; echo $b > file; git commit -qam $b; done; ! git merge -q a; test -s $g/MERGE_RR`, ".git", false},
	} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s strict=%v", name, strict), func(t *testing.T) {
				needMounts(t)
				t.Parallel()
				h := gitHost(t)
				if strict {
					h.strict()
				}
				h.write(h.profile.Home+"/secret", "secret\n")
				told := c.told || strict
				r := h.run("/bin/sh", "-ec", strings.ReplaceAll("g=.git; mkdir -p .git/rr-cache/"+id+"; echo x > .git/rr-cache/"+id+"/preimage\n"+c.inside, "$id", id))
				file := h.profile.Workspace + "/" + c.repository + "/MERGE_RR"
				if r.Failure != nil || r.ExitCode != 0 || told != slices.ContainsFunc(r.Notices, func(n Notice) bool { return n.Path == file }) {
					t.Errorf("%v %d %s %v", r.Failure, r.ExitCode, r.Err, r.Notices)
				}
				if _, err := os.Lstat(file); told != (err != nil) {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

// A link that a later command makes leads a MERGE_RR that was right elsewhere.
func TestAConflictThatALinkTakesThePlaceOfIsSetAside(t *testing.T) {
	h := gitHost(t)
	work := h.profile.Workspace
	h.write(work+"/.git/MERGE_RR", "0123456789012345678901234567890123456789\tfile\x00")
	if h.sh("rm file; echo x > file"); !exists(work + "/.git/MERGE_RR") {
		t.Error("the person's is gone")
	}
	if h.sh("ln -sf ../secret file"); exists(work + "/.git/MERGE_RR") {
		t.Error("it is left")
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

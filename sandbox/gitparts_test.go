package sandbox

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

// strays lists what is neither a file nor a directory below directories.
func strays(dirs ...string) (list []string) {
	for _, dir := range dirs {
		filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && !entry.Type().IsRegular() {
				list = append(list, path)
			}
			return nil
		})
	}
	return list
}

// git writes to where a link in its directories leads: the person's "git commit" would append a
// line of the command's to ~/.bashrc. In the scripts, $V is a file of the person's.
func TestLinksInGitDirectoriesAreSetAside(t *testing.T) {
	const links = `rm -f logs/HEAD; ln -s $V logs/HEAD; ln -sf $V COMMIT_EDITMSG; ln -sf $V FETCH_HEAD; rm -f packed-refs; ln -s $V packed-refs; ln -s $V refs/heads/n
ln -sfn .. logs/refs; mkfifo MERGE_MSG; mkdir -p rebase-merge; ln -s $V rebase-merge/message; printf 'me\n' > SQUASH_MSG`
	for name, c := range map[string]struct{ before, inside, dirs string }{
		"the person's":                           {"git init -q; git commit -q --allow-empty -m i; ln -s ../other .git/mine", "cd .git; " + links, ".git"},
		"one that the command makes":             {"", "git init -q r; cd r/.git; mkdir logs; " + links, "r/.git"},
		"links first":                            {"", "mkdir -p x/logs x/refs/heads x/objects; (cd x; " + links + "; echo ref: refs/heads/main > HEAD); mv x .git", ".git"},
		"without a working tree":                 {"", "mkdir -p x/logs x/refs/heads; (cd x; " + links + "; mkdir objects; echo ref: refs/heads/main > HEAD)", "x"},
		"with a HEAD and settings only":          {"", "mkdir -p x/logs; cd x; echo ref: refs/heads/main > HEAD; echo > config; ln -s $V logs/HEAD", "x"},
		"called like one without":                {"", "mkdir -p x.git/logs x.git/refs/heads; cd x.git; " + links, "x.git"},
		"a submodule's and a worktree's":         {"git init -q; git commit -q --allow-empty -m i; git worktree add -q wt 2>/dev/null", "cd .git/worktrees/wt; mkdir -p refs/heads logs; (" + links + "); mkdir -p ../../modules/a/b; cd ../../modules/a/b; mkdir -p logs refs/heads; " + links, ".git"},
		"of a repository elsewhere":              {"git init -q ../main; cd ../main; git commit -q --allow-empty -m i; rmdir ../work; git worktree add -q ../work", "d=$(git rev-parse --git-dir); (cd $d; mkdir -p refs/heads logs; " + links + "); cd $d/../../logs; rm -f HEAD; ln -s $V refs/heads/y; ln -s $V ../refs/heads/z", "../main/.git"},
		"of one elsewhere that is called freely": {"git init -q ../o; git -C ../o commit -q --allow-empty -m i; git clone -q --bare ../o ../main; rmdir ../work; git -C ../main worktree add -q ../work -b b", "d=$(git rev-parse --git-common-dir); ln -s $V $d/refs/heads/z; ln -s $V $d/worktrees/work/ORIG_HEAD", "../main"},
	} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s strict=%v", name, strict), func(t *testing.T) {
				needMounts(t)
				t.Parallel()
				h := newHost(t)
				if strict {
					h.strict()
				}
				work, victim := h.profile.Workspace, h.profile.Home+"/victim"
				person := func(script string) {
					cmd := exec.Command("sh", "-c", script)
					cmd.Dir, cmd.Env = work, h.gitEnvironment()
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Fatalf("%s: %v %s", script, err, out)
					}
				}
				h.write(victim, "mine\n")
				person(c.before + "\ntrue")
				before := strays(filepath.Join(work, c.dirs))
				r := h.run("/bin/sh", "-c", "V="+victim+"; {\n"+c.inside+"\n} 2>&1; ln -s x "+work+"/ordinary; true")
				if r.Failure != nil || !slices.ContainsFunc(r.Notices, func(n Notice) bool { return strings.Contains(n.Text, "--unprotect .git") }) {
					t.Fatalf("%v %s %v", r.Failure, r.Out, r.Notices)
				}
				if after := strays(filepath.Join(work, c.dirs)); !slices.Equal(before, after) {
					t.Errorf("left: %q, before: %q", after, before)
				}
				if _, err := os.Lstat(work + "/ordinary"); err != nil {
					t.Error(err)
				}
				if strings.HasPrefix(c.before, "git") {
					person("git commit -q --allow-empty -m p; git pack-refs --all")
				}
				if text, _ := os.ReadFile(victim); string(text) != "mine\n" {
					t.Errorf("the person's file holds %q", text)
				}
			})
		}
	}
}

// "git commit" brings what .git/MERGE_AUTOSTASH names into the working tree, also where nobody
// merges.
func TestAStashThatGitWouldApplyIsSetAside(t *testing.T) {
	const plant = `B=$(echo evil | git hash-object -w --stdin); export GIT_INDEX_FILE=/tmp/i; git read-tree HEAD; I=$(git commit-tree HEAD^{tree} -p HEAD -m i)
git update-index --add --cacheinfo 100644,$B,.envrc; C=$(git commit-tree $(git write-tree) -p HEAD -p $I -m s); `
	for name, c := range map[string]struct {
		inside string
		told   bool
		stays  string
	}{
		"a new one":           {plant + "echo $C > .git/MERGE_AUTOSTASH", true, ""},
		"renamed":             {plant + "echo $C > .git/x.lock; mv .git/x.lock .git/MERGE_AUTOSTASH", true, ""},
		"with a merge":        {plant + "git rev-parse HEAD > .git/MERGE_HEAD; echo $C > .git/MERGE_AUTOSTASH; rm .git/MERGE_HEAD", true, ""},
		"a worktree's":        {plant + "unset GIT_INDEX_FILE; git worktree add -q x; echo $C > .git/worktrees/x/MERGE_AUTOSTASH", true, ""},
		"the person's, other": {plant + "echo $C > .git/MERGE_AUTOSTASH", true, "mine\n"},
		"the person's":        {"git status; touch .git/MERGE_AUTOSTASH", false, "mine\n"},
		"git merge":           {"git switch -q -c t; echo t > t; git add t; git commit -qm t; git switch -q main; echo more >> file; git merge -q --autostash t; grep more file", false, ""},
	} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s strict=%v", name, strict), func(t *testing.T) {
				needMounts(t)
				t.Parallel()
				h := gitHost(t)
				if strict {
					h.strict()
				}
				stash := h.profile.Workspace + "/.git/MERGE_AUTOSTASH"
				if c.stays != "" {
					h.write(stash, c.stays)
				}
				r := h.run("/bin/sh", "-ec", c.inside)
				if r.ExitCode != 0 || c.told != slices.ContainsFunc(r.Notices, func(n Notice) bool { return strings.Contains(n.Text, "MERGE_AUTOSTASH") }) {
					t.Errorf("%d %q %v", r.ExitCode, r.Err, r.Notices)
				}
				left, _ := filepath.Glob(h.profile.Workspace + "/.git/worktrees/*/MERGE_AUTOSTASH")
				if text, err := os.ReadFile(stash); len(left) > 0 || (err == nil && (string(text) != c.stays || c.told && !strict)) || err != nil && c.stays != "" && !c.told {
					t.Errorf("%q is left: %v %q", text, err, left)
				}
			})
		}
	}
}

// A person's own links stay, and one that leads out is told.
func TestLinksThatWereInAGitDirectoryStay(t *testing.T) {
	h := gitHost(t)
	work := h.profile.Workspace
	os.Symlink("/etc", work+"/.git/out")
	os.Symlink("logs", work+"/.git/in")
	r := h.run("/bin/sh", "-c", "mkdir .git/x; mv .git/out .git/x/out; ln -s /etc .git/out; git status")
	if got := strays(work + "/.git"); !slices.Equal(got, []string{work + "/.git/in", work + "/.git/out"}) {
		t.Errorf("%q", got)
	}
	if n := len(slices.DeleteFunc(r.Notices, func(n Notice) bool { return !strings.Contains(n.Text, "leads out of a git directory") })); n != 1 {
		t.Errorf("told %d times: %v", n, r.Notices)
	}
}

// Inside, a repository's settings are a link to a copy of them, and whoever copies the repository
// copies that.
func TestACopyOfARepositoryHasItsSettings(t *testing.T) {
	for name, script := range map[string]string{
		"cp":                   "cp -a . ../r/copy",
		"tar":                  "mkdir ../r/copy; tar cf - . | tar xf - -C ../r/copy",
		"moved":                "cp -a . ../r/x; mv ../r/x ../r/copy",
		"without working tree": "cp -a .git ../r/copy",
		"a link that it makes": "git init -q ../r/copy; git config core.fsmonitor evil; git config core.sshCommand evil; l=$(readlink .git/config); rm ../r/copy/.git/config; ln -s $l ../r/copy/.git/config",
	} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s strict=%v", name, strict), func(t *testing.T) {
				needMounts(t)
				t.Parallel()
				h := gitHost(t)
				if strict {
					h.strict()
				}
				target := h.mkdir(filepath.Dir(h.profile.Workspace) + "/r")
				h.grant(target, profile.ReadWrite)
				work := h.profile.Workspace
				h.git(work, "config", "remote.origin.url", "https://example.com/x")
				h.git(work, "config", "alias.x", "!mine")
				r := h.run("/bin/sh", "-c", script)
				if r.Failure != nil || len(strays(target)) > 0 {
					t.Fatalf("%v %s %v %q", r.Failure, r.Out, r.Notices, strays(target))
				}
				got := h.git(target+"/copy", "config", "--local", "--list")
				if !strings.Contains(got, "remote.origin.url=https://example.com/x\n") || strings.Contains(got, "evil") || strings.Contains(got, "alias.x") {
					t.Errorf("the copy's settings: %s\n%v", got, r.Notices)
				}
				if !slices.ContainsFunc(r.Notices, func(n Notice) bool { return strings.Contains(n.Text, "alias.x = !mine") }) {
					t.Errorf("what was left out is not told: %v", r.Notices)
				}
			})
		}
	}
}

// git obeys the settings of where a file .git leads. In the scripts, $O is a repository of the
// person's outside of the workspace.
func TestAFileGitLeadsToWhatTheCommandMayWrite(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		stays  bool
	}{
		"elsewhere":                      {"echo gitdir: $O/.git > x/.git", false},
		"by a relative path":             {"echo gitdir: ../../other/.git > x/.git", false},
		"by a link":                      {"ln -s $O l; echo gitdir: ../l/.git > x/.git", false},
		"by a link that is made later":   {"echo gitdir: ../l/.git > x/.git; sleep 0.1; ln -s $O l", false},
		"by a link that is left again":   {"ln -s $O/.git/refs l; echo gitdir: ../l/.. > x/.git", false},
		"to a worktree that is stale":    {"echo gitdir: $O/.git/worktrees/x > x/.git", false},
		"to nothing":                     {"echo gitdir: $O/missing > x/.git", false},
		"by another name of the file":    {"echo gitdir: ../r/.git > f; ln f x/.git; sleep 0.1; echo gitdir: $O/.git > f", false},
		"with more behind it":            {"printf 'gitdir: %s/.git\\0../x\\n' $O > x/.git", false},
		"a worktree's":                   {"rmdir x; git -C r worktree add -q ../x", true},
		"a repository's own, kept apart": {"rm -rf r/s; git init -q --separate-git-dir r/s x; git -C x status", true},
		"nothing that git takes for one": {"echo text > x/.git", true},
		"a submodule's":                  {"rmdir x; git init -q; git -c protocol.file.allow=always submodule --quiet add file://$PWD/s x; git -C x status", true},
	} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s strict=%v", name, strict), func(t *testing.T) {
				needMounts(t)
				t.Parallel()
				h := gitHost(t)
				if strict {
					h.strict()
				}
				work := h.mkdir(h.profile.Workspace + "/w")
				other := h.repository(h.profile.Workspace + "/other")
				h.repository(work + "/r")
				h.repository(work + "/s")
				h.write(other+"/.git/worktrees/x/gitdir", work+"/x/.git\n")
				h.mkdir(work + "/x")
				h.profile.Workspace, h.profile.WorkingDirectory, h.profile.Grants[1].Path = work, work, work
				r := h.run("/bin/sh", "-c", "O="+other+"; "+c.script)
				if r.Failure != nil || r.ExitCode != 0 {
					t.Fatalf("%v %d %s", r.Failure, r.ExitCode, r.Out)
				}
				_, err := os.Lstat(work + "/x/.git")
				told := slices.ContainsFunc(r.Notices, func(n Notice) bool { return n.Path == work+"/x/.git" })
				if stays := err == nil; stays != c.stays || told == c.stays {
					t.Errorf("stays: %v, told: %v: %v", stays, told, r.Notices)
				}
			})
		}
	}
}

// "git worktree repair" writes a file .git wherever a worktree's gitdir says that there is one.
// That is where the command could write it, too, or nowhere.
func TestANewWorktreeIsWhereTheCommandCouldWrite(t *testing.T) {
	h := gitHost(t)
	work := h.profile.Workspace
	out := h.mkdir(h.profile.Home + "/out")
	h.mkdir(work + "/empty")
	for at, stays := range map[string]bool{out: false, work + "/empty": true, h.profile.Home + "/nowhere": true, work + "/link": false} {
		h.run("/bin/sh", "-c", "mkdir -p .git/worktrees/x; cd .git/worktrees/x; ln -s "+out+" "+work+"/link; echo ../.. > commondir; echo ref: refs/heads/x > HEAD; echo "+at+"/.git > gitdir")
		if _, err := os.Lstat(work + "/.git/worktrees/x/gitdir"); (err == nil) != stays {
			t.Errorf("%s: %v", at, err)
		}
		h.git(work, "worktree", "repair")
		if _, err := os.Lstat(out + "/.git"); err == nil {
			t.Fatalf("%s: git wrote it", at)
		}
		os.RemoveAll(work + "/.git/worktrees")
		os.RemoveAll(work + "/empty/.git")
	}
	h.sh("git worktree add -q wt; git worktree add -q -b o empty; git -C wt status; git -C empty commit -q --allow-empty -m x")
	h.git(work+"/wt", "status")
	h.git(work+"/empty", "status")
}

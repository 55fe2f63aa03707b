package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/protect"
	"github.com/clairun/clai-sandbox/sandbox/repository"
)

// A project that is cloned has files that something outside executes, or obeys. They are set aside,
// and neither the command's nor the person's "git commit -a" commits that they are deleted.
func TestACommitDoesNotDeleteWhatWasSetAside(t *testing.T) {
	const protected = ".envrc .husky/pre-commit .vscode/tasks.json sub/.envrc"
	for _, c := range []struct{ name, inside, tree string }{
		{"a clone", `git clone -q "$FROM" new && cd new`, "new"},
		{"a clone, version 4", `git clone -q -c index.version=4 "$FROM" new && cd new`, "new"},
		{"a clone, SHA-256", `git clone -q "$FROM-256" new && cd new`, "new"},
		{"a branch", `git fetch -q "$FROM" topic && git checkout -q FETCH_HEAD`, "."},
		{"a worktree", `git fetch -q "$FROM" topic && git worktree add -q new FETCH_HEAD && cd new`, "new"},
		{"a submodule", `git init -q new && cd new && git -c protocol.file.allow=always submodule --quiet add "$FROM" new && cd new`, "new/new"},
	} {
		for _, how := range []string{"", "strict", "session"} {
			t.Run(c.name+" "+how, func(t *testing.T) {
				needMounts(t)
				t.Parallel()
				h := gitHost(t)
				work := h.profile.Workspace
				from := h.profile.Home + "/from"
				for at, format := range map[string]string{from: "sha1", from + "-256": "sha256"} {
					h.git(h.profile.Home, "init", "-q", "-b", "topic", "--object-format="+format, at)
					for name := range strings.FieldsSeq(protected + " file") {
						h.write(at+"/"+name, "of the project\n")
					}
					h.git(at, "add", ".")
					h.git(at, "commit", "-qm", "all")
					h.grant(at, profile.ReadOnly)
				}
				tree := filepath.Join(work, c.tree)
				clean := func(when string) {
					t.Helper()
					if status := h.git(tree, "status", "--porcelain"); status != "" {
						t.Errorf("%s: git status shows\n%s", when, status)
					}
					if files := h.git(tree, "ls-tree", "-r", "--name-only", "HEAD"); len(lines(files)) != 5 {
						t.Errorf("%s: committed is\n%s", when, files)
					}
				}
				inside := "set -e; exec 2>&1; FROM=" + from + "; " + c.inside + "; echo x >> file"
				if how == "session" {
					s := h.openSession()
					if out, r := s.sh(t, inside); r.ExitCode != 0 {
						t.Fatalf("%d %s", r.ExitCode, out)
					}
					s.Settle()
					if out, r := s.sh(t, "cd "+c.tree+" && git commit -qam more && git add -A && git status --porcelain"); r.ExitCode != 0 || strings.TrimSpace(out) != "" {
						t.Errorf("%d %s", r.ExitCode, out)
					}
					s.Close()
				} else {
					if how == "strict" {
						h.strict()
					}
					h.sh(inside)
					h.git(tree, "commit", "-qam", "more")
				}
				clean("set aside")
				q := protect.QuarantineIn(h.launcher.State)
				kept := ""
				for _, e := range h.quarantined() {
					switch {
					case !strings.HasPrefix(e.Path, tree+"/") || strings.Contains(e.Path, "/.git/"):
						continue
					case kept == "":
						kept = e.Path
						if err := q.Discard(e.ID); err != nil {
							t.Error(err)
						}
					default:
						if _, err := q.Restore(e.ID); err != nil {
							t.Error(err)
						}
					}
					if err := repository.LookAgain(e.Path); err != nil {
						t.Error(err)
					}
				}
				if kept == "" {
					t.Fatal("nothing was set aside")
				}
				if status := h.git(tree, "status", "--porcelain"); strings.TrimSpace(status) != "D "+strings.TrimPrefix(kept, tree+"/") {
					t.Errorf("with one discarded, git status shows %q", status)
				}
				h.git(tree, "checkout", "-q", ".")
				clean("restored")
				for _, dir := range []string{tree, work} {
					if text, _ := os.ReadFile(strings.TrimSpace(h.git(dir, "rev-parse", "--path-format=absolute", "--git-path", "info/exclude"))); strings.Contains(string(text), "aside") {
						t.Errorf("git still ignores\n%s", text)
					}
				}
				if flags := h.git(tree, "ls-files", "-t"); strings.Contains(flags, "S ") {
					t.Errorf("git does not look for\n%s", flags)
				}
			})
		}
	}
}

// The person goes to another branch while a command runs: what that has under protected names
// cannot be told from what the command makes.
func TestAPersonsBranchStaysCleanWhileACommandRuns(t *testing.T) {
	h := gitHost(t)
	work := h.profile.Workspace
	h.git(work, "checkout", "-qb", "topic")
	for _, name := range []string{".envrc", ".husky/pre-commit"} {
		h.write(work+"/"+name, "of the project\n")
	}
	h.git(work, "add", ".")
	h.git(work, "commit", "-qm", "topic")
	h.git(work, "checkout", "-q", "main")
	clean := func() bool { return h.git(work, "status", "--porcelain", "--", ".", ":!ready") == "" }
	h.whileRunning(func() {
		h.git(work, "checkout", "-q", "topic")
		waitUntil(t, "it is set aside, and git status is clean", func() bool { return !exists(work+"/.envrc") && !exists(work+"/.husky/pre-commit") && clean() })
		h.git(work, "add", "-A", "--", ".", ":!ready")
		h.git(work, "commit", "-qa", "--allow-empty", "-m", "more")
	})
	if files := h.git(work, "ls-tree", "-r", "--name-only", "HEAD"); files != ".envrc\n.husky/pre-commit\nfile\n" {
		t.Errorf("committed is\n%s", files)
	}
	h.git(work, "checkout", "-q", "main")
	h.git(work, "checkout", "-q", "topic")
	if !exists(work+"/.envrc") || !clean() {
		t.Error("another checkout, without a command, does not bring it")
	}
}

// A worktree that the command adds has the project's own hooks and filters, by the names that the
// repository's settings say. They are set aside, and git takes the worktree for clean all the same,
// and removes it.
func TestAWorktreeWithHooksByARelativePathIsAddedAndRemoved(t *testing.T) {
	for _, how := range []string{"", "session"} {
		h := gitHost(t)
		work := h.profile.Workspace
		h.write(work+"/.githooks/pre-commit", "#!/bin/sh\n")
		h.write(work+"/tools/clean.sh", "#!/bin/sh\ncat\n")
		h.write(work+"/.gitattributes", "*.x filter=x\n")
		h.write(work+"/a.x", "a\n")
		h.git(work, "add", ".")
		h.git(work, "commit", "-qm", "i")
		h.git(work, "config", "core.hooksPath", ".githooks")
		h.git(work, "config", "filter.x.clean", "sh tools/clean.sh")
		const add, remove = "git worktree add -q wt && cd wt && echo x >> file && git commit -qam x", `for i in 1 2 3 4 5 6 7 8 9 10; do test -z "$(git -C wt status --porcelain)" && break; sleep 0.1; done; git worktree remove wt && ! test -e wt`
		if how == "session" {
			s := h.openSession()
			for _, line := range []string{add, remove} {
				if out, r := s.sh(t, line); r.ExitCode != 0 {
					t.Errorf("%s %s: %d %s", how, line, r.ExitCode, out)
				}
			}
			s.Close()
		} else {
			h.sh(add + " && cd .. && sleep 0.1; " + remove)
		}
		if status := h.git(work, "status", "--porcelain"); status != "" {
			t.Error(status)
		}
	}
}

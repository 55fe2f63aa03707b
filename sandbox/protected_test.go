package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"testing"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// git runs git on the host, as its person would.
func (h *host) git(dir string, args ...string) string {
	h.t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Env = h.gitEnvironment()
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.t.Fatalf("git %q in %s: %v\n%s", args, dir, err, out)
	}
	return string(out)
}

func (h *host) gitEnvironment() []string {
	return []string{"HOME=" + h.profile.Home, "PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com"}
}

// repository makes one at dir, with a commit.
func (h *host) repository(dir string) string {
	h.t.Helper()
	h.mkdir(dir)
	h.git(dir, "init", "-q", "-b", "main")
	h.write(dir+"/file", "content\n")
	h.git(dir, "add", "file")
	h.git(dir, "commit", "-q", "-m", "first")
	return dir
}

// gitHost is a host whose workspace is a repository, and whose command has git's variables.
func gitHost(t *testing.T) *host {
	h := newHost(t)
	h.repository(h.profile.Workspace)
	for _, variable := range h.gitEnvironment()[2:] {
		name, value, _ := strings.Cut(variable, "=")
		h.profile.Environment = append(h.profile.Environment, profile.Variable{Name: name, Value: value})
	}
	return h
}

const commit = "echo more >> file && git add file && git commit -q -m more"

func TestGitCommitsInsideAndTheHostIsClean(t *testing.T) {
	h := gitHost(t)
	h.sh(commit + " && git checkout -q -b topic && " + commit + " && git stash list && git tag t && git gc -q")
	if status := h.git(h.profile.Workspace, "status", "--porcelain", "--ignored"); status != "" {
		t.Errorf("git status: %s", status)
	}
	if log := h.git(h.profile.Workspace, "log", "--oneline", "topic"); len(lines(log)) != 3 {
		t.Error(log)
	}
}

func TestWhatIsExecutedOutsideCannotBeChangedMadeOrMovedAside(t *testing.T) {
	h := gitHost(t)
	work := h.profile.Workspace
	h.write(work+"/.vscode/tasks.json", "{}")
	h.write(work+"/.npmrc", "")
	h.write(work+"/.git/hooks/pre-commit.sample", "")
	h.repository(work + "/a/b/c/d")
	h.write(work+"/a/b/.envrc", "")
	before := tree(t, work)
	for _, script := range []string{
		"echo x > .git/hooks/pre-commit",
		"rm .git/config",
		"mv .git/config .git/c",
		"mv .git/hooks .git/h",
		"mv .git x && mkdir -p .git/hooks",
		"rm -rf .git/hooks",
		"echo ../evil > .git/commondir",
		"ln -s ../evil .git/commondir",
		"rm .git/commondir && echo ../evil > .git/commondir",
		"echo x > .vscode/tasks.json",
		"echo x > .vscode/settings.json",
		"mv .vscode v",
		"echo x > .npmrc",
		"mv file .npmrc",
		"echo x > a/b/c/d/.git/hooks/post-checkout",
		"cd a/b/c/d && mv .git x",
		"cd a/b/c && mv d x",
		"cd a/b && mv c x",
		"cd a && mv b x",
		"mv a x && mkdir -p a/b/c/d/.git/hooks",
		"echo x > a/b/.envrc",
		"cd a/b && mv .envrc x",
		"echo x > .envrc",
		"mkdir .idea",
		"mkdir .idea/x",
		"echo x > .mcp.json",
		"ln -s file .mcp.json",
		"mkdir -p .claude/hooks",
		"rmdir .claude",
		"mv .claude x",
		"mkdir x && mv -T x .cursor; s=$?; rmdir x; exit $s",
		"echo x > .codex/config.toml",
		"echo x > .husky/pre-commit",
		"echo x > .pre-commit-config.yaml",
		"echo x > .gitconfig",
	} {
		h.refused(script + " 2>/dev/null")
		if after := tree(t, work); after != before {
			t.Fatalf("%s changed the workspace:\n%s\nwas:\n%s", script, after, before)
		}
	}
	// Of git's settings, it is a copy that is written.
	for _, script := range []string{"echo x >> .git/config", "git config core.fsmonitor x", "echo x >> a/b/c/d/.git/config"} {
		h.run("/bin/sh", "-c", script)
		if after := tree(t, work); after != before {
			t.Fatalf("%s changed the workspace:\n%s\nwas:\n%s", script, after, before)
		}
	}
}

// keepsSettings runs scripts that change what executes in a repository's settings, and expects those of the host as they were.
func (h *host) keepsSettings(repository string, scripts ...string) {
	h.t.Helper()
	file := repository + "/config"
	if _, err := os.Stat(file); err != nil {
		file = repository + "/.git/config"
	}
	before, err := os.ReadFile(file)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, script := range scripts {
		h.run("/bin/sh", "-c", script)
		if after, _ := os.ReadFile(file); string(after) != string(before) {
			h.t.Errorf("%s: %s", script, after)
		}
	}
}

// On a repository whose hooks directory was removed, nobody can make one.
func TestMissingHooksCannotBeMade(t *testing.T) {
	h := gitHost(t)
	os.RemoveAll(h.profile.Workspace + "/.git/hooks")
	h.refused("mkdir -p .git/hooks && echo x > .git/hooks/pre-commit")
	h.sh(commit)
	if _, err := os.Lstat(h.profile.Workspace + "/.git/hooks"); err == nil {
		t.Error("hooks were left on the host")
	}
}

func TestAWorktreeCommitsAndItsRepositorysSettingsStay(t *testing.T) {
	h := gitHost(t)
	main := h.repository(h.profile.Home + "/main")
	tree := filepath.Join(h.profile.Home, "tree")
	h.git(main, "worktree", "add", "-q", tree)
	h.profile.Workspace, h.profile.WorkingDirectory, h.profile.Grants[1].Path = tree, tree, tree
	h.sh(commit)
	if log := h.git(tree, "log", "--oneline"); len(lines(log)) != 2 {
		t.Error(log)
	}
	h.keepsSettings(main, "git config core.pager x", "echo x >> ../main/.git/config")
	for _, script := range []string{"echo x > ../main/.git/hooks/pre-commit",
		"echo x > ../main/file", "echo ../../evil > ../main/.git/worktrees/tree/commondir", "echo gitdir: x > .git", "mv .git x",
		"echo x > ../main/.git/worktrees/tree/gitdir", "mkdir ../main/.git/worktrees/x"} {
		h.refused(script + " 2>/dev/null")
	}
	// A .git file that the repository knows nothing of grants nothing.
	other := h.repository(h.profile.Home + "/other")
	forged := h.mkdir(h.profile.Home + "/forged")
	h.write(forged+"/.git", "gitdir: "+other+"/.git\n")
	h.profile.Workspace, h.profile.WorkingDirectory, h.profile.Grants[1].Path = forged, forged, forged
	h.refused("git commit --allow-empty -m x 2>/dev/null")
	h.refused("touch ../other/.git/objects/x 2>/dev/null")
}

func TestASubmoduleCommitsAndItsSettingsStay(t *testing.T) {
	h := gitHost(t)
	work := h.profile.Workspace
	h.repository(h.profile.Home + "/library")
	h.git(work, "submodule", "--quiet", "add", h.profile.Home+"/library", "lib")
	h.git(work, "commit", "-q", "-m", "library")
	attempts := []string{"echo x > $(git rev-parse --git-path hooks)/pre-commit", "echo gitdir: x > .git", "mv .git x"}
	h.sh("cd lib && " + commit)
	for _, script := range attempts {
		h.refused("cd lib && " + script + " 2>/dev/null")
	}
	h.keepsSettings(work+"/.git/modules/lib", "cd lib && git config core.pager x")
	// Its part of the project's repository is protected by itself, too: nothing may be checked out.
	os.Rename(work+"/lib", h.profile.Home+"/lib")
	h.refused("echo x > .git/modules/lib/hooks/post-checkout 2>/dev/null")
	h.keepsSettings(work+"/.git/modules/lib", "echo x >> .git/modules/lib/config")
	os.Rename(h.profile.Home+"/lib", work+"/lib")
	// The submodule by itself as the workspace: what is git's of it lies in the project above.
	lib := work + "/lib"
	h.profile.Workspace, h.profile.WorkingDirectory, h.profile.Grants[1].Path = lib, lib, lib
	h.sh(commit)
	for _, script := range attempts {
		h.refused(script + " 2>/dev/null")
	}
	h.keepsSettings(work+"/.git/modules/lib", "git config core.pager x")
}

func TestWhatSettingsNameIsProtectedToo(t *testing.T) {
	h := gitHost(t)
	work := h.profile.Workspace
	h.write(work+"/.githooks/pre-push", "")
	h.write(work+"/tools/gitconfig", "[include]\n path = more\n")
	h.write(work+"/tools/more", "")
	h.write(h.profile.Home+"/.gitconfig", "[core]\n hooksPath = ours\n")
	h.git(work, "config", "core.hooksPath", ".githooks")
	h.git(work, "config", "include.path", "../tools/gitconfig")
	for _, script := range []string{"echo x > .githooks/pre-commit", "mv .githooks x", "echo x > tools/gitconfig", "mv tools x", "echo x > tools/more",
		"mkdir ours && echo x > ours/pre-commit"} {
		h.refused(script + " 2>/dev/null")
	}
	h.sh("touch tools/other")
}

func TestASymlinkedGitIsNotFollowedOut(t *testing.T) {
	h := newHost(t)
	work := h.profile.Workspace
	outside := h.repository(h.profile.Home + "/outside")
	h.symlink("/oldroot"+outside+"/.git", work+"/.git") // CVE-2026-87766
	before := tree(t, outside)
	h.sh("true")
	h.refused("mkdir -p .git/hooks && echo x > .git/hooks/pre-commit 2>/dev/null")
	if after := tree(t, outside); after != before {
		t.Errorf("something was made outside:\n%s", after)
	}
	// To elsewhere in the workspace, it is protected there.
	os.Remove(work + "/.git")
	h.repository(work + "/real")
	h.symlink("real/.git", work+"/.git")
	h.refused("echo x > real/.git/hooks/pre-commit 2>/dev/null")
	h.refused("mv real x")
}

func (r ran) notices(kind NoticeKind) []string {
	var paths []string
	for _, n := range r.Notices {
		if n.Kind == kind {
			paths = append(paths, n.Path)
		}
	}
	slices.Sort(paths)
	return paths
}

func TestWhatCannotBeHeldIsToldAfterwards(t *testing.T) {
	h := gitHost(t)
	work := h.profile.Workspace
	h.symlink("file", work+"/.bashrc")
	r := h.run("/bin/sh", "-c", "mkdir -p new/deep && git init -q new/deep && echo x > new/.envrc && ln -sf other .bashrc && echo x > lefthook.yml")
	want := []string{work + "/.bashrc", work + "/lefthook.yml", work + "/new/.envrc", work + "/new/deep/.git"}
	if got := r.notices(NoticeProtected); r.Failure != nil || r.ExitCode != 0 || !slices.Equal(got, want) {
		t.Errorf("%v %d\n%v, want\n%v", r.Failure, r.ExitCode, got, want)
	}
	if r := h.run("/bin/sh", "-c", "echo x > unsuspicious"); len(r.Notices) > 0 {
		t.Errorf("%v", r.Notices)
	}
}

func TestAGrantByNameOrAWordLeavesAProtectedPathWritable(t *testing.T) {
	h := gitHost(t)
	h.write(h.profile.Workspace+"/.vscode/tasks.json", "{}")
	h.grant(h.profile.Workspace+"/.vscode", profile.ReadWrite)
	h.profile.Unprotected = []string{".claude", ".git/hooks"}
	h.sh("echo x > .vscode/tasks.json; mkdir .claude; echo x > .git/hooks/pre-commit")
	h.keepsSettings(h.profile.Workspace, "echo x >> .git/config")
	h.profile.Protected = []profile.ProtectedPath{{Name: "deploy/run.sh", Held: true}, {Name: "Makefile", Held: true}}
	h.mkdir(h.profile.Workspace + "/deploy")
	h.refused("echo x > deploy/run.sh 2>/dev/null")
	h.refused("echo x > Makefile 2>/dev/null")
	h.refused("mv deploy x 2>/dev/null")
}

func TestAWritableHomeKeepsWhatShellsStartWith(t *testing.T) {
	h := newHost(t)
	home := h.profile.Home
	h.profile.OwnDirectories = nil
	h.profile.Workspace, h.profile.WorkingDirectory, h.profile.Grants[1].Path = home, home, home
	h.write(home+"/.bashrc", "")
	before := tree(t, home)
	for _, script := range []string{"echo x > .bashrc", "echo x > .zshenv", "echo x > .bash_profile", "mkdir -p .config/autostart && echo x > .config/autostart/x.desktop",
		"mkdir bin && echo x > bin/ls"} {
		h.refused(script + " 2>/dev/null")
	}
	if after := tree(t, home); after != before {
		t.Errorf("%s\nwas\n%s", after, before)
	}
}

// whileRunning runs a command, and does something while it runs.
func (h *host) whileRunning(do func()) ran {
	h.t.Helper()
	ready, done := h.profile.Workspace+"/ready", h.profile.Workspace+"/done"
	result := make(chan ran, 1)
	go func() {
		result <- h.run("/bin/sh", "-c", "touch ready; while ! test -e done; do sleep 0.01; done; rm ready done")
	}()
	waitUntil(h.t, "the command runs", func() bool { _, err := os.Stat(ready); return err == nil })
	do()
	h.write(done, "")
	return <-result
}

func TestPlaceholdersAreTheLastSandboxsToClear(t *testing.T) {
	h := gitHost(t)
	work := h.profile.Workspace
	before := tree(t, work)
	there := func() bool { _, err := os.Lstat(work + "/.envrc"); return err == nil }
	h.whileRunning(func() {
		if status := h.git(work, "status", "--porcelain"); strings.TrimSpace(strings.ReplaceAll(status, "?? ready", "")) != "" {
			t.Errorf("git sees them: %s", status)
		}
		h.refused("echo x > .envrc 2>/dev/null") // another sandbox, which ends first
		if !there() {
			t.Error("the first sandbox's placeholder is gone")
		}
	})
	if there() || tree(t, work) != before {
		t.Errorf("left behind:\n%s", tree(t, work))
	}
}

func TestWhatAPersonPutsThereStays(t *testing.T) {
	h := gitHost(t)
	work := h.profile.Workspace
	r := h.whileRunning(func() {
		h.write(work+"/.vscode/settings.json", "mine")
		os.Remove(work + "/.mcp.json")
		h.write(work+"/.mcp.json", "mine")
	})
	for _, name := range []string{".vscode/settings.json", ".mcp.json"} {
		if text, _ := os.ReadFile(filepath.Join(work, name)); string(text) != "mine" {
			t.Errorf("%s: %q", name, text)
		}
	}
	if got := r.notices(NoticeProtected); !slices.Equal(got, []string{work + "/.mcp.json", work + "/.vscode"}) {
		t.Errorf("%v", got)
	}
	if info, _ := os.Stat(work + "/.vscode"); info.Mode()&os.ModeSticky != 0 {
		t.Errorf("mode %v", info.Mode())
	}
}

func TestAKilledLaunchersPlaceholdersGoWithTheNextRun(t *testing.T) {
	h := gitHost(t)
	work := h.profile.Workspace
	cmd := h.launch("/bin/sh", "-c", "echo ready; sleep 1000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanln(out, new(string)); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if _, err := os.Lstat(work + "/.envrc"); err != nil {
		t.Fatal("a killed launcher cleared up, and this test shows nothing")
	}
	h.refused("echo x > .envrc 2>/dev/null")
	h.refused("echo evil > .git/commondir 2>/dev/null")
	h.sh(commit)
	for _, name := range []string{".envrc", ".vscode", ".mcp.json", ".git/commondir"} {
		if _, err := os.Lstat(filepath.Join(work, name)); err == nil {
			t.Errorf("%s was left behind", name)
		}
	}
}

func TestADirectoryThatSomebodyLockedIsToldOf(t *testing.T) {
	h := gitHost(t)
	dir, err := unix.Open(h.profile.Workspace, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	if err := unix.Flock(dir, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	r := h.run("/bin/sh", "-c", "echo x > .envrc")
	if r.Failure != nil || r.ExitCode != 0 || !slices.Contains(r.notices(NoticeProtected), h.profile.Workspace+"/.envrc") {
		t.Errorf("%v %+v", r.Failure, r.Result)
	}
}

func TestAWorkspaceThatCannotBeWrittenNeedsNoPlaceholders(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write any directory of the host's")
	}
	h := newHost(t)
	if err := os.Chmod(h.profile.Workspace, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(h.profile.Workspace, 0o755) })
	if r := h.run("/bin/true"); r.Failure != nil || len(r.Notices) > 0 {
		t.Errorf("%v %v", r.Failure, r.Notices)
	}
}

// The bounds hold: a workspace of many repositories still starts, and says what is not protected.
func TestManyRepositoriesAreProtectedUpToABound(t *testing.T) {
	h := newHost(t)
	for i := range 60 {
		for _, name := range []string{"objects", "refs", "hooks"} {
			h.mkdir(fmt.Sprintf("%s/%02d/.git/%s", h.profile.Workspace, i, name))
		}
		h.write(fmt.Sprintf("%s/%02d/.git/config", h.profile.Workspace, i), "")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	result, err := h.launcher.Run(ctx, h.build(), []string{"/bin/sh", "-c", "echo x > 00/.git/config"}, Stdio{})
	if text, _ := os.ReadFile(h.profile.Workspace + "/00/.git/config"); err != nil || len(text) > 0 || len(result.Notices) == 0 {
		t.Errorf("%v %+v", err, result)
	}
}

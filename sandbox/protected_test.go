package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"testing"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/protect"
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

// quarantined lists the quarantine.
func (h *host) quarantined() []protect.Entry {
	h.t.Helper()
	list, err := protect.QuarantineIn(h.launcher.State).List()
	if err != nil {
		h.t.Fatal(err)
	}
	return list
}

// setAside runs a shell script, and expects that what it makes at paths of the workspace is not
// there, but in the quarantine.
func (h *host) setAside(script string, paths ...string) ran {
	h.t.Helper()
	r := h.run("/bin/sh", "-c", script)
	if r.Failure != nil {
		h.t.Fatalf("%s: %v", script, r.Failure)
	}
	list := h.quarantined()
	for _, path := range paths {
		path = filepath.Join(h.profile.Workspace, path)
		if _, err := os.Lstat(path); err == nil {
			h.t.Errorf("%s made %s", script, path)
		}
		is := func(name string) bool { return within(name, path) } // a directory as a whole, or what was in it
		if !slices.ContainsFunc(list, func(e protect.Entry) bool { return is(e.Path) }) {
			h.t.Errorf("%s is not in the quarantine after: %s", path, script)
		}
		if !slices.ContainsFunc(r.notices(NoticeProtected), is) {
			h.t.Errorf("%s is not told after: %s\n%v", path, script, r.Notices)
		}
	}
	return r
}

func TestWhatIsExecutedOutsideCannotBeChangedOrMovedAside(t *testing.T) {
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

// keepsSettings runs scripts that change what executes in a repository's settings, and expects
// those of the host as they were.
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

func TestWhatIsExecutedOutsideIsSetAsideWhenItComesIntoBeing(t *testing.T) {
	h := gitHost(t)
	for _, c := range []struct{ path, script string }{
		{".envrc", "echo x > .envrc"},
		{".mcp.json", "echo x > .mcp.json"},
		{".mcp.json", "ln -s file .mcp.json"},
		{".mcp.json", "ln file .mcp.json"},
		{".envrc", "mkfifo .envrc"},
		{"package-lock.json", "ln -s ../.bashrc package-lock.json"},
		{"a/b/Cargo.lock", "mkdir -p a/b; echo x > a/b/go.sum; echo x > a/b/x; ln -s x a/b/Cargo.lock"},
		{".lsp/config.edn", "mkdir .lsp; echo x > .lsp/config.edn"},
		{"bin/hermit.hcl", "mkdir bin; echo x > bin/hermit.hcl; echo x > bin/mine"},
		{".ctags.d/x.ctags", "mkdir .ctags.d; echo -o $HOME/.bash_profile > .ctags.d/x.ctags"},
		{"ctags.d", "mkdir x; echo x > x/x.ctags; mv -T x ctags.d"},
		{".ctags", "echo x > .ctags"},
		{"_MTN/monotonerc", "mkdir _MTN; echo x > _MTN/monotonerc; echo x > _MTN/options"},
		{".github/agents/x.md", "mkdir -p .github/agents; echo x > .github/agents/x.md; echo x > .github/x"},
		{".npmrc", "cp file y && mv y .npmrc"},
		{".idea/x", "mkdir -p .idea && echo x > .idea/x"},
		{".claude/hooks/x", "mkdir -p .claude/hooks && echo x > .claude/hooks/x"},
		{".cursor", "mkdir x && echo x > x/mcp.json && mv -T x .cursor"},
		{".vscode/tasks.json", "mkdir -p .vscode && echo x > tasks && mv tasks .vscode/tasks.json"},
		{"a/b/c/.envrc", "mkdir -p a/b/c && echo x > a/b/c/.envrc"},
		{"d/e/.envrc", "mkdir -p x/y && echo x > x/y/.envrcs && mv x/y/.envrcs x/y/e && mkdir -p d/e && mv x/y/e d/e/.envrc"},
		{".hg/hgrc", "mkdir .hg && echo x > .hg/hgrc"},
		{".jj/repo/config.toml", "mkdir -p x/repo && echo x > x/repo/config.toml && mv x .jj"},
		{".github/hooks", "mkdir -p x/hooks && echo x > x/hooks/e.json && sleep 0.05 && mv x .github"},
		{"mise/conf.d", "mkdir -p x/conf.d/y && echo x > x/conf.d/y/z && sleep 0.05 && mv x mise"},
		{".idea", "mkdir x && touch x/1 x/2 x/3 && sleep 0.05 && mv -T x .idea"},
		{".cargo/config.toml", "mkdir -p x/.cargo && echo x > x/.cargo/config.toml; mv x/.cargo .cargo; rm -rf x"},
		{"rust-toolchain", "echo x > rust-toolchain"},
		{"lefthook-local.yml", "echo x > lefthook-local.yml"},
		{".devcontainer.json", "echo x > .devcontainer.json"},
		{".claude/.clai-sandbox-aside-0123456789ab.md", "mkdir .claude && echo x > .claude/.clai-sandbox-aside-0123456789ab.md"},
		{".tool-versions", "echo nodejs path:. > .tool-versions"},
		{".yarn/releases/yarn.cjs", "mkdir -p .yarn/releases && echo x > .yarn/releases/yarn.cjs"},
		{".git/arc/config", "mkdir .git/arc && echo x > .git/arc/config; rmdir .git/arc"},
		{".ENVRC", "echo x > .ENVRC"},
		{".git/commondir", "echo ../evil > .git/commondir"},
		{".git/commondir", "ln -s ../evil .git/commondir"},
		{".git/gitdir", "echo x > .git/gitdir"},
		{".git/config.worktree", "echo x > .git/config.worktree"},
		{"new/.envrc", "mkdir -p old/.x && echo x > old/.x/.envrc; mv old new; rm -rf old"},
	} {
		if c.path == "new/.envrc" || c.path == ".cargo/config.toml" { // it was set aside before the directory was renamed
			h.run("/bin/sh", "-c", c.script)
			if _, err := os.Lstat(filepath.Join(h.profile.Workspace, c.path)); err == nil {
				t.Errorf("%s made %s", c.script, c.path)
			}
			os.RemoveAll(h.profile.Workspace + "/new")
			continue
		}
		h.setAside(c.script, c.path)
		for _, made := range []string{".hg", ".jj", ".github", "a", "d", "x"} {
			os.RemoveAll(filepath.Join(h.profile.Workspace, made))
		}
	}
}

func TestMissingHooksCannotBeMade(t *testing.T) {
	h := gitHost(t)
	os.RemoveAll(h.profile.Workspace + "/.git/hooks")
	h.setAside("mkdir -p .git/hooks && echo x > .git/hooks/pre-commit", ".git/hooks/pre-commit")
	h.setAside("mkdir x && echo x > x/pre-commit && mv x .git/hooks", ".git/hooks/pre-commit") // .git is a mount, so that mv copies
	h.setAside("cd .git && mkdir x && echo x > x/pre-commit && mv x hooks", ".git/hooks")
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

// What an earlier command left around the workspace, for the next to be shown what it names.
func TestNoForgedRepositoryIsShown(t *testing.T) {
	h := gitHost(t)
	h.repository(h.profile.Home + "/other")
	h.write(h.mkdir(h.profile.Home+"/secret")+"/key", "secret")
	const leads = `; echo "$PWD/sub/.git" > fake/gitdir; echo "gitdir: $PWD/fake" > sub/.git`
	const whole = `; echo ref: refs/heads/main > $r/HEAD; mkdir -p $r/objects $r/refs $r/worktrees/x; echo ref: refs/heads/main > $r/worktrees/x/HEAD
		echo ../.. > $r/worktrees/x/commondir; echo "$PWD/sub/.git" > $r/worktrees/x/gitdir; echo "gitdir: $PWD/$r/worktrees/x" > sub/.git`
	const module = `; printf '[core]\n\tworktree = %s\n' "$PWD/sub" > $r/config; echo "gitdir: $PWD/$r" > sub/.git`
	for script, shown := range map[string]bool{
		"mkdir fake; echo ../../secret > fake/commondir" + leads:                                 false,
		"mkdir fake; echo ../../other/.git > fake/commondir" + leads:                             false,
		"mkdir -p fake; echo ref: x > fake/HEAD; echo ../../other/.git > fake/commondir" + leads: false,
		"mkdir fake" + leads:   false,
		"ln -s . fake" + leads: false,
		`echo "$PWD/sub/.git" > gitdir; echo "gitdir: $PWD" > sub/.git`:                                            false,
		`echo "$PWD/sub/.git" > gitdir; echo . > commondir; echo "gitdir: $PWD" > sub/.git`:                        false,
		"mkdir -p worktrees; mkdir worktrees/fake; ln -s worktrees/fake fake; echo ../.. > fake/commondir" + leads: false,
		"r=app" + whole:                                   false,
		"r=." + whole:                                     false,
		"r=repository.git; mkdir $r" + whole:              true, // shows nothing but what has the name and the form of a repository
		"r=app.git; mkdir $r" + whole + "; rm $r/HEAD":    false,
		"r=app.git; mkdir $r" + whole + "; rm -r $r/refs": false,
		"r=app.git; mkdir $r" + whole + "; rm -r $r/objects; ln -s ../../other/.git/objects $r/objects": false,
		"r=app.git; mkdir $r" + whole + "; echo ../../secret > $r/commondir":                            false,
		"r=app.git; mkdir $r" + whole + "; echo ../../../../other/.git > $r/worktrees/x/commondir":      false,
		"r=hidden.git; mkdir $r" + whole: false,
		"r=app" + module:                 false,
		"r=app; echo ref: x > app/HEAD; mkdir app/objects app/refs" + module:                                                false,
		"r=m.git; mkdir $r; echo ref: x > $r/HEAD; mkdir $r/objects $r/refs; echo ../../other/.git > $r/commondir" + module: false,
		"git -C ../other worktree add -q $PWD/sub2; rmdir sub; git -C ../other worktree move $PWD/sub2 $PWD/sub":            true,
		"r=../bare; git clone -q --bare ../other $r; rmdir sub; git -C $r worktree add -q $PWD/sub":                         true, // no command could write there
		"r=bare; git clone -q --bare ../other $r; rmdir sub; git -C $r worktree add -q $PWD/sub":                            false,
	} {
		project := h.mkdir(fmt.Sprintf("%s/project%d", h.profile.Home, len(h.profile.Hidden)))
		sub := h.mkdir(project + "/sub")
		h.mkdir(project + "/app/logs")
		if err := addWritten(h.profile.Written, []string{project}); err != nil {
			t.Fatal(err)
		}
		h.profile.Hidden = append(h.profile.Hidden, profile.HiddenPath{Path: project + "/hidden.git"})
		cmd := exec.Command("/bin/sh", "-ec", script)
		cmd.Dir, cmd.Env = project, h.gitEnvironment()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		h.profile.Workspace, h.profile.WorkingDirectory, h.profile.Grants[1].Path = sub, sub, sub
		plan := h.build()
		var steps []string
		for _, s := range plan.Steps {
			if s.Purpose == Worktree {
				steps = append(steps, s.Access.String()+" "+s.Path)
			}
		}
		if (len(steps) > 0) != shown {
			t.Errorf("%s\nshows %v", script, steps)
		}
	}
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
	for _, script := range []string{"echo x > .githooks/pre-commit", "mv .githooks x", "echo x > tools/gitconfig", "mv tools x", "echo x > tools/more"} {
		h.refused(script + " 2>/dev/null")
	}
	h.setAside("mkdir ours && echo x > ours/pre-commit", "ours/pre-commit")
	h.sh("touch tools/other")
}

// Hooks are often links to scripts of the project, which git would execute as the command left
// them.
func TestWhatLinksInProtectedDirectoriesLeadToIsProtectedToo(t *testing.T) {
	h := gitHost(t)
	work := h.profile.Workspace
	h.write(work+"/scripts/hook", "")
	h.write(work+"/scripts/other", "")
	h.write(work+"/shared.json", "")
	h.mkdir(work + "/.git/hooks")
	h.symlink("../../scripts/hook", work+"/.git/hooks/pre-commit")
	h.symlink("../../scripts/missing", work+"/.git/hooks/post-checkout")
	h.mkdir(work + "/.claude/commands")
	h.symlink("../../shared.json", work+"/.claude/commands/settings.json")
	h.symlink("/usr/bin/true", work+"/.claude/commands/true")
	for _, script := range []string{"echo x > scripts/hook", "mv scripts s", "rm scripts/hook", "echo x > shared.json", "mv shared.json x"} {
		h.refused(script + " 2>/dev/null")
	}
	h.setAside("echo x > scripts/missing", "scripts/missing")
	// So is each link on the way.
	h.write(work+"/real/hook", "")
	h.symlink("real", work+"/tools")
	h.symlink("hook", work+"/real/link")
	h.symlink("../../tools/link", work+"/.git/hooks/commit-msg")
	h.setAside("rm real/link tools && echo x > real/link && ln -s scripts tools", "real/link", "tools")
	h.setAside("ln -s scripts tools", "tools")
	h.sh("mkdir tools && echo x > tools/x && rm -r tools")
	h.sh("echo x > scripts/other; " + commit)
}

// Who has hooks below each working tree (core.hooksPath, a relative one) has them in a repository
// that a command makes, too.
func TestHooksThatThePersonsSettingsNameAreProtectedInNewRepositories(t *testing.T) {
	h := newHost(t)
	h.write(h.profile.Home+"/.gitconfig", "[include]\n path = more\n")
	h.write(h.profile.Home+"/more", "[core]\n hooksPath = .ours/hooks/\n")
	h.setAside("git init -q sub && mkdir -p sub/.ours/hooks .ours && echo x > sub/.ours/hooks/pre-commit && mkdir x && echo x > x/y && mv x .ours/hooks", "sub/.ours/hooks/pre-commit", ".ours/hooks")
	h.sh("mkdir hooks && echo x > hooks/pre-commit")
}

// Some keep what their shell and git read at home in a directory with other names, and have links
// to it.
func TestWhatThePersonsShellAndGitReadInTheWorkspaceIsProtected(t *testing.T) {
	h := newHost(t)
	work, home := h.profile.Workspace, h.profile.Home
	for _, name := range []string{"bash/rc", "git/settings", "git/more", "git/hooks/pre-commit", "git/ignore", "tmux"} {
		h.write(work+"/"+name, "")
	}
	h.write(work+"/git/settings", "[include]\n path = "+work+"/git/more\n[core]\n hooksPath = "+work+"/git/hooks\n")
	h.symlink(work+"/git/settings", home+"/.gitconfig")
	h.symlink(work+"/shell/rc", home+"/.bashrc")
	h.symlink("bash", work+"/shell")
	for _, name := range []string{"bash/rc", "git/settings", "git/more", "git/hooks/pre-commit", "git/hooks/new"} {
		h.refused("echo x > " + name + " 2>/dev/null")
	}
	h.setAside("rm shell && mkdir shell && mv shell x && mv x shell", "shell")
	h.sh("echo x > git/ignore && echo x > tmux && echo x > bash/other")
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

func TestWhatIsSetAsideIsTold(t *testing.T) {
	h := gitHost(t)
	work := h.profile.Workspace
	h.symlink("file", work+"/.bashrc")
	r := h.setAside("mkdir -p new/deep && git init -q new/deep && echo x > new/.envrc && ln -sf other .bashrc && echo x > lefthook.yml",
		".bashrc", "lefthook.yml", "new/.envrc")
	for _, n := range r.Notices {
		if !strings.Contains(n.Text, "--unprotect") || !strings.Contains(n.Text, "clai-sandbox quarantine restore ") {
			t.Errorf("%s", n.Text)
		}
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
	h.profile.Protected = []profile.ProtectedPath{{Name: "deploy/run.sh"}, {Name: "Makefile"}}
	h.mkdir(h.profile.Workspace + "/deploy")
	h.setAside("echo x > deploy/run.sh", "deploy/run.sh")
	h.setAside("echo x > Makefile; mkdir -p x/deploy && echo x > x/deploy/run.sh", "Makefile", "x/deploy/run.sh")
}

func TestAWritableHomeKeepsWhatShellsStartWith(t *testing.T) {
	h := newHost(t)
	home := h.profile.Home
	h.profile.OwnDirectories = nil
	h.profile.Workspace, h.profile.WorkingDirectory, h.profile.Grants[1].Path = home, home, home
	h.write(home+"/.bashrc", "")
	h.refused("echo x > .bashrc 2>/dev/null")
	h.setAside("echo x > .zshenv; echo x > .bash_profile; mkdir -p .config/autostart && echo x > .config/autostart/x.desktop; mkdir bin && echo x > bin/ls",
		".zshenv", ".bash_profile", ".config/autostart/x.desktop", "bin/ls")
	h.sh("mkdir -p project/bin && echo x > project/bin/tool") // an ordinary name elsewhere
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

func TestAWorkspaceThatCannotBeWrittenRunsWithoutANotice(t *testing.T) {
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

// The bounds hold: of a workspace of many repositories, what cannot be protected each for itself is
// read-only.
func TestManyRepositoriesAreProtectedUpToABoundAndTheRestIsReadOnly(t *testing.T) {
	h := newHost(t)
	for i := range 300 {
		for _, name := range []string{"objects", "refs", "hooks"} {
			h.mkdir(fmt.Sprintf("%s/all/%03d/.git/%s", h.profile.Workspace, i, name))
		}
		h.write(fmt.Sprintf("%s/all/%03d/.git/config", h.profile.Workspace, i), "")
	}
	r := h.run("/bin/sh", "-c", "for i in all/*; do (echo x >> $i/.git/config) 2>/dev/null; (echo x > $i/.git/hooks/pre-commit) 2>/dev/null; done; touch here")
	if r.Failure != nil || r.ExitCode != 0 || len(r.Notices) == 0 || strings.Contains(tree(t, h.profile.Workspace), "pre-commit") ||
		strings.Contains(tree(t, h.profile.Workspace), "x\n") {
		t.Errorf("%v %+v", r.Failure, r.Result)
	}
}

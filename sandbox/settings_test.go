package sandbox

import (
	"fmt"
	"github.com/clairun/clai-sandbox/profile"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// settingsHost is a host whose workspace is a clone of a repository on the same machine, which may be written.
func settingsHost(t *testing.T) (h *host, remote string) {
	needMounts(t)
	h = gitHost(t)
	remote = h.outside() + "/remote.git"
	h.git(h.profile.Workspace, "init", "-q", "--bare", "-b", "main", remote)
	h.git(h.profile.Workspace, "remote", "add", "origin", remote)
	h.git(h.profile.Workspace, "push", "-q", "-u", "origin", "main")
	h.git(h.profile.Workspace, "push", "-q", "origin", "main:topic")
	h.git(h.profile.Workspace, "fetch", "-q")
	h.grant(remote, profile.ReadWrite)
	return h, remote
}

func settingsOf(t *testing.T, h *host) string {
	return h.git(h.profile.Workspace, "config", "--local", "--list")
}

func TestGitChangesItsCopyOfTheSettings(t *testing.T) {
	needMounts(t)
	for _, live := range []bool{false, true} {
		t.Run(fmt.Sprintf("live=%v", live), func(t *testing.T) {
			h := gitHost(t)
			if live {
				h.launcher.Live = &Live{}
			}
			before, _ := os.ReadFile(h.profile.Workspace + "/.git/config")
			if got := h.sh("git config core.fsmonitor x && git config core.fsmonitor && ! rm .git/config && ! mv -T .git/HEAD .git/config && git config core.fsmonitor"); got != "x\nx\n" {
				t.Errorf("%q", got)
			}
			if after, _ := os.ReadFile(h.profile.Workspace + "/.git/config"); string(after) != string(before) {
				t.Errorf("%q", after)
			}
		})
	}
}

// What git does to settings inside is in the host's file afterwards, as if it had been done there.
func TestOrdinaryGitWorksInside(t *testing.T) {
	for name, script := range map[string]string{
		"name and address":         "git config user.email c@d.e && git config user.name 'C D'",
		"a remote":                 "git remote add other git@example.com:a/b.git && git remote add third /srv/x.git",
		"a remote's name":          "git remote rename origin up",
		"a remote goes":            "git remote remove origin",
		"a remote's address":       "git remote set-url origin https://example.com/x.git && git remote set-url --add --push origin https://example.com/y.git",
		"push -u":                  "git checkout -q -b new && git push -q -u origin new",
		"a branch goes":            "git switch -q topic && git branch -q -D main",
		"a branch's name":          "git branch -m main master && git branch -M master trunk && git branch -c trunk other",
		"a tracking branch":        "git switch -q topic && git branch -u origin/main topic",
		"fetch and pull":           "git fetch -q && git pull -q --rebase && git config pull.rebase true",
		"stash, rebase, merge, gc": "echo x >> file && git stash -q && git stash pop -q && git commit -qam y && git switch -q -c b HEAD~1 && echo z > new && git add new && git commit -qm z && git rebase -q main && git switch -q main && git merge -q b && git gc -q",
		"many at once":             "for i in 1 2 3 4 5 6 7 8 9; do git branch --track b$i origin/main; done; git branch -D b3 b4",
		"description":              "git config branch.main.description 'what it is; and why # now'",
		"what was there is unset":  "git config --unset branch.main.merge; git config --remove-section branch.main",
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := settingsHost(t)
			inside := h.sh("{ " + script + "; } > /dev/null; git config --local --list")
			if got := settingsOf(t, h); !sameLines(got, inside) {
				t.Errorf("on the host:\n%s\ninside:\n%s", got, inside)
			}
			if status := h.git(h.profile.Workspace, "status", "--porcelain"); strings.Contains(status, "??") {
				t.Error(status)
			}
		})
	}
}

// settingsTold is what was told of settings.
func settingsTold(r ran) []string {
	var list []string
	for _, n := range r.Notices {
		if n.Kind == NoticeGitSetting {
			list = append(list, n.Text)
		}
	}
	return list
}

func sameLines(a, b string) bool {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

// The host's own git is asked all the time while the command sets what executes, and afterwards.
func TestNoSettingThatExecutesReachesTheHost(t *testing.T) {
	h, _ := settingsHost(t)
	evil := h.profile.Workspace + "/evil"
	h.write(evil, "#!/bin/sh\necho \"$0 $*\" >> "+h.profile.Workspace+"/executed\ncat >/dev/null 2>&1 </dev/null\nexit 0\n")
	os.Chmod(evil, 0o755)
	h.write(h.profile.Workspace+"/.gitattributes", "* filter=x diff=x merge=x\n")
	h.git(h.profile.Workspace, "add", ".")
	h.git(h.profile.Workspace, "commit", "-q", "-m", "attributes")
	before := settingsOf(t, h)
	keys := []string{"core.fsmonitor", "core.hooksPath", "core.sshCommand", "core.pager", "core.editor", "core.gitProxy", "alias.status", "filter.x.clean", "filter.x.smudge", "filter.x.process",
		"diff.x.textconv", "diff.x.command", "diff.external", "merge.x.driver", "credential.helper", "url." + evil + ".insteadOf", "include.path", "includeIf.gitdir:/.path",
		"remote.origin.uploadpack", "remote.origin.receivepack", "remote.origin.vcs", "remote.origin.proxy", "submodule.x.update", "gpg.program", "pager.log", "pager.status",
		"protocol.ext.allow", "core.worktree", "core.attributesFile", "uploadpack.packObjectsHook", "core.alternateRefsCommand", "interactive.diffFilter"}
	script := "C=$PWD/.git/config; cd /tmp; for i in 1 2 3; do "
	for _, key := range keys {
		script += "git config --file $C " + Quote(key) + " " + Quote(evil) + "; "
	}
	script += "git config --file $C --add remote.origin.url 'ext::" + evil + "'; git config --file $C remote.bad.url 'ssh://-oProxyCommand=" + evil + "/x'; git config --file $C branch.main.remote 'ext::" + evil + "'; done; true"
	done := make(chan struct{})
	asked := make(chan int)
	ask := func() {
		for _, args := range [][]string{{"status"}, {"-c", "color.ui=always", "log", "-1", "-p"}, {"diff"}, {"fetch", "-q"}} {
			cmd := exec.Command("git", args...)
			cmd.Dir, cmd.Env = h.profile.Workspace, h.gitEnvironment()
			cmd.Run()
		}
	}
	go func() {
		n := 0
		for {
			select {
			case <-done:
				asked <- n
				return
			default:
				ask()
				n++
			}
		}
	}()
	r := h.run("/bin/sh", "-c", script)
	close(done)
	if n := <-asked; n == 0 || r.Failure != nil || r.ExitCode != 0 {
		t.Errorf("%d %v %q", n, r.Failure, r.Err)
	}
	ask()
	if text, err := os.ReadFile(h.profile.Workspace + "/executed"); err == nil {
		t.Errorf("executed: %s", text)
	}
	if after := settingsOf(t, h); after != before {
		t.Errorf("%s\nwas:\n%s", after, before)
	}
	told := settingsTold(r)
	if len(told) != maxLeft+1 || !strings.Contains(strings.Join(told, "\n"), "core.fsmonitor") {
		t.Errorf("%d %q", len(told), told)
	}
}

func TestWhatIsNotCarriedOverIsToldWithTheCommand(t *testing.T) {
	h, _ := settingsHost(t)
	r := h.run("/bin/sh", "-c", `git config alias.Co '!echo "a b"' && git config core.pager less && git config --unset core.bare; git config user.name N`)
	told := strings.Join(settingsTold(r), "\n")
	for _, want := range []string{
		"alias.Co = ", "git executes a program for it; who wants it, sets it outside: git -C " + h.profile.Workspace + ` config alias.Co '!echo "a b"'`,
		"core.pager = less: git executes a program for it; who wants it, sets it outside: git -C " + h.profile.Workspace + " config core.pager less",
	} {
		if !strings.Contains(told, want) {
			t.Errorf("%s\nwants %s", told, want)
		}
	}
	if got := h.git(h.profile.Workspace, "config", "user.name"); got != "N\n" {
		t.Error(got)
	}
}

package sandbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/descriptor"
	"github.com/clairun/clai-sandbox/sandbox/protect"
)

// settingsHost is a host whose workspace is a clone of a repository on the same machine, which may
// be written.
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
		"name and address":                   "git config user.email c@d.e && git config user.name 'C D'",
		"a remote":                           "git remote add other git@example.com:a/b.git && git remote add third /srv/x.git",
		"a remote's address by another name": "git remote add up $(git remote get-url origin) && git branch -u origin/main && git config remote.pushDefault up",
		"a remote's address":                 "git remote add other /srv/x.git && git remote set-url other https://example.com/x.git && git remote set-url --add --push other https://example.com/y.git",
		"push -u":                            "git checkout -q -b new && git push -q -u origin new",
		"a branch goes":                      "git switch -q topic && git branch -q -D main",
		"a branch's name":                    "git branch -m main master && git branch -M master trunk && git branch -c trunk other",
		"a tracking branch":                  "git switch -q topic && git branch -u origin/main topic",
		"fetch and pull":                     "git fetch -q && git pull -q --rebase && git config pull.rebase true",
		"stash, rebase, merge, gc":           "echo x >> file && git stash -q && git stash pop -q && git commit -qam y && git switch -q -c b HEAD~1 && echo z > new && git add new && git commit -qm z && git rebase -q main && git switch -q main && git merge -q b && git gc -q",
		"many at once":                       "for i in 1 2 3 4 5 6 7 8 9; do git branch --track b$i origin/main; done; git branch -D b3 b4",
		"description":                        "git config branch.main.description 'what it is; and why # now'",
		"a branch of one's own":              "git switch -q -c mine --track main && git push -q -u origin mine",
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := settingsHost(t)
			inside := h.sh("set -e; { " + script + "; } > /dev/null; git config --local --list")
			if got := settingsOf(t, h); !sameLines(got, inside) {
				t.Errorf("on the host:\n%s\ninside:\n%s", got, inside)
			}
			if status := h.git(h.profile.Workspace, "status", "--porcelain"); strings.Contains(status, "??") {
				t.Error(status)
			}
		})
	}
}

// What leads git elsewhere than before works inside, and is kept out, told and kept for the person:
// all that belongs together, and nothing else.
func TestWhatLeadsGitElsewhereIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   []string
	}{
		"a branch on a fork":      {"git init -q --bare /tmp/fork.git; git remote add fork /tmp/fork.git; git switch -q -c feat; git push -q -u fork feat", []string{"branch.feat.merge = refs/heads/feat", "branch.feat.remote = fork"}},
		"what was there goes":     {"git config --remove-section branch.main", []string{"branch.main.merge without", "branch.main.remote without"}},
		"a remote's other name":   {"git remote rename origin up", []string{"remote.origin.fetch without", "remote.origin.url without"}},
		"a pull request's branch": {"git config branch.main.merge refs/pull/1/head", []string{"branch.main.merge = refs/pull/1/head"}},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := settingsHost(t)
			r := h.run("/bin/sh", "-ec", c.script)
			told := settingsTold(r)
			slices.Sort(told)
			if r.ExitCode != 0 || len(told) != len(c.want) {
				t.Fatalf("%d %q %q", r.ExitCode, r.Err, told)
			}
			for i, want := range c.want {
				if !strings.Contains(told[i], ": "+want) || !strings.Contains(told[i], "it leads git elsewhere; who wants it: clai-sandbox quarantine restore ") {
					t.Errorf("%q", told[i])
				}
			}
			if c.want[0] == "branch.feat.merge = refs/heads/feat" {
				if got := h.git(h.profile.Workspace, "config", "remote.fork.url"); got != "/tmp/fork.git\n" {
					t.Error(got)
				}
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
	if waiting := h.quarantined(); len(waiting) > maxLeft {
		t.Errorf("%d are kept", len(waiting))
	}
	told := settingsTold(r)
	if len(told) != maxLeft+1 || !strings.Contains(strings.Join(told, "\n"), "core.fsmonitor") {
		t.Errorf("%d %q", len(told), told)
	}
}

// What is not carried over waits in the quarantine, once however often a command sets it, and is
// told with the command that makes it.
func TestWhatIsNotCarriedOverWaitsForThePerson(t *testing.T) {
	h, _ := settingsHost(t)
	set := func() string {
		r := h.run("/bin/sh", "-c", `git config alias.Co '!echo "a b"' && git config core.pager "$(printf 'a\033b')" && git config user.name N`)
		return strings.Join(settingsTold(r), "\n")
	}
	told := set()
	if again := set(); again != told {
		t.Errorf("%s\nthe second time:\n%s", told, again)
	}
	waiting := map[string]protect.Entry{}
	for _, e := range h.quarantined() {
		waiting[e.Setting.Key] = e
	}
	if len(waiting) != 2 {
		t.Errorf("%+v", waiting)
	}
	for _, want := range []string{
		`alias.Co = !echo "a b": git executes a program for it; who wants it: clai-sandbox quarantine restore ` + waiting["alias.Co"].ID,
		`core.pager = "a\x1bb": git executes a program for it; all of it: clai-sandbox quarantine show ` + waiting["core.pager"].ID,
	} {
		if !strings.Contains(told, want) {
			t.Errorf("%s\nwants %s", told, want)
		}
	}
	if got := h.git(h.profile.Workspace, "config", "user.name"); got != "N\n" {
		t.Error(got)
	}

	h.launcher.State = "" // there is nowhere to keep it
	want := "core.editor = less: git executes a program for it; who wants it, sets it outside: git -C " + h.profile.Workspace + " config core.editor less"
	if told := settingsTold(h.run("git", "config", "core.editor", "less")); len(told) != 1 || !strings.Contains(told[0], want) {
		t.Errorf("%q", told)
	}
}

func TestThePersonsChangesReachTheCopy(t *testing.T) {
	h, _ := settingsHost(t)
	work := h.profile.Workspace
	s := h.liveShell()
	s.expect("git config user.name inside; git config user.name", "inside")
	h.git(work, "config", "core.pager", "less")
	waitUntil(t, "it is inside", func() bool { return s.sh("git config core.pager") == "less" })
	h.git(work, "remote", "add", "theirs", "/srv/theirs.git")
	waitUntil(t, "they are inside", func() bool {
		return s.sh("git config core.pager; git config remote.theirs.url; git config remote.theirs.fetch") == "less\n/srv/theirs.git\n+refs/heads/*:refs/remotes/theirs/*"
	})
	s.expect("git config user.name; git config core.pager evil; git remote add mine /srv/mine.git; rm .git/config", "…Device or resource busy")
	h.git(work, "config", "user.email", "theirs@example.com")
	waitUntil(t, "that is, too", func() bool { return s.sh("git config user.email") == "theirs@example.com" })
	waitUntil(t, "the file is covered again", func() bool { return s.sh("test -L .git/config && echo it is") == "it is" })
	if file, err := os.OpenFile(work+"/.git/config", os.O_APPEND|os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	} else { // as "echo >>" does it
		file.WriteString("[pull]\n\trebase = true\n")
		file.Close()
	}
	waitUntil(t, "what is written in place is, too", func() bool { return s.sh("git config pull.rebase") == "true" })
	s.in.Close()
	<-s.ended
	s.ended <- nil
	got := settingsOf(t, h)
	for _, want := range []string{"user.name=inside", "core.pager=less", "remote.theirs.url=/srv/theirs.git", "remote.mine.url=/srv/mine.git", "user.email=theirs@example.com", "pull.rebase=true"} {
		if !slices.Contains(strings.Split(got, "\n"), want) {
			t.Errorf("%s is not in\n%s", want, got)
		}
	}
	if strings.Contains(got, "evil") {
		t.Error(got)
	}
}

func TestWhatIsWrittenThroughTheMomentIsNoticed(t *testing.T) {
	const known, harmless, harmful = "[core]\n\tbare = false\n", "[user]\n\tname = A\n", "[core]\n\tpager = evil\n"
	moved, modified := uint32(unix.IN_MOVED_TO), uint32(unix.IN_MODIFY)
	for name, c := range map[string]struct {
		now     string
		covered bool
		later   []uint32
		gone    bool
		held    bool // open for writing
		link    bool
		want    bool
		lock    []uint32 // what more was seen of the lock
	}{
		"the person's git, once":                     {known + harmful, true, nil, false, false, false, false, nil},
		"the person's git, again and again":          {known + harmless, true, []uint32{moved, moved}, false, false, false, false, nil},
		"written in place":                           {known + harmful, false, nil, false, false, false, false, nil},
		"written through the moment":                 {known + harmful, true, []uint32{modified}, false, false, false, true, nil},
		"written through it, and with no harm":       {known + harmless, true, []uint32{modified}, false, false, false, true, nil},
		"somebody else opened the lock":              {known + harmful, true, nil, false, false, false, true, []uint32{unix.IN_OPEN}},
		"somebody else closed the lock":              {known + harmful, true, nil, false, false, false, true, []uint32{unix.IN_CLOSE_WRITE}},
		"another lock":                               {known + harmful, true, nil, false, false, false, true, []uint32{unix.IN_MOVED_TO}},
		"and with no harm":                           {known + harmless, true, nil, false, false, false, false, []uint32{unix.IN_OPEN}},
		"open for writing":                           {known, true, nil, false, true, false, true, nil},
		"another file put there":                     {known + harmful, true, []uint32{moved}, false, false, false, true, nil},
		"another file that cannot be read":           {"[", true, []uint32{moved}, false, false, false, true, nil},
		"one put where the person took theirs away":  {known + harmful, true, nil, true, false, false, true, nil},
		"what the person put back":                   {known, true, nil, true, false, false, false, nil},
		"a link that was put there":                  {known, true, []uint32{moved}, false, false, true, true, nil},
		"something that cannot be covered, whatever": {known + harmless, true, []uint32{modified}, true, false, true, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			path := h.write(h.profile.Workspace+"/config", c.now)
			dir, err := descriptor.Pin(h.profile.Workspace)
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			if c.link {
				os.Rename(path, path+"2")
				h.symlink("config2", path)
			}
			if c.held {
				file, err := os.OpenFile(path, os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer file.Close()
			}
			s := newSettings()
			file := &settingsCopy{path: path, dir: dir, base: known, known: known, gone: c.gone}
			for _, mask := range append([]uint32{unix.IN_CREATE, unix.IN_OPEN, unix.IN_CLOSE_WRITE}, c.lock...) {
				file.locks(mask)
			}
			s.happened(file, c.covered, file.held(), c.later)
			noticed := false
			select {
			case <-s.ends():
				noticed = true
			default:
			}
			if noticed != c.want || noticed != file.written {
				t.Errorf("noticed: %v", noticed)
			}
			if !noticed && file.known != c.now {
				t.Errorf("%q", file.known)
			}
			if noticed {
				file.restore()
				text, err := os.ReadFile(path)
				if info, _ := os.Lstat(path); err != nil || !info.Mode().IsRegular() || strings.Contains(string(text), "evil") || !strings.HasPrefix(string(text), known) {
					t.Errorf("%q %v", text, err)
				}
			}
		})
	}
}

func TestACommandThatWroteTheHostsSettingsIsEnded(t *testing.T) {
	h, _ := settingsHost(t)
	config := h.profile.Workspace + "/.git/config"
	before, _ := os.ReadFile(config)
	s := h.liveShell()
	s.expect("git config core.pager evil; git config user.name evil; echo ready", "ready")
	s.live.mu.Lock()
	settings := s.live.attempt.settings
	s.live.mu.Unlock()
	replaceFile(t, config, string(before)+"[core]\n\tpager = evil\n[push]\n\tdefault = current\n")
	c := settings.of(config)
	waitUntil(t, "the watch has seen it", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return strings.Contains(c.known, "evil") })
	c.mu.Lock()
	c.known = string(before)
	settings.raise(c)
	c.mu.Unlock()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	s.ended <- nil
	if after, _ := os.ReadFile(config); string(after) != string(before)+"[push]\n\tdefault = current\n" {
		t.Errorf("%s", after)
	}
	if !slices.ContainsFunc(s.told, func(n Notice) bool { return n.Path == config && strings.Contains(n.Text, "the command was ended") }) {
		t.Errorf("%v", s.told)
	}
}

// TestHowOftenACommandThatWritesSettingsIsNoticed measures, and is no protection: docs/security.md
// has the figures.
func TestHowOftenACommandThatWritesSettingsIsNoticed(t *testing.T) {
	if os.Getenv("CLAI_SANDBOX_MEASURE") == "" {
		t.Skip("a measurement: CLAI_SANDBOX_MEASURE=1 makes it")
	}
	needProgram(t, "python3")
	for name, attack := range map[string]string{
		"writes and closes": `
    f = os.open(".git/config", os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    os.write(f, b"[core]\n\tpager = planted\n"); os.close(f)`,
		"opens, and writes later": `
    f = os.open(".git/config", os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    time.sleep(0.002); os.write(f, b"[core]\n\tpager = planted\n"); time.sleep(1)`,
		"writes into git's lock": `
    f = os.open(".git/config.lock", os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    os.write(f, b"[core]\n\tpager = planted\n"); os.close(f)`,
		"puts another lock there": `
    open(".git/mine", "w").write("[core]\n\tpager = planted\n")
    while not os.path.exists(".git/config.lock"): pass
    os.rename(".git/mine", ".git/config.lock")`,
		"puts another file there": `
    open(".git/mine", "w").write("[core]\n\tpager = planted\n")
    os.rename(".git/mine", ".git/config")`,
	} {
		t.Run(name, func(t *testing.T) { measureSettings(t, attack) })
	}
}

func measureSettings(t *testing.T, attack string) {
	const versions = 200
	done, planted, noticed, left := 0, 0, 0, 0
	for done < versions {
		h, _ := settingsHost(t)
		config := h.profile.Workspace + "/.git/config"
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan Result, 1)
		go func() {
			result, _ := h.launcher.Run(ctx, h.build(), []string{"/usr/bin/python3", "-c", "import os, time\nopen('ready', 'w').close()\nwhile True:\n  try:" + attack + "\n  except OSError: pass\n"}, Stdio{})
			ended <- result
		}()
		waitUntil(t, "the command runs", func() bool { _, err := os.Stat(h.profile.Workspace + "/ready"); return err == nil })
		is := false
		for done < versions && !is && len(ended) == 0 {
			done++
			cmd := exec.Command("git", "config", "user.name", fmt.Sprint(done))
			cmd.Dir, cmd.Env = h.profile.Workspace, h.gitEnvironment()
			cmd.Run() // it may find a lock
			os.Remove(config + ".lock")
			for began := time.Now(); time.Since(began) < 10*time.Millisecond && !is; time.Sleep(100 * time.Microsecond) {
				text, _ := os.ReadFile(config)
				is = strings.Contains(string(text), "planted")
			}
		}
		for began := time.Now(); len(ended) == 0 && time.Since(began) < 500*time.Millisecond; {
			time.Sleep(time.Millisecond)
		}
		wasNoticed := len(ended) == 1
		cancel()
		result := <-ended
		wasNoticed = wasNoticed && slices.ContainsFunc(result.Notices, func(n Notice) bool { return strings.Contains(n.Text, "the command was ended") })
		if is {
			planted++
		}
		if wasNoticed {
			noticed++
		}
		if text, _ := os.ReadFile(config); strings.Contains(string(text), "planted") {
			left++
		}
	}
	t.Logf("of %d versions that the host wrote, %d had something of the command's for a moment; %d runs were ended for it; it was left in %d", done, planted, noticed, left)
}

// A workspace that is a worktree of a repository elsewhere changes the settings that all worktrees
// share.
func TestALinkedWorktreeChangesTheSharedSettings(t *testing.T) {
	h, remote := settingsHost(t)
	main, tree := h.profile.Workspace, h.profile.Home+"/tree"
	h.git(main, "worktree", "add", "-q", tree)
	h.git(main, "config", "extensions.worktreeConfig", "true")
	h.git(tree, "config", "--worktree", "user.name", "worktree's")
	h.profile.Workspace, h.profile.WorkingDirectory, h.profile.Grants[1].Path = tree, tree, tree
	inside := h.sh("set -e; { git config user.email w@x.y; git remote add other " + remote + "; git push -q -u other tree; git config --worktree user.name inside; } >/dev/null; git config --list --local; git config --list --worktree")
	if got := h.git(main, "config", "--local", "--list") + h.git(tree, "config", "--list", "--worktree"); !sameLines(got, inside) {
		t.Errorf("%s\ninside:\n%s", got, inside)
	}
	h.keepsSettings(main, "git config core.pager x", "git config --worktree core.pager x; git config core.hooksPath x")
	if got := h.git(tree, "config", "--list", "--worktree"); strings.Contains(got, "pager") {
		t.Error(got)
	}
}

// A repository that says nothing of the workspace is not shown to it, and so are its settings.
func TestAForgedWorktreeChangesNoSettings(t *testing.T) {
	h, _ := settingsHost(t)
	other := h.repository(h.profile.Home + "/other")
	forged := h.mkdir(h.profile.Home + "/forged")
	h.write(forged+"/.git", "gitdir: "+other+"/.git\n")
	h.profile.Workspace, h.profile.WorkingDirectory, h.profile.Grants[1].Path = forged, forged, forged
	h.keepsSettings(other, "git config user.name x", "echo x >> "+other+"/.git/config")
}

func TestWorktreesAndSubmodulesAreMadeInside(t *testing.T) {
	h, remote := settingsHost(t)
	work := h.profile.Workspace
	h.sh("git worktree add -q ../work/tree && cd tree && git commit -q --allow-empty -m there && git config user.name 'A B'")
	if got := h.git(work+"/tree", "log", "-1", "--format=%s") + h.git(work, "config", "user.name"); got != "there\nA B\n" {
		t.Errorf("%q", got)
	}
	h.git(work, "worktree", "remove", "tree") // inside, what the repository had at the start cannot be removed
	h.sh("git -c protocol.file.allow=always submodule --quiet add file://" + remote + " lib && git commit -q -m lib")
	if got := h.git(work, "config", "submodule.lib.url"); got != "file://"+remote+"\n" {
		t.Errorf("%q", got)
	}
	h.git(work, "submodule", "status")
	h.sh("cd lib && git config user.name 'In The Module' && git remote add second " + remote + " && git checkout -q -b x && git push -q -u origin x")
	if got := h.git(work+"/lib", "config", "--get-regexp", "^(remote.second|branch.x)"); len(lines(got)) != 4 {
		t.Errorf("%q", got)
	}
	h.sh("git submodule deinit -q -f lib && git -c protocol.file.allow=always submodule --quiet update --init")
	h.sh("git clone -q file://" + remote + " nested && cd nested && git config user.name nested && git commit -q --allow-empty -m n")
	if got := h.git(work+"/nested", "config", "user.name"); got != "nested\n" {
		t.Errorf("%q", got)
	}
}

// Whatever a command makes of its copy, nothing of that is opened but a regular file of a bounded
// length.
func TestWhatIsNoFileOfSettingsIsNotCarriedOver(t *testing.T) {
	for name, script := range map[string]string{
		"a pipe":            "rm $C && mkfifo $C",
		"a directory":       "rm $C && mkdir $C",
		"a link":            "rm $C && ln -s /etc/hostname $C",
		"nothing":           "rm $C",
		"too much":          "head -c 2000000 /dev/zero | tr '\\0' '#' > $C",
		"as much as it can": "! head -c 100000000 /dev/zero > $C && test $(stat -c %s $C) -lt 20000000 || exit 9",
		"no settings":       "echo '[' >> $C",
		"a NUL":             "printf '[user]\\nname = a\\0b\\n' >> $C",
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := settingsHost(t)
			before := settingsOf(t, h)
			r := h.run("/bin/sh", "-c", "git config user.name x; C=$(readlink .git/config); "+script)
			if got := settingsOf(t, h); r.Failure != nil || r.ExitCode == 9 || got != before || len(settingsTold(r)) != 1 {
				t.Errorf("%v %q\n%s", r.Failure, settingsTold(r), got)
			}
		})
	}
	h, _ := settingsHost(t)
	r := h.run("/bin/sh", "-c", "git config user.name x; cd /run/clai-sandbox/git && mv 0 1 && mkdir 0 && cp 1/config 0 && git config --file 0/config user.name planted")
	if got := h.git(h.profile.Workspace, "config", "user.name"); r.ExitCode != 0 || got != "x\n" {
		t.Errorf("%q %q", got, r.Err)
	}
}

func TestALockOfTheHostsGitIsRespected(t *testing.T) {
	h, _ := settingsHost(t)
	before := settingsOf(t, h)
	h.write(h.profile.Workspace+"/.git/config.lock", "")
	r := h.run("/bin/sh", "-c", "git config user.name x")
	if told := settingsTold(r); len(told) != 1 || !strings.Contains(told[0], "another git holds") || settingsOf(t, h) != before {
		t.Errorf("%q", told)
	}
	os.Remove(h.profile.Workspace + "/.git/config.lock")
	os.Chmod(h.profile.Workspace+"/.git/config", 0o640)
	h.sh("git config user.name x")
	if info, err := os.Stat(h.profile.Workspace + "/.git/config"); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v %v", info, err)
	}
}

func TestWhereBwrapMakesAllMountsSettingsAreReadOnly(t *testing.T) {
	h, _ := settingsHost(t)
	h.launcher.byBwrap = true
	before := settingsOf(t, h)
	h.refused("git config user.name x 2>/dev/null")
	h.refused("echo x >> .git/config 2>/dev/null")
	if settingsOf(t, h) != before {
		t.Error(settingsOf(t, h))
	}
}

// Two sandboxes of one repository: each carries its own changes over.
func TestTwoSandboxesCarryTheirChangesOver(t *testing.T) {
	h, _ := settingsHost(t)
	s := h.liveShell()
	s.expect("git config user.name one; git config pull.rebase true; git config user.name", "one")
	h.sh("git config user.email two@example.com")
	waitUntil(t, "the first one has it", func() bool { return s.sh("git config user.email") == "two@example.com" })
	s.in.Close()
	<-s.ended
	s.ended <- nil
	if got := h.git(h.profile.Workspace, "config", "--get-regexp", "^(user|pull)"); got != "user.email two@example.com\nuser.name one\npull.rebase true\n" {
		t.Errorf("%q", got)
	}
}

// "git sparse-checkout" writes settings of the worktree's own. Nothing else may be in them.
func TestSparseCheckoutWorksInside(t *testing.T) {
	for _, strict := range []bool{false, true} {
		t.Run(fmt.Sprint("strict=", strict), func(t *testing.T) {
			needMounts(t)
			t.Parallel()
			h := gitHost(t)
			if strict {
				h.strict()
			}
			work := h.profile.Workspace
			h.write(work+"/a/x", "x")
			h.write(work+"/b/x", "x")
			h.git(work, "add", ".")
			h.git(work, "commit", "-qm", "two")
			r := h.run("/bin/sh", "-c", "{ git sparse-checkout set a && git sparse-checkout disable && git sparse-checkout set a; } 2>&1 || exit 1; git config --worktree core.fsmonitor evil; git config --worktree remote.origin.url https://example.com/evil; true")
			if r.Failure != nil || r.ExitCode != 0 {
				t.Fatalf("%v %d %s %v", r.Failure, r.ExitCode, r.Out, r.Notices)
			}
			if _, err := os.Lstat(work + "/b"); err == nil {
				t.Error("it had no effect")
			}
			list := h.git(work, "config", "--list")
			if !strings.Contains(list, "core.sparsecheckout=true") || strings.Contains(list, "evil") {
				t.Errorf("%s\n%v", list, r.Notices)
			}
			if status := h.git(work, "status", "--porcelain"); status != "" {
				t.Errorf("%q", status)
			}
			h.sh("git sparse-checkout disable")
			if _, err := os.Lstat(work + "/b/x"); err != nil {
				t.Error(err)
			}
		})
	}
}

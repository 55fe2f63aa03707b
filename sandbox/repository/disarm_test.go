package repository

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// git runs git as somebody without settings of their own, and returns what it printed.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a",
		"GIT_COMMITTER_EMAIL=a@b", "GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=protocol.file.allow", "GIT_CONFIG_VALUE_0=always",
		"GIT_CONFIG_KEY_1=init.defaultBranch", "GIT_CONFIG_VALUE_1=main")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

var asideCount atomic.Int32

func aside(dir int, name string) error {
	return unix.Renameat2(dir, name, dir, fmt.Sprintf("%s.set-aside.%d", name, asideCount.Add(1)), unix.RENAME_NOREPLACE)
}

func disarm(t *testing.T, dir string) []Taken {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	taken, err := Disarm(fd, aside)
	if err != nil {
		t.Error(err)
	}
	return taken
}

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// files are all regular files below a directory, with what is in them.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			all[path] = read(t, path)
		}
		return err
	})
	return all
}

func TestWhatGitMakesStaysAsItIs(t *testing.T) {
	top := t.TempDir()
	git(t, top, "init", "origin")
	git(t, top+"/origin", "commit", "--allow-empty", "-m", "x")
	git(t, top, "init", "--bare", "bare")
	git(t, top, "init", "--shared", "shared")
	git(t, top, "init", "--object-format=sha256", "long")
	git(t, top, "clone", "origin", "clone")
	git(t, top, "clone", "--mirror", "origin", "mirror.git")
	git(t, top, "clone", "--filter=blob:none", "file://"+top+"/origin", "partial")
	git(t, top+"/clone", "submodule", "add", top+"/origin", "deep/sub")
	git(t, top+"/clone", "worktree", "add", "../tree")
	git(t, top+"/clone", "config", "user.name", "A \"B\"; c#d ")
	git(t, top+"/clone", "remote", "add", "other", "git@example.com:a/b")
	git(t, top+"/clone", "sparse-checkout", "set", "a")
	for _, dir := range []string{"origin/.git", "bare", "shared/.git", "long/.git", "clone/.git", "mirror.git", "partial/.git", "clone/.git/modules/deep/sub",
		"clone/.git/worktrees/tree"} {
		before := files(t, filepath.Join(top, dir))
		if taken := disarm(t, filepath.Join(top, dir)); len(taken) > 0 {
			t.Errorf("%s: %+v", dir, taken)
		}
		if !maps.Equal(before, files(t, filepath.Join(top, dir))) {
			t.Errorf("%s was changed", dir)
		}
	}
	git(t, top+"/tree", "status")
	git(t, top+"/clone/deep/sub", "status")
}

func TestWhatExecutesIsTakenOutOfSettings(t *testing.T) {
	for s := range hostile {
		key, value, _ := strings.Cut(s, "=")
		if strings.Count(key, ".") == 0 || key == "." || mayStay(key, value) == Harmless {
			continue
		}
		for _, name := range []string{"config", "config.worktree"} {
			dir := filepath.Join(t.TempDir(), "x.git")
			git(t, "/", "init", "--bare", dir)
			text := writeSettings([]Setting{{"user.name", "before"}, {key, value}, {"user.email", "after"}})
			if _, err := parseDocument(text); err != nil && !strings.Contains(key, "\n") {
				t.Fatalf("%q: %v", text, err)
			}
			write(t, dir+"/"+name, text)
			taken := disarm(t, dir)
			if len(taken) != 1 {
				t.Errorf("%q: %+v", s, taken)
			}
			if now, err := os.ReadFile(dir + "/" + name); err == nil && string(now) != "[user]\n\tname = before\n\temail = after\n" {
				t.Errorf("%q: %q", s, now)
			}
			if more := disarm(t, dir); len(more) != 0 {
				t.Errorf("%q: again: %+v", s, more)
			}
		}
	}
}

// oddly are ways to write core.fsmonitor, or something that others than git may take for it.
var oddly = []string{
	"[CORE]\nFSMonitor = evil\n", "[core] fsmonitor=evil", "[core]fsmonitor\t=\tevil\n", "[core]\r\n\tfsmonitor = evil\r\n",
	byteOrderMark + "[core]\n\tfsmonitor = evil\n", "[core]\n\tfsmonitor = ev\\\nil\n", "[core]\n\tfsmonitor = \"ev\"il\n",
	"[core]\n\tbare = false # \\\n\tfsmonitor = evil\n", "[core]\n\tbare = false\n\tfsmonitor\n", "[user]\n\tname = \\\"\n[core]\n\tfsmonitor = evil\n",
	"[core]\n\tfsmonitor = evil\n\tfsmonitor = evil2\n", "[user \"]\"]\n\tx = y\n[core]\n\tfsmonitor = evil\n", "[user]\n\tname = a\x00\n[core]\n\tfsmonitor = evil\n",
	"[user]\n\tname = \"a\n\\\n[core]\n\tfsmonitor = evil\n", "[user]\n\tname = a\r[core]\r\tfsmonitor = evil\r", "# a \\\n[core]\n\tfsmonitor = evil\n",
	"[a.b \"c\"]\n\td = e\n[core]\n\tfsmonitor = evil\n", "[core \"\"]\n\tfsmonitor = evil\n", "[core]\n\tfsmonitor = evil\n[broken\n",
	"[branch \"[core]\nfsmonitor = evil\n#\"]\n\tremote = x\n", "[user]\n\tname = x ; [core]\n; fsmonitor\n[core]\n\tfsmonitor = evil",
	"[user] name = x\n", "[branch \"a\"]\n\tdescription = a\\\nb\n", "[user]\n\tname = x # [core]\n", "[user]\r\n\tname = x\r\n",
	"[user]\n\tname = [core]\\n\\tfsmonitor = evil\n", "fsmonitor = evil\n[core]\n", "[core]\n\tfsmonitor = " + strings.Repeat("evil ", MaxFile/5),
}

func TestSettingsThatAreSpelledOddlyAreTakenOut(t *testing.T) {
	for _, text := range oddly {
		dir := filepath.Join(t.TempDir(), "x.git")
		git(t, "/", "init", "--bare", dir)
		write(t, dir+"/config", text)
		disarm(t, dir)
		now, _ := os.ReadFile(dir + "/config")
		document, err := parseDocument(string(now))
		if err != nil || !document.isPlain() {
			t.Errorf("%.80q: %.80q %v", text, now, err)
		}
		for _, s := range document.settings() {
			if mayStay(s.Key, s.Value) != Harmless {
				t.Errorf("%.80q: %.80q", text, s)
			}
		}
		if more := disarm(t, dir); len(more) != 0 {
			t.Errorf("%.80q: again: %+v", text, more)
		}
	}
}

func TestHooksAndWhatLeadsElsewhereAreSetAside(t *testing.T) {
	for name, c := range map[string]struct {
		make func(dir string)
		want []string
	}{
		"hooks": {func(dir string) {
			write(t, dir+"/hooks/pre-commit", "#!/bin/sh")
			write(t, dir+"/hooks/post-checkout", "")
			write(t, dir+"/hooks/pre-push.sample", "")
		}, []string{"hooks/post-checkout", "hooks/pre-commit"}},
		"old files with remotes": {func(dir string) {
			os.Mkdir(dir+"/remotes", 0o755)
			write(t, dir+"/remotes/origin", "URL: ext::evil\n")
			os.Mkdir(dir+"/branches", 0o755)
			write(t, dir+"/branches/up", "ext::evil\n")
		}, []string{"branches", "remotes"}},
		"none in them":          {func(dir string) { os.Mkdir(dir+"/branches", 0o755) }, nil},
		"a hook that is a link": {func(dir string) { os.Mkdir(dir+"/hooks", 0o755); os.Symlink("/bin/true", dir+"/hooks/pre-commit") }, []string{"hooks/pre-commit"}},
		"hooks that are a link": {func(dir string) { os.Symlink("/tmp", dir+"/hooks") }, []string{"hooks"}},
		"hooks nobody may read": {func(dir string) { os.Mkdir(dir+"/hooks", 0) }, map[bool][]string{true: nil, false: {"hooks"}}[os.Geteuid() == 0]},
		"too many hooks": {func(dir string) {
			for i := range maxHooks + 1 {
				write(t, fmt.Sprintf("%s/hooks/h%d", dir, i), "")
			}
		}, []string{"hooks"}},
		"a config that is a link":         {func(dir string) { os.Remove(dir + "/config"); os.Symlink("objects/x", dir+"/config") }, []string{"config"}},
		"a config that is a pipe":         {func(dir string) { os.Remove(dir + "/config"); unix.Mkfifo(dir+"/config", 0o600) }, []string{"config"}},
		"a config that is a directory":    {func(dir string) { os.Remove(dir + "/config"); os.Mkdir(dir+"/config", 0o700) }, []string{"config"}},
		"a config that is too long":       {func(dir string) { write(t, dir+"/config", strings.Repeat("#", MaxFile+1)) }, []string{"config"}},
		"a config that cannot be read":    {func(dir string) { write(t, dir+"/config", "[core\n") }, []string{"config"}},
		"another common directory":        {func(dir string) { write(t, dir+"/commondir", "/tmp/x\n") }, []string{"commondir"}},
		"one that is about to be written": {func(dir string) { write(t, dir+"/commondir", "") }, nil},
		"a common directory and no more": {func(dir string) {
			os.Remove(dir + "/objects")
			os.RemoveAll(dir + "/refs")
			write(t, dir+"/commondir", "../y")
		}, []string{"commondir"}},
		"a working tree elsewhere":          {func(dir string) { write(t, dir+"/gitdir", "/tmp/x/.git\n") }, []string{"gitdir"}},
		"a common directory that is a link": {func(dir string) { os.Symlink("/etc/passwd", dir+"/commondir") }, []string{"commondir"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "x.git")
			git(t, "/", "init", "--bare", "--template=", dir)
			c.make(dir)
			var got []string
			for _, taken := range disarm(t, dir) {
				got = append(got, taken.Name)
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			if more := disarm(t, dir); len(more) != 0 {
				t.Errorf("again: %+v", more)
			}
		})
	}
}

func TestAnOrdinaryDirectoryIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/config", "[core]\n\tfsmonitor = x\n")
	write(t, dir+"/hooks/pre-commit", "x")
	write(t, dir+"/HEAD", "x")
	before := files(t, dir)
	if taken := disarm(t, dir); len(taken) > 0 || !maps.Equal(before, files(t, dir)) {
		t.Errorf("%+v", taken)
	}
}

func TestAModulesWorkingTreeIsWhereGitHasIt(t *testing.T) {
	work := t.TempDir()
	write(t, work+"/sub/.git", "gitdir: ../.git/modules/sub\n")
	write(t, work+"/a/b/.git", "gitdir: "+work+"/.git/modules/sub\n")
	write(t, work+"/other/.git", "gitdir: ../.git/modules/other\n")
	write(t, work+"/.vscode/settings.json", "{}")
	const there, apart = 1, 2 // how it may be: with all around it there, and before that
	for worktree, want := range map[string]int{"../../../sub": there | apart, "../../../a/b": there | apart, "../../../..": 0, "/etc": 0, "../../..": 0,
		"../../../../other": 0, "..": 0, "../../hooks": 0, "../../../sub/.git/x": 0, "../../../other": 0, "../../../.vscode": 0, "../../../new": apart} {
		d := disarming{place: work + "/.git/modules/sub"}
		got := 0
		if d.isModuleOf(worktree) {
			got |= there
		}
		if d.apart = true; d.isModuleOf(worktree) {
			got |= apart
		}
		if got != want {
			t.Errorf("%s: %v", worktree, got)
		}
	}
}

// While git writes its settings again and again, it never fails, nothing of them is lost, and what
// executes does not stay.
func TestGitIsNotDisturbed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x.git")
	git(t, "/", "init", "--bare", dir)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 60 {
			for _, setting := range [][2]string{{fmt.Sprintf("branch.b%d.remote", i), "origin"}, {"core.fsmonitor", "evil"}} {
				if out, err := exec.Command("git", "config", "--file", dir+"/config", setting[0], setting[1]).CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			}
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		disarm(t, dir)
	}
	list := git(t, dir, "config", "--file", "config", "--list")
	// Between an exchange and the one that undoes it, git may read what was without another's
	// newest setting, and write on from that.
	if strings.Contains(list, "evil") || strings.Count(list, "branch.") < 59 {
		t.Errorf("%s", list)
	}
}

// A git that finds its lock taken fails, and a command may write one setting after another.
func TestNoLockOfGitsIsTaken(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x.git")
	git(t, "/", "init", "--bare", dir)
	write(t, dir+"/config", "[core]\n\tfsmonitor = evil\n")
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK)
	if err == nil {
		defer unix.Close(fd)
		_, err = unix.InotifyAddWatch(fd, dir, unix.IN_CREATE)
	}
	if err != nil {
		t.Fatal(err)
	}
	disarm(t, dir)
	events := make([]byte, 4096)
	if n, err := unix.Read(fd, events); err != nil || !strings.Contains(string(events[:n]), "config.") || strings.Contains(string(events[:n]), "config.lock") {
		t.Errorf("made: %q, %v", events[:max(n, 0)], err)
	}
}

func TestALockThatIsKeptDoesNotKeepSettings(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x.git")
	git(t, "/", "init", "--bare", dir)
	write(t, dir+"/config", "[core]\n\tfsmonitor = evil\n")
	write(t, dir+"/config.lock", "")
	if taken := disarm(t, dir); len(taken) != 1 || read(t, dir+"/config") != "" {
		t.Errorf("%+v %q", taken, read(t, dir+"/config"))
	}
	if entries, _ := filepath.Glob(dir + "/config*"); len(entries) != 2 {
		t.Errorf("%q", entries)
	}
}

// By another name that a command made before, it would write the settings unseen.
func TestSettingsWithAnotherNameAreReplaced(t *testing.T) {
	top := t.TempDir()
	git(t, top, "init", "r")
	before := read(t, top+"/r/.git/config")
	if err := os.Link(top+"/r/.git/config", top+"/other"); err != nil {
		t.Fatal(err)
	}
	if taken := disarm(t, top+"/r/.git"); len(taken) > 0 {
		t.Errorf("%+v", taken)
	}
	write(t, top+"/other", "[core]\n\tfsmonitor = x\n")
	if now := read(t, top+"/r/.git/config"); now != before {
		t.Errorf("%q", now)
	}
}

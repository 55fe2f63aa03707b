package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/protect"
)

// planted lists what stands under a protected name below a directory, and what git would execute in
// repositories there.
func planted(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if entry.IsDir() {
			os.Chmod(path, 0o700)
		}
		name := entry.Name()
		switch {
		case entry.IsDir() && isEmptyDirectory(path): // it does nothing
		case slices.Contains([]string{".envrc", ".vscode", ".mcp.json", ".claude", "config.toml", "rust-toolchain"}, name):
			list = append(list, path)
		case filepath.Base(filepath.Dir(path)) == "hooks" && !strings.HasSuffix(name, ".sample") && !strings.Contains(name, ".clai-sandbox-aside-"):
			list = append(list, path)
		case name == "config" && entry.Type().IsRegular():
			if text, _ := os.ReadFile(path); strings.Contains(strings.ToLower(string(text)), "fsmonitor") {
				list = append(list, path)
			}
		case strings.HasPrefix(name, ".clai-sandbox-aside-"):
			list = append(list, path)
		}
		return nil
	})
	return list
}

func isEmptyDirectory(path string) bool {
	entries, err := os.ReadDir(path)
	return err == nil && len(entries) == 0
}

// evil makes a git directory that executes, in shell. It takes where.
const evil = `evil() { mkdir -p "$1/objects" "$1/refs" && printf '[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tfsmonitor = touch '"$OUT"'/ran; false\n' > "$1/config" && echo ref: refs/heads/main > "$1/HEAD"; }; `

// plantings are ways to make what something outside would execute.
var plantings = map[string]struct {
	first  string // another command, before
	script string
}{
	"a root that looks like a bare repository": {"mkdir objects refs; touch HEAD",
		"mkdir -p .vscode; echo x > .vscode/tasks.json; echo x > .envrc; mkdir hooks; echo x > hooks/pre-commit; evil .git; evil sub/.git; evil ."},
	"HEAD moved aside, and back": {"evil r; mv r/HEAD r/h; mv r/refs r/r", "printf '[core]\\nfsmonitor = x\\n' >> r/config; mv r/h r/HEAD; mv r/r r/refs"},
	"256 directories and more":   {"for i in $(seq 400); do mkdir $i; done", "echo x > 399/.envrc; mkdir -p 400/x/.vscode; echo x > 400/x/.vscode/tasks.json; evil 398/.git"},
	"many files":                 {"mkdir many; (cd many; seq 1 20000 | xargs touch)", "echo x > many/.envrc; evil many/sub/.git"},
	"deep":                       {"mkdir -p 1/2/3/4/5/6/7/8/9", "evil 1/2/3/4/5/6/7/8/9/.git; echo x > 1/2/3/4/5/6/7/8/9/.envrc"},
	"very deep":                  {"", `d=.; for i in $(seq 90); do mkdir d && cd d; done; echo x > .envrc; evil .git`},
	"in a directory that package managers fill": {"", "mkdir -p node_modules/x; evil node_modules/x/.git; mkdir -p venv/lib; evil venv/lib/.git"},
	"moved out of one":                          {"", "mkdir -p node_modules/p/.claude; echo x > node_modules/p/.claude/settings.json; echo x > node_modules/p/.envrc; mv node_modules/p p"},
	"the directory itself renamed":              {"", "mkdir -p node_modules/.vscode; echo x > node_modules/.vscode/tasks.json; sleep 0.05; mv node_modules m"},
	"moved in":                                  {"", "echo x > y; mv y .envrc; mkdir d; echo x > d/tasks.json; mv d .vscode"},
	"linked in":                                 {"", "echo x > y; ln y .envrc; ln -s y .mcp.json; ln -s /etc .vscode"},
	"through a renamed parent":                  {"", "mkdir -p a/b; mv a c; echo x > c/b/.envrc; mv c/b c/d; echo x > c/d/.mcp.json; mv c a; echo x > a/d/.envrc"},
	"a name of three components, by renaming":   {"", "mkdir -p x/repo; echo x > x/repo/config.toml; mv x .jj; mkdir -p y/z; mv .jj/repo y/z/repo 2>/dev/null; mv y/z y/.jj 2>/dev/null"},
	"without a name first": {"", `python3 -c 'import os
f = os.open(".", os.O_TMPFILE | os.O_RDWR); os.write(f, b"x")
os.link(f"/proc/self/fd/{f}", ".envrc", follow_symlinks=True)'`},
	"exchanged": {"", `echo x > y; echo x > .envr; python3 -c 'import ctypes; ctypes.CDLL(None).renameat2(-100, b"y", -100, b".envrc", 0)'; rm -f .envr`},
	"two directories exchanged": {"", `mkdir -p a p/b; sleep 0.05; python3 -c 'import ctypes; ctypes.CDLL(None).renameat2(-100, b"a", -100, b"p/b", 2)'
sleep 0.05; echo x > a/.envrc; echo x > p/b/.mcp.json; evil a/.git; evil p/b/.git; sleep 0.05`},
	"in a directory without rights":             {"", "mkdir -m 0700 a; chmod 0300 a; echo x > a/.envrc; chmod 0100 a; chmod 0700 a; mkdir -m 0 b; chmod 0700 b; echo x > b/.envrc; sleep 0.05"},
	"in one that may be written, and not read":  {"", "mkdir -m 0300 a; echo x > a/.envrc; mkdir -m 0300 b b/.vscode; echo x > b/.vscode/tasks.json; mkdir -m 0300 c; evil c/.git; mkdir -m 0 d; chmod 0700 d; echo x > d/.mcp.json; chmod 0 d"},
	"in one below one without rights":           {"", "mkdir -p a/b; cd a/b; chmod 0 ..; (sleep 0.02; mkdir -m 0300 c; echo x > c/.envrc; echo x > .envrc); true"},
	"in one that may not be written":            {"", "mkdir a; echo x > a/y; mv a/y a/.envrc; chmod 0555 a"},
	"renamed out of what was set aside":         {"", "echo x > .envrc; sleep 0.05; mv .clai-sandbox-aside-* .mcp.json"},
	"a repository below a repository's objects": {"git init -q p", "evil p/.git/objects/zz; mkdir p/sub; echo 'gitdir: ../.git/objects/zz' > p/sub/.git; evil p/.git/modules/m"},
	"hooks of a new one":                        {"", "git init -q r; echo x > r/.git/hooks/pre-commit; mv r/.git/hooks r/.git/h; mkdir r/.git/hooks; echo x > r/.git/hooks/post-checkout; rm -rf r/.git/h"},
	"written, not made":                         {"", "git init -q r; sleep 0.05; printf '[core]\\n\\tfsmonitor = x\\n' >> r/.git/config; sleep 0.05"},
	"written to, and mapped": {"", `git init -q r; sleep 0.05; python3 -c 'import mmap
f = open("r/.git/config", "r+b"); m = mmap.mmap(f.fileno(), 0); m[:24] = b"[core]\n\tfsmonitor = x\n#\n"; m.flush()'`},
	"deeper than a path can say": {"", `python3 -c 'import os
name = "x" * 250
for i in range(18): os.mkdir(name); os.chdir(name)
for d in ("objects", "refs", "hooks"): os.makedirs(".git/" + d)
open(".git/HEAD", "w").write("ref: refs/heads/m"); open(".git/hooks/pre-commit", "w").write("x"); open(".git/config", "w").write("[core]\nfsmonitor = x\n")'
cd x*/x*/x*/x*/x*/x*/x*/x* && mv x*/x*/x*/x*/x*/x*/x*/x*/x* "$OLDPWD/up"`},
	"quickly, many at once": {"", "for i in 1 2 3 4; do (for j in $(seq 50); do mkdir -p $i/$j; echo x > $i/$j/.envrc; done) & done; wait"},
}

func TestNothingThatACommandShapesDecidesWhatIsProtected(t *testing.T) {
	for name, c := range plantings {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			out := h.mkdir(h.outside() + "/out")
			h.profile.Environment = append(h.profile.Environment, profile.Variable{Name: "OUT", Value: out})
			if strings.Contains(c.script, "python3") {
				needProgram(t, "python3")
			}
			for _, script := range []string{c.first, c.script} {
				if r := h.run("/bin/sh", "-c", evil+script); r.Failure != nil || r.Outcome != Exited {
					t.Fatalf("%s\n%v %s %s%s %v", script, r.Failure, r.Outcome, r.Out, r.Err, r.Notices)
				}
			}
			if list := planted(t, h.profile.Workspace); len(list) > 0 {
				t.Errorf("left: %q", list)
			}
		})
	}
}

// The person's git status in the project above finds the repository that the command hid, and
// executes nothing of it.
func TestARepositoryThatWasHiddenExecutesNothingOnTheHost(t *testing.T) {
	h := gitHost(t)
	work := h.profile.Workspace
	out := h.mkdir(h.outside() + "/out")
	deep := "1/2/3/4/5/6/7"
	h.repository(work + "/" + deep)
	h.git(work, "add", deep)
	h.git(work, "commit", "-q", "-m", "deep")
	os.RemoveAll(work + "/" + deep)
	h.mkdir(work + "/" + deep)
	r := h.run("/bin/sh", "-c", strings.ReplaceAll(evil, "$OUT", out)+"git init -q "+deep+" && git -C "+deep+" config core.fsmonitor 'touch "+out+"/ran; false'; touch ready; sleep 0.3")
	if r.Failure != nil {
		t.Fatal(r.Failure)
	}
	cmd := exec.Command("git", "-C", work, "status")
	cmd.Env = h.gitEnvironment()
	cmd.Run()
	if left := lines(listing(t, out)); len(left) != 1 {
		t.Errorf("git executed it: %q", left)
	}
}

func TestACommandThatPlantsInALoopIsEnded(t *testing.T) {
	for name, script := range map[string]string{
		"one name":                   "while :; do echo x > .envrc; rm -f .envrc; done",
		"from four processes":        "for i in 1 2 3 4; do (while :; do echo x > .envrc; rm -f .envrc; done) & done; wait",
		"moved in and out":           "echo x > y; while :; do mv y .envrc 2>/dev/null; mv .envrc y 2>/dev/null; echo x > y; done",
		"back from where it lies":    "echo x > .envrc; while :; do mv .clai-sandbox-aside-* .envrc 2>/dev/null; done",
		"in directories without end": "i=0; while :; do i=$((i+1)); mkdir -p $i; : > $i/.envrc; done",
		"in one that moves":          "mkdir a; while :; do : > a/.envrc; mv a b; : > b/.envrc; mv b a; done",
		"a repository's settings":    "git init -q r; while :; do printf '[core]\\nfsmonitor = x\\n' >> r/.git/config; done",
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			r := h.run("/bin/sh", "-c", script)
			if r.Failure != nil || r.Outcome == Cancelled {
				t.Fatalf("%v %+v", r.Failure, r.Result)
			}
			if !slices.ContainsFunc(r.Notices, func(n Notice) bool { return strings.Contains(n.Text, "the command was ended") }) {
				t.Errorf("%v", r.Notices)
			}
			if list := planted(t, h.profile.Workspace); len(list) > 0 {
				t.Errorf("left: %q", list[:min(len(list), 5)])
			}
		})
	}
}

// A plan that is run next has its directories watched from before they were looked through.
func TestWhatComesBetweenTheLookAndTheRunIsSetAside(t *testing.T) {
	h := newHost(t)
	work := h.profile.Workspace
	other := h.mkdir(h.outside() + "/other")
	h.grant(other, profile.ReadWrite)
	h.mkdir(work + "/a/b")
	h.mkdir(work + "/moved/sub")
	for range 2 {
		plan := h.lookOut()
		h.write(work+"/a/b/.envrc", "evil")
		h.write(work+"/a/new/.vscode/tasks.json", "evil")
		h.write(other+"/.mcp.json", "evil")
		os.Rename(work+"/moved", work+"/a/moved")
		r := h.runPlan(plan, "/bin/sh", "-c", "echo x > a/moved/sub/.envrc; echo x > a/new/.envrc")
		if r.Failure != nil || r.ExitCode != 0 {
			t.Fatalf("%v %s", r.Failure, r.Err)
		}
		if list := append(planted(t, work), planted(t, other)...); len(list) > 0 {
			t.Errorf("left: %q", list)
		}
		if r := h.runPlan(plan, "/bin/sh", "-c", "echo x > a/b/.envrc"); r.Failure != nil || len(planted(t, work)) > 0 {
			t.Errorf("run again: %v %q", r.Failure, planted(t, work))
		}
	}
}

func TestADirectoryMovedInFromAnotherWritableOneIsLookedThrough(t *testing.T) {
	h := newHost(t)
	other := h.mkdir(h.outside() + "/other")
	h.grant(other, profile.ReadWrite)
	h.sh("mkdir -p " + other + "/x/y; echo x > " + other + "/x/y/file; cp -r " + other + "/x here; mkdir -p " + other + "/node_modules/p; echo x > " + other +
		"/node_modules/p/.envrc; mv " + other + "/node_modules/p p; ls p >/dev/null")
	if list := planted(t, h.profile.Workspace); len(list) > 0 {
		t.Errorf("left: %q", list)
	}
}

func TestTwoSandboxesInOneWorkspaceDoNotDisturbEachOther(t *testing.T) {
	h := newHost(t)
	var all sync.WaitGroup
	for i := range 6 {
		plan := h.build()
		all.Go(func() {
			for range 4 {
				r := h.runPlan(plan, "/bin/sh", "-c", fmt.Sprintf("mkdir -p %[1]d; echo x > %[1]d/.envrc; mkdir -p .claude; echo x > .claude/%[1]d; echo x > file%[1]d", i))
				if r.Failure != nil || r.ExitCode != 0 && !strings.Contains(r.Err, ".claude") {
					t.Errorf("%v %+v %s", r.Failure, r.Result, r.Err)
				}
			}
		})
	}
	all.Wait()
	if list := planted(t, h.profile.Workspace); len(list) > 0 {
		t.Errorf("left: %q\n%s", list, contentOf(t, h.profile.Workspace))
	}
}

// The record is written while bwrap starts; the command waits for it.
func TestWithoutARecordNothingIsRun(t *testing.T) {
	h := newHost(t)
	h.write(h.launcher.State+"/runs", "in the place of a directory")
	r := h.run("/bin/sh", "-c", "echo ran > ran")
	var setup *SetupError
	if !errors.As(r.Failure, &setup) || !strings.Contains(setup.Why, "record what this run may write") {
		t.Errorf("%v", r.Failure)
	}
	if _, err := os.Lstat(h.profile.Workspace + "/ran"); err == nil {
		t.Error("the command has run")
	}
}

// The launcher is killed, and then the command made things under protected names that nobody saw.
func TestWhatAKilledLauncherLeftIsSetAsideByTheNextRun(t *testing.T) {
	h := gitHost(t)
	work := h.profile.Workspace
	id := h.git(work, "rev-parse", "HEAD")
	h.write(work+"/.npmrc", "mine")
	h.write(work+"/half/.git/description", "")
	h.write(work+"/ours/.git/config", "[alias]\n\tx = !mine\n")
	h.symlink("../gd", h.mkdir(work+"/linked")+"/.git")
	h.symlink("../../scripts/missing/pc", work+"/.git/hooks/pre-commit")
	h.symlink("../envs/dev", h.mkdir(work+"/links")+"/.envrc")
	h.symlink("../envs/dev", work+"/links/.mcp.json")
	h.mkdir(work + "/scripts")
	os.Symlink("/etc", work+"/.git/mine")
	cmd := h.launch("/bin/sh", "-c", "echo x > .mcp.json; echo ready; sleep 1000")
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
	waitUntil(t, "it is set aside", func() bool { _, err := os.Lstat(work + "/.mcp.json"); return err != nil })
	excluded := func() bool {
		text, err := os.ReadFile(work + "/.git/info/exclude")
		return err == nil && strings.Contains(string(text), "aside")
	}
	waitUntil(t, "git does not add it by its other name", excluded)
	if !protect.Runs(h.launcher.State, work+"/x") {
		t.Error("no record says that it runs")
	}
	cmd.Process.Kill()
	cmd.Wait()
	// As the command could have in the last moment.
	h.write(work+"/.envrc", "evil")
	h.write(work+"/sub/.git/config", "[core]\n\tfsmonitor = x\n")
	h.write(work+"/sub/.git/HEAD", "ref: refs/heads/main\n")
	h.mkdir(work + "/sub/.git/objects")
	h.mkdir(work + "/sub/.git/refs")
	h.write(work+"/.git/commondir", "../sub")
	h.write(work+"/half/.git/config", "[core]\n\tfsmonitor = x\n")
	h.write(work+"/half/.git/hooks/post-checkout", "x")
	h.write(work+"/ours/.git/hooks/post-checkout", "x")
	h.symlink("../sub", h.mkdir(work+"/new")+"/.git")
	h.symlink("../sub", work+"/scripts/missing")
	h.symlink("../sub", work+"/ordinary")
	os.Symlink(h.launcher.State, work+"/inward")
	os.Symlink("../../x", work+"/.git/FETCH_HEAD")
	h.write(work+"/.git/MERGE_AUTOSTASH", "evil")
	h.write(work+"/.git/main", id)
	h.write(work+"/.git/refs/heads/1a2b3c4", id)
	h.write(work+"/.git/refs/heads/cafe", id)
	h.write(work+"/links/.git", "gitdir: "+h.profile.Home)
	h.write(work+"/links/sub/.git", "gitdir: ../../sub")
	os.Remove(work + "/links/.envrc")
	h.write(work+"/links/.envrc", "evil")
	h.write(work+"/.git/worktrees/x/index", "DIRC\x00\x00\x00\x02\x00\x00\x00\x01 and no entry")
	notices := Sweep(h.launcher.State)
	if excluded() {
		t.Error("git still does not add what is called so")
	}
	for _, name := range []string{".envrc", ".mcp.json", ".git/commondir", ".git/FETCH_HEAD", ".git/MERGE_AUTOSTASH", ".git/main", ".git/refs/heads/1a2b3c4", ".git/worktrees/x/index", "sub/.git", "half/.git/config", "half/.git/hooks", "ours/.git/hooks", "new/.git", "scripts/missing", "links/.envrc", "links/.git"} {
		if !slices.ContainsFunc(notices, func(n Notice) bool { return n.Path == filepath.Join(work, name) }) {
			t.Errorf("%s is not told: %v", name, notices)
		}
	}
	mine := work + "/.git/hooks/pre-commit"
	if list := planted(t, work); !slices.Equal(list, []string{mine, work + "/links/.mcp.json"}) {
		t.Errorf("left: %q", list)
	}
	for name, want := range map[string]string{".npmrc": "mine", "ours/.git/config": "alias"} {
		if text, _ := os.ReadFile(work + "/" + name); !strings.Contains(string(text), want) {
			t.Errorf("%s, which was there before, is gone", name)
		}
	}
	for _, name := range []string{"linked/.git", "links/sub/.git", "ordinary", ".git/hooks/pre-commit", ".git/refs/heads/cafe"} {
		if _, err := os.Lstat(work + "/" + name); err != nil {
			t.Error(err)
		}
	}
	if got := strays(work + "/.git"); len(got) != 2 {
		t.Errorf("links in .git: %q", got)
	}
	if exists(work + "/inward") {
		t.Error("a link into this program's directory is left")
	}
	if again := Sweep(h.launcher.State); len(again) > 0 {
		t.Errorf("%v", again)
	}
}

func TestOrdinaryJobsGetDoneAndLeaveNothing(t *testing.T) { newHost(t).ordinaryJobs() }

func (h *host) ordinaryJobs() {
	t := h.t.(*testing.T)
	h.repository(h.profile.Home + "/remote")
	h.write(h.profile.Home+"/remote/.vscode/extensions.json", "{}")
	h.write(h.profile.Home+"/remote/.vscode/settings.json", "{}")
	h.git(h.profile.Home+"/remote", "add", ".")
	h.git(h.profile.Home+"/remote", "commit", "-q", "-m", "settings")
	for _, variable := range h.gitEnvironment()[2:] {
		name, value, _ := strings.Cut(variable, "=")
		h.profile.Environment = append(h.profile.Environment, profile.Variable{Name: name, Value: value})
	}
	if h.profile.ProtectMode == profile.ProtectWatch { // else nothing says that it runs
		r := h.whileRunning(func() {
			if left := lines(listing(t, h.profile.Workspace)); len(left) != 2 { // itself, and what says that it runs
				t.Errorf("on the host: %q", left)
			}
		})
		if r.Failure != nil || len(r.Notices) > 0 {
			t.Errorf("%v %v", r.Failure, r.Notices)
		}
	}
	for _, script := range []string{
		"git -c protocol.file.allow=always clone -q file://" + h.profile.Home + "/remote . && test -e file && git log --oneline | grep -q settings",
		"tar cf /tmp/all.tar . && tar tf /tmp/all.tar >/dev/null",
		"git clean -fdq && mkdir x && touch x/y && git clean -fdq && test ! -e x",
		"mkdir -p app/.vscode && echo {} > app/.vscode/extensions.json && echo {} > app/package.json",
		"mkdir -p a/b && touch a/b/c && mv a d && cp -r d e && rm -rf d e",
		"find . -delete 2>/dev/null; test -z \"$(find . -type f | grep -v '^./.git')\"",
		"git init -q made && for i in 1 2 3 4 5 6; do git -C made config alias.a$i log && sleep 0.02; done",
		"for i in 1 2 3 4 5; do rm -rf again; git init -q again && git -C again config commit.gpgsign false && sleep 0.02; done; git -C again config commit.gpgsign",
	} {
		h.sh(script)
	}
	if left := lines(listing(t, h.profile.Workspace)); strings.Contains(fmt.Sprint(left), "aside") {
		t.Errorf("left: %q", left)
	}
}

// TestHowLongAProtectedNameStands measures, and is no protection: docs/security.md has the figures.
func TestHowLongAProtectedNameStands(t *testing.T) {
	if os.Getenv("CLAI_SANDBOX_MEASURE") == "" {
		t.Skip("a measurement: CLAI_SANDBOX_MEASURE=1 makes it")
	}
	for name, load := range map[string]string{"idle": "", "four busy processes": "for i in 1 2 3 4; do (while :; do :; done) & done; "} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			const rounds = 900
			for i := range rounds {
				h.mkdir(fmt.Sprintf("%s/%d", h.profile.Workspace, i))
			}
			result := make(chan ran, 1)
			go func() {
				result <- h.run("/bin/sh", "-c", load+"touch ready; until test -e done; do sleep 0.05; done; kill 0")
			}()
			waitUntil(t, "the command runs", func() bool { _, err := os.Stat(h.profile.Workspace + "/ready"); return err == nil })
			// In a process of its own, as another program on the host would be.
			out, err := helperCommand(t, "plant", h.profile.Workspace, fmt.Sprint(rounds)).Output()
			if err != nil {
				t.Fatal(err)
			}
			var times []time.Duration
			for line := range strings.Lines(string(out)) {
				took, err := time.ParseDuration(strings.TrimSpace(line))
				if err != nil {
					t.Fatal(err)
				}
				times = append(times, took)
			}
			h.write(h.profile.Workspace+"/done", "")
			<-result
			slices.Sort(times)
			t.Logf("%s: median %v, 99 of 100 within %v, the longest %v", name, times[rounds/2], times[rounds*99/100], times[rounds-1])
		})
	}
}

func init() { helpers["plant"] = plant }

// plant makes protected names, one in a directory, and tells how long each stands.
func plant() {
	rounds, _ := strconv.Atoi(os.Args[2])
	for i := range rounds {
		path := fmt.Sprintf("%s/%d/.envrc", os.Args[1], i)
		file, err := os.Create(path)
		exitOn(err)
		began := time.Now()
		var stat unix.Stat_t
		for unix.Lstat(path, &stat) == nil {
		}
		fmt.Println(time.Since(began))
		file.Close()
		time.Sleep(time.Millisecond)
	}
}

// worktreeOf makes a worktree of the repository gd, which needs no HEAD for that.
const worktreeOf = "echo ref: refs/heads/main > gd/worktrees/w/HEAD; echo ../.. > gd/worktrees/w/commondir; echo gitdir: $PWD/gd/worktrees/w > $d/.git"

// One command makes half of a repository, and the next one the other half: neither half is a
// repository that was there.
func TestARepositoryThatIsMadeInHalvesIsDisarmed(t *testing.T) {
	for name, halves := range map[string][2]string{
		"bare, HEAD last":         {"mkdir -p $d/objects $d/refs; echo \"$c\" > $d/config", "echo ref: refs/heads/main > $d/HEAD"},
		"bare, refs last":         {"mkdir -p $d/objects; echo ref: refs/heads/main > $d/HEAD; echo \"$c\" > $d/config", "mkdir $d/refs"},
		"bare, moved in last":     {"mkdir -p $d/objects $d/refs; echo \"$c\" > $d/config; echo ref: refs/heads/main > $d/x", "mv $d/x $d/HEAD"},
		".git, HEAD last":         {"mkdir -p $d/.git/objects $d/.git/refs; echo \"$c\" > $d/.git/config", "echo ref: refs/heads/main > $d/.git/HEAD"},
		".git, commondir last":    {"mkdir -p $d/.git gd/objects gd/refs; echo ref: refs/heads/main > $d/.git/HEAD; echo \"$c\" > gd/config; echo \"$c\" > $d/.git/config", "echo ref: refs/heads/main > gd/HEAD; echo ../../gd > $d/.git/commondir"},
		"hooks of a half":         {"mkdir -p $d/.git/objects $d/.git/refs $d/.git/hooks; printf '#!/bin/sh\ntouch %s' $PWD/executed > $d/.git/hooks/post-checkout; chmod 755 $d/.git/hooks/post-checkout", "echo ref: refs/heads/main > $d/.git/HEAD"},
		"in what managers fill":   {"d=node_modules/x; mkdir -p $d/.git/objects $d/.git/refs; echo \"$c\" > $d/.git/config", "echo ref: refs/heads/main > node_modules/x/.git/HEAD"},
		"a half, then not at all": {"mkdir -p $d/objects $d/refs; echo \"$c\" > $d/config", "true"},
		"what worktrees share":    {"mkdir -p gd/objects gd/refs gd/worktrees/w $d; echo \"$c\" > gd/config", worktreeOf},
		"the same, settings last": {"mkdir -p gd/objects gd/refs gd/worktrees/w $d; " + worktreeOf, "echo \"$c\" > gd/config; sleep 0.02; echo \"$c\" >> gd/config"},
		"the same, its hooks":     {"mkdir -p gd/objects gd/refs gd/hooks gd/worktrees/w $d; " + worktreeOf, "printf '#!/bin/sh\ntouch %s' $PWD/executed > gd/hooks/post-checkout; chmod 755 gd/hooks/post-checkout"},
		"the person's git init":   {"mkdir -p $d/.git/hooks; echo \"$c\" > $d/.git/config; printf '#!/bin/sh\ntouch %s' $PWD/executed > $d/.git/hooks/post-checkout; chmod 755 $d/.git/hooks/post-checkout", "true"},
		"settings alone":          {"mkdir -p $d/.git; echo \"$c\" > $d/.git/config", "true"},
		"settings, in pieces":     {"mkdir -p $d/.git; : > $d/.git/config; sleep 0.05; echo \"$c\" >> $d/.git/config", "true"},
		"settings moved in":       {"mkdir -p $d/git; echo \"$c\" > $d/git/config; mv $d/git $d/.git", "true"},
		"hooks alone":             {"mkdir -p $d/.git/hooks; printf '#!/bin/sh\ntouch %s' $PWD/executed > $d/.git/hooks/post-checkout; chmod 755 $d/.git/hooks/post-checkout", "true"},
		"commondir alone":         {"mkdir -p $d/.git gd/objects gd/refs; echo \"$c\" > gd/config; echo ../../gd > $d/.git/commondir", "true"},
		"HEAD and refs, bare":     {"mkdir -p $d/refs; echo ref: refs/heads/main > $d/HEAD; echo \"$c\" > $d/config", "true"},
		"the same, by a link":     {"mkdir -p $d/x/hooks; echo \"$c\" > $d/x/config; printf '#!/bin/sh\ntouch %s' $PWD/executed > $d/x/hooks/post-checkout; chmod 755 $d/x/hooks/post-checkout", "ln -s x $d/.git"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			work := h.profile.Workspace
			h.write(work+"/evil", "#!/bin/sh\ntouch "+work+"/executed\n")
			os.Chmod(work+"/evil", 0o755)
			before := "d=sub; c='[core]\n\trepositoryformatversion = 0\n\tfsmonitor = " + work + "/evil\n\tbare = false\n\tworktree = ..\n'; c=$(printf \"$c\"); "
			for _, half := range halves {
				h.run("/bin/sh", "-c", before+half+"; true")
			}
			for _, dir := range []string{work + "/sub", work + "/node_modules/x", work + "/gd"} {
				if _, err := os.Stat(dir); err == nil {
					for _, command := range []string{"git status", "git checkout -q -b x", "git log", "git init -q; git status", "git init -q --bare; git status",
						"echo x > file; git add file; git commit -q -m x; git checkout -q -b y"} { // what a command made half of, a person may make whole
						cmd := exec.Command("sh", "-c", command)
						cmd.Dir, cmd.Env = dir, h.gitEnvironment()
						cmd.Run()
					}
				}
			}
			if _, err := os.Lstat(work + "/executed"); err == nil {
				t.Error("the host's git executed it")
			}
		})
	}
}

// A person's "git init --bare x.git" keeps the hooks and settings that are there already.
func TestABareRepositoryThatAPersonCompletesIsDisarmed(t *testing.T) {
	for name, halves := range map[string][]string{
		"at once":           {"mkdir -p $d/hooks; echo \"$c\" > $d/config; cp evil $d/hooks/post-update"},
		"one after another": {"mkdir -p $d; echo \"$c\" > $d/config", "mkdir -p $d/hooks; cp evil $d/hooks/post-update"},
		"in an empty one":   {"mkdir -p $d", "mkdir -p $d/hooks; echo \"$c\" > $d/config; cp evil $d/hooks/post-update"},
		"renamed":           {"mkdir -p x/hooks; echo \"$c\" > x/config; cp evil x/hooks/post-update; mv x $d"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			work := h.profile.Workspace
			h.write(work+"/evil", "#!/bin/sh\ntouch "+work+"/executed\n")
			os.Chmod(work+"/evil", 0o755)
			for _, half := range halves {
				h.run("/bin/sh", "-c", "d=sub/x.git; mkdir -p sub; c='[gc]\n\tauto = 0'; "+half)
			}
			cmd := exec.Command("sh", "-c", "git init -q --bare sub/x.git && git init -q r && cd r && git commit -q --allow-empty -m x && git push -q ../sub/x.git HEAD")
			cmd.Dir, cmd.Env = work, h.gitEnvironment()
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if _, err := os.Lstat(work + "/executed"); err == nil {
				t.Error("the host's git executed it")
			}
		})
	}
}

// What a command writes in its caches is on the host, in this program's own directory, where nobody
// looks: no link may lead a person there.
func TestALinkIntoOurOwnDirectoryIsSetAside(t *testing.T) {
	for name, c := range map[string]struct{ inside, link string }{
		"there":                       {"ln -s $S/layers/p p", "p"},
		"by a relative path":          {"ln -s ../../../../../../../../../../../..$S/layers/p p", "p"},
		"through another":             {"ln -s $S s; ln -s s/layers/p p", "p"},
		"through another, made later": {"ln -s s/layers/p p; sleep 0.05; ln -s $S s", "s"},
		"to a directory above":        {"ln -s $(dirname $S) s", "s"},
		"renamed":                     {"ln -s x y; ln -s $S/layers/p q; mv q p || true", "p"},
		"another in its place":        {"ln -s /etc p; sleep 0.05; rm p; ln -s $S/layers/p p", "p"},
		"in a new directory":          {"mkdir -p a/b/c; ln -s $S/layers/p a/b/c/p; mv a n", "n/b/c/p"},
		"where packages are":          {"mkdir -p node_modules/x; ln -s $S/layers/p node_modules/x/p", "node_modules/x/p"},
		"among many":                  {"mkdir m; cd m; for i in $(seq 500); do ln -s ../x $i; done; ln -s $S/layers/p p", "m/p"},
		"not readable":                {"mkdir d; ln -s $S/layers/p d/p; chmod 0300 d", "d/p"},
		"into another process":        {"ln -s /proc/1/root/tmp p", "p"},
		"the same, by two":            {"ln -s /proc q", "q"},
	} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s strict=%v", name, strict), func(t *testing.T) {
				needMounts(t)
				t.Parallel()
				h := newHost(t)
				if strict {
					h.strict()
				}
				work := h.profile.Workspace
				h.profile.Written = h.launcher.State + "/" + profile.WrittenName
				h.mkdir(h.launcher.State + "/layers/p")
				os.Symlink(h.launcher.State, work+"/mine")
				waitUntil(t, "the clock has moved on", func() bool {
					var stat unix.Stat_t
					return unix.Lstat(work+"/mine", &stat) == nil && time.Since(time.Unix(stat.Ctim.Unix())) > 50*time.Millisecond
				})
				r := h.run("/bin/sh", "-ec", "S="+h.launcher.State+"; ln -s /etc etc; ln -s nowhere dangling; ln -s . here; "+c.inside)
				if r.Failure != nil || r.ExitCode != 0 {
					t.Fatalf("%v %d %s", r.Failure, r.ExitCode, r.Err)
				}
				if _, err := os.Stat(work + "/" + c.link); err == nil { // one that leads nowhere does no harm
					t.Errorf("it is left: %v", r.Notices)
				}
				for _, name := range []string{"mine", "etc", "dangling", "here"} {
					if !exists(work + "/" + name) {
						t.Errorf("%s is gone: %v", name, r.Notices)
					}
				}
			})
		}
	}
}

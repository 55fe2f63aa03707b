package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/cow"
)

// strict has what commands write kept until they have ended.
func (h *host) strict() *host {
	needMounts(h.t.(*testing.T))
	h.profile.ProtectMode = profile.ProtectStrict
	h.profile.Layers = filepath.Join(h.profile.Home, ".local/state/clai-sandbox/layers/main")
	h.launcher.State = filepath.Join(h.profile.Home, ".local/state/clai-sandbox")
	return h
}

func TestStrictBringsWhatIsWrittenWhenTheCommandHasEnded(t *testing.T) {
	h := newHost(t).strict()
	work := h.profile.Workspace
	for _, name := range []string{"changed", "removed", "dir/inner", "dir2/a", ".envrc"} {
		h.write(work+"/"+name, "as it was\n")
	}
	before := contentOf(t, work)
	result := make(chan ran, 1)
	go func() {
		result <- h.run("/bin/sh", "-c", `echo new > new; echo more >> changed; rm removed; rm -r dir; mkdir dir; echo x > dir/other; chmod 700 dir2
			echo evil > .mcp.json; mkdir .vscode; echo evil > .vscode/tasks.json; mkdir .claude; ! echo evil > .envrc; mkfifo pipe; ln -s /etc link; touch `+h.profile.Home+`/ready 2>/dev/null
			cat new .mcp.json; sleep 0.3`)
	}()
	time.Sleep(200 * time.Millisecond)
	if now := contentOf(t, work); now != before {
		t.Errorf("while it runs the host has\n%s", now)
	}
	r := <-result
	if r.Failure != nil || r.ExitCode != 0 || r.Out != "new\nevil\n" {
		t.Fatalf("%v %d %q %q", r.Failure, r.ExitCode, r.Out, r.Err)
	}
	want := "  d 755 \nchanged f 644 \ndir d 755 \ndir/other f 644 \ndir2 d 700 \ndir2/a f 644 \n.envrc f 644 \nlink l 777 /etc\nnew f 644 \n"
	if got := contentOf(t, work); !strings.HasPrefix(sorted(got[:strings.Index(got, "as it was")]), sorted(want)) || strings.Contains(got, "evil") {
		t.Errorf("%s", got)
	}
	for _, name := range []string{".mcp.json", ".vscode"} {
		if !slices.ContainsFunc(r.Notices, func(n Notice) bool { return n.Path == work+"/"+name && strings.Contains(n.Text, "quarantine restore") }) {
			t.Errorf("%s is not told: %v", name, r.Notices)
		}
	}
	if len(r.Notices) != 2 {
		t.Errorf("%v", r.Notices)
	}
	// The next run begins with an empty layer, and sees what the host has.
	if out := h.sh("cat new; ls .mcp.json 2>&1 | grep -c 'No such'; ls " + h.launcher.State + " 2>&1 | grep -c layers; true"); out != "new\n1\n0\n" {
		t.Errorf("%q", out)
	}
}

func sorted(text string) string {
	list := lines(text)
	slices.Sort(list)
	return strings.Join(list, "\n")
}

// Whatever a program on the host looks at while a command plants without end, it sees none of it.
func TestStrictLeavesNoWindow(t *testing.T) {
	h := newHost(t).strict()
	work := h.profile.Workspace
	var seen, looks atomic.Int64
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		var stat unix.Stat_t
		for {
			for _, name := range []string{"/.envrc", "/.vscode/tasks.json", "/r/.git/hooks/pre-commit", "/r/.git/config"} {
				looks.Add(1)
				is := unix.Lstat(work+name, &stat) == nil
				if is && strings.HasSuffix(name, "config") { // that comes, without what executes
					text, _ := os.ReadFile(work + name)
					is = strings.Contains(string(text), "fsmonitor")
				}
				if is {
					seen.Add(1)
				}
			}
			select {
			case <-done:
				return
			default:
			}
		}
	}()
	r := h.run("/bin/sh", "-c", `end=$(($(date +%s) + 1)); while [ $(date +%s) -lt $end ]; do
		echo x > .envrc; rm .envrc; mkdir -p .vscode; echo x > .vscode/tasks.json; rm -rf .vscode
		git init -q r; echo x > r/.git/hooks/pre-commit; git -C r config core.fsmonitor evil; rm -rf r; done
		echo x > .envrc; mkdir .vscode; echo x > .vscode/tasks.json; git init -q r; echo x > r/.git/hooks/pre-commit; git -C r config core.fsmonitor evil; git -C r config user.name me`)
	time.Sleep(50 * time.Millisecond)
	close(done)
	<-ended
	if r.Failure != nil || r.Outcome != Exited || r.ExitCode != 0 {
		t.Fatalf("%v %+v %s", r.Failure, r.Result, r.Err)
	}
	if seen.Load() > 0 || looks.Load() < 100 {
		t.Errorf("seen %d times of %d", seen.Load(), looks.Load())
	}
	if list := planted(t, work); len(list) > 0 {
		t.Errorf("left: %q", list)
	}
	if out := h.git(work+"/r", "config", "user.name"); strings.TrimSpace(out) != "me" {
		t.Errorf("the repository that it made is not there: %q", out)
	}
	for _, what := range []string{".envrc", ".vscode", "pre-commit", "core.fsmonitor", "core.fsmonitor = evil; who wants it: clai-sandbox quarantine restore "} {
		if !slices.ContainsFunc(r.Notices, func(n Notice) bool { return strings.Contains(n.Text, what) }) {
			t.Errorf("%s is not told: %v", what, r.Notices)
		}
	}
}

func TestStrictHoldsAgainstWhatACommandShapes(t *testing.T) {
	for name, c := range plantings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t).strict()
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

func TestStrictKeepsRepositoriesAsTheyAre(t *testing.T) {
	h := gitHost(t).strict()
	work := h.profile.Workspace
	h.write(work+"/.git/hooks/post-commit", "mine")
	h.git(work, "config", "core.fsmonitor", "mine")
	r := h.run("/bin/sh", "-c", `echo x > made && git -c core.fsmonitor= add made && git -c core.fsmonitor= commit -q -m made && git config core.fsmonitor evil && git config branch.x.remote y && git config user.name 'New Name'
		! echo evil > .git/hooks/post-commit; ! rm -rf .git/hooks; echo ../evil > .git/commondir; mkdir .git/x; echo evil > .git/config.worktree; rm -f .git/commondir; git -c core.fsmonitor= branch topic; echo ../evil > .git/commondir`)
	if r.Failure != nil {
		t.Fatal(r.Failure)
	}
	if out := h.git(work, "-c", "core.fsmonitor=", "log", "--oneline", "topic"); !strings.Contains(out, "made") {
		t.Errorf("%s\n%v\n%s", out, r.Notices, r.Err)
	}
	if out := h.git(work, "-c", "core.fsmonitor=", "status", "--porcelain"); strings.TrimSpace(out) != "" {
		t.Errorf("%q", out)
	}
	for key, want := range map[string]string{"core.fsmonitor": "mine", "user.name": "New Name", "branch.x.remote": "y"} {
		if got := strings.TrimSpace(h.git(work, "config", key)); got != want {
			t.Errorf("%s is %q", key, got)
		}
	}
	if text, _ := os.ReadFile(work + "/.git/hooks/post-commit"); string(text) != "mine" {
		t.Errorf("%q", text)
	}
	for _, name := range []string{"commondir", "config.worktree"} {
		if _, err := os.Lstat(work + "/.git/" + name); err == nil {
			t.Errorf("%s is there", name)
		}
	}
}

// What the host changes meanwhile stays, and what the command made of it can be had.
func TestStrictOverwritesNothingOfAPersons(t *testing.T) {
	h := newHost(t).strict()
	work := h.profile.Workspace
	h.write(work+"/file", "before")
	go func() {
		waitUntil(t, "the command runs", func() bool {
			return len(h.layered("*-run", "upper/file")) > 0
		})
		h.write(work+"/file", "the person's")
	}()
	r := h.run("/bin/sh", "-c", "echo command > file; echo other > other; until grep -q person "+h.profile.Home+"/seen 2>/dev/null || [ $((n = n + 1)) -gt 20 ]; do sleep 0.02; done")
	if text, _ := os.ReadFile(work + "/file"); string(text) != "the person's" || r.Failure != nil {
		t.Errorf("%q %v", text, r.Failure)
	}
	if text, _ := os.ReadFile(work + "/other"); string(text) != "other\n" {
		t.Errorf("%q", text)
	}
	if !slices.ContainsFunc(r.Notices, func(n Notice) bool {
		return n.Path == work+"/file" && strings.Contains(n.Text, "changed on the host meanwhile")
	}) ||
		!slices.ContainsFunc(r.Notices, func(n Notice) bool { return strings.Contains(n.Text, "clai-sandbox changes show main/") }) {
		t.Errorf("%v", r.Notices)
	}
	if told := Sweep(h.launcher.State); len(told) != 1 || told[0].Path != work {
		t.Errorf("the next run is told %v", told)
	}
	if out := h.sh("cat file"); out != "the person's" {
		t.Errorf("%q", out)
	}
}

func TestStrictLosesNothingWhenTheLauncherIsKilled(t *testing.T) {
	h := newHost(t).strict()
	work := h.profile.Workspace
	cmd := h.launch("/bin/sh", "-c", "echo x > file; echo evil > .envrc; echo ready; sleep 1000")
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
	waitUntil(t, "the layer is free", func() bool { return len(Sweep(h.launcher.State)) > 0 })
	if left := listing(t, work); len(lines(left)) != 1 {
		t.Errorf("on the host: %q", left)
	}
	told := Sweep(h.launcher.State)
	if len(told) != 1 || told[0].Path != work || !strings.Contains(told[0].Text, "clai-sandbox changes show main/work-") {
		t.Fatalf("%v", told)
	}
	if out := h.sh("ls -A; echo y > other"); out != "" {
		t.Errorf("the next one sees %q", out)
	}
	if len(h.layered("*-run", "upper/file")) != 1 {
		t.Error("what it wrote is lost")
	}
	if _, err := os.Stat(work + "/other"); err != nil {
		t.Error(err)
	}
}

func TestOrdinaryJobsGetDoneStrictly(t *testing.T) {
	h := newHost(t).strict()
	h.ordinaryJobs()
}

// Each run has a layer of its own, also when several make the first one at a time.
func TestStrictRunsDoNotDisturbEachOther(t *testing.T) {
	h := newHost(t).strict()
	plan := h.build()
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			if r := h.runPlan(plan, "/bin/sh", "-c", fmt.Sprintf("echo x > file%d; echo x > .envrc", i)); r.Failure != nil || r.ExitCode != 0 || len(r.Notices) != 1 {
				t.Errorf("%v %+v %s", r.Failure, r.Result, r.Err)
			}
		})
	}
	all.Wait()
	if got := len(lines(listing(t, h.profile.Workspace))); got != 7 || len(planted(t, h.profile.Workspace)) > 0 {
		t.Errorf("%s", listing(t, h.profile.Workspace))
	}
}

// Who asked for it by name does not get less in silence.
func TestStrictIsRefusedWhereItCannotBe(t *testing.T) {
	for name, spoil := range map[string]func(*host){
		"bubblewrap makes all mounts": func(h *host) { h.launcher.byBwrap = true },
		"the layers are a file": func(h *host) {
			h.mkdir(filepath.Dir(filepath.Dir(h.profile.Layers)))
			h.write(filepath.Dir(h.profile.Layers), "")
		},
		"no layer is free": func(h *host) {
			plan := h.build()
			for n := range maxStrictLayers {
				dir := plan.at(h.profile.Workspace).Layer
				if n > 0 {
					dir = fmt.Sprintf("%s-%d", dir, n+1)
				}
				layer, err := cow.Open(dir, cow.About{Path: h.profile.Workspace}, 0o755)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(layer.Close)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t).strict()
			spoil(h)
			r := h.run("/bin/sh", "-c", "echo x > "+h.profile.Workspace+"/ran")
			var setup *SetupError
			if !errors.As(r.Failure, &setup) || setup.Path != h.profile.Workspace || setup.Hint == "" {
				t.Errorf("%v", r.Failure)
			}
			if left := lines(listing(t, h.profile.Workspace)); len(left) != 1 {
				t.Errorf("it ran: %q", left)
			}
		})
	}
}

func TestStrictHoldsWhatIsGrantedLive(t *testing.T) {
	h := newHost(t).strict()
	dir := h.mkdir(h.outside() + "/data")
	s := h.liveShell()
	h.grant(dir, profile.ReadWrite)
	s.show()
	s.expect("echo evil > "+dir+"/.envrc; echo x > "+dir+"/file; cat "+dir+"/.envrc", "evil")
	if left := lines(listing(t, dir)); len(left) != 1 {
		t.Errorf("on the host: %q", left)
	}
	s.in.Close()
	ended := <-s.ended
	s.ended <- ended
	if left := listing(t, dir); !strings.Contains(left, "file") || strings.Contains(left, "envrc") {
		t.Errorf("on the host: %q", left)
	}
}

// What one command brought is nobody's change to the next, however soon it comes.
func TestStrictRunsOneAfterTheOther(t *testing.T) {
	h := newHost(t).strict()
	plan := h.build()
	h.write(h.profile.Workspace+"/file", "")
	time.Sleep(10 * time.Millisecond)
	for i := range 8 {
		if r := h.runPlan(plan, "/bin/sh", "-c", "echo x >> file"); r.Failure != nil || len(r.Notices) > 0 {
			t.Fatalf("%d: %v %v", i, r.Failure, r.Notices)
		}
	}
	if text, _ := os.ReadFile(h.profile.Workspace + "/file"); string(text) != strings.Repeat("x\n", 8) {
		t.Errorf("%q", text)
	}
}

// The host has half of a repository with settings, from whoever; a command adds the rest, or
// removes and makes anew what was there.
func TestStrictDisarmsWhatTheHostHasHalfOf(t *testing.T) {
	for name, script := range map[string]string{
		"the rest is added":  "mkdir r/objects r/refs; echo ref: refs/heads/main > r/HEAD",
		"made anew":          "rm -rf r; mkdir r; cp /tmp/none r 2>/dev/null; printf '[core]\n\tbare = true\n\tfsmonitor = evil\n' > r/config; mkdir r/objects r/refs; echo ref: refs/heads/main > r/HEAD",
		"in a closed parent": "mkdir -p s/r/objects s/r/refs s/r/hooks; echo ref: refs/heads/main > s/r/HEAD; echo evil > s/r/hooks/pre-commit; printf '[core]\n\tfsmonitor = evil\n' > s/r/config; chmod 0 s/r/hooks; chmod 0 s/r",
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t).strict()
			if !strings.Contains(script, "s/r") {
				h.write(h.profile.Workspace+"/r/config", "[core]\n\tbare = true\n\tfsmonitor = evil\n")
			}
			if r := h.run("/bin/sh", "-c", script); r.Failure != nil || len(r.Notices) == 0 {
				t.Errorf("%v %v", r.Failure, r.Notices)
			}
			exec.Command("chmod", "-R", "u+rwX", h.profile.Workspace).Run()
			if list := planted(t, h.profile.Workspace); len(list) > 0 {
				t.Errorf("left: %q", list)
			}
		})
	}
}

// "git init" of the person's would complete what a link called .git leads to.
func TestStrictSetsLinksAsideThatGitFollows(t *testing.T) {
	h := newHost(t).strict()
	work := h.profile.Workspace
	out := h.sh(`mkdir -p foo/hooks && echo evil > foo/hooks/post-checkout && echo "[core] fsmonitor = evil" > foo/config && ln -s foo .git && ln -s foo other && mkdir sub && ln -s ../foo sub/.GIT`)
	if out != "" {
		t.Fatal(out)
	}
	if left := listing(t, work); strings.Contains(strings.ToLower(left), ".git") || !strings.Contains(left, "other") {
		t.Errorf("on the host: %q", left)
	}
}

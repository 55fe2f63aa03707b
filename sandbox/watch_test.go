package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// replaceFile is how git and editors write a file: another one is renamed over it.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".lock", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".lock", path); err != nil {
		t.Fatal(err)
	}
}

func repositoryIn(h *host) {
	work := h.profile.Workspace
	for _, dir := range []string{"objects", "refs/heads", "hooks"} {
		h.mkdir(work + "/.git/" + dir)
	}
	h.write(work+"/.git/HEAD", "ref: refs/heads/main\n")
	h.write(work+"/.git/config", "[core]\n")
	h.write(work+"/.git/gitdir", "\n")
	h.write(work+"/.envrc", "export A=1\n")
}

func TestWhatTheHostReplacesIsCoveredAgain(t *testing.T) {
	needMounts(t)
	for name, c := range map[string]struct {
		path    string // in the workspace
		replace func(t *testing.T, path string)
		attempt string // refused once it is covered
		aside   bool   // it is set aside: the command could have made it
	}{
		"a file, by git's way to write it": {".git/gitdir", func(t *testing.T, p string) { replaceFile(t, p, "x\n") }, "echo x >> .git/gitdir", false},
		"another file, and again": {".envrc", func(t *testing.T, p string) {
			for i := range 3 { // what comes before the watch has seen the last one counts as the command's
				replaceFile(t, p, fmt.Sprint(i))
				time.Sleep(300 * time.Millisecond)
			}
		}, "echo x >> .envrc", false},
		"a directory, taken away and made anew": {".git/hooks", func(t *testing.T, p string) {
			os.Rename(p, p+".old")
			os.Mkdir(p, 0o755)
			os.WriteFile(p+"/post-commit", nil, 0o755)
		}, "cat .git/hooks/post-commit", true},
		"one that was removed first": {".envrc", func(t *testing.T, p string) {
			os.Remove(p)
			os.WriteFile(p, []byte("new"), 0o644)
		}, "cat .envrc", true},
		"what it is in": {".git", func(t *testing.T, p string) {
			os.Rename(p, p+".old")
			os.MkdirAll(p+"/hooks", 0o755)
			for _, name := range []string{"HEAD", "objects", "refs", "hooks/post-commit"} {
				os.WriteFile(p+"/"+name, []byte("x"), 0o755)
			}
		}, "cat .git/hooks/post-commit", true},
		"exchanged with another": {".git/gitdir", func(t *testing.T, p string) {
			os.WriteFile(p+".other", nil, 0o644)
			renameExchange(t, p, p+".other")
		}, "cat .git/gitdir", true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			repositoryIn(h)
			s := h.liveShell()
			s.expect("echo begun", "begun")
			path := filepath.Join(h.profile.Workspace, c.path)
			c.replace(t, path)
			if c.aside {
				waitUntil(t, "it is set aside", func() bool { return strings.Contains(s.sh(c.attempt+" 2>&1"), "No such file") })
				return
			}
			waitUntil(t, "it is covered", func() bool {
				return s.sh("grep -q ' "+path+" ro' /proc/self/mountinfo && echo covered") == "covered" && strings.Contains(s.sh(c.attempt), "Read-only")
			})
			time.Sleep(20 * time.Millisecond) // it was read-only before, too
			s.expect(c.attempt, "…Read-only file system")
			s.in.Close()
			<-s.ended
			s.ended <- nil
			if !slices.ContainsFunc(s.told, func(n Notice) bool { return n.Path == path && strings.Contains(n.Text, "is covered") }) {
				t.Errorf("%v", s.told)
			}
		})
	}
}

// Without Live as well: what is hidden in a directory that may be written is hidden again. A
// process that is in a directory which the person moves out of the workspace can write there, where
// nothing is watched.
func TestACommandInADirectoryThatIsMovedAwayIsEnded(t *testing.T) {
	needMounts(t)
	for name, c := range map[string]struct {
		where string
		ended bool
	}{
		"in it":        {"cd a", true},
		"deeper":       {"cd a/b/c", true},
		"open":         {"exec 3<a/b", true},
		"a child's":    {"(cd a; sleep 10) & sleep 0.1", true},
		"in no such":   {"true", false},
		"no directory": {"exec 3>a/file", false},
		"a thread's": {`python3 -c 'import ctypes, os, threading, time
def sit(): ctypes.CDLL(None).unshare(0x200); os.chdir("a"); open("../sits", "w"); time.sleep(10)
threading.Thread(target=sit).start()' & until test -e sits; do sleep 0.01; done`, true},
		"in one removed": {"mkdir b; (cd b; exec sleep 10) & sleep 0.1; rmdir b; mkdir b; mkdir d; mv -T d b", false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			work := h.profile.Workspace
			h.mkdir(work + "/a/b/c")
			result := make(chan ran, 1)
			go func() {
				result <- h.run("/bin/sh", "-c", c.where+"; touch "+work+"/ready; for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.05; done; kill $!; true")
			}()
			waitUntil(t, "the command runs", func() bool { _, err := os.Stat(work + "/ready"); return err == nil })
			if err := os.Rename(work+"/a", h.profile.Home+"/moved"); err != nil {
				t.Fatal(err)
			}
			if r := <-result; (r.Outcome == Signalled) != c.ended || c.ended != strings.Contains(fmt.Sprint(r.Notices), "moved away on the host") {
				t.Errorf("%v %v", r.Outcome, r.Notices)
			}
		})
	}
}

// A mount in the workspace goes with what it stands on. What comes to be in its place is watched,
// and covered again if it is one to be.
func TestWhatTheHostRemovesIsWatchedWhenItIsMadeAgain(t *testing.T) {
	needMounts(t)
	plant := "echo x > $d/.envrc; mkdir -p $d/.vscode; echo x > $d/.vscode/tasks.json; evil $d/r/.git; sleep 0.05; "
	for name, c := range map[string]struct {
		path    string
		access  profile.Access
		remove  func(path string) error
		attempt string
		covered bool // read-only once more
	}{
		"read-only":                           {"build", profile.ReadOnly, os.RemoveAll, "mkdir -p $d; ", true},
		"moved away":                          {"build", profile.ReadOnly, func(p string) error { return os.Rename(p, p+".old") }, "mkdir -p $d; ", true},
		"with what it lies in":                {"a/b/build", profile.ReadOnly, func(p string) error { return os.RemoveAll(filepath.Dir(filepath.Dir(p))) }, "mkdir -p $d; sleep 0.3; ", true},
		"another is moved to what it lies in": {"a/b/build", profile.ReadOnly, func(p string) error { return os.RemoveAll(filepath.Dir(filepath.Dir(p))) }, "mkdir -p x/b/build; sleep 0.1; mv -T x a; sleep 0.3; ", true},
		"writable":                            {"build", profile.ReadWrite, os.RemoveAll, "mkdir -p $d; ", false},
		"writable, in one that is":            {"a/build", profile.ReadWrite, func(p string) error { return os.RemoveAll(filepath.Dir(p)) }, "mkdir -p $d; ", false},
		"another is moved there":              {"build", profile.ReadOnly, os.RemoveAll, "mkdir -p x; echo x > x/y; mv -T x $d; ", true},
		"writable, another, moved there":      {"build", profile.ReadWrite, os.RemoveAll, "mkdir -p x/.vscode; echo x > x/.vscode/tasks.json; mv -T x $d; ", false},
		"hidden":                              {"build", profile.NoAccess, os.RemoveAll, "mkdir -p $d; ", true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			work := h.profile.Workspace
			path := filepath.Dir(h.write(work+"/"+c.path+"/file", ""))
			if c.access == profile.NoAccess {
				h.profile.Hidden = append(h.profile.Hidden, profile.HiddenPath{Path: path})
			} else {
				h.grant(path, c.access)
			}
			out := h.mkdir(h.outside() + "/out")
			h.profile.Environment = append(h.profile.Environment, profile.Variable{Name: "OUT", Value: out})
			result := make(chan ran, 1)
			go func() {
				result <- h.run("/bin/sh", "-c", "exec 2>/dev/null; d="+c.path+"; touch ready; until test -e go; do sleep 0.01; done; "+evil+c.attempt+plant+"true")
			}()
			waitUntil(t, "the command runs", func() bool { _, err := os.Stat(work + "/ready"); return err == nil })
			if err := c.remove(path); err != nil {
				t.Fatal(err)
			}
			h.write(work+"/go", "")
			r := <-result
			if list := planted(t, work); r.Failure != nil || len(list) > 0 {
				t.Errorf("%v; left: %q %v", r.Failure, list, r.Notices)
			}
			if told := strings.Contains(fmt.Sprint(r.Notices), "what is there now is covered"); told != c.covered {
				t.Errorf("covered again: %v: %v", told, r.Notices)
			}
		})
	}
}

func TestWhatIsHiddenAndReplacedIsHiddenAgain(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	secret := h.write(h.profile.Workspace+"/keys/secret", "one")
	token := h.write(h.profile.Workspace+"/token", "one")
	h.profile.Hidden = append(h.profile.Hidden, profile.HiddenPath{Path: filepath.Dir(secret)}, profile.HiddenPath{Path: token})
	result := make(chan ran, 1)
	script := "touch ready; while ! test -e go; do sleep 0.01; done; for hidden in " + token + " " + filepath.Dir(secret) + "; do until grep -q \" $hidden ro\" /proc/self/mountinfo; do sleep 0.01; done; done; cat token keys/secret; true"
	go func() { result <- h.run("/bin/sh", "-c", script) }()
	waitUntil(t, "the command runs", func() bool { _, err := os.Stat(h.profile.Workspace + "/ready"); return err == nil })
	replaceFile(t, token, "two")
	os.Rename(filepath.Dir(secret), filepath.Dir(secret)+".old")
	h.write(secret, "two")
	h.write(h.profile.Workspace+"/go", "")
	r := <-result
	if r.Failure != nil || strings.Contains(r.Out, "one") || strings.Contains(r.Out, "two") || len(r.Notices) < 2 {
		t.Errorf("%q %q %v %v", r.Out, r.Err, r.Failure, r.Notices)
	}
}

// In what may only be read there is no such moment: what hides stands in a directory of the
// sandbox's own.
func TestWhatIsHiddenInAReadOnlyDirectoryIsNeverSeen(t *testing.T) {
	needMounts(t)
	for _, live := range []bool{false, true} {
		t.Run(fmt.Sprintf("live=%v", live), func(t *testing.T) {
			h := newHost(t)
			if live {
				h.launcher.Live = &Live{}
			}
			dir := h.outside() + "/data"
			secret := h.write(dir+"/keys/secret", "secret")
			token := h.write(dir+"/token", "secret")
			later := dir + "/later"
			h.profile.Hidden = append(h.profile.Hidden, profile.HiddenPath{Path: filepath.Dir(secret)}, profile.HiddenPath{Path: token}, profile.HiddenPath{Path: later})
			h.grant(dir, profile.ReadOnly)
			script := "touch ready; while ! test -e done; do cat " + secret + " " + token + " " + later + " >> leak 2>/dev/null; done; cat leak"
			result := make(chan ran, 1)
			go func() { result <- h.run("/bin/sh", "-c", script) }()
			waitUntil(t, "the command runs", func() bool { _, err := os.Stat(h.profile.Workspace + "/ready"); return err == nil })
			for i := range 200 {
				replaceFile(t, token, "secret")
				os.Rename(filepath.Dir(secret), fmt.Sprintf("%s.%d", filepath.Dir(secret), i))
				h.write(secret, "secret")
				os.Remove(later)
				h.write(later, "secret")
			}
			h.write(h.profile.Workspace+"/done", "")
			if r := <-result; r.Failure != nil || r.Out != "" {
				t.Errorf("%q %q %v", r.Out, r.Err, r.Failure)
			}
		})
	}
}

// Nor are our own directories, whatever becomes of them on the host.
func TestOurOwnDirectoriesAreNotSeenWhenTheyAreReplaced(t *testing.T) {
	needMounts(t)
	h := newHost(t)
	own := h.profile.OwnDirectories[0]
	h.write(own+"/config.json", "secret")
	h.launcher.Live = &Live{} // where no rule of Landlock's for each entry holds it
	result := make(chan ran, 1)
	go func() {
		result <- h.run("/bin/sh", "-c", "touch ready; until [ -e done ]; do sleep 0.01; done; cat "+own+"/config.json "+own+"-moved/config.json; ls "+filepath.Dir(own))
	}()
	waitUntil(t, "the command runs", func() bool { _, err := os.Stat(h.profile.Workspace + "/ready"); return err == nil })
	if err := os.Rename(own, own+"-moved"); err != nil {
		t.Fatal(err)
	}
	h.write(own+"/config.json", "secret")
	h.write(h.profile.Workspace+"/done", "")
	if r := <-result; r.Failure != nil || r.Out != "clai-sandbox\n" {
		t.Errorf("%q %q %v", r.Out, r.Err, r.Failure)
	}
}

// TestHowOftenACommandThatPollsIsQuicker measures, and is no protection: docs/security.md has the
// figures.
func TestHowOftenACommandThatPollsIsQuicker(t *testing.T) {
	needMounts(t)
	if os.Getenv("CLAI_SANDBOX_MEASURE") == "" {
		t.Skip("a measurement: CLAI_SANDBOX_MEASURE=1 makes it")
	}
	needProgram(t, "python3")
	h := newHost(t)
	repositoryIn(h)
	file := h.profile.Workspace + "/.envrc"
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.launcher.Run(ctx, h.build(), []string{"/usr/bin/python3", "-c", `
import os
open("ready", "w").close()
while True:
    try:
        f = os.open(".envrc", os.O_WRONLY | os.O_APPEND)
        os.write(f, b"planted"); os.close(f)
    except OSError: pass
`}, Stdio{})
	}()
	waitUntil(t, "the command runs", func() bool { _, err := os.Stat(h.profile.Workspace + "/ready"); return err == nil })
	const rounds = 200
	planted := 0
	for range rounds {
		replaceFile(t, file, "export A=1\n")
		time.Sleep(5 * time.Millisecond)
		if text, _ := os.ReadFile(file); strings.Contains(string(text), "planted") {
			planted++
		}
	}
	cancel()
	<-ended
	t.Logf("of %d versions that the host wrote, a command that polls wrote into %d", rounds, planted)
}

func renameExchange(t *testing.T, a, b string) {
	t.Helper()
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
}

// What the host replaced while the mounts were made is covered before anything else is looked at.
func TestWhatWasReplacedBeforeTheCommandBeganIsCovered(t *testing.T) {
	h := newHost(t)
	file := h.write(h.profile.Workspace+"/settings", "x")
	s := h.liveShell()
	s.expect("echo y >> settings; cat settings", "xy")
	w := &commandWatch{covers: map[string]bool{file: false}, mounter: s.live.attempt.mounter}
	w.begin(nil, nil) // it is not among what was mounted
	s.expect("(echo z >> settings) 2>/dev/null || echo refused", "refused")
	if len(w.notices) != 1 {
		t.Errorf("%v", w.notices)
	}
}

// A command that watches all it can leaves enough for other sandboxes, which watch what theirs may
// write.
func TestACommandCannotTakeAllWatchesOfTheUser(t *testing.T) {
	needMounts(t)
	needProgram(t, "python3")
	h := newHost(t)
	text, err := os.ReadFile("/proc/sys/user/max_inotify_instances")
	if err != nil {
		t.Skip(err)
	}
	limit, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	s := h.liveShell()
	h.write(h.profile.Workspace+"/take.py", "import ctypes, sys\nlibc = ctypes.CDLL(None)\nn = 0\nwhile n < 1000 and libc.inotify_init() >= 0: n += 1\nprint(n, flush=True)\nsys.stdin.read()\n")
	took, _ := strconv.Atoi(s.sh("mkfifo in out; exec 3<>in; python3 take.py < in > out 3<&- & read n < out; echo $n"))
	if took == 0 || took > limit/4 {
		t.Errorf("%d of %d instances", took, limit)
	}
	other := newHost(t)
	if r := other.run("/bin/true"); r.Failure != nil {
		t.Errorf("another sandbox: %v", r.Failure)
	}
	s.sh("exec 3<&-; kill $!; wait; true")
}

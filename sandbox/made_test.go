package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a command made is the next one's to remove and to make again, and executes nothing; from
// when the person has used it, it is the person's.
func TestARepositoryIsTheCommandsUntilThePersonUsesIt(t *testing.T) {
	const plant = "mkdir -p $g/hooks; echo x > $g/hooks/pre-commit; git config -f $g/config core.fsmonitor x; git config -f $g/config user.name Somebody; sleep 0.05; "
	for name, c := range map[string]struct {
		git, make string
		between   func(h *host, git string) // the person
		then      string
		gone      bool // the command can remove it, and its settings are the command's to write
	}{
		"made and removed":           {"n/.git", "git init -q n; echo x > n/a; git -C n add a", nil, "rm -rf n", true},
		"cloned and removed":         {"n/.git", "git clone -q . n", nil, "rm -rf n", true},
		"bare":                       {"n.git", "git init -q --bare n.git", nil, "rm -rf n.git", true},
		"made again":                 {"n/.git", "git init -q n", nil, plant + "rm -rf n && git init -q n && rm -rf n", true},
		"looked at by the person":    {"n/.git", "git init -q n; git -C n commit -q --allow-empty -m x", func(h *host, git string) { h.git(filepath.Dir(git), "log") }, "rm -rf n", true},
		"planted in":                 {"n/.git", "git init -q n", nil, plant, false},
		"the person's hook":          {"n/.git", "git init -q n", func(h *host, git string) { h.write(git+"/hooks/post-commit", "mine") }, plant + "rm -rf n; true", false},
		"the person's setting":       {"n/.git", "git init -q n", func(h *host, git string) { h.git(filepath.Dir(git), "config", "user.email", "b@example.com") }, plant + "rm -rf n; true", false},
		"the same, in place":         {"n/.git", "git init -q n", func(h *host, git string) { h.write(git+"/config", "[user]\n\temail = b@example.com\n") }, plant + "rm -rf n; true", false},
		"the person's commit":        {"n/.git", "git init -q n", func(h *host, git string) { h.git(filepath.Dir(git), "commit", "-q", "--allow-empty", "-m", "x") }, plant + "rm -rf n; true", false},
		"the person's branch":        {"n.git", "git clone -q --bare . n.git", func(h *host, git string) { h.git(git, "branch", "mine") }, plant + "rm -rf n.git; true", false},
		"the person's, in its place": {"n/.git", "git init -q n", func(h *host, git string) { os.RemoveAll(git); h.git(filepath.Dir(git), "init", "-q") }, plant + "rm -rf n; true", false},
		"the same, moved":            {"m/.git", "git init -q n", func(h *host, git string) { os.Rename(h.profile.Workspace+"/n", filepath.Dir(git)) }, plant + "rm -rf m; true", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := gitHost(t)
			git := h.profile.Workspace + "/" + c.git
			if r := h.run("/bin/sh", "-c", c.make); r.ExitCode != 0 || r.Failure != nil {
				t.Fatalf("%v %s", r.Failure, r.Err)
			}
			if c.between != nil {
				c.between(h, git)
			}
			before, _ := os.ReadFile(git + "/config")
			for range 2 { // what is in use once stays so
				r := h.run("/bin/sh", "-c", "g="+c.git+"; "+c.then)
				if _, err := os.Lstat(git); c.gone && (err == nil || r.ExitCode != 0) {
					t.Errorf("it is still there: %s %v", r.Err, r.Notices)
				}
			}
			if c.gone {
				return
			}
			after, err := os.ReadFile(git + "/config")
			if err != nil || strings.Contains(string(after), "fsmonitor") || c.between != nil && (!strings.HasPrefix(string(after), string(before))) {
				t.Errorf("%v: %q was %q", err, after, before)
			}
			if _, err := os.Lstat(git + "/hooks/pre-commit"); err == nil {
				t.Error("a hook is there")
			}
			if _, err := os.Lstat(git + "/hooks/post-commit"); strings.Contains(name, "person's hook") && err != nil {
				t.Error("the person's hook is gone")
			}
		})
	}
}

func TestWhatIsKnownOfRepositoriesIsBoundedAndDoesNotComeFromOneThatIsStrange(t *testing.T) {
	state := newDirectory(t)
	var all []string
	for i := range 3 {
		all = append(all, strings.Repeat(string(rune('a'+i)), madeLength))
	}
	rememberMade(state, all[:2])
	rememberMade(state, all[1:])
	if got := strings.Join(readMade(state), " "); got != strings.Join(all, " ") {
		t.Errorf("%s", got)
	}
	many := make([]string, 3000)
	for i := range many {
		many[i] = strings.Repeat("f", madeLength)
	}
	rememberMade(state, many)
	if info, err := os.Stat(filepath.Join(state, madeName)); err != nil || info.Size() > maxMadeFile || len(readMade(state)) < 1000 {
		t.Errorf("%v %d", err, len(readMade(state)))
	}
}

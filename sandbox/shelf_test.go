package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// shelved lists what is kept in a host's state.
func (h *host) shelved() []os.DirEntry {
	entries, _ := os.ReadDir(filepath.Join(h.launcher.State, shelfName))
	return entries
}

func TestPlaceholdersAreKeptForTheNextRun(t *testing.T) {
	h := newHost(t)
	h.launcher.State = h.profile.OwnDirectories[1]
	inode := func(path string) uint64 {
		var stat unix.Stat_t
		unix.Lstat(path, &stat)
		return stat.Ino
	}
	before := tree(t, h.profile.Workspace)
	h.sh("true")
	first := map[uint64]bool{}
	for _, entry := range h.shelved() {
		first[inode(filepath.Join(h.launcher.State, shelfName, entry.Name()))] = true
	}
	h.refused("mkdir .vscode/x .claude/x 2>/dev/null")
	for _, entry := range h.shelved() {
		if !first[inode(filepath.Join(h.launcher.State, shelfName, entry.Name()))] {
			t.Errorf("%s is new", entry.Name())
		}
	}
	if len(first) == 0 || len(h.shelved()) != len(first) || tree(t, h.profile.Workspace) != before {
		t.Errorf("%d and %d are kept\n%s", len(first), len(h.shelved()), tree(t, h.profile.Workspace))
	}
}

func TestTheShelfTakesNothingThatIsSomebodys(t *testing.T) {
	h := newHost(t)
	h.launcher.State = h.profile.OwnDirectories[1]
	work := h.profile.Workspace
	h.whileRunning(func() { h.write(work+"/.vscode/settings.json", "mine") })
	if text, _ := os.ReadFile(work + "/.vscode/settings.json"); string(text) != "mine" {
		t.Errorf("%q", text)
	}
}

func TestTheShelfIsBounded(t *testing.T) {
	h := newHost(t)
	h.launcher.State = h.profile.OwnDirectories[1]
	for i := range shelfSize {
		h.mkdir(fmt.Sprintf("%s/%s/%d", h.launcher.State, shelfName, i))
		os.Chmod(fmt.Sprintf("%s/%s/%d", h.launcher.State, shelfName, i), 0o700|os.ModeSticky)
	}
	h.sh("true")
	if n := len(h.shelved()); n > shelfSize {
		t.Errorf("%d are kept", n)
	}
	if _, err := os.Lstat(h.profile.Workspace + "/.vscode"); err == nil {
		t.Error("a placeholder was left")
	}
}

// Without a state, or with one on another file system, placeholders are made and removed.
func TestPlaceholdersDoWithoutAShelf(t *testing.T) {
	h := newHost(t)
	shm, err := os.MkdirTemp("/dev/shm", "clai-sandbox-test-")
	if err != nil {
		t.Skipf("no other file system to write to: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(shm) })
	for _, state := range []string{"", "/no/such/state", shm} {
		h.launcher.State = state
		for range 2 {
			h.refused("mkdir .vscode/x 2>/dev/null")
			if _, err := os.Lstat(h.profile.Workspace + "/.vscode"); err == nil {
				t.Errorf("state %q: a placeholder was left", state)
			}
		}
	}
}

func TestManyRunsAtOnceShareTheShelf(t *testing.T) {
	h := newHost(t)
	h.launcher.State = h.profile.OwnDirectories[1]
	plan := h.build()
	done := make(chan ran)
	for range 12 {
		go func() { done <- h.runPlan(plan, "/bin/sh", "-c", "mkdir .vscode/x .mcp.json/x 2>/dev/null || exit 3") }()
	}
	for range 12 {
		if r := <-done; r.Failure != nil || r.ExitCode != 3 || len(r.Notices) > 0 {
			t.Errorf("%v %+v", r.Failure, r.Result)
		}
	}
	if left := lines(tree(t, h.profile.Workspace)); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

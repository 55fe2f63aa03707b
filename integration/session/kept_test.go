package session

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

func TestWhatIsKeptOfAnAgentIsRemovedWhenNobodyUsesIt(t *testing.T) {
	p := newPlace(t)
	p.configure(`{"agents": {"a": {}, "b": {}}}`)
	state := p.caller.Directories().State
	for _, agent := range []string{"a", "b"} {
		s, err := Open(t.Context(), Options{Caller: p.caller, Config: p.config, Request: profile.Request{Session: "agent:" + agent + ":x", Home: "private", WorkspaceAccess: "none"}})
		if err != nil {
			t.Fatal(err)
		}
		// A command of its may leave what looks like a lock.
		if out, err := p.inside(s, "mkfifo lock ~/lock ~/x.lock; mkdir ~/deep && chmod 0 ~/deep"); err != nil || out != "" {
			t.Fatal(out, err)
		}
		if _, err := Purge(state, agent, func() error { t.Error("what is in use was thought to be free"); return nil }); err == nil {
			t.Error("what is in use was removed")
		}
		if len(Kept(state, agent)) != 2 {
			t.Errorf("in use: %q", Kept(state, agent))
		}
		s.Close()
	}
	if _, err := Purge(state, "a", func() error { return os.ErrInvalid }); err == nil || len(Kept(state, "a")) != 2 {
		t.Errorf("what was to come first failed: %v, and kept is %q", err, Kept(state, "a"))
	}
	first := func() error { return nil }
	if removed, err := Purge(state, "a", first); err != nil || len(removed) != 2 || len(Kept(state, "a")) != 0 || len(Kept(state, "b")) != 2 {
		t.Errorf("%q, %v; of another agent: %q", removed, err, Kept(state, "b"))
	}
	for _, dir := range []string{"homes", sandboxesName} {
		if left, _ := filepath.Glob(filepath.Join(state, dir, ".gone*")); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
	if _, err := Purge(state, "../..", first); err == nil {
		t.Error("no name of an agent")
	}
	os.RemoveAll(state)
}

package profile

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestWhatOurFilesLeadToIsOurs(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/home/.config/clai-sandbox", "/home/.local/state", "/home/dotfiles/clai", "/home/work", "/elsewhere/state/clai-sandbox"} {
		if err := os.MkdirAll(base+dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	d := Directories{Config: base + "/home/.config/clai-sandbox", State: base + "/home/.local/state/clai-sandbox"}
	if none, links := d.Places(); !slices.Equal(none, []string{d.Config, d.State}) || len(links) != 0 {
		t.Errorf("%v, %v", none, links)
	}
	link := func(text, path string) {
		t.Helper()
		os.Remove(base + path)
		if err := os.Symlink(text, base+path); err != nil {
			t.Fatal(err)
		}
	}
	// Through a link in a work directory to another place, relative and absolute, to a file that is
	// there and one that is not.
	link("../../work/config", "/home/.config/clai-sandbox/config.json")
	link(base+"/home/dotfiles/clai/../clai/config.json", "/home/work/config")
	link(base+"/home/work/approvals", "/home/.config/clai-sandbox/exec-approvals.json")
	link(base+"/home/work/state", "/home/.local/state/clai-sandbox")
	link(base+"/elsewhere/state/clai-sandbox", "/home/work/state")
	if err := os.WriteFile(base+"/home/dotfiles/clai/config.json", []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	places, links := d.Places()
	for _, want := range []string{d.Config, d.State, base + "/home/dotfiles/clai/config.json", base + "/home/work/approvals", base + "/elsewhere/state/clai-sandbox"} {
		if !slices.Contains(places, want) {
			t.Errorf("no %s in %v", want, places)
		}
	}
	for _, want := range []string{base + "/home/work/config", base + "/home/work/state"} {
		if !slices.Contains(links, want) {
			t.Errorf("no %s in %v", want, links)
		}
	}
	link("config.json", "/home/.config/clai-sandbox/config.json") // round in a circle
	d.Places()
}

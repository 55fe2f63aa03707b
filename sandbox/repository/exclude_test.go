package repository

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Where a file .git, or a worktree's commondir, leads through "..", what counts is where that is.
func TestNothingIsExcludedWhereACommandMayNotWrite(t *testing.T) {
	for _, way := range []string{"gitdir", "commondir"} {
		top := t.TempDir()
		work, file := filepath.Join(top, "work"), filepath.Join(top, "other/.git/info/exclude")
		for _, dir := range []string{filepath.Join(work, ".git"), filepath.Dir(file)} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		lead, text := filepath.Join(work, ".git/commondir"), work+"/../other/.git\n"
		if way == "gitdir" {
			lead, text = filepath.Join(work, ".git"), "gitdir: "+text
			os.Remove(lead)
		}
		for path, text := range map[string]string{lead: text, file: "mine\n"} {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		is, err := Exclude(work, "aside-*", true, func(path string) bool { return strings.HasPrefix(path, work+"/") })
		if text, _ := os.ReadFile(file); is || err == nil || string(text) != "mine\n" {
			t.Errorf("%s: %v %v %s", way, is, err, text)
		}
	}
}

package protect

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// Whoever goes on with what a command began, and has not ended, is told that it chose what comes.
func TestWhatACommandBeganAndLeftIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		dir, file string
		tells     bool
	}{
		"a rebase":            {".git/rebase-merge", "git-rebase-todo", true},
		"a series of patches": {".git/rebase-apply", "next", true},
		"a cherry-pick":       {".git/sequencer", "todo", true},
		"a part of a rebase":  {".git/rebase-merge", "msgnum", false},
		"no state":            {".git/info", "todo", false},
		"no repository":       {"rebase-merge", "git-rebase-todo", false},
	} {
		dir := treeOf(t, ".git/HEAD", ".git/objects/", ".git/refs/")
		w, err := NewWatch()
		if err == nil {
			_, _, err = w.Prepare(Options{Roots: []string{dir}, Names: someNames, Known: map[string]bool{dir + "/.git": true}, Git: map[string]bool{dir + "/.git": true},
				CheckIndex: func(int, string, bool) error { return nil }})
		}
		if err != nil {
			t.Fatal(err)
		}
		w.Begin(nil, nil)
		t.Cleanup(w.Close)
		if err := errors.Join(os.MkdirAll(dir+"/"+c.dir, 0o755), os.WriteFile(dir+"/"+c.dir+"/"+c.file, []byte("1\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		told := 0
		report := w.End(QuarantineIn(t.TempDir()))
		for _, one := range report.Told {
			if one.Path == dir+"/"+c.dir && strings.Contains(one.Text, "has not ended it") {
				told++
			}
		}
		if (told == 1) != c.tells || told > 1 {
			t.Errorf("%s: told %d times: %+v", name, told, report.Told)
		}
	}
}

package repository

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// For each kind of index that git writes, git itself reads the one with the flag, and the one where
// it was taken away again.
func TestGitReadsAnIndexInWhichFilesAreSkipped(t *testing.T) {
	for name, text := range indexes(t) {
		if strings.HasPrefix(name, "split") {
			continue
		}
		p, err := parseIndex(text, lengthOf(name))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		git(t, dir, "init", "-q", "--object-format="+map[int]string{20: "sha1", 32: "sha256"}[lengthOf(name)])
		if p.sparse {
			git(t, dir, "config", "index.sparse", "true")
			git(t, dir, "config", "core.sparseCheckout", "true")
			git(t, dir, "config", "core.sparseCheckoutCone", "true")
		}
		list := func(text []byte) string {
			write(t, filepath.Join(dir, ".git/index"), string(text))
			return git(t, dir, "ls-files", "-tv", "--stage", "--sparse")
		}
		before := list(text)
		inside := map[string]string{"ab": "/ab", "aXXXX": "/aXXXX", "not there": "/not there"}
		skipped, found, err := withSkipped(text, lengthOf(name), inside, true)
		if err != nil || skipped == nil || len(found) == 0 || !p.sparse && len(found) != 2 {
			t.Errorf("%s: %v %q", name, err, found)
			continue
		}
		want := strings.NewReplacer("H "+lineOf(before, "\taXXXX"), "S "+lineOf(before, "\taXXXX"), "H "+lineOf(before, "\tab/c"), "S "+lineOf(before, "\tab/c")).Replace(before)
		if is := list(skipped); is != want || is == before && !p.sparse {
			t.Errorf("%s: git reads\n%s not\n%s", name, is, want)
		}
		if err := ParseIndex(skipped, lengthOf(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if again, _, _ := withSkipped(skipped, lengthOf(name), inside, true); again != nil {
			t.Errorf("%s is changed again", name)
		}
		back, _, err := withSkipped(skipped, lengthOf(name), inside, false)
		if err != nil || !p.sparse && list(back) != before {
			t.Errorf("%s: %v", name, err)
		}
		if bytes.Contains(text, []byte("TREE")) && !bytes.Contains(back, []byte("TREE")) {
			t.Errorf("%s has lost its trees", name)
		}
	}
}

func lineOf(text, end string) string {
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(line, "\n"); strings.HasSuffix(line, end) {
			return line[2:]
		}
	}
	return "\x00"
}

// git's lock is respected, and what somebody else wrote meanwhile is left.
func TestAnIndexIsReplacedUnderGitsLock(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "index"), "old")
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(at)
	var was unix.Stat_t
	unix.Fstatat(at, "index", &was, 0)
	write(t, filepath.Join(dir, "index.lock"), "git's")
	if err := replaceIndex(at, "index", []byte("new"), &was, 0); err == nil {
		t.Error("it is replaced while git has the lock")
	}
	os.Remove(filepath.Join(dir, "index.lock"))
	if err := replaceIndex(at, "index", []byte("new"), &was, 0); err != nil {
		t.Error(err)
	}
	if err := replaceIndex(at, "index", []byte("another"), &was, 0); err == nil {
		t.Error("what somebody else wrote is replaced")
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "index")); string(text) != "new" {
		t.Errorf("it holds %q", text)
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("left: %v", names)
	}
}

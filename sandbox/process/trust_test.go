package process

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Each directory on the way counts, as typed and behind links: whoever may write there may put
// another program there.
func TestAProgramIsTrustedByItsWholeWay(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err := errors.Join(err, os.Chmod(base, 0o755)); err != nil {
		t.Fatal(err)
	}
	mkdir := func(name string, mode os.FileMode) string {
		path := filepath.Join(base, name)
		if err := errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	program := func(dir string, mode os.FileMode) string {
		path := filepath.Join(dir, "p")
		if err := errors.Join(os.WriteFile(path, nil, 0o755), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := func(to, name string) string {
		path := filepath.Join(base, name)
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := program(mkdir("good", 0o755), 0o755)
	open := program(mkdir("open", 0o777), 0o755)
	below := program(mkdir("group/below", 0o755), 0o755)
	mkdir("group", 0o775)
	for path, trusted := range map[string]bool{
		good: true, link(good, "link"): true, program(mkdir("sticky", 0o777|os.ModeSticky), 0o755): true,
		open: false, below: false, link(open, "to open"): false, link(filepath.Dir(open), "to directory") + "/p": false,
		program(mkdir("world", 0o755), 0o757): false, program(mkdir("grouped", 0o755), 0o775): false, base + "/none": false,
		link(good, "open/link"): false,
	} {
		if err := TrustPlace(path, TrustedOwner); (err == nil) != trusted {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := TrustPlace(good, func(uint32) bool { return false }); err == nil {
		t.Error("the owner does not count")
	}
}

// Package shuttest lets a test remove what is shut, and look at it.
package shuttest

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/clairun/clai-sandbox/profile/shut"
)

// RemoveAll removes a directory with all that is shut in it.
func RemoveAll(dir string) error {
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && filepath.Base(path) == "shut" {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	return os.RemoveAll(dir)
}

// Directory is a test's, with what is shut in it.
func Directory(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	t.Cleanup(func() { _ = RemoveAll(dir) })
	return dir
}

// Reach leads to a path in something that is shut, until the test ends.
func Reach(t testing.TB, path string) string {
	t.Helper()
	at, done, err := shut.Reach(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	return at
}

package protect

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// treeOf makes directories ("a/b/") and empty files.
func treeOf(t testing.TB, paths ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, path := range paths {
		at := filepath.Join(dir, path)
		if strings.HasSuffix(path, "/") {
			os.MkdirAll(at, 0o755)
			continue
		}
		os.MkdirAll(filepath.Dir(at), 0o755)
		if err := os.WriteFile(at, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (r Result) paths(dir string) (found, closed []string) {
	for _, f := range r.Found {
		if f.Stray {
			found = append(found, "stray "+relative(f.Path, dir))
			continue
		}
		found = append(found, relative(f.Path, dir))
	}
	for _, c := range r.Closed {
		closed = append(closed, relative(c.Path, dir))
	}
	return found, closed
}

func TestAScanFindsNamesAndRepositoriesAtAnyDepth(t *testing.T) {
	deep := strings.Repeat("d/", 60)
	dir := treeOf(t, "HEAD", "objects/", "refs/", ".envrc", "a/.vscode/x/.envrc", deep+".envrc", deep+".git/config", "node_modules/p/.envrc", "node_modules/p/.git/",
		"b/.cargo/config.toml", "bare/HEAD", "bare/objects/", "half/objects/", "half/refs/", ".git/modules/m/config", "apart/.envrc")
	os.Symlink("/etc", filepath.Join(dir, "link"))
	os.Symlink("nowhere", filepath.Join(dir, "c.mise"))
	os.Symlink("nowhere", filepath.Join(dir, ".git/modules/m/l"))
	os.Symlink("nowhere", filepath.Join(dir, "a/l"))
	os.Symlink("testing", filepath.Join(dir, ".git/t1aZ2bY"))
	result := someNames.Scan(dir, func(path string) bool { return path == dir+"/apart" }, DefaultLimits, nil)
	found, closed := result.paths(dir)
	slices.Sort(found)
	want := []string{"", ".envrc", ".git", ".git/modules/m", "a/.vscode", "b/.cargo/config.toml", "bare", deep + ".envrc", deep + ".git", "half", "node_modules/p/.git",
		"stray .git/modules/m/l", "stray .git/t1aZ2bY", "stray c.mise", "stray link"}
	if !slices.Equal(found, want) || len(closed) > 0 {
		t.Errorf("%q\nwant\n%q\nclosed %q", found, want, closed)
	}
}

// Past a bound, the directory is named, or one above it, so that nothing is left out.
func TestPastABoundAScanNamesWhatItDidNotLookThrough(t *testing.T) {
	var paths []string
	for i := range 300 {
		paths = append(paths, fmt.Sprintf("x/%03d/f", i))
	}
	paths = append(paths, "many/.envrc")
	for i := range 300 {
		paths = append(paths, fmt.Sprintf("many/%03d", i))
	}
	dir := treeOf(t, append(paths, strings.Repeat("d/", 20)+".envrc")...)
	for name, limits := range map[string]Limits{
		"directories": {Directories: 50, Entries: 1e6, Depth: 100, Closed: 8},
		"entries":     {Directories: 1e6, Entries: 250, Depth: 100, Closed: 8},
		"depth":       {Directories: 1e6, Entries: 1e6, Depth: 10, Closed: 8},
		"time":        {Directories: 1e6, Entries: 1e6, Depth: 100, Closed: 8, Time: 1},
	} {
		result := someNames.Scan(dir, nil, limits, nil)
		if len(result.Closed) == 0 || len(result.Closed) > 8 {
			t.Errorf("%s: closed %v", name, result.Closed)
		}
		filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
			known := slices.ContainsFunc(result.Closed, func(c Closed) bool { return within(path, c.Path) }) ||
				slices.ContainsFunc(result.Found, func(f Found) bool { return f.Path == path })
			if entry.Name() == ".envrc" && !known {
				t.Errorf("%s: %s is neither found nor closed", name, path)
			}
			return nil
		})
	}
}

func TestADirectoryThatCannotBeReadIsNamed(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads any")
	}
	dir := treeOf(t, "closed/x")
	os.Chmod(dir+"/closed", 0o300)
	t.Cleanup(func() { os.Chmod(dir+"/closed", 0o700) })
	if _, closed := someNames.Scan(dir, nil, DefaultLimits, nil).paths(dir); !slices.Equal(closed, []string{"closed"}) {
		t.Errorf("%q", closed)
	}
}

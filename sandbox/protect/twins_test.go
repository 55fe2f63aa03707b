package protect

import (
	"os"
	"slices"
	"syscall"
	"testing"
)

// Other names of a file are found wherever they are, but for what is apart, behind links, or no
// file; and what cannot be looked through as a whole is told.
func TestOtherNamesOfAFileAreFound(t *testing.T) {
	dir := treeOf(t, "file", "alone", "a/b/", "apart/")
	other := treeOf(t, "x")
	for _, name := range []string{"/a/one", "/a/b/two", "/apart/three"} {
		if err := os.Link(dir+"/file", dir+name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(dir+"/file", other+"/four"); err != nil {
		t.Fatal(err)
	}
	os.Symlink(other, dir+"/link")
	os.Symlink("file", dir+"/a/symlink")
	stat, err := os.Stat(dir + "/file")
	if err != nil {
		t.Fatal(err)
	}
	alone, err := os.Stat(dir + "/alone")
	if err != nil {
		t.Fatal(err)
	}
	of := map[uint64]bool{inodeOf(stat): true, inodeOf(alone): true}
	look := func(limits Limits) ([]string, error) {
		var paths []string
		err := Twins(dir, func(path string) bool { return path == dir+"/apart" }, limits, func(inode uint64) bool { return of[inode] }, func(path string, device, inode uint64) {
			if inode != inodeOf(stat) {
				t.Errorf("%s has inode %d", path, inode)
			}
			paths = append(paths, relative(path, dir))
		})
		slices.Sort(paths)
		return paths, err
	}
	if paths, err := look(DefaultLimits); err != nil || !slices.Equal(paths, []string{"a/b/two", "a/one", "file"}) {
		t.Errorf("%q, %v", paths, err)
	}
	// Three directories; file, alone, a, apart and link, one, b and symlink, two.
	if paths, err := look(Limits{Directories: 3, Entries: 9}); err != nil || len(paths) != 3 {
		t.Errorf("%q, %v", paths, err)
	}
	for _, limits := range []Limits{{Directories: 2, Entries: 9}, {Directories: 3, Entries: 8}} {
		if paths, err := look(limits); err == nil {
			t.Errorf("%+v: %q, and that it is not all is not told", limits, paths)
		}
	}
	if err := Twins(dir+"/none", nil, DefaultLimits, nil, nil); err == nil {
		t.Error("a directory that cannot be opened is not told")
	}
}

func inodeOf(info os.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

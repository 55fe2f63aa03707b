package grants

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// A path that is looked up at once is found to be what a walk finds, link by link: also one that is
// not there, whatever is on the way to where it would be.
func TestAPathThatIsLookedUpAtOnceIsWhatAWalkFinds(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(dir+"/a/b", 0o755), os.WriteFile(dir+"/a/file", nil, 0o644), os.Symlink("b", dir+"/a/link"), os.Symlink("a", dir+"/to"),
		os.Symlink("none/here", dir+"/a/dangling"), os.Symlink("loop", dir+"/a/loop"), os.Symlink(dir+"/a", dir+"/whole")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{ // where it leads; empty: nowhere
		"/a/b":              "/a/b",
		"/a/none":           "/a/none",
		"/none/of/these":    "/none/of/these",
		"/a/link/none":      "/a/b/none",
		"/a/link/no/ne":     "/a/b/no/ne",
		"/to/none/x":        "/a/none/x",
		"/whole/link/none":  "/a/b/none",
		"/a/dangling":       "/a/none/here",
		"/a/dangling/x/y":   "/a/none/here/x/y",
		"/a/loop":           "",
		"/a/loop/none":      "",
		"/a/file/none":      "",
		"/a/file/none/none": "",
	} {
		got, err := Resolve(dir + path)
		w := newWalk(nil)
		walked, err2 := w.follow(dir + path)
		w.close()
		if (err == nil) != (err2 == nil) || err == nil && !reflect.DeepEqual(got, walked) {
			t.Errorf("%s: %+v, %v; by a walk %+v, %v", path, got, err, walked, err2)
		}
		if (err == nil) != (want != "") || err == nil && got.Resolved != dir+want {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
		if missing := want == path && path != "/a/b"; isMissing(dir+path) != missing {
			t.Errorf("%s is said to be missing: %v", path, !missing)
		}
	}
}

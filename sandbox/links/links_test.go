package links_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/clairun/clai-sandbox/sandbox/links"
	"github.com/clairun/clai-sandbox/sandbox/links/linkstest"
)

func TestAWalkFollowsEveryHop(t *testing.T) {
	tree := linkstest.New("/real/dir/file", "/a -> real", "/b -> /a/dir", "/c -> b/../dir/file", "/up -> real/dir/..", "/root -> /",
		"/self -> self", "/x -> y", "/y -> x", "/dangling -> /nowhere/below", "/file", "/closed/ !", "/dots -> ././real//dir/.")
	for _, c := range []struct {
		path, real string
		links      string
		err        error
	}{
		{"/real/dir/file", "/real/dir/file", "", nil},
		{"/a/dir/file", "/real/dir/file", "/a", nil},
		{"/b/file", "/real/dir/file", "/b /a", nil},
		{"/c", "/real/dir/file", "/c /b /a", nil}, // ".." behind a link leads to the parent of its target
		{"/up", "/real", "/up", nil},
		{"/root/real", "/real", "/root", nil},
		{"/dots", "/real/dir", "/dots", nil},
		{"/", "/", "", nil},
		{"/..", "/", "", nil},
		{"/self", "/", "", syscall.ELOOP},
		{"/x/z", "/", "", syscall.ELOOP},
		{"/dangling", "/", "", syscall.ENOENT},
		{"/file/below", "/", "", syscall.ENOTDIR},
		{"/closed/x", "/closed", "", syscall.EACCES},
		{"/" + strings.Repeat("n", 300), "/", "", syscall.ENAMETOOLONG},
	} {
		w, err := links.Follow(tree, c.path)
		if !errors.Is(err, c.err) || (c.err == nil) != (err == nil) {
			t.Errorf("%s: error %v, want %v", c.path, err, c.err)
			continue
		}
		if c.err != nil {
			continue
		}
		var passed []string
		for _, l := range w.Links {
			passed = append(passed, l.Path)
		}
		if w.Real != c.real || strings.Join(passed, " ") != c.links {
			t.Errorf("%s leads to %s by %v, want %s by %s", c.path, w.Real, passed, c.real, c.links)
		}
	}
}

func TestAWalkAllowsAsManyLinksAsTheKernel(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(dir+"/0", nil, 0o644)
	for i := 1; i <= 41; i++ {
		os.Symlink(dir+"/"+strings.Repeat("l", i-1)+"0", dir+"/"+strings.Repeat("l", i)+"0")
	}
	for _, n := range []int{1, 39, 40, 41} {
		name := dir + "/" + strings.Repeat("l", n) + "0"
		_, kernel := os.Stat(name)
		_, err := links.Follow(links.Host{}, name)
		if (kernel == nil) != (err == nil) {
			t.Errorf("%d links: the kernel says %v, follow %v", n, kernel, err)
		}
	}
}

// FuzzWalk makes a tree of links from its input and holds follow against the kernel's own walk.
func FuzzWalk(f *testing.F) {
	f.Add("a->b;b->c/d;c/d/e", "a/e")
	f.Add("a->.;b->..;c->/", "a/b/c/a")
	f.Add("a->a", "a")
	f.Add("x/y/z;l->x/y/../../x;m->l/y", "m/z")
	f.Fuzz(func(t *testing.T, layout, asked string) {
		if len(layout) > 200 || len(asked) > 100 || strings.ContainsAny(layout+asked, "\x00") {
			return
		}
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		confined := func(text string) string { // links out of the directory would leave the test
			if strings.HasPrefix(text, "/") {
				return dir + text
			}
			return text
		}
		root, err := os.OpenRoot(dir) // so that nothing is made outside, through whatever links
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		for entry := range strings.SplitSeq(layout, ";") {
			name, text, isLink := strings.Cut(entry, "->")
			name = strings.TrimPrefix(filepath.Join("/", name), "/")
			if isLink && text != "" {
				root.MkdirAll(filepath.Dir(name), 0o755)
				root.Symlink(confined(text), name)
			} else {
				root.MkdirAll(name, 0o755)
			}
		}
		path := dir + "/" + strings.TrimSuffix(asked, "/")
		w, err := links.Follow(links.Host{}, path)
		file, kernel := os.OpenFile(path, syscall.O_NONBLOCK, 0)
		if kernel != nil {
			// The kernel wants a directory before "." and "..", which a clean path does not have.
			if err == nil && !errors.Is(kernel, syscall.ENOTDIR) && !errors.Is(kernel, syscall.EACCES) && !errors.Is(kernel, syscall.ENXIO) && !errors.Is(kernel, syscall.ENOENT) {
				t.Errorf("%s in %q: the kernel says %v, follow says %s", asked, layout, kernel, w.Real)
			}
			return
		}
		defer file.Close()
		if err != nil {
			t.Fatalf("%s in %q: the kernel opens it, follow says %v", asked, layout, err)
		}
		got, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(file.Fd())))
		if err == nil && got != w.Real {
			t.Errorf("%s in %q: the kernel is at %s, follow at %s", asked, layout, got, w.Real)
		}
	})
}

func TestOnePathIsBelowAnotherByWholeComponents(t *testing.T) {
	for _, c := range []struct {
		path, dir string
		want      bool
	}{{"/a", "/a", true}, {"/a/b", "/a", true}, {"/ab", "/a", false}, {"/a", "/a/b", false}, {"/x", "/", true}, {"/", "/", true}, {"/", "/a", false}} {
		if links.Within(c.path, c.dir) != c.want {
			t.Errorf("Within(%s, %s) is %v", c.path, c.dir, !c.want)
		}
	}
}

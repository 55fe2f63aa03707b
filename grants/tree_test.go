package grants

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

// A randomTree is a directory with random files, directories and symbolic links in it, some of
// which lead out, round in circles, or nowhere.
type randomTree struct {
	random *rand.Rand
	root   string // no component is a symbolic link
	dirs   []string
}

var treeNames = []string{"a", "b", "c", "d"}

func newRandomTree(t testing.TB, seed uint64) *randomTree {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tree := &randomTree{random: rand.New(rand.NewPCG(seed, 1)), root: root, dirs: []string{root}}
	for range 8 + tree.random.IntN(10) {
		path := filepath.Join(tree.pick(tree.dirs), tree.pick(treeNames))
		switch tree.random.IntN(5) {
		case 0, 1:
			if os.Mkdir(path, 0o700) == nil {
				tree.dirs = append(tree.dirs, path)
			}
		case 2:
			if file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600); err == nil {
				file.Close()
			}
		default:
			os.Symlink(tree.target(), path)
		}
	}
	return tree
}

func (tree *randomTree) pick(from []string) string { return from[tree.random.IntN(len(from))] }

// target is the text of a symbolic link.
func (tree *randomTree) target() string {
	switch tree.random.IntN(4) {
	case 0:
		return tree.pick(tree.dirs)
	case 1:
		return "/etc"
	default:
		return strings.TrimSuffix(tree.relative(), "/")
	}
}

func (tree *randomTree) relative() string {
	var parts []string
	for range 1 + tree.random.IntN(3) {
		parts = append(parts, tree.pick([]string{"a", "b", "c", "d", "..", "."}))
	}
	return strings.Join(parts, "/")
}

// path is one that somebody might ask for or decide on.
func (tree *randomTree) path() string {
	if tree.random.IntN(20) == 0 {
		return tree.pick([]string{"/etc", "/etc/passwd", "/proc/self/root/etc", "/", "/run/x", tree.root + "/../..", "relative", "", "~"})
	}
	path := tree.pick(tree.dirs)
	for range tree.random.IntN(4) {
		path += tree.pick([]string{"/", "//", "/./"}) + tree.pick([]string{"a", "b", "c", "d", "..", "new"})
	}
	return path
}

// modelResolve is what the standard library makes of a clean path, as the kernel would: an existing
// path through EvalSymlinks, a missing one behind its longest existing parent. It reports false
// where it cannot tell: a link that leads nowhere, or in a circle.
func modelResolve(path string) (string, bool) {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real, true
	}
	if _, err := os.Lstat(path); err == nil || !os.IsNotExist(err) || path == "/" {
		return "", false
	}
	dir, ok := modelResolve(filepath.Dir(path))
	if info, err := os.Stat(dir); !ok || err == nil && !info.IsDir() {
		return "", false
	}
	return filepath.Join(dir, filepath.Base(path)), true
}

// modelBelow compares component by component, in the plainest way.
func modelBelow(path, dir string) bool {
	split := func(path string) []string {
		return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	}
	p, d := split(path), split(dir)
	if len(p) < len(d) {
		return false
	}
	for i := range d {
		if p[i] != d[i] {
			return false
		}
	}
	return true
}

func TestAPathResolvesAsTheStandardLibraryHasIt(t *testing.T) {
	told := 0
	for seed := range uint64(300) {
		tree := newRandomTree(t, seed)
		for range 30 {
			path := filepath.Clean(tree.path())
			if !filepath.IsAbs(path) {
				continue
			}
			place, err := Resolve(path)
			want, ok := modelResolve(path)
			if !ok {
				continue
			}
			if inProc(path) { // the model follows it, and we do not
				if err == nil {
					t.Fatalf("seed %d: %s is followed to %s", seed, path, place.Resolved)
				}
				continue
			}
			told++
			if err != nil || place.Resolved != want {
				t.Fatalf("seed %d: %s: %q, %v; want %q", seed, path, place.Resolved, err, want)
			}
			if _, err := os.Lstat(want); (err == nil) != place.Object.Exists() {
				t.Fatalf("seed %d: %s: exists %v; lstat: %v", seed, want, place.Object.Exists(), err)
			}
		}
	}
	if told < 3000 {
		t.Errorf("only %d paths were compared", told)
	}
}

func testRules(home string) Rules {
	return NewRules(home, []string{home + "/.config/clai-sandbox"}, []string{"/usr/bin"})
}

// TestADecisionIsNeverWiderThanTheQuestion holds random decisions on random trees against the model
// above.
func TestADecisionIsNeverWiderThanTheQuestion(t *testing.T) {
	accepted, refused := 0, 0
	for seed := range uint64(400) {
		tree := newRandomTree(t, seed)
		rules := testRules(tree.root)
		for range 40 {
			access := profile.Access(tree.random.IntN(4))
			q, err := rules.Ask(tree.path(), access, "")
			if err != nil {
				continue
			}
			d := Decision{Kind: DecisionKind(tree.random.IntN(4)), Path: q.Place.Typed, Access: profile.Access(tree.random.IntN(4))}
			if d.Kind == AllowAlways {
				d.Scope = ScopeAlways
			}
			switch tree.random.IntN(4) {
			case 0:
				d.Path = tree.path()
			case 1, 2:
				d.Path += "/" + tree.relative()
			}
			place, err := rules.Decide(q, d)
			typed, typedErr := profile.ExpandPath(d.Path, tree.root)
			wantAsked, ok := modelResolve(q.Place.Typed)
			if !ok || d.Kind == Deny {
				if d.Kind == Deny && place != (Place{}) {
					t.Fatalf("seed %d: a denial grants %+v", seed, place)
				}
				continue
			}
			want, ok := modelResolve(typed)
			within := typedErr == nil && ok && modelBelow(want, wantAsked)
			named := modelBelow(typed, q.Place.Typed) || modelBelow(typed, q.Place.Resolved)
			formed := (d.Kind == AllowOnce || d.Kind == AllowAlways) && d.Access != profile.NoAccess && d.Access <= access
			switch {
			case err == nil && !ok: // a link that leads nowhere yet: the model cannot say where
				if !modelBelow(place.Resolved, wantAsked) {
					t.Fatalf("seed %d: %q grants %s, which is not below %s", seed, d.Path, place.Resolved, wantAsked)
				}
			case err == nil && !(within && named && formed):
				t.Fatalf("seed %d: asked for %s %v, decided %+v: granted %+v", seed, wantAsked, access, d, place)
			case err == nil:
				accepted++
				if place.Resolved != want || d.Access > q.Access {
					t.Fatalf("seed %d: granted %s, want %s", seed, place.Resolved, want)
				}
			case within && named && formed && rules.Refuse(Place{Typed: typed, Resolved: want}, d.Access) == nil:
				t.Fatalf("seed %d: asked for %s %v, decided %+v: refused: %v", seed, wantAsked, access, d, err)
			default:
				refused++
			}
		}
	}
	if accepted < 500 || refused < 1000 {
		t.Errorf("%d accepted, %d refused: the trees do not try both", accepted, refused)
	}
}

package grants

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

// modelAccess says the same as View.Access by the definition: the deepest statement decides, and
// approvals only add.
func modelAccess(statements, approved map[string]profile.Access, path string) profile.Access {
	if path != "/" {
		access := modelAccess(statements, approved, filepath.Dir(path))
		if stated, found := statements[path]; found {
			access = stated
		}
		return max(access, approved[path])
	}
	return max(statements["/"], approved["/"])
}

func TestCoverFollowsTheDeepestStatement(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	path := func() string {
		text := ""
		for range random.IntN(5) {
			text += "/" + []string{"a", "b", "ab"}[random.IntN(3)]
		}
		return filepath.Clean("/" + text)
	}
	for range 5000 {
		v, approved := View{statements: map[string]profile.Access{}}, map[string]profile.Access{}
		for range random.IntN(6) {
			v.statements[path()] = profile.Access(random.IntN(3))
		}
		for range random.IntN(4) {
			approved[path()] = profile.Access(random.IntN(3))
		}
		asked := path()
		got := v.Access(asked, func(p string) profile.Access { return approved[p] })
		if want := modelAccess(v.statements, approved, asked); got != want {
			t.Fatalf("%s with %v, %v: %v, want %v", asked, v.statements, approved, got, want)
		}
	}
}

func TestWhatIsCovered(t *testing.T) {
	home := newHome(t)
	write(t, home+"/work/secret/key", "")
	write(t, home+"/work/lib/file", "")
	write(t, home+"/other/file", "")
	link(t, home+"/other", home+"/work/out")
	rules := testRules(home)
	const ro, rw = profile.ReadOnly, profile.ReadWrite
	view := NewView([]profile.Grant{
		{Path: home + "/work", Access: rw},
		{Path: home + "/work/lib", Access: ro},
		{Path: home + "/named", Access: ro},
	}, []string{home + "/work/secret", home + "/named", home + "/other/hidden", home + "/work/out/through-a-link"}, nil)
	for _, c := range []struct {
		path     string
		access   profile.Access
		approved map[string]profile.Access
		want     bool
	}{
		{"/work/x", rw, nil, true},
		{"/work/lib/file", ro, nil, true},
		{"/work/lib/file", rw, nil, false},
		{"/work/lib/file", rw, map[string]profile.Access{"/work/lib": ro}, false},
		{"/work/lib/file", rw, map[string]profile.Access{"/work/lib": rw}, true},
		{"/work/secret", ro, nil, false},
		{"/work/secret/key", ro, nil, false},
		{"/work/secret/key", ro, map[string]profile.Access{"/work": rw}, false},
		{"/work/secret/key", ro, map[string]profile.Access{"/work/secret": ro}, true},
		{"/work/secret/key", ro, map[string]profile.Access{"/work/secret/key": ro}, true},
		{"/named", ro, nil, true},
		{"/other", ro, nil, false},
		{"/work/out/file", ro, nil, false}, // leads to /other
		{"/other/file", rw, map[string]profile.Access{"/other": ro}, false},
		{"/other/through-a-link", ro, map[string]profile.Access{"/other": rw}, false},
		{"/other/hidden", ro, map[string]profile.Access{"/other": rw}, false},
	} {
		got := view.Covers(ask(t, rules, home+c.path, c.access), func(path string) profile.Access {
			return c.approved[strings.TrimPrefix(path, home)]
		})
		if got != c.want {
			t.Errorf("%s %v with %v: %v", c.path, c.access, c.approved, got)
		}
	}
}

func TestNothingIsCoveredByTheZeroView(t *testing.T) {
	if (View{}).Covers(Question{Access: profile.ReadOnly, Known: "/a"}, func(string) profile.Access { return profile.NoAccess }) {
		t.Error("covered")
	}
	if (View{}).Covers(Question{Known: "/a"}, func(string) profile.Access { return profile.NoAccess }) {
		t.Error("a question for nothing is covered")
	}
}

package grants

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/profile"
)

// newHome is a home directory for rules. No component of its path is a symbolic link.
func newHome(t testing.TB) string {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return home
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t testing.TB, text, path string) {
	t.Helper()
	if err := os.Symlink(text, path); err != nil {
		t.Fatal(err)
	}
}

func ask(t testing.TB, r Rules, path string, access profile.Access) Question {
	t.Helper()
	q, err := r.Ask(path, access, "to test")
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestADecisionOnlyNarrows(t *testing.T) {
	home := newHome(t)
	write(t, home+"/a/b/file", "")
	write(t, home+"/ab/file", "")
	link(t, "/etc", home+"/a/out")
	link(t, "../ab", home+"/a/aside")
	link(t, "b", home+"/a/inside")
	link(t, home+"/a", home+"/link")
	link(t, "../a/b", home+"/ab/in")
	rules := testRules(home)
	const ro, rw = profile.ReadOnly, profile.ReadWrite
	for name, c := range map[string]struct {
		asked    string
		access   profile.Access
		decision Decision
		want     string // resolved, below home; empty: refused
	}{
		"the path itself":                 {"~/a", rw, Decision{Kind: AllowOnce, Path: "~/a", Access: rw}, "/a"},
		"below it, and less":              {"~/a", rw, Decision{Kind: AllowOnce, Path: "~/a/b/file", Access: ro}, "/a/b/file"},
		"through a link that stays":       {"~/a", ro, Decision{Kind: AllowOnce, Path: "~/a/inside/file", Access: ro}, "/a/b/file"},
		"what does not exist yet":         {"~/a", ro, Decision{Kind: AllowOnce, Path: "~/a/b/new/er", Access: ro}, "/a/b/new/er"},
		"asked through a link":            {"~/link", ro, Decision{Kind: AllowOnce, Path: "~/link/b", Access: ro}, "/a/b"},
		"as resolved":                     {"~/link", ro, Decision{Kind: AllowOnce, Path: "~/a/b", Access: ro}, "/a/b"},
		"for the agent":                   {"~/a", ro, Decision{Kind: AllowAlways, Path: "~/a", Access: ro, Scope: ScopeAlways}, "/a"},
		"for the agent, for an hour":      {"~/a", ro, Decision{Kind: AllowAlways, Path: "~/a", Access: ro, Scope: ScopeAlways, ExpiresIn: Duration(time.Hour)}, "/a"},
		"more access":                     {"~/a", ro, Decision{Kind: AllowOnce, Path: "~/a", Access: rw}, ""},
		"no access":                       {"~/a", ro, Decision{Kind: AllowOnce, Path: "~/a"}, ""},
		"an access that there is not":     {"~/a", rw, Decision{Kind: AllowOnce, Path: "~/a", Access: 9}, ""},
		"no path":                         {"~/a", ro, Decision{Kind: AllowOnce, Access: ro}, ""},
		"the parent":                      {"~/a/b", ro, Decision{Kind: AllowOnce, Path: "~/a", Access: ro}, ""},
		"the parent by two dots":          {"~/a/b", ro, Decision{Kind: AllowOnce, Path: "~/a/b/..", Access: ro}, ""},
		"beside, by two dots":             {"~/a", ro, Decision{Kind: AllowOnce, Path: "~/a/../ab", Access: ro}, ""},
		"a name that begins alike":        {"~/a", ro, Decision{Kind: AllowOnce, Path: "~/ab", Access: ro}, ""},
		"a link that leads out":           {"~/a", ro, Decision{Kind: AllowOnce, Path: "~/a/out", Access: ro}, ""},
		"below a link that leads out":     {"~/a", ro, Decision{Kind: AllowOnce, Path: "~/a/out/passwd", Access: ro}, ""},
		"a link that leads aside":         {"~/a", ro, Decision{Kind: AllowOnce, Path: "~/a/aside/file", Access: ro}, ""},
		"up again behind a link out":      {"~/a", ro, Decision{Kind: AllowOnce, Path: "~/a/out/../b", Access: ro}, "/a/b"},
		"another name that leads into it": {"~/a", ro, Decision{Kind: AllowOnce, Path: "~/ab/in", Access: ro}, ""},
		"relative":                        {"~/a", ro, Decision{Kind: AllowOnce, Path: "a", Access: ro}, ""},
		"another user's home":             {"~/a", ro, Decision{Kind: AllowOnce, Path: "~root/a", Access: ro}, ""},
		"a NUL":                           {"~/a", ro, Decision{Kind: AllowOnce, Path: "~/a\x00", Access: ro}, ""},
		"no UTF-8":                        {"~/a", ro, Decision{Kind: AllowOnce, Path: "~/a/\xff", Access: ro}, ""},
		"for everybody":                   {"~/a", ro, Decision{Kind: AllowAlways, Path: "~/a", Access: ro, Scope: "everybody"}, ""},
		"for nobody in particular":        {"~/a", ro, Decision{Kind: AllowAlways, Path: "~/a", Access: ro}, ""},
		"once, but for the agent":         {"~/a", ro, Decision{Kind: AllowOnce, Path: "~/a", Access: ro, Scope: ScopeAlways}, ""},
		"once, for an hour":               {"~/a", ro, Decision{Kind: AllowOnce, Path: "~/a", Access: ro, ExpiresIn: Duration(time.Hour)}, ""},
		"until yesterday":                 {"~/a", ro, Decision{Kind: AllowAlways, Path: "~/a", Access: ro, Scope: ScopeAlways, ExpiresIn: Duration(-time.Hour)}, ""},
		"a kind that there is not":        {"~/a", ro, Decision{Kind: 7, Path: "~/a", Access: ro}, ""},
		"a reason that is too long":       {"~/a", ro, Decision{Kind: AllowOnce, Path: "~/a", Access: ro, Reason: strings.Repeat("x", MaxReason+1)}, ""},
		"a way that is more than a word":  {"~/a", ro, Decision{Kind: AllowOnce, Path: "~/a", Access: ro, Via: "the\x1b[2Jweb"}, ""},
		"our own files, below":            {"~/", ro, Decision{Kind: AllowOnce, Path: "~/.config/clai-sandbox", Access: ro}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			place, err := rules.Decide(ask(t, rules, c.asked, c.access), c.decision)
			switch {
			case c.want == "" && err == nil:
				t.Errorf("granted %+v", place)
			case c.want != "" && (err != nil || place.Resolved != home+c.want):
				t.Errorf("%+v, %v", place, err)
			}
			if err != nil && place != (Place{}) {
				t.Errorf("refused, and yet %+v", place)
			}
		})
	}
}

func TestADenialNeedsNoPath(t *testing.T) {
	rules := testRules(newHome(t))
	if _, err := rules.Decide(ask(t, rules, "~/a", profile.ReadOnly), Decision{}); err != nil {
		t.Error(err)
	}
}

func TestWhatChangedSinceTheQuestionIsNotGranted(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, path string){
		"a link in its place": func(t *testing.T, path string) {
			os.Rename(path, path+".old")
			link(t, "/etc", path)
		},
		"a link back to it": func(t *testing.T, path string) {
			os.Rename(path, path+".old")
			link(t, path+".old", path)
		},
		"another file of that name": func(t *testing.T, path string) {
			os.Rename(path, path+".old")
			write(t, path, "other")
		},
		"a link in the place of its parent": func(t *testing.T, path string) {
			parent := filepath.Dir(path)
			os.Rename(parent, parent+".old")
			write(t, parent+".other/file", "")
			link(t, parent+".other", parent)
		},
		"nothing": func(t *testing.T, path string) { os.Remove(path) },
	} {
		t.Run(name, func(t *testing.T) {
			home := newHome(t)
			rules := testRules(home)
			path := home + "/dir/file"
			write(t, path, "")
			q := ask(t, rules, path, profile.ReadOnly)
			change(t, path)
			place, err := rules.Decide(q, Decision{Kind: AllowOnce, Path: path, Access: profile.ReadOnly})
			var changed *ChangedError
			if !errors.As(err, &changed) || place != (Place{}) {
				t.Errorf("%+v, %v", place, err)
			}
		})
	}
}

func TestADecisionMustSayItsKind(t *testing.T) {
	for text, ok := range map[string]bool{
		`[]`: false, `{"kind":"deny","pth":"/a"}`: false,
		`{}`:               false,
		`{"path":"/a"}`:    false,
		`{"kind":""}`:      false,
		`{"kind":"allow"}`: false,
		`{"kind":null}`:    false,
		`{"kind":1}`:       false,
		`{"kind":"deny"}`:  true,
		`{"kind":"Deny"}`:  false,
		`{"kind":"allowOnce","path":"/a","access":"read_only"}`:                                        true,
		`{"kind":"allowAlways","path":"/a","access":"read_write","scope":"agent","expiresIn":"2h"}`:    true,
		`{"kind":"allowAlways","path":"/a","access":"read_write","scope":"agent","expiresIn":"later"}`: false,
		`{"kind":"allowOnce","path":"/a","access":"none"}`:                                             false,
	} {
		var d Decision
		if err := d.Parse([]byte(text)); (err == nil) != ok {
			t.Errorf("%s: %+v, %v", text, d, err)
		}
	}
}

// A person who is shown where a path leads by now may still not allow what nobody may: the refusal
// is of the place at the decision.
func TestWhatNobodyMayGrantIsRefusedAtTheDecisionToo(t *testing.T) {
	for name, target := range map[string]string{"around our own files": "/.config", "our own files": "/.config/clai-sandbox", "the programs": "/bin", "around the programs": "",
		"a process": "/process", "a device": "/device"} {
		t.Run(name, func(t *testing.T) {
			home := newHome(t)
			write(t, home+"/.config/clai-sandbox/config.json", "")
			write(t, home+"/bin/bwrap", "")
			link(t, "/proc/1", home+"/process")
			link(t, "/dev/null", home+"/device")
			rules := NewRules(home, []string{home + "/.config/clai-sandbox"}, []string{home + "/bin"})
			path := home + "/dir"
			write(t, path+"/file", "")
			q := ask(t, rules, path, profile.ReadWrite)
			os.Rename(path, path+".old")
			link(t, home+target, path)
			d := Decision{Kind: AllowOnce, Path: path, Access: profile.ReadWrite}
			_, err := rules.Decide(q, d)
			var changed *ChangedError
			if errors.As(err, &changed) { // the person is shown this, and says yes to it
				q.Place = changed.Now
				_, err = rules.Decide(q, d)
			}
			var never *NeverError
			if !errors.As(err, &never) {
				t.Errorf("%v", err)
			}
		})
	}
}

package grants

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

func TestAQuestionMeansOnePlaceOrIsRefused(t *testing.T) {
	home := newHome(t)
	write(t, home+"/real/file", "")
	link(t, "real", home+"/link")
	link(t, "nowhere/at/all", home+"/dangling")
	link(t, "missing/../../up", home+"/up")
	link(t, "loop", home+"/loop")
	rules := testRules(home)
	for typed, want := range map[string]string{
		"  ~/real\t\n":                   home + "/real",
		"~":                              home,
		"~/link/file":                    home + "/real/file",
		"~/link/new/file":                home + "/real/new/file",
		"~/dangling":                     home + "/nowhere/at/all",
		"~/dangling/x":                   home + "/nowhere/at/all/x",
		home + "//real/./../real/":       home + "/real",
		"":                               "",
		"   ":                            "",
		"real":                           "",
		"./real":                         "",
		"~root":                          "",
		"~root/x":                        "",
		"~/a\x00b":                       "",
		"~/\xff":                         "",
		"~/loop":                         "",
		"~/up":                           "",
		"~/real/file/below-a-file":       "",
		"/" + strings.Repeat("a/", 3000): "",
		"/" + strings.Repeat("a", 256):   "",
	} {
		q, err := rules.Ask(typed, profile.ReadOnly, "")
		if want == "" && err == nil || want != "" && (err != nil || q.Place.Resolved != want) {
			t.Errorf("%.60q: %+v, %v; want %q", typed, q.Place, err, want)
		}
	}
}

func TestSomePlacesAreNeverGranted(t *testing.T) {
	home := newHome(t)
	write(t, home+"/.config/clai-sandbox/config.json", "")
	link(t, "/proc/1", home+"/process")
	link(t, "/", home+"/root")
	link(t, ".config/clai-sandbox", home+"/state")
	link(t, "/dev/null", home+"/null")
	rules := testRules(home)
	const ro, rw = profile.ReadOnly, profile.ReadWrite
	for _, c := range []struct {
		path   string
		access profile.Access
		never  bool
	}{
		{"/", ro, true}, {"/..", ro, true}, {"/proc", ro, true}, {"/proc/self/environ", ro, true}, {"/sys/kernel", ro, true},
		{"/dev/null", ro, true}, {"/run/user/0/bus", ro, true}, {"/etc/../proc", ro, true},
		{"~/process", ro, true}, {"~/root", ro, true}, {"~/root/etc", ro, false}, {"~/null", ro, true},
		{"~/.config/clai-sandbox", ro, true}, {"~/.config/clai-sandbox/config.json", ro, true}, {"~/state", ro, true},
		{"~/state/config.json", ro, true},
		{"~/.config", ro, false}, {"~/.config", rw, true}, {"~", ro, false}, {"~", rw, true},
		{"/usr/bin", ro, false}, {"/usr/bin", rw, true}, {"/usr", rw, true}, {"/usr/bin/env", rw, true}, {"/usr/share", rw, false},
		{"~/.configuration", rw, false},
	} {
		_, err := rules.Ask(c.path, c.access, "")
		var never *NeverError
		if errors.As(err, &never) != c.never || !c.never && err != nil {
			t.Errorf("%s %v: %v", c.path, c.access, err)
		}
	}
}

func TestAPersonIsWarnedOfWhatIsExecutedLater(t *testing.T) {
	home := newHome(t)
	rules := testRules(home)
	for path, want := range map[string]bool{"/p/.git/hooks": true, "/p/.envrc": true, "/.bashrc": true, "/p/.vscode/x": true, "/p/src": false, "/p/x.envrc": false} {
		for _, access := range []profile.Access{profile.ReadOnly, profile.ReadWrite} {
			found := slices.ContainsFunc(rules.Warnings(ask(t, rules, home+path, access)), func(w Warning) bool { return w.Kind == WarnExecuted })
			if found != (want && access == profile.ReadWrite) {
				t.Errorf("%s %v: %v", path, access, found)
			}
		}
	}
}

func TestAPersonIsWarned(t *testing.T) {
	home := newHome(t)
	write(t, home+"/.ssh/id_ed25519", "")
	write(t, home+"/project/src/main.go", "")
	link(t, "project", home+"/link")
	rules := testRules(home)
	for path, want := range map[string][]WarningKind{
		"~":                {WarnTooBroad, WarnSensitive},
		"/etc":             {WarnTooBroad, WarnSensitive},
		"/usr":             {WarnTooBroad},
		"/var":             {WarnTooBroad, WarnSensitive},
		filepath.Dir(home): {WarnTooBroad, WarnSensitive},
		"~/.ssh":           {WarnSensitive},
		"~/.ssh/known":     {WarnMissing, WarnSensitive},
		"~/project":        {},
		"~/link/src":       {WarnElsewhere},
		"~/project/x":      {WarnMissing},
		"~/project/.env":   {WarnMissing, WarnSensitive},
	} {
		kinds := []WarningKind{}
		for _, w := range rules.Warnings(ask(t, rules, path, profile.ReadOnly)) {
			kinds = append(kinds, w.Kind)
		}
		if !slices.Equal(kinds, want) {
			t.Errorf("%s: %v, want %v", path, kinds, want)
		}
	}
}

// A link to a directory above the home stands for a home that is reached through one, as where
// /home is /var/home.
func TestAHomeBehindALinkIsAHome(t *testing.T) {
	real := newHome(t)
	link(t, real, real+"-link")
	defer os.Remove(real + "-link")
	rules := NewRules(real+"-link", []string{real + "-link/.state"}, nil)
	for _, path := range []string{real, "~", real + "-link"} {
		if w := rules.Warnings(ask(t, rules, path, profile.ReadOnly)); len(w) == 0 || w[len(w)-2].Kind != WarnTooBroad {
			t.Errorf("%s: %v", path, w)
		}
	}
	os.Mkdir(real+"/.state", 0o700)
	if _, err := NewRules(real+"-link", []string{real + "-link/.state"}, nil).Ask(real+"/.state/x", profile.ReadOnly, ""); err == nil {
		t.Error("our own state was reached round the link")
	}
}

func FuzzAsk(f *testing.F) {
	for _, seed := range []string{"~/a", "/a/../etc", "~root", " /x ", "/a\x00b", "/a/\u202eb", "//", "/proc/self/root"} {
		f.Add(seed)
	}
	home := newHome(f)
	link(f, "/etc", home+"/out")
	rules := testRules(home)
	f.Fuzz(func(t *testing.T, path string) {
		q, err := rules.Ask(path, profile.ReadOnly, "")
		if err != nil {
			if strings.ContainsAny(err.Error(), "\x00\x1b\n\u202e\u2028") {
				t.Errorf("an error would reach a terminal: %q", err)
			}
			return
		}
		for _, p := range []string{q.Place.Typed, q.Place.Resolved} {
			if !filepath.IsAbs(p) || filepath.Clean(p) != p {
				t.Errorf("%q: not absolute and clean", p)
			}
			if _, never := profile.NeverGrantable(p); never {
				t.Errorf("%q may never be granted", p)
			}
		}
		if _, err := rules.Decide(q, Decision{Kind: AllowOnce, Path: q.Place.Typed, Access: profile.ReadOnly}); err != nil {
			t.Errorf("what was asked for cannot be granted: %v", err)
		}
	})
}

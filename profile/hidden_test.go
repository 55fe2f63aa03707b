package profile

import (
	"slices"
	"strings"
	"testing"
)

func TestCredentialStoresAreAlwaysHidden(t *testing.T) {
	for _, config := range []string{"", `{"defaults": {"execution": {"filesystem": {"hiddenPaths": []}}}}`,
		`{"defaults": {"execution": {"filesystem": {"hiddenPaths": ["~/mine", "/srv/keys"]}}}}`} {
		p, err := resolve(t, config, Request{Hide: []string{"~/flag"}})
		if err != nil {
			t.Fatal(err)
		}
		hides := func(path string) bool {
			return slices.ContainsFunc(p.Hidden, func(h HiddenPath) bool { return h.Path == path })
		}
		for _, path := range []string{"/home/u/.ssh", "/home/u/.aws", "/home/u/.netrc", "/home/u/.config/gh", "/home/u/.mozilla", "/home/u/.bash_history", "/home/u/flag"} {
			if !hides(path) {
				t.Errorf("%s: %s is not hidden", config, path)
			}
		}
		if added := strings.Contains(config, "mine"); hides("/home/u/mine") != added || hides("/srv/keys") != added {
			t.Errorf("%s: %v", config, p.Hidden)
		}
	}
}

func TestHiddenPathsThatCannotBeMeant(t *testing.T) {
	for text, want := range map[string]string{"": "is empty", "-x": "looks like an option", "~other/x": "another user's home", "/": "the whole file system", "/x\x00": "NUL", "/x/*.pem": "is a pattern"} {
		if _, err := resolve(t, "", Request{Hide: []string{text}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--hide %q: %v", text, err)
		}
	}
	if _, err := resolve(t, `{"defaults": {"execution": {"filesystem": {"hiddenPaths": ["x"]}}}}`, Request{}); err == nil || !strings.Contains(err.Error(), "~/…") {
		t.Errorf("no hint: %v", err)
	}
	for _, key := range []string{"hiddenPaths", "protectedPaths"} {
		if _, err := resolve(t, `{"defaults": {"execution": {"filesystem": {"`+key+`": ["~/keys/**/*.pem"]}}}}`, Request{}); err == nil || !strings.Contains(err.Error(), "pattern") && !strings.Contains(err.Error(), "writable directory") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestAnExplicitGrantSaysSo(t *testing.T) {
	for text, want := range map[string]Grant{
		"/a":             {Path: "/a", Access: ReadOnly},
		"/a:explicit":    {Path: "/a", Access: ReadOnly, Explicit: true},
		"/a:rw:explicit": {Path: "/a", Access: ReadWrite, Explicit: true},
		"/a:explicit:rw": {Path: "/a:explicit", Access: ReadWrite},
	} {
		g, err := ParseGrant(text, "/work", "/home/u")
		g.Origin = Origin{}
		if err != nil || g != want {
			t.Errorf("%s: %+v, %v", text, g, err)
		}
	}
	p, err := resolve(t, `{"defaults": {"execution": {"filesystem": {"extraPaths": [{"path": "/x", "access": "read_only", "explicit": true}]}}}}`, Request{})
	if err != nil || !p.Grants[0].Explicit {
		t.Errorf("%+v, %v", p.Grants, err)
	}
}

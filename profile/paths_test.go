package profile

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

func TestAPathIsMadeAbsoluteOrRefused(t *testing.T) {
	long := strings.Repeat("n", 256)
	for _, c := range []struct {
		typed, want, why string // either what it becomes, or what is said against it
	}{
		{"~", "/home/u", ""},
		{"~/", "/home/u", ""},
		{"~/x/y", "/home/u/x/y", ""},
		{"/a/b", "/a/b", ""},
		{"/a//b/./c/", "/a/b/c", ""},
		{"/a/../etc", "/etc", ""},
		{"/a/~", "/a/~", ""},
		{"/with space and\nline", "/with space and\nline", ""},
		{"/" + long[1:], "/" + long[1:], ""},
		{"", "", "is empty"},
		{"a", "", "is relative"},
		{"./a", "", "is relative"},
		{"../a", "", "is relative"},
		{"--bind", "", "is relative"},
		{"~root", "", "another user's home"},
		{"~root/x", "", "another user's home"},
		{"/a\x00b", "", "NUL"},
		{"\x00", "", "NUL"},
		{"/" + long, "", "a name of 256 bytes"},
		{"/" + strings.Repeat("a/", 2100), "", "bytes long"},
	} {
		got, err := ExpandPath(c.typed, "/home/u")
		var refused *PathError
		if c.why == "" {
			if err != nil || got != c.want {
				t.Errorf("%q became %q, %v", c.typed, got, err)
			}
		} else if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.why) || !oneSafeLine(err.Error()) {
			t.Errorf("%q: %q, %v", c.typed, got, err)
		}
	}
}

func TestARelativePathIsAnsweredWithAWholeOne(t *testing.T) {
	_, err := ExpandPath("./data", "/home/u")
	if want := `path "./data": is relative; write the whole path, for example "$PWD/data"`; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestWithoutAHomeNoPathIsBelowIt(t *testing.T) {
	for _, home := range []string{"", "relative", "."} {
		for _, typed := range []string{"~", "~/x"} {
			if got, err := ExpandPath(typed, home); err == nil {
				t.Errorf("%q with home %q became %q", typed, home, got)
			}
		}
	}
}

func FuzzExpandPath(f *testing.F) {
	for _, seed := range []string{"~", "~/x", "/a/../b", "", "~x", "/\x00", "//", "/." + strings.Repeat("/x", 3000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, typed string) {
		got, err := ExpandPath(typed, "/home/u")
		if err != nil {
			if !oneSafeLine(err.Error()) {
				t.Errorf("the message is more than a line of text: %q", err)
			}
			return
		}
		if !filepath.IsAbs(got) || filepath.Clean(got) != got || strings.IndexByte(got, 0) >= 0 {
			t.Errorf("%q became %q", typed, got)
		}
		if again, err := ExpandPath(got, "/home/u"); err != nil || again != got {
			t.Errorf("%q became %q, and that %q, %v", typed, got, again, err)
		}
	})
}

func TestAGrantIsReadOnlyUnlessItSaysOtherwise(t *testing.T) {
	for _, c := range []struct {
		text, path string
		access     Access
	}{
		{"/a", "/a", ReadOnly}, {"/a:ro", "/a", ReadOnly}, {"/a:rw", "/a", ReadWrite}, {"~/x:rw", "/home/u/x", ReadWrite},
		{"a", "/work/a", ReadOnly}, {"a:rw", "/work/a", ReadWrite}, {"../a:cow", "/a", CopyOnWrite}, {".", "/work", ReadOnly}, {"./--x", "/work/--x", ReadOnly},
		{"/a:read_only", "/a", ReadOnly}, {"/a:read_write", "/a", ReadWrite},
		{"/a:b:ro", "/a:b", ReadOnly}, {"/a:b:rw", "/a:b", ReadWrite}, {"/a::ro", "/a:", ReadOnly}, {"/a:rw:ro", "/a:rw", ReadOnly}, {"/a:b/c", "/a:b/c", ReadOnly},
	} {
		g, err := ParseGrant(c.text, "/work", "/home/u")
		if err != nil || g.Path != c.path || g.Access != c.access || g.Origin.Kind != OriginFlag || g.Origin.Source != "--grant "+c.text {
			t.Errorf("%s: %+v, %v", c.text, g, err)
		}
	}
	// What stands behind the last colon is an access. A mistyped one is no other path.
	for _, text := range []string{"", ":ro", ":rw", "--network:rw", "~b:rw", "/a:rx", "/a:r", "/a:", "/a:RW", "/a:rw ", "/a:ro,rw", "/a:rx:explicit", "/a:explicit:rx", "/a:explicit:", "/a:b"} {
		if g, err := ParseGrant(text, "/work", "/home/u"); err == nil {
			t.Errorf("%q became %+v", text, g)
		}
	}
}

func FuzzParseGrant(f *testing.F) {
	for _, seed := range []string{"/a", "~:rw", "/a:ro", ":rw", "/a:b:read_write", "/\x1b:rw", "/a::ro", "a:rw", "/\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		g, err := ParseGrant(text, "/work", "/home/u")
		if err != nil {
			if !oneSafeLine(err.Error()) {
				t.Errorf("the message is more than a line of text: %q", err)
			}
			return
		}
		if !filepath.IsAbs(g.Path) || filepath.Clean(g.Path) != g.Path || strings.IndexByte(g.Path, 0) >= 0 || !g.Access.Grantable() {
			t.Errorf("%q became %+v", text, g)
		}
		if g.Access == ReadWrite && !strings.HasSuffix(text, ":rw") && !strings.HasSuffix(text, ":read_write") {
			t.Errorf("%q became writable", text)
		}
		if strings.IndexFunc(g.Origin.String(), func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
			t.Errorf("%q comes from %q", text, g.Origin)
		}
		// Its path with its access written out is the same grant.
		again, err := ParseGrant(g.Path+":"+g.Access.String(), "/work", "/home/u")
		if err != nil || again.Path != g.Path || again.Access != g.Access {
			t.Errorf("%q became %+v, and that %+v, %v", text, g, again, err)
		}
	})
}

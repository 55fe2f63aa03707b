package files

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestEdit(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		edits []Replacement
		want  string
		code  Code
		says  string // part of the error
	}{
		"one place":                       {text: "a\nb\nc\n", edits: []Replacement{{OldText: "b", NewText: "x"}}, want: "a\nx\nc\n"},
		"nothing in its place":            {text: "a\nb\nc\n", edits: []Replacement{{OldText: "b\n"}}, want: "a\nc\n"},
		"several see those before":        {text: "a\n", edits: []Replacement{{OldText: "a", NewText: "b"}, {OldText: "b", NewText: "c"}}, want: "c\n"},
		"all of them or none":             {text: "a\n", edits: []Replacement{{OldText: "a", NewText: "b"}, {OldText: "a", NewText: "c"}}, code: NoMatch, says: "edit 2 of 2"},
		"two places":                      {text: "a\na\n", edits: []Replacement{{OldText: "a", NewText: "b"}}, code: Ambiguous, says: "2 times, in lines 1, 2"},
		"two places that overlap":         {text: "aaa", edits: []Replacement{{OldText: "aa", NewText: "b"}}, code: Ambiguous},
		"all places":                      {text: "a\na\n", edits: []Replacement{{OldText: "a", NewText: "b", ReplaceAll: true}}, want: "b\nb\n"},
		"all places where none is":        {text: "a\n", edits: []Replacement{{OldText: "b", NewText: "c", ReplaceAll: true}}, code: NoMatch},
		"CRLF stays":                      {text: "a\r\nb\r\nc\r\n", edits: []Replacement{{OldText: "a\nb", NewText: "x\ny\nz"}}, want: "x\r\ny\r\nz\r\nc\r\n"},
		"CRLF comes to new lines":         {text: "a\r\nb\r\n", edits: []Replacement{{OldText: "b", NewText: "x\ny"}}, want: "a\r\nx\r\ny\r\n"},
		"sent with CRLF":                  {text: "a\r\nb\r\n", edits: []Replacement{{OldText: "a\r\nb", NewText: "x\r\ny"}}, want: "x\r\ny\r\n"},
		"sent with CRLF for LF":           {text: "a\nb\n", edits: []Replacement{{OldText: "a\r\nb", NewText: "x\r\ny"}}, want: "x\ny\n"},
		"mixed ends stay elsewhere":       {text: "a\r\nb\nc\r\nd\n", edits: []Replacement{{OldText: "b\nc", NewText: "x"}}, want: "a\r\nx\r\nd\n"},
		"a line end goes whole":           {text: "a\r\nb\r\n", edits: []Replacement{{OldText: "a\n"}}, want: "b\r\n"},
		"a lone carriage return":          {text: "a\rb\r\n", edits: []Replacement{{OldText: "a\rb", NewText: "c"}}, want: "c\r\n"},
		"a byte order mark stays":         {text: "\uFEFFa\nb", edits: []Replacement{{OldText: "a", NewText: "x"}}, want: "\uFEFFx\nb"},
		"other bytes stay":                {text: "caf\xe9\na\n", edits: []Replacement{{OldText: "a\n", NewText: "b\n"}}, want: "caf\xe9\nb\n"},
		"no text to find":                 {text: "a", edits: []Replacement{{OldText: "", NewText: "b"}}, code: Invalid},
		"no change":                       {text: "a", edits: []Replacement{{OldText: "a", NewText: "a"}}, code: Invalid},
		"white space differs":             {text: "x\n\tif a {\n", edits: []Replacement{{OldText: "    if a {", NewText: "b"}}, code: NoMatch, says: "line 2 differs only in white space"},
		"a line is like it":               {text: "x\nfunc newHost(t *testing.T)\n", edits: []Replacement{{OldText: "func newHosts(t *testing.T)", NewText: "b"}}, code: NoMatch, says: "line 2 is the nearest"},
		"binary":                          {text: "a\x00b", edits: []Replacement{{OldText: "a", NewText: "b"}}, code: Binary},
		"would grow too large, all of it": {text: strings.Repeat("a", 1<<20), edits: []Replacement{{OldText: "a", NewText: strings.Repeat("b", 1000), ReplaceAll: true}}, code: TooLarge},
	} {
		tools := here(t)
		path := put(t, tools.at("file"), c.text)
		result, err := tools.edit(Edit{Path: "file", Edits: c.edits})
		want := c.want
		if c.code != "" {
			want = c.text
		}
		if codeOf(err) != c.code || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if got := content(t, path); got != want {
			t.Errorf("%s: %.80q, and not %.80q", name, got, want)
		}
		if err == nil && (result.Bytes != len(want) || result.Replacements == 0) {
			t.Errorf("%s: %+v", name, result)
		}
	}
}

// FuzzEdit holds edits against the obvious: in text without carriage returns, they are
// strings.Replace.
func FuzzEdit(f *testing.F) {
	f.Add("a\nb\n", "b", "c", true)
	f.Add("a\r\nb\r\n", "a\nb", "c\n", false)
	f.Add("\uFEFFaaa", "aa", "b", true)
	f.Fuzz(func(t *testing.T, text, old, fresh string, all bool) {
		if len(text) > 1<<16 || len(fresh) > 1<<10 {
			return
		}
		folded := fold([]byte(text))
		if got := string(folded.mark) + string(folded.raw(0, len(folded.text))); got != text {
			t.Fatalf("%q comes back as %q", text, got)
		}
		changed, _, count, failed := Replacement{old, fresh, all}.in([]byte(text))
		if strings.Contains(text+old+fresh, "\r") || strings.HasPrefix(text, "\uFEFF") {
			return
		}
		switch n := strings.Count(text, old); {
		case old == "" || old == fresh:
			if failed == nil || failed.Code != Invalid {
				t.Fatalf("%+v", failed)
			}
		case n == 0:
			if failed == nil || failed.Code != NoMatch {
				t.Fatalf("%+v", failed)
			}
		case all:
			if failed != nil || count != n || string(changed) != strings.ReplaceAll(text, old, fresh) {
				t.Fatalf("%+v, %d of %d, %q", failed, count, n, changed)
			}
		case failed == nil:
			if n != 1 || string(changed) != strings.Replace(text, old, fresh, 1) {
				t.Fatalf("%d places, %q", n, changed)
			}
		case failed.Code != Ambiguous:
			t.Fatal(failed)
		}
	})
}

func TestWriteReplacesInOneStepAndKeepsWhatTheFileIs(t *testing.T) {
	tools := here(t)
	path := put(t, tools.at("file"), "old")
	if err := os.Chmod(path, 0o750); err != nil {
		t.Fatal(err)
	}
	before, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	if r, err := tools.write(Write{Path: "file", Content: "new"}); err != nil || r.Created || r.InPlace {
		t.Errorf("%+v, %v", r, err)
	}
	var text [8]byte
	if n, _ := before.Read(text[:]); string(text[:n]) != "old" {
		t.Errorf("who had the file open reads %q: it was not replaced in one step", text[:n])
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o750 || content(t, path) != "new" {
		t.Errorf("%v %q", info.Mode(), content(t, path))
	}

	if err := os.Link(path, tools.at("other name")); err != nil {
		t.Fatal(err)
	}
	if r, err := tools.write(Write{Path: "file", Content: "newer, and longer"}); err != nil || !r.InPlace || content(t, tools.at("other name")) != "newer, and longer" {
		t.Errorf("a file with two names: %+v, %v", r, err)
	}
	if r, err := tools.write(Write{Path: "file", Content: "short"}); err != nil || !r.InPlace || content(t, path) != "short" {
		t.Errorf("a shorter one in place: %+v, %v, %q", r, err, content(t, path))
	}

	put(t, tools.at("dir/target"), "x")
	os.Symlink("dir/target", tools.at("link"))
	os.Symlink("dir/not yet", tools.at("dangling"))
	for link, target := range map[string]string{"link": "dir/target", "dangling": "dir/not yet"} {
		if r, err := tools.write(Write{Path: link, Content: "through " + link}); err != nil || content(t, tools.at(target)) != "through "+link {
			t.Errorf("through a link: %+v, %v", r, err)
		}
		if info, _ := os.Lstat(tools.at(link)); info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s is no link any more", link)
		}
	}
	os.Symlink("loop", tools.at("loop"))
	if _, err := tools.write(Write{Path: "loop", Content: "x"}); codeOf(err) != Invalid {
		t.Errorf("a link to itself: %v", err)
	}
	if _, err := tools.write(Write{Path: "no/such/dir/file", Content: "x"}); codeOf(err) != NotFound {
		t.Errorf("no directory: %v", err)
	}
	if _, err := tools.write(Write{Path: "file/below", Content: "x", CreateParents: true}); codeOf(err) != NotFound {
		t.Errorf("below a file: %v", err)
	}
	if _, err := tools.write(Write{Path: "dir", Content: "x"}); codeOf(err) != IsDirectory {
		t.Errorf("a directory: %v", err)
	}
	os.Chmod(path, 0o444)
	if _, err := tools.write(Write{Path: "file", Content: "x"}); os.Getuid() != 0 && codeOf(err) != Denied {
		t.Errorf("a file that may not be written: %v", err)
	}
}

func TestWriteInPlaceThatFailsPutsBackWhatWasThere(t *testing.T) {
	tools := here(t)
	path := put(t, tools.at("file"), strings.Repeat("old ", 1000))
	if err := os.Link(path, tools.at("other name")); err != nil {
		t.Fatal(err)
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 8000, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	_, err := tools.write(Write{Path: "file", Content: strings.Repeat("n", 16000)})
	syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was)
	if codeOf(err) != TooLarge {
		t.Errorf("%v", err)
	}
	if got := content(t, path); got != strings.Repeat("old ", 1000) {
		t.Errorf("%d bytes, %.20q", len(got), got)
	}
}

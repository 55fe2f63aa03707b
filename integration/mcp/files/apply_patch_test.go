package files

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// everything are all files below a directory with their content, and links with their text.
func everything(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		below, _ := filepath.Rel(dir, path)
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			all[below+"/"] = ""
		case entry.Type()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			all[below] = "-> " + to
		default:
			info, _ := entry.Info()
			all[below] = content(t, path)
			if info.Mode()&0o100 != 0 {
				all[below] += " (executable)"
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	delete(all, "./")
	return all
}

func TestApplyPatch(t *testing.T) {
	before := map[string]string{"a": "one\ntwo\nthree\n", "b": "x\ny\n", "windows": "one\r\ntwo\r\nthree\r\n", "mark": "\uFEFFone\ntwo\n", "endless": "one\ntwo",
		"code": "func a() {\n\treturn\n}\n\nfunc b() {\n\treturn\n}\n", "spaces": "one  \ntwo\n", "d/deep": "deep\n", "binary": "a\x00b"}
	marked := func(lines ...string) string {
		return "*** Begin Patch\n" + strings.Join(lines, "\n") + "\n*** End Patch\n"
	}
	for name, c := range map[string]struct {
		patch string
		after map[string]string // what is other than before; "gone" is gone
		code  Code
		says  string
	}{
		"a line":                      {patch: marked("*** Update File: a", "@@", " one", "-two", "+2", " three"), after: map[string]string{"a": "one\n2\nthree\n"}},
		"without @@":                  {patch: marked("*** Update File: a", "-two", "+2"), after: map[string]string{"a": "one\n2\nthree\n"}},
		"behind an anchor":            {patch: marked("*** Update File: code", "@@ func b() {", "-\treturn", "+\tpanic(1)"), after: map[string]string{"code": "func a() {\n\treturn\n}\n\nfunc b() {\n\tpanic(1)\n}\n"}},
		"two places and no anchor":    {patch: marked("*** Update File: code", "@@", "-\treturn", "+\tpanic(1)"), code: Ambiguous, says: "2 times, at lines 2, 6"},
		"an anchor that is not there": {patch: marked("*** Update File: code", "@@ func c() {", "-\treturn", "+\tpanic(1)"), code: NoMatch, says: `no line "func c() {"`},
		"two hunks":                   {patch: marked("*** Update File: a", "@@", "-one", "+1", "@@", "-three", "+3"), after: map[string]string{"a": "1\ntwo\n3\n"}},
		"hunks in another order":      {patch: marked("*** Update File: a", "@@", "-three", "+3", "@@", "-one", "+1"), code: NoMatch},
		"at the end":                  {patch: marked("*** Update File: a", "@@", " three", "+four", "*** End of File"), after: map[string]string{"a": "one\ntwo\nthree\nfour\n"}},
		"not at the end":              {patch: marked("*** Update File: a", "@@", " two", "+four", "*** End of File"), code: NoMatch},
		"added at the end":            {patch: marked("*** Update File: a", "@@", "+four"), after: map[string]string{"a": "one\ntwo\nthree\nfour\n"}},
		"no end of the last line":     {patch: marked("*** Update File: endless", "-two", "+2"), after: map[string]string{"endless": "one\n2"}},
		"add":                         {patch: marked("*** Add File: new/dir/c", "+1", "+", "+3"), after: map[string]string{"new/": "", "new/dir/": "", "new/dir/c": "1\n\n3\n"}},
		"add an empty file":           {patch: marked("*** Add File: c"), after: map[string]string{"c": ""}},
		"add what is there":           {patch: marked("*** Add File: a", "+1"), code: Exists},
		"delete":                      {patch: marked("*** Delete File: a"), after: map[string]string{"a": "gone"}},
		"delete what is not there":    {patch: marked("*** Delete File: c"), code: NotFound},
		"delete a directory":          {patch: marked("*** Delete File: d"), code: IsDirectory},
		"delete and add":              {patch: marked("*** Delete File: a", "*** Add File: a", "+1"), after: map[string]string{"a": "1\n"}},
		"move":                        {patch: marked("*** Update File: a", "*** Move to: e/f"), after: map[string]string{"a": "gone", "e/": "", "e/f": "one\ntwo\nthree\n"}},
		"move and change":             {patch: marked("*** Update File: a", "*** Move to: f", "@@", "-two", "+2"), after: map[string]string{"a": "gone", "f": "one\n2\nthree\n"}},
		"move onto what is there":     {patch: marked("*** Update File: a", "*** Move to: b"), code: Exists},
		"all or nothing":              {patch: marked("*** Update File: a", "-two", "+2", "*** Delete File: b", "*** Update File: nothing", "-a", "+b"), code: NotFound, says: "nothing was changed"},
		"all or nothing, of a file":   {patch: marked("*** Update File: a", "-two", "+2", "@@", "-nothing", "+b"), code: NoMatch},
		"CRLF":                        {patch: marked("*** Update File: windows", " one", "-two", "+2", "+2b"), after: map[string]string{"windows": "one\r\n2\r\n2b\r\nthree\r\n"}},
		"CRLF in the patch":           {patch: strings.ReplaceAll(marked("*** Update File: a", " one", "-two", "+2"), "\n", "\r\n"), after: map[string]string{"a": "one\n2\nthree\n"}},
		"a byte order mark":           {patch: marked("*** Update File: mark", "-one", "+1"), after: map[string]string{"mark": "\uFEFF1\ntwo\n"}},
		"white space at the end":      {patch: marked("*** Update File: spaces", " one", "-two", "+2"), after: map[string]string{"spaces": "one  \n2\n"}},
		"other white space":           {patch: marked("*** Update File: code", "@@ func b() {", "-    return", "+\tx"), code: NoMatch},
		"a blank context line":        {patch: marked("*** Update File: code", " }", "", "-func b() {", "+func c() {"), after: map[string]string{"code": "func a() {\n\treturn\n}\n\nfunc c() {\n\treturn\n}\n"}},
		"says where it stops fitting": {patch: marked("*** Update File: a", " one", " zwei", "-three"), code: NoMatch, says: `before line 2, which is "two" where the patch has "zwei"`},
		"binary":                      {patch: marked("*** Update File: binary", "-a", "+b"), code: Binary},
		"no end":                      {patch: "*** Begin Patch\n*** Delete File: a\n", code: Invalid, says: "End Patch is missing"},
		"more behind the end":         {patch: marked("*** Delete File: a") + "*** Delete File: b\n", code: Invalid},
		"no path":                     {patch: marked("*** Delete File: "), code: Invalid},
		"nothing to do":               {patch: marked("*** Update File: a", "@@", " one"), code: Invalid},
		"words":                       {patch: "please change a", code: Invalid},
		"a path with NUL":             {patch: marked("*** Delete File: a\x00"), code: Invalid},

		"unified":                      {patch: "--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n", after: map[string]string{"a": "one\n2\nthree\n"}},
		"unified without a/":           {patch: "--- a.orig\t2020-01-01\n+++ a\t2020-01-01\n@@ -2 +2 @@\n-two\n+2\n", after: map[string]string{"a": "one\n2\nthree\n"}},
		"unified, other lines":         {patch: "--- a/a\n+++ b/a\n@@ -12,2 +12,2 @@\n-two\n+2\n three\n", after: map[string]string{"a": "one\n2\nthree\n"}},
		"unified, one of two places":   {patch: "--- a/code\n+++ b/code\n@@ -6 +6 @@\n-\treturn\n+\tx\n", after: map[string]string{"code": "func a() {\n\treturn\n}\n\nfunc b() {\n\tx\n}\n"}},
		"unified, neither of two":      {patch: "--- a/code\n+++ b/code\n@@ -4 +4 @@\n-\treturn\n+\tx\n", code: Ambiguous},
		"unified, wrong counts":        {patch: "--- a/a\n+++ b/a\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n three\n", code: Invalid, says: "ends too early"},
		"unified, more than it counts": {patch: "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n three\n", code: Invalid, says: "more lines"},
		"unified, a line -- goes":      {patch: "--- a/b\n+++ b/b\n@@ -1,2 +1 @@\n-x\n y\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+1\n", after: map[string]string{"b": "y\n", "a": "1\ntwo\nthree\n"}},
		"unified, new":                 {patch: "diff --git a/c b/c\nnew file mode 100755\nindex 0000000..1\n--- /dev/null\n+++ b/c\n@@ -0,0 +1 @@\n+1\n\\ No newline at end of file\n", after: map[string]string{"c": "1 (executable)"}},
		"unified, new and empty":       {patch: "diff --git a/c b/c\nnew file mode 100644\nindex 0000000..e69de29\n", after: map[string]string{"c": ""}},
		"unified, deleted":             {patch: "--- a/b\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-x\n-y\n", after: map[string]string{"b": "gone"}},
		"unified, deleted in part":     {patch: "--- a/a\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-one\n-two\n", code: NoMatch},
		"unified, renamed":             {patch: "diff --git a/a b/f\nsimilarity index 100%\nrename from a\nrename to f\n", after: map[string]string{"a": "gone", "f": "one\ntwo\nthree\n"}},
		"unified, a mode":              {patch: "diff --git a/a b/a\nold mode 100644\nnew mode 100755\n", after: map[string]string{"a": "one\ntwo\nthree\n (executable)"}},
		"unified, binary":              {patch: "diff --git a/a b/a\nindex 1..2 100644\nBinary files a/a and b/a differ\n", code: Invalid},
		"unified, a hunk alone":        {patch: "@@ -1 +1 @@\n-one\n+1\n", code: Invalid},
		"unified, the end of the last": {patch: "--- a/endless\n+++ b/endless\n@@ -2 +2 @@\n-two\n\\ No newline at end of file\n+two\n", after: map[string]string{"endless": "one\ntwo\n"}},
		"unified, insertion":           {patch: "--- a/a\n+++ b/a\n@@ -1,0 +2 @@\n+1.5\n", after: map[string]string{"a": "one\n1.5\ntwo\nthree\n"}},
		"unified, insertion nowhere":   {patch: "--- a/a\n+++ b/a\n@@ -99,0 +2 @@\n+1.5\n", code: NoMatch},
	} {
		tools := here(t)
		for path, text := range before {
			put(t, tools.at(path), text)
		}
		want := everything(t, tools.cwd)
		for path, text := range c.after {
			if want[path] = text; text == "gone" {
				delete(want, path)
			}
		}
		result, err := tools.applyPatch(ApplyPatch{c.patch})
		if codeOf(err) != c.code || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if got := everything(t, tools.cwd); !maps.Equal(got, want) {
			t.Errorf("%s: %q, and not %q", name, got, want)
		}
		if err == nil && len(result.Files) == 0 {
			t.Errorf("%s: no files in the result", name)
		}
	}
}

func TestAPatchThatCannotBeWrittenWholeIsTakenBack(t *testing.T) {
	h := newHost(t)
	h.file("work/a", "one\n")
	h.file("work/gone", "x\n")
	os.Symlink("a", filepath.Join(h.work, "link"))
	os.Chmod(h.file("work/tool", "#!/bin/sh\n"), 0o755)
	locked := h.file("locked/b", "two\n")
	h.profile.Grants = append(h.profile.Grants, h.profile.Grants[0])
	h.profile.Grants[1].Path, h.profile.Grants[1].Access = filepath.Dir(locked), 1
	before := everything(t, h.home)
	patch := "*** Begin Patch\n*** Update File: a\n-one\n+1\n*** Add File: new/dir/c\n+c\n*** Delete File: link\n*** Update File: tool\n*** Move to: moved\n" +
		"*** Delete File: gone\n*** Delete File: " + locked + "\n*** End Patch\n"
	if r := h.call(Request{ApplyPatch: &ApplyPatch{patch}}); r.Error == nil || r.Error.Code != ReadOnly || r.Error.Path != locked {
		t.Errorf("%+v", r)
	}
	if after := everything(t, h.home); !maps.Equal(before, after) {
		t.Errorf("%q\n%q", before, after)
	}
	patch = strings.ReplaceAll(patch, "*** Delete File: "+locked+"\n", "")
	if r := h.call(Request{ApplyPatch: &ApplyPatch{patch}}); r.Error != nil || len(r.ApplyPatch.Files) != 5 {
		t.Errorf("%+v", r)
	}
	if after := everything(t, h.work); after["moved"] != "#!/bin/sh\n (executable)" || after["a"] != "1\n" || len(after) != 6 {
		t.Errorf("%q", after)
	}
}

// document is a random text of lines that are often the same, with the line ends and the last line
// that files have.
func randomDocument(r *rand.Rand) []string {
	lines := make([]string, r.IntN(30))
	end := []string{"\n", "\r\n"}[r.IntN(2)]
	for i := range lines {
		if r.IntN(30) == 0 {
			end = []string{"\n", "\r\n"}[r.IntN(2)]
		}
		lines[i] = []string{"", "a", "b", "  a", "-- a", "++ b", "@@ x", "\\ c", "{", fmt.Sprint(r.IntN(50))}[r.IntN(10)] + end
	}
	if len(lines) > 0 && r.IntN(4) == 0 {
		if i := len(lines) - 1; strings.TrimRight(lines[i], "\r\n") != "" {
			lines[i] = strings.TrimRight(lines[i], "\r\n")
		}
	}
	return lines
}

func changedDocument(r *rand.Rand, lines []string) []string {
	var fresh []string
	for i, line := range lines {
		switch last := i == len(lines)-1; {
		case r.IntN(8) == 0:
		case r.IntN(8) == 0 && !last:
			fresh = append(fresh, fmt.Sprintf("new %d\n", r.IntN(9)), line)
		case r.IntN(8) == 0 && !last:
			fresh = append(fresh, fmt.Sprintf("other %d\r\n", r.IntN(9)))
		default:
			fresh = append(fresh, line)
		}
	}
	return fresh
}

func TestADiffOfGitsGivesTheFileThatGitCompared(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	tools := here(t)
	for range 150 {
		before := randomDocument(r)
		after := changedDocument(r, before)
		a, b := strings.Join(before, ""), strings.Join(after, "")
		if a == "" || b == "" || a == b {
			continue
		}
		put(t, tools.at("new/f"), b)
		path := put(t, tools.at("old/f"), a)
		diff := exec.Command("git", "diff", "--no-index", "--no-color", fmt.Sprintf("-U%d", 1+r.IntN(3)), "old/f", "new/f")
		diff.Dir = tools.cwd
		text, _ := diff.Output()
		patch := strings.NewReplacer("a/old/f", "a/old/f", "b/new/f", "b/old/f").Replace(string(text))
		_, err := tools.applyPatch(ApplyPatch{patch})
		if got := content(t, path); err != nil || got != b {
			t.Fatalf("%v\n%q\nbecame %q, and not\n%q with\n%s", err, a, got, b, patch)
		}
	}
}

// FuzzApplyPatch applies a diff, which it makes itself, and holds the result against the text that
// the diff was made from; and it applies what is no diff, after which nothing may have changed.
func FuzzApplyPatch(f *testing.F) {
	f.Add("a\nb\nc\n", "a\nx\nc\n", uint8(1), false)
	f.Add("a\r\nb\r\n", "a\r\nb\r\nc\r\n", uint8(0), true)
	f.Add("*** Begin Patch\n*** Update File: f\n@@ a\n-a\n+b\n*** End Patch", "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", uint8(2), true)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, a, b string, context uint8, mark bool) {
		if strings.ContainsAny(a+b, "\x00") || len(a)+len(b) > 4000 || !strings.HasSuffix(a, "\n") || !strings.HasSuffix(b, "\n") || a == b {
			return
		}
		tools := tools{cwd: dir}
		path := put(t, filepath.Join(dir, "f"), a)
		around := int(context % 4)
		if mark {
			around = max(around, 1) // without, what is put in goes to the end
		}
		diff := madeDiff(a, b, around, mark)
		_, err := tools.applyPatch(ApplyPatch{diff})
		got, same := content(t, path), withoutMark
		if !strings.Contains(diff, "\r\n") { // it does not know the line ends
			same = func(text string) string { return strings.ReplaceAll(withoutMark(text), "\r\n", "\n") }
		}
		switch ambiguous := codeOf(err) == Ambiguous || codeOf(err) == NoMatch; {
		case err != nil && mark && ambiguous && got == a: // it names no lines, so it may not say enough
		case err != nil || same(got) != same(b):
			t.Fatalf("%v\n%q\nbecame %q, and not\n%q with\n%s", err, a, got, b, diff)
		}
		put(t, path, a)
		if _, err := tools.applyPatch(ApplyPatch{b}); err != nil && content(t, path) != a {
			t.Fatalf("%v, and the file is %q", err, content(t, path))
		}
		entries, _ := os.ReadDir(dir)
		for _, entry := range entries {
			if entry.Name() != "f" {
				os.RemoveAll(filepath.Join(dir, entry.Name()))
			}
		}
	})
}

func withoutMark(text string) string { return strings.ReplaceAll(text, "\uFEFF", "") }

// madeDiff is a diff with one hunk: from the first line that differs to the last.
func madeDiff(a, b string, context int, mark bool) string {
	before, after := strings.SplitAfter(strings.TrimSuffix(a, "\n"), "\n"), strings.SplitAfter(strings.TrimSuffix(b, "\n"), "\n")
	before[len(before)-1] += "\n"
	after[len(after)-1] += "\n"
	head := 0
	for head < min(len(before), len(after)) && before[head] == after[head] {
		head++
	}
	tail := 0
	for tail < min(len(before), len(after))-head && before[len(before)-1-tail] == after[len(after)-1-tail] {
		tail++
	}
	from, behind := max(head-context, 0), min(context, tail)
	var body strings.Builder
	for _, part := range []struct {
		sign  string
		lines []string
	}{{" ", before[from:head]}, {"-", before[head : len(before)-tail]}, {"+", after[head : len(after)-tail]}, {" ", before[len(before)-tail : len(before)-tail+behind]}} {
		for _, line := range part.lines {
			body.WriteString(part.sign + line)
		}
	}
	if mark {
		return "*** Begin Patch\n*** Update File: f\n@@\n" + body.String() + "*** End Patch\n"
	}
	old, fresh := len(before)-tail+behind-from, len(after)-tail+behind-from
	start := from + 1
	if old == 0 {
		start--
	}
	return fmt.Sprintf("--- a/f\n+++ b/f\n@@ -%d,%d +%d,%d @@\n%s", start, old, from+1, fresh, body.String())
}

func TestAPatchThroughALinkChangesWhatItLeadsTo(t *testing.T) {
	tools := here(t)
	target := put(t, tools.at("target"), "one\n")
	os.Symlink("target", tools.at("link"))
	if _, err := tools.applyPatch(ApplyPatch{"*** Begin Patch\n*** Update File: link\n-one\n+1\n*** End Patch"}); err != nil || content(t, target) != "1\n" {
		t.Errorf("%v, %q", err, content(t, target))
	}
	if _, err := tools.applyPatch(ApplyPatch{"*** Begin Patch\n*** Delete File: link\n*** Add File: link\n+2\n*** End Patch"}); err != nil || content(t, target) != "1\n" || content(t, tools.at("link")) != "2\n" {
		t.Errorf("a link that is replaced: %v, %q", err, everything(t, tools.cwd))
	}
	if err := unix.Mkfifo(tools.at("pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := tools.applyPatch(ApplyPatch{"*** Begin Patch\n*** Delete File: pipe\n*** End Patch"}); codeOf(err) != NotRegular {
		t.Error(err)
	}
}

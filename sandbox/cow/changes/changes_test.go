package changes

import (
	"bytes"
	"context"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// everything makes a change of each kind.
func everything(t testing.TB) *bench {
	b := newBench(t).files("changed", "same", "touched", "gone", "dir/a", "dir/b", "dir/sub/c", "anew/old", "anew/both", "file", "todir", "tofile/x", "tofile/y/z", "perm", "kept/x", "moved")
	b.sh(b.host, "ln -s changed link; ln -s a same-link; mkdir permdir; echo hard > h1; ln h1 h2")
	b.begin()
	b.write(b.upper+"/changed", "new\n")
	b.write(b.upper+"/touched", "old touched\n")
	b.write(b.upper+"/perm", "old perm\n")
	b.write(b.upper+"/added", "new\n")
	b.write(b.upper+"/elsewhere", "old moved\n")
	b.write(b.upper+"/new/deep/file", "new\n")
	b.whiteout("gone")
	b.whiteout("moved")
	b.whiteout("dir")
	b.whiteout("never-was")
	b.opaque("anew")
	b.write(b.upper+"/anew/both", "new\n")
	b.opaque("todir")
	b.write(b.upper+"/todir/in", "new\n")
	b.write(b.upper+"/tofile", "new\n")
	b.sh(b.upper, "chmod 755 perm; mkdir -m 700 permdir; ln -s elsewhere link; ln -s a same-link; mkdir kept; ln added twin; mkdir -m 555 new/closed; truncate -s 1M sparse")
	return b
}

const everythingSaid = `added directory new
added directory new/closed
added directory new/deep
added file added
added file elsewhere
added file new/deep/file
added file sparse
added file todir/in
added file twin
changed file anew/both
changed file changed
changed link link
deleted directory dir
deleted file anew/old
deleted file gone
deleted file moved
mode directory permdir
mode file perm
replaced directory todir
replaced file tofile`

const everythingApplied = `mkdir -p want; cd want; for f in changed added anew/both new/deep/file todir/in tofile; do mkdir -p $(dirname $f); echo new > $f; done
	ln added twin; for f in same touched file perm; do echo old $f > $f; done; echo old moved > elsewhere; mkdir kept; echo old kept/x > kept/x
	chmod 755 perm; mkdir -m 700 permdir; ln -s elsewhere link; ln -s a same-link; mkdir -m 555 new/closed; truncate -s 1M sparse; echo hard > h1; ln h1 h2`

func TestEachKindOfChangeIsListedAndApplied(t *testing.T) {
	b := everything(t)
	r := b.review()
	if got := words(r); got != everythingSaid {
		t.Fatalf("%s", got)
	}
	for _, c := range r.Changes {
		if c.Path == "elsewhere" && c.From != "moved" || c.Path == "dir" && c.Entries != 4 {
			t.Errorf("%+v", c)
		}
	}
	b.sh(b.state, everythingApplied)
	if result := b.apply(Selection{}); len(result.Skipped) > 0 || len(result.Left) > 0 || len(result.Applied) != 20 {
		t.Errorf("%+v", result)
	}
	if got, want := content(t, b.host), content(t, b.state+"/want"); got != want {
		t.Errorf("the host has\n%s\nand not\n%s", got, want)
	}
	var added, twin, sparse syscall.Stat_t
	for name, s := range map[string]*syscall.Stat_t{"added": &added, "twin": &twin, "sparse": &sparse} {
		if err := syscall.Lstat(b.host+"/"+name, s); err != nil {
			t.Fatal(err)
		}
	}
	if added.Ino != twin.Ino || sparse.Blocks > 16 {
		t.Errorf("links %d and %d, %d blocks", added.Ino, twin.Ino, sparse.Blocks)
	}
	b.empty()
}

// A later command could write what something executes by the other name, which is an ordinary one.
func TestWhatIsExecutedElsewhereHasNoOtherName(t *testing.T) {
	b := newBench(t).files("changed").begin()
	b.sh(b.upper, "mkdir .vscode .git .git/hooks; for f in .envrc .vscode/tasks.json .git/hooks/pre-commit; do echo x > $f; ln $f a-$(basename $f); ln $f z-$(basename $f); done; echo x > changed; ln changed .mcp.json; echo x > a; ln a b")
	b.apply(Selection{})
	for name, links := range map[string]uint64{".envrc": 1, ".vscode/tasks.json": 1, ".mcp.json": 1, "changed": 1, "a-.envrc": 2, "a": 2} {
		var stat syscall.Stat_t
		if err := syscall.Lstat(b.host+"/"+name, &stat); err != nil || uint64(stat.Nlink) != links {
			t.Errorf("%s has %d names: %v", name, stat.Nlink, err)
		}
	}
	b.empty()
}

func TestASelectionIsAppliedAndTheRestStays(t *testing.T) {
	b := everything(t)
	result := b.apply(Selection{Paths: []string{"new/deep/file", "anew", "nothing"}})
	if got := strings.Join(result.Applied, " "); len(result.Skipped) != 1 || got != "anew/both anew/old new/deep/file new/deep new" {
		t.Errorf("%+v", result)
	}
	if text, err := os.ReadFile(b.host + "/new/deep/file"); string(text) != "new\n" {
		t.Errorf("%q %v", text, err)
	}
	if got := words(b.review()); strings.Contains(got, "anew") || strings.Contains(got, "deep") || !strings.Contains(got, "added directory new/closed") && !strings.Contains(got, "changed file changed") {
		t.Errorf("%s", got)
	}
	if result := b.apply(Selection{Paths: []string{"todir/in"}}); len(result.Applied) != 0 || len(result.Skipped) != 2 {
		t.Errorf("%+v", result)
	}
	if result := b.apply(Selection{DryRun: true}); len(result.Applied) != 15 {
		t.Errorf("%d %+v", len(result.Applied), result)
	}
	if result := b.apply(Selection{}); len(result.Skipped) != 0 {
		t.Errorf("%+v", result)
	}
	b.empty()
}

// What a person changed meanwhile is a conflict, whatever the change was, and stays unless it is
// named.
func TestWhatTheHostChangedIsAConflict(t *testing.T) {
	b := everything(t)
	b.tick()
	b.sh(b.host, `echo person > changed; echo person > gone; echo person > dir/sub/person; rm perm; chmod 711 permdir; touch anew/old; ln -sfn person link
		rm -r tofile; echo person > tofile; echo person > added; mv todir t; mv t todir; mkdir new; echo person > new/other`)
	before := content(t, b.host)
	want := `added directory new/closed
added directory new/deep
added file elsewhere
added file new/deep/file
added file perm
added file sparse
added file todir/in
added file twin
changed file added !the original was changed on the host meanwhile
changed file anew/both
changed file changed !the original was changed on the host meanwhile
changed file tofile !the original was changed on the host meanwhile
changed link link !the original was changed on the host meanwhile
deleted directory dir !the original was changed on the host meanwhile (.)
deleted file anew/old !the original was changed on the host meanwhile
deleted file gone !the original was changed on the host meanwhile
deleted file moved
mode directory permdir !the original was changed on the host meanwhile
replaced directory todir !the original was changed on the host meanwhile`
	got := words(b.review())
	for _, inner := range []string{"sub", "sub/person"} { // the one that was met first
		got = strings.Replace(got, "meanwhile ("+inner+")", "meanwhile (.)", 1)
	}
	if got != want {
		t.Errorf("%s", got)
	}
	conflicts := []string{"changed", "gone", "dir/sub/person", "permdir", "anew/old", "link", "tofile", "added", "todir", "new/other"}
	b.apply(Selection{})
	after := content(t, b.host)
	for _, name := range conflicts {
		for line := range strings.Lines(before) {
			if strings.HasPrefix(line, "/"+name+" ") && !strings.Contains(after, strings.TrimSpace(line)) {
				t.Errorf("%s was changed:\n%s", line, after)
			}
		}
	}
	if result := b.apply(Selection{Force: []string{"changed", "dir"}}); strings.Join(result.Applied, " ") != "changed dir" {
		t.Errorf("%+v", result)
	}
	if text, _ := os.ReadFile(b.host + "/changed"); string(text) != "new\n" {
		t.Errorf("%q", text)
	}
	if _, err := os.Lstat(b.host + "/dir"); err == nil {
		t.Error("dir is there")
	}
}

// What apply itself put on the host is no change of a person's.
func TestWhatWasAppliedBeforeIsNoConflict(t *testing.T) {
	b := everything(t)
	b.apply(Selection{Paths: []string{"changed", "new"}})
	b.tick()
	b.write(b.upper+"/changed", "newer\n")
	b.whiteout("new/deep/file")
	if got := words(b.review()); !strings.Contains(got, "changed file changed\n") || !strings.Contains(got, "deleted file new/deep/file\n") {
		t.Errorf("%s", got)
	}
	b.write(b.host+"/changed", "person\n")
	if got := words(b.review()); !strings.Contains(got, "changed file changed !the original") {
		t.Errorf("%s", got)
	}
}

// A person's change between the look and the replacement is found by what is there at that very
// moment.
func TestAnOpenFileIsNotReplaced(t *testing.T) {
	b := newBench(t).files("log").begin()
	b.write(b.upper+"/log", "new\n")
	open, err := os.OpenFile(b.host+"/log", os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if result := b.apply(Selection{}); len(result.Applied) != 0 || len(result.Skipped) != 1 || !strings.Contains(result.Skipped[0].Why, "open for writing") {
		t.Errorf("%+v", result)
	}
	open.WriteString("person\n")
	open.Close()
	if text, _ := os.ReadFile(b.host + "/log"); string(text) != "old log\nperson\n" {
		t.Errorf("%q", text)
	}
}

func TestRightsOfOthersAreAppliedByNameOnly(t *testing.T) {
	b := newBench(t).files("b").begin()
	b.write(b.upper+"/a", "")
	b.write(b.upper+"/b", "x")
	b.sh(b.upper, "chmod 4755 a; chmod 2755 b")
	for _, c := range b.review().Changes {
		if !strings.HasPrefix(c.Note, "setuid") {
			t.Errorf("%+v", c)
		}
	}
	b.apply(Selection{Force: []string{"b"}})
	for name, want := range map[string]os.FileMode{"a": 0o755, "b": 0o755 | os.ModeSetgid} {
		if info, err := os.Lstat(b.host + "/" + name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
}

func TestAnotherDirectoryIsRefused(t *testing.T) {
	b := newBench(t).files("a").begin()
	b.write(b.upper+"/a", "new")
	b.sh(b.host, "cd ..; mv host other; cp -a other host")
	if _, err := b.layer().Apply(t.Context(), Selection{}); err == nil || !strings.Contains(err.Error(), "is another directory") {
		t.Errorf("%v", err)
	}
	b.sh(b.host, "cd ..; rm -r host; ln -s other host")
	if _, err := b.layer().Apply(t.Context(), Selection{}); err == nil {
		t.Error("through a link")
	}
	if text, _ := os.ReadFile(b.host + "/a"); string(text) != "old a\n" {
		t.Errorf("%q", text)
	}
	if _, err := b.layer().Discard(t.Context(), nil); err != nil {
		t.Error(err)
	}
	b.empty()
}

func TestALayerInUseIsNotApplied(t *testing.T) {
	b := newBench(t).files("a").begin()
	b.write(b.upper+"/a", "new")
	file, err := os.Open(b.layer().Dir + "/lock")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := b.layer().Apply(t.Context(), Selection{}); err == nil || !strings.Contains(err.Error(), "in use by ") {
		t.Errorf("%v", err)
	}
	if _, err := b.layer().Discard(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "use") {
		t.Errorf("%v", err)
	}
}

func TestChangesAreDiscarded(t *testing.T) {
	b := everything(t)
	before := content(t, b.host)
	result, err := b.layer().Discard(t.Context(), []string{"changed", "new", "gone", "anew/both", "nothing"})
	if err != nil || len(result.Applied) != 4 || len(result.Skipped) != 1 {
		t.Errorf("%+v %v", result, err)
	}
	if got := words(b.review()); strings.Contains(got, "changed file changed") || strings.Contains(got, "gone") || strings.Contains(got, "deep") || strings.Contains(got, "anew/both") || !strings.Contains(got, "deleted file anew/old") {
		t.Errorf("%s", got)
	}
	if _, err := b.layer().Discard(t.Context(), nil); err != nil {
		t.Error(err)
	}
	b.empty()
	if after := content(t, b.host); after != before {
		t.Errorf("%s", after)
	}
}

func TestWhatIsExecutedElsewhereComesFirst(t *testing.T) {
	b := newBench(t).begin()
	for _, name := range []string{"a.txt", ".git/hooks/pre-commit", ".git/objects/aa/bb", "sub/.envrc", ".github/workflows/x.yml", "Makefile", "sub/package.json", ".vscode/tasks.json", "z/HEAD", "z/config", "shared/objects/x", "shared/config", "sub/.hg/hgrc"} {
		b.write(b.upper+"/"+name, "x")
	}
	b.sh(b.upper, "echo > run; chmod +x run; ln -s /etc out; ln -s a.txt in")
	var first []string
	for _, c := range b.review().Changes {
		if c.Note != "" {
			first = append(first, c.Path)
		}
	}
	want := ".git .git/hooks .git/hooks/pre-commit .github .github/workflows .github/workflows/x.yml .vscode .vscode/tasks.json shared/config sub/.envrc sub/.hg/hgrc z/HEAD z/config Makefile sub/package.json out run"
	if got := strings.Join(first, " "); got != want {
		t.Errorf("%s", got)
	}
}

func TestPartsOfAFileAreApplied(t *testing.T) {
	b := newBench(t)
	var old, now strings.Builder
	for i := range 60 {
		line := strings.Repeat("x", i) + "\n"
		old.WriteString(line)
		switch i {
		case 5, 30:
			line = "changed\n"
		case 55:
			line = ""
		}
		now.WriteString(line)
	}
	b.write(b.host+"/f", old.String())
	b.begin()
	b.write(b.upper+"/f", now.String()+"no newline")
	find := func() (d Difference) {
		err := b.layer().Diffs(t.Context(), b.review(), []string{"f"}, func(_ Change, got Difference) bool { d = got; return true })
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := find(); len(d.Hunks) != 3 || d.Hunks[1].Header != "@@ -28,7 +28,7 @@" {
		t.Fatalf("%+v", d)
	}
	if result := b.apply(Selection{Paths: []string{"f"}, Hunks: []int{2}}); len(result.Applied) != 1 {
		t.Errorf("%+v", result)
	}
	lines := strings.Split(old.String(), "\n")
	lines[30] = "changed"
	if text, _ := os.ReadFile(b.host + "/f"); string(text) != strings.Join(lines, "\n") {
		t.Errorf("%s", text)
	}
	if d := find(); len(d.Hunks) != 2 {
		t.Errorf("%+v", d)
	}
	b.apply(Selection{Paths: []string{"f"}, Hunks: []int{2}})
	b.apply(Selection{})
	if text, _ := os.ReadFile(b.host + "/f"); string(text) != now.String()+"no newline" {
		t.Errorf("%s", text)
	}
	b.empty()
}

// What an apply puts into a directory changes the directory's times. Its permissions are nobody
// else's change because of that.
func TestPermissionsOfADirectoryAreAppliedAfterWhatIsInIt(t *testing.T) {
	b := newBench(t).files("src/a", "other/a").begin()
	b.write(b.upper+"/src/b", "new\n")
	b.write(b.upper+"/other/b", "new\n")
	b.sh(b.upper, "chmod 700 src other")
	b.tick()
	b.apply(Selection{Paths: []string{"src/b"}})
	b.sh(b.host, "chmod 711 other")
	b.apply(Selection{Paths: []string{"other/b"}})
	if got, want := words(b.review()), "mode directory other !the original was changed on the host meanwhile\nmode directory src"; got != want {
		t.Errorf("%s", got)
	}
	if result := b.apply(Selection{}); strings.Join(result.Applied, " ") != "src" {
		t.Errorf("%+v", result)
	}
}

// A directory that somebody else's takes the place of while it is applied into, at any moment,
// takes what was applied along at most. What stands in its place gets nothing.
func TestADirectoryThatIsExchangedGetsNothing(t *testing.T) {
	swap := func(b *bench) {
		if err := unix.Renameat2(unix.AT_FDCWD, b.host+"/src", unix.AT_FDCWD, b.host+"/keep", unix.RENAME_EXCHANGE); err != nil {
			t.Fatal(err)
		}
	}
	for n, total := 1, 1; n <= total; n++ {
		b := newBench(t).files("src/changed", "src/gone", "keep/changed", "keep/gone", "keep/own").begin()
		for _, name := range []string{"a", "b", "changed"} {
			b.write(b.upper+"/src/"+name, "new\n")
		}
		b.whiteout("src/gone")
		kept := found(t, b.host+"/keep")
		total = 0
		ctx := context.WithValue(t.Context(), hooksKey{}, hooks{noSync: true, step: func() {
			if total++; total == n || total == n+1 {
				swap(b)
			}
		}})
		result, err := b.layer().Apply(ctx, Selection{})
		if total < n+1 {
			swap(b)
		}
		if err != nil {
			t.Errorf("step %d: %v", n, err)
		}
		now := found(t, b.host+"/keep")
		for name, text := range now {
			if kept[name] != text {
				t.Errorf("step %d of %d: keep has %s %q: %+v", n, total, name, text, result)
			}
		}
		if len(now) < len(kept) {
			t.Errorf("step %d of %d: keep has %v: %+v", n, total, now, result)
		}
	}
}

// dirty maps a file of the layer and writes a first byte: from here on it is written without a
// change of any of the file's times.
func (b *bench) dirty(name string) []byte {
	b.t.Helper()
	file, err := os.OpenFile(b.upper+"/"+name, os.O_RDWR, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		b.t.Fatal(err)
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { unix.Munmap(mapped) })
	copy(mapped, bytes.Clone(mapped))
	return mapped
}

func TestWhatIsWrittenThroughAMappingAfterItWasShownIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		parts []int
	}{"added": {text: "harmless\n"}, "changed": {text: "harmless\n"}, "binary": {text: "\x00 harmless"}, "parts": {"harmless\n", []int{1}}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if name != "added" && name != "binary" {
				b.files("file")
			}
			b.begin().write(b.upper+"/file", c.text)
			before := content(t, b.host)
			mapped := b.dirty("file")
			seen, review := Shown{}, b.review()
			err := b.layer().Diffs(t.Context(), review, nil, func(c Change, d Difference) bool {
				seen.Add(&c, d)
				return true
			})
			if err != nil || len(seen) != 1 {
				t.Fatal(seen, err)
			}
			digest, err := b.layer().KeepShown(seen)
			if err == nil {
				seen, err = b.layer().FindShown(digest)
			}
			if err != nil {
				t.Fatal(err)
			}
			s := Selection{Paths: []string{"file"}, Seen: seen, Hunks: c.parts}
			copy(mapped[2:], "evil")
			if result := b.apply(s); len(result.Applied) != 0 || result.Skipped[0].Why != errShown.Error() || content(t, b.host) != before {
				t.Errorf("%+v: %s", result, content(t, b.host))
			}
		})
	}
}

package changes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/cow"
)

func TestChangesOfBothSidesAreMergedWhereTheyDoNotTouch(t *testing.T) {
	const ten = "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n"
	for _, c := range []struct{ name, original, host, layer, want string }{
		{"one line each", ten, "0\nhost\n2\n3\n4\n5\n6\n7\n8\n9\n", "0\n1\n2\n3\n4\n5\n6\n7\nlayer\n9\n", "0\nhost\n2\n3\n4\n5\n6\n7\nlayer\n9\n"},
		{"one line apart", "a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n", "A\nb\nC\n"},
		{"beside each other", "a\nb\n", "A\nb\n", "a\nB\n", "clash 1"},
		{"the same line", "a\nb\nc\n", "a\nhost\nc\n", "a\nlayer\nc\n", "clash 2"},
		{"the same change", "a\nb\nc\n", "a\nB\nc\n", "a\nB\nc\n", "a\nB\nc\n"},
		{"only the host", "a\n", "b\n", "a\n", "b\n"},
		{"only the layer", "a\n", "a\n", "b\n", "b\n"},
		{"removed and changed", "a\nb\nc\n", "a\nc\n", "a\nB\nc\n", "clash 2"},
		{"both add at one place", "a\nb\n", "a\nx\nb\n", "a\ny\nb\n", "clash 2"},
		{"begin and end", "a\nb\nc\n", "0\na\nb\nc\n", "a\nb\nc\nd\n", "0\na\nb\nc\nd\n"},
		{"no end of line", "a\nb\nc", "A\nb\nc", "a\nb\nc\n", "A\nb\nc\n"},
		{"an end of line and a line", "a\nb\nc", "a\nb\nc\n", "a\nb\nc\nd\n", "clash 3"},
		{"all gone here", "a\nb\nc\n", "", "a\nb\nC\n", "clash 1"},
		{"was empty", "", "a\n", "b\n", "clash 1"},
		{"one change spans two", ten, "0\n1\nx\n9\n", "0\n1\n2\n3\ny\n5\n6\nz\n8\n9\n", "clash 3"},
	} {
		got, clashes, err := merge([]byte(c.original), []byte(c.host), []byte(c.layer))
		said := string(got)
		if len(clashes) > 0 {
			said = fmt.Sprintf("clash %d", clashes[0].Line)
		}
		if said != c.want || len(clashes) > 0 != errors.Is(err, errClash) {
			t.Errorf("%s: %q %v", c.name, said, err)
		}
	}
}

// Whatever two sides make of a text: if it merges, then with the other side's changes taken back,
// it is what the one side had.
func TestAMergeHasTheChangesOfBothSides(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	change := func(lines []string) []string {
		lines = slices.Clone(lines)
		for range 1 + random.IntN(3) {
			at := random.IntN(len(lines) + 1)
			switch end := min(at+random.IntN(3), len(lines)); random.IntN(3) {
			case 0:
				lines = slices.Delete(lines, at, end)
			case 1:
				lines = slices.Insert(lines, at, fmt.Sprint("new ", random.IntN(4), "\n"))
			default:
				lines = slices.Replace(lines, at, end, fmt.Sprint("other ", random.IntN(4), "\n"))
			}
		}
		return lines
	}
	merges := 0
	for range 3000 {
		var lines []string
		for range random.IntN(20) {
			lines = append(lines, fmt.Sprint("line ", random.IntN(12), "\n"))
		}
		text := func(lines []string) []byte { return []byte(strings.Join(lines, "")) }
		original, host, layer := text(lines), text(change(lines)), text(change(lines))
		both, _, err := merge(original, host, layer)
		other, _, err2 := merge(original, layer, host)
		if string(both) != string(other) || (err == nil) != (err2 == nil) {
			t.Fatalf("%q %q %q: %q %v, the other way round %q %v", original, host, layer, both, err, other, err2)
		}
		if err != nil {
			continue
		}
		merges++
		ours, err := edits(original, host)
		theirs, err2 := edits(original, layer)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		want := slices.Concat(ours, theirs)
		slices.SortStableFunc(want, func(a, b edit) int { return a.from - b.from })
		want = slices.CompactFunc(want, func(a, b edit) bool { return a.from == b.from && a.old == b.old && slices.Equal(a.lines, b.lines) })
		all := strings.SplitAfter(string(original), "\n")
		if got := strings.Join(replaced(all, 0, len(all), want), ""); got != string(both) {
			t.Fatalf("%q %q %q: %q, not %q", original, host, layer, both, got)
		}
	}
	if merges < 300 {
		t.Errorf("%d merges", merges)
	}
}

const ten = "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n"

// both makes a layer in which commands changed files, keeps the originals, and has the host changed
// after that.
func both(t testing.TB) *bench {
	b := newBench(t)
	for _, name := range []string{"merges", "sub/merges", "clashes", "touched", "mode", "binary", ".git/packed-refs"} {
		b.write(b.host+"/"+name, ten)
	}
	b.write(b.host+"/binary", "a\x00b\n")
	b.begin()
	for _, name := range []string{"merges", "sub/merges", "touched", "mode", ".git/packed-refs"} {
		b.write(b.upper+"/"+name, strings.Replace(ten, "8", "layer", 1))
	}
	b.write(b.upper+"/clashes", strings.Replace(ten, "1", "layer", 1))
	b.write(b.upper+"/binary", "layer\x00b\n")
	b.sh(b.upper, "chmod 755 mode")
	Keep(b.layer().Dir)
	b.tick()
	for _, name := range []string{"merges", "sub/merges", "clashes", "mode", ".git/packed-refs"} {
		b.write(b.host+"/"+name, strings.Replace(ten, "1", "host", 1))
	}
	b.sh(b.host, "touch touched; printf 'host\\0b' > binary")
	return b
}

const merged = "0\nhost\n2\n3\n4\n5\n6\n7\nlayer\n9\n"

func (b *bench) has(name, want string) {
	b.t.Helper()
	if got, err := os.ReadFile(b.host + "/" + name); string(got) != want {
		b.t.Errorf("%s has %q %v", name, got, err)
	}
}

func TestAFileThatBothSidesChangedIsMerged(t *testing.T) {
	b := both(t)
	if got, want := words(b.review()), `changed file .git/packed-refs !the original was changed on the host meanwhile
changed file binary !the original was changed on the host meanwhile
changed file clashes !the original was changed on the host meanwhile, in the same lines
changed file merges
changed file mode
changed file sub/merges
changed file touched`; got != want {
		t.Fatalf("%s", got)
	}
	review := b.review()
	err := b.layer().Diffs(t.Context(), review, nil, func(c Change, d Difference) bool {
		switch c.Path {
		case "merges": // what applying would do to the host's
			if len(d.Hunks) != 1 || !slices.Contains(d.Hunks[0].Lines, "+layer") || slices.Contains(d.Hunks[0].Lines, "-host") {
				t.Errorf("%+v", d)
			}
		case "clashes":
			if got := fmt.Sprint(d.Clashes); got != "[{2 [1] [host] [layer]}]" {
				t.Errorf("%s", got)
			}
		}
		return true
	})
	if err != nil {
		t.Error(err)
	}
	if result := b.apply(Selection{Paths: []string{"merges"}, Hunks: []int{1}}); len(result.Applied) != 0 {
		t.Errorf("%+v", result)
	}
	b.write(b.host+"/sub/merges", strings.Replace(ten, "2", "later", 1))
	result := b.apply(Selection{Seen: review.Shown()})
	if got := strings.Join(result.Applied, " "); got != "merges mode touched" || len(result.Skipped) != 4 {
		t.Errorf("%+v", result)
	}
	b.has("merges", merged)
	b.has("mode", merged)
	b.has("touched", strings.Replace(ten, "8", "layer", 1))
	b.has("clashes", strings.Replace(ten, "1", "host", 1))
	b.has("sub/merges", strings.Replace(ten, "2", "later", 1))
	if info, err := os.Stat(b.host + "/mode"); err != nil || info.Mode() != 0o755 {
		t.Errorf("%v %v", info, err)
	}
	result = b.apply(Selection{Force: []string{"clashes"}})
	b.has("sub/merges", "0\n1\nlater\n3\n4\n5\n6\n7\nlayer\n9\n")
	b.has("clashes", strings.Replace(ten, "1", "layer", 1))
	if _, err := b.layer().Discard(t.Context(), []string{"binary", ".git"}); err != nil || len(result.Skipped) != 2 {
		t.Errorf("%+v %v", result, err)
	}
	b.empty()
}

// What is not known to be the original is none.
func TestOnlyWhatCommandsFoundIsAnOriginal(t *testing.T) {
	clashes := func(b *bench, name string) {
		t.Helper()
		if got := words(b.review()); !strings.Contains(got, "changed file "+name+" !") {
			t.Errorf("%s", got)
		}
	}
	b := newBench(t).files("late", "hidden")
	b.begin()
	lock, err := cow.Take(b.layer().Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Veil([]string{"hidden"}); err != nil {
		t.Fatal(err)
	}
	lock.Close()
	b.tick()
	b.write(b.host+"/late", ten) // after the layer began
	b.write(b.upper+"/late", strings.Replace(ten, "8", "layer", 1))
	b.write(b.upper+"/hidden", "old hidden\nlayer\n")
	Keep(b.layer().Dir)
	for _, name := range []string{"late", "hidden"} {
		if _, err := os.Lstat(filepath.Join(b.layer().Dir, cow.Originals, name)); err == nil {
			t.Errorf("%s was kept", name)
		}
	}
	b.write(b.host+"/late", strings.Replace(ten, "1", "host", 1))
	clashes(b, "late")

	// After the change was thrown away, commands begin with what the host has then.
	b = both(t)
	if _, err := b.layer().Discard(t.Context(), []string{"sub"}); err != nil {
		t.Fatal(err)
	}
	b.write(b.upper+"/sub/merges", strings.Replace(merged, "layer", "again", 1))
	Keep(b.layer().Dir)
	b.write(b.host+"/sub/merges", ten)
	clashes(b, "sub/merges")

	// So they do after it was applied, in part or as a whole.
	b = newBench(t)
	b.write(b.host+"/parts", ten+ten)
	b.write(b.host+"/whole", ten)
	b.write(b.host+"/other", "")
	b.begin()
	b.write(b.upper+"/parts", strings.Replace(ten, "1", "first", 1)+strings.Replace(ten, "8", "second", 1))
	b.write(b.upper+"/whole", "layer\n"+ten)
	b.write(b.upper+"/other", "other\n")
	Keep(b.layer().Dir)
	b.apply(Selection{Paths: []string{"parts"}, Hunks: []int{1}})
	b.apply(Selection{Paths: []string{"whole"}})
	b.tick()
	b.write(b.host+"/parts", ten+ten) // the person takes the first part back
	b.write(b.host+"/whole", ten)
	b.write(b.upper+"/whole", "layer\n"+ten+"again\n")
	clashes(b, "parts")
	clashes(b, "whole")

	// One that is not whole is none.
	b = both(t)
	b.sh(b.layer().Dir, "truncate -s -1 originals/merges; rm originals/sub/merges; ln -s ../../../../../host/merges originals/sub/merges")
	clashes(b, "merges")
	clashes(b, "sub/merges")
}

// Nobody is asked by rules what to make of both.
func TestNoRuleAppliesAMerge(t *testing.T) {
	b := both(t)
	if got := b.applied(rules(t, "**; ; ", profile.DeletionsAsk), Selection{ByRules: true}); got != "" {
		t.Errorf("%s", got)
	}
	b.has("merges", strings.Replace(ten, "1", "host", 1))
}

// A merge that ends at any step is finished by the next one, also if a command changed the file
// again before that. In no case is what the person changed undone.
func TestAMergeThatEndsAtAnyStepIsFinished(t *testing.T) {
	total := 0
	ctx := context.WithValue(t.Context(), hooksKey{}, hooks{noSync: true, step: func() { total++ }})
	if _, err := both(t).layer().Apply(ctx, Selection{Paths: []string{"merges"}}); err != nil || total < 8 {
		t.Fatalf("%d steps: %v", total, err)
	}
	for _, again := range []bool{false, true} {
		for n := 1; n <= total; n++ {
			b := both(t)
			func() {
				defer func() { _ = recover() }()
				at := 0
				ctx := context.WithValue(t.Context(), hooksKey{}, hooks{noSync: true, step: func() {
					if at++; at == n {
						panic(stop{})
					}
				}})
				_, _ = b.layer().Apply(ctx, Selection{Paths: []string{"merges"}})
			}()
			want := merged
			if _, err := os.Lstat(b.upper + "/merges"); again && err == nil {
				want = strings.Replace(merged, "5", "again", 1)
				b.write(b.upper+"/merges", strings.Replace(strings.Replace(ten, "8", "layer", 1), "5", "again", 1))
				Keep(b.layer().Dir)
			}
			b.apply(Selection{Paths: []string{"merges"}})
			b.has("merges", want)
			if _, err := os.Lstat(b.upper + "/merges"); !errors.Is(err, unix.ENOENT) {
				t.Errorf("step %d: the layer has it still: %v", n, err)
			}
		}
	}
}

// A person and commands change the same files at random, during a session of several commands and
// applies: the person the odd lines, the commands the even ones. Each line of the person's is as
// the person wrote it last.
func TestNoLineOfAPersonsIsLostInASession(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	const files, lines = 4, 40
	merged := 0
	for range 15 {
		b := newBench(t)
		var text strings.Builder
		for n := range lines {
			fmt.Fprintln(&text, "line", n)
		}
		persons := map[string]map[int]string{}
		name := func() string { return fmt.Sprint("f", random.IntN(files)) }
		for i := range files {
			b.write(fmt.Sprint(b.host, "/f", i), text.String())
			persons[fmt.Sprint("f", i)] = map[int]string{}
		}
		b.begin()
		edit := func(from, to, text string, odd int) (int, string) {
			content, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			all, n := strings.SplitAfter(string(content), "\n"), random.IntN(lines/2)*2+odd
			all[n] = fmt.Sprintln(text, random.IntN(1_000_000))
			b.write(to, strings.Join(all, ""))
			return n, all[n]
		}
		for step := range 25 {
			switch file := name(); {
			case step%5 == 4:
				for _, c := range b.review().Changes {
					if c.Merged {
						merged++
					}
				}
				b.apply(Selection{})
				for file, own := range persons {
					now := strings.SplitAfter(found(t, b.host)[file], "\n")
					for n, text := range own {
						if len(now) != lines+1 || now[n] != text {
							t.Fatalf("line %d of %s was %q: %q", n, file, text, now)
						}
					}
				}
			case random.IntN(2) == 0: // a command, which sees the layer's if there is one
				from := b.upper + "/" + file
				if _, err := os.Lstat(from); err != nil {
					from = b.host + "/" + file
				}
				edit(from, b.upper+"/"+file, "command", 0)
				Keep(b.layer().Dir)
			default:
				b.tick()
				n, text := edit(b.host+"/"+file, b.host+"/"+file, "person", 1)
				persons[file][n] = text
			}
		}
		os.RemoveAll(filepath.Dir(b.host))
	}
	if merged < 5 {
		t.Errorf("only %d were merged", merged)
	}
}

package repository

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// indexes has git write all kinds of an index, with a file that is called PLACEHOLDER.
func indexes(t testing.TB) map[string][]byte {
	all := map[string][]byte{}
	for name, c := range map[string]struct{ format, then string }{
		"2":        {"sha1", "git update-index --index-version 2"},
		"3":        {"sha1", "git add -N new"},
		"4":        {"sha1", "git update-index --index-version 4"},
		"split":    {"sha1", "git update-index --split-index"},
		"sha256":   {"sha256", "git update-index --index-version 2"},
		"sha2564":  {"sha256", "git update-index --index-version 4"},
		"sparse":   {"sha1", "git sparse-checkout set --cone --sparse-index xgitx"},
		"removed":  {"sha1", "git rm -qr xgitx"},
		"resolved": {"sha1", "git add new; git commit -qmx; git checkout -q other; echo y > new; git add new; git commit -qmx; ! git merge -q main; git add new"},
		"watched":  {"sha1", "git update-index --untracked-cache --force-untracked-cache; git status"},
	} {
		dir := t.TempDir()
		git(t, dir, "init", "-q", "--object-format="+c.format)
		for _, file := range []string{"a", "aXXXX", "xgitx/hooks/a", "ab/c", strings.Repeat("longer/", 40) + "x", "zz"} {
			write(t, filepath.Join(dir, file), "x")
		}
		git(t, dir, "add", ".")
		git(t, dir, "commit", "-qm", "x")
		git(t, dir, "branch", "other")
		write(t, filepath.Join(dir, "new"), "x")
		git(t, dir, "-c", "alias.then=!set -e; "+c.then, "then")
		list, _ := filepath.Glob(filepath.Join(dir, ".git/*index*"))
		for _, file := range list {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			base, _, _ := strings.Cut(filepath.Base(file), ".")
			all[name+" "+base] = text
		}
	}
	return all
}

func lengthOf(name string) int {
	if strings.HasPrefix(name, "sha256") {
		return 32
	}
	return 20
}

func TestAnIndexIsReadAsGitReadsIt(t *testing.T) {
	bad := 0
	for name, text := range indexes(t) {
		if err := ParseIndex(text, lengthOf(name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, other := range []string{".git/", ".GiT/", "git~1", `.git\`, ".git.", ".git:", "..//x", "../xx"} {
			if !bytes.Contains(text, []byte("xgitx/hooks")) {
				continue
			}
			if len(other) == 5 {
				other = strings.TrimSuffix(other, "/") + " "
			}
			evil := bytes.ReplaceAll(text, []byte("xgitx"), []byte(other[:5]))
			if ParseIndex(evil, lengthOf(name)) == nil {
				t.Errorf("%s with %q passes", name, other)
			}
			bad++
		}
		for n := 12; n < len(text)-1 && n < 400; n++ {
			ParseIndex(text[:n], lengthOf(name)) // it does not panic
		}
	}
	if bad < 32 {
		t.Errorf("only %d were tried", bad)
	}
}

// twofold is an index that is harmless with names of objects of 32 bytes, and has a path in it with
// those of 20.
func twofold(path string) []byte {
	entry := func(times string, id, flags int, name string) []byte {
		text := binary.BigEndian.AppendUint32([]byte(times), 0o100644)
		text = append(append(text, make([]byte, 12)...), bytes.Repeat([]byte{byte(id)}, 20)...)
		return append(binary.BigEndian.AppendUint16(text, uint16(flags)), name...)
	}
	name := "#########0\x18"
	first := entry(strings.Repeat("\x00", 24), 7, len(name), "\x00"+name+"\x00")
	both := append(first, entry(strings.Repeat("b", 24), 8, len(path), string(rune(len(name)))+path+"\x00")...)
	text := make([]byte, 180)
	copy(text, both)
	at := 100 + 72 // the second entry of the other reading ends here, and an extension begins
	binary.BigEndian.PutUint16(text[at:], 1)
	text[at+2], text[at+3] = 24, 'c'
	text = append(text[:at+5], append([]byte("EFGH\x00\x00\x00\x00"), make([]byte, 32)...)...)
	copy(text[len(both):], "ABCD")
	binary.BigEndian.PutUint32(text[len(both)+4:], uint32(len(text)-20-len(both)-8))
	return append([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x02"), text...)
}

// Settings say how long the names of objects are, and a command may write those again.
func TestAnIndexIsReadInOneWayOnly(t *testing.T) {
	evil := twofold(".git/hooks/post-checkout")
	if err := ParseIndex(evil, 20); !errors.Is(err, errPath) || ParseIndex(evil, 32) != nil {
		t.Fatal(err, ParseIndex(evil, 32))
	}
	if plain := twofold("xgit/hooks/post-checkout"); ParseIndex(plain, 20) != nil || checkIndex(plain, []string{"sha256"}) == nil {
		t.Error("one that is right in both ways passes")
	}
	for _, formats := range [][]string{nil, {"sha1"}, {"sha256"}, {"sha256", "sha1"}, {"other"}} {
		if checkIndex(evil, formats) == nil {
			t.Errorf("passes with %q", formats)
		}
	}
	for name, text := range indexes(t) {
		formats := map[int][]string{20: nil, 32: {"sha256"}}[lengthOf(name)]
		if err := checkIndex(text, formats); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if checkIndex(text, append(formats, "sha256", "sha1")) == nil {
			t.Errorf("%s passes with two formats", name)
		}
	}
}

// git commits a tree that an index names without a look at the entries.
func TestAnIndexNamesTheTreesOfItsEntries(t *testing.T) {
	tried := 0
	for name, text := range indexes(t) {
		at := bytes.Index(text, []byte("TREE"))
		if at < 0 || strings.HasPrefix(name, "split") {
			continue
		}
		length := lengthOf(name)
		size := int(binary.BigEndian.Uint32(text[at+4:]))
		trees := text[at+8 : at+8+size]
		for i := 0; i < size; { // each line, and the name of a tree behind it
			line := bytes.IndexByte(trees[i:], '\n')
			head := string(trees[i : i+line])
			if i += line + 1; strings.Contains(head, "\x00-1 ") {
				continue
			}
			trees[i] ^= 1
			if err := ParseIndex(text, length); !errors.Is(err, errTree) {
				t.Errorf("%s: with another tree for %q: %v", name, head, err)
			}
			trees[i] ^= 1
			tried++
			i += length
		}
		if err := ParseIndex(text, length); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i := range trees { // it does not panic
			trees[i] ^= 3
			if err := ParseIndex(text, length); err == nil && trees[i] != 3 && !bytes.Contains(trees, []byte("-1 ")) {
				t.Errorf("%s: with another byte at %d of %q: passes", name, i, trees)
			}
			trees[i] ^= 3
		}
	}
	if tried < 300 {
		t.Errorf("only %d were tried", tried)
	}
}

func TestPathsThatNoCommitHas(t *testing.T) {
	for _, name := range []string{"", "/a", "a//b", "a/", ".", "a/./b", "../a", "a/..", ".git", "a/.GIT/b", ".g\u200cit", "\ufeff.git", "git~1", "GIT~1/x", ".git. .", ".git::$INDEX", `a\.git\b`} {
		if checkPath(name) == nil {
			t.Errorf("%q passes", name)
		}
	}
	for _, name := range []string{"a", ".gitignore", ".github/x", "a..b", "...", `dev-foo\x2dbar.swap`, "git~2", "x.git/y", "git", ".giт"} {
		if err := checkPath(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func FuzzParseIndex(f *testing.F) {
	for name, text := range indexes(f) {
		f.Add(text, lengthOf(name) == 32)
	}
	f.Fuzz(func(t *testing.T, text []byte, long bool) {
		length := 20
		if long {
			length = 32
		}
		ParseIndex(text, length)
	})
}

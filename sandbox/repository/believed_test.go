package repository

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func be32(n int) string { return string(binary.BigEndian.AppendUint32(nil, uint32(n))) }

func ext(name, body string) string { return name + be32(len(body)) + body }

// entriesOf are an index's, without what is behind them.
func entriesOf(t *testing.T, text []byte) (string, *indexParser) {
	t.Helper()
	p, err := parseIndex(text, 20)
	if err != nil {
		t.Fatal(err)
	}
	return string(text[:p.end]), p
}

// What is behind the entries of an index is there once, whole, known to git, and where it says.
func TestWhatIsBehindTheEntriesOfAnIndexIsAsGitReadsIt(t *testing.T) {
	all := indexes(t)
	entries, p := entriesOf(t, all["2 index"])
	compressed, p4 := entriesOf(t, all["4 index"])
	end, count, hash := len(entries), len(p.entries), strings.Repeat("h", 20)
	blocks := func(p *indexParser, numbers ...int) string {
		body, next := be32(1), 0
		for _, n := range numbers {
			body += be32(p.starts[next]) + be32(n)
			next += n
		}
		return ext("IEOT", body)
	}
	eoie := ext("EOIE", be32(end)+hash)
	for name, c := range map[string]struct {
		text  string
		right bool
	}{
		"nothing":                          {entries, true},
		"its end":                          {entries + eoie, true},
		"what git may skip":                {entries + ext("XXXX", "any") + eoie, true},
		"one block":                        {entries + blocks(p, count), true},
		"two blocks":                       {entries + blocks(p, 1, count-1), true},
		"resolved":                         {entries + ext("REUC", "a/b\x00100644\x000\x000\x00"+hash), true},
		"twice":                            {entries + ext("XXXX", "") + ext("XXXX", ""), false},
		"another end":                      {entries + ext("EOIE", be32(end+1)+hash), false},
		"a longer end":                     {entries + ext("EOIE", be32(end)+hash+"x"), false},
		"an end that is not the last":      {entries + eoie + ext("XXXX", ""), false},
		"an end in something else":         {entries + ext("XXXX", "some"+eoie), false},
		"half a head":                      {entries + "XXXX\x00\x00", false},
		"more than there is":               {entries + "XXXX" + be32(1), false},
		"what git must know":               {entries + ext("xxxx", ""), false},
		"a block less":                     {entries + blocks(p, count-1), false},
		"a block elsewhere":                {entries + ext("IEOT", be32(1)+be32(p.starts[1])+be32(count)), false},
		"a block too long":                 {entries + ext("IEOT", be32(1)+be32(p.starts[0])+be32(count+1)), false},
		"half a block":                     {entries + ext("IEOT", be32(1)+be32(p.starts[0])+be32(count)+"x"), false},
		"no blocks":                        {entries + ext("IEOT", "x"), false},
		"resolved, with a path of no file": {entries + ext("REUC", "../b\x00100644\x000\x000\x00"+hash), false},
		"resolved, without a mode":         {entries + ext("REUC", "a\x00100644\x00\x000\x00"+hash), false},
		"resolved, without a name":         {entries + ext("REUC", "a\x00100644\x000\x000\x00"+hash[1:]), false},
		"resolved, half":                   {entries + ext("REUC", "a"), false},
		"compressed, one block":            {compressed + blocks(p4, count), true},
		"compressed, two blocks":           {compressed + blocks(p4, 1, count-1), false}, // the second takes of the name before
		"another version":                  {entries[:4] + be32(5) + entries[8:], false},
		"an old version":                   {entries[:4] + be32(1) + entries[8:], false},
		"a shorter name":                   {entries[:12+61] + "\x00" + entries[12+62:], false},
		"another order":                    {entries[:12+62] + "b" + entries[12+63:], false},
		"an entry more":                    {entries[:8] + be32(count+1) + entries[12:], false},
	} {
		if err := ParseIndex([]byte(c.text+hash), 20); (err == nil) != c.right {
			t.Errorf("%s: %v", name, err)
		}
	}
	for kind, names := range map[string][2]string{"sparse index": {"sdir", "SDIR"}} {
		if err := ParseIndex(bytes.Replace(all[kind], []byte(names[0]), []byte(names[1]), 1), 20); err == nil {
			t.Errorf("%s without %s passes", kind, names[0])
		}
	}
}

// The trees of an index are read within bounds, and all of them.
func TestTheTreesOfAnIndexAreReadWithinBounds(t *testing.T) {
	entries, _ := entriesOf(t, indexes(t)["2 index"])
	node := func(name string, below ...string) string {
		return fmt.Sprintf("%s\x00-1 %d\n", name, len(below)) + strings.Join(below, "")
	}
	deep := func(levels int, inner ...string) string {
		tree := node(strings.Repeat("x", 255), inner...)
		for range levels - 1 {
			tree = node(strings.Repeat("x", 255), tree)
		}
		return node("", tree)
	}
	leaves := func(n int) (list []string) {
		for i := range n {
			list = append(list, node(fmt.Sprint(i)))
		}
		return list
	}
	for name, c := range map[string]struct {
		body  string
		right bool
	}{
		"none":                   {"", true},
		"what git does not take": {"x", true},
		"one":                    {node("", node("a"), node("b", node("a"))), true},
		"one twice":              {node("", node("a"), node("a")), false},
		"two at once":            {node("", node("a/b")), false},
		"one without a name":     {node("", node("")), false},
		"something behind":       {node("") + "x", false},
		"fewer than none":        {"\x00-2 0\n", false},
		"no number":              {"\x00x 0\n", false},
		"no number of those":     {"\x00-1 x\n", false},
		"one less":               {"\x00-1 1\n", false},
		"half a name":            {"\x000 0\n" + strings.Repeat("h", 19), false},
		"no end":                 {"\x00-1 0", false},
		"a long path":            {deep(250), true},
		"too long a path":        {deep(260), false},
		"many":                   {deep(250, leaves(500)...), true},
		"too many":               {deep(250, leaves(maxTreeWork/(250*256))...), false},
	} {
		if err := ParseIndex([]byte(entries+ext("TREE", c.body)+strings.Repeat("h", 20)), 20); (err == nil) != c.right {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// When no command writes an index any more, what git would believe of the working tree is taken
// out, and what it names trees that are not its entries' at any time. git reads the rest as before.
func TestWhatGitBelievesIsTakenOutOfAnIndex(t *testing.T) {
	all := indexes(t)
	for _, kind := range []string{"2 index", "watched index", "sha256 index", "4 index"} {
		text, length := all[kind], lengthOf(kind)
		p, err := parseIndex(text, length)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.more) == 0 || p.more[0].name != "TREE" {
			t.Fatalf("%s has no trees", kind)
		}
		dir := t.TempDir()
		git(t, dir, "init", "-q", "--object-format="+map[int]string{20: "sha1", 32: "sha256"}[length])
		open := func(path string) int {
			fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Close(fd) })
			return fd
		}
		at, index := open(dir+"/.git"), filepath.Join(dir, ".git/index")
		long := time.Now().Add(-time.Hour).Truncate(time.Second)
		put := func(text []byte) {
			write(t, index, string(text))
			if err := os.Chtimes(index, long, long); err != nil {
				t.Fatal(err)
			}
		}
		get := func() string {
			text, err := os.ReadFile(index)
			if err != nil {
				t.Fatal(err)
			}
			sum := digestOf(length)
			if sum.Write(text[:len(text)-length]); !bytes.HasSuffix(text, sum.Sum(nil)) { // git looks at that with "git fsck" alone
				t.Errorf("%s: its sum is wrong", kind)
			}
			return string(text)
		}
		put(text)
		entries := git(t, dir, "ls-files", "--stage")
		// As git has it: its end in front of nothing but the sum.
		believes := []byte(string(text[:p.end]) + ext("FSMN", be32(2)+"t\x00"+be32(0)) + ext("UNTR", "\x00") + string(p.more[0].text))
		sum := digestOf(length)
		sum.Write(believes)
		believes = sum.Sum(believes)
		put(believes)
		if err := CheckIndex(at, []int{at}, "index", false); err != nil || get() != string(believes) {
			t.Errorf("%s: while a command runs: %v", kind, err)
		}
		if err := CheckIndex(at, []int{at}, "index", true); err != nil || strings.Contains(get(), "FSMN") || strings.Contains(get(), "UNTR") || !strings.Contains(get(), "TREE") {
			t.Errorf("%s: at the end: %v %q", kind, err, get())
		}
		if info, err := os.Stat(index); err != nil || !info.ModTime().Equal(long) {
			t.Errorf("%s: its time is %v, %v", kind, info.ModTime(), err)
		}
		if is := git(t, dir, "ls-files", "--stage"); is != entries {
			t.Errorf("%s: git reads %s", kind, is)
		}
		for _, settle := range []bool{false, true} {
			lies := bytes.Clone(believes)
			lies[len(lies)-length-1] ^= 1 // of the last tree's name
			sum := digestOf(length)
			sum.Write(lies[:len(lies)-length])
			copy(lies[len(lies)-length:], sum.Sum(nil))
			put(lies)
			write(t, index+".lock", "git's")
			if err := CheckIndex(at, []int{at}, "index", settle); !errors.Is(err, errTree) || errors.Is(err, ErrMended) || get() != string(lies) {
				t.Errorf("%s: while git has the lock: %v", kind, err)
			}
			os.Remove(index + ".lock")
			if err := CheckIndex(at, []int{at}, "index", settle); !errors.Is(err, errTree) || !errors.Is(err, ErrMended) {
				t.Errorf("%s: with other trees: %v", kind, err)
			}
			if strings.Contains(get(), "TREE") || strings.Contains(get(), "FSMN") == settle || strings.Contains(get(), "UNTR") == settle {
				t.Errorf("%s: at the end %v: %q", kind, settle, get())
			}
			if is := git(t, dir, "ls-files", "--stage"); settle && is != entries {
				t.Errorf("%s: git reads %s", kind, is)
			}
		}
	}
}

package repository

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// packs makes a repository with a pack in which objects are made of others, and some that are
// loose. format is that of names.
func packs(t testing.TB, format string, more ...string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	dir := t.TempDir()
	cmd := exec.Command("sh", "-ec", `git init -q --object-format=`+format+`; seq 300 > f; git add f; git commit -qm 1; for i in 1 2 3; do echo $i >> f; git commit -qam $i; git tag -m x t$i; done
git `+strings.Join(more, " ")+` repack -adfq --depth=3; git prune-packed; rm -f .git/objects/pack/*.rev; echo loose > f; git commit -qam loose`)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("%v %s", err, out)
	}
	return dir + "/.git/objects"
}

// check looks through the one file of a pattern below a directory of objects.
func check(t *testing.T, objects, pattern string, until time.Time) error {
	t.Helper()
	found, err := filepath.Glob(objects + "/" + pattern)
	if err != nil || len(found) == 0 {
		t.Fatal(pattern, err)
	}
	dir, err := os.Open(filepath.Dir(found[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	return NewObjects(until).Check([]int{int(dir.Fd())}, filepath.Base(filepath.Dir(found[0])), filepath.Base(found[0]))
}

func soon() time.Time { return time.Now().Add(time.Minute) }

func TestObjectsOfGitAreRight(t *testing.T) {
	for _, c := range [][]string{{"sha1"}, {"sha256"}, {"sha1", "-c", "pack.indexVersion=1"}, {"sha256", "-c", "pack.indexVersion=1"}, {"sha1", "-c", "repack.useDeltaBaseOffset=false"}} {
		objects := packs(t, c[0], c[1:]...)
		for _, pattern := range []string{"pack/*.idx", "??/*"} {
			if err := check(t, objects, pattern, soon()); err != nil {
				t.Errorf("%s %s: %v", c, pattern, err)
			}
			if err := check(t, objects, pattern, time.Now()); !errors.Is(err, ErrLate) {
				t.Errorf("%s %s without time: %v", c, pattern, err)
			}
		}
	}
}

// What has no room in memory is made once more, and a pack is not taken for a wrong one.
func TestAPackNeedsRoomForTwoOfItsObjects(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	const size = 64 << 10
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	// Versions of a file of which each is a little different from several others, so that lines of
	// them are long and have branches.
	var versions [40][]byte
	for i := range versions {
		versions[i] = make([]byte, size)
		if i == 0 {
			for j := range versions[0] {
				versions[0][j] = byte(random.Uint32())
			}
		} else {
			copy(versions[i], versions[(i-1)/2])
		}
		for range 20 {
			versions[i][random.IntN(size)]++
		}
		os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i)), versions[i], 0o600)
	}
	cmd := exec.Command("sh", "-ec", "git init -q; git add .; git commit -qm 1; git repack -adfq --depth=20 --window=40; git prune-packed; git verify-pack -v .git/objects/pack/*.idx | grep 'chain length'")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "chain length = 4") {
		t.Fatalf("no pack with long lines: %v %s", err, out)
	}
	found, _ := filepath.Glob(dir + "/.git/objects/pack/*.idx")
	packs, err := os.Open(filepath.Dir(found[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer packs.Close()
	stem := strings.TrimSuffix(filepath.Base(found[0]), ".idx")
	for room, fits := range map[int64]bool{maxInflated: true, 5 * size: true, 2*size + size/4: true, size + size/4: false, size / 2: false} {
		if err := checkPack([]int{int(packs.Fd())}, stem, soon(), room); (err == nil) != fits {
			t.Errorf("with room for %d bytes: %v", room, err)
		}
	}
}

// A large pack may take longer, and one that only says that it is large may not.
func TestALargePackMayTakeLonger(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		size, filled int64
		longer       time.Duration
	}{{1 << 20, 1 << 20, 0}, {12 << 20, 12 << 20, 3 * time.Second}, {100 << 30, 0, 0}} {
		file, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		file.Write(make([]byte, c.filled))
		file.Sync() // until then it may have no place
		if err := file.Truncate(c.size); err != nil {
			t.Skip("no room for such a file:", err)
		}
		if until, err := longer(now, file); err != nil || until.Sub(now) != c.longer {
			t.Errorf("%d bytes: %v, %v", c.size, until.Sub(now), err)
		}
	}
}

// What says that an object is elsewhere, or what it is, has no bit that could be another one.
func TestNoBitOfAPackCanBeAnotherOne(t *testing.T) {
	objects := packs(t, "sha1")
	for _, c := range []struct {
		pattern     string
		first, last int // last: from the end
	}{{"pack/*.pack", 12, 20}, {"??/*", 0, 0}} {
		found, _ := filepath.Glob(objects + "/" + c.pattern)
		text, err := os.ReadFile(found[0])
		if err != nil {
			t.Fatal(err)
		}
		pattern := strings.Replace(c.pattern, ".pack", ".idx", 1)
		padding := 1 // bits at the end of what is compressed mean nothing: some of one byte for each object
		if index, _ := filepath.Glob(objects + "/" + pattern); pattern != c.pattern {
			text, _ := os.ReadFile(index[0])
			parsed, err := parsePackIndex(text)
			if err != nil {
				t.Fatal(err)
			}
			padding = parsed.count
		}
		for i := c.first; i < len(text)-c.last; i++ {
			changed := append([]byte(nil), text...)
			changed[i] ^= 1 << (i % 8)
			os.Chmod(found[0], 0o600)
			if err := os.WriteFile(found[0], changed, 0o600); err != nil {
				t.Fatal(err)
			}
			if check(t, objects, pattern, soon()) != nil {
				continue
			}
			if padding--; padding < 0 {
				t.Errorf("%s is taken for right with another bit in byte %d", found[0], i)
			}
		}
		os.WriteFile(found[0], text, 0o600)
	}
	found, _ := filepath.Glob(objects + "/pack/*.idx")
	text, _ := os.ReadFile(found[0])
	os.Chmod(found[0], 0o600)
	index, err := parsePackIndex(text)
	if err != nil {
		t.Fatal(err)
	}
	for i := index.names; i < index.wide; i++ {
		if i >= index.names+20*index.count && i < index.places { // sums that git does not look at
			continue
		}
		changed := append([]byte(nil), text...)
		changed[i] ^= 1 << (i % 8)
		os.WriteFile(found[0], changed, 0o600)
		if check(t, objects, "pack/*.idx", soon()) == nil {
			t.Errorf("the index is taken for right with another bit in byte %d", i)
		}
	}
}

// What a command wrote is read without harm.
func FuzzPack(f *testing.F) {
	objects := packs(f, "sha1")
	found, _ := filepath.Glob(objects + "/pack/*.pack")
	pack, _ := os.ReadFile(found[0])
	index, _ := os.ReadFile(strings.TrimSuffix(found[0], "pack") + "idx")
	f.Add(pack, index)
	f.Fuzz(func(t *testing.T, pack, index []byte) {
		dir := t.TempDir()
		os.WriteFile(dir+"/x.pack", pack, 0o600)
		os.WriteFile(dir+"/x.idx", index, 0o600)
		open, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		NewObjects(time.Now().Add(time.Second)).Check([]int{int(open.Fd())}, "pack", "x.idx")
	})
}

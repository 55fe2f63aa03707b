package store

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/grants"
)

// filled makes a database of some pages and closes it.
func filled(t testing.TB, dir string) []byte {
	t.Helper()
	s, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		apply(t, s, Change{Put: []grants.Grant{newGrant("main", "g"+string(rune('A'+i)), "/some/path"), newGrant("other", "h"+string(rune('A'+i)), "/other")},
			Records: []grants.Record{newRecord("r")}})
	}
	s.Close()
	text, err := os.ReadFile(filepath.Join(dir, grants.DatabaseName))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestADamagedDatabaseIsKeptAsideAndThePersonTold(t *testing.T) {
	for name, damage := range map[string]func(text []byte) []byte{
		"empty":             func([]byte) []byte { return nil },
		"half a page":       func(text []byte) []byte { return text[:2000] },
		"cut in the middle": func(text []byte) []byte { return text[:len(text)/4096/2*4096] },
		"text":              func([]byte) []byte { return []byte(strings.Repeat("not a database\n", 5000)) },
		"zeros":             func(text []byte) []byte { return make([]byte, len(text)) },
		"no state pages":    func(text []byte) []byte { clear(text[:8192]); return text },
		"a value changed": func(text []byte) []byte {
			i := strings.Index(string(text), "/some/path")
			for ; i >= 0; i = strings.Index(string(text), "/some/path") {
				copy(text[i:], "/etc/other")
			}
			return text
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			bad := damage(filled(t, dir))
			if err := os.WriteFile(filepath.Join(dir, grants.DatabaseName), bad, 0o600); err != nil {
				t.Fatal(err)
			}
			s, notices, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if len(notices) != 1 || notices[0].Kind != grants.NoticeStore || !strings.Contains(notices[0].Text, "80 grants were taken over") {
				t.Fatalf("%+v", notices)
			}
			if kept, err := os.ReadFile(notices[0].Path); err != nil || len(kept) != len(bad) {
				t.Errorf("%d bytes kept, %v", len(kept), err)
			}
			all, err := s.Grants()
			if err != nil || len(all) != 80 {
				t.Errorf("%d grants, %v", len(all), err)
			}
			for _, g := range all {
				if g.Path != "/some/path" && g.Path != "/other" {
					t.Errorf("nobody gave %+v", g)
				}
			}
			if list, err := grants.ReadSnapshot(dir, "main"); err != nil || len(list) != 40 {
				t.Errorf("%d in the snapshot, %v", len(list), err)
			}
		})
	}
}

func TestWithoutASnapshotADamagedDatabaseGrantsNothing(t *testing.T) {
	dir := t.TempDir()
	text := filled(t, dir)
	os.Remove(filepath.Join(dir, grants.SnapshotName))
	clear(text[:8192])
	os.WriteFile(filepath.Join(dir, grants.DatabaseName), text, 0o600)
	s, notices, err := Open(dir)
	if err != nil || len(notices) != 1 || !strings.Contains(notices[0].Text, "no grants are stored any more") {
		t.Fatalf("%+v, %v", notices, err)
	}
	defer s.Close()
	if stored(t, s) != "" {
		t.Error("something is stored")
	}
}

// TestADatabaseWithRandomDamageGrantsNothingNew damages bytes and whole pages at random. Whatever
// comes of it: no crash, and no grant that nobody gave.
func TestADatabaseWithRandomDamageGrantsNothingNew(t *testing.T) {
	origin := t.TempDir()
	good := filled(t, origin)
	snapshotText, err := os.ReadFile(filepath.Join(origin, grants.SnapshotName))
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(7, 7))
	found := 0
	for i := range 150 {
		dir := t.TempDir()
		bad := append([]byte{}, good...)
		for range 1 + random.IntN(20) {
			at := random.IntN(min(len(bad), 40*4096))
			if random.IntN(4) == 0 {
				for j := at; j < min(at+64, len(bad)); j++ {
					bad[j] = byte(random.UintN(256))
				}
			} else {
				bad[at] ^= 1 << random.UintN(8)
			}
		}
		os.WriteFile(filepath.Join(dir, grants.DatabaseName), bad, 0o600)
		os.WriteFile(filepath.Join(dir, grants.SnapshotName), snapshotText, 0o600)
		s, notices, err := Open(dir)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		found += len(notices)
		all, err := s.Grants()
		if err != nil {
			t.Errorf("%d: %v", i, err)
		}
		for _, g := range all {
			if g != newGrant(g.Agent, g.ID, g.Path) || g.Path != "/some/path" && g.Path != "/other" || len(g.ID) != 2 {
				t.Errorf("%d: nobody gave %+v", i, g)
			}
		}
		s.Close()
	}
	if found == 0 {
		t.Error("no damage was found: the test damages nothing")
	}
}

// pagesOf lists where pages of a kind begin.
func pagesOf(text []byte, flag uint16) []int {
	var list []int
	for at := 0; at < len(text); at += os.Getpagesize() {
		if order.Uint16(text[at+8:]) == flag && int(order.Uint64(text[at:])) == at/os.Getpagesize() {
			list = append(list, at)
		}
	}
	return list
}

// The checksums of values do not see what is wrong with the pages around them.
func TestABrokenStructureIsFound(t *testing.T) {
	for name, damage := range map[string]func(text []byte){
		"branches that lead to themselves": func(text []byte) {
			for _, at := range pagesOf(text, branchFlag) {
				order.PutUint64(text[at+pageHeader+8:], order.Uint64(text[at:]))
			}
		},
		"branches that lead out of the file": func(text []byte) {
			for _, at := range pagesOf(text, branchFlag) {
				order.PutUint64(text[at+pageHeader+8:], 1<<40)
			}
		},
		"pages that are used and free": func(text []byte) {
			leaf := pagesOf(text, leafFlag)[0] / os.Getpagesize()
			for _, at := range pagesOf(text, freelistFlag) {
				for i := range int(order.Uint16(text[at+10:])) {
					order.PutUint64(text[at+pageHeader+8*i:], uint64(leaf))
				}
			}
		},
		"leaves that lost their last value": func(text []byte) {
			for _, at := range pagesOf(text, leafFlag) {
				if n := order.Uint16(text[at+10:]); n > 2 && order.Uint32(text[at+pageHeader:]) == 0 { // values, and no buckets
					order.PutUint16(text[at+10:], n-1)
				}
			}
		},
		"keys in another order": func(text []byte) {
			for _, at := range pagesOf(text, leafFlag) {
				if order.Uint16(text[at+10:]) > 2 {
					first, second := text[at+pageHeader:at+pageHeader+element], text[at+pageHeader+element:at+pageHeader+2*element]
					pos := order.Uint32(first[4:])
					order.PutUint32(first[4:], order.Uint32(second[4:])+element)
					order.PutUint32(second[4:], pos-element)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			text := filled(t, dir)
			damage(text)
			os.WriteFile(filepath.Join(dir, grants.DatabaseName), text, 0o600)
			s, notices, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if len(notices) != 1 {
				t.Errorf("it was not found")
			}
			if all, err := s.Grants(); err != nil || len(all) != 80 {
				t.Errorf("%d grants, %v", len(all), err)
			}
		})
	}
}

// A database that others could have written, or that is none, is not taken for a damaged one and
// put aside.
func TestADatabaseThatIsNotOursIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, grants.DatabaseName)
	filled(t, dir)
	os.Chmod(path, 0o666)
	if _, _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if list, err := grants.ReadSnapshot(dir, "main"); err == nil {
		t.Errorf("it is used: %v", list)
	}
}

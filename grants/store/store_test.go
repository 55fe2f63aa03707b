package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
)

func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, notices, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(notices) > 0 {
		t.Fatalf("notices: %+v", notices)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newGrant(agent, id, path string) grants.Grant {
	return grants.Grant{ID: id, Agent: agent, Path: path, Resolved: path, Access: profile.ReadOnly, Scope: grants.ScopeAlways,
		Object: grants.Object{Device: 1, Inode: 2, Born: "3", Handle: "04"},
		Origin: grants.Origin{Kind: profile.OriginApproval, Reason: "for\tthe \"test\"\n\u202e", GrantedAtUnixMs: 1, RequestedPath: path, RequestedAccess: profile.ReadWrite, DecidedBy: "user", Via: "terminal"}}
}

func newRecord(id string) grants.Record {
	return grants.Record{Request: grants.Request{ID: id, Agent: "main", RequestedAccess: profile.ReadOnly}, Outcome: grants.OutcomeDenied}
}

func apply(t testing.TB, s *Store, c Change) {
	t.Helper()
	if err := s.Apply(c); err != nil {
		t.Fatal(err)
	}
}

func ids(list []grants.Grant) string {
	var names []string
	for _, g := range list {
		names = append(names, g.ID)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func stored(t testing.TB, s *Store) string {
	t.Helper()
	all, err := s.Grants()
	if err != nil {
		t.Fatal(err)
	}
	return ids(all)
}

// snapshot is what a run of the agent would learn.
func snapshot(t testing.TB, dir, agent string) string {
	t.Helper()
	list, err := grants.ReadSnapshot(dir, agent)
	if err != nil {
		t.Fatal(err)
	}
	return ids(list)
}

func TestWhatIsStoredIsThereAgain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	one, two := newGrant("main", "g1", "/a b/\"c\"\t\u202e"), newGrant("other", "g2", "/b")
	apply(t, s, Change{Put: []grants.Grant{one}, Records: []grants.Record{newRecord("r1")}, Audit: 77})
	apply(t, s, Change{Put: []grants.Grant{two}})
	s.Close()

	s = open(t, dir)
	all, err := s.Grants()
	if err != nil || len(all) != 2 || all[0] != one || all[1] != two {
		t.Errorf("%+v, %v", all, err)
	}
	records, err := s.Records(10)
	if err != nil || len(records) != 1 || records[0].ID != "r1" {
		t.Errorf("%+v, %v", records, err)
	}
	if at, err := s.AuditPosition(); at != 77 || err != nil {
		t.Errorf("%d, %v", at, err)
	}
	list, err := grants.ReadSnapshot(dir, "main")
	if err != nil || len(list) != 1 || list[0].Path != one.Path || list[0].Object != one.Object || list[0].Access != one.Access {
		t.Errorf("snapshot: %+v, %v", list, err)
	}
	whole, err := grants.ReadWholeSnapshot(dir)
	if err != nil || len(whole) != 2 || whole[0] != one || whole[1] != two {
		t.Errorf("whole snapshot: %+v, %v", whole, err)
	}
	apply(t, s, Change{Delete: []grants.Grant{one}})
	if stored(t, s) != "g2" || snapshot(t, dir, "main") != "" || snapshot(t, dir, "other") != "g2" {
		t.Error("a revoked grant is there, or another is not")
	}
	for _, name := range []string{grants.DatabaseName, grants.SnapshotName} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestTheSecondToOpenIsToldWhy(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	_, _, err := Open(dir)
	if err == nil || !strings.Contains(err.Error(), "another process") {
		t.Error(err)
	}
}

// What takes away is in the snapshot before it is in the database, and what gives after, so that a
// process killed in between leaves no snapshot that shows more.
func TestASnapshotOfAnotherTransactionIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	apply(t, s, Change{Put: []grants.Grant{newGrant("main", "g1", "/a")}})
	path := filepath.Join(dir, grants.SnapshotName)
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, s, Change{Delete: []grants.Grant{newGrant("main", "g1", "/a")}})
	if err := os.WriteFile(path, old, 0o600); err != nil { // as if it had been killed before
		t.Fatal(err)
	}
	if list, err := grants.ReadSnapshot(dir, "main"); err == nil || list != nil {
		t.Errorf("a revoked grant is used: %+v", list)
	}
	shown, notices := grants.Current(dir, "main", time.Now())
	if len(shown) != 0 || len(notices) != 1 || notices[0].Kind != grants.NoticeStore {
		t.Errorf("%+v, %+v", shown, notices)
	}
	s.Close()
	open(t, dir)
	if snapshot(t, dir, "main") != "" {
		t.Error("the store does not write the snapshot anew when it opens")
	}
}

func TestASnapshotWithoutItsDatabaseIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	apply(t, s, Change{Put: []grants.Grant{newGrant("main", "g1", "/a")}})
	s.Close()
	os.Remove(filepath.Join(dir, grants.DatabaseName))
	if list, err := grants.ReadSnapshot(dir, "main"); err == nil {
		t.Errorf("%+v", list)
	}
	// Whoever removed the database wanted nothing to be granted any more.
	if s = open(t, dir); stored(t, s) != "" {
		t.Error("it came back")
	}
}

func TestNothingStoredIsNoError(t *testing.T) {
	shown, notices := grants.Current(t.TempDir(), "main", time.Now())
	if len(shown) > 0 || len(notices) > 0 {
		t.Errorf("%+v, %+v", shown, notices)
	}
}

// Every byte of the snapshot that is another is found out, or changes nothing.
func TestADamagedSnapshotIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for i := range 3 {
		apply(t, s, Change{Put: []grants.Grant{newGrant("main", fmt.Sprint("g", i), fmt.Sprint("/a", i)), newGrant("other", fmt.Sprint("h", i), "/b")}})
	}
	path := filepath.Join(dir, grants.SnapshotName)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := grants.ReadSnapshot(dir, "main")
	for i := 0; i < len(good); i += 3 {
		bad := bytes.Clone(good)
		bad[i] ^= 1 << (i % 8)
		os.WriteFile(path, bad, 0o600)
		if list, err := grants.ReadSnapshot(dir, "main"); err == nil && !slices.Equal(list, want) {
			t.Fatalf("byte %d: %+v", i, list)
		}
	}
	for i := 0; i < len(good); i += 7 {
		os.WriteFile(path, good[:i], 0o600)
		if list, err := grants.ReadSnapshot(dir, "main"); err == nil && !slices.Equal(list, want) {
			t.Fatalf("cut at %d: %+v", i, list)
		}
	}
}

func TestRunsAreCounted(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	s := open(t, dir)
	g := newGrant("main", "g1", home)
	place, err := grants.Resolve(home)
	if err != nil {
		t.Fatal(err)
	}
	g.Resolved, g.Object = place.Resolved, grants.Object{}
	apply(t, s, Change{Put: []grants.Grant{g}})
	now := time.UnixMilli(1000)
	for range 3 {
		if shown, notices := grants.Current(dir, "main", now); len(shown) != 1 || len(notices) != 0 {
			t.Fatalf("%+v, %+v", shown, notices)
		}
	}
	folded, err := s.CountUses(now)
	if err != nil || len(folded.Grants) != 1 {
		t.Fatalf("%+v, %v", folded, err)
	}
	all, _ := s.Grants()
	if all[0].Uses != 3 || all[0].LastUsedAtUnixMs != 1000 || !all[0].Object.Same(place.Object) {
		t.Errorf("%+v", all[0])
	}
	if folded, err := s.CountUses(now); err != nil || len(folded.Grants) != 0 {
		t.Errorf("counted twice: %+v, %v", folded, err)
	}
}

func TestAGrantThatLeadsElsewhereIsLeftOutUntilAPersonConfirms(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	s := open(t, dir)
	target := filepath.Join(home, "target")
	os.Mkdir(target, 0o700)
	place, _ := grants.Resolve(target)
	g := newGrant("main", "g1", target)
	g.Resolved, g.Object = place.Resolved, place.Object
	apply(t, s, Change{Put: []grants.Grant{g}})
	os.Rename(target, target+".old")
	os.Symlink("/etc", target)
	shown, notices := grants.Current(dir, "main", time.Now())
	if len(shown) != 0 || len(notices) != 1 || notices[0].Kind != grants.NoticePathDenied {
		t.Errorf("%+v, %+v", shown, notices)
	}
	if folded, err := s.CountUses(time.Now()); err != nil || len(folded.Stale) != 1 {
		t.Errorf("%+v, %v", folded, err)
	}
	// Back as it was: somebody changed it all the same.
	os.Remove(target)
	os.Rename(target+".old", target)
	shown, notices = grants.Current(dir, "main", time.Now())
	if len(shown) != 0 || len(notices) != 1 {
		t.Errorf("%+v, %+v", shown, notices)
	}
	apply(t, s, Change{Put: []grants.Grant{g}})
	if shown, _ = grants.Current(dir, "main", time.Now()); len(shown) != 1 {
		t.Error("not shown after it was confirmed")
	}
}

func TestRunsSeeTheWidestOfWhatIsStored(t *testing.T) {
	dir := t.TempDir()
	home, _ := filepath.EvalSymlinks(t.TempDir())
	os.MkdirAll(home+"/a/b", 0o700)
	os.Symlink("a/b", home+"/link")
	s := open(t, dir)
	put := func(id, path string, access profile.Access, expires int64) {
		place, _ := grants.Resolve(path)
		g := newGrant("main", id, path)
		g.Resolved, g.Object, g.Access, g.ExpiresAtUnixMs = place.Resolved, place.Object, access, expires
		apply(t, s, Change{Put: []grants.Grant{g}})
	}
	show := func(at int64) string {
		stored, _ := grants.Current(dir, "main", time.UnixMilli(at))
		shown := grants.Profiles(stored)
		var list []string
		for _, g := range shown {
			list = append(list, strings.TrimPrefix(g.Path, home)+":"+g.Access.String())
		}
		return strings.Join(list, " ")
	}
	put("g1", home+"/a", profile.ReadWrite, 1000)
	put("g2", home+"/a/b", profile.ReadOnly, 0)
	put("g3", home+"/link", profile.ReadOnly, 2000)
	for at, want := range map[int64]string{
		1:    "/a:read_write /link:read_write",
		1000: "/a/b:read_only /link:read_only",
		2000: "/a/b:read_only",
	} {
		if got := show(at); got != want {
			t.Errorf("at %d: %s, want %s", at, got, want)
		}
	}
}

func TestOldRecordsMakeRoom(t *testing.T) {
	s := open(t, t.TempDir())
	records := make([]grants.Record, maxRecords+5)
	for i := range records {
		records[i] = newRecord(fmt.Sprint(i))
	}
	apply(t, s, Change{Records: records})
	list, err := s.Records(2 * maxRecords)
	if err != nil || len(list) != maxRecords || list[0].ID != fmt.Sprint(maxRecords+4) || list[maxRecords-1].ID != "5" {
		t.Errorf("%d, %v", len(list), err)
	}
}

func TestTheSchemaMigratesStepByStep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var done []int
	steps := func(n int, fail bool) []func(*bbolt.Tx) error {
		var list []func(*bbolt.Tx) error
		for i := range n {
			list = append(list, func(tx *bbolt.Tx) error {
				if fail && i == n-1 {
					return os.ErrInvalid
				}
				done = append(done, i)
				_, err := tx.CreateBucket([]byte{byte('a' + i)})
				return err
			})
		}
		return list
	}
	for _, step := range []struct {
		n    int
		fail bool
		want string
	}{{1, false, "[0]"}, {3, true, "[1]"}, {3, false, "[2]"}, {3, false, "[]"}} {
		done = nil
		if err := migrate(db, steps(step.n, step.fail)); (err != nil) != step.fail || fmt.Sprint(done) != step.want {
			t.Errorf("%+v: %v, %v", step, done, err)
		}
	}
	if err := migrate(db, steps(2, false)); err == nil || !strings.Contains(err.Error(), "version 3") {
		t.Errorf("an older program went on: %v", err)
	}
}

func TestADatabaseOfALaterVersionIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(versionKey, []byte{0, 0, 0, 99}) }); err != nil {
		t.Fatal(err)
	}
	s.Close()
	before, _ := os.ReadFile(filepath.Join(dir, grants.DatabaseName))
	if _, _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "version 99") {
		t.Error(err)
	}
	if after, _ := os.ReadFile(filepath.Join(dir, grants.DatabaseName)); !bytes.Equal(before, after) {
		t.Error("it was written to")
	}
}

// A value that cannot be read again would make the whole database count as damaged.
func TestWhatCouldNotBeReadAgainIsNotStored(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for _, c := range []Change{
		{Put: []grants.Grant{{ID: "g1", Agent: "main"}}},
		{Records: []grants.Record{{Request: grants.Request{RequestedAccess: profile.ReadWrite + 1}}}},
	} {
		if err := s.Apply(c); err == nil {
			t.Errorf("stored: %+v", c)
		}
	}
	if snapshot(t, dir, "main") != "" {
		t.Error("it is in the snapshot")
	}
}

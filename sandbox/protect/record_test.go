package protect

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Who looks at records while others are made takes the lock of none that is new.
func TestARecordIsMadeWhileOthersLook(t *testing.T) {
	state := t.TempDir()
	done := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				records(state, func(string, *os.File, bool) {})
			}
		}
	})
	for range 500 {
		r, err := NewRecord(state, Run{})
		if err != nil {
			t.Error(err)
			break
		}
		r.Remove()
	}
	close(done)
	looking.Wait()
}

// What a command may write since it began is swept, too, with the names that count since then; and
// not what it may not write any more.
func TestWhatIsWritableLaterIsSweptToo(t *testing.T) {
	state, first, second, third := t.TempDir(), treeOf(t, "d/"), treeOf(t, "known/.envrc", "apart/.envrc", "d/"), treeOf(t, "d/")
	record, err := NewRecord(state, Run{Roots: []string{first}, Names: someNames.List})
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWatch()
	if err == nil {
		_, _, err = w.Prepare(Options{Roots: []string{first}, Names: someNames, Record: record})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	more := NewNames(append(slices.Clone(someNames.List), Name{Path: "awaited", In: second + "/d"}), nil)
	known, apart := map[string]bool{second + "/known/.envrc": true}, map[string]bool{second + "/apart": true}
	for _, dir := range []string{second, third} {
		if err := w.Add(dir, more, known, nil, apart); err != nil {
			t.Fatal(err)
		}
	}
	w.Retain([]string{first, second}, known, nil, apart)
	if !Runs(state, second+"/d") || Runs(state, third+"/d") {
		t.Error("the record does not say what may be written")
	}
	record.file.Close() // its launcher is killed
	want := []string{first + "/d/.envrc", second + "/d/.envrc", second + "/d/awaited"}
	for _, path := range append(want, third+"/d/.envrc") {
		os.WriteFile(path, nil, 0o644)
	}
	var told []string
	for _, report := range Sweep(state, nil, nil, nil, nil, nil) {
		for _, one := range report.Told {
			told = append(told, one.Path)
		}
	}
	slices.Sort(told)
	slices.Sort(want)
	if !slices.Equal(told, want) {
		t.Errorf("%q, want %q", told, want)
	}
}

// A record that a later run could not read protects nobody.
func TestARecordIsAsLongAsItIsRead(t *testing.T) {
	state, long := t.TempDir(), map[string]bool{}
	for i := range 3000 {
		long["/"+strings.Repeat("\xe9", 3000)+strconv.Itoa(i)] = true
	}
	if _, err := NewRecord(state, Run{Roots: []string{"/r"}, Known: long}); err == nil {
		t.Error("one was written that is too long")
	}
	record, err := NewRecord(state, Run{Roots: []string{"/r"}})
	if err != nil {
		t.Fatal(err)
	}
	os.Truncate(record.path, 5)
	record.file.Close() // its launcher is killed
	if reports := Sweep(state, nil, nil, nil, nil, nil); len(reports) != 1 || len(reports[0].Told) != 1 {
		t.Errorf("%+v", reports)
	}
}

// A record moves nothing into the quarantine but what was set aside below its roots, by its path as
// it is.
func TestASweepTakesNothingElseForSetAside(t *testing.T) {
	state, aside := t.TempDir(), asidePrefix+"0123456789ab"
	dir := treeOf(t, "root/"+aside, "root/other", aside, "root/d/"+aside)
	root := dir + "/root"
	record, err := NewRecord(state, Run{Roots: []string{root}})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{root + "/" + aside, root + "/other", dir + "/" + aside, root + "/../" + aside, root + "/d/../d/" + aside, root} {
		record.aside(path, root+"/.envrc")
	}
	record.file.Close() // its launcher is killed
	reports := Sweep(state, nil, nil, nil, nil, nil)
	if len(reports) != 1 || len(reports[0].Told) != 1 || reports[0].Told[0].Path != root+"/.envrc" {
		t.Errorf("%+v", reports)
	}
	for path, want := range map[string]bool{root + "/" + aside: false, root + "/other": true, dir + "/" + aside: true, root + "/d/" + aside: true} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A sweep leaves alone what runs, and what is about to; and removes what never began.
func TestASweepLeavesARecordThatIsHeld(t *testing.T) {
	state, root := t.TempDir(), treeOf(t, ".envrc")
	record, err := NewRecord(state, Run{Roots: []string{root}, Names: someNames.List})
	if err != nil {
		t.Fatal(err)
	}
	begins, old := filepath.Join(state, recordsName, "begins.new"), filepath.Join(state, recordsName, "old.new")
	long := time.Now().Add(-2 * time.Minute)
	if err := errors.Join(os.WriteFile(begins, nil, 0o600), os.WriteFile(old, nil, 0o600), os.Chtimes(old, long, long)); err != nil {
		t.Fatal(err)
	}
	if reports := Sweep(state, nil, nil, nil, nil, nil); len(reports) != 0 {
		t.Errorf("%+v", reports)
	}
	for path, want := range map[string]bool{root + "/.envrc": true, record.path: true, begins: true, old: false} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	record.file.Close() // its launcher is killed
	if reports := Sweep(state, nil, nil, nil, nil, nil); len(reports) != 1 || len(reports[0].Told) != 1 {
		t.Errorf("%+v", reports)
	}
	for _, path := range []string{root + "/.envrc", record.path} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is there", path)
		}
	}
}

// What a killed launcher's command left of a rebase is read as it was kept, and what git would
// execute is set aside.
func TestASweepReadsTheStateOfWhatStopped(t *testing.T) {
	for name, c := range map[string]struct {
		before, text string
		stays        bool
	}{
		"what was there":  {"pick d95f3ad1 a\nexec make\n", "exec make\n", true},
		"another command": {"pick d95f3ad1 a\nexec make\n", "exec evil\n", false},
		"a new list":      {"", "exec evil\n", false},
		"without one":     {"", "pick d95f3ad1 a\n", true},
	} {
		state, root := t.TempDir(), treeOf(t, ".git/HEAD", ".git/objects/", ".git/refs/", ".git/rebase-merge/git-rebase-todo")
		path := root + "/.git/rebase-merge/git-rebase-todo"
		strays := map[string]string{}
		if c.before != "" {
			KeepState(strays, path, c.before)
		}
		record, err := NewRecord(state, Run{Roots: []string{root}, Names: someNames.List, Known: map[string]bool{root + "/.git": true}, Git: map[string]bool{root + "/.git": true}, Strays: strays})
		if err == nil {
			err = os.WriteFile(path, []byte(c.text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		record.file.Close() // its launcher is killed
		reports := Sweep(state, nil, func(int, string, bool) error { return nil }, nil, nil, nil)
		if _, err := os.Lstat(path); (err == nil) != c.stays {
			t.Errorf("%s: %v, %+v", name, err, reports)
		}
	}
}

package protect

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
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
	for _, report := range Sweep(state, nil, nil, nil, nil) {
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
	if reports := Sweep(state, nil, nil, nil, nil); len(reports) != 1 || len(reports[0].Told) != 1 {
		t.Errorf("%+v", reports)
	}
}

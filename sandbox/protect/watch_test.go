package protect

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// watch watches a directory until the test ends.
func watch(t *testing.T, dir string, disarm Disarm) *Watch {
	t.Helper()
	w, err := NewWatch()
	if err == nil {
		_, _, err = w.Prepare(Options{Roots: []string{dir}, Names: someNames, Disarm: disarm})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Begin(nil, nil)
	t.Cleanup(w.Close)
	return w
}

// isGone waits until nothing is called so any more.
func isGone(t *testing.T, path string, within time.Duration) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, err := os.Lstat(path); err != nil {
			return
		}
		if time.Since(began) > within {
			t.Fatalf("%s still stands after %v", path, within)
		}
	}
}

// A command that keeps the watch busy does not keep it from what else it does.
func TestANameIsSetAsideSoonHoweverMuchElseIsToBeDone(t *testing.T) {
	dir := treeOf(t, "c/config.toml", "node_modules/p/.envrc", "repository/HEAD")
	for i := range 1000 {
		if err := os.MkdirAll(fmt.Sprintf("%s/s/%d", dir, i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	watch(t, dir, func(int, func(int, string) error) ([]Taken, error) {
		time.Sleep(20 * time.Millisecond)
		return nil, nil
	})
	const rounds = 100
	busy := func() {
		for range rounds {
			os.Rename(dir+"/s", dir+"/s2")
			os.Rename(dir+"/s2", dir+"/s")
			os.WriteFile(dir+"/repository/x", nil, 0o644)
			os.Rename(dir+"/repository/x", dir+"/repository/config")
			os.Remove(dir + "/repository/config")
		}
	}
	busy()
	var over atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !over.Load() {
			busy()
		}
	}()
	defer func() { over.Store(true); <-done }()
	for from, to := range map[string]string{"c": ".cargo", "node_modules/p": "p"} {
		if err := os.Rename(dir+"/"+from, dir+"/"+to); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(dir+"/.envrc", nil, 0o644)
	for _, path := range []string{"/.envrc", "/.cargo/config.toml", "/p/.envrc"} {
		isGone(t, dir+path, time.Second)
	}
}

func TestWhatWasSurveyedIsNotLookedThroughAgain(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/b", "closed/x", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w, err := NewWatch()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, root := range []string{dir + "/other", dir} {
		if r := w.Survey(root, someNames, func(path string) bool { return path == dir+"/other" }); len(r.Closed) > 0 {
			t.Fatal(r.Closed)
		}
	}
	os.Mkdir(dir+"/a/late", 0o755)
	closed, _, err := w.Prepare(Options{Roots: []string{dir}, Names: someNames, Apart: map[string]bool{dir + "/closed": true, dir + "/other": true}})
	if err != nil || len(closed) > 0 {
		t.Fatal(err, closed)
	}
	if w.at(dir+"/a/b") == nil {
		t.Error("what was surveyed is not in the account")
	}
	if w.at(dir+"/a/late") != nil {
		t.Error("it was looked through again")
	}
	if w.at(dir+"/closed") != nil || w.at(dir+"/closed/x") != nil || len(w.nodes) != 3 {
		t.Errorf("what must not be written is in the account: %d directories", len(w.nodes))
	}
	os.WriteFile(dir+"/other/.envrc", nil, 0o644)
	os.WriteFile(dir+"/closed/x/.envrc", nil, 0o644)
	os.WriteFile(dir+"/a/late/.envrc", nil, 0o644)
	report := w.End(nil)
	if len(report.Told) != 1 || report.Told[0].Path != dir+"/a/late/.envrc" {
		t.Errorf("%+v", report)
	}
}

// A program that mapped a file into its memory can write it without an event.
func TestNewRepositoriesAreLookedAtOnceMoreAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	var looks atomic.Int32
	w := watch(t, dir, func(int, func(int, string) error) ([]Taken, error) {
		looks.Add(1)
		return nil, nil
	})
	if err := os.MkdirAll(dir+"/r/.git/objects", 0o755); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(dir+"/r/.git/HEAD", nil, 0o644)
	quiet := int32(0)
	for began := time.Now(); quiet == 0 || looks.Load() != quiet; time.Sleep(100 * time.Millisecond) {
		if quiet = looks.Load(); time.Since(began) > 10*time.Second {
			t.Fatal("it is looked at without end")
		}
	}
	w.End(nil)
	if looks.Load() == quiet {
		t.Error("nobody looked at the end")
	}
}

// An agent that works for hours saves its settings more often than three times.
func TestANameCountsForAMinute(t *testing.T) {
	w := watch(t, t.TempDir(), nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	for range 3 {
		for range maxSame {
			w.count("/x")
		}
		if w.why != "" {
			t.Fatal(w.why)
		}
		w.counted = w.counted.Add(-sameFor - time.Second)
	}
	for range maxSame + 1 {
		w.count("/x")
	}
	if w.why == "" {
		t.Error("four times in a minute are let through")
	}
}

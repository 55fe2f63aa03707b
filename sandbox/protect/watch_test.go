package protect

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// Another sandbox may have a file open that a command moves to where git reads it.
func TestWhatSomebodyHasOpenIsCopiedAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	w, err := NewWatch()
	if err == nil {
		_, _, err = w.Prepare(Options{Roots: []string{dir}, Names: someNames, Disarm: func(int, func(int, string) error) ([]Taken, error) { return nil, nil },
			CheckIndex: func(int, string, bool) error { return nil }})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Begin(nil, nil)
	t.Cleanup(w.Close)
	names := []string{"config", "commondir", "gitdir", "index", "sharedindex.0123456789012345678901234567890123456789"}
	var open []*os.File
	for _, name := range names {
		file, err := os.Create(dir + "/" + name[:3])
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		file.WriteString("good")
		open = append(open, file)
	}
	os.MkdirAll(dir+"/r/.git/objects", 0o755)
	for _, name := range names {
		if err := os.Rename(dir+"/"+name[:3], dir+"/r/.git/"+name); err != nil {
			t.Fatal(err)
		}
	}
	os.Link(dir+"/r/.git/gitdir", dir+"/other")
	open[2].Close()
	w.End(QuarantineIn(t.TempDir()))
	for i, name := range names {
		open[i].WriteAt([]byte("evil"), 0)
		os.WriteFile(dir+"/other", []byte("evil"), 0o644)
		if text, err := os.ReadFile(dir + "/r/.git/" + name); string(text) != "good" {
			t.Errorf("%s: %q %v", name, text, err)
		}
	}
}

// What is written to a file that is mapped, nobody tells: while the command goes on, a copy takes
// its place.
func TestWhatIsMappedIsCopiedSoon(t *testing.T) {
	dir := treeOf(t, "r/.git/objects/", "r/.git/refs/", "r/.git/HEAD")
	git := map[string]bool{dir + "/r/.git": true}
	for i := range 600 {
		other := fmt.Sprintf("%s/others/%d/.git", dir, i)
		os.MkdirAll(other, 0o755)
		git[other] = true
	}
	w, err := NewWatch()
	if err == nil {
		_, _, err = w.Prepare(Options{Roots: []string{dir}, Names: someNames, Git: git, CheckIndex: func(int, string, bool) error { return nil }})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Begin(nil, nil)
	t.Cleanup(w.Close)
	index := dir + "/r/.git/index"
	file, err := os.Create(index)
	if err != nil {
		t.Fatal(err)
	}
	file.WriteString("good")
	mapped, err := unix.Mmap(int(file.Fd()), 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	file.Close()
	was, _ := os.Stat(index)
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if now, err := os.Stat(index); err == nil && !os.SameFile(was, now) {
			break
		}
		if time.Since(began) > 10*time.Second {
			t.Fatal("nobody looked")
		}
	}
	copy(mapped, "evil")
	if text, _ := os.ReadFile(index); string(text) != "good" {
		t.Errorf("%q", text)
	}
}

// When the kernel cannot tell all, what was there before counts only as long as it is that: a link
// can be replaced, and in a repository something new can be made.
func TestAfterAnOverflowWhatIsKnownIsLookedAtToo(t *testing.T) {
	dir := treeOf(t, "r/.git/objects/", "r/.git/refs/", "r/.git/logs/", "r/.git/HEAD", "s/", "q/")
	for _, name := range []string{".envrc", "r/.envrc", "s/.envrc"} {
		if err := os.Symlink("x", dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	w, err := NewWatch()
	if err == nil {
		_, _, err = w.Prepare(Options{Roots: []string{dir}, Names: someNames, Git: map[string]bool{dir + "/r/.git": true},
			Known: map[string]bool{dir + "/.envrc": true, dir + "/r/.envrc": true, dir + "/s/.envrc": true, dir + "/r/.git": true}})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	os.WriteFile(dir+"/n", nil, 0o644)
	os.Rename(dir+"/n", dir+"/.envrc")
	os.Symlink("/x", dir+"/r/.git/logs/HEAD")
	os.Rename(dir+"/s/.envrc", dir+"/q/.envrc") // where something else may be that it leads to
	for lost := make([]byte, 64<<10); ; {
		if n, err := unix.Read(w.inotify, lost); n <= 0 || err != nil {
			break
		}
	}
	w.overflowed()
	w.Begin(nil, nil)
	isGone(t, dir+"/.envrc", 5*time.Second)
	isGone(t, dir+"/r/.git/logs/HEAD", 5*time.Second)
	isGone(t, dir+"/q/.envrc", 5*time.Second)
	if _, err := os.Lstat(dir + "/r/.envrc"); err != nil {
		t.Error(err)
	}
}

// git reads one index and those that it shares with that: more than can be read are set aside.
func TestNoIndexIsLeftUnread(t *testing.T) {
	dir := t.TempDir()
	w, err := NewWatch()
	var bad atomic.Int32
	if err == nil {
		_, _, err = w.Prepare(Options{Roots: []string{dir}, Names: someNames, CheckIndex: func(_ int, name string, _ bool) error {
			if bad.Load() > 0 && name == "index" {
				return unix.EINVAL
			}
			return nil
		}})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Begin(nil, nil)
	t.Cleanup(w.Close)
	git := dir + "/r/.git/"
	os.MkdirAll(git+"objects", 0o755)
	for i := range 2 * maxIndexes {
		os.WriteFile(fmt.Sprintf("%ssharedindex.%040x", git, i), nil, 0o644)
	}
	os.WriteFile(git+"index", nil, 0o644)
	settled(t, w, dir)
	bad.Store(1)
	w.End(QuarantineIn(t.TempDir()))
	if _, err := os.Lstat(git + "index"); err == nil {
		t.Error("the index was not read")
	}
	if left, _ := filepath.Glob(git + "sharedindex.*"); len(left) > maxIndexes {
		t.Errorf("%d are left", len(left))
	}
}

// A session lasts for hours: what git would apply without a merge does not stay until its end.
func TestAStashIsSetAsideBeforeTheEnd(t *testing.T) {
	dir := t.TempDir()
	os.MkdirAll(dir+"/.git", 0o755)
	w := watch(t, dir, nil)
	stash := dir + "/.git/MERGE_AUTOSTASH"
	os.WriteFile(stash, []byte("x"), 0o644)
	old := func(merging bool) {
		settled(t, w, dir)
		w.mu.Lock()
		defer w.mu.Unlock()
		n := w.at(dir + "/.git")
		n.stashed = n.stashed.Add(-2 * stashTimeout)
		w.checkStash(n)
		if _, err := os.Lstat(stash); (err == nil) != merging {
			t.Errorf("merging: %v, and %v", merging, err)
		}
	}
	os.WriteFile(dir+"/.git/MERGE_HEAD", nil, 0o644)
	old(true)
	os.Remove(dir + "/.git/MERGE_HEAD")
	old(false)
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

// settled waits until all that was done in a directory so far is in the account.
func settled(t *testing.T, w *Watch, dir string) {
	t.Helper()
	if err := os.WriteFile(dir+"/.envrc", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	isGone(t, dir+"/.envrc", 5*time.Second)
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		over := len(w.lost) == 0 && len(w.todo) == 0 && len(w.retry) == 0
		w.mu.Unlock()
		if over {
			return
		}
		if time.Since(began) > 5*time.Second {
			t.Fatal("directories are lost for ever")
		}
	}
}

// isSetAsideEverywhere makes a protected name in every directory, and waits until they are gone.
func isSetAsideEverywhere(t *testing.T, dir string) {
	t.Helper()
	var made []string
	filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() && !isAside(entry.Name()) {
			made = append(made, path+"/.vscode")
			os.WriteFile(path+"/.vscode", nil, 0o644)
		}
		return nil
	})
	for _, path := range made {
		isGone(t, path, 2*time.Second)
	}
}

// exchange gives two directories each other's name, in one step.
func exchange(t *testing.T, a, b string) {
	t.Helper()
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
		t.Fatal(err)
	}
}

func TestADirectoryIsWatchedWhereverItIsMoved(t *testing.T) {
	rename := func(t *testing.T, from, to string) {
		if err := unix.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	for name, do := range map[string]func(t *testing.T, dir string){
		"exchanged":                    func(t *testing.T, dir string) { exchange(t, dir+"/a", dir+"/b") },
		"with another parent's":        func(t *testing.T, dir string) { exchange(t, dir+"/p/a", dir+"/q/b") },
		"with one below":               func(t *testing.T, dir string) { exchange(t, dir+"/a", dir+"/p/a") },
		"exchanged with a file":        func(t *testing.T, dir string) { exchange(t, dir+"/a", dir+"/file") },
		"three in turn":                func(t *testing.T, dir string) { exchange(t, dir+"/a", dir+"/b"); exchange(t, dir+"/b", dir+"/c") },
		"there and back":               func(t *testing.T, dir string) { exchange(t, dir+"/a", dir+"/b"); exchange(t, dir+"/a", dir+"/b") },
		"exchanged, then moved":        func(t *testing.T, dir string) { exchange(t, dir+"/p", dir+"/q"); rename(t, dir+"/p", dir+"/new") },
		"moved, then exchanged":        func(t *testing.T, dir string) { rename(t, dir+"/p", dir+"/new"); exchange(t, dir+"/new", dir+"/a") },
		"in the place of an empty one": func(t *testing.T, dir string) { rename(t, dir+"/p", dir+"/a"); rename(t, dir+"/a", dir+"/b") },
		"and then a parent that is new": func(t *testing.T, dir string) {
			exchange(t, dir+"/p", dir+"/b")
			os.Mkdir(dir+"/p/new", 0o755)
			exchange(t, dir+"/p/new", dir+"/b")
		},
		"with one that is called its name": func(t *testing.T, dir string) { exchange(t, dir+"/p/a", dir+"/a"); exchange(t, dir+"/p", dir+"/a") },
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, late=%v", name, late), func(t *testing.T) {
				dir := treeOf(t, "a/", "b/", "c/", "p/a/x/", "q/b/y/", "file")
				w, err := NewWatch()
				if err == nil {
					_, _, err = w.Prepare(Options{Roots: []string{dir}, Names: someNames})
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(w.Close)
				if late { // all that is told was long ago
					do(t, dir)
				}
				w.Begin(nil, nil)
				if !late {
					do(t, dir)
				}
				settled(t, w, dir)
				isSetAsideEverywhere(t, dir)
			})
		}
	}
}

// Any renaming and exchange of directories, one after the other, as quickly as can be.
func TestNoOrderOfRenamingHidesADirectory(t *testing.T) {
	var list []string
	for i := range 12 {
		list = append(list, fmt.Sprintf("%d/", i), fmt.Sprintf("%d/x/", i))
	}
	dir := treeOf(t, list...)
	w := watch(t, dir, nil)
	random := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		for range 40 {
			var all []string
			filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
				if err == nil && entry.IsDir() && path != dir {
					all = append(all, path)
				}
				return nil
			})
			a, b := all[random.IntN(len(all))], all[random.IntN(len(all))]
			switch random.IntN(3) {
			case 0:
				os.Rename(a, b+"/"+fmt.Sprint(random.IntN(100)))
			default: // one cannot be exchanged with what it lies in
				unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
			}
		}
		settled(t, w, dir)
	}
	isSetAsideEverywhere(t, dir)
}

// What is lost because the kernel's words were misunderstood is looked for, and watched meanwhile.
func TestALostDirectoryIsLookedFor(t *testing.T) {
	dir := treeOf(t, "a/b/", "c/")
	w := watch(t, dir, nil)
	settled(t, w, dir)
	w.mu.Lock()
	for _, n := range []*node{w.at(dir + "/a/b"), w.at(dir + "/c")} {
		w.lose(n)
	}
	w.mu.Unlock()
	settled(t, w, dir)
	isSetAsideEverywhere(t, dir)
}

// A directory that is open is looked through wherever it is by now: what was above it may be found
// below it, before that is told.
func TestNoDirectoryLiesBelowItself(t *testing.T) {
	dir := treeOf(t, "a/b/c/")
	w, err := NewWatch()
	if err == nil {
		_, _, err = w.Prepare(Options{Roots: []string{dir}, Names: someNames})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	c := w.at(dir + "/a/b/c")
	if _, err := w.descriptor(c); err != nil {
		t.Fatal(err)
	}
	for _, names := range [][2]string{{"a/b/c", "c"}, {"a", "c/a"}} {
		if err := os.Rename(dir+"/"+names[0], dir+"/"+names[1]); err != nil {
			t.Fatal(err)
		}
	}
	w.later(c, allLevels)
	for w.isLooking() {
		w.step()
	}
	w.lose(c)
	w.place(c, c, "c", false) // what was told was taken for something else
	w.Begin(nil, nil)
	settled(t, w, dir)
	isSetAsideEverywhere(t, dir)
}

// What is done when the kernel has nothing more to tell is done in time, too, if it always has.
func TestACommandThatKeepsTheWatchBusyHidesNothing(t *testing.T) {
	outside := t.TempDir()
	dir := treeOf(t, "d/", "busy/x/")
	w, err := NewWatch()
	if err == nil {
		_, _, err = w.Prepare(Options{Roots: []string{dir}, Names: someNames, Held: func(func(uint64, uint64) bool) bool { return true }})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	if err := os.Rename(dir+"/d", outside+"/d"); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	tried := false
	w.retry = append(w.retry, func() { tried = true })
	buffer := make([]byte, 4096)
	for began := time.Now(); !tried || w.why == ""; {
		os.Mkdir(dir+"/new", 0o755)
		os.Remove(dir + "/new")
		w.later(w.at(dir+"/busy"), 0)
		if w.turn(buffer) {
			t.Fatal("it is idle")
		}
		if time.Since(began) > 4*lostLong {
			t.Fatalf("tried again: %v; what was moved away was looked for: %v", tried, w.why != "")
		}
	}
}

// A name of several components comes into being when the first one does: what has the last one may
// be known for long, however deep it is.
func TestADirectoryIsProtectedByThoseAboveIt(t *testing.T) {
	names := func(dir string) *Names {
		n := NewNames([]Name{{Path: ".envrc"}, {Path: ".github/hooks"}, {Path: ".config/mise/tasks"}}, []string{"node_modules"})
		n.Add(Name{Path: "hooks", In: dir + "/1/2/3/4/5/6/7/8/9/10/11"})
		return n
	}
	for name, c := range map[string]struct{ from, to, file string }{
		"two":               {"x", ".github", "/hooks/file"},
		"two, deeper":       {"x", ".github", "/hooks/a/b/file"},
		"three":             {"c", ".config", "/mise/tasks/file"},
		"the one between":   {".config/x", ".config/mise", "/tasks/file"},
		"below a known one": {"x", "y/.github", "/hooks/file"},
		"one that is named": {"t", "1", "/2/3/4/5/6/7/8/9/10/11/hooks/pre-commit"},
		"the same, halfway": {"1/2/3/4/x", "1/2/3/4/5", "/6/7/8/9/10/11/hooks/pre-commit"},
		"out of packages":   {"node_modules/x", ".github", "/hooks/file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := treeOf(t, c.from+c.file, "y/", ".config/")
			w, err := NewWatch()
			if err == nil {
				_, _, err = w.Prepare(Options{Roots: []string{dir}, Names: names(dir)})
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(w.Close)
			w.Begin(nil, nil)
			if err := unix.Rename(dir+"/"+c.from, dir+"/"+c.to); err != nil {
				t.Fatal(err)
			}
			isGone(t, dir+"/"+c.to+c.file, 2*time.Second)
		})
	}
}

// What is set aside as a whole is one thing in the quarantine, however much is in it.
func TestADirectoryThatIsMovedToAProtectedNameIsSetAsideAsOne(t *testing.T) {
	for _, to := range []string{".vscode", "in/.vscode"} {
		dir := treeOf(t, "in/")
		w := watch(t, dir, nil)
		os.MkdirAll(dir+"/x/sub", 0o755)
		for i := range 100 {
			if err := os.WriteFile(fmt.Sprintf("%s/x/%d", dir, i), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		settled(t, w, dir)
		os.Rename(dir+"/x", dir+"/"+to)
		isGone(t, dir+"/"+to, 2*time.Second)
		report := w.End(QuarantineIn(t.TempDir()))
		if report.Why != "" || len(report.Told) != 2 || report.More > 0 || report.Told[1].Path != dir+"/"+to {
			t.Errorf("%s: %+v", to, report)
		}
	}
}

// Several processes exchange and rename directories at random: what the watch reads is never what
// is there.
func TestAStormOfRenamingHidesNoDirectory(t *testing.T) {
	var list, all []string
	for i := range 3 {
		for _, below := range []string{"", "/a", "/b", "/a/c", "/b/d"} {
			list = append(list, fmt.Sprintf("%d%s/", i, below))
			all = append(all, fmt.Sprintf("%d%s", i, below))
		}
	}
	dir := treeOf(t, list...)
	w := watch(t, dir, nil)
	var storm sync.WaitGroup
	until := time.Now().Add(time.Second)
	for i := range 3 {
		storm.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for time.Now().Before(until) {
				a, b := dir+"/"+all[random.IntN(len(all))], dir+"/"+all[random.IntN(len(all))]
				unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
				if random.IntN(4) == 0 {
					os.Rename(a, b+"/x")
				}
			}
		})
	}
	storm.Wait()
	if why := w.Why(); why != "" {
		t.Skip(why)
	}
	settled(t, w, dir)
	isSetAsideEverywhere(t, dir)
}

// A name that stood for a moment may have been read.
func TestWhatWasRemovedAgainIsTold(t *testing.T) {
	dir := treeOf(t, "d/")
	w := watch(t, dir, nil)
	for _, name := range []string{".envrc", "d/.envrc"} {
		for range 2 {
			os.WriteFile(dir+"/"+name, nil, 0o644)
			isGone(t, dir+"/"+name, 2*time.Second)
		}
	}
	os.WriteFile(dir+"/.vscode", nil, 0o644)
	isGone(t, dir+"/.vscode", 2*time.Second)
	for _, list := range []string{"/" + asidePrefix + "*", "/d/" + asidePrefix + "*"} {
		found, _ := filepath.Glob(dir + list)
		for _, path := range found {
			os.Remove(path)
		}
	}
	os.WriteFile(dir+"/.vscode", nil, 0o644)
	isGone(t, dir+"/.vscode", 2*time.Second)
	report := w.End(QuarantineIn(t.TempDir()))
	var told []string
	for _, one := range report.Told {
		told = append(told, fmt.Sprint(one.Path[len(dir):], " ", one.Rule, " ", one.Text != ""))
	}
	if want := []string{"/.envrc .envrc true", "/.vscode .vscode false", "/d/.envrc .envrc true"}; !slices.Equal(told, want) {
		t.Errorf("%q, want %q", told, want)
	}
}

// Another sandbox may make something in a directory under a protected name when all that was in it
// has been set aside.
func TestWhatIsMadeAtTheVeryEndIsSetAsideWithItsDirectory(t *testing.T) {
	dir := treeOf(t)
	w, err := NewWatch()
	if err == nil {
		_, _, err = w.Prepare(Options{Roots: []string{dir}, Names: NewNames([]Name{{Path: ".claude"}}, nil)})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Begin(nil, nil)
	t.Cleanup(w.Close)
	os.MkdirAll(dir+"/.claude/commands", 0o755)
	w.finish()
	os.WriteFile(dir+"/.claude/commands/evil.md", nil, 0o644)
	q := QuarantineIn(t.TempDir())
	w.removeInto(q)
	if _, err := os.Lstat(dir + "/.claude"); err == nil {
		t.Error("it stays")
	}
	if list := mustList(t, q); len(list) != 1 {
		t.Errorf("%+v", list)
	}
}

// A directory that another sandbox may write is moved to where it is executed, or to a protected
// name: what comes of it is another directory.
func TestWhatAnotherSandboxWritesIsNeverTheDirectoryThatIsExecuted(t *testing.T) {
	for _, at := range []string{"n/.git/hooks", "d/.vscode", "d/.claude/commands"} {
		t.Run(at, func(t *testing.T) {
			dir := treeOf(t, "n/", "d/", "sub/in/x")
			w, err := NewWatch()
			names := NewNames([]Name{{Path: ".vscode"}, {Path: ".claude"}}, nil)
			if err == nil {
				_, _, err = w.Prepare(Options{Roots: []string{dir}, Names: names, Disarm: func(int, func(int, string) error) ([]Taken, error) { return nil, nil }})
			}
			if err != nil {
				t.Fatal(err)
			}
			w.Begin(nil, nil)
			t.Cleanup(w.Close)
			theirs, err := os.OpenRoot(dir + "/sub")
			if err != nil {
				t.Fatal(err)
			}
			defer theirs.Close()
			in, err := theirs.OpenRoot("in")
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			for _, name := range []string{"n/.git", "n/.git/objects", "n/.git/refs", "d/.claude"} {
				if err := os.Mkdir(dir+"/"+name, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Rename(dir+"/sub", dir+"/"+at); err != nil {
				t.Fatal(err)
			}
			plant := func() {
				theirs.WriteFile("evil", nil, 0o755)
				in.WriteFile("evil", nil, 0o755)
			}
			q := QuarantineIn(t.TempDir())
			w.End(q)
			plant()
			for _, e := range mustList(t, q) {
				if _, err := q.Restore(e.ID); err != nil {
					t.Error(e.Path, err)
				}
			}
			plant()
			if _, err := os.Lstat(dir + "/" + at + "/in/x"); err != nil {
				t.Errorf("what was there is gone: %v", err)
			}
			for _, name := range []string{"/evil", "/in/evil"} {
				if _, err := os.Lstat(dir + "/" + at + name); err == nil && at+name != "n/.git/hooks/in/evil" { // which is no hook
					t.Errorf("%s was written by the other sandbox", name)
				}
			}
		})
	}
}

// More repositories than can be looked after end the command; those that are gone again do not
// count.
func TestTooManyRepositoriesAtATimeEndTheCommand(t *testing.T) {
	w := &Watch{nodes: map[int32]*node{}, over: make(chan struct{})}
	for i := range int32(3 * maxWritten) {
		n := &node{watch: i}
		w.nodes[i] = n
		w.writtenIn(n)
		w.writtenIn(n)
		if i >= maxWritten-1 && i < 2*maxWritten {
			delete(w.nodes, i)
		}
		if over := w.why != ""; over != (i > 2*maxWritten) {
			t.Fatalf("%d: %q", i, w.why)
		}
		if w.why != "" {
			return
		}
	}
}

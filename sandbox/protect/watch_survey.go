package protect

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Survey is Scan, and each directory is watched from before it is read. What Prepare is told to
// watch and was surveyed is not looked through again. What is named as closed has to be apart by
// then.
func (w *Watch) Survey(root string, names *Names, apart func(string) bool) Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.survey(root, names, apart)
	w.surveyed = append(w.surveyed, s)
	return s.result
}

// Prepare watches all directories. What it names as closed could not be watched, and must not be
// writable. Late is what is protected and was not known: it came since.
func (w *Watch) Prepare(o Options) (closed []Closed, late []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.options = o
	for path := range o.Covers {
		w.lastNames[base(path)] = true
	}
	for _, path := range o.Roots {
		if err := w.addRoot(path); err != nil {
			return nil, nil, err
		}
	}
	for _, s := range w.surveyed { // it is not writable after all
		w.dismiss(s)
	}
	w.surveyed = nil
	w.watchApart()
	dirs := map[string]bool{}
	for path := range o.Covers {
		dirs[parent(path)] = true
	}
	for dir := range dirs {
		w.watchRemovals(dir)
		if err := w.watchCover(dir); err != nil {
			return nil, nil, err
		}
	}
	return RollUpAll(w.closed, o.Roots, DefaultLimits.Closed), w.late, nil
}

// RollUpAll rolls up what lies in several roots.
func RollUpAll(list []Closed, roots []string, most int) []Closed {
	var all []Closed
	for _, root := range roots {
		var mine []Closed
		for _, c := range list {
			if within(c.Path, root) {
				mine = append(mine, c)
			}
		}
		if len(mine) > 0 {
			all = append(all, RollUp(mine, root, most)...)
		}
	}
	return all
}

// A survey is what was seen of a directory and all below it, while each was watched.
type survey struct {
	path   string
	open   int // O_PATH, or -1
	list   []*node
	paths  map[*node]string
	result Result
	err    error
}

// survey looks through a directory and all below it, several at once, and watches them.
func (w *Watch) survey(path string, names *Names, apart func(string) bool) *survey {
	s := &survey{path: path, paths: map[*node]string{}}
	if s.open, s.err = openRoot(path); s.err != nil {
		s.open = -1
		s.result.Closed = []Closed{{path, "it cannot be opened: " + s.err.Error()}}
		return s
	}
	watched := len(w.nodes)
	for _, other := range w.surveyed {
		watched += len(other.list)
	}
	var mu sync.Mutex
	s.result = names.scan(path, apart, DefaultLimits, nil, func(path string, dir int) error {
		var stat unix.Stat_t
		if err := unix.Fstat(dir, &stat); err != nil {
			return err
		}
		wd, err := w.addWatch(dir, directoryEvents)
		if err != nil {
			return err
		}
		n := &node{watch: int32(wd), object: objectOf(&stat), open: -1}
		mu.Lock()
		defer mu.Unlock()
		s.list = append(s.list, n)
		s.paths[n] = path
		if watched+len(s.list) > w.budget {
			return unix.ENOSPC
		}
		return nil
	})
	slices.SortFunc(s.list, func(a, b *node) int { return strings.Compare(s.paths[a], s.paths[b]) })
	return s
}

// dismiss ends the watch of what was surveyed.
func (w *Watch) dismiss(s *survey) {
	for _, n := range s.list {
		if w.nodes[n.watch] == nil {
			unix.InotifyRmWatch(w.inotify, uint32(n.watch))
		}
	}
	if s.open >= 0 {
		unix.Close(s.open)
	}
}

// addRoot puts a directory and all below it into the account.
func (w *Watch) addRoot(path string) error {
	i := slices.IndexFunc(w.surveyed, func(s *survey) bool { return s.path == path })
	var s *survey
	if i >= 0 {
		s = w.surveyed[i]
		w.surveyed = slices.Delete(w.surveyed, i, i+1)
	} else {
		s = w.survey(path, w.options.Names, w.isApart)
		w.closed = append(w.closed, s.result.Closed...) // whoever called Survey knows of those
	}
	if s.err != nil {
		return &os.PathError{Op: "open", Path: path, Err: s.err}
	}
	r := &root{path: path, open: s.open}
	byPath := make(map[string]*node, len(s.list))
	for _, n := range s.list {
		w.enter(r, n, s.paths[n], byPath)
	}
	if r.node == nil {
		unix.Close(s.open)
		why := "it is gone"
		if len(s.result.Closed) > 0 {
			why = s.result.Closed[0].Why
		}
		return &os.PathError{Op: "watch", Path: path, Err: errors.New(why)}
	}
	w.roots = append(w.roots, r)
	for path := range w.options.Known { // also links that lead to something: nothing is mounted on them
		if n := byPath[parent(path)]; n != nil {
			if fd, err := w.descriptor(n); err == nil {
				if is, there := identify(fd, base(path), path); there {
					w.known[is] = true
				}
			}
		}
	}
	for dir := range w.options.Git {
		if n := byPath[dir]; n != nil {
			w.thereInGit(n, dir)
			w.watchIndex(n)
		}
	}
	for _, dir := range s.result.Packed {
		if n := byPath[dir]; n != nil && n != apartNode {
			if fd, err := w.descriptor(n); err == nil {
				before, _ := readPacked(fd)
				w.hasPacked(n, before)
				KeepPacked(w.strays, dir, before)
			}
		}
	}
	for _, dir := range s.result.Objects {
		if n := byPath[dir]; n != nil && n != apartNode {
			if fd, err := w.descriptor(n); err == nil {
				keepAlternates(w.strays, fd, dir)
			}
		}
	}
	for _, found := range s.result.Found {
		n := byPath[parent(found.Path)]
		if found.Stray && n != nil {
			if fd, err := w.descriptor(n); err == nil {
				is := Stray(fd, found.Path)
				if w.strays[found.Path] = is; (is == "" || is == strayRef) && w.mayMislead(n, base(found.Path)) {
					w.strays[found.Path] = KeptRef(found.Path, readStash(fd, base(found.Path)))
					w.refLater(n, fd, base(found.Path))
				}
				if isAutostash(base(found.Path)) {
					w.stashLater(n, base(found.Path))
				}
			}
		}
		if found.Index && IsState(found.Path) && n != nil && n != apartNode {
			if fd, err := w.descriptor(n); err == nil {
				text, _ := stateIn(fd, base(found.Path), MaxState)
				KeepState(w.strays, found.Path, text)
				n.stopped = true
				w.watchIndex(n)
			}
		}
		if found.Rule != "" && n != nil {
			w.there(n, base(found.Path), found.Path)
		}
	}
	return nil
}

// enter puts a directory that was found when the watch began into the account. Its parent is there
// already.
func (w *Watch) enter(r *root, n *node, path string, byPath map[string]*node) {
	if known := w.nodes[n.watch]; known != nil { // a part of another root, or it was moved in this very moment and seen twice
		byPath[path] = known
		if path == r.path {
			r.node = known
		}
		return
	}
	w.nodes[n.watch] = n
	byPath[path] = n
	n.git = w.options.Git[path]
	n.root = r
	if path == r.path {
		r.node = n
		n.part, n.placed = partAt(path), true
		return
	}
	above := byPath[parent(path)]
	switch {
	case w.isApart(path) || above == apartNode: // the command may not write it after all, nor what is below
		byPath[path] = apartNode
		unix.InotifyRmWatch(w.inotify, uint32(n.watch))
		delete(w.nodes, n.watch)
		return
	case above == nil:
		w.lose(n)
		return
	}
	n.packages = above.packages || w.options.Names.packages[base(path)]
	n.part = partIn(above.part, base(path), n.git)
	w.attach(n, above, base(path))
	n.placed = true
	if w.options.Made[path] {
		w.disarmLater(n)
	}
}

// Add watches one more directory, with what is protected there already. What counts by its name
// from now on counts everywhere.
func (w *Watch) Add(path string, names *Names, known, git, apart map[string]bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	more := names.without(w.options.Names)
	w.also(more)
	if slices.ContainsFunc(w.roots, func(r *root) bool { return r.path == path }) {
		return nil
	}
	w.know(path, known, git)
	w.options.Apart = apart
	w.options.Record.also(path, Run{Known: known, Git: git, Apart: apart, Names: more})
	if err := w.addRoot(path); err != nil {
		return err
	}
	w.watchApart()
	if len(w.closed) > 0 {
		return fmt.Errorf("%s: %s", w.closed[0].Path, w.closed[0].Why)
	}
	return nil
}

// Also protects more names from now on. Known are paths that were there before, and were not
// protected.
func (w *Watch) Also(names []Name, known map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.also(names)
	w.know("/", known, nil)
	for path := range known {
		w.meet(path)
	}
	w.options.Record.add(moved{Also: recorded(Run{Known: known, Names: names})})
}

func (w *Watch) also(names []Name) {
	if len(names) == 0 {
		return
	}
	unprotected := w.options.Names.Unprotected
	w.options.Names = NewNames(slices.Concat(w.options.Names.List, names), slices.Collect(maps.Keys(w.options.Names.packages))) // others read the old ones
	w.options.Names.Unprotected = unprotected
}

// meet remembers what is at a path as what was there before.
func (w *Watch) meet(path string) {
	n := w.at(parent(path))
	if n == nil {
		return
	}
	if fd, err := w.descriptor(n); err == nil {
		if is, there := identify(fd, base(path), path); there {
			w.known[is] = true
		}
	}
}

// know adds what is protected below a directory.
func (w *Watch) know(dir string, known, git map[string]bool) {
	if w.options.Known == nil {
		w.options.Known, w.options.Git = map[string]bool{}, map[string]bool{}
	}
	for path := range known {
		if within(path, dir) {
			w.options.Known[path] = true
		}
	}
	for path := range git {
		if within(path, dir) {
			w.options.Git[path] = true
		}
	}
}

// Retain ends the watch of all roots but these. What of them lies in one that stays is a part of
// that from now on.
func (w *Watch) Retain(roots []string, known, git, apart map[string]bool) {
	w.Objects()
	w.mu.Lock()
	defer w.mu.Unlock()
	before := len(w.roots)
	w.roots = slices.DeleteFunc(w.roots, func(r *root) bool {
		if slices.Contains(roots, r.path) {
			return false
		}
		if n := r.node; n.above == nil && n.root == r {
			w.forget(n)
		}
		w.know(r.path, known, git)
		w.options.Record.left(r.path)
		unix.Close(r.open)
		return true
	})
	if len(w.roots) != before {
		w.options.Apart = apart
		w.watchApart()
		w.rescan()
		unix.Write(w.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// watchBudget is how many directories one run may watch: half of what the kernel lets all programs
// of this user have.
func watchBudget() int {
	text, err := readSmall("/proc/sys/fs/inotify/max_user_watches")
	var most int
	if _, scanned := fmt.Sscan(text, &most); err != nil || scanned != nil {
		most = 8192
	}
	return most / 2
}

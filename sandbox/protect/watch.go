package protect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Taken is what was taken out of a repository that came into being.
type Taken struct{ Name, Key, Value string }

// Options say what is watched, and what for.
type Options struct {
	Roots  []string // absolute, no component a symbolic link
	Names  *Names
	Known  map[string]bool  // protected paths that were there before, which are mounts
	Git    map[string]bool  // git directories that were there before
	Made   map[string]bool  // git directories that other commands made, and that nobody else has written since: as if this one made them
	Apart  map[string]bool  // directories below the roots that the command may not write, or that are roots themselves
	Covers map[string]Cover // paths at which something is mounted that has to stay
	// Disarm takes out of a directory what git executes there, if it is one of git's. Nil does not.
	Disarm Disarm
	// CheckIndex says what is wrong with an index in a git directory. Nil does not look.
	CheckIndex CheckIndex
	// SkipWorktree has git not miss what was set aside. Nil does not.
	SkipWorktree SkipWorktree
	// Exclude has git not add what was set aside under its new name. Nil does not.
	Exclude Exclude
	// NewObjectCheck says what is wrong with git's objects. Nil does not look.
	NewObjectCheck NewObjectCheck
	// DisarmSettings does so for one file of settings in a repository that was there. Nil does not, and the file is set aside.
	DisarmSettings func(dir int, name string, aside func(dir int, name string) error) ([]Taken, error)
	// CheckGitFile says what is wrong with a file .git. Nil does not look.
	CheckGitFile CheckGitFile
	// Instead puts a file in the place of a symbolic link in a git directory, if that leads to settings of the sandbox's own: a copy of a
	// repository, made inside, has one. Nil does not.
	Instead func(dir int, name string) ([]Taken, bool)
	// Held reports whether a process of the command has one of these directories: as working directory, or open.
	Held func(is func(device, inode uint64) bool) bool
	// Own is this program's directory, into which no link may lead that the command makes. Empty: that is not looked for.
	Own string
	// CouldWrite reports whether any command could ever write what is at a path. Nil: any could.
	CouldWrite func(path string) bool
	Record     *Record
}

// A Cover is what something that is mounted inside does to what the host has there.
type Cover uint8

const (
	Hides     Cover = iota + 1
	Protects        // read-only
	Anchors         // only keeps it from being renamed
	Elsewhere       // somebody else looks after it
	Withholds       // read-only, whatever it is: a grant says so
)

// A Watch watches the directories that a command may write. Survey and Prepare come before the command begins, and End when every
// process of it has ended.
type Watch struct {
	options  Options
	inotify  int
	buffer   []byte // for what it tells: of the reader, and when that has ended, of finish
	wake     int    // an eventfd: the reader is to look up
	budget   int    // directories
	over     chan struct{}
	done     chan struct{}
	replaced func(path string)
	missing  func() []string

	mu        sync.Mutex
	surveyed  []*survey // not entered into the account yet
	roots     []*root
	nodes     map[int32]*node
	extra     map[int32]string // directories outside the roots, in which something is covered
	bare      map[string]bool  // of those apart: the host took what was there, and the mount with it
	back      map[string]bool  // of those, what has been covered since
	lost      map[*node]bool   // moved away, and not seen again yet
	moved     map[uint32]*node // by the cookie
	recent    [openNodes]*node
	next      int
	todo      []*node // to be looked through, each once
	looking   *looking
	indexes   []entry // of git's, to be read
	written   []*node // in which git's files are written; see lookForWriters
	dirty     []*node // may be git's, and have to be disarmed, each once
	restUntil time.Time
	// writersNext is when to look for who has them open, and writersLeft in how many that is still to do.
	writersNext time.Time
	writersLeft int
	linked      []*node // in which links may have come into being, each once
	linksNext   time.Time
	waiting     []entry
	retry       []func()
	closed      []Closed // found in Prepare
	late        []string
	known       map[identity]bool
	own         map[identity]bool // copies that this watch put in the place of what became read-only
	strays      map[string]string // links and the like in git's directories that were there before, by path
	lastNames   map[string]bool   // of covers
	loose       map[string]bool   // of covers, those above which the command may rename directories
	packed      map[*node]string  // directories with a packed-refs, and what was in that
	closing     bool
	ending      bool
	deep        bool
	began       time.Time
	objectsSeen time.Time // when objects were looked through the last time
	again       int       // how often everything was looked through again
	overflows   int       // how often the kernel could not tell all
	blind       time.Time // since when it could not
	seeking     time.Time // since when everything is looked through for what is lost
	seekNext    time.Time // not before
	settled     time.Time
	onceMore    bool
	why         string

	items    []*item
	news     int // how many of them have been told
	attempts map[string]int
	counted  time.Time // since when
	asides   int
	takings  int
	empty    map[string]bool
	taken    map[string][]Taken
	doubted  map[string]time.Time
	unmoved  []Told
	excluded map[string]bool // working trees in which git does not add what was set aside; false: it could not be told so
}

// looking is a directory that is being looked through, a part at a time: it may hold very much.
type looking struct {
	in     *node
	levels int // of what is known below it
	open   int
}

const (
	allLevels = 1 << 30
	// renamedLevels is how far below a directory that has another name now some protected name may end, if none is longer.
	renamedLevels = 8
)

// NewWatch opens a watch. Its descriptor may be handed to another process, which then closes it last: that takes the kernel a
// while.
func NewWatch() (*Watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w; see /proc/sys/fs/inotify/max_user_instances", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	now := time.Now()
	return &Watch{began: now, objectsSeen: now, inotify: fd, wake: wake, budget: watchBudget(), over: make(chan struct{}), nodes: map[int32]*node{}, extra: map[int32]string{},
		lost: map[*node]bool{}, moved: map[uint32]*node{}, known: map[identity]bool{}, own: map[identity]bool{}, strays: map[string]string{}, lastNames: map[string]bool{}, packed: map[*node]string{}, attempts: map[string]int{},
		bare: map[string]bool{}, back: map[string]bool{}, empty: map[string]bool{}, taken: map[string][]Taken{}, doubted: map[string]time.Time{}, excluded: map[string]bool{}}, nil
}

// Began is when the watch began: what was changed before, nobody changed whom it is to watch.
func (w *Watch) Began() time.Time { return w.began }

// Descriptor is the number of the inotify instance.
func (w *Watch) Descriptor() int { return w.inotify }

// Over is closed when the command has to be ended; Why says why.
func (w *Watch) Over() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.over
}

// Why says why the command had to be ended, or nothing.
func (w *Watch) Why() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.why
}

func (w *Watch) stop(why string) {
	if w.why == "" && !w.closing {
		w.why = why
		close(w.over)
	}
}

// Survey is Scan, and each directory is watched from before it is read. What Prepare is told to watch and was surveyed is not looked
// through again. What is named as closed has to be apart by then.
func (w *Watch) Survey(root string, names *Names, apart func(string) bool) Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.survey(root, names, apart)
	w.surveyed = append(w.surveyed, s)
	return s.result
}

// Prepare watches all directories. What it names as closed could not be watched, and must not be writable. Late is what is protected
// and was not known: it came since.
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

// apartNode stands for directories that are not in the account.
var apartNode = &node{watch: -1}

// enter puts a directory that was found when the watch began into the account. Its parent is there already.
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

// Add watches one more directory, with what is protected there already. What counts by its name from now on counts everywhere.
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

// Also protects more names from now on. Known are paths that were there before, and were not protected.
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

// Guard is for a path that is made read-only by a mount now, and could be written until now: no process of the command has a file there open
// afterwards, even for reading (by /proc/self/fd it would be opened again, without that mount), nor anybody for writing, and what comes to
// be in it is set aside. inside are the directories there.
func (w *Watch) Guard(path string) (inside map[[2]uint64]bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.know("/", map[string]bool{path: true}, nil)
	w.options.Record.add(moved{Also: recorded(Run{Known: map[string]bool{path: true}})})
	n := w.at(parent(path))
	if n == nil {
		return nil, nil // it is none of what is watched
	}
	fd, err := w.descriptor(n)
	if err != nil {
		return nil, err
	}
	held := map[object]bool{}
	if w.options.Held != nil {
		w.options.Held(func(device, inode uint64) bool {
			held[object{device, inode}] = true
			return false
		})
	}
	copied := func(dir int, name string) {
		at, _ := readlink(dir)
		if is, there := identify(dir, name, join(at, name)); there {
			w.own[is] = true
		}
	}
	if err := closeHolders(fd, base(path), held, copied, &copying{bytes: maxCopyBytes, names: maxCopyNames}, 0); err != nil {
		return nil, err
	}
	w.meet(path)
	if w.loose == nil {
		w.loose = map[string]bool{}
	}
	w.loose[path] = true
	w.cover(path, Protects)
	if below := n.below[base(path)]; below != nil {
		inside = map[[2]uint64]bool{}
		rule, _ := w.rule(n, base(path))
		for list := []*node{below}; len(list) > 0; {
			last := list[len(list)-1]
			list = slices.AppendSeq(list[:len(list)-1], maps.Values(last.below))
			last.whole, last.stood = rule, true
			inside[[2]uint64{last.object.device, last.object.inode}] = true
		}
	}
	return inside, nil
}

// closeHolders puts copies in the place of files that are held, that somebody has open for writing, or that have other names.
func closeHolders(dir int, name string, held map[object]bool, copied func(dir int, name string), c *copying, depth int) error {
	var stat unix.Stat_t
	if err := unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	switch kindOf(stat.Mode) {
	case File:
		if is, shared := isOpen(dir, name); is || shared || held[objectOf(&stat)] {
			err := detach(dir, name, c, depth)
			copied(dir, name)
			return err
		}
	case Directory:
		if c.names--; c.names < 0 || depth > maxCopyDepth {
			return errShared
		}
		fd, err := openOwn(dir, name)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		names, err := namesIn(fd, c.names)
		for _, name := range names {
			if err == nil {
				err = closeHolders(fd, name, held, copied, c, depth+1)
			}
		}
		return err
	}
	return nil
}

// loosen is about a directory that was renamed: what is mounted in it goes with it, and what comes to be where it was may be the command's.
func (w *Watch) loosen(dir string) {
	for path := range w.loose {
		if within(path, dir) {
			w.gone(path)
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

// Retain ends the watch of all roots but these. What of them lies in one that stays is a part of that from now on.
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

// watchApart has it told when something is removed on which a mount of its own stands.
func (w *Watch) watchApart() {
	dirs := map[string]bool{}
	for path := range w.options.Apart {
		w.lastNames[base(path)] = true
		dirs[parent(path)] = true
	}
	for dir := range dirs {
		w.watchRemovals(dir)
	}
}

// isApart reports whether what is at a path is not the command's to write, or looked after for itself.
func (w *Watch) isApart(path string) bool { return w.options.Apart[path] && !w.bare[path] }

// uncovered is about a path at which something was removed or made: nothing is mounted there, nor below. What comes to be there is the
// command's to write, and is watched like all else.
func (w *Watch) uncovered(path string) {
	if !w.lastNames[base(path)] {
		return
	}
	for p := range w.options.Apart {
		if !within(p, path) {
			continue
		}
		delete(w.back, p)
		if !w.bare[p] {
			w.bare[p] = true
			w.options.Record.bare(p)
		}
	}
}

// watchRemovals has it told when something is removed in a directory in which something is covered.
func (w *Watch) watchRemovals(dir string) {
	if n := w.at(dir); n != nil {
		if fd, err := w.descriptor(n); err == nil {
			w.addWatch(fd, unix.IN_DELETE|unix.IN_MASK_ADD)
		}
	}
}

// watchCover watches a directory in which something is covered, where that is not one of those that are watched anyway.
func (w *Watch) watchCover(dir string) error {
	if slices.ContainsFunc(w.roots, func(r *root) bool { return within(dir, r.path) }) {
		return nil
	}
	fd, err := openRoot(dir)
	if err != nil {
		return nil // to mount there fails, too
	}
	defer unix.Close(fd)
	wd, err := w.addWatch(fd, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_ONLYDIR|unix.IN_MASK_ADD)
	if err == nil && w.nodes[int32(wd)] == nil {
		w.extra[int32(wd)] = dir
	}
	return err
}

// Begin reads what the kernel tells, until End. replaced is called for each path that has to be covered and has something else at it
// now, and missing when that may be any of them: it names those at which nothing is mounted.
func (w *Watch) Begin(replaced func(path string), missing func() []string) {
	w.mu.Lock()
	w.replaced, w.missing = replaced, missing
	w.mu.Unlock()
	w.done = make(chan struct{})
	go w.read()
}

// read waits on a thread of its own: to be woken on one takes the runtime least.
func (w *Watch) read() {
	defer close(w.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fds := []unix.PollFd{{Fd: int32(w.inotify), Events: unix.POLLIN}, {Fd: int32(w.wake), Events: unix.POLLIN}}
	w.buffer = make([]byte, 32<<10)
	for {
		w.mu.Lock()
		idle := w.turn(w.buffer)
		ending, wait := w.ending, -1
		if len(w.waiting)+len(w.retry)+len(w.dirty)+len(w.indexes)+len(w.linked)+len(w.lost) > 0 {
			wait = 1
		} else if w.writersLeft > 0 {
			wait = 0
		} else if len(w.written) > 0 {
			wait = int(writersEvery / time.Millisecond)
		}
		w.mu.Unlock()
		if ending {
			return
		}
		if !idle {
			continue
		}
		if _, err := unix.Poll(fds, wait); err != nil && err != unix.EINTR {
			return
		}
		if fds[1].Revents != 0 {
			unix.Read(w.wake, make([]byte, 8))
		}
	}
}

// turn handles what the kernel has told, then looks through directories, for about as long, and disarms one. However much a command
// does of one kind, the others have their turn. It reports whether there is nothing more to do.
func (w *Watch) turn(buffer []byte) (idle bool) {
	began := time.Now()
	told := w.drain(buffer)
	busy := w.disarmNext()
	busy = w.readIndex() || busy
	busy = w.checkLinks() || busy
	for took := time.Since(began); w.isLooking(); {
		busy = true
		if w.step(); !w.isLooking() {
			w.looked()
		}
		if time.Since(began) > 2*took {
			break
		}
	}
	if idle = !told && !busy; !idle && time.Since(w.settled) < settleEvery {
		return false
	}
	if !idle {
		for range maxDrained { // what is tried again is to find the account as it should be
			if !w.drain(buffer) {
				break
			}
		}
	}
	w.settled = time.Now()
	w.settle(idle)
	return idle && !w.isLooking() && !w.isDirty()
}

const (
	// settleEvery is how long a command that keeps the watch busy may keep it from what is done when it is not.
	settleEvery = 20 * time.Millisecond
	maxDrained  = 16
)

// isDirty reports whether a directory has to be disarmed now.
func (w *Watch) isDirty() bool {
	if len(w.dirty) == 0 || w.closing {
		return len(w.dirty) > 0
	}
	now := time.Now()
	return !now.Before(w.dirty[0].notBefore) && !now.Before(w.restUntil)
}

func (w *Watch) isLooking() bool { return len(w.todo) > 0 || w.looking != nil }

// drain handles events that there are: what fits into the buffer.
func (w *Watch) drain(buffer []byte) (told bool) {
	for {
		n, err := unix.Read(w.inotify, buffer)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return false
		}
		w.handle(buffer[:n])
		return true
	}
}

// settle is for when the kernel has nothing more to tell: what is lost is gone, and what could not be done is tried again. idle says that
// there is nothing to look through, either.
func (w *Watch) settle(idle bool) {
	w.lookForWriters()
	w.settleLost(idle)
	retry := w.retry
	w.retry = nil
	for _, again := range retry {
		again()
	}
	waiting := w.waiting
	w.waiting = nil
	for _, e := range waiting {
		w.tryAdopt(e.in, e.name)
	}
}

const (
	// lostTimeout is how long the kernel may take to tell where a directory was moved.
	lostTimeout = 5 * time.Millisecond
	// lostLong is how long a command that has a directory may keep the watch too busy to look for it.
	lostLong = time.Second
)

// settleLost is for directories that were moved away. What the account says may be wrong, so they are looked for everywhere. Only what is
// not found then was moved out of what is watched, by somebody outside. A process of the command that has one can go on making whatever
// it wants in it, unseen: it is ended.
func (w *Watch) settleLost(idle bool) {
	now := time.Now()
	if idle && !w.seeking.IsZero() { // everything was looked through
		w.seekNext, w.seeking = now.Add(min(seekRest*now.Sub(w.seeking), time.Second)), time.Time{}
	}
	held, seek := false, false
	for n := range w.lost {
		switch age := now.Sub(n.lostAt); {
		case n.lostAt.IsZero() && w.closing:
			n.lostAt, n.unasked, seek = now, true, true
		case n.lostAt.IsZero():
			n.lostAt, n.held = now, w.isHeld(n)
		case !idle && age > lostLong && !w.closing: // there is too much to do to look for it
			n.lostAt, held = now, held || n.held || w.isHeld(n)
		case idle && n.sought && len(w.retry) == 0:
			held = held || n.held || !w.closing && w.isHeld(n)
			if n.unasked && len(w.unmoved) < maxTold {
				w.unmoved = append(w.unmoved, Told{Path: n.was, Text: "the directory was moved away on the host while the command ended, which may have made something in it since"})
			}
			w.forget(n)
		case idle && !n.sought:
			seek = seek || w.closing || age > lostTimeout && now.After(w.seekNext)
		}
	}
	if seek && idle {
		for n := range w.lost {
			n.sought = true
		}
		w.seeking = now
		w.rescan()
	}
	if len(w.lost) == 0 {
		clear(w.moved)
	}
	if held && w.why == "" {
		w.stop("was at work in a directory that was moved away on the host")
		w.why = "was at work in a directory that was moved away on the host, where it could have made anything: look at what is in it"
	}
}

// seekRest is for how many times as long as everything was looked through it is not done again, at most a second: what is lost stays
// watched meanwhile.
const seekRest = 4

// isHeld reports whether a process of the command has a directory, or one below it.
func (w *Watch) isHeld(n *node) bool {
	if w.options.Held == nil {
		return false
	}
	all := map[object]bool{}
	for list := []*node{n}; len(list) > 0; {
		last := list[len(list)-1]
		list = slices.AppendSeq(list[:len(list)-1], maps.Values(last.below))
		all[last.object] = true
	}
	return w.options.Held(func(device, inode uint64) bool { return all[object{device, inode}] })
}

// An event is one of the kernel's (inotify(7)).
type event struct {
	watch        int32
	mask, cookie uint32
	name         []byte
}

// next takes an event off a buffer of them.
func next(events []byte) (event, []byte) {
	size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
	name, _, _ := bytes.Cut(events[unix.SizeofInotifyEvent:size], []byte{0})
	return event{int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:]), binary.NativeEndian.Uint32(events[8:]), name}, events[size:]
}

// handle looks at events.
func (w *Watch) handle(events []byte) {
	for len(events) >= unix.SizeofInotifyEvent {
		var e event
		e, events = next(events)
		switch n := w.nodes[e.watch]; {
		case e.mask&unix.IN_Q_OVERFLOW != 0:
			w.overflowed()
		case e.mask&unix.IN_IGNORED != 0:
			if n != nil {
				w.drop(n)
			}
		case n != nil && w.lastNames[string(e.name)] && n.path() != "":
			var more []byte
			covered := false
			if covered, more = w.atCover(e, join(n.path(), string(e.name)), events); !covered {
				w.happened(n, e.name, e.mask, e.cookie)
			}
			events = append(events[:len(events):len(events)], more...)
		case n != nil:
			w.happened(n, e.name, e.mask, e.cookie)
		case w.extra[e.watch] != "":
			w.isCovered(join(w.extra[e.watch], string(e.name)))
		}
	}
}

// atCover is about an event at a name at which something may be mounted. It reports whether nothing more is to be done: it has been
// covered again. More are events that came in that time.
//
// While something is mounted there, only somebody outside can rename another thing over it. Once it was removed or renamed, or if
// something more happened before it was covered again, the command may have made what is there now: then it is treated as whatever
// comes into being.
func (w *Watch) atCover(e event, path string, events []byte) (covered bool, more []byte) {
	cover, is := w.options.Covers[path]
	removed := e.mask&unix.IN_MOVED_TO == 0
	if removed && (is || w.options.Apart[path]) {
		w.uncovered(path)
	}
	switch {
	case !is:
		return false, nil
	case cover == Elsewhere:
		return true, nil
	case cover == Hides || cover == Withholds && (removed || w.bare[path]):
		if removed && cover == Withholds {
			w.gone(path)
		}
		if e.mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 {
			w.isCovered(path)
		}
		return false, nil
	case removed:
		w.gone(path)
		return false, nil
	}
	w.isCovered(path)
	buffer := make([]byte, 16<<10)
	n, err := unix.Read(w.inotify, buffer)
	if err == nil && n > 0 {
		more = buffer[:n]
	}
	for _, rest := range [][]byte{events, more} {
		for len(rest) >= unix.SizeofInotifyEvent {
			var later event
			later, rest = next(rest)
			if later.watch == e.watch && bytes.Equal(later.name, e.name) {
				w.gone(path)
				return false, more
			}
		}
	}
	return true, more
}

// gone is about something that was protected at a path, and is not there any more.
func (w *Watch) gone(path string) {
	if w.options.Covers[path] == 0 {
		return
	}
	for p, cover := range w.options.Covers {
		if within(p, path) && cover != Hides && cover != Withholds {
			delete(w.options.Covers, p)
		}
	}
	for _, list := range []map[string]bool{w.options.Known, w.options.Git} {
		for p := range list {
			if within(p, path) {
				delete(list, p)
			}
		}
	}
}

// Gone says that nothing is mounted at a path, because nothing was there.
func (w *Watch) Gone(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uncovered(path)
	w.gone(path)
	delete(w.options.Known, path)
}

// stays covers what has to be covered whoever made it.
func (w *Watch) stays(path string) bool {
	if cover := w.options.Covers[path]; cover != Hides && cover != Withholds {
		return false
	}
	w.isCovered(path)
	return true
}

func (w *Watch) happened(n *node, name []byte, mask, cookie uint32) {
	isDirectory := mask&unix.IN_ISDIR != 0
	switch {
	case mask&unix.IN_MOVED_FROM != 0:
		if isDirectory && len(w.loose) > 0 && n.path() != "" {
			w.loosen(join(n.path(), string(name)))
		}
		if below := n.below[string(name)]; isDirectory && below != nil {
			w.lose(below)
			w.moved[cookie] = below
			if _, err := w.descriptor(n); err == nil { // when two are exchanged, something has the name already
				w.tryAdopt(n, string(name))
			}
		}
	case mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0:
		if mask&unix.IN_MOVED_TO != 0 {
			if m := w.moved[cookie]; m != nil && isDirectory {
				delete(w.moved, cookie)
				if w.lost[m] { // else it was found since
					w.place(m, n, string(name), false)
				}
			}
		}
		if !isDirectory {
			w.linksLater(n)
		}
		if isDirectory || n.part != notGit || w.matters(n, name) {
			kind := File
			if isDirectory {
				kind = Directory
			}
			w.appeared(n, string(name), kind, mask&unix.IN_MOVED_TO != 0)
		}
	case mask&(unix.IN_MODIFY|unix.IN_CLOSE_WRITE) != 0:
		if n.fresh && isGitSetting(name) {
			w.disarmLater(n)
		}
		if n.sparse && string(name) == ofWorktree {
			w.worktreeSettings(n)
		}
		w.indexLater(n, string(name))
		if n.refs[string(name)] {
			w.appeared(n, string(name), File, true)
		}
		if n.linked && isNamed(string(name), ".git") {
			w.gitFile(n, string(name))
		}
	}
}

// mayMislead reports whether git may take a file in a directory for another object than the one that is asked for.
func (w *Watch) mayMislead(n *node, name string) bool {
	_, is := mayMislead(join(n.path(), name))
	return is
}

// matters reports whether a name may be one that anything is to be done about. It is for speed: most are not.
func (w *Watch) matters(n *node, name []byte) bool {
	return n.whole != "" || w.options.Names.ends(name) || isGits(name) || isNamed(n.name, "hooks") || isNamed(string(name), ".git") || isNamed(string(name), packedRefs) || w.lastNames[string(name)]
}

// has reports whether something is called name in an open directory.
func has(dir int, name string) bool {
	return unix.Faccessat(dir, name, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// isNamed reports whether a name is another one, or differs from it by letter case alone.
func isNamed(name, is string) bool { return len(name) >= len(is) && fold(name) == is }

// isGits reports whether git takes a name in one of its directories for a part of it. Letter case does not matter here, either.
func isGits(name []byte) bool {
	switch string(foldBytes(name)) {
	case "head", "objects", "refs", "hooks":
		return true
	}
	return isGitSetting(name)
}

func isGitSetting(name []byte) bool {
	switch string(foldBytes(name)) {
	case "config", "config.worktree", "commondir", "gitdir":
		return true
	}
	return false
}

// appeared does what is to be done about something that has come into being, or was found.
func (w *Watch) appeared(n *node, name string, kind Kind, moved bool) {
	if n.path() == "" { // where it is, another event will tell
		n.top().doubt = true
		return
	}
	rule, protected := w.rule(n, name)
	if !protected && kind != Directory && !isAside(name) {
		rule, protected = w.options.Names.MatchLeaf(n.path(), name, n.part != notGit)
	}
	if !protected && kind != Directory {
		if of, is := w.options.Names.MatchLink(n.path(), name); is && w.isLink(n, name) {
			rule, protected = of, true
		}
	}
	if !protected && kind != Directory && w.isStray(n, name) {
		if fd, err := w.descriptor(n); err == nil && w.putInstead(n, fd, name) {
			return // of the file, the kernel tells
		}
		rule, protected = ".git", true
	}
	if !protected && kind != Directory && isNamed(name, packedRefs) {
		w.hasPacked(n, "")
	}
	if !protected && kind != Directory {
		w.indexLater(n, name)
		if isNamed(name, ".git") {
			w.gitFile(n, name)
		}
	}
	switch {
	case !protected:
	case n.git && kind != Directory && name == ofWorktree && w.options.DisarmSettings != nil:
		w.worktreeSettings(n)
		return
	case n.whole != "" && kind == Directory, kind == Directory && !moved && n.whole == "":
		// A directory that was made, under a protected name, or in one that was: what it comes to hold is set aside.
		w.mayBeEmpty(join(n.path(), name))
	case w.isOwn(n, name):
		return
	default:
		w.setAside(n, name, rule, kind)
		return
	}
	w.gits(n, name)
	if kind == Directory {
		w.tryAdopt(n, name)
	}
}

// isOwn reports whether a name stands for a copy that this watch has put there.
func (w *Watch) isOwn(n *node, name string) bool {
	if len(w.own) == 0 {
		return false
	}
	fd, err := w.descriptor(n)
	if err != nil {
		return false
	}
	is, there := identify(fd, name, join(n.path(), name))
	return there && w.own[is]
}

// isLink reports whether a name stands for a symbolic link. What is gone by now, another event tells.
func (w *Watch) isLink(n *node, name string) bool {
	fd, err := w.descriptor(n)
	if err != nil {
		w.whenMoved(n, func() { w.appeared(n, name, Link, false) })
		return false
	}
	var stat unix.Stat_t
	return unix.Fstatat(fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil && kindOf(stat.Mode) == Link
}

// rule is what protects a name in a directory.
func (w *Watch) rule(n *node, name string) (string, bool) {
	switch {
	case isAside(name):
		return "", false
	case isNamed(n.name, "hooks") && strings.HasSuffix(name, ".sample"):
		return "", false // git's own, which it does not execute
	case n.whole != "":
		return n.whole, true
	case n.git && (isGitSetting([]byte(name)) || isNamed(name, "hooks")) && !w.options.Names.Unprotected[fold(name)]:
		return ".git/" + name, true
	}
	return w.options.Names.Match(n.path(), name, n.packages)
}

// there is what is protected and was there before the command began.
func (w *Watch) there(n *node, name, path string) {
	fd, err := w.descriptor(n)
	if err != nil {
		return
	}
	is, there := identify(fd, name, path)
	if !there {
		return
	}
	w.known[is] = true
	if !w.options.Known[path] && !w.isApart(path) {
		w.late = append(w.late, path)
		w.mayBeEmpty(path)
	}
}

// mayBeEmpty remembers a path at which a directory came into being that is to be removed when it is empty at the end.
func (w *Watch) mayBeEmpty(path string) {
	if len(w.empty) < maxAll {
		w.empty[path] = true
	}
}

// thereInGit is the same of what git executes in one of its directories, or is led by.
func (w *Watch) thereInGit(n *node, path string) {
	for _, name := range gitNames {
		if !w.options.Names.Unprotected[name] {
			w.there(n, name, join(path, name))
		}
	}
}

// gitNames are what git executes in one of its directories, and what leads it elsewhere.
var gitNames = []string{"hooks", "config", "config.worktree", "commondir", "gitdir"}

// isCovered has what is at a path covered again, if it is one at which something has to be mounted.
func (w *Watch) isCovered(path string) bool {
	if w.options.Covers[path] == 0 {
		return false
	}
	w.back[path] = true
	if w.replaced != nil {
		w.replaced(path)
	}
	return true
}

// Cover says what is covered from now on, and nothing else is.
func (w *Watch) Cover(covers map[string]Cover) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.options.Covers = nil
	for path, how := range covers {
		w.cover(path, how)
	}
}

// CoverAlso adds a path.
func (w *Watch) CoverAlso(path string, how Cover) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cover(path, how)
}

func (w *Watch) cover(path string, how Cover) {
	if w.options.Covers == nil {
		w.options.Covers = map[string]Cover{}
	}
	w.options.Covers[path] = how
	w.lastNames[base(path)] = true
	w.watchRemovals(parent(path))
}

// at is the directory at a path, by the account.
func (w *Watch) at(path string) *node {
	for _, r := range w.roots {
		if !within(path, r.path) {
			continue
		}
		n := r.node
		for name := range strings.SplitSeq(relative(path, r.path), "/") {
			if name != "" && n != nil {
				n = n.below[name]
			}
		}
		if n != nil {
			return n
		}
	}
	return nil
}

// tryAdopt watches a directory, or tries again later.
func (w *Watch) tryAdopt(n *node, name string) {
	switch err := w.adopt(n, name); {
	case err == nil:
	case errors.Is(err, errStale):
		w.whenMoved(n, func() { w.tryAdopt(n, name) })
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM):
		w.stop("makes more directories than can be watched (see /proc/sys/fs/inotify/max_user_watches)")
	default:
		w.stop("makes a directory that cannot be watched: " + err.Error())
	}
}

const (
	// maxRetries bounds how much is tried again at a time, because a directory is not where the account says.
	maxRetries = 4096
	// maxStale is how often in a row one directory may not be there, before the account is made anew.
	maxStale = 3
)

// whenMoved tries something again when all that the kernel has to tell was heard.
func (w *Watch) whenMoved(n *node, again func()) {
	switch {
	case w.nodes[n.watch] != n, n.path() == "":
		n.doubt = true // it is looked through when it appears somewhere
	case len(w.retry) >= maxRetries:
		w.stop("moves directories faster than the watch can follow")
	case n.stale >= maxStale:
		n.stale = 0
		w.lookAgain()
	default:
		n.stale++
		w.retry = append(w.retry, again)
	}
}

const (
	// maxAgain bounds how often everything is looked through again in one run because the account was wrong.
	maxAgain = 64
	// maxBlind bounds how long the kernel may have more to tell than it keeps, before everything was looked through once in between.
	maxBlind = 30 * time.Second
)

// lookAgain makes the account anew.
func (w *Watch) lookAgain() {
	if w.again++; w.again > maxAgain && !w.closing {
		w.stop("changes its directories faster than the watch can follow")
		return
	}
	w.coverMissing()
	w.rescan()
}

// overflowed is for when the kernel could not tell all: everything is looked through again, once for all that is lost meanwhile.
func (w *Watch) overflowed() {
	w.overflows++
	w.coverMissing()
	switch {
	case w.blind.IsZero():
		w.blind = time.Now()
		w.rescan()
	case time.Since(w.blind) > maxBlind:
		w.stop("changes more than the watch can follow")
	default:
		w.onceMore = true
	}
}

// looked is for when everything was looked through.
func (w *Watch) looked() {
	if w.onceMore {
		w.onceMore = false
		w.rescan()
		return
	}
	w.blind = time.Time{}
}

// coverMissing covers what is hidden and is not any more. What was protected and is not any more, the command may have made.
func (w *Watch) coverMissing() {
	if w.missing == nil {
		return
	}
	for _, path := range w.missing() {
		w.uncovered(path)
		if !w.stays(path) {
			w.gone(path)
		}
	}
}

func (w *Watch) rescan() {
	for _, n := range w.todo {
		n.queued = false
	}
	w.todo = w.todo[:0]
	w.endLook()
	for _, r := range w.roots {
		w.later(r.node, allLevels)
	}
}

// later has a directory looked through, and so many levels of what is known below it.
func (w *Watch) later(n *node, levels int) {
	n.doubt = false
	if n.queued {
		n.levels = max(n.levels, levels)
		return
	}
	n.queued, n.levels = true, levels
	w.todo = append(w.todo, n)
}

// step looks through a part of one directory.
func (w *Watch) step() {
	if w.looking == nil && !w.beginLook() {
		return
	}
	l := w.looking
	n := l.in
	type seen struct {
		name string
		kind Kind
	}
	var list []seen
	more, err := readSome(l.open, func(name []byte, kind Kind) bool {
		if kind == Link {
			w.linksLater(n)
		}
		if n.part != notGit && (w.believes(n, string(name)) || isAutostash(string(name)) || w.mayMislead(n, string(name))) || kind == Directory && (l.levels > 0 || n.below[string(name)] == nil) || n.part != notGit && kind != File || w.matters(n, name) {
			list = append(list, seen{string(name), kind})
		}
		return true
	})
	if err != nil || !more {
		w.endLook()
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		if n.above != nil {
			w.unreadable(n.above, n.name)
		}
		return
	}
	for _, s := range list {
		if w.nodes[n.watch] != n {
			return
		}
		w.found(n, s.name, s.kind, l.levels)
	}
}

// beginLook takes the next directory that is to be looked through.
func (w *Watch) beginLook() bool {
	n := w.todo[0]
	w.todo[0] = nil
	if w.todo = w.todo[1:]; len(w.todo) == 0 {
		w.todo = nil
	}
	levels := n.levels
	n.queued = false
	if w.nodes[n.watch] != n {
		return false // it is gone
	}
	fd, err := w.descriptor(n)
	if err != nil {
		again := n.wanted == 0
		n.wanted = max(n.wanted, levels+1)
		if again {
			w.whenMoved(n, func() {
				levels := n.wanted - 1
				n.wanted = 0
				w.later(n, levels)
			})
		}
		return false
	}
	_, err = unix.Seek(fd, 0, unix.SEEK_SET)
	own := -1
	if err == nil {
		own, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	if err != nil {
		if n.above != nil {
			w.unreadable(n.above, n.name)
		}
		return false
	}
	w.looking = &looking{n, levels, own}
	return true
}

func (w *Watch) endLook() {
	if w.looking != nil {
		unix.Close(w.looking.open)
		w.looking = nil
	}
}

// found is about something that was there when a directory was looked through.
func (w *Watch) found(n *node, name string, kind Kind, levels int) {
	path := join(n.path(), name)
	if n.path() != "" {
		if w.bare[path] && !w.back[path] { // it was there before its directory was watched
			w.stays(path)
		}
		_, protected := w.rule(n, name)
		is := w.isKnown(n, name)
		if c := w.options.Covers[path]; c == Hides || c == Protects || c == Elsewhere || is && w.options.Known[path] && (protected || kind != Directory) {
			return
		}
		if protected && is && kind != Link { // the command can move a link, as nothing is mounted on it
			// Something that was protected before: the host moved it here, with the directory.
			w.cover(path, Protects)
			w.isCovered(path)
			return
		}
	}
	if below := n.below[name]; below != nil && kind == Directory && levels < allLevels {
		switch rule, _ := w.rule(n, name); {
		case rule == below.whole:
			w.later(below, levels-1)
		case n.whole == "" && rule != "": // its name is protected, since those of the directories above are what they are now
			w.setAside(n, name, rule, kind)
		default:
			below.whole = rule
			w.later(below, allLevels)
		}
		return
	}
	w.deep = levels == allLevels
	w.appeared(n, name, kind, kind != Directory)
	w.deep = false
}

// isKnown reports whether a name stands for an object that was protected from the start.
func (w *Watch) isKnown(n *node, name string) bool {
	fd, err := w.descriptor(n)
	if err != nil {
		return false
	}
	is, there := identify(fd, name, join(n.path(), name))
	return there && w.known[is]
}

// gits has a directory disarmed, if what appeared in it may make it one of git's.
func (w *Watch) gits(n *node, name string) {
	switch {
	case n.git && !isNamed(n.name, "hooks"):
	case isGits([]byte(name)):
		w.disarmLater(n)
	case isNamed(n.name, "hooks") && n.above != nil && !strings.HasSuffix(name, ".sample"):
		w.disarmLater(n.above)
	}
}

// disarmLater has a directory disarmed when the events that there are were handled: once for all of them, as it takes long.
func (w *Watch) disarmLater(n *node) {
	if w.options.Disarm != nil && !n.git && !n.dirty {
		n.dirty = true
		w.dirty = append(w.dirty, n)
	}
}

// maxRest bounds how long nothing is disarmed after something was: as long as that took.
const maxRest = 100 * time.Millisecond

// ofWorktree is the file of settings that "git sparse-checkout" makes.
const ofWorktree = "config.worktree"

// worktreeSettings takes out of it what it may not have.
func (w *Watch) worktreeSettings(n *node) {
	fd, err := w.descriptor(n)
	if err != nil {
		w.whenMoved(n, func() { w.worktreeSettings(n) })
		return
	}
	if !n.sparse {
		n.sparse = true
		w.writtenIn(n)
		w.addWatch(fd, unix.IN_MODIFY|unix.IN_CLOSE_WRITE|unix.IN_MASK_ADD)
	}
	if w.closing {
		apart(fd, ofWorktree)
	}
	taken, err := w.options.DisarmSettings(fd, ofWorktree, func(dir int, name string) error { return w.asideIn(n, dir, name) })
	w.takenOut(n.path(), taken)
	if err != nil {
		w.setAside(n, ofWorktree, ".git/"+ofWorktree, File)
	}
}

// disarmNext disarms one directory.
func (w *Watch) disarmNext() (was bool) {
	if !w.isDirty() {
		return false
	}
	n := w.dirty[0]
	if w.dirty = w.dirty[1:]; len(w.dirty) == 0 {
		w.dirty = nil
	}
	n.dirty = false
	began := time.Now()
	if w.nodes[n.watch] == n {
		w.disarm(n)
	}
	w.restUntil = time.Now().Add(min(time.Since(began), maxRest))
	return true
}

// disarm takes out of a directory what git would execute, if git takes it for its own.
func (w *Watch) disarm(n *node) {
	if w.options.Disarm == nil || n.git {
		return
	}
	fd, err := w.descriptor(n)
	if err != nil {
		w.whenMoved(n, func() { w.disarm(n) })
		return
	}
	if !n.fresh && (isNamed(n.name, ".git") || isBare(n.name) || has(fd, "HEAD") || has(fd, "objects")) {
		w.watchChanges(n, fd)
	}
	if !n.isGit && isGitIn(fd) {
		n.isGit = true
		n.part = max(n.part, gitTop)
		w.later(n, allLevels)
	}
	defer usable(fd)()
	taken, err := w.options.Disarm(fd, func(dir int, name string) error { return w.asideIn(n, dir, name) })
	path := n.path()
	w.takenOut(path, taken)
	if n.indexed { // settings say how it is read
		w.indexLater(n, "index")
	}
	if err != nil && w.closing && len(w.unmoved) < maxTold {
		w.unmoved = append(w.unmoved, Told{Path: path, Text: "is a repository that came into being, and what git would execute could not be taken out of it: " + err.Error()})
	}
	if err != nil && !w.closing {
		n.notBefore = time.Now().Add(time.Millisecond)
		w.disarmLater(n)
	}
}

// takenOut is about what was taken out of a git directory.
func (w *Watch) takenOut(path string, taken []Taken) {
	if len(taken) > 0 && len(w.taken[path]) < maxTaken && len(w.taken) < maxTaken {
		w.taken[path] = append(w.taken[path], taken...)
	}
	for _, t := range taken {
		w.countTaken(path, t)
	}
}

// putInstead reports whether a file has taken the place of a link in an open directory of git's, which is at n.
func (w *Watch) putInstead(n *node, dir int, name string) bool {
	if w.options.Instead == nil || !isGitSetting([]byte(name)) {
		return false
	}
	taken, is := w.options.Instead(dir, name)
	if is {
		w.count(join(n.path(), name))
		w.takenOut(n.path(), taken)
	}
	return is
}

// countTaken ends a command that makes one setting again and again, or very many. Some programs make a dozen, one after the other.
func (w *Watch) countTaken(path string, t Taken) {
	w.forgetAttempts()
	key := "git " + path + " " + t.Name + " " + t.Key
	if len(w.attempts) < 4*maxAll {
		w.attempts[key]++
	}
	w.takings++
	if t.Key != "" && w.attempts[key] > maxSame || w.takings > maxAll {
		w.stop("gives a repository settings again and again that something outside would execute: " + path)
	}
}

const maxTaken = 256

// watchBudget is how many directories one run may watch: half of what the kernel lets all programs of this user have.
func watchBudget() int {
	text, err := readSmall("/proc/sys/fs/inotify/max_user_watches")
	var most int
	if _, scanned := fmt.Sscan(text, &most); err != nil || scanned != nil {
		most = 8192
	}
	return most / 2
}

func readSmall(path string) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	buffer := make([]byte, 64)
	n, err := unix.Read(fd, buffer)
	return string(buffer[:max(n, 0)]), err
}

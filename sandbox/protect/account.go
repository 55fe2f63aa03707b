package protect

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A node is one directory that is watched. The tree of nodes is the account of what the directories
// are called now; the kernel's events keep it, and whatever is done is done in a directory that was
// opened and found to be the very one.
type node struct {
	watch    int32 // its number in the inotify instance
	above    *node // nil: a root, or it was moved away and not seen again yet
	name     string
	root     *root
	below    map[string]*node
	object   object
	whole    string // the rule: all that comes into being in it is set aside
	stood    bool   // it was there before it came to be protected: it is nobody's but the person's, and stays
	packages bool   // only what git executes counts
	git      bool   // a repository's that was there at the start
	part     gitPart
	indexed  bool            // writes are told, as there may be an index in it
	sparse   bool            // writes are told, as settings of a worktree came into being in it
	linked   bool            // writes are told, as there was a file .git in it
	watched  bool            // git's files are written in it
	isGit    bool            // a repository that came into being
	fresh    bool            // it may be a repository that came into being
	placed   bool            // it is where it was when objects were looked through, or when the watch began
	writers  map[string]bool // files of git's that somebody had open for writing
	links    bool            // links in it are to be looked at
	doubt    bool            // something happened in it that could not be looked at
	stale    int             // how often in a row it was not where the account says
	open     int             // a descriptor, or -1
	queued   bool            // it is to be looked through
	levels   int             // so deep
	wanted   int             // it was not where the account says, and is to be looked through: levels, and one
	dirty    bool            // it is to be disarmed
	stash    string          // what is called so in it may be a stash that git applies
	stashed  time.Time
	refs     map[string]bool // files in it that may come to be refs which git takes for other objects
	lostAt   time.Time
	held     bool // when it was lost: a process of the command has it
	sought   bool // everything was looked through for it since
	unasked  bool // nobody knows whether one had it
	was      string
	// notBefore is when to try once more to disarm it.
	notBefore time.Time
	stopped   bool // files in it, of when the command began, say how git goes on
}

// A root is a directory that the command may write, with all below it.
type root struct {
	path string
	open int // O_PATH
	node *node
}

// path is what the account says the directory is called, or nothing for one that was moved away.
func (n *node) path() string {
	var parts []string
	for ; n.above != nil; n = n.above {
		parts = append(parts, n.name)
	}
	if n.root == nil || n.root.node != n {
		return ""
	}
	path := n.root.path
	for i := len(parts) - 1; i >= 0; i-- {
		path = join(path, parts[i])
	}
	return path
}

func (n *node) top() *node {
	for n.above != nil {
		n = n.above
	}
	return n
}

// errStale means that a directory is not where the account says: more events are to come.
var errStale = errors.New("it was moved")

// openNodes is how many directories are kept open, the latest ones used.
const openNodes = 64

// descriptor opens a node's directory, and makes sure that it is that.
func (w *Watch) descriptor(n *node) (int, error) {
	if n.open >= 0 {
		n.stale = 0
		return n.open, nil
	}
	path := n.path()
	if path == "" {
		return -1, errStale
	}
	top := n.top().root
	fd, err := openBelow(top.open, relative(path, top.path), unix.O_RDONLY|unix.O_NONBLOCK)
	if err == unix.EACCES {
		fd, err = openOwn(top.open, relative(path, top.path))
	}
	if err == unix.EACCES { // another user's
		fd, err = openBelow(top.open, relative(path, top.path), unix.O_PATH)
	}
	if err != nil {
		return -1, errStale
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || objectOf(&stat) != n.object {
		unix.Close(fd)
		return -1, errStale
	}
	w.keep(n, fd)
	n.stale = 0
	return fd, nil
}

// keep remembers an open directory, and closes the one that was used least lately.
func (w *Watch) keep(n *node, fd int) {
	n.open = fd
	if old := w.recent[w.next]; old != nil {
		w.close(old)
	}
	w.recent[w.next] = n
	w.next = (w.next + 1) % len(w.recent)
}

func (w *Watch) close(n *node) {
	if n.open >= 0 {
		unix.Close(n.open)
		n.open = -1
	}
}

// attach puts a node where a directory is now. The account is a tree: nothing else makes a node
// another one's.
func (w *Watch) attach(n, above *node, name string) {
	n.placed = n.placed && n.above == above && n.name == name
	w.detach(n)
	if n == above { // what was told was taken for something else
		w.lose(n)
		return
	}
	for up := above; up.above != nil; up = up.above { // what the account has below it is elsewhere: it is above it by now
		if up.above == n {
			w.lose(up)
			break
		}
	}
	if old := above.below[name]; old != nil && old != n {
		w.lose(old)
	}
	if above.below == nil {
		above.below = map[string]*node{}
	}
	n.above, n.name = above, name
	above.below[name] = n
	delete(w.lost, n)
}

// lose is for a directory that is not where the account had it.
func (w *Watch) lose(n *node) {
	if path := n.path(); path != "" {
		n.was = path
	}
	w.detach(n)
	w.lost[n] = true
	n.lostAt, n.held, n.sought = time.Time{}, false, false
}

func (w *Watch) detach(n *node) {
	if n.above != nil && n.above.below[n.name] == n {
		delete(n.above.below, n.name)
	}
	n.above = nil
}

// forget ends the watch of a directory and of all below it.
func (w *Watch) forget(n *node) {
	list := []*node{n}
	for i := 0; i < len(list); i++ {
		list = slices.AppendSeq(list, maps.Values(list[i].below))
	}
	for _, n := range slices.Backward(list) { // what lies in another one first
		unix.InotifyRmWatch(w.inotify, uint32(n.watch))
		w.drop(n)
	}
}

// drop takes a node out of the account.
func (w *Watch) drop(n *node) {
	w.detach(n)
	for _, below := range n.below { // it is empty, so they are elsewhere
		w.lose(below)
	}
	w.close(n)
	delete(w.nodes, n.watch)
	delete(w.lost, n)
}

const directoryEvents = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_ONLYDIR

// adopt watches a directory that is, or has come to be, in another one, and has it looked through.
// How is what to do with it.
func (w *Watch) adopt(above *node, name string) error {
	if w.apart(above, name) {
		return nil
	}
	at, err := w.descriptor(above)
	if err != nil {
		return err
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == unix.EACCES {
		fd, err = openOwn(at, name)
	}
	switch err {
	case nil:
	case unix.EACCES, unix.EPERM:
		w.unreadable(above, name)
		return nil
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return nil // it is gone: where it is now, another event tells
	default:
		return err
	}
	n, known, err := w.watchDirectory(fd)
	if err != nil {
		unix.Close(fd)
		return err
	}
	if known {
		unix.Close(fd)
	} else {
		w.keep(n, fd)
	}
	w.place(n, above, name, !known)
	return nil
}

// watchDirectory adds a watch for an open directory. known says that there was one.
func (w *Watch) watchDirectory(fd int) (n *node, known bool, err error) {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, false, err
	}
	wd, err := w.addWatch(fd, directoryEvents|unix.IN_MASK_ADD)
	if err != nil {
		return nil, false, err
	}
	if n := w.nodes[int32(wd)]; n != nil {
		return n, true, nil
	}
	n = &node{watch: int32(wd), object: objectOf(&stat), open: -1}
	w.nodes[n.watch] = n
	if len(w.nodes) > w.budget {
		return n, false, unix.ENOSPC
	}
	return n, false, nil
}

// addWatch adds a watch for an open directory, also if nobody may read it.
func (w *Watch) addWatch(fd int, events uint32) (int, error) {
	path := descriptorPath(fd)
	wd, err := unix.InotifyAddWatch(w.inotify, path, events)
	if err == unix.EACCES {
		defer usable(fd)()
		wd, err = unix.InotifyAddWatch(w.inotify, path, events)
	}
	return wd, err
}

// watchChanges has changes of files told, too, in what may be a repository.
func (w *Watch) watchChanges(n *node, fd int) {
	n.fresh = true
	w.writtenIn(n)
	w.addWatch(fd, unix.IN_MODIFY|unix.IN_CLOSE_WRITE|unix.IN_MASK_ADD)
}

// place says where a directory is now. It is looked through if it is new, or if other names count
// in it now.
func (w *Watch) place(n, above *node, name string, fresh bool) {
	was, whole, part := n.packages, n.whole, n.part
	w.attach(n, above, name)
	n.packages = above.packages || w.options.Names.packages[name]
	n.whole = above.whole
	if rule, is := w.rule(above, name); is {
		n.whole = rule
	}
	n.git = n.git || fresh && w.options.Git[n.path()]
	n.part = partIn(above.part, name, n.git || n.isGit)
	w.atOnce(n, name, was && !n.packages && !w.deep)
	switch {
	case fresh || n.doubt || was != n.packages || whole != n.whole || part != n.part || w.deep:
		w.later(n, allLevels)
	default: // a name of several components may end in it now
		w.later(n, max(renamedLevels, w.options.Names.longest))
	}
}

// atOnce sees to what is protected in a directory that was renamed, without a look at all that is
// in it: that takes longer. all says that other names count in it now.
func (w *Watch) atOnce(n *node, name string, all bool) {
	list := w.options.Names.in[fold(name)]
	if all {
		list = slices.Collect(maps.Keys(w.options.Names.last))
	}
	if len(list) == 0 {
		return
	}
	fd, err := w.descriptor(n)
	if err != nil {
		return // it is looked through later
	}
	for _, name := range list {
		var stat unix.Stat_t
		if unix.Fstatat(fd, name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil {
			w.found(n, name, kindOf(stat.Mode), max(renamedLevels, w.options.Names.longest))
		}
	}
}

func (w *Watch) apart(above *node, name string) bool {
	return len(w.options.Apart) > 0 && w.isApart(join(above.path(), name))
}

// unreadable remembers a directory that cannot be watched yet: somebody else owns it.
func (w *Watch) unreadable(above *node, name string) {
	if w.closing { // the command has ended
		return
	}
	if len(w.waiting) >= maxWaiting {
		w.stop("makes too many directories that may not be read, and cannot be watched")
		return
	}
	w.waiting = append(w.waiting, entry{above, name})
}

// An entry is a name in a directory.
type entry struct {
	in   *node
	name string
}

const maxWaiting = 64

// isAside reports whether a name is one that something was set aside under, by this watch or
// another one. Nothing may stand behind it: some programs execute all files of a directory that end
// in a certain way.
func isAside(name string) bool {
	random, is := strings.CutPrefix(name, asidePrefix)
	return is && len(random) == asideLength && strings.Trim(random, "0123456789abcdef") == ""
}

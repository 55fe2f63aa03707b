package protect

import (
	"bytes"
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// A Cover is what something that is mounted inside does to what the host has there.
type Cover uint8

// Guard is for a path that is made read-only by a mount now, and could be written until now: no
// process of the command has a file there open afterwards, even for reading (by /proc/self/fd it
// would be opened again, without that mount), nor anybody for writing, and what comes to be in it
// is set aside. inside are the directories there.
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

// closeHolders puts copies in the place of files that are held, that somebody has open for writing,
// or that have other names.
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

// loosen is about a directory that was renamed: what is mounted in it goes with it, and what comes
// to be where it was may be the command's.
func (w *Watch) loosen(dir string) {
	for path := range w.loose {
		if within(path, dir) {
			w.gone(path)
		}
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

// isApart reports whether what is at a path is not the command's to write, or looked after for
// itself.
func (w *Watch) isApart(path string) bool { return w.options.Apart[path] && !w.bare[path] }

// uncovered is about a path at which something was removed or made: nothing is mounted there, nor
// below. What comes to be there is the command's to write, and is watched like all else.
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

// watchCover watches a directory in which something is covered, where that is not one of those that
// are watched anyway.
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

// atCover is about an event at a name at which something may be mounted. It reports whether nothing
// more is to be done: it has been covered again. More are events that came in that time.
//
// While something is mounted there, only somebody outside can rename another thing over it. Once it
// was removed or renamed, or if something more happened before it was covered again, the command
// may have made what is there now: then it is treated as whatever comes into being.
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

// coverMissing covers what is hidden and is not any more. What was protected and is not any more,
// the command may have made.
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

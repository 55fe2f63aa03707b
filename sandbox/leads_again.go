package sandbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/protect"
)

// What a person's settings, links and environment name in a workspace may change while a command
// runs, or between two calls of a session: "git config filter.x.clean tools/x". So what was read to
// find out is watched. When it changes, it is worked out again what it leads to, and what is new is
// protected from then on: what there is becomes read-only, what is not there yet is set aside when
// it comes into being. What is not named any more stays protected until the end.

const (
	// leadsAfter is how long a command runs before that begins: what has changed by then is found,
	// and shorter commands pay nothing.
	leadsAfter = 100 * time.Millisecond
	// leadsRest is for how many times as long as it took it is not worked out again.
	leadsRest = 8
	// maxLeadsRest bounds that.
	maxLeadsRest = time.Second
	// maxSources bounds how many directories are watched for it.
	maxSources = 8192
	// unwatchedEvery is how often it is worked out again where some directory could not be watched.
	unwatchedEvery = 2 * time.Second
)

// A leadsWatch keeps what is protected because something else names it as it should be, while a
// command runs.
type leadsWatch struct {
	attempt *attempt
	inotify *os.File
	over    chan struct{} // closed when the command has ended

	mu         sync.Mutex
	protection *Protection
	begun      bool
	directory  map[int32]string
	names      map[string]map[string]bool // in a directory, those that count; the empty one: all
	unwatched  bool                       // something could not be watched
	changed    bool                       // since the last look
	guards     map[string]bool            // what is read-only for it
	known      map[string]bool            // what was found to be protected, once: later, it may be the command's
	named      map[protect.Name]bool
	awaited    map[string][]protect.Name // those that count in one directory, by their paths
	notices    []Notice
}

// protectedAgain is what another look found.
type protectedAgain struct {
	names *protect.Names
	known map[string]bool
	// guards are the paths that have to be read-only.
	guards map[string]bool
}

// look works out again what is protected.
func (p *Protection) look(tree Tree) (found protectedAgain, err error) {
	b := p.builder // a copy
	b.tree = newMemory(tree)
	b.layers = b.layers.clone()
	b.again = p
	b.protectAll()
	if b.refused != nil {
		return found, b.refused
	}
	if b.protection == nil {
		return found, nil
	}
	return protectedAgain{b.protection.names, b.protection.known, b.layers.guards(p.builder.layers)}, nil
}

// guards are the paths that were made read-only since there were other layers.
func (l layers) guards(before layers) map[string]bool {
	guards := map[string]bool{}
	for path, step := range l {
		if was := before[path]; step.Purpose == Protects && step.Access == profile.ReadOnly && (was == nil || was.Purpose != Protects) {
			guards[path] = true
		}
	}
	return guards
}

func (l layers) clone() layers {
	same := make(layers, len(l))
	for path, step := range l {
		s := *step
		same[path] = &s
	}
	return same
}

// sources is the host, and tells what was looked at: in a directory, a name, or all. What was not
// there when it came to be named is never there: the watch looks after what comes, and it may be
// the command's.
type sources struct {
	Host
	used   func(dir, name string)
	awaits func(path string, mode fs.FileMode) bool
}

func (s *sources) Lstat(path string) (Object, error) {
	s.used(parent(path), baseName(path))
	object, err := s.Host.Lstat(path)
	if err == nil && s.awaits(path, object.Mode) {
		return Object{}, notThere("lstat", path)
	}
	return object, err
}

func (s *sources) Readlink(path string) (string, error) {
	s.used(parent(path), baseName(path))
	if s.awaits(path, fs.ModeSymlink) {
		return "", notThere("readlink", path)
	}
	return s.Host.Readlink(path)
}

func (s *sources) ReadDir(path string) ([]Entry, error) {
	s.used(path, "")
	if s.awaits(path, fs.ModeDir) {
		return nil, notThere("open", path)
	}
	return s.Host.ReadDir(path)
}

func (s *sources) ReadFile(path string, limit int) (string, error) {
	s.used(parent(path), baseName(path))
	if s.awaits(path, 0) {
		return "", notThere("open", path)
	}
	return s.Host.ReadFile(path, limit)
}

func notThere(op, path string) error { return &fs.PathError{Op: op, Path: path, Err: unix.ENOENT} }

// newLeadsWatch is for a command that has not begun.
func newLeadsWatch(a *attempt, p *Protection) *leadsWatch {
	l := &leadsWatch{attempt: a, protection: p, over: make(chan struct{}), directory: map[int32]string{},
		names: map[string]map[string]bool{}, guards: map[string]bool{}, known: map[string]bool{}, named: map[protect.Name]bool{}, awaited: map[string][]protect.Name{}}
	return l
}

// open opens what the kernel tells by. The mounter, which starts after that, has it open as well:
// see commandWatch.close.
func (l *leadsWatch) open() {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err == nil {
		l.inotify = os.NewFile(uintptr(fd), "inotify")
	}
	l.unwatched = err != nil
}

// descriptor is what open opened, or -1.
func (l *leadsWatch) descriptor() int {
	if l == nil || l.inotify == nil {
		return -1
	}
	raw, err := l.inotify.SyscallConn()
	if err != nil {
		return -1
	}
	number := -1
	raw.Control(func(fd uintptr) { number = int(fd) })
	return number
}

// close is for a watch that has ended, or never began. It may be called again.
func (l *leadsWatch) close() {
	if l != nil && l.inotify != nil {
		l.inotify.Close()
	}
}

// begin begins to look after what is named elsewhere. The command has begun.
func (l *leadsWatch) begin() {
	if l == nil {
		return
	}
	go func() {
		select {
		case <-l.over:
			l.close()
			return
		case <-time.After(leadsAfter):
		}
		l.mu.Lock()
		l.begun = true
		l.look()
		l.mu.Unlock()
		l.wait()
	}()
}

// wait looks again whenever something has changed.
func (l *leadsWatch) wait() {
	changed := make(chan struct{}, 1)
	defer l.close()
	if l.inotify != nil {
		go l.hear(changed)
	}
	for {
		l.mu.Lock()
		var again <-chan time.Time
		if l.unwatched {
			again = time.After(unwatchedEvery)
		}
		l.mu.Unlock()
		select {
		case <-l.over:
			return
		case <-changed:
		case <-again:
		}
		l.mu.Lock()
		took := l.look()
		l.mu.Unlock()
		select {
		case <-l.over:
			return
		case <-time.After(min(leadsRest*took, maxLeadsRest)):
		}
	}
}

// hear tells that something has changed, until the watch is closed.
func (l *leadsWatch) hear(changed chan<- struct{}) {
	raw, err := l.inotify.SyscallConn()
	if err != nil {
		return
	}
	raw.Read(func(fd uintptr) (over bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.drain(int(fd)); l.changed {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
		return false
	})
}

// drain hears what the kernel has to tell.
func (l *leadsWatch) drain(fd int) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := unix.Read(fd, buffer)
		if n <= 0 || err != nil {
			return
		}
		l.changed = l.counts(buffer[:n]) || l.changed
	}
}

// settle looks again before a session's command is started, if something has changed.
func (l *leadsWatch) settle() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inotify != nil {
		raw, err := l.inotify.SyscallConn()
		if err != nil {
			return // it has ended
		}
		raw.Control(func(fd uintptr) { l.drain(int(fd)) })
	}
	if l.changed || l.unwatched || !l.begun {
		l.look()
	}
}

// counts reports whether events of the kernel's (inotify(7)) are about something that was looked
// at.
func (l *leadsWatch) counts(events []byte) (counts bool) {
	for len(events) >= unix.SizeofInotifyEvent {
		wd, mask := int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:])
		n := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		name, _, _ := bytes.Cut(events[unix.SizeofInotifyEvent:n], []byte{0})
		events = events[n:]
		names := l.names[l.directory[wd]]
		counts = counts || mask&unix.IN_Q_OVERFLOW != 0 || mask&unix.IN_IGNORED == 0 && (names[""] || names[string(name)])
		if mask&unix.IN_IGNORED != 0 { // it is gone, and another one may be there: its name above was watched, too
			delete(l.names, l.directory[wd])
			delete(l.directory, wd)
		}
	}
	return counts
}

const sourceEvents = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_CLOSE_WRITE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// used watches a directory before something in it is looked at.
func (l *leadsWatch) used(dir, name string) {
	names := l.names[dir]
	if names == nil {
		if l.inotify == nil || len(l.names) >= maxSources {
			l.unwatched = true
			return
		}
		raw, err := l.inotify.SyscallConn()
		if err != nil {
			return
		}
		wd := -1
		raw.Control(func(fd uintptr) { wd, err = unix.InotifyAddWatch(int(fd), dir, sourceEvents) })
		switch err {
		case nil:
			names = map[string]bool{}
			if at, is := l.directory[int32(wd)]; is && at != dir { // it is known by another path: by a mount, or it was moved
				names = l.names[at]
			}
			l.directory[int32(wd)], l.names[dir] = dir, names
		case unix.ENOSPC:
			l.unwatched = true
			return
		default: // it is not there: its name above is watched
			return
		}
	}
	names[name] = true
}

// look works out what is named elsewhere, and protects what is new. It returns how long that took.
func (l *leadsWatch) look() (took time.Duration) {
	began := time.Now()
	select {
	case <-l.over:
		return 0
	default:
	}
	if l.changed = false; len(l.named) == 0 {
		l.follow(l.protection)
	}
	found, err := l.protection.look(&sources{used: l.used, awaits: l.awaits})
	if err != nil {
		l.attempt.endFor(Notice{Kind: NoticeProtected, Text: "the command was ended: what your settings and links name has changed, and cannot be protected: " + printable(err.Error())})
		return time.Since(began)
	}
	l.protect(found)
	return time.Since(began)
}

func (l *leadsWatch) protect(found protectedAgain) {
	w := l.attempt.watch
	var guards []string
	for path := range found.guards {
		if !l.guards[path] {
			guards = append(guards, path)
		}
	}
	slices.Sort(guards)
	var names []protect.Name
	add := func(name protect.Name) {
		if l.name(name) {
			names = append(names, name)
		}
	}
	if found.names != nil {
		for _, name := range found.names.List {
			add(name)
		}
	}
	for _, name := range l.protection.namesOf(guards) {
		add(name)
	}
	known := map[string]bool{}
	for path := range found.known {
		if !l.known[path] {
			l.known[path], known[path] = true, true
		}
	}
	if len(names)+len(guards)+len(known) == 0 {
		return
	}
	w.watch.Also(names, known)
	for _, path := range guards {
		l.guards[path] = true
		err := l.guard(path)
		if _, gone := (Host{}).Lstat(path); errors.Is(err, unix.ENOENT) && gone != nil { // what comes there is set aside: it is named already
			w.watch.Gone(path)
			delete(l.guards, path)
			delete(l.known, path)
			continue
		}
		if err != nil {
			l.attempt.endFor(Notice{Kind: NoticeProtected, Path: path, Text: fmt.Sprintf("the command was ended: %s is named by your settings, links or environment since it began, and could not be made read-only: %s",
				printable(path), printable(err.Error()))})
			return
		}
		if len(l.notices) < maxSetAside {
			l.notices = append(l.notices, Notice{Kind: NoticeProtected, Path: path,
				Text: "read-only since it came to be named by your settings, links or environment while the command ran: " + printable(path)})
		}
	}
}

// namesOf are for what is read-only by a mount only since the command runs: the directories above
// are no mounts, so that the command can rename them, and make others.
func (p *Protection) namesOf(guards []string) (names []protect.Name) {
	for _, path := range guards {
		names = append(names, protect.Name{Path: baseName(path), In: parent(path), Rule: baseName(path)})
		for dir := parent(path); p.isBelowRoot(dir); dir = parent(dir) {
			names = append(names, protect.Name{Path: baseName(dir), In: parent(dir), Rule: baseName(dir), Link: true})
		}
	}
	return names
}

// isBelowRoot reports whether a path is in one of the directories that the command may write.
func (p *Protection) isBelowRoot(path string) bool {
	return slices.ContainsFunc(p.Roots, func(root string) bool { return within(path, root) && path != root })
}

// guard makes a path read-only that the command could write until now.
func (l *leadsWatch) guard(path string) error {
	w := l.attempt.watch
	inside, err := w.watch.Guard(path)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.covers[path] = false
	w.mu.Unlock()
	if w.mounter == nil {
		return errByBwrap
	}
	for range maxCovers {
		if _, err = w.mounter.Cover(path, false); err == nil {
			break
		}
	}
	if err == nil && len(inside) > 0 && w.held(func(device, inode uint64) bool { return inside[[2]uint64{device, inode}] }) {
		return fmt.Errorf("a process is at work in it")
	}
	return err
}

// follows is for another plan of the same sandbox.
func (l *leadsWatch) follows(p *Protection) {
	if l == nil || p == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.follow(l.protection)
	l.follow(p)
}

func (l *leadsWatch) follow(p *Protection) {
	l.protection = p
	maps.Copy(l.guards, p.guards)
	maps.Copy(l.known, p.known)
	for _, name := range p.names.List {
		l.name(name)
	}
}

// name remembers that a name is set aside when it comes into being.
func (l *leadsWatch) name(name protect.Name) (isNew bool) {
	if l.named[name] {
		return false
	}
	l.named[name] = true
	if path := join(name.In, name.Path); name.In != "" && !name.Made && l.protection.isBelowRoot(path) {
		l.awaited[path] = append(l.awaited[path], name)
	}
	return true
}

// awaits reports whether something at a path came since that was named.
func (l *leadsWatch) awaits(path string, mode fs.FileMode) bool {
	return !l.known[path] && !l.guards[path] && slices.ContainsFunc(l.awaited[path], func(name protect.Name) bool {
		return (!name.Link || mode&fs.ModeSymlink != 0) && (!name.Leaf || !mode.IsDir())
	})
}

// end ends the watch, and returns what there is to tell.
func (l *leadsWatch) end() []Notice {
	if l == nil {
		return nil
	}
	close(l.over)
	l.mu.Lock() // nothing is protected any more
	defer l.mu.Unlock()
	return l.notices
}

// withAgain adds to what is protected what came to be since, for what is looked through only at the
// end.
func (p *Protection) withAgain() (*Protection, error) {
	found, err := p.look(Host{})
	if err != nil || found.names == nil {
		return p, err
	}
	var guards []string
	for path := range found.guards {
		if !p.guards[path] {
			guards = append(guards, path)
		}
	}
	names := protect.NewNames(p.names.List, profile.PackageDirectories())
	names.AddNew(found.names.List...)
	names.AddNew(p.namesOf(guards)...)
	names.Unprotected = maps.Clone(p.names.Unprotected)
	same := *p
	same.names = names
	return &same, nil
}

package mounts

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// A Place says what leads to where a tree is to be mounted.
type Place struct {
	// Own is the nearest directory at or above the tree's parent that is the sandbox's own: what is
	// missing below it is made. Empty: nothing may be made, all of it is the host's.
	Own string
	// Shared says that the command may write Own, or could have: what stands in the way there is
	// set aside.
	Shared bool
}

// A Mounted is what was mounted in a sandbox: the root of a tree, or a mount below it that may be
// taken away for itself.
type Mounted struct {
	Path string
	ID   uint64 // its mount id
	fd   int    // its root
}

// attach mounts a tree that was assembled. It is in the sandbox's namespace.
func (s *script) attach(t *assembled, at Place) (point *result) {
	name := t.tree.Path()
	s.on("make", name)
	if at.Own != "" {
		s.makePoint(at.Own, name, t.tree[0].File || t.tree[0].Kind == Empty, at.Shared)
	}
	s.on("mount", name)
	point = s.do(unix.SYS_OPENAT2, atCWD, name, s.how(), howSize)
	s.do(unix.SYS_MOVE_MOUNT, t.root, "", point, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	return point
}

// A place is a name below one of the sandbox's own directories.
type place struct{ own, name string }

// makePoint makes what is missing of a path below one of the sandbox's own directories.
func (s *script) makePoint(own, name string, file, shared bool) {
	rel, below := cutPrefix(name, own)
	if !below {
		return
	}
	view := s.view(own, shared)
	for i, c := range rel {
		if dir := (place{own, rel[:i]}); c == '/' && !s.made[dir] {
			s.try(unix.SYS_MKDIRAT, view, dir.name, 0o755)
			if s.made == nil {
				s.made = map[place]bool{}
			}
			s.made[dir] = !shared // in a shared one the command may take it away again
		}
	}
	if file {
		s.try(unix.SYS_MKNODAT, view, rel, unix.S_IFREG|0o444, 0)
	} else {
		s.try(unix.SYS_MKDIRAT, view, rel, 0o755)
	}
}

// view is one of the sandbox's own directories, to be written. Those are closed to all writing, but
// for the shared ones, so it is another mount of the same directory. It stays open until drop.
func (s *script) view(own string, shared bool) *result {
	if view := s.views[own]; view != nil {
		return view
	}
	dir := s.do(unix.SYS_OPENAT2, atCWD, own, s.how(), howSize)
	view := dir
	if !shared {
		view = s.do(unix.SYS_OPEN_TREE, dir, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
		setattr(s, 0, view, 0, unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		s.later(dir)
	}
	if s.views == nil {
		s.views = map[string]*result{}
	}
	s.views[own] = view
	return view
}

// setAside moves away what a command put where one of the sandbox's own directories has to stand.
func (m *Mounter) setAside(own, name string) error {
	rel, _ := cutPrefix(name, own)
	first, _, _ := strings.Cut(rel, "/")
	s := m.script()
	s.on("set aside", path.Join(own, first))
	s.do(unix.SYS_SETNS, sandboxFD, unix.CLONE_NEWNS)
	dir := s.do(unix.SYS_OPENAT2, atCWD, own, s.how(), howSize)
	m.stage++
	s.do(unix.SYS_RENAMEAT2, dir, first, dir, fmt.Sprintf("%s.set-aside-%d-%d", first[:min(len(first), 200)], m.init, m.stage), unix.RENAME_NOREPLACE)
	s.close(dir)
	s.do(unix.SYS_SETNS, hostFD, unix.CLONE_NEWNS)
	err := s.flush()
	m.home(err)
	return err
}

// home returns to the mounter's own namespace after a script that did not end there.
func (m *Mounter) home(err error) {
	if err != nil {
		s := m.script()
		s.do(unix.SYS_SETNS, hostFD, unix.CLONE_NEWNS)
		s.flush()
	}
}

// A Request is a tree and its place.
type Request struct {
	Tree  Tree
	Place Place
	// Keep are paths of the tree that may have to be taken away or looked after for themselves.
	Keep []string
}

// maxTogether bounds how many trees are assembled before they are mounted: each takes a descriptor,
// and one for where it is mounted.
const maxTogether = 250

// Begin mounts the trees of a new sandbox, whose command is held back, and releases the command. It
// waits for the base of the sandbox after it has put the trees together. Descriptors that are of no
// use afterwards go with the next change, or with the mounter.
func (m *Mounter) Begin(requests []Request) (mounted []Mounted, left []LeftOut, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	waited := false
	for first := true; first || len(requests) > 0; first = false {
		if !first {
			m.tidy() // or too much is open
		}
		n := min(len(requests), maxTogether)
		some, out, err := m.together(requests[:n], &waited, n == len(requests))
		mounted, left = append(mounted, some...), append(left, out...)
		if err != nil {
			return mounted, left, err
		}
		requests = requests[n:]
	}
	return mounted, left, nil
}

func (m *Mounter) together(requests []Request, waited *bool, last bool) (mounted []Mounted, left []LeftOut, err error) {
	var trees []*assembled
	var kept []Request
	all, left, err := m.assembleAll(requests)
	if err != nil {
		return nil, left, err
	}
	for i, t := range all {
		if t != nil {
			trees, kept = append(trees, t), append(kept, requests[i])
		}
	}
	shared := slices.ContainsFunc(kept, func(r Request) bool { return r.Place.Shared })
	s := m.script()
	if !*waited {
		*waited = true
		s.wait()
	}
	if shared {
		if err := s.flush(); err != nil {
			return nil, left, err
		}
		for i := range kept {
			if err := m.clear(kept[i]); err != nil {
				return nil, left, err
			}
		}
		s = m.script()
	}
	s.on("enter", "/").do(unix.SYS_SETNS, sandboxFD, unix.CLONE_NEWNS)
	var looks []look
	for i, t := range trees {
		s.later(s.attach(t, kept[i].Place))
		looks = append(looks, s.keep(t, kept[i].Keep)...)
	}
	s.on("leave", "/").do(unix.SYS_SETNS, hostFD, unix.CLONE_NEWNS)
	if last {
		s.on("release the command", "/").do(unix.SYS_WRITE, goFD, "!", 1)
		s.close(&result{value: goFD})
		s.clean() // at once, because what is put together there may be a layer that the next sandbox takes
	}
	if err := s.flush(); err != nil {
		return nil, left, err
	}
	mounted = s.mounted(looks)
	s.drop()
	return mounted, left, nil
}

// keep opens what of a mounted tree may have to be taken away or looked after for itself. It is in
// the sandbox's namespace.
func (s *script) keep(t *assembled, names []string) (looks []look) {
	isKept := false
	for _, name := range names {
		open := t.root
		if isRoot := name == t.tree.Path(); isRoot {
			isKept = true
		} else {
			open = s.on("open", name).try(unix.SYS_OPENAT2, atCWD, name, s.howItself(), howSize)
		}
		looks = append(looks, look{name, open, s.statx(open)})
	}
	if !isKept {
		s.later(t.root)
	}
	return looks
}

// mounted are those that are mounts of their own.
func (s *script) mounted(looks []look) []Mounted {
	var list []Mounted
	for _, l := range looks {
		if l.open.failed() != nil || l.stat.failed() != nil {
			continue
		}
		if is := identify(l.stat.data); is.root {
			list = append(list, Mounted{Path: l.path, ID: is.mount, fd: l.open.value})
		} else {
			s.later(l.open)
		}
	}
	return list
}

// A look is an open mount inside, and what it is.
type look struct {
	path string
	open *result
	stat *result
}

// wait waits until the sandbox says that its base is complete.
func (s *script) wait() {
	buffer := s.list.Put(make([]byte, 8))
	s.on("wait for bubblewrap", "/").do(unix.SYS_READ, readyFD, buffer, 1)
	s.call(trampoline.IfZero, unix.SYS_EXIT_GROUP, 0) // it ended before
	s.close(&result{value: readyFD})
}

// clear sets aside what a command has put in the way of a tree, where it may write the directory.
func (m *Mounter) clear(r Request) error {
	if !r.Place.Shared {
		return nil
	}
	for range 4 {
		s := m.script()
		s.on("enter", "/").do(unix.SYS_SETNS, sandboxFD, unix.CLONE_NEWNS)
		name := r.Tree.Path()
		s.on("make", name).makePoint(r.Place.Own, name, r.Tree[0].File || r.Tree[0].Kind == Empty, true)
		open := s.try(unix.SYS_OPENAT2, atCWD, name, s.how(), howSize)
		stat := s.statx(open)
		s.later(open)
		s.on("leave", "/").do(unix.SYS_SETNS, hostFD, unix.CLONE_NEWNS)
		if err := s.flush(); err != nil {
			m.home(err)
			return err
		}
		s.drop()
		if open.failed() == nil && identify(stat.data).isDir != (r.Tree[0].File || r.Tree[0].Kind == Empty) {
			return nil
		}
		if err := m.setAside(r.Place.Own, name); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return &Error{Path: r.Tree.Path(), Op: "make", Err: errors.New("something else is put there again and again")}
}

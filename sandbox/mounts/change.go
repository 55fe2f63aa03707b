package mounts

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What changes in a sandbox while its command runs.

// WithGap makes Swap work as with a kernel before Linux 6.5.
func (m *Mounter) WithGap() { m.old = true }

// Mount assembles a tree and mounts it over what is there.
func (m *Mounter) Mount(r Request) ([]Mounted, []LeftOut, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.tidy()
	mounted, left, err := m.together([]Request{r}, &[]bool{true}[0], false)
	m.home(err)
	return mounted, left, err
}

// Swap mounts a tree in the place of what was mounted, with no moment in which there is neither
// (Linux 6.5; before, there is one). Of what is carried over, the mounts stay the same ones, so
// that who stands in them notices nothing.
func (m *Mounter) Swap(old Mounted, r Request) ([]Mounted, []LeftOut, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.tidy()
	t, left, err := m.assemble(r.Tree)
	if err != nil || t == nil {
		return nil, left, err
	}
	mounted, err := m.swap(old, r, t)
	m.home(err)
	return mounted, left, err
}

// asidePlace is where a mount stands for the moment in which another one takes its place.
const asidePlace = "/run/clai-sandbox/replaced"

func (m *Mounter) swap(old Mounted, r Request, t *assembled) ([]Mounted, error) {
	name := r.Tree.Path()
	const emptyPaths = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	s := m.script()
	s.on("enter", "/").do(unix.SYS_SETNS, sandboxFD, unix.CLONE_NEWNS)
	var held []*result
	var carried []string
	for _, mount := range r.Tree[1:] {
		if mount.Kind == Carried {
			held = append(held, s.on("open", mount.Path).try(unix.SYS_OPENAT2, atCWD, mount.Path, s.how(), howSize))
			carried = append(carried, mount.Path)
		}
	}
	s.on("mount", name)
	beneath := s.do(unix.SYS_GETPID)
	if !m.old {
		beneath = s.try(unix.SYS_MOVE_MOUNT, t.root, "", old.fd, "", emptyPaths|moveMountBeneath)
	}
	if err := s.flush(); err != nil {
		return nil, err
	}
	s = m.script()
	if m.old || beneath.failed() != nil {
		// The old one steps aside for as long as it takes to put the new one in its place.
		s.on("move", name).makePoint("/", asidePlace, r.Tree[0].File, false)
		aside := s.do(unix.SYS_OPENAT2, atCWD, asidePlace, s.how(), howSize)
		s.do(unix.SYS_MOVE_MOUNT, old.fd, "", aside, "", emptyPaths)
		s.close(aside)
		point := s.on("mount", name).do(unix.SYS_OPENAT2, atCWD, name, s.how(), howSize)
		s.do(unix.SYS_MOVE_MOUNT, t.root, "", point, "", emptyPaths)
		s.close(point)
	}
	for i, open := range held {
		rel, _ := cutPrefix(carried[i], name)
		point := s.on("move", carried[i]).try(unix.SYS_OPENAT2, t.root, rel, s.how(), howSize)
		s.try(unix.SYS_MOVE_MOUNT, open, "", point, "", emptyPaths)
		s.close(point)
	}
	s.on("unmount", name).unmount(old.fd)
	if m.old || beneath.failed() != nil {
		s.on("remove", asidePlace).removePoint("/", asidePlace)
	}
	s.unused = append(s.unused, held...)
	s.later(&result{value: old.fd})
	looks := s.keep(t, r.Keep)
	s.on("leave", "/").do(unix.SYS_SETNS, hostFD, unix.CLONE_NEWNS)
	if err := s.flush(); err != nil {
		return nil, err
	}
	mounted := s.mounted(looks)
	s.drop()
	return mounted, m.gone(old)
}

// unmount takes exactly the mount away whose root is open, wherever it is by now, and what is
// mounted on it.
func (s *script) unmount(root int) {
	s.do(unix.SYS_FCHDIR, selfFD)
	s.do(unix.SYS_UMOUNT2, strconv.Itoa(root), unix.MNT_DETACH)
	s.do(unix.SYS_CHDIR, "/")
}

// ErrWritten means that nothing was taken away, because something inside has a file there open for
// writing.
var ErrWritten = errors.New("a file there is open for writing")

// Unmount takes away what was mounted, and proves that it is gone. It is made read-only first, as
// by Narrow: if that is refused, nothing is done, and the error is ErrWritten. The places that were
// made for it go as well, where they are the sandbox's own.
func (m *Mounter) Unmount(old Mounted, place Place) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.tidy()
	s := m.script()
	s.on("enter", "/").do(unix.SYS_SETNS, sandboxFD, unix.CLONE_NEWNS)
	narrowed := setattr(s.on("make read-only", old.Path), 0, old.fd, 0, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	s.on("unmount", old.Path).unmount(old.fd)
	s.later(&result{value: old.fd})
	if place.Own != "" && !place.Shared {
		s.on("remove", old.Path).removePoint(place.Own, old.Path)
	}
	s.on("leave", "/").do(unix.SYS_SETNS, hostFD, unix.CLONE_NEWNS)
	if err := s.flush(); err != nil {
		m.home(err)
		if s.failed == narrowed && errors.Is(err, unix.EBUSY) {
			return ErrWritten
		}
		return err
	}
	s.drop()
	return m.gone(old)
}

// removePoint takes away the empty places that led to a mount, as far as they are empty.
func (s *script) removePoint(own, name string) {
	rel, below := cutPrefix(name, own)
	if !below {
		return
	}
	dir := s.try(unix.SYS_OPENAT2, atCWD, own, s.how(), howSize)
	view := s.try(unix.SYS_OPEN_TREE, dir, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	setattr(s, 1, view, 0, unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
	s.later(dir)
	s.later(view)
	s.try(unix.SYS_UNLINKAT, view, rel, 0) // a file; not a directory
	for rel != "" {
		s.try(unix.SYS_UNLINKAT, view, rel, unix.AT_REMOVEDIR)
		at := strings.LastIndexByte(rel, '/')
		rel = rel[:max(at, 0)]
	}
}

// gone proves that a mount is not there any more.
func (m *Mounter) gone(old Mounted) error {
	if old.ID == 0 {
		return nil // Linux before 5.8: the kernel's word for umount(2) is all that there is
	}
	ids, err := IDs(strconv.Itoa(m.init))
	if err != nil {
		return err
	}
	if ids[old.ID] {
		return &Error{Path: old.Path, Op: "unmount", Err: unix.EBUSY}
	}
	m.there = ids
	return nil
}

// There are the numbers of the mounts in the sandbox's namespace when one was last proved gone, or
// nil.
func (m *Mounter) There() map[uint64]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.there
}

// IDs are the numbers of the mounts in the namespace of a process, which is a directory of /proc.
func IDs(process string) (map[uint64]bool, error) {
	text, err := os.ReadFile("/proc/" + process + "/mountinfo")
	if err != nil {
		return nil, err
	}
	ids := map[uint64]bool{}
	for line := range strings.Lines(string(text)) {
		number, _, _ := strings.Cut(line, " ")
		if id, err := strconv.ParseUint(number, 10, 64); err == nil {
			ids[id] = true
		}
	}
	return ids, nil
}

// narrowTimeout is how long what is to become read-only may be open for writing.
const narrowTimeout = 200 * time.Millisecond

// Narrow makes what is mounted read-only as it is, which holds for whoever stands in it or has a
// directory there open: nothing can be changed any more, neither content nor permissions nor times.
// all says with what is mounted below. The kernel refuses that with EBUSY as long as a file there
// is open for writing.
func (m *Mounter) Narrow(old Mounted, all bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	flags := 0
	if all {
		flags = unix.AT_RECURSIVE
	}
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		s := m.script()
		s.on("enter", "/").do(unix.SYS_SETNS, sandboxFD, unix.CLONE_NEWNS)
		s.on("make read-only", old.Path)
		narrowed := setattr(s, 1, old.fd, flags, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		s.on("leave", "/").do(unix.SYS_SETNS, hostFD, unix.CLONE_NEWNS)
		if err := s.flush(); err != nil {
			m.home(err)
			return err
		}
		err := narrowed.failed()
		if err != unix.EBUSY || time.Since(began) > narrowTimeout {
			if err != nil {
				err = &Error{Path: old.Path, Op: "make read-only", Err: err}
			}
			return err
		}
	}
}

// Cover puts a mount back that the host took away, by replacing or renaming what it stood on: what
// is there now, whatever that is, is mounted over itself, read-only; or it is hidden. There is
// nothing to do where nothing is: then no id comes back.
func (m *Mounter) Cover(name string, hide bool) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.socket < 0 {
		return 0, nil
	}
	s := m.script()
	var objects []*result // one of them fits
	clone := func(flags int, from any, path string) {
		object := s.try(unix.SYS_OPEN_TREE, from, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|flags)
		setattr(s, 1, object, flags&unix.AT_RECURSIVE, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE})
		objects = append(objects, object)
	}
	s.on("cover", name)
	if hide {
		s.try(unix.SYS_MKDIRAT, stageFD, emptyName+"-directory", 0o555)
		clone(0, stageFD, emptyName)
		clone(0, stageFD, emptyName+"-directory")
	}
	s.do(unix.SYS_SETNS, sandboxFD, unix.CLONE_NEWNS)
	at := s.try(unix.SYS_OPENAT2, atCWD, name, s.how(), howSize)
	if !hide {
		clone(unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, at, "")
	}
	var moved []*result
	for _, object := range objects {
		moved = append(moved, s.try(unix.SYS_MOVE_MOUNT, object, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
	}
	stats := make([]*result, 0, 2)
	for _, object := range objects {
		stats = append(stats, s.statx(object))
		s.close(object)
	}
	s.close(at)
	s.do(unix.SYS_SETNS, hostFD, unix.CLONE_NEWNS)
	if err := s.flush(); err != nil {
		m.home(err)
		return 0, err
	}
	if at.failed() != nil {
		return 0, nil
	}
	for i, stat := range stats {
		if objects[i].failed() == nil && moved[i].failed() == nil {
			return identify(stat.data).mount, nil
		}
	}
	return 0, &Error{Path: name, Op: "cover", Err: moved[0].failed()}
}

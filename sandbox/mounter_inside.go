package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The mounter is this program in a process of its own that changes what a running sandbox shows. It is in the user namespace
// that owns the sandbox's mount namespace, with the capabilities for that, and in a mount namespace of its own, a copy of the
// host's: there it can take a copy of what the host has at a path. One of its threads is in the sandbox's mount namespace. It is
// in none of the sandbox's other namespaces, so nothing inside can see it, and it does nothing but what its standard input says.
//
// A tree is put together apart, complete with what hides and protects below, and appears in one move. Every object is opened
// without following symbolic links, and is held by descriptor from then on: what the command renames meanwhile changes nothing.

// mounterName is this program's name as the mounter, which no command line has.
const mounterName = "clai-sandbox: mounter"

// Descriptors of the mounter, besides the standard streams.
const (
	mounterSandbox = 3 // the sandbox's mount namespace
	mounterOwner   = 4 // the user namespace that owns it
)

// A mountOrder is one thing to do. Its answer says how it went.
type mountOrder struct {
	Do    mountDeed
	ID    int         // of what is mounted or taken away
	Path  string      // inside
	Make  bool        // whether what leads to the path is the sandbox's own, and may be made
	Parts []mountPart // of a tree: the root first
	Gap   bool        // do not try to swap without a gap
	// Narrow says to make what is there now read-only, for whoever is in it: narrowRoot without what is mounted below.
	Narrow mountNarrowing
}

type mountDeed string

const (
	mountTree   mountDeed = "mount"  // a tree at a path
	mountSwap   mountDeed = "swap"   // a tree in the place of the one that has this number, at the same path
	mountEnd    mountDeed = "end"    // what has this number
	mountRemove mountDeed = "remove" // what bwrap has mounted at a path
)

type mountNarrowing uint8

const (
	narrowNothing mountNarrowing = iota
	narrowRoot
	narrowAll
)

// A mountPart is one mount of a tree.
type mountPart struct {
	Kind     StepKind // Bind, Mask, Empty, Copy or Seal
	Path     string
	Source   string // on the host; empty: what the sandbox has at Path already, with all below it
	Writable bool   // a Bind with a Source
	Mode     uint32
	Make     bool // the place is in a Mask, and has to be made
	// Device and Inode are what has to be there, if any certain object has.
	Device, Inode uint64
}

type mountAnswer struct {
	Error string
	Errno unix.Errno
	Path  string // that the error is about, where it is not the order's
}

type mounter struct {
	inside chan func()          // carried out on the thread in the sandbox
	own    int                  // /proc/self/fd of the mounter, for umount
	stage  int                  // where trees are put together: a file system in memory
	trees  map[int]*mountedTree // what was mounted
}

// A mountedTree was mounted by the mounter.
type mountedTree struct {
	root int // its root
	made []madePoint
}

// madePoint is a name that the mounter made to mount on.
type madePoint struct {
	dir  int // a writable view of the directory
	name string
	flag int // AT_REMOVEDIR for a directory
}

// mounterMain is the mounter. It ends with its standard input.
func mounterMain() int {
	m := &mounter{inside: make(chan func()), trees: map[int]*mountedTree{}}
	answers := json.NewEncoder(os.Stdout)
	if err := m.enter(); err != nil {
		answers.Encode(answerOf(err))
		return 1
	}
	answers.Encode(mountAnswer{})
	orders := json.NewDecoder(os.Stdin)
	for {
		var order mountOrder
		switch err := orders.Decode(&order); {
		case err == io.EOF:
			return 0
		case err != nil:
			return 1
		}
		if answers.Encode(answerOf(m.carryOut(order))) != nil {
			return 1
		}
	}
}

func answerOf(err error) mountAnswer {
	if err == nil {
		return mountAnswer{}
	}
	answer := mountAnswer{Error: err.Error()}
	errors.As(err, &answer.Errno)
	var at *os.PathError
	if errors.As(err, &at) {
		answer.Path = at.Path
	}
	return answer
}

// enter takes the places that the mounter works from.
func (m *mounter) enter() (err error) {
	if m.own, err = unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open /proc/self/fd: %w", err)
	}
	stage, err := newMemory("0700")
	if err != nil {
		return err
	}
	// On /dev: no grant leads there, and all hosts have it. Nobody else sees this mount.
	if err := unix.MoveMount(stage, "", unix.AT_FDCWD, "/dev", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	m.stage = stage
	entered := make(chan error)
	go func() {
		runtime.LockOSThread() // for good
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Setns(mounterSandbox, unix.CLONE_NEWNS)
		}
		entered <- err
		for do := range m.inside {
			do()
		}
	}()
	if err := <-entered; err != nil {
		return fmt.Errorf("enter the sandbox: %w", err)
	}
	return nil
}

// within carries something out on the thread in the sandbox.
func (m *mounter) within(do func() error) error {
	done := make(chan error)
	m.inside <- func() { done <- do() }
	return <-done
}

func (m *mounter) carryOut(order mountOrder) error {
	switch order.Do {
	case mountTree, mountSwap:
		return m.mount(order)
	case mountEnd:
		return m.end(order.ID)
	case mountRemove:
		return m.remove(order)
	}
	return fmt.Errorf("no such deed: %q", order.Do)
}

// narrow makes what is mounted at a path read-only as it is, which holds also for whoever is in it. The kernel refuses that
// while a file there is open for writing: then what is mounted in its place holds for paths only.
func narrow(point int, flags uint) {
	unix.MountSetattr(point, "", unix.AT_EMPTY_PATH|flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

// mount makes a tree and mounts it.
func (m *mounter) mount(order mountOrder) error {
	root, err := m.assemble(order.Parts)
	if err != nil {
		return err
	}
	t := &mountedTree{root: root}
	var stat unix.Stat_t
	if err = unix.Fstat(root, &stat); err == nil {
		err = m.within(func() error { return m.attach(t, order, stat.Mode&unix.S_IFMT == unix.S_IFDIR) })
	}
	if err != nil {
		t.unmake()
		unix.Close(root)
		return err
	}
	m.trees[order.ID] = t
	return nil
}

// attach mounts a tree inside. It is on the thread in the sandbox.
func (m *mounter) attach(t *mountedTree, order mountOrder, isDir bool) error {
	point, err := t.makePoint(order, isDir)
	if err != nil {
		return err
	}
	defer unix.Close(point)
	switch order.Narrow {
	case narrowRoot:
		narrow(point, 0)
	case narrowAll:
		narrow(point, unix.AT_RECURSIVE)
	}
	const emptyPaths = unix.MOVE_MOUNT_F_EMPTY_PATH | unix.MOVE_MOUNT_T_EMPTY_PATH
	old := m.trees[order.ID]
	if order.Do == mountSwap && old != nil {
		defer unix.Close(old.root)
		t.made = old.made
		// Beneath the old one, so that there is no moment without either (Linux 6.5).
		if !order.Gap && unix.MoveMount(t.root, "", point, "", emptyPaths|moveMountBeneath) == nil {
			return m.unmount(old.root)
		}
		if err := m.unmount(old.root); err != nil {
			return err
		}
		again, err := openInside(order.Path)
		if err != nil {
			return err
		}
		defer unix.Close(again)
		return calling("move_mount", unix.MoveMount(t.root, "", again, "", emptyPaths))
	}
	return calling("move_mount", unix.MoveMount(t.root, "", point, "", emptyPaths))
}

// end takes a tree away.
func (m *mounter) end(id int) error {
	t := m.trees[id]
	if t == nil {
		return fmt.Errorf("nothing has the number %d", id)
	}
	if err := m.within(func() error { return m.unmount(t.root) }); err != nil {
		return err
	}
	delete(m.trees, id)
	unix.Close(t.root)
	t.unmake()
	return nil
}

// unmount takes exactly the mount away whose root is open, wherever it is by now. It is on the thread in the sandbox.
func (m *mounter) unmount(root int) error {
	if err := unix.Fchdir(m.own); err != nil {
		return calling("fchdir", err)
	}
	defer unix.Chdir("/")
	return calling("umount2", unix.Unmount(strconv.Itoa(root), unix.MNT_DETACH))
}

// remove takes away what bwrap has mounted at a path, and the place that it was mounted on where that is the sandbox's own.
func (m *mounter) remove(order mountOrder) error {
	return m.within(func() error {
		at, err := openInside(order.Path)
		if err != nil {
			return err
		}
		defer unix.Close(at)
		var info unix.Statx_t
		if err := unix.Statx(at, "", unix.AT_EMPTY_PATH, unix.STATX_TYPE, &info); err != nil {
			return calling("statx", err)
		}
		if info.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
			return &os.PathError{Op: "umount", Path: order.Path, Err: unix.EINVAL}
		}
		if err := m.unmount(at); err != nil {
			return err
		}
		if order.Make {
			removePoint(order.Path, info.Mode&unix.S_IFMT == unix.S_IFDIR)
		}
		return nil
	})
}

// removePoint takes away an empty place that something was mounted on, as far as that works.
func removePoint(name string, isDir bool) {
	above, err := openInside(path.Dir(name))
	if err != nil {
		return
	}
	defer unix.Close(above)
	if dir, err := writable(above); err == nil {
		flag := 0
		if isDir {
			flag = unix.AT_REMOVEDIR
		}
		madePoint{dir, path.Base(name), flag}.unmake()
	}
}

// openInside opens a path in the sandbox without following links.
func openInside(name string) (int, error) {
	return openExactly(unix.AT_FDCWD, name)
}

func openExactly(dir int, name string) (int, error) {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// makePoint opens the place that a tree is to be mounted on, and makes what is missing of it, if it may.
func (t *mountedTree) makePoint(order mountOrder, isDir bool) (int, error) {
	at, err := openInside("/")
	if err != nil {
		return -1, err
	}
	names := strings.Split(strings.TrimPrefix(order.Path, "/"), "/")
	for i, name := range names {
		next, err := openExactly(at, name)
		if errors.Is(err, unix.ENOENT) && order.Make {
			if err = t.make(at, name, isDir || i < len(names)-1); err == nil {
				next, err = openExactly(at, name)
			}
		}
		unix.Close(at)
		if err != nil {
			return -1, err
		}
		at = next
	}
	return at, nil
}

// make makes a name in one of the sandbox's own directories, which are closed to all writing inside.
func (t *mountedTree) make(at int, name string, isDir bool) error {
	dir, err := writable(at)
	if err != nil {
		return err
	}
	flag := 0
	if isDir {
		flag = unix.AT_REMOVEDIR
		err = unix.Mkdirat(dir, name, 0o755)
	} else {
		err = unix.Mknodat(dir, name, unix.S_IFREG|0o444, 0)
	}
	if err != nil {
		unix.Close(dir)
		return &os.PathError{Op: "make", Path: name, Err: err}
	}
	t.made = append(t.made, madePoint{dir, name, flag})
	return nil
}

// writable is a view of a directory that can be written, whatever the mount says that it is seen through.
func writable(dir int) (int, error) {
	var info unix.Statfs_t
	if err := unix.Fstatfs(dir, &info); err != nil || info.Type != unix.TMPFS_MAGIC {
		return -1, fmt.Errorf("not a directory of the sandbox's own: %w", unix.EROFS)
	}
	view, err := unix.OpenTree(dir, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return -1, calling("open_tree", err)
	}
	err = unix.MountSetattr(view, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
	if err != nil {
		unix.Close(view)
		return -1, calling("mount_setattr", err)
	}
	return view, nil
}

func (t *mountedTree) unmake() {
	for i := len(t.made) - 1; i >= 0; i-- {
		t.made[i].unmake()
	}
	t.made = nil
}

func (p madePoint) unmake() {
	unix.Unlinkat(p.dir, p.name, p.flag) // not if something else has come to be there
	unix.Close(p.dir)
}

// calling says which call an error came from.
func calling(call string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", call, err)
}

package mounts

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// How a tree is put together, apart from the sandbox: in the mounter's own file system in memory,
// which nobody else sees. The directories of the sandbox's own are directories there, so that
// making them and mounting on them goes through no path that a command could have written.

// An assembled tree is whole, and mounted nowhere yet.
type assembled struct {
	tree Tree
	name string // of its place on the stage
	root *result
}

// assembly is a tree under construction.
type assembly struct {
	*script
	tree    Tree
	name    string
	base    *result // the root, on the stage
	sources []source
	entries map[int][]entry // what the directories have that are shown entry by entry
	more    []LeftOut       // of those
}

// A source is a step on the way of one mount of the tree that may turn out to lead nowhere, or to
// something else.
type source struct {
	index int
	call  *result
	stat  *result // of the object; nil: not looked at
	// handle is its file handle, where one is expected.
	handle *result
}

// maxAttempts bounds how often a tree is put together without what turned out to be gone.
const maxAttempts = 64

// assemble puts a tree together. It is in the mounter's own namespace. What is optional and not
// there is left out; if that is the root, there is no tree.
func (m *Mounter) assemble(tree Tree) (*assembled, []LeftOut, error) {
	var left []LeftOut
	for range maxAttempts {
		a := &assembly{script: m.script(), tree: tree, name: m.place(), entries: map[int][]entry{}}
		root := a.build()
		err := a.flush()
		gone := a.gone()
		switch {
		case err == nil && len(gone) == 0:
			return &assembled{tree, a.name, root}, append(left, a.more...), nil
		case err != nil && len(gone) == 0:
			m.discard(a.name)
			return nil, left, err
		}
		m.discard(a.name)
		if root.value > 0 {
			m.closeFD(root.value)
		}
		for _, g := range slices.Backward(gone) {
			if !tree[g.index].Optional {
				return nil, left, &Error{Path: tree[g.index].Path, Op: "mount", Err: g.err}
			}
			left = append(left, LeftOut{tree[g.index].Path, g.err})
			if tree[g.index].OrEntries {
				tree = slices.Clone(tree)
				tree[g.index].Kind, tree[g.index].Mode, tree[g.index].OrEntries = Entries, 0o755, false
				continue
			}
			if g.index == 0 {
				return nil, left, nil
			}
			tree = slices.Delete(slices.Clone(tree), g.index, g.index+1)
		}
	}
	return nil, left, &Error{Path: tree.Path(), Op: "mount", Err: errors.New("it changes faster than it can be opened")}
}

// assembleAll puts trees together, as many at once as there are: to ask for each takes a turn of
// its own. A tree of which something is not there is nil, or put together by itself without that.
func (m *Mounter) assembleAll(requests []Request) ([]*assembled, []LeftOut, error) {
	s := m.script()
	all := make([]*assembly, len(requests))
	trees := make([]*assembled, len(requests))
	for i, r := range requests {
		all[i] = &assembly{script: s, tree: r.Tree, name: m.place(), entries: map[int][]entry{}}
		trees[i] = &assembled{r.Tree, all[i].name, all[i].build()}
	}
	err := s.flush()
	failed := err != nil
	if failed && !errors.As(err, new(*Error)) {
		return nil, nil, err // of no one tree
	}
	var left []LeftOut
	for i, a := range all {
		if !failed && len(a.gone()) == 0 {
			left = append(left, a.more...)
			continue
		}
		m.discard(a.name)
		if trees[i].root.value > 0 {
			m.closeFD(trees[i].root.value)
		}
		tree, out, err := m.assemble(requests[i].Tree)
		left = append(left, out...)
		if err != nil {
			return nil, left, err
		}
		trees[i] = tree
	}
	return trees, left, nil
}

// place is a new name on the stage.
func (m *Mounter) place() string {
	m.stage++
	return fmt.Sprintf("t%d", m.stage)
}

type goneSource struct {
	index int
	err   error
}

// gone are the sources that are not there, or are something else than they have to be. What was to
// stand on one of those could not be mounted for that reason, and what becomes of it shows when the
// rest is put together again: it may have to hide what is seen there then.
func (a *assembly) gone() []goneSource {
	var list []goneSource
	for _, s := range a.sources {
		err := s.call.failed()
		if err == nil && s.stat != nil && !a.tree[s.index].fits(s) {
			err = ErrReplaced
		}
		// The first failure is the reason for the others.
		known := slices.ContainsFunc(list, func(g goneSource) bool { return within(a.tree[s.index].Path, a.tree[g.index].Path) })
		if err != nil && err != unix.ECANCELED && !known {
			list = append(list, goneSource{s.index, err})
		}
	}
	return list
}

// ErrReplaced means that what was allowed is not what is there now.
var ErrReplaced = errors.New("something else stands in the place of what was allowed")

// fits reports whether a source is the object that has to be there.
func (m *Mount) fits(s source) bool {
	if s.stat.failed() != nil || s.handle != nil && s.handle.failed() != nil {
		return false
	}
	var handle []byte
	if s.handle != nil {
		handle = s.handle.data
	}
	is := identify(s.stat.data)
	return is.isDir != m.File && m.Object.is(is, handle)
}

// look remembers an open source, to be held against what has to be there.
func (a *assembly) look(index int, open *result) {
	s := source{index: index, call: open, stat: a.statx(open)}
	if object := a.tree[index].Object; object != nil && object.Handle != "" {
		s.handle = a.handle(open)
	}
	a.sources = append(a.sources, s)
}

// clean lists the calls that clear the places on the stage that are of no use any more. It comes
// when nobody waits: to take a mount away takes the kernel longer than to make one.
func (s *script) clean() {
	for _, name := range s.m.litter {
		s.on("clean", name).try(unix.SYS_UMOUNT2, stagePlace+"/"+name, unix.MNT_DETACH)
	}
	s.m.litter = nil
}

// discard clears a place on the stage.
func (m *Mounter) discard(name string) {
	s := m.script()
	s.try(unix.SYS_UMOUNT2, stagePlace+"/"+name, unix.MNT_DETACH)
	s.flush()
}

func (m *Mounter) closeFD(fd int) {
	s := m.script()
	s.try(unix.SYS_CLOSE, fd)
	s.flush()
}

// build lists the calls, and returns the one with the whole tree.
func (a *assembly) build() *result {
	root := &a.tree[0]
	if len(a.tree) == 1 && !root.own() {
		return a.object(0)
	}
	a.on("make", root.Path)
	if root.own() {
		a.base = a.directory(0, a.name)
		a.do(unix.SYS_MOVE_MOUNT, a.base, "", stageFD, a.name, unix.MOVE_MOUNT_F_EMPTY_PATH)
		a.fill(0, a.base, "")
		a.setattr(a.base, unix.AT_RECURSIVE, false)
	} else {
		a.base = a.object(0)
		a.make(a.name, root.File)
		a.do(unix.SYS_MOVE_MOUNT, a.base, "", stageFD, a.name, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	for i := range a.tree[1:] {
		a.add(i + 1)
	}
	a.on("copy the tree of", root.Path)
	whole := a.do(unix.SYS_OPEN_TREE, a.base, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	a.close(a.base)
	a.m.litter = append(a.m.litter, a.name) // the whole is a copy of its own
	return whole
}

// directory makes one of the sandbox's own directories on the stage, with all that is made and not
// mounted in it, and returns a mount of it.
func (a *assembly) directory(index int, name string) *result {
	m := &a.tree[index]
	a.do(unix.SYS_MKDIRAT, stageFD, name, int(m.Mode.Perm()))
	a.inside(index, name)
	return a.on("make", m.Path).do(unix.SYS_OPEN_TREE, stageFD, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
}

// above is the index of the mount that decides what a mount of the tree stands on.
func (a *assembly) above(index int) int {
	found := 0
	for i := range a.tree[:index] {
		if within(a.tree[index].Path, a.tree[i].Path) && len(a.tree[i].Path) >= len(a.tree[found].Path) {
			found = i
		}
	}
	return found
}

// isInside reports whether a mount is part of a directory of the sandbox's own, and not a mount of
// its own: an own directory or an empty file in one.
func (a *assembly) isInside(index int) bool {
	m := &a.tree[index]
	return index > 0 && (m.own() || m.Kind == Empty || m.Kind == Copy || m.Kind == Symlink) && a.tree[a.above(index)].own()
}

// inside makes what belongs into one of the sandbox's own directories, which is at a place on the
// stage: further ones, files, and what the rest is mounted on.
func (a *assembly) inside(index int, place string) {
	dir := &a.tree[index]
	if dir.Kind == Entries {
		a.list(index, place)
	}
	for i := index + 1; i < len(a.tree); i++ {
		m := &a.tree[i]
		if a.above(i) != index {
			continue
		}
		rel, _ := cutPrefix(m.Path, dir.Path)
		at := place + "/" + rel
		a.on("make", m.Path)
		for k, c := range rel {
			if c == '/' {
				a.try(unix.SYS_MKDIRAT, stageFD, place+"/"+rel[:k], 0o755)
			}
		}
		switch {
		case m.own():
			a.try(unix.SYS_MKDIRAT, stageFD, at, int(m.Mode.Perm()))
			a.inside(i, at)
		case m.Kind == Copy:
			a.copy(m, at)
		case m.Kind == Symlink:
			a.try(unix.SYS_SYMLINKAT, m.Source, stageFD, at)
		default:
			a.make(at, m.File || m.Kind == Empty)
		}
	}
}

// make makes something on the stage to mount on. It may be there.
func (a *assembly) make(at string, file bool) {
	if file {
		a.try(unix.SYS_MKNODAT, stageFD, at, unix.S_IFREG|0o444, 0)
	} else {
		a.try(unix.SYS_MKDIRAT, stageFD, at, 0o755)
	}
}

// maxCopied bounds a copied file: those are lists of hosts and the like.
const maxCopied = 1 << 20

// copy makes a file on the stage with the content of one of the host's. One that is gone is gone
// inside as well.
func (a *assembly) copy(m *Mount, at string) {
	text, err := readFile(m.Source)
	if err != nil {
		return
	}
	file := a.try(unix.SYS_OPENAT, stageFD, at, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, int(m.Mode.Perm()))
	for len(text) > 0 {
		n := min(len(text), room/2)
		a.on("copy", m.Path).try(unix.SYS_WRITE, file, string(text[:n]), n)
		text = text[n:]
	}
	a.close(file)
}

func readFile(name string) ([]byte, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, unix.EINVAL)
	}
	text := make([]byte, min(info.Size(), maxCopied))
	n, err := file.ReadAt(text, 0)
	if n == 0 && err != nil && len(text) > 0 {
		return nil, err
	}
	return text[:n], nil
}

// attributes are what one of the host's objects is held to.
func (m *Mount) attributes() unix.MountAttr {
	set := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
	if m.NoExec {
		set |= unix.MOUNT_ATTR_NOEXEC
	}
	return unix.MountAttr{Attr_set: set, Propagation: unix.MS_PRIVATE}
}

// setattr holds a mount to what every mount of a sandbox is held to. Nothing that the host mounts
// below it later comes with it.
func (a *assembly) setattr(object *result, flags int, isWritable bool) {
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	if !isWritable {
		attributes.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	setattr(a.script, 0, object, flags, attributes)
}

func setattr(s *script, callFlags uint32, object any, flags int, attributes unix.MountAttr) *result {
	at := s.list.Words(attributes.Attr_set, attributes.Attr_clr, attributes.Propagation, attributes.Userns_fd)
	return s.call(callFlags, unix.SYS_MOUNT_SETATTR, object, "", unix.AT_EMPTY_PATH|flags, at, unix.MOUNT_ATTR_SIZE_VER0)
}

// object opens a mount of the tree, as a mount that is nowhere yet.
func (a *assembly) object(index int) *result {
	m := &a.tree[index]
	a.on("open", m.Path)
	switch m.Kind {
	case Bind:
		return a.bind(index)
	case Carried:
		return a.carried(m)
	case Overlay:
		return a.overlay(index)
	case Private:
		context := a.do(unix.SYS_FSOPEN, "tmpfs", unix.FSOPEN_CLOEXEC)
		a.do(unix.SYS_FSCONFIG, context, unix.FSCONFIG_SET_STRING, "mode", fmt.Sprintf("%04o", unixMode(m.Mode)), 0)
		if m.Size > 0 {
			a.do(unix.SYS_FSCONFIG, context, unix.FSCONFIG_SET_STRING, "size", fmt.Sprint(m.Size), 0)
			a.do(unix.SYS_FSCONFIG, context, unix.FSCONFIG_SET_STRING, "nr_inodes", fmt.Sprint(m.Size>>12), 0)
		}
		a.do(unix.SYS_FSCONFIG, context, unix.FSCONFIG_CMD_CREATE, 0, 0, 0)
		object := a.do(unix.SYS_FSMOUNT, context, fsmountCloexec, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
		a.close(context)
		a.copies(m, object)
		return object
	case Link:
		name := a.m.place()
		a.do(unix.SYS_SYMLINKAT, m.Source, stageFD, name)
		object := a.do(unix.SYS_OPEN_TREE, stageFD, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
		a.setattr(object, 0, false)
		return object
	case Empty:
		object := a.do(unix.SYS_OPEN_TREE, stageFD, emptyName, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		a.setattr(object, 0, false)
		return object
	}
	panic("mounts: a mount of no kind that is opened")
}

// unixMode is a mode as mkdir(2) takes it.
func unixMode(mode os.FileMode) uint32 {
	bits := uint32(mode.Perm())
	if mode&os.ModeSticky != 0 {
		bits |= unix.S_ISVTX
	}
	return bits
}

// bind opens one of the host's objects, without following any link.
func (a *assembly) bind(index int) *result {
	m := &a.tree[index]
	open := a.try(unix.SYS_OPENAT2, atCWD, m.Source, a.how(), howSize)
	a.look(index, open)
	object := a.try(unix.SYS_OPEN_TREE, open, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	a.close(open)
	attributes := m.attributes()
	if !m.Writable {
		attributes.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	limited := setattr(a.script, trampoline.MayFail, object, unix.AT_RECURSIVE, attributes)
	a.sources = append(a.sources, source{index: index, call: limited})
	return object
}

// overlay puts a layer over one of the host's directories. The names by which the kernel finds both
// are the stage's, so that those of the host are not seen inside. What the host has mounted below
// the directory is not in it.
func (a *assembly) overlay(index int) *result {
	m := &a.tree[index]
	stand := func(path string, look bool) string {
		open := a.try(unix.SYS_OPENAT2, atCWD, path, a.how(), howSize)
		if look {
			a.look(index, open)
		}
		object := a.try(unix.SYS_OPEN_TREE, open, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
		a.sources = append(a.sources, source{index: index, call: object})
		name := a.m.place()
		a.make(name, false)
		a.try(unix.SYS_MOVE_MOUNT, object, "", stageFD, name, unix.MOVE_MOUNT_F_EMPTY_PATH)
		a.close(object)
		a.close(open)
		a.m.litter = append(a.m.litter, name)
		return stagePlace + "/" + name
	}
	lower, layer := stand(m.Source, true), stand(m.Layer, false)
	context := a.try(unix.SYS_FSOPEN, "overlay", unix.FSOPEN_CLOEXEC)
	for _, option := range [][2]string{{"lowerdir", layer + "/" + LayerVeil + ":" + lower}, {"upperdir", layer + "/" + LayerUpper}, {"workdir", layer + "/" + LayerWork}} {
		a.try(unix.SYS_FSCONFIG, context, unix.FSCONFIG_SET_STRING, option[0], option[1], 0)
	}
	a.try(unix.SYS_FSCONFIG, context, unix.FSCONFIG_SET_FLAG, "userxattr", 0, 0)
	created := a.try(unix.SYS_FSCONFIG, context, unix.FSCONFIG_CMD_CREATE, 0, 0, 0)
	a.sources = append(a.sources, source{index: index, call: created})
	object := a.try(unix.SYS_FSMOUNT, context, fsmountCloexec, int(m.attributes().Attr_set))
	a.close(context)
	setattr(a.script, trampoline.MayFail, object, 0, m.attributes())
	a.sources = append(a.sources, source{index: index, call: object})
	return object
}

// carried takes a copy of what the sandbox has at a path, with all that is mounted there.
func (a *assembly) carried(m *Mount) *result {
	a.on("carry", m.Path)
	a.do(unix.SYS_SETNS, sandboxFD, unix.CLONE_NEWNS)
	open := a.do(unix.SYS_OPENAT2, atCWD, m.Path, a.how(), howSize)
	object := a.do(unix.SYS_OPEN_TREE, open, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	a.close(open)
	a.do(unix.SYS_SETNS, hostFD, unix.CLONE_NEWNS)
	return object
}

// add mounts a part of the tree on the rest.
func (a *assembly) add(index int) {
	m := &a.tree[index]
	if a.isInside(index) {
		return
	}
	var object *result
	if m.own() { // on something of the host's
		a.on("make", m.Path)
		object = a.directory(index, a.m.place())
	} else {
		object = a.object(index)
	}
	a.on("mount", m.Path)
	rel, _ := cutPrefix(m.Path, a.tree.Path())
	call := uint32(0)
	if m.Optional {
		call = trampoline.MayFail
	}
	at := a.call(call, unix.SYS_OPENAT2, a.base, rel, a.how(), howSize)
	moved := a.call(call, unix.SYS_MOVE_MOUNT, object, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	a.sources = append(a.sources, source{index: index, call: at}, source{index: index, call: moved})
	a.close(at)
	if m.own() {
		a.fill(index, object, "")
		a.setattr(object, unix.AT_RECURSIVE, false)
	}
	a.close(object)
}

// cutPrefix is what comes behind a directory in a path.
func cutPrefix(name, dir string) (string, bool) {
	dir = strings.TrimSuffix(dir, "/")
	if rest, is := strings.CutPrefix(name, dir); is && strings.HasPrefix(rest, "/") {
		return rest[1:], true
	}
	return name, false
}

// within reports whether a clean path is dir or lies below it.
func within(name, dir string) bool {
	_, below := cutPrefix(name, dir)
	return name == dir || below
}

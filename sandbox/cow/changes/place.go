package changes

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

var errChanged = errors.New("it was changed on the host meanwhile")

// make makes what an op puts in place, under its temporary name.
func (a *applier) make(o *op, name string) error {
	dir, _, err := a.parents.of(o.change.Path)
	if err != nil {
		return err
	}
	c := o.change
	switch {
	case c.upper.link() && o.content == nil:
		err = unix.Symlinkat(c.Target, dir, name)
	case c.upper.directory():
		err = unix.Mkdirat(dir, name, c.Mode&0o777|0o700)
	case o.shares() && a.linked(o, dir, name):
	default:
		err = a.makeFile(o, dir, name)
	}
	if err != nil {
		return err
	}
	made, err := lookAt(dir, name)
	o.New = made.Inode
	if err == nil && !a.stands(dir, c.Path) {
		a.removeMade(o, dir, name)
		return errMoved
	}
	if o.shares() && c.upper.regular() {
		a.links[c.upper.Inode] = hardLink{join(path.Dir(c.Path), name), made.Inode}
	}
	return err
}

// made reports whether what is put in place is not the layer's as it is.
func (o *op) made() bool { return o.content != nil || o.From != nil }

// shares reports whether it may be another name of a file. What is executed elsewhere is not: who
// may write only the other name would write it.
func (o *op) shares() bool { return o.change.upper.links > 1 && !o.made() && o.change.rank < rankFirst }

// A hardLink is where the first of several names of one file is.
type hardLink struct {
	path  string
	inode uint64
}

// linked makes another name of a file that was made already.
func (a *applier) linked(o *op, dir int, name string) bool {
	first, ok := a.links[o.change.upper.Inode]
	if !ok || o.Old != nil && o.Old.UID != a.owner(first) {
		return false
	}
	fd, err := openBeneath(a.lower, first.path, unix.O_PATH)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if now, err := lookAt(fd, ""); err != nil || now.Inode != first.inode {
		return false
	}
	return unix.Linkat(unix.AT_FDCWD, descriptorPath(fd), dir, name, unix.AT_SYMLINK_FOLLOW) == nil
}

func (a *applier) owner(l hardLink) uint32 {
	now, _ := lookAt(a.lower, l.path)
	return now.UID
}

// place does an op: what was made is put in its place, or what is there is taken away. What comes
// out under the temporary name is held against what was expected, and goes back if it is something
// else.
func (a *applier) place(o *op, temp string) error {
	dir, base, err := a.parents.of(o.change.Path)
	if err != nil {
		return err
	}
	a.step()
	if o.Old == nil {
		err := rename(dir, temp, base, unix.RENAME_NOREPLACE)
		if err == unix.EEXIST {
			return errors.New("the host has something of this name meanwhile")
		}
		if err == nil && !a.stands(dir, o.change.Path) {
			return errors.Join(errMoved, a.takeBack(o, dir, base))
		}
		return err
	}
	held, err := hold(dir, base, *o.Old)
	if err != nil {
		return err
	}
	defer held.close()
	a.step()
	if o.Put {
		err = rename(dir, temp, base, unix.RENAME_EXCHANGE)
	} else {
		err = rename(dir, base, temp, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		return err
	}
	a.step()
	if err := a.expected(o, dir, temp); err != nil || !held.still() {
		return errors.Join(errChanged, a.putBack(o, dir, base, temp))
	}
	if !a.stands(dir, o.change.Path) {
		return errors.Join(errMoved, a.putBack(o, dir, base, temp))
	}
	return nil
}

var errMoved = errors.New("its directory was moved on the host meanwhile")

// stands reports whether an open directory is still the one in which a path is. An open one is
// written into wherever somebody moves it, as to the name of a directory that no rule applies
// anything to.
func (a *applier) stands(dir int, name string) bool {
	now, err := a.there(path.Dir(name))
	was, err2 := lookAt(dir, "")
	return err == nil && err2 == nil && now.Inode == was.Inode
}

// moved takes back what was made for some ops in the directory that is open, which was moved.
func (a *applier) moved(j *journal, from, to int) {
	for i, o := range j.Ops[from:to] {
		if o.failed == "" && path.Dir(o.change.Path) == a.parents.dir {
			o.failed = errMoved.Error()
			a.removeMade(o, a.parents.fd, j.name(from+i))
		}
	}
	a.parents.close() // the next one looks anew
}

// takeBack removes what was put where nothing was.
func (a *applier) takeBack(o *op, dir int, base string) error {
	now, err := lookAt(dir, base)
	if err != nil || now.Inode != o.New {
		return err
	}
	return unix.Unlinkat(dir, base, removeFlag(now))
}

// removeReplaced removes what an op replaced or took away. A moment has passed: who was about to
// open the file for writing by its name, when that was taken away, has it open now, or has written
// to it. Then it goes back.
func (a *applier) removeReplaced(o *op, dir int, base, temp string) error {
	now, err := lookAt(dir, temp)
	if err != nil {
		return err
	}
	if !o.Old.moved(now) {
		return errors.Join(errChanged, a.putBack(o, dir, base, temp))
	}
	held, err := hold(dir, temp, now)
	if err != nil {
		return errors.Join(err, a.putBack(o, dir, base, temp))
	}
	defer held.close()
	a.step()
	return unix.Unlinkat(dir, temp, 0)
}

func rename(dir int, from, to string, flags uint) error {
	err := unix.Renameat2(dir, from, dir, to, flags)
	if err == unix.EINVAL {
		return errors.New("this file system cannot exchange files in one step")
	}
	return err
}

// expected holds what came out against what was to come out.
func (a *applier) expected(o *op, dir int, temp string) error {
	now, err := lookAt(dir, temp)
	if err != nil {
		return err
	}
	if !o.Old.directory() {
		if !o.Old.moved(now) {
			return errChanged
		}
		return nil
	}
	if now.Inode != o.Old.Inode || now.Mode != o.Old.Mode {
		return errChanged
	}
	have, err := tree(a.ctx, dir, temp, maxEntries)
	if err != nil {
		return err
	}
	if len(have) != len(o.tree) {
		return errChanged
	}
	for name, was := range o.tree {
		if now, ok := have[name]; !ok || !was.untouched(now) {
			return errChanged
		}
	}
	return nil
}

// putBack restores what an op moved away although it was not what was expected. Somebody changes
// the place right now: whatever happens, nothing but what we made ourselves is removed. The error
// says what had to be left under its temporary name.
func (a *applier) putBack(o *op, dir int, base, temp string) error {
	for range 20 {
		var err error
		if o.Put {
			err = rename(dir, temp, base, unix.RENAME_EXCHANGE)
		} else {
			err = rename(dir, temp, base, unix.RENAME_NOREPLACE)
		}
		if err == unix.ENOENT && o.Put {
			err = rename(dir, temp, base, unix.RENAME_NOREPLACE)
			if err == nil {
				return nil
			}
		}
		if err != nil {
			break
		}
		now, err := lookAt(dir, temp)
		if err == unix.ENOENT {
			return nil
		}
		if err == nil && o.Put && now.Inode == o.New {
			return unix.Unlinkat(dir, temp, removeFlag(now))
		}
	}
	left := join(path.Dir(o.change.Path), temp)
	a.result.Left = append(a.result.Left, left)
	return fmt.Errorf("what was there is kept as %s", left)
}

func removeFlag(o object) int {
	if o.directory() {
		return unix.AT_REMOVEDIR
	}
	return 0
}

// A holding keeps others from opening a file for writing unseen.
type holding struct{ fd int }

// hold checks that a name is what was expected, and that nobody has the file open for writing. A
// lease tells whether somebody wants to, from then on, and makes that process wait.
func hold(dir int, name string, expected object) (holding, error) {
	now, err := lookAt(dir, name)
	if err != nil || !expected.untouched(now) {
		return holding{-1}, errChanged
	}
	if !expected.regular() {
		return holding{-1}, nil
	}
	fd, err := openBeneath(dir, name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return holding{-1}, nil // it cannot be read, so there is no lease; it is checked all the same
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
	if err == unix.EAGAIN {
		unix.Close(fd)
		return holding{-1}, errors.New("somebody has it open for writing")
	}
	if err != nil { // this file system has no leases
		unix.Close(fd)
		fd = -1
	}
	if now, err := lookAt(dir, name); err != nil || !expected.untouched(now) {
		holding{fd}.close()
		return holding{-1}, errChanged
	}
	return holding{fd}, nil
}

// still reports whether nobody has tried to write.
func (h holding) still() bool {
	if h.fd < 0 {
		return true
	}
	lease, err := unix.FcntlInt(uintptr(h.fd), unix.F_GETLEASE, 0)
	return err == nil && lease == unix.F_RDLCK
}

func (h holding) close() {
	if h.fd >= 0 {
		unix.Close(h.fd)
	}
}

// removeTree removes a directory that was moved away, but for what was changed in it after the
// start of the apply.
func (a *applier) removeTree(dir int, temp string, start int64) error {
	all, err := tree(a.ctx, dir, temp, maxEntries)
	if err != nil {
		return err
	}
	list := make([]string, 0, len(all))
	for name := range all {
		list = append(list, name)
	}
	slices.SortFunc(list, func(a, b string) int { return strings.Compare(b, a) }) // what is in a directory comes before it
	root, err := openDirectory(dir, temp)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	in := newParents(root)
	defer in.close()
	for _, name := range list {
		o := all[name]
		if !o.directory() && o.Changed >= start {
			continue
		}
		at, base, err := in.of(name)
		if err != nil {
			return err
		}
		a.step()
		_ = unix.Unlinkat(at, base, removeFlag(o))
	}
	return unix.Unlinkat(dir, temp, unix.AT_REMOVEDIR)
}

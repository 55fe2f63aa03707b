package changes

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// operation is what is to be done for a change.
func (a *applier) operation(c *Change) (*op, bool) {
	o := &op{Path: []byte(c.Path), Put: c.Kind != Deleted, Old: c.lower, change: c}
	if c.Merged && (len(a.named) == 0 || !covers(keys(a.named), c.Path)) {
		o.From = c.upper
	}
	if o.Old == nil || !o.Old.directory() {
		return o, true
	}
	var err error
	if o.tree, err = tree(a.ctx, a.lower, c.Path, maxEntries); err != nil {
		a.result.skip(c.Path, "the original: "+reason(err))
		return nil, false
	}
	if !covers(keys(a.named), c.Path) || len(a.named) == 0 {
		w := walker{since: a.Since, applied: a.applied}
		for name, object := range o.tree {
			if why := w.later(path.Join(c.Path, name), object); why != "" {
				a.result.skip(c.Path, why)
				return nil, false
			}
		}
	}
	return o, true
}

func keys(m map[string]bool) []string {
	list := make([]string, 0, len(m))
	for key := range m {
		list = append(list, key)
	}
	return list
}

// directory makes a new one. It stays open to its owner until all is in it.
func (a *applier) directory(c *Change) error {
	dir, base, err := a.parents.of(c.Path)
	if err != nil {
		return err
	}
	a.step()
	err = unix.Mkdirat(dir, base, c.Mode&0o777)
	if err == nil {
		a.finishMode(c)
	}
	if err == unix.EEXIST {
		if now, lookErr := lookAt(dir, base); lookErr == nil && now.directory() {
			err = nil
		}
	}
	if err != nil {
		return err
	}
	return a.lay(c.Path)
}

// finish gives a new directory its permissions.
func (a *applier) finish(c *Change) {
	a.finishMode(c)
	a.note(c.Path)
	a.result.Applied = append(a.result.Applied, c.Path)
}

// finishMode takes away what the umask did.
func (a *applier) finishMode(c *Change) {
	fd, err := openBeneath(a.lower, c.Path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if now, err := lookAt(fd, ""); err == nil && now.permission()&0o777 != c.Mode&0o777 {
		_ = unix.Fchmod(fd, now.permission()&^0o777|c.Mode&0o777)
	}
}

// note remembers what is at a path now as something that an apply put there.
func (a *applier) note(name string) {
	dir, base, err := a.parents.of(name)
	if err != nil {
		return
	}
	if now, err := lookAt(dir, base); err == nil {
		_ = addApplied(a.Dir, []applied{{[]byte(name), now.Inode, now.Changed}})
	}
}

// permissions changes nothing else.
func (a *applier) permissions(c *Change) {
	fd, err := openBeneath(a.lower, c.Path, unix.O_PATH)
	if err != nil {
		a.result.skip(c.Path, reason(err))
		return
	}
	defer unix.Close(fd)
	now, err := lookAt(fd, "")
	if err == nil && !c.lower.untouched(now) {
		err = errChanged
	}
	if err == nil {
		a.step()
		mode := c.Mode & 0o777
		if a.named[c.Path] {
			mode = c.Mode
		}
		err = unix.Chmod(descriptorPath(fd), mode)
	}
	if err != nil {
		a.result.skip(c.Path, reason(err))
		return
	}
	a.note(c.Path)
	if c.Type == "file" {
		a.drop(c.Path)
	}
	a.result.Applied = append(a.result.Applied, c.Path)
}

// drop takes an entry out of the layer that the host has now.
func (a *applier) drop(name string) {
	a.forget(name)
	in := newParents(a.upper)
	defer in.close()
	if dir, base, err := in.of(name); err == nil {
		remove(dir, base, 0)
	}
}

// remove removes an entry of the layer.
func remove(dir int, name string, flags int) {
	_ = writing(dir, func() error { return unix.Unlinkat(dir, name, flags) })
}

// writing does something in a directory of the layer, which a command may have made read-only.
func writing(dir int, do func() error) error {
	err := do()
	if err != unix.EACCES {
		return err
	}
	o, lookErr := lookAt(dir, "")
	if lookErr != nil || unix.Fchmod(dir, o.permission()|0o700) != nil {
		return err
	}
	err = do()
	return errors.Join(err, unix.Fchmod(dir, o.permission()))
}

// batch does some ops with one journal. The error is one that makes it pointless to go on; the
// journal stays then.
func (a *applier) batch(ops []*op) error {
	if len(ops) == 0 {
		return nil
	}
	j, err := newJournal(ops)
	if err != nil {
		return err
	}
	if err := j.write(a.Dir); err != nil {
		return err
	}
	for i, o := range ops {
		a.step()
		if err := a.ctx.Err(); err != nil {
			o.failed = reason(err)
		} else if o.Put {
			if err := a.make(o, j.name(i)); err != nil {
				o.failed = reason(err)
				if errors.Is(err, errMoved) {
					a.moved(j, 0, i)
				}
			}
		}
	}
	if err := a.sync(); err != nil {
		return err
	}
	a.step()
	if err := j.write(a.Dir); err != nil {
		return err
	}
	for i, o := range ops {
		if o.failed == "" {
			if err := a.place(o, j.name(i)); err != nil {
				o.failed = reason(err)
				if errors.Is(err, errMoved) {
					a.moved(j, i+1, len(ops))
				}
			}
		}
		o.Verified = o.failed == ""
	}
	a.step()
	if err := a.sync(); err != nil {
		return err
	}
	return a.settle(j)
}

// settle ends a batch: what was replaced is removed, and what was applied taken out of the layer.
func (a *applier) settle(j *journal) error {
	if slices.ContainsFunc(j.Ops, func(o *op) bool { return o.Old != nil && o.Old.directory() }) {
		if err := j.write(a.Dir); err != nil {
			return err
		}
	}
	var done []applied
	for i, o := range j.Ops {
		dir, base, err := a.parents.of(o.change.Path)
		if err != nil {
			if o.failed == "" {
				o.failed = "its directory was moved on the host: " + reason(err)
				if o.Old != nil {
					a.result.Left = append(a.result.Left, join(path.Dir(o.change.Path), j.name(i)))
				}
			}
			a.result.skip(o.change.Path, o.failed)
			continue
		}
		if o.failed == "" && o.Old != nil {
			a.step()
			if o.Old.directory() {
				a.removeOld(o, dir, j.name(i), j.Start)
			} else if err := a.removeReplaced(o, dir, base, j.name(i)); err != nil {
				o.failed = reason(err)
			}
		}
		if o.failed != "" {
			a.removeMade(o, dir, j.name(i))
			a.result.skip(o.change.Path, o.failed)
			continue
		}
		if now, err := lookAt(dir, base); o.Put && err == nil && now.Inode == o.New {
			done = append(done, applied{[]byte(o.change.Path), now.Inode, now.Changed})
		}
		if link, ok := a.links[inodeOf(o.change)]; ok && link.inode == o.New {
			a.links[inodeOf(o.change)] = hardLink{o.change.Path, o.New}
		}
	}
	for _, o := range j.Ops {
		if o.failed == "" && o.From != nil {
			a.step()
			a.drop(o.change.Path) // before it is noted: see taken
		}
	}
	a.step()
	if err := addApplied(a.Dir, done); err != nil {
		return err
	}
	in := newParents(a.upper)
	defer in.close()
	for _, o := range j.Ops {
		if o.failed != "" {
			continue
		}
		c := o.change
		if o.content == nil && o.From == nil && (c.upper == nil || !c.upper.directory()) {
			a.step()
			a.forget(c.Path)
			if dir, base, err := in.of(c.Path); err == nil {
				remove(dir, base, 0)
			}
		}
		if c.Type != "directory" || c.Kind == Deleted { // those are told when they are whole
			a.result.Applied = append(a.result.Applied, c.Path)
		}
	}
	a.step()
	return os.Remove(filepath.Join(a.Dir, journalName))
}

func inodeOf(c *Change) uint64 {
	if c.upper == nil {
		return 0
	}
	return c.upper.Inode
}

// removeMade removes what was made and not put in place.
func (a *applier) removeMade(o *op, dir int, temp string) {
	if now, err := lookAt(dir, temp); err == nil && o.Put && (o.New == 0 || now.Inode == o.New) {
		_ = unix.Unlinkat(dir, temp, removeFlag(now))
	}
}

// removeOld removes a directory that was replaced or deleted.
func (a *applier) removeOld(o *op, dir int, temp string, start int64) {
	if err := a.removeTree(dir, temp, start); err != nil && err != unix.ENOENT {
		a.result.Left = append(a.result.Left, join(path.Dir(string(o.Path)), temp))
	}
}

// sync waits until all is on the disk. Without it, a power failure could leave an empty file where
// a whole one was.
func (a *applier) sync() error {
	if a.noSync {
		return nil
	}
	if err := unix.Syncfs(a.lower); err != nil {
		return err
	}
	return a.ctx.Err()
}

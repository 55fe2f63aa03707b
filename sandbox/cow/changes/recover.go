package changes

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// recover finishes an apply that was interrupted, or takes it back, op by op.
func (o *opened) recover(ctx context.Context, result *Result) error {
	j, err := readJournal(o.Dir)
	if j == nil || err != nil {
		return err
	}
	a := newApplier(ctx, o, result)
	defer a.parents.close()
	for i, op := range j.Ops {
		op.change = &Change{Path: string(op.Path)}
		dir, base, err := a.parents.of(op.change.Path)
		if err != nil {
			if errors.Is(err, unix.ENOENT) {
				continue
			}
			return err
		}
		if err := a.recoverOp(op, dir, base, j.name(i), j.Start); err != nil {
			result.skip(op.change.Path, reason(err))
		}
		if now, err := lookAt(dir, base); err == nil && op.Put && now.Inode == op.New && a.taken(op) {
			a.note(op.change.Path)
		}
	}
	return os.Remove(filepath.Join(o.Dir, journalName))
}

// taken takes out of the layer what was merged with the host's, unless a command changed it since.
// Then it is not noted as applied, or what the person had changed would count as undone by the
// command; the original still tells both apart.
func (a *applier) taken(o *op) bool {
	if o.From == nil {
		return true
	}
	now, err := lookAt(a.upper, o.change.Path)
	if err == nil && !o.From.untouched(now) {
		return false
	}
	a.drop(o.change.Path)
	return true
}

func (a *applier) recoverOp(o *op, dir int, base, temp string, start int64) error {
	now, err := lookAt(dir, temp)
	switch {
	case err == unix.ENOENT:
		return nil // it did not begin, or it was finished
	case err != nil:
		return err
	case o.Put && (now.Inode == o.New || o.New == 0): // it is ours
		return unix.Unlinkat(dir, temp, removeFlag(now))
	case o.Old == nil || now.Inode != o.Old.Inode:
		a.result.Left = append(a.result.Left, join(path.Dir(o.change.Path), temp))
		return nil
	case o.Old.directory() && o.Verified:
		a.removeOld(o, dir, temp, start)
		return nil
	case !o.Old.directory():
		return a.removeReplaced(o, dir, base, temp)
	}
	if err := a.putBack(o, dir, base, temp); err != nil {
		return err
	}
	if o.Old.moved(now) {
		a.note(o.change.Path) // it was moved away and back, and that is all that happened to it
	}
	return nil
}

// tidy takes out of the layer what is no change any more.
func (a *applier) tidy(r *Review, selected []string) error {
	for _, name := range r.same {
		if covers(selected, name) {
			a.drop(name)
		}
	}
	dirs := slices.Clone(r.dirs)
	slices.SortFunc(dirs, func(x, y upperDir) int { return strings.Compare(y.path, x.path) })
	for _, d := range dirs {
		if d.path != "." && (covers(selected, d.path) || slices.ContainsFunc(selected, func(s string) bool { return covers([]string{d.path}, path.Clean(s)) })) {
			a.prune(d)
		}
	}
	if some, err := names(a.upper, 1); err == nil && len(some) == 0 {
		_ = os.Remove(filepath.Join(a.Dir, appliedName))
	}
	return nil
}

// prune removes an empty directory of the layer where the host has the same one.
func (a *applier) prune(d upperDir) {
	low, err := openDirectory(a.lower, d.path)
	if err != nil {
		return
	}
	defer unix.Close(low)
	in := newParents(a.upper)
	defer in.close()
	dir, base, err := in.of(d.path)
	if err != nil {
		return
	}
	up, err := lookAt(dir, base)
	now, lowErr := lookAt(low, "")
	if err != nil || lowErr != nil || up.permission()&0o777 != now.permission()&0o777 {
		return
	}
	if hidden, _ := attribute(dir, base, opaqueName); hidden == "y" {
		return // it hides what the host has
	}
	remove(dir, base, unix.AT_REMOVEDIR)
}

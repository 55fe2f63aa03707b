package changes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/cow"
)

const trashName = "trash"

// Discard throws changes away, with all that is below the paths; no path is everything. What is in
// the layer goes to a directory beside it in one step, and is then removed, so that it is gone or
// there whenever this is interrupted.
func (l Layer) Discard(ctx context.Context, selected []string) (*Result, error) {
	o, result, err := l.takeToDiscard(ctx)
	if err != nil {
		return nil, err
	}
	defer o.close()
	trash := filepath.Join(o.lock.In(), trashName)
	if err := removeAll(ctx, o.lock.In(), trashName); err != nil {
		return result, err
	}
	if err := os.Mkdir(trash, 0o700); err != nil {
		return result, err
	}
	if len(selected) == 0 || slices.ContainsFunc(selected, func(p string) bool { return path.Clean(p) == "." }) {
		err = o.discardAll(trash)
		result.Applied = append(result.Applied, ".")
	} else {
		if o.lower >= 0 {
			review, err := o.walk(ctx)
			if err != nil {
				return result, err
			}
			o.uncover(review)
		}
		for i, name := range selected {
			if err := o.discard(path.Clean(name), trash, i); err != nil {
				result.skip(name, reason(err))
				continue
			}
			result.Applied = append(result.Applied, name)
		}
	}
	o.decided(Discarded, func(name string) bool { return len(result.Applied) > 0 && covers(result.Applied, name) })
	if err == nil {
		err = removeAll(ctx, o.lock.In(), trashName)
	}
	if some, emptyErr := names(o.upper, 1); err == nil && emptyErr == nil && len(some) == 0 {
		_ = os.Remove(filepath.Join(o.Dir, appliedName))
	}
	return result, err
}

// takeToDiscard opens a layer also if what it is of is not there any more.
func (l Layer) takeToDiscard(ctx context.Context) (*opened, *Result, error) {
	o, result, err := l.take(ctx)
	var strange *StrangeError
	if err == nil || !errors.As(err, &strange) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		return o, result, err
	}
	return l.takeUpper()
}

// discardAll puts an empty directory in the place of the upper one.
func (o *opened) discardAll(trash string) error {
	now, err := lookAt(o.upper, "")
	if err != nil {
		return err
	}
	if err := os.Chmod(trash, os.FileMode(now.permission()&0o777)); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(o.Dir, cow.Originals)); err != nil {
		return err
	}
	upper := o.lock.Upper()
	if err := unix.Renameat2(unix.AT_FDCWD, trash, unix.AT_FDCWD, upper, unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("empty the layer: %w", err)
	}
	unix.Close(o.upper)
	o.upper, err = unix.Open(upper, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	return err
}

// discard moves one path of the layer away.
func (o *opened) discard(name, trash string, i int) error {
	in := newParents(o.upper)
	defer in.close()
	dir, base, err := in.of(name)
	if err != nil {
		return err
	}
	to, err := unix.Open(trash, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	o.forget(name)
	if object, err := lookAt(dir, base); err == nil && object.directory() {
		openUp(dir, base)
	}
	return unix.Renameat2(dir, base, to, strconv.Itoa(i), unix.RENAME_NOREPLACE)
}

// openUp lets the owner into a directory: one that is moved, or looked into, must be writable.
func openUp(dir int, name string) {
	fd, err := openBeneath(dir, name, unix.O_PATH)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if o, err := lookAt(fd, ""); err == nil && o.directory() && o.Mode&0o700 != 0o700 {
		_ = unix.Chmod(descriptorPath(fd), o.permission()|0o700)
	}
}

// removeAll removes a directory however deep it is, with no more than a few descriptors: each
// directory that is found in another is moved up to the first one, and emptied there.
func removeAll(ctx context.Context, dir, name string) error {
	at, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	openUp(at, name)
	top, err := openDirectory(at, name)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(top)
	for n := 0; ; {
		list, err := names(top, 4096)
		if err != nil && !errors.Is(err, errTooMany) {
			return err
		}
		if len(list) == 0 {
			return unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
		}
		for _, entry := range list {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := removeOne(ctx, top, entry, &n); err != nil {
				return fmt.Errorf("remove %q: %w", entry, err)
			}
		}
	}
}

// removeOne removes an entry of the first directory; the directories in it come to stand beside it.
func removeOne(ctx context.Context, top int, name string, n *int) error {
	o, err := lookAt(top, name)
	if err != nil {
		return err
	}
	if !o.directory() {
		return unix.Unlinkat(top, name, 0)
	}
	openUp(top, name)
	dir, err := openDirectory(top, name)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	for {
		list, err := names(dir, 4096)
		if err != nil && !errors.Is(err, errTooMany) {
			return err
		}
		if len(list) == 0 {
			return unix.Unlinkat(top, name, unix.AT_REMOVEDIR)
		}
		for _, entry := range list {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := moveUp(dir, top, entry, n); err != nil {
				return err
			}
		}
	}
}

// moveUp removes a file, and moves a directory to a free name of the first one.
func moveUp(dir, top int, entry string, n *int) error {
	o, err := lookAt(dir, entry)
	if err != nil || !o.directory() {
		return errors.Join(err, unix.Unlinkat(dir, entry, 0))
	}
	if unix.Unlinkat(dir, entry, unix.AT_REMOVEDIR) == nil {
		return nil
	}
	openUp(dir, entry)
	for {
		*n++
		err := unix.Renameat2(dir, entry, top, "d"+strconv.Itoa(*n), unix.RENAME_NOREPLACE)
		if err != unix.EEXIST {
			return err
		}
	}
}

package changes

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

const opaqueName = "user.overlay.opaque"

// uncover makes each directory of the layer that was removed and made anew one that is merged with
// the host's, with a mark for each name of the host's that is gone. Otherwise what an apply takes
// out of it would count as deleted the next time. It reports whether there was one. What cannot be
// done so is not applied.
func (o *opened) uncover(r *Review) bool {
	some := false
	for _, d := range r.dirs {
		if d.opaque && d.lower && o.merge(d.path) == nil {
			some = true
		}
	}
	return some
}

func (o *opened) merge(name string) error {
	up, err := openDirectory(o.upper, name)
	if err != nil {
		return err
	}
	defer unix.Close(up)
	low, err := openDirectory(o.lower, name)
	if err != nil {
		return err
	}
	defer unix.Close(low)
	have, err := names(up, maxEntries)
	if err != nil {
		return err
	}
	old, err := names(low, maxEntries)
	if err != nil {
		return err
	}
	slices.Sort(have)
	for _, name := range old {
		if _, found := slices.BinarySearch(have, name); found {
			continue
		}
		if err := writing(up, func() error { return unix.Mknodat(up, name, unix.S_IFCHR, 0) }); err != nil {
			return err
		}
	}
	return writing(up, func() error { return unix.Fremovexattr(up, opaqueName) })
}

// lay says that the host has a directory now that was new in the layer: the layer's hides nothing
// of it any more.
func (a *applier) lay(name string) error {
	up, err := openDirectory(a.upper, name)
	if err != nil {
		return err
	}
	defer unix.Close(up)
	a.step()
	err = writing(up, func() error { return unix.Fremovexattr(up, opaqueName) })
	if errors.Is(err, unix.ENODATA) {
		return nil
	}
	return err
}

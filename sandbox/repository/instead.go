package repository

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Instead puts settings into an open git directory, in the place of a symbolic link by that name,
// and returns what of them must not stay in a repository that a command made. Whoever copies a
// repository inside copies the link that leads to the settings there.
func Instead(dir int, name, text string) ([]Taken, error) {
	place, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir))
	if err != nil && !errors.Is(err, unix.ENAMETOOLONG) {
		return nil, err
	}
	document, err := parseDocument(text)
	if err != nil {
		return nil, err
	}
	if len(text) > maxNew {
		return nil, unix.EFBIG
	}
	d := disarming{dir: dir, place: place}
	kept, out := d.clean(name, document)
	for range maxReplaced { // who copies a link gives it its owner and times next
		f := settingsFile{dir: dir, name: name, text: text}
		if err := unix.Fstatat(dir, name, &f.stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return nil, err
		}
		if f.stat.Mode&unix.S_IFMT != unix.S_IFLNK {
			return nil, errChanged
		}
		f.stat.Mode = 0o644
		if err = f.replace(kept); err == nil {
			return out, nil
		}
		if !errors.Is(err, errChanged) {
			break
		}
	}
	return nil, err
}

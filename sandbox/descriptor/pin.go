package descriptor

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// Pin opens the object at path without following any symbolic link, so that what is bound is what
// was looked at: a command that ran before may have put a link in its place (CVE-2026-87766 and its
// kin). Needs Linux 5.6 for openat2(2).
func Pin(path string) (File, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC, // with O_NOFOLLOW, a link at the end would be opened as itself
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err == unix.ENOSYS {
		return pinBySteps(path)
	}
	return File(max(fd, 0)), err
}

// PinBelow is Pin for what is below an open directory. Before Linux 5.6, that is what is in it.
func PinBelow(dir int, name string) (File, error) {
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	})
	if err == unix.ENOSYS && !strings.Contains(name, "/") {
		fd, err = unix.Openat(dir, name, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0)
	}
	return File(max(fd, 0)), err
}

// ErrReplaced means that what was allowed is not what is there now.
var ErrReplaced = errors.New("something else stands in the place of what was allowed")

// PinExpected pins the object at path if it is the one that a person allowed. What is compared is
// what is bound: nothing can be put in its place in between.
func PinExpected(path string, want *profile.Expected) (File, error) {
	file, err := Pin(path)
	if err != nil || want == nil || want.Inode == 0 {
		return file, err
	}
	object, err := profile.ObjectOf(int(file))
	if err == nil && !want.Is(object) {
		err = ErrReplaced
	}
	if err != nil {
		file.Close()
	}
	return file, err
}

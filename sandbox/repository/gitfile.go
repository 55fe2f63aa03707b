package repository

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// A Place says what a path is to a command.
type Place struct {
	// Writes reports whether the command may write what is at a path, and what is relative to a
	// working tree is protected for.
	Writes func(path string) bool
	// IsPlain reports whether no symbolic link is on the way to a path, there or not.
	IsPlain func(path string) bool
}

// IsPlain is for paths on the host.
func IsPlain(path string) bool {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve})
	if err == nil {
		unix.Close(fd)
	}
	return err == nil || errors.Is(err, unix.ENOENT)
}

// CheckGitFile says what is wrong with a file .git that a command made, in an open directory that
// is a working tree at a path. git obeys the settings of where it leads, and what these name in the
// working tree is the command's. So it may lead only to what the command may write: what settings
// name there is protected in every tree.
func CheckGitFile(dir int, name, tree string, place Place) error {
	text, err := readSmall(dir, name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	to, found := strings.CutPrefix(strings.TrimRight(text, "\r\n"), "gitdir: ")
	if err != nil || !found {
		return err // git refuses what is none
	}
	to, _, _ = strings.Cut(to, "\x00") // as git reads it
	if leaves(to) {
		return fmt.Errorf("it leads to %q", to)
	}
	if !path.IsAbs(to) {
		to = path.Join(tree, to)
	}
	to = path.Clean(to)
	if !place.IsPlain(to) || !place.Writes(to) {
		return fmt.Errorf("it leads to %q", to)
	}
	return nil
}

// leaves reports whether a path goes up again from somewhere below: where that leads, links decide.
func leaves(name string) bool {
	below := path.IsAbs(name)
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." && below {
			return true
		}
		below = below || part != "" && part != "." && part != ".."
	}
	return false
}

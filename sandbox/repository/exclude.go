package repository

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxExclude bounds the file that says what git does not track.
const maxExclude = 1 << 20

// Exclude has git not show, and not add, untracked files of a pattern in a working tree at a path,
// or no longer: a line at the end of info/exclude. It reports whether it made, or removed, that
// line. Only where may be written, it does.
func Exclude(tree, pattern string, exclude bool, writes func(path string) bool) (bool, error) {
	dir, place, err := openGitOf(tree)
	if err != nil {
		return false, err
	}
	defer func() { unix.Close(dir) }()
	if text, err := readSmall(dir, "commondir"); err == nil { // a worktree's is that of its repository
		common := strings.TrimRight(text, "\n")
		if !filepath.IsAbs(common) {
			common = filepath.Join(place, common)
		}
		above, err := openPlain(common)
		if err != nil {
			return false, err
		}
		unix.Close(dir)
		dir, place = above, common
	}
	place = filepath.Clean(place) // what writes is asked has no ".."
	if !writes(place) {
		return false, unix.EACCES
	}
	fd, err := unix.Openat2(dir, "info/exclude", &unix.OpenHow{Flags: unix.O_RDWR | unix.O_APPEND | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: resolve})
	if err != nil {
		return false, err
	}
	file := os.NewFile(uintptr(fd), "info/exclude")
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Nlink != 1 {
		return false, errors.Join(unix.EINVAL, err)
	}
	text, err := readAll(file, maxExclude)
	if err != nil {
		return false, err
	}
	line := pattern + "\n"
	last := text == line || strings.HasSuffix(text, "\n"+line)
	switch {
	case last == exclude:
		return false, nil
	case !exclude:
		return true, file.Truncate(int64(len(text) - len(line)))
	case text != "" && !strings.HasSuffix(text, "\n"):
		line = "\n" + line
	}
	_, err = file.WriteString(line)
	return err == nil, err
}

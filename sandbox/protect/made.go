package protect

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	// maxMade is how many repositories that it made one run leaves as such.
	maxMade = 64
	// maxMadeEntries is how much may be in one, but for its objects.
	maxMadeEntries = 512
)

// Made says what a git directory is like, but for its objects: which ones its files are, and when
// they were changed the last time, which nobody can set. If it says the same later, nobody has used
// it in between for anything that git writes down. It is empty for a directory that cannot be known
// so: it has submodules or worktrees, too much, something of another user's, or what is neither
// file nor directory.
func Made(dir string) string {
	fd, err := openRoot(dir)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	m := madeLook{left: maxMadeEntries}
	if !m.directory(fd, "", dir) {
		return ""
	}
	slices.Sort(m.lines)
	sum := sha256.New()
	for _, line := range m.lines {
		fmt.Fprintf(sum, "%d %s\n", len(line), line)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

type madeLook struct {
	left  int
	lines []string
}

// directory looks at what is in one, beneath a git directory at a path.
func (m *madeLook) directory(at int, name, path string) bool {
	dir, err := openBelow(at, name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	if !m.entry(dir, "", path) {
		return false
	}
	top := name == ""
	is := true
	err = readDirectory(dir, func(name []byte, kind Kind) bool {
		m.left--
		below := path + "/" + string(name)
		switch {
		case m.left < 0, top && (isNamed(string(name), "modules") || isNamed(string(name), "worktrees")), kind != File && kind != Directory:
			is = false
		case top && isNamed(string(name), "objects"): // a look at those tells for itself what was changed
		case kind == Directory:
			is = m.directory(dir, string(name), below)
		default:
			is = m.entry(dir, string(name), below)
		}
		return is
	})
	return is && err == nil
}

func (m *madeLook) entry(dir int, name, path string) bool {
	var stat unix.Statx_t
	if unix.Statx(dir, name, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &stat) != nil || int(stat.Uid) != os.Getuid() {
		return false
	}
	m.lines = append(m.lines, fmt.Sprintf("%q %d:%d %d %o %d %d.%09d %d.%09d", path, stat.Dev_major, stat.Dev_minor, stat.Ino, stat.Mode, stat.Size,
		stat.Ctime.Sec, stat.Ctime.Nsec, stat.Btime.Sec, stat.Btime.Nsec))
	return true
}

// made are the git directories that the command made, or that another one had made, in which git
// executes nothing now: as Made says.
func (w *Watch) made() (list []string) {
	if w.options.Names == nil || len(w.options.Names.Unprotected) > 0 || w.why != "" || w.options.Disarm == nil {
		return nil
	}
	nodes := slices.SortedFunc(maps.Values(w.nodes), func(a, b *node) int { return int(a.watch) - int(b.watch) })
	for _, n := range nodes {
		if !n.isGit || n.git || n.above == nil || n.above.part != notGit || n.path() == "" || len(list) == maxMade {
			continue
		}
		fd, err := w.descriptor(n)
		if err != nil {
			continue
		}
		if taken, err := w.options.Disarm(fd, func(int, string) error { return unix.EBUSY }); err != nil || len(taken) > 0 {
			continue
		}
		if is := Made(n.path()); is != "" {
			list = append(list, is)
		}
	}
	return list
}

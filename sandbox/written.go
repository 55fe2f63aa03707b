package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// Where a symbolic link leads that a command could have made is that command's choice. So a file in the state directory has every directory
// that any command could write, whatever agent's it was, and a grant that passes through a link in one of them is refused. A line is for
// one directory: device, inode, quoted path. It counts by either: a directory that was renamed is the same, and one that was made again is
// where it was.

const (
	// maxWrittenFile bounds what is read. With more, every link could be a command's.
	maxWrittenFile = 1 << 20
	// maxWritten is how many directories are told apart. With more, those that stand beside each other become one: the directory above.
	maxWritten = 1024
)

type writtenDirectory struct {
	device, inode uint64
	path          string
}

type writtenDirectories []writtenDirectory

func parseWritten(text string) (writtenDirectories, error) {
	var list writtenDirectories
	for line := range strings.Lines(text) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
		if len(fields) != 3 {
			return nil, fmt.Errorf("a line of it cannot be read: %.80q", line)
		}
		device, err1 := strconv.ParseUint(fields[0], 10, 64)
		inode, err2 := strconv.ParseUint(fields[1], 10, 64)
		where, err3 := strconv.Unquote(fields[2])
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, fmt.Errorf("a line of it cannot be read: %.80q", line)
		}
		list = append(list, writtenDirectory{device, inode, where})
	}
	return list, nil
}

func (list writtenDirectories) text() string {
	var b strings.Builder
	for _, d := range list {
		fmt.Fprintf(&b, "%d %d %q\n", d.device, d.inode, d.path)
	}
	return b.String()
}

// holds reports whether what is at a path is in one of the directories.
func (list writtenDirectories) holds(tree Tree, where string) bool {
	for dir := where; ; dir = parent(dir) {
		object, err := tree.Lstat(dir)
		for _, d := range list {
			if d.path == dir || err == nil && object.Inode != 0 && d.device == object.Device && d.inode == object.Inode {
				return true
			}
		}
		if dir == "/" {
			return false
		}
	}
}

// couldBeWritten reports whether a command, of any agent, could have made what is at a path.
func (b *builder) couldBeWritten(where string) bool {
	if b.profile.Written == "" {
		return false
	}
	text, err := b.tree.ReadFile(b.profile.Written, maxWrittenFile)
	if errors.Is(err, unix.ENOENT) {
		return false
	}
	list, unreadable := parseWritten(text)
	return err != nil || unreadable != nil || len(text) >= maxWrittenFile || list.holds(b.tree, parent(where))
}

// recordWritten adds to a file the directories that a plan's command may write, or has a layer over, which may be applied. It comes before the
// command begins.
func recordWritten(file string, plan *Plan) error {
	if file == "" {
		return nil
	}
	var roots []string
	for _, s := range plan.Steps {
		if s.Kind == Bind && s.Access != profile.ReadOnly && s.Pinned && !s.file && s.Purpose != Anchors && !within(s.Source, path.Dir(file)) {
			roots = append(roots, s.Source)
		}
	}
	if len(roots) == 0 {
		return nil
	}
	if text, err := readWritten(file); err == nil { // most runs are in a directory where others were
		if list, err := parseWritten(text); err == nil && len(list.lacking(roots)) == 0 {
			return nil
		}
	}
	if err := addWritten(file, roots); err != nil {
		return &SetupError{Path: file, Why: "write down which directories the command may write: " + reason(err), Hint: "make room, or correct that file"}
	}
	return nil
}

// lacking are the directories that no line names as they are.
func (list writtenDirectories) lacking(roots []string) writtenDirectories {
	var lacks writtenDirectories
	for _, root := range roots {
		object, err := Host{}.Lstat(root)
		d := writtenDirectory{object.Device, object.Inode, root}
		if err == nil && !slices.Contains(list, d) && !slices.Contains(lacks, d) {
			lacks = append(lacks, d)
		}
	}
	return lacks
}

func readWritten(file string) (string, error) {
	text, err := Host{}.ReadFile(file, maxWrittenFile)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err == nil && len(text) >= maxWrittenFile {
		err = unix.EFBIG
	}
	return text, err
}

// addWritten replaces the file by one that has more, while it holds the lock beside it.
func addWritten(file string, roots []string) error {
	if err := os.MkdirAll(path.Dir(file), 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(file+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := flock(int(lock.Fd())); err != nil {
		return err
	}
	text, err := readWritten(file)
	if err != nil {
		return err
	}
	list, err := parseWritten(text)
	if err != nil {
		return err
	}
	list = append(list, list.lacking(roots)...).fewer()
	if err := os.WriteFile(file+".new", []byte(list.text()), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// flock waits for a lock, which is held for less than a millisecond at a time.
func flock(fd int) error {
	for {
		if err := unix.Flock(fd, unix.LOCK_EX); err != unix.EINTR {
			return err
		}
	}
}

// fewer puts one directory in the place of those that stand in it, beginning with the one that holds the most of them, until few are left, and their text is short.
func (list writtenDirectories) fewer() writtenDirectories {
	for len(list) > maxWritten || len(list.text()) > maxWrittenFile/2 {
		beside := map[string]int{}
		most := ""
		for _, d := range list {
			above := parent(d.path)
			if beside[above]++; above != "/" && (most == "" || beside[above] > beside[most]) {
				most = above
			}
		}
		if most == "" {
			return list
		}
		list = slices.DeleteFunc(list, func(d writtenDirectory) bool { return within(d.path, most) })
		object, _ := Host{}.Lstat(most)
		list = append(list, writtenDirectory{object.Device, object.Inode, most})
	}
	return list
}

// Package written reads the account of every directory that a command in a sandbox could write,
// whatever agent's it was. What lies there is that command's choice: where a link leads, which
// program bears a name. It imports nothing; package sandbox writes the account.
//
// A line is for one directory: device, inode, quoted path. It counts by either: a directory that
// was renamed is the same, and one that was made again is where it was.
package written

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// MaxSize bounds what is read of the file, in bytes. With more, everything could be a command's.
const MaxSize = 1 << 20

// A Directory is one that a command could write, with all below it.
type Directory struct {
	Device, Inode uint64
	Path          string
}

// A List is the account.
type List []Directory

// Parse reads the text of the account.
func Parse(text string) (List, error) {
	var list List
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
		list = append(list, Directory{device, inode, where})
	}
	return list, nil
}

// Text is what Parse reads.
func (list List) Text() string {
	var b strings.Builder
	for _, d := range list {
		fmt.Fprintf(&b, "%d %d %q\n", d.Device, d.Inode, d.Path)
	}
	return b.String()
}

// Read reads the file. None is an empty account; one that cannot be read as a whole is an error.
func Read(file string) (List, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", file)
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxSize))
	if err == nil && len(text) == MaxSize {
		err = syscall.EFBIG
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	list, err := Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return list, nil
}

// Holds reports whether what is at a path is in one of the directories. The numbers of what is at a
// path are looked up by identify; an inode of 0 is none.
func (list List) Holds(where string, identify func(path string) (device, inode uint64)) bool {
	if len(list) == 0 {
		return false
	}
	for dir := where; ; dir = filepath.Dir(dir) {
		device, inode := identify(dir)
		for _, d := range list {
			if d.Path == dir || inode != 0 && d.Device == device && d.Inode == inode {
				return true
			}
		}
		if dir == "/" || dir == "." {
			return false
		}
	}
}

// OnDisk is what Holds needs to know of this machine's files. No link is followed.
func OnDisk(path string) (device, inode uint64) {
	var stat syscall.Stat_t
	if syscall.Lstat(path, &stat) != nil {
		return 0, 0
	}
	return uint64(stat.Dev), stat.Ino
}

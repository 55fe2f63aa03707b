package sandbox

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A shelf keeps used placeholders between runs, in the state directory: to move an empty directory takes a tenth of the time
// that the kernel takes to make one and to remove it (ext4: 18 µs for both moves, 110 for the other). It serves workspaces
// on the same file system; for others, and when it is empty, placeholders are made.
type shelf struct {
	state string // none if empty
	dir   descriptor
	names []string // there when it was opened; other runs take from it, too
	full  bool
	kept  int
}

// shelfSize bounds what is kept.
const shelfSize = 64

const shelfName = "placeholders"

// open finds the shelf. It is made when there is something to put there.
func (s *shelf) open(make bool) bool {
	if s.dir != 0 || s.state == "" {
		return s.dir != 0
	}
	path := filepath.Join(s.state, shelfName)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err == unix.ENOENT && make && unix.Mkdir(path, 0o700) == nil {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return false
	}
	s.dir = descriptor(fd)
	entries, _ := Host{}.ReadDir(path)
	for _, entry := range entries {
		s.names = append(s.names, entry.Name)
	}
	s.full = len(entries) >= shelfSize
	return true
}

// take makes a placeholder in a directory, from the shelf if it can.
func (s *shelf) take(dir descriptor, name string) error {
	for s.open(false) && len(s.names) > 0 {
		kept := s.names[0]
		s.names = s.names[1:]
		switch err := unix.Renameat2(int(s.dir), kept, int(dir), name, unix.RENAME_NOREPLACE); err {
		case nil:
			return nil
		case unix.EEXIST:
			return err
		case unix.ENOENT: // another run has it
		default: // another file system, above all
			s.names = nil
		}
	}
	return unix.Mkdirat(int(dir), name, placeholderMode)
}

// put keeps a placeholder for another run. It reports false if it is where it was.
func (s *shelf) put(dir descriptor, name string) bool {
	if !isEmpty(dir, name) || !s.open(true) || s.full {
		return false
	}
	s.kept++
	kept := fmt.Sprintf("%d-%d", os.Getpid(), s.kept)
	if unix.Renameat2(int(dir), name, int(s.dir), kept, unix.RENAME_NOREPLACE) != nil {
		return false
	}
	if !isEmpty(s.dir, kept) { // somebody put something there at the last moment: it is not ours to take
		return unix.Renameat2(int(s.dir), kept, int(dir), name, unix.RENAME_NOREPLACE) != nil
	}
	return true
}

// isEmpty reports whether a name in a directory is an empty directory.
func isEmpty(dir descriptor, name string) bool {
	fd, err := unix.Openat(int(dir), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var buffer [256]byte
	n, err := unix.Getdents(fd, buffer[:])
	return err == nil && n <= 2*24 // "." and ".."
}

package protect

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Twins looks through a directory and all below it for other names (hard links) of some files: a
// command that writes one by another name changes what is read-only under the first. is says of an
// inode number whether it may be one of them, and found is told each path. Directories for which
// apart is true are not the command's to write.
func Twins(root string, apart func(string) bool, limits Limits, is func(inode uint64) bool, found func(path string, device, inode uint64)) error {
	top, err := openRoot(root)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	var fs unix.Statfs_t
	asks := unix.Fstatfs(top, &fs) == nil && (fs.Type == unix.OVERLAYFS_SUPER_MAGIC || fs.Type == unix.FUSE_SUPER_MAGIC) // their directories may have other numbers
	directories, entries := 0, 0
	for todo := []string{root}; len(todo) > 0; {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		directories++
		err := readBelowAll(top, relative(dir, root), func(fd int, name []byte, kind Kind, inode uint64) bool {
			entries++
			path := ""
			switch {
			case kind == Directory:
				if path = join(dir, string(name)); !apart(path) {
					todo = append(todo, path)
				}
			case kind == File && (asks || is(inode)):
				var stat unix.Stat_t
				if unix.Fstatat(fd, string(name), &stat, unix.AT_SYMLINK_NOFOLLOW) == nil && stat.Nlink > 1 && is(stat.Ino) {
					found(join(dir, string(name)), uint64(stat.Dev), stat.Ino)
				}
			}
			return entries <= limits.Entries
		})
		if entries > limits.Entries || directories > limits.Directories {
			return errors.New("there is too much to look through")
		}
		if err != nil && err != unix.ENOENT && err != unix.ENOTDIR && err != unix.ELOOP && err != unix.EACCES { // what nobody may read was closed
			return err
		}
	}
	return nil
}

func readBelowAll(root int, name string, each func(dir int, name []byte, kind Kind, inode uint64) bool) error {
	fd, err := openBelow(root, name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for {
		more, err := readObjects(fd, func(name []byte, kind Kind, inode uint64) bool { return each(fd, name, kind, inode) })
		if err != nil || !more {
			return err
		}
	}
}

package protect

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Kind is what a name in a directory is.
type Kind uint8

const (
	Other Kind = iota
	File
	Directory
	Link
)

func kindOf(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Directory
	case unix.S_IFLNK:
		return Link
	}
	return Other
}

func (k Kind) String() string { return []string{"other", "file", "directory", "link"}[k] }

// An object is something on a file system.
type object struct{ device, inode uint64 }

func objectOf(stat *unix.Stat_t) object { return object{uint64(stat.Dev), stat.Ino} }

// An identity is an object's, also when it is gone: another one may get its number.
type identity struct {
	object
	born unix.StatxTimestamp
	path string // where the file system does not say when something was made
}

// identify looks at a name in a directory, which is at a path. No link is followed.
func identify(dir int, name, path string) (is identity, there bool) {
	var stat unix.Statx_t
	if unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW|unix.AT_NO_AUTOMOUNT, unix.STATX_INO|unix.STATX_BTIME, &stat) != nil {
		return is, false
	}
	is.object = object{unix.Mkdev(stat.Dev_major, stat.Dev_minor), stat.Ino}
	if stat.Mask&unix.STATX_BTIME != 0 {
		is.born = stat.Btime
	} else {
		is.path = path
	}
	return is, true
}

// openRoot opens a directory by its absolute path, through no link.
func openRoot(path string) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
}

// openBelow opens a directory beneath another one, through no link.
func openBelow(root int, name string, flags uint64) (int, error) {
	if name == "" {
		name = "."
	}
	for range 8 {
		fd, err := unix.Openat2(root, name, &unix.OpenHow{Flags: flags | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_BENEATH})
		if err != unix.EAGAIN && err != unix.EINTR { // EAGAIN: something was renamed at that moment
			return fd, err
		}
	}
	return -1, unix.EAGAIN
}

// openOwn is openBelow for reading, also where directories on the way, or the last one, may not be
// searched or read: they are given another mode for that moment. Who owns them could do the same,
// and programs that know a name need not read the directory.
func openOwn(root int, name string) (int, error) {
	at, err := unix.FcntlInt(uintptr(root), unix.F_DUPFD_CLOEXEC, 0)
	for part := range strings.SplitSeq(name, "/") {
		if err != nil {
			return -1, err
		}
		defer usable(at)()
		var next int
		next, err = openBelow(at, part, unix.O_PATH)
		unix.Close(at)
		at = next
	}
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	defer usable(at)()
	return openBelow(at, ".", unix.O_RDONLY|unix.O_NONBLOCK)
}

// usable lets its owner read, write and search a directory, and returns what makes its mode as it
// was: the command may have made it otherwise.
func usable(dir int) (undo func()) {
	var stat unix.Stat_t
	if unix.Fstat(dir, &stat) != nil || stat.Mode&0o700 == 0o700 || int(stat.Uid) != os.Getuid() {
		return func() {}
	}
	this, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return func() {}
	}
	path := descriptorPath(this) // it may be open as a path only
	unix.Chmod(path, stat.Mode&0o7777|0o700)
	return func() {
		unix.Chmod(path, stat.Mode&0o7777)
		unix.Close(this)
	}
}

var direntBuffers = sync.Pool{New: func() any { buffer := make([]byte, 32<<10); return &buffer }}

// descriptorPath leads to what is open.
func descriptorPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// readDirectory tells each name in an open directory, in the order in which the file system has
// them. It ends early when each returns false.
func readDirectory(fd int, each func(name []byte, kind Kind) bool) error {
	for {
		if more, err := readSome(fd, each); !more || err != nil {
			return err
		}
	}
}

// readSome tells the next names, some hundred. There are no more if each returns false.
func readSome(fd int, each func(name []byte, kind Kind) bool) (more bool, err error) {
	return readObjects(fd, func(name []byte, kind Kind, _ uint64) bool { return each(name, kind) })
}

// readObjects is readSome, and tells the inode numbers.
func readObjects(fd int, each func(name []byte, kind Kind, inode uint64) bool) (more bool, err error) {
	pooled := direntBuffers.Get().(*[]byte)
	defer direntBuffers.Put(pooled)
	n, err := unix.Getdents(fd, *pooled)
	if err == unix.EINTR {
		return true, nil
	}
	if n <= 0 || err != nil {
		return false, err
	}
	for text := (*pooled)[:n]; len(text) > 0; {
		entry := (*unix.Dirent)(unsafe.Pointer(&text[0]))
		name := text[unsafe.Offsetof(entry.Name):entry.Reclen]
		name = name[:max(bytes.IndexByte(name, 0), 0)]
		text = text[entry.Reclen:]
		if len(name) == 0 || name[0] == '.' && (len(name) == 1 || len(name) == 2 && name[1] == '.') {
			continue
		}
		kind := Other
		switch entry.Type {
		case unix.DT_REG:
			kind = File
		case unix.DT_DIR:
			kind = Directory
		case unix.DT_LNK:
			kind = Link
		case unix.DT_UNKNOWN: // some file systems do not say
			var stat unix.Stat_t
			if unix.Fstatat(fd, string(name), &stat, unix.AT_SYMLINK_NOFOLLOW) == nil {
				kind = kindOf(stat.Mode)
			}
		}
		if !each(name, kind, entry.Ino) {
			return false, nil
		}
	}
	return true, nil
}

func join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

func parent(path string) string {
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		return "/"
	}
	return path[:i]
}

func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// relative is a path as it is called beneath a directory.
func relative(path, root string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, root), "/")
}

func within(path, dir string) bool {
	return dir == "/" || path == dir || len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}

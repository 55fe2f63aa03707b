// Package links follows a path's symbolic links hop by hop, as the kernel does
// (path_resolution(7)), and says which it passed: what is decided about a path is decided about the
// object that it leads to. It looks at a Tree, of which the Host is one, and a plan laid over the
// host another.
package links

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile/text"
)

// MaxLinks is how many symbolic links one path may pass through, as in the kernel
// (path_resolution(7)).
const MaxLinks = 40

// Tree is a file system as a plan is built on it: one object at a time, never through a symbolic
// link.
type Tree interface {
	// Lstat describes the object at path itself. An error is, or wraps, the errno.
	Lstat(path string) (Object, error)
	// Readlink returns the text of the symbolic link at path.
	Readlink(path string) (string, error)
	// ReadDir returns what is in the directory at path, in any order.
	ReadDir(path string) ([]Entry, error)
	// ReadFile returns the beginning of the regular file at path, at most limit bytes of it.
	ReadFile(path string, limit int) (string, error)
}

// An Entry is a name in a directory.
type Entry struct {
	Name string
	Dir  bool // a directory itself, not through a link
	Link bool
}

// Object is what a name in a Tree stands for.
type Object struct {
	Mode fs.FileMode
	UID  uint32 // its owner
	// Device and Inode say which object it is, where the tree knows.
	Device, Inode uint64
	Rdev          uint64 // of a device: its number
	Names         uint64 // how many names it has (hard links), where the tree knows
}

// Host is the real file system.
type Host struct{}

// Lstat asks the kernel directly: os.Lstat's description of a file is most of what building a plan
// would cost.
func (Host) Lstat(path string) (Object, error) {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return Object{}, err
	}
	return Object{Mode: FileMode(stat.Mode), UID: stat.Uid, Device: stat.Dev, Inode: stat.Ino, Rdev: stat.Rdev, Names: uint64(stat.Nlink)}, nil
}

// FileMode is a mode of stat(2)'s as Go writes it.
func FileMode(mode uint32) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	if mode&unix.S_ISVTX != 0 {
		m |= fs.ModeSticky
	}
	switch mode & unix.S_IFMT {
	case unix.S_IFDIR:
		m |= fs.ModeDir
	case unix.S_IFLNK:
		m |= fs.ModeSymlink
	case unix.S_IFSOCK:
		m |= fs.ModeSocket
	case unix.S_IFIFO:
		m |= fs.ModeNamedPipe
	case unix.S_IFBLK:
		m |= fs.ModeDevice
	case unix.S_IFCHR:
		m |= fs.ModeDevice | fs.ModeCharDevice
	}
	return m
}

func (Host) Readlink(path string) (string, error) { return os.Readlink(path) }

// ReadDir asks the kernel directly, as Lstat does: a workspace has many directories.
func (Host) ReadDir(path string) ([]Entry, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var list []Entry
	buffer := *direntBuffers.Get().(*[]byte)
	defer direntBuffers.Put(&buffer)
	for len(list) < maxEntries {
		n, err := unix.Getdents(fd, buffer)
		if n <= 0 || err != nil {
			return list, err
		}
		for text := buffer[:n]; len(text) > 0; {
			entry := (*unix.Dirent)(unsafe.Pointer(&text[0]))
			name := text[unsafe.Offsetof(entry.Name):entry.Reclen]
			name = name[:max(bytes.IndexByte(name, 0), 0)]
			dir, link := entry.Type == unix.DT_DIR, entry.Type == unix.DT_LNK
			if entry.Type == unix.DT_UNKNOWN { // some file systems do not say
				object, err := Host{}.Lstat(path + "/" + string(name))
				dir, link = err == nil && object.Mode.IsDir(), err == nil && object.Mode&fs.ModeSymlink != 0
			}
			if s := string(name); s != "." && s != ".." {
				list = append(list, Entry{s, dir, link})
			}
			text = text[entry.Reclen:]
		}
	}
	return list, nil
}

var direntBuffers = sync.Pool{New: func() any { buffer := make([]byte, 32<<10); return &buffer }}

// maxEntries bounds what is read of one directory.
const maxEntries = 100_000

func (Host) ReadFile(path string, limit int) (string, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", cmp.Or(err, error(syscall.EINVAL))
	}
	size := int(stat.Size) + 1
	if stat.Size == 0 { // or a file of the kernel's, which does not say
		size = limit
	}
	content := make([]byte, min(limit, size))
	n := 0
	for n < len(content) {
		read, err := unix.Read(fd, content[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return "", err
		}
		if read == 0 {
			break
		}
		n += read
	}
	return string(content[:n]), nil
}

// A Link is a symbolic link that a path passes through. Its own path has no symbolic link in its
// parents.
type Link struct {
	Path string
	Text string
}

// A Walk is the way from a path as typed to the object that it means.
type Walk struct {
	Real   string // no component of it is a symbolic link
	Object Object
	Links  []Link   // each one passed, in order
	Left   []string // directories that were left by ".."
	Rest   []string // what could not be walked any more; empty if all was
}

// Follow walks path hop by hop, parents included. The error wraps the errno of the step that could
// not be made; Real is then how far the walk came.
func Follow(tree Tree, path string) (Walk, error) {
	directory := Object{Mode: fs.ModeDir | 0o755}
	w := Walk{Real: "/", Object: directory}
	rest := path
	literal := true // what was walked is the beginning of path as it stands, so that it need not be put together
	for {
		name, after := CutComponent(rest)
		switch {
		case name == "":
			return w, nil
		case name == "..":
			w.Left = append(w.Left, w.Real)
			w.Real, w.Object, rest, literal = Parent(w.Real), directory, after, false
			continue
		}
		walked := len(path) - len(after)
		if after != "" {
			walked-- // the slash
		}
		literal = literal && walked == len(w.Real)+len(name)+min(len(w.Real)-1, 1)
		var next string
		if literal {
			next = path[:walked]
		} else {
			next = Join(w.Real, name)
		}
		stopped := func(path string, err error) (Walk, error) {
			w.Rest = append([]string{name}, components(after)...)
			return w, errnoOnly(path, err)
		}
		object, err := tree.Lstat(next)
		if err != nil {
			return stopped(next, err)
		}
		if object.Mode&fs.ModeSymlink == 0 {
			if more, _ := CutComponent(after); more != "" && !object.Mode.IsDir() {
				return stopped(next, syscall.ENOTDIR)
			}
			w.Real, w.Object, rest = next, object, after
			continue
		}
		if len(w.Links) == MaxLinks {
			return stopped(path, syscall.ELOOP)
		}
		text, err := tree.Readlink(next)
		if err != nil {
			return stopped(next, err)
		}
		w.Links = append(w.Links, Link{Path: next, Text: text})
		if strings.HasPrefix(text, "/") {
			w.Real = "/"
		}
		w.Object, rest, literal = directory, text+"/"+after, false
	}
}

// CutComponent takes the first component off a path. "." and empty components mean nothing and are
// passed over; ".." is one, because behind a symbolic link it leads to the parent of the link's
// target. No name is the end of the path.
func CutComponent(path string) (name, after string) {
	for after = path; after != "" && (name == "" || name == "."); {
		name, after, _ = strings.Cut(after, "/")
	}
	if name == "." {
		name = ""
	}
	return name, after
}

// components splits a path.
func components(path string) []string {
	var list []string
	for name, after := CutComponent(path); name != ""; name, after = CutComponent(after) {
		list = append(list, name)
	}
	return list
}

func Join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

// Parent returns the directory that holds path. That of the root is the root.
func Parent(path string) string {
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		return "/"
	}
	return path[:i]
}

// Within reports whether path is dir or lies below it, component by component. Both are clean.
func Within(path, dir string) bool {
	if dir == "/" || path == dir {
		return true
	}
	return len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}

// Depth is the number of components of a clean path.
func Depth(path string) int {
	if path == "/" {
		return 0
	}
	return strings.Count(path, "/")
}

// A stepError says which step of a walk could not be made. Most of them nobody reads, so they are
// put into words only then.
type stepError struct {
	path string
	err  error
}

func (e *stepError) Error() string { return text.Name(e.path) + ": " + e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// errnoOnly says which step of a walk could not be made, without the operation's name.
func errnoOnly(path string, err error) error {
	if errno, is := err.(syscall.Errno); is {
		return &stepError{path, errno}
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		err = errno
	}
	return &stepError{path, err}
}

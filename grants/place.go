package grants

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// A Place is a path of the host as somebody wrote it, and what it means.
type Place struct {
	Typed    string // absolute and clean
	Resolved string // no component is a symbolic link. What does not exist stands behind its longest existing parent
	Object   Object // what is there
}

// An Object is one file or directory, by what the kernel knows it by. The zero value is none.
type Object struct {
	Device uint64 `json:"device,string,omitempty"`
	Inode  uint64 `json:"inode,string,omitempty"`
	mode   uint32 // its type, as in stat(2)
}

// Exists reports whether there was an object.
func (o Object) Exists() bool { return o.Inode != 0 }

// Same reports whether both are one object, or both none.
func (o Object) Same(other Object) bool { return o.Device == other.Device && o.Inode == other.Inode }

func (o Object) is(kind uint32) bool { return o.Exists() && o.mode&unix.S_IFMT == kind }

// maxLinks is how many symbolic links one path may pass through, as in the kernel (path_resolution(7)).
const maxLinks = 40

// Resolve follows the symbolic links of a path that is absolute and clean. Of a path that does not exist, the parents that
// do are followed, and a link that leads to nothing leads there. The error is a *profile.PathError.
func Resolve(path string) (Place, error) {
	refuse := func(why string) (Place, error) { return Place{}, &profile.PathError{Path: path, Why: why} }
	// A link swapped in between the walk and the look at what is there shows as ELOOP. Whoever swaps without an end is
	// refused.
	for range 3 {
		real, err := follow(path)
		if err != nil {
			return refuse(err.Error())
		}
		object, err := objectAt(real)
		switch {
		case err == nil:
			return Place{Typed: path, Resolved: real, Object: object}, nil
		case !errors.Is(err, syscall.ELOOP):
			return refuse(err.Error())
		}
	}
	return refuse("changes while it is looked at")
}

// follow walks a path hop by hop.
func follow(path string) (string, error) {
	real, rest, links := "/", path, 0
	for {
		name, after := cutComponent(rest)
		switch name {
		case "":
			return real, nil
		case "..":
			real, rest = parent(real), after
			continue
		}
		next := join(real, name)
		var stat unix.Stat_t
		err := unix.Lstat(next, &stat)
		switch {
		case err == syscall.ENOENT:
			return missing(next, after)
		case err != nil:
			return "", fmt.Errorf("%s: %w", profile.Printable(next), err)
		case stat.Mode&unix.S_IFMT != unix.S_IFLNK:
			real, rest = next, after
			continue
		}
		if links++; links > maxLinks {
			return "", syscall.ELOOP
		}
		text, err := readlink(next)
		if err != nil {
			return "", fmt.Errorf("%s: %w", profile.Printable(next), err)
		}
		if strings.HasPrefix(text, "/") {
			real = "/"
		}
		rest = text + "/" + after
	}
}

// missing puts what does not exist behind its parent. The kernel does not go up from what is not there, so that ".." has
// no meaning; to take it out by the letter would name a place that nobody meant.
func missing(first, after string) (string, error) {
	path := first
	for name, rest := cutComponent(after); name != ""; name, rest = cutComponent(rest) {
		if name == ".." {
			return "", fmt.Errorf("%s: leads up from what does not exist", profile.Printable(first))
		}
		path = join(path, name)
	}
	return path, nil
}

func readlink(path string) (string, error) {
	buffer := make([]byte, unix.PathMax)
	n, err := unix.Readlink(path, buffer)
	if err != nil {
		return "", err
	}
	return string(buffer[:n]), nil
}

// objectAt looks at what is there without following any symbolic link, so that it is the object that follow found or an
// error. Needs Linux 5.6 for openat2(2).
func objectAt(path string) (Object, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err == syscall.ENOENT {
		return Object{}, nil
	}
	if err != nil {
		return Object{}, err
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return Object{}, err
	}
	return Object{Device: uint64(stat.Dev), Inode: stat.Ino, mode: stat.Mode}, nil
}

// cutComponent takes the first component off a path. "." and empty components mean nothing; no name is the end.
func cutComponent(path string) (name, after string) {
	for after = path; after != ""; {
		name, after, _ = strings.Cut(after, "/")
		if name != "" && name != "." {
			return name, after
		}
	}
	return "", ""
}

func join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

// parent is the directory that holds path. That of the root is the root.
func parent(path string) string {
	if i := strings.LastIndexByte(path, '/'); i > 0 {
		return path[:i]
	}
	return "/"
}

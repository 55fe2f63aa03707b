package grants

import (
	"errors"
	"fmt"
	"path/filepath"
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

// An Object is one file or directory.
type Object = profile.Object

const (
	// maxLinks is how many symbolic links one path may pass through, as in the kernel
	// (path_resolution(7)).
	maxLinks = 40
	// maxDepth is how many directories a path may lead through. Each is held open on the way.
	maxDepth = 400
)

// Resolve follows the symbolic links of a path that is absolute and clean. Of a path that does not
// exist, the parents that do are followed, and a link that leads to nothing leads there. What leads
// into /proc is not followed: there are ways out of it to wherever a process is. The error is a
// *profile.PathError, or for what leads there a *NeverError.
func Resolve(path string) (Place, error) {
	// Most paths hold no link, and are what they say.
	if !inProc(path) {
		if object, err := objectAt(path); err == nil {
			return Place{Typed: path, Resolved: path, Object: object}, nil
		} else if err == syscall.ENOENT && isMissing(path) {
			return Place{Typed: path, Resolved: path}, nil
		}
	}
	w := newWalk(nil)
	defer w.close()
	place, err := w.follow(path)
	if err != nil {
		return Place{}, refusal(path, err)
	}
	return place, nil
}

// isMissing reports whether a path ends at a directory that holds no such name, and no symbolic
// link is on the way there. One that is absolute and clean is then what it says, as one that exists
// is.
func isMissing(path string) bool {
	for path != "/" {
		above := parent(path)
		fd, err := unix.Openat2(unix.AT_FDCWD, above, &unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
		})
		if err == nil {
			var stat unix.Stat_t
			err = unix.Fstatat(fd, path[strings.LastIndexByte(path, '/')+1:], &stat, unix.AT_SYMLINK_NOFOLLOW)
			unix.Close(fd)
			return err == syscall.ENOENT
		}
		if err != syscall.ENOENT {
			return false
		}
		path = above
	}
	return false
}

// refusal is the error of a path that could not be followed.
func refusal(path string, err error) error {
	var never *NeverError
	if errors.As(err, &never) {
		return never
	}
	return &profile.PathError{Path: path, Why: err.Error()}
}

// objectAt is what is at a path that no symbolic link is in. Needs Linux 5.6 for openat2(2).
func objectAt(path string) (Object, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return Object{}, err
	}
	defer unix.Close(fd)
	return profile.ObjectOf(fd)
}

func inProc(path string) bool { return profile.Within(path, "/proc") }

// A walk follows a path component by component, each looked up in the directory that was found
// before it and is held open: what is renamed meanwhile, or becomes a link, leads nowhere else.
type walk struct {
	// sees says what whoever asks sees without us; nil: everything.
	sees func(path string) bool
	// known is how far whoever asks could have followed the path without us. From blind on, nothing
	// that is found may be told.
	known string
	blind bool

	real string
	held []int // the directories of real, the root first
}

func newWalk(sees func(string) bool) *walk { return &walk{sees: sees, real: "/"} }

func (w *walk) close() { w.up(0) }

// up lets go of directories until depth are left.
func (w *walk) up(depth int) {
	for len(w.held) > depth {
		unix.Close(w.held[len(w.held)-1])
		w.held = w.held[:len(w.held)-1]
	}
}

// follow walks a path to its end.
func (w *walk) follow(path string) (Place, error) {
	place := Place{Typed: path}
	root, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return place, err
	}
	w.held = []int{root}
	object, err := profile.ObjectOf(root)
	if err != nil {
		return place, err
	}
	rest, links := path, 0
	for {
		name, after := cutComponent(rest)
		switch name {
		case "":
			if !w.blind {
				w.known = w.real
			}
			place.Resolved, place.Object = w.real, object
			return place, nil
		case "..":
			w.up(max(len(w.held)-1, 1))
			w.real, rest = parent(w.real), after
			if object, err = profile.ObjectOf(w.held[len(w.held)-1]); err != nil {
				return place, err
			}
			continue
		}
		next := join(w.real, name)
		w.look(next, after)
		if inProc(next) {
			why, _ := profile.NeverGrantable(next)
			return place, &NeverError{Path: next, Why: why}
		}
		fd, err := unix.Openat(w.held[len(w.held)-1], name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == syscall.ENOENT {
			place.Resolved, err = missing(next, after)
			if !w.blind {
				w.known = place.Resolved
			}
			return place, err
		}
		if err == nil && len(w.held) == maxDepth {
			unix.Close(fd)
			err = syscall.ENAMETOOLONG
		}
		if err != nil {
			return place, fmt.Errorf("%s: %w", profile.Printable(next), err)
		}
		if object, err = profile.ObjectOf(fd); err != nil {
			unix.Close(fd)
			return place, fmt.Errorf("%s: %w", profile.Printable(next), err)
		}
		if !object.Is(unix.S_IFLNK) {
			w.real, rest, w.held = next, after, append(w.held, fd)
			continue
		}
		text, err := readlink(fd)
		unix.Close(fd)
		if links++; err == nil && links > maxLinks {
			return place, syscall.ELOOP
		}
		if err != nil {
			return place, fmt.Errorf("%s: %w", profile.Printable(next), err)
		}
		if strings.HasPrefix(text, "/") {
			w.up(1)
			w.real = "/"
		}
		rest = text + "/" + after
	}
}

// look notes where the walk leaves what whoever asks sees.
func (w *walk) look(next, after string) {
	if !w.blind && w.sees != nil && !w.sees(next) {
		w.blind, w.known = true, filepath.Clean(next+"/"+after)
	}
}

// missing puts what does not exist behind its parent. The kernel does not go up from what is not
// there, so that ".." has no meaning; to take it out by the letter would name a place that nobody
// meant.
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

// readlink reads a link that is open.
func readlink(fd int) (string, error) {
	buffer := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buffer)
	if err != nil {
		return "", err
	}
	return string(buffer[:n]), nil
}

// cutComponent takes the first component off a path. "." and empty components mean nothing; no name
// is the end.
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

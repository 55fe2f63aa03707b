// Package linkstest has a file system for tests that is written down line by line.
package linkstest

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/links"
)

// A Tree is a file system as a list of lines: "/dir/", "/file", "/link -> text", "/dev/x c" (or
// with its number, "c 10:232", "b 8:0"), "/closed/ !" (a directory that may not be searched).
// Parents are there by themselves.
type Tree map[string]string

func New(lines ...string) Tree {
	tree := Tree{"/": "/"}
	for _, line := range lines {
		name, what, _ := strings.Cut(line, " ")
		if strings.HasSuffix(name, "/") {
			what = "/" + what
		}
		name = path.Clean(name)
		tree[name] = what
		for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
			if _, there := tree[dir]; !there {
				tree[dir] = "/"
			}
		}
	}
	return tree
}

func (t Tree) Lstat(name string) (links.Object, error) {
	if len(path.Base(name)) > 255 {
		return links.Object{}, syscall.ENAMETOOLONG
	}
	switch what, there := t[name]; {
	case strings.HasSuffix(t[path.Dir(name)], "!"):
		return links.Object{}, syscall.EACCES
	case !there:
		return links.Object{}, syscall.ENOENT
	case strings.HasPrefix(what, "/"):
		return links.Object{Mode: fs.ModeDir | 0o755}, nil
	case strings.HasPrefix(what, "-> "):
		return links.Object{Mode: fs.ModeSymlink | 0o777}, nil
	case what == "c", strings.HasPrefix(what, "c "), strings.HasPrefix(what, "b "):
		object := links.Object{Mode: fs.ModeDevice | fs.ModeCharDevice | 0o666}
		if what[0] == 'b' {
			object.Mode &^= fs.ModeCharDevice
		}
		var major, minor uint32
		if n, _ := fmt.Sscanf(what[1:], "%d:%d", &major, &minor); n == 2 {
			object.Rdev = unix.Mkdev(major, minor)
		}
		return object, nil
	default:
		return links.Object{Mode: 0o644}, nil
	}
}

func (t Tree) Readlink(name string) (string, error) {
	text, isLink := strings.CutPrefix(t[name], "-> ")
	if !isLink {
		return "", syscall.EINVAL
	}
	return text, nil
}

func (t Tree) ReadDir(name string) ([]links.Entry, error) {
	var list []links.Entry
	for entry, what := range t {
		if path.Dir(entry) == name && entry != "/" {
			list = append(list, links.Entry{Name: path.Base(entry), Dir: strings.HasPrefix(what, "/"), Link: strings.HasPrefix(what, "-> ")})
		}
	}
	return list, nil
}

// ReadFile: a line's text behind "= " is the file's.
func (t Tree) ReadFile(name string, limit int) (string, error) {
	return strings.TrimPrefix(t[name], "= "), nil
}

package sandbox

import (
	"io/fs"
	"path"
	"strings"
	"syscall"
)

// fakeTree is a file system as a list of lines: "/dir/", "/file", "/link -> text", "/dev/x c", "/closed/ !" (a directory
// that may not be searched). Parents are there by themselves.
type fakeTree map[string]string

func newFakeTree(lines ...string) fakeTree {
	tree := fakeTree{"/": "/"}
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

// usual is what every host in these tests has.
var usual = []string{"/usr/bin/", "/usr/lib/", "/usr/lib64/", "/usr/sbin/", "/etc/passwd", "/sys/", "/tmp/", "/var/", "/dev/null c",
	"/bin -> usr/bin", "/sbin -> usr/sbin", "/lib -> usr/lib", "/lib64 -> usr/lib64", "/home/u/work/"}

func (f fakeTree) Lstat(name string) (Object, error) {
	if len(path.Base(name)) > 255 {
		return Object{}, syscall.ENAMETOOLONG
	}
	switch what, there := f[name]; {
	case strings.HasSuffix(f[path.Dir(name)], "!"):
		return Object{}, syscall.EACCES
	case !there:
		return Object{}, syscall.ENOENT
	case strings.HasPrefix(what, "/"):
		return Object{Mode: fs.ModeDir | 0o755}, nil
	case strings.HasPrefix(what, "-> "):
		return Object{Mode: fs.ModeSymlink | 0o777}, nil
	case what == "c":
		return Object{Mode: fs.ModeDevice | fs.ModeCharDevice | 0o666}, nil
	default:
		return Object{Mode: 0o644}, nil
	}
}

func (f fakeTree) Readlink(name string) (string, error) {
	text, isLink := strings.CutPrefix(f[name], "-> ")
	if !isLink {
		return "", syscall.EINVAL
	}
	return text, nil
}

func (f fakeTree) ReadDir(name string) ([]Entry, error) {
	var list []Entry
	for entry, what := range f {
		if path.Dir(entry) == name && entry != "/" {
			list = append(list, Entry{Name: path.Base(entry), Dir: strings.HasPrefix(what, "/")})
		}
	}
	return list, nil
}

// ReadFile: a line's text behind "= " is the file's.
func (f fakeTree) ReadFile(name string, limit int) (string, error) {
	return strings.TrimPrefix(f[name], "= "), nil
}

package changes

import (
	"errors"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// openBeneath opens a path in a directory. It leads through no link and to no other mount.
func openBeneath(at int, name string, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV}
	for tries := 0; ; tries++ {
		fd, err := unix.Openat2(at, name, &how)
		if err == unix.EINTR || err == unix.EAGAIN && tries < 100 { // something was renamed meanwhile
			continue
		}
		return fd, err
	}
}

func openDirectory(at int, name string) (int, error) {
	return openBeneath(at, name, unix.O_RDONLY|unix.O_DIRECTORY)
}

var errNotRegular = errors.New("it is no regular file")

// openFile opens a regular file for reading, and nothing that could block or act when it is opened.
func openFile(at int, name string) (*os.File, error) {
	object, err := lookAt(at, name)
	if err != nil {
		return nil, err
	}
	if !object.regular() {
		return nil, errNotRegular
	}
	fd, err := openBeneath(at, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	if again, err := lookAt(fd, ""); err != nil || !again.regular() {
		unix.Close(fd)
		return nil, errNotRegular
	}
	return os.NewFile(uintptr(fd), name), nil
}

// An object is what a name was found to be. The times are nanoseconds.
type object struct {
	Inode   uint64 `json:"inode"`
	Mode    uint32 `json:"mode"`
	UID     uint32 `json:"uid"`
	GID     uint32 `json:"gid"`
	Size    int64  `json:"size"`
	Written int64  `json:"mtime"`
	Changed int64  `json:"ctime"`
	links   uint64
	device  uint64 // that it is, if it is one
}

// lookAt is what a name in a directory is, or what is open if the name is empty.
func lookAt(at int, name string) (object, error) {
	var s unix.Stat_t
	var err error
	if name == "" {
		err = unix.Fstat(at, &s)
	} else {
		err = unix.Fstatat(at, name, &s, unix.AT_SYMLINK_NOFOLLOW)
	}
	return object{s.Ino, s.Mode, s.Uid, s.Gid, s.Size, s.Mtim.Nano(), s.Ctim.Nano(), uint64(s.Nlink), uint64(s.Rdev)}, err
}

func (o object) kind() uint32       { return o.Mode & unix.S_IFMT }
func (o object) regular() bool      { return o.kind() == unix.S_IFREG }
func (o object) directory() bool    { return o.kind() == unix.S_IFDIR }
func (o object) link() bool         { return o.kind() == unix.S_IFLNK }
func (o object) permission() uint32 { return o.Mode & 0o7777 }

// whiteout reports whether it stands for something that was deleted.
func (o object) whiteout() bool { return o.kind() == unix.S_IFCHR && o.device == 0 }

// untouched reports whether nothing at all happened to an object.
func (o object) untouched(now object) bool { return o.moved(now) && o.Changed == now.Changed }

// moved reports whether nothing but its name changed: renaming sets the time of change, too. That a
// directory's entries are as they were, its own times do not say.
func (o object) moved(now object) bool {
	now.Changed, now.links, now.device = o.Changed, o.links, o.device
	return o == now
}

func (o object) word() string {
	switch o.kind() {
	case unix.S_IFREG:
		return "file"
	case unix.S_IFDIR:
		return "directory"
	case unix.S_IFLNK:
		return "link"
	case unix.S_IFIFO:
		return "FIFO"
	case unix.S_IFSOCK:
		return "socket"
	}
	return "device"
}

// attribute is the value of an extended attribute of a name in a directory, and whether there is
// one.
func attribute(at int, name, attr string) (string, bool) {
	var value [256]byte
	n, err := unix.Lgetxattr(descriptorPath(at)+"/"+name, attr, value[:])
	if err != nil {
		return "", false
	}
	return string(value[:n]), true
}

// descriptorPath leads to what is open.
func descriptorPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// linkTarget reads a symbolic link.
func linkTarget(at int, name string) (string, error) {
	buffer := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(at, name, buffer)
	return string(buffer[:max(n, 0)]), err
}

// names are those in an open directory, at most so many.
func names(fd int, most int) ([]string, error) {
	again, err := openDirectory(fd, ".") // a descriptor of its own, which stands at the beginning
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(again), ".")
	defer dir.Close()
	list := []string{}
	for len(list) <= most {
		some, err := dir.Readdirnames(4096)
		list = append(list, some...)
		if len(some) == 0 {
			if err != nil && err.Error() != "EOF" {
				return list, err
			}
			return list, nil
		}
	}
	return list, errTooMany
}

// parents opens the directories in which paths lie, and keeps the last one open: paths come in
// order.
type parents struct {
	root int
	dir  string
	fd   int
}

func newParents(root int) *parents { return &parents{root: root, fd: -1} }

func (p *parents) of(name string) (fd int, base string, err error) {
	dir := path.Dir(name)
	if p.fd < 0 || dir != p.dir {
		p.close()
		if p.fd, err = openDirectory(p.root, dir); err != nil {
			p.fd = -1
			return -1, "", err
		}
		p.dir = dir
	}
	return p.fd, path.Base(name), nil
}

func (p *parents) close() {
	if p.fd >= 0 {
		unix.Close(p.fd)
		p.fd = -1
	}
}

package unpack

import (
	"archive/tar"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A Directory is a Source of what a directory of the host's holds. It follows no symbolic link, and
// does not look into what is mounted below.
type Directory struct {
	levels []level
	files  map[file]string // by the first name of those that have several
	open   *os.File        // the last entry
}

type level struct {
	fd    int
	path  string
	names []string
}

type file struct{ device, inode uint64 }

// NewDirectory takes an open directory, which it closes when it is closed.
func NewDirectory(fd int) (*Directory, error) {
	names, err := namesIn(fd)
	if err != nil {
		return nil, err
	}
	return &Directory{levels: []level{{fd, "", names}}, files: map[file]string{}}, nil
}

// Close gives back what is open.
func (d *Directory) Close() {
	d.closeFile()
	for _, l := range d.levels {
		unix.Close(l.fd)
	}
	d.levels = nil
}

func (d *Directory) closeFile() {
	if d.open != nil {
		d.open.Close()
		d.open = nil
	}
}

// Read reads the file that Next returned.
func (d *Directory) Read(p []byte) (int, error) {
	if d.open == nil {
		return 0, io.EOF
	}
	return d.open.Read(p)
}

// Next is the next entry, a directory before what is in it.
func (d *Directory) Next() (*tar.Header, error) {
	d.closeFile()
	for len(d.levels) > 0 {
		top := &d.levels[len(d.levels)-1]
		if len(top.names) == 0 {
			unix.Close(top.fd)
			d.levels = d.levels[:len(d.levels)-1]
			continue
		}
		name := top.names[0]
		top.names = top.names[1:]
		return d.header(top.fd, name, top.path+name)
	}
	return nil, io.EOF
}

func (d *Directory) header(at int, base, path string) (*tar.Header, error) {
	refuse := func(err error) (*tar.Header, error) { return nil, &EntryError{path, "cannot be read", err} }
	var stat unix.Stat_t
	if err := unix.Fstatat(at, base, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return refuse(err)
	}
	h := &tar.Header{Name: path, Mode: int64(stat.Mode & 0o7777), ModTime: time.Unix(stat.Mtim.Unix())}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		h.Typeflag = tar.TypeDir
		if len(d.levels) > maxDepth {
			return h, nil // Into refuses what is in it
		}
		fd, err := Beneath(at, base, unix.O_RDONLY|unix.O_DIRECTORY)
		if err == unix.EXDEV {
			return h, nil
		}
		if err != nil {
			return refuse(err)
		}
		names, err := namesIn(fd)
		d.levels = append(d.levels, level{fd, path + "/", names})
		if err != nil {
			return refuse(err)
		}
	case unix.S_IFLNK:
		h.Typeflag = tar.TypeSymlink
		text := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(at, base, text)
		if err != nil {
			return refuse(err)
		}
		h.Linkname = string(text[:n])
	case unix.S_IFREG:
		is := file{stat.Dev, stat.Ino}
		if first := d.files[is]; stat.Nlink > 1 && first != "" {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return h, nil
		}
		if stat.Nlink > 1 {
			d.files[is] = path
		}
		fd, err := Beneath(at, base, unix.O_RDONLY|unix.O_NONBLOCK)
		if err != nil {
			return refuse(err)
		}
		d.open = os.NewFile(uintptr(fd), path)
		var now unix.Stat_t
		if err := unix.Fstat(fd, &now); err != nil || now.Mode&unix.S_IFMT != unix.S_IFREG {
			return refuse(unix.EAGAIN)
		}
		h.Typeflag, h.Size = tar.TypeReg, now.Size
	case unix.S_IFCHR:
		h.Typeflag = tar.TypeChar
	case unix.S_IFBLK:
		h.Typeflag = tar.TypeBlock
	default: // a socket counts as one
		h.Typeflag = tar.TypeFifo
	}
	return h, nil
}

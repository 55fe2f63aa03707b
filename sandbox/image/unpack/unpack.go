package unpack

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/image"
)

// A Source has entries one after the other, as a *tar.Reader does. Read reads the entry that Next
// returned.
type Source interface {
	Next() (*tar.Header, error)
	io.Reader
}

const (
	// maxName is the kernel's limit on a path, without the NUL (path_resolution(7)).
	maxName = 4095
	// maxDepth bounds directories in directories. Whoever walks a tree holds one open for each.
	maxDepth = 256
	// maxLinkText is what symlink(2) takes.
	maxLinkText = 4095

	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// Into puts the entries of a source into the directory that is open as root. layer says that there
// may be something of earlier layers, and that whiteouts take it away.
func Into(ctx context.Context, root int, source Source, layer bool, budget *Budget, report *image.Report) error {
	u := &unpacker{ctx: ctx, root: root, source: source, layer: layer, budget: budget, report: report, made: map[uint64]bool{}, seed: maphash.MakeSeed(), parent: -1}
	defer u.forget()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		header, err := source.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		if err := u.entry(header); err != nil {
			return err
		}
	}
}

type unpacker struct {
	ctx    context.Context
	root   int
	source Source
	layer  bool
	budget *Budget
	report *image.Report
	made   map[uint64]bool // what this layer has, and the directories above: its whiteouts leave that alone. By hashes, which take less room
	seed   maphash.Seed    // that no archive knows

	dir    string // the directory that is open as parent, from the last entry
	parent int    // -1: none
	buffer []byte
}

// forget closes the directory of the last entry. What is removed may be that one.
func (u *unpacker) forget() {
	if u.parent >= 0 {
		unix.Close(u.parent)
		u.parent = -1
	}
}

func (u *unpacker) entry(h *tar.Header) error {
	if err := u.budget.entry(); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	refuse := func(why string, err error) error {
		var limit *LimitError
		if errors.As(err, &limit) || u.ctx.Err() != nil {
			return err
		}
		return &EntryError{h.Name, why, err}
	}
	name, why := clean(h.Name)
	if why != "" {
		return refuse(why, nil)
	}
	if name == "" {
		if h.Typeflag != tar.TypeDir {
			return refuse("it has no name", nil)
		}
		return nil
	}
	dir, base := split(name)
	if strings.HasPrefix(base, whiteout) {
		if !u.layer {
			return refuse("a whiteout, and this is no layer of an image: import the whole OCI layout", nil)
		}
		if err := u.whiteout(dir, base); err != nil {
			return refuse("remove what it stands for", err)
		}
		return nil
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse, tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		if first, _, _ := strings.Cut(name, "/"); first == "dev" || first == "run" {
			u.report.LeftOut.Add(h.Name)
			return nil
		}
		return refuse(map[byte]string{tar.TypeChar: "a device", tar.TypeBlock: "a device", tar.TypeFifo: "a FIFO"}[h.Typeflag]+" outside of /dev and /run has no place in an image", nil)
	default:
		return refuse(fmt.Sprintf("of no type that an image has (%q)", h.Typeflag), nil)
	}
	at, err := u.directory(dir)
	if err != nil {
		return refuse(throughLink(err), err)
	}
	u.mark(name)
	u.report.Entries++
	switch h.Typeflag {
	case tar.TypeDir:
		err = u.makeDirectory(at, base, h)
	case tar.TypeSymlink:
		if h.Linkname == "" || len(h.Linkname) > maxLinkText {
			return refuse("a symbolic link that is empty or too long", nil)
		}
		if err = clear(at, base); err == nil {
			err = unix.Symlinkat(h.Linkname, at, base)
		}
		setTime(at, base, h)
	case tar.TypeLink:
		return u.link(at, base, name, h)
	default:
		err = u.file(at, base, h)
	}
	if err != nil {
		return refuse("cannot be made", err)
	}
	return nil
}

// clean is a name without what means nothing in it, or why it is refused.
func clean(name string) (cleaned, why string) {
	switch {
	case len(name) > maxName:
		return "", "its name is too long"
	case strings.HasPrefix(name, "/"):
		return "", "an absolute name"
	case strings.ContainsRune(name, 0):
		return "", "a NUL in its name"
	}
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
		case part == "..":
			return "", "its name leads out of where it stands (..)"
		case len(part) > 255:
			return "", "its name is too long"
		default:
			parts = append(parts, part)
		}
	}
	if len(parts) > maxDepth {
		return "", fmt.Sprintf("more than %d directories deep", maxDepth)
	}
	return strings.Join(parts, "/"), ""
}

func split(name string) (dir, base string) {
	i := strings.LastIndexByte(name, '/')
	return name[:max(i, 0)], name[i+1:]
}

// mark remembers that this layer has something.
func (u *unpacker) mark(name string) {
	if !u.layer {
		return
	}
	for ; name != "" && !u.has(name); name, _ = split(name) {
		u.made[maphash.String(u.seed, name)] = true
	}
}

func (u *unpacker) has(name string) bool { return u.made[maphash.String(u.seed, name)] }

func throughLink(err error) string {
	if errors.Is(err, unix.ELOOP) {
		return "its name goes through a symbolic link"
	}
	if errors.Is(err, unix.ENOTDIR) {
		return "its name goes through something that is no directory"
	}
	return "its directory cannot be opened"
}

// directory opens a directory beneath the root, and makes it if it is not there.
func (u *unpacker) directory(dir string) (int, error) {
	if u.parent >= 0 && u.dir == dir {
		return u.parent, nil
	}
	fd, err := Beneath(u.root, dir, unix.O_PATH|unix.O_DIRECTORY)
	if err == unix.ENOENT {
		above, base := split(dir)
		var at int
		if at, err = u.directory(above); err != nil {
			return -1, err
		}
		if err = unix.Mkdirat(at, base, 0o755); err != nil && err != unix.EEXIST {
			return -1, err
		}
		if err := u.budget.entry(); err != nil {
			return -1, err
		}
		u.mark(dir)
		fd, err = Beneath(at, base, unix.O_PATH|unix.O_DIRECTORY)
	}
	if err != nil {
		return -1, err
	}
	u.forget()
	u.parent, u.dir = fd, dir
	return fd, nil
}

// Beneath opens a name beneath an open directory, through no symbolic link and onto no other file
// system.
func Beneath(dir int, name string, flags uint64) (int, error) {
	if name == "" {
		name = "."
	}
	return unix.Openat2(dir, name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV})
}

// makeDirectory makes a directory, or gives the one that is there its mode. Its owner can always
// change it: an image can be removed.
func (u *unpacker) makeDirectory(at int, base string, h *tar.Header) error {
	var stat unix.Stat_t
	err := unix.Fstatat(at, base, &stat, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && stat.Mode&unix.S_IFMT != unix.S_IFDIR {
		if err := unix.Unlinkat(at, base, 0); err != nil {
			return err
		}
		err = unix.ENOENT
	}
	if err == unix.ENOENT {
		err = unix.Mkdirat(at, base, 0o700)
	}
	if err != nil {
		return err
	}
	fd, err := Beneath(at, base, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, uint32(h.Mode)&0o777|0o700)
}

// clear makes room for something that is no directory.
func clear(at int, base string) error {
	err := unix.Unlinkat(at, base, 0)
	switch err {
	case nil, unix.ENOENT:
		return nil
	case unix.EISDIR:
		return Remove(at, base)
	}
	return err
}

// link makes a hard link to a file that is there.
func (u *unpacker) link(at int, base, name string, h *tar.Header) error {
	refuse := func(why string, err error) error { return &EntryError{h.Name, why, err} }
	target, why := clean(h.Linkname)
	if why != "" || target == "" {
		return refuse("a hard link to "+short(h.Linkname)+", which is not in the image", nil)
	}
	dir, targetBase := split(target)
	from, err := Beneath(u.root, dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return refuse("a hard link to "+short(h.Linkname), err)
	}
	defer unix.Close(from)
	var stat unix.Stat_t
	if err := unix.Fstatat(from, targetBase, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return refuse("a hard link to "+short(h.Linkname), err)
	}
	if mode := stat.Mode & unix.S_IFMT; mode != unix.S_IFREG && mode != unix.S_IFLNK {
		return refuse("a hard link to "+short(h.Linkname)+", which is no file", nil)
	}
	if target == name {
		return nil
	}
	if err := clear(at, base); err != nil {
		return refuse("cannot be made", err)
	}
	err = unix.Linkat(from, targetBase, at, base, 0)
	if err == unix.EMLINK {
		err = copyFile(from, targetBase, at, base)
	}
	if err != nil {
		return refuse("a hard link to "+short(h.Linkname), err)
	}
	return nil
}

// file makes a new file.
func (u *unpacker) file(at int, base string, h *tar.Header) error {
	if err := u.budget.file(h.Size); err != nil {
		return err
	}
	if err := clear(at, base); err != nil {
		return err
	}
	fd, err := unix.Openat(at, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := u.fill(fd, h.Size); err != nil {
		return err
	}
	if h.Mode&0o6000 != 0 || h.PAXRecords["SCHILY.xattr.security.capability"] != "" {
		u.report.Privileged.Add(h.Name)
	}
	u.report.Bytes += h.Size
	if err := unix.Fchmod(fd, uint32(h.Mode)&0o777); err != nil {
		return err
	}
	setTime(at, base, h)
	return nil
}

// fill copies the entry's content. What is nothing but zeros is a hole.
func (u *unpacker) fill(fd int, size int64) error {
	if u.buffer == nil {
		u.buffer = make([]byte, 128<<10)
	}
	var at int64
	for at < size {
		if u.ctx.Err() != nil {
			return context.Cause(u.ctx)
		}
		n, err := io.ReadFull(u.source, u.buffer[:min(int64(len(u.buffer)), size-at)])
		if err != nil {
			return fmt.Errorf("it ends too early: %w", err)
		}
		for part := u.buffer[:n]; len(part) > 0; {
			block := part[:min(len(part), len(zeros))]
			if !bytes.Equal(block, zeros[:len(block)]) {
				if _, err := unix.Pwrite(fd, block, at); err != nil {
					return err
				}
			}
			at += int64(len(block))
			part = part[len(block):]
		}
	}
	return unix.Ftruncate(fd, size)
}

var zeros [16 << 10]byte

func short(name string) string {
	e := EntryError{Name: name}
	return strings.TrimSuffix(strings.TrimPrefix(e.Error(), "entry "), ": ")
}

// setTime keeps the time of a file: tools compare it with what they derived from the file.
func setTime(at int, base string, h *tar.Header) {
	if seconds := h.ModTime.Unix(); seconds > 0 {
		t := unix.Timespec{Sec: seconds, Nsec: int64(h.ModTime.Nanosecond())}
		unix.UtimesNanoAt(at, base, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
	}
}

package changes

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// makeFile makes the file that is put in a place, under another name beside it. It has the content,
// the time and the user's attributes of the layer's, and its owner is that of the original.
func (a *applier) makeFile(o *op, dir int, name string) error {
	fd, err := openBeneath(dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	out := os.NewFile(uintptr(fd), name)
	defer out.Close()
	from, err := openFile(a.upper, o.change.Path)
	if err != nil {
		return fmt.Errorf("read the layer's: %w", err)
	}
	defer from.Close()
	mode, content := a.mode(o), o.content
	switch {
	case o.From != nil:
		if content, mode, _, err = a.merged(o.change); err == nil {
			_, err = out.Write(content)
		}
	case content != nil:
		_, err = out.Write(content)
		mode = o.Old.permission()
	default:
		err = copyContent(a.ctx, out, from, o.change.Size)
	}
	if err == nil && o.content == nil {
		err = a.held(o, out)
	}
	if err != nil {
		return err
	}
	return finishFile(out, from, o, mode)
}

// held refuses a file that was made of something else than what a person was shown.
func (a *applier) held(o *op, made *os.File) error {
	if _, err := made.Seek(0, io.SeekStart); err != nil {
		return err
	}
	unlike, err := a.seen.unlike(o.change.Path, made)
	if err == nil && unlike {
		err = errShown
	}
	return err
}

// finishFile gives a file what it has beside its content.
func finishFile(out, from *os.File, o *op, mode uint32) error {
	fd := int(out.Fd())
	copyAttributes(fd, int(from.Fd()))
	if o.Old != nil && o.Old.regular() {
		now, err := lookAt(fd, "")
		if err != nil {
			return err
		}
		if now.UID != o.Old.UID || now.GID != o.Old.GID {
			if err := unix.Fchown(fd, int(o.Old.UID), int(o.Old.GID)); err != nil {
				return fmt.Errorf("it belongs to somebody else: %w", err)
			}
		}
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		return err
	}
	if o.made() {
		return nil
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, unix.NsecToTimespec(o.change.upper.Written)}
	return unix.UtimesNanoAt(fd, "", times, unix.AT_EMPTY_PATH)
}

// mode is what a file's permissions become. Rights of its owner's or group's are given only by
// name.
func (a *applier) mode(o *op) uint32 {
	if a.named[o.change.Path] {
		return o.change.Mode
	}
	return o.change.Mode & 0o777
}

// copyContent copies a file, with its holes, and shares the blocks where the file system can.
func copyContent(ctx context.Context, to, from *os.File, size int64) error {
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil {
		return nil
	}
	for at := int64(0); at < size; {
		data, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if err == unix.ENXIO {
			break // a hole until the end
		}
		if err != nil {
			data = at
		}
		hole, err := unix.Seek(int(from.Fd()), data, unix.SEEK_HOLE)
		if err != nil || hole > size {
			hole = size
		}
		if err := copyRange(ctx, to, from, data, hole); err != nil {
			return err
		}
		at = hole
	}
	return to.Truncate(size)
}

func copyRange(ctx context.Context, to, from *os.File, at, end int64) error {
	buffer := []byte(nil)
	for at < end {
		if err := ctx.Err(); err != nil {
			return err
		}
		in, out := at, at
		n, err := unix.CopyFileRange(int(from.Fd()), &in, int(to.Fd()), &out, int(min(end-at, 16<<20)), 0)
		if err != nil || n == 0 {
			if buffer == nil {
				buffer = make([]byte, 256<<10)
			}
			if n, err = from.ReadAt(buffer[:min(end-at, int64(len(buffer)))], at); n == 0 {
				if err == io.EOF {
					return nil
				}
				return err
			}
			if _, err := to.WriteAt(buffer[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
	}
	return nil
}

// copyAttributes copies those that anybody may set, but for the overlay's own. What cannot be
// copied is left out.
func copyAttributes(to, from int) {
	list := make([]byte, 64<<10)
	n, err := unix.Flistxattr(from, list)
	if err != nil {
		return
	}
	value := make([]byte, 64<<10)
	for name := range strings.SplitSeq(string(list[:n]), "\x00") {
		if !strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "user.overlay.") {
			continue
		}
		if n, err := unix.Fgetxattr(from, name, value); err == nil {
			_ = unix.Fsetxattr(to, name, value[:n], 0)
		}
	}
}

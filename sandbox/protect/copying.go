package protect

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

var errTooLarge = errors.New("it is too large to be copied to another file system")

// copying is a copy under way: what it may still copy.
type copying struct {
	bytes int64
	names int
}

// copy copies a regular file, a directory or a link. Of others there is nothing to copy.
func (c *copying) copy(from int, name string, to int, as string, depth int) error {
	if c.names--; c.names < 0 || depth > maxCopyDepth {
		return errTooLarge
	}
	var stat unix.Stat_t
	if err := unix.Fstatat(from, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	switch kindOf(stat.Mode) {
	case File:
		return c.file(from, name, to, as, stat.Mode&0o777)
	case Link:
		buffer := make([]byte, 4097)
		n, err := unix.Readlinkat(from, name, buffer)
		if err != nil {
			return err
		}
		return unix.Symlinkat(string(buffer[:n]), to, as)
	case Directory:
		return c.directory(from, name, to, as, stat.Mode&0o777, depth)
	}
	return nil
}

func (c *copying) file(from int, name string, to int, as string, mode uint32) error {
	in, err := unix.Openat(from, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	source := os.NewFile(uintptr(in), name)
	defer source.Close()
	out, err := unix.Openat(to, as, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return err
	}
	target := os.NewFile(uintptr(out), as)
	n, err := io.Copy(target, io.LimitReader(source, c.bytes+1))
	if c.bytes -= n; c.bytes < 0 {
		err = errTooLarge
	}
	return errors.Join(err, target.Close())
}

func (c *copying) directory(from int, name string, to int, as string, mode uint32, depth int) error {
	in, err := unix.Openat(from, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(in)
	if err := unix.Mkdirat(to, as, 0o700); err != nil {
		return err
	}
	out, err := unix.Openat(to, as, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(out)
	names, err := namesIn(in, c.names)
	for _, name := range names {
		if err == nil {
			err = c.copy(in, name, out, name, depth+1)
		}
	}
	if err == nil {
		err = unix.Fchmod(out, mode)
	}
	return err
}

package unpack

import (
	"context"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Clone puts what the directory from holds into the directory to. Files are shared: they are links
// to the same ones, which nobody writes.
func Clone(ctx context.Context, from, to int) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	names, err := namesIn(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		err := unix.Linkat(from, name, to, name, 0)
		switch err {
		case unix.EPERM: // a directory
			err = cloneDirectory(ctx, from, to, name)
		case unix.EMLINK:
			err = copyFile(from, name, to, name)
		}
		if err != nil {
			return &EntryError{name, "share it with the next layer", err}
		}
	}
	return nil
}

func cloneDirectory(ctx context.Context, from, to int, name string) error {
	in, err := Beneath(from, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(in)
	var stat unix.Stat_t
	if err := unix.Fstat(in, &stat); err != nil {
		return err
	}
	if err := unix.Mkdirat(to, name, 0o700); err != nil {
		return err
	}
	out, err := Beneath(to, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(out)
	if err := Clone(ctx, in, out); err != nil {
		return err
	}
	return unix.Fchmod(out, stat.Mode&0o777)
}

// copyFile copies a file that has as many names as the file system allows.
func copyFile(from int, name string, to int, as string) error {
	in, err := Beneath(from, name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	source := os.NewFile(uintptr(in), name)
	defer source.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(in, &stat); err != nil {
		return err
	}
	out, err := unix.Openat(to, as, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	target := os.NewFile(uintptr(out), as)
	defer target.Close()
	if _, err := io.Copy(target, source); err != nil {
		return err
	}
	return unix.Fchmod(out, stat.Mode&0o777)
}

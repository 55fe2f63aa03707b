// Package whole writes small files of ours as a whole or not at all.
package whole

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Write puts text in the place of a file, for its owner alone. temporary begins the name that it
// has until then.
//
// What takes away must not need room, because a command can fill the disk: there, text that is no
// longer than what stands in the file is written over that, with blanks behind it. If the power
// fails in that moment, the file cannot be read, and then nothing is allowed.
func Write(path, temporary string, text []byte) error {
	err := replace(path, temporary, text)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		if over(path, text) == nil {
			return nil
		}
	}
	return err
}

func replace(path, temporary string, text []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, temporary+"*") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(text); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// over writes text over a file that has as much.
func over(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() < int64(len(text)) {
		return syscall.ENOSPC
	}
	text = slices.Concat(text, bytes.Repeat([]byte(" "), int(info.Size())-len(text)))
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	now := time.Now() // finer than the clock of files: who knows the file by its time sees that it is another one
	return errors.Join(os.Chtimes(path, now, now), f.Sync())
}

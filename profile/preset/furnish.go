package preset

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// maxCopied bounds a file that is copied.
const maxCopied = 16 << 20

// Furnish puts private copies of the person's files into an agent's own home. Of a copy the newer
// one counts, so that a login of the person's gets there. What stands in own is the agent's: no
// link in it leads out of it.
func (p Preset) Furnish(home, own string) error {
	root, err := os.OpenRoot(own)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, c := range p.Copies {
		if err := copyInto(root, home, strings.TrimPrefix(c.Path, "~/")); err != nil {
			return fmt.Errorf("a private copy of %s: %w", c.Path, err)
		}
	}
	return nil
}

// Tell puts into an agent's own home what the agent is told about its sandbox, behind what the
// person wrote there.
func (p Preset) Tell(home, own, instructions string) error {
	if p.Told == "" || own == "" {
		return nil
	}
	root, err := os.OpenRoot(own)
	if err != nil {
		return err
	}
	defer root.Close()
	name := strings.TrimPrefix(p.Told, "~/")
	text, _, err := readFile(filepath.Join(home, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", p.Told, err)
	}
	if len(text) > 0 {
		text = append(text, "\n\n"...)
	}
	if err := put(root, name, append(text, "# Your sandbox\n\n"+instructions+"\n"...)); err != nil {
		return fmt.Errorf("%s: %w", p.Told, err)
	}
	return nil
}

// copyInto copies a file of the person's, unless the copy is newer.
func copyInto(own *os.Root, home, name string) error {
	text, info, err := readFile(filepath.Join(home, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if there, err := own.Lstat(name); err == nil && there.Mode().IsRegular() && !info.ModTime().After(there.ModTime()) {
		return nil
	}
	return put(own, name, text)
}

// readFile reads a file of the person's, which may be a link to one.
func readFile(path string) ([]byte, fs.FileInfo, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("is not a regular file")
	}
	if err == nil && info.Size() > maxCopied {
		err = fmt.Errorf("is larger than %d bytes", maxCopied)
	}
	if err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxCopied))
	return text, info, err
}

// put writes a file in one step. What stands there already, a link too, is replaced and not
// followed; what no file can replace is moved aside: the agent's commands can make anything there,
// and must not keep the agent from starting again.
func put(root *os.Root, name string, text []byte) error {
	temporary := name + ".clai-sandbox-new"
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if err := setAside(root, dir, func(m fs.FileMode) bool { return m.IsDir() && m.Perm()&0o700 == 0o700 }); err != nil {
			return err
		}
	}
	notDirectory := func(m fs.FileMode) bool { return !m.IsDir() }
	if err := errors.Join(setAside(root, name, notDirectory), setAside(root, temporary, notDirectory)); err != nil {
		return err
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	if err := root.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err == nil {
		err = root.Rename(temporary, name)
	}
	if err != nil {
		root.Remove(temporary)
	}
	return err
}

// setAside gives what is at a path another name, unless it may stay.
func setAside(root *os.Root, name string, stays func(fs.FileMode) bool) error {
	info, err := root.Lstat(name)
	if err != nil || stays(info.Mode()) {
		return nil // what cannot be looked at is met again, or is behind what is in the way
	}
	return root.Rename(name, fmt.Sprintf("%s.set-aside-%d", name, time.Now().UnixNano()))
}

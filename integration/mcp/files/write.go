package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Write asks for a file with that content, whether or not it exists.
type Write struct {
	Path          string `json:"path" jsonschema:"the file, absolute, below ~ or in the working directory"`
	Content       string `json:"content" jsonschema:"all of what is to be in it"`
	CreateParents bool   `json:"createParents,omitempty" jsonschema:"make the directories that lead to it"`
}

// A WriteResult says what was written.
type WriteResult struct {
	Path    string `json:"path" jsonschema:"the file, absolute"`
	Created bool   `json:"created" jsonschema:"whether the file is new; else it was replaced"`
	Bytes   int    `json:"bytes" jsonschema:"how many bytes it has now"`
	InPlace bool   `json:"inPlace,omitempty" jsonschema:"whether it was overwritten, because it could not be replaced in one step"`
}

func (t tools) write(w Write) (*WriteResult, error) {
	path, err := absolute(t.cwd, w.Path)
	if err != nil {
		return nil, err
	}
	if len(w.Content) > MaxFile {
		return nil, &Error{Code: TooLarge, Path: path, Message: fmt.Sprintf("the content is larger than %d MiB", MaxFile>>20)}
	}
	if w.CreateParents {
		if _, err := makeParents(path); err != nil {
			return nil, err
		}
	}
	was, inPlace, err := replace(path, []byte(w.Content), 0o666)
	if err != nil {
		return nil, err
	}
	return &WriteResult{Path: path, Created: !was, Bytes: len(w.Content), InPlace: inPlace}, nil
}

// makeParents makes the directories above path, and returns those that it made, the deepest last.
func makeParents(path string) (made []string, err error) {
	dir := filepath.Dir(path)
	var missing []string
	for {
		if _, err = os.Stat(dir); err == nil || !errors.Is(err, syscall.ENOENT) || dir == "/" {
			break
		}
		missing = append(missing, dir)
		dir = filepath.Dir(dir)
	}
	for i := len(missing) - 1; i >= 0; i-- {
		if err := os.Mkdir(missing[i], 0o777); err != nil {
			if errors.Is(err, syscall.EEXIST) {
				continue
			}
			removeAll(made)
			return nil, failure(missing[i], err)
		}
		made = append(made, missing[i])
	}
	return made, nil
}

// removeAll removes empty directories, the last first.
func removeAll(made []string) {
	for i := len(made) - 1; i >= 0; i-- {
		os.Remove(made[i])
	}
}

// destination follows the symbolic links at the end of a path, of which the last may lead to
// nothing: the file is replaced there, and the links stay.
func destination(path string) (string, fs.FileInfo, error) {
	const maxLinks = 40 // as in the kernel
	for range maxLinks {
		info, err := os.Lstat(path)
		if err != nil {
			return path, nil, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			return path, info, nil
		}
		to, err := os.Readlink(path)
		if err != nil {
			return path, nil, err
		}
		if !filepath.IsAbs(to) {
			// Not Clean: "link/.." is not what the letters say.
			to = filepath.Dir(path) + "/" + to
		}
		path = to
	}
	return path, nil, syscall.ELOOP
}

// replace puts content into the file at path: by a new file that takes its name in one step, so
// that nobody reads half of it; or in place, where the name is a mount of its own or the directory
// cannot be written, and where a new file would lose something: other names of it, its owner, its
// extended attributes. It reports whether there was a file.
func replace(path string, content []byte, mode fs.FileMode) (was, inPlace bool, err error) {
	to, info, err := destination(path)
	switch {
	case errors.Is(err, syscall.ENOENT):
		err = replaceByName(to, content, mode, nil)
		if err != nil {
			return false, false, failure(path, err)
		}
		return false, false, nil
	case err != nil:
		return false, false, failure(path, err)
	}
	if err := regular(path, info.Mode()); err != nil {
		return true, false, err
	}
	if err := unix.Access(to, unix.W_OK); err != nil { // a file that is read-only is not to be replaced by one that is not
		return true, false, failure(path, err)
	}
	if !losesByReplacement(to, info) {
		err = replaceByName(to, content, info.Mode().Perm(), info)
		if err == nil {
			return true, false, nil
		}
		for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
			if errors.Is(err, errno) { // in place, there would be half of it
				return true, false, failure(path, err)
			}
		}
	}
	if err := overwrite(to, content); err != nil {
		return true, true, failure(path, err)
	}
	return true, true, nil
}

// losesByReplacement reports whether a new file in the old one's place would not be the same.
func losesByReplacement(path string, info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Nlink > 1 || int(stat.Uid) != os.Geteuid() || int(stat.Gid) != os.Getegid() {
		return true
	}
	if info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0 {
		return true
	}
	var names [256]byte
	n, err := unix.Llistxattr(path, names[:])
	return n > 0 || err == unix.ERANGE
}

// replaceByName writes a file beside path and gives it that name. old is what stands there, or nil.
func replaceByName(path string, content []byte, mode fs.FileMode, old fs.FileInfo) error {
	dir, _ := filepath.Split(path)
	file, err := os.CreateTemp(dir, ".clai-sandbox-*.tmp")
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		if old == nil {
			mode &^= umask()
		}
		err = file.Chmod(mode)
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil && old == nil {
		// Nothing was there: what has come since is not replaced.
		err = unix.Renameat2(unix.AT_FDCWD, file.Name(), unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
		if err == unix.EINVAL || err == unix.ENOSYS {
			err = os.Rename(file.Name(), path)
		}
	} else if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
	}
	return err
}

func umask() fs.FileMode {
	mask := syscall.Umask(0o077)
	syscall.Umask(mask)
	return fs.FileMode(mask)
}

// overwrite writes over a file. If that fails half way, it writes what was there.
func overwrite(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if errors.Is(err, syscall.EACCES) {
		file, err = os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0) // it may be written and not read
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil {
		err = regular(path, info.Mode())
	}
	if err != nil {
		return err
	}
	var before []byte
	if info.Size() <= 4*MaxFile {
		before = make([]byte, info.Size())
		if n, err := file.ReadAt(before, 0); err != nil {
			before = before[:n]
			if int64(n) < info.Size() {
				before = nil
			}
		}
	}
	_, err = file.WriteAt(content, 0)
	if err == nil {
		err = file.Truncate(int64(len(content)))
	}
	if err != nil {
		if _, again := file.WriteAt(before, 0); again != nil || before == nil || file.Truncate(info.Size()) != nil {
			return &Error{Code: Partial, Path: path, Message: "is half written: " + err.Error()}
		}
	}
	return err
}

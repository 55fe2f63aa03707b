package store

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile/aside"
)

// takeUses reads the file that runs write, and moves it aside first: they make a new one. done
// removes what was read. Killed in between, the store finds the file again and counts it once more;
// better twice than a stale grant forgotten.
func takeUses(dir string) (uses []grants.Use, done func() error, err error) {
	path := filepath.Join(dir, grants.UsesName)
	taken := path + ".taken"
	if _, err := os.Lstat(taken); errors.Is(err, fs.ErrNotExist) {
		err := os.Rename(path, taken)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil, nil
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if err := aside.UnlessFile(taken); err != nil {
		return nil, nil, err
	}
	file, err := os.OpenFile(taken, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) { // what was there was no file
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, 16<<20))
	if err != nil {
		return nil, nil, err
	}
	done = func() error { return os.Remove(taken) }
	if uses = grants.ParseUses(string(text)); len(uses) == 0 {
		return nil, nil, done()
	}
	return uses, done, nil
}

// Package aside keeps what stands in the place of a file of ours and cannot be used, under another
// name.
package aside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// Put renames a file of ours that cannot be used to a name with a reason and the time in it that
// nothing has yet, and returns that.
func Put(path, why string, now time.Time) (string, error) {
	for i := range 100 {
		kept := fmt.Sprintf("%s.%s-%s", path, why, now.UTC().Format("20060102T150405Z"))
		if i > 0 {
			kept += fmt.Sprintf("-%d", i)
		}
		if _, err := os.Lstat(kept); errors.Is(err, fs.ErrNotExist) {
			return kept, os.Rename(path, kept)
		}
	}
	return "", fmt.Errorf("%s: no name is left to keep it under", path)
}

// UnlessFile puts aside what stands in the place of a regular file of ours: a directory would keep
// us from writing it, and with that from revoking.
func UnlessFile(path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().IsRegular() {
		return nil // what cannot be looked at is told by whoever opens it
	}
	_, err = Put(path, "no-file", time.Now())
	return err
}

package socket

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile/text"
)

// maxPath is what fits into an address (unix(7)), its NUL included.
const maxPath = 108

// ShortPath returns a name for a socket that fits into an address. done lets go of it, after it was
// used.
func ShortPath(path string) (short string, done func(), err error) {
	if len(path) < maxPath {
		return path, func() {}, nil
	}
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", text.Line(filepath.Dir(path)), err)
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(path)), func() { unix.Close(dir) }, nil
}

package grants

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// Where the sockets are.
const (
	SocketName = "gateway.sock" // in SocketDirectory: whoever reaches it is the person who decides
	// InsideSocket is where a sandbox that may ask finds its socket.
	InsideSocket = "/run/clai-sandbox/ask.sock"
)

// SocketDirectory is where the broker's sockets are: the runtime directory or, where the system gives none, a directory of
// the state.
func SocketDirectory(d profile.Directories) string {
	if d.Runtime != "" {
		return d.Runtime
	}
	return filepath.Join(d.State, "run")
}

// maxSocketPath is what fits into an address (unix(7)), its NUL included.
const maxSocketPath = 108

// ShortSocketPath returns a name for a socket that fits into an address. done lets go of it, after it was used.
func ShortSocketPath(path string) (short string, done func(), err error) {
	if len(path) < maxSocketPath {
		return path, func() {}, nil
	}
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", profile.Printable(filepath.Dir(path)), err)
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir, filepath.Base(path)), func() { unix.Close(dir) }, nil
}

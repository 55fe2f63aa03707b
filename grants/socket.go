package grants

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/wire/socket"
)

// Where the sockets are.
const (
	SocketName = "gateway.sock" // in SocketDirectory: whoever reaches it is the person who decides
	// SessionsName is a directory beside it, with a file for each session that is open.
	SessionsName = "sessions"
	// InsideSocket is where a sandbox that may ask finds its socket.
	InsideSocket = "/run/clai-sandbox/ask.sock"
)

// SocketDirectory is where the broker's sockets are: the runtime directory or, where the system
// gives none, a directory of the state. A gateway is for one state: another than the usual one has
// a directory of its own.
func SocketDirectory(d profile.Directories) string {
	switch {
	case d.Runtime == "":
		return filepath.Join(d.State, "run")
	case d.UsualState():
		return d.Runtime
	}
	sum := sha256.Sum256([]byte(d.State))
	return filepath.Join(d.Runtime, "state-"+hex.EncodeToString(sum[:6]))
}

// RelayPrefix begins the names of sockets that launchers make beside those of sessions.
const RelayPrefix = "l-"

// SweepSockets removes the sockets of launchers that were killed: nobody listens there any more.
func SweepSockets(dir string) {
	list, _ := filepath.Glob(filepath.Join(dir, RelayPrefix+"*.sock"))
	for _, path := range list {
		short, done, err := socket.ShortPath(path)
		if err != nil {
			continue
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err == nil {
			if unix.Connect(fd, &unix.SockaddrUnix{Name: short}) == unix.ECONNREFUSED {
				_ = os.Remove(path)
			}
			unix.Close(fd)
		}
		done()
	}
}

package rooms

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/integration/peer"
	"github.com/clairun/clai-sandbox/sandbox"
)

// A Door is where the processes of one sandbox have commands run in another. Who calls is a
// stranger, whatever it says: it is taken for a process of that sandbox by what the kernel says of
// it, and all that it can have is a command in the other sandbox, whose streams are pipes. A pipe
// leads nowhere else: it has no directory and no name, and what comes out of it was put in.
type Door struct {
	// Has reports whether a process may call: see sandbox.Control.
	Has func(pid int) bool
	// Room is the sandbox in which a command is started. It is called for each, and may have to
	// make it.
	Room func() (Opened, error)
}

// Opened is a sandbox that takes commands.
type Opened struct {
	Sandbox *sandbox.Session
	Shell   string                  // of a command whose first word is empty
	Ended   func() []sandbox.Notice // what there is to tell after a command; nil: nothing
}

// doorNames begins the names of their sockets.
const doorNames = 'd'

// doorTimeout bounds the wait for a command to begin: the sandbox for it may have to be made.
const doorTimeout = 60 * time.Second

// NewDoor is the path of a socket for a door, in the directory of those of rooms. Nobody listens
// there yet.
func NewDoor(dir string) string { return filepath.Join(dir, newName(doorNames)) }

// Serve takes calls at a path until end is called.
func (d Door) Serve(path string) (end func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	sweep(filepath.Dir(path))
	return listen(path, d.serve)
}

func (d Door) serve(conn *net.UnixConn) {
	if d.check(conn) != nil { // it is told nothing
		return
	}
	c, files, err := takeCall(conn)
	if err != nil {
		return
	}
	defer closeAll(files)
	if c.Do != doStart || c.Terminal {
		send(conn, answer{Error: "from here, a command is started, with pipes for its streams", Status: 125}, nil)
		return
	}
	for _, file := range files {
		if !isPipe(file) {
			send(conn, answer{Error: "a stream of the command is no pipe", Status: 125}, nil)
			return
		}
	}
	room, err := d.Room()
	if err != nil {
		send(conn, answer{Error: err.Error(), Status: 125}, nil)
		return
	}
	(&served{about: Room{About: About{Shell: room.Shell}}, sandbox: room.Sandbox, ended: room.Ended}).start(conn, c, files)
}

func (d Door) check(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var why error
	err = raw.Control(func(fd uintptr) {
		why = peer.CheckBy(int(fd), func(pid int) error {
			if !d.Has(pid) {
				return errors.New("it is not in that sandbox")
			}
			return nil
		})
	})
	return errors.Join(err, why)
}

// isPipe reports whether a file is a pipe without a name (pipe(7)).
func isPipe(file *os.File) bool {
	var of unix.Statfs_t
	var is unix.Stat_t
	return unix.Fstatfs(int(file.Fd()), &of) == nil && of.Type == unix.PIPEFS_MAGIC && unix.Fstat(int(file.Fd()), &is) == nil && is.Mode&unix.S_IFMT == unix.S_IFIFO
}

package bus

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/descriptor"
)

// A Socket is one that stands in a sandbox and that another program serves when somebody connects.
type Socket struct {
	directory directory
	file      descriptor.File // to be bound
	listening conn
}

// NewSocket makes one in the first of the directories that will do.
func NewSocket(directories []string) (*Socket, error) {
	s := &Socket{}
	var err error
	if s.directory, err = newDirectory(directories); err != nil {
		return nil, err
	}
	if s.file, s.listening, err = s.directory.listen(); err != nil {
		s.directory.remove()
		return nil, err
	}
	return s, nil
}

// Wait waits until somebody connects, or until the socket is shut.
func (s *Socket) Wait() error {
	waited := false
	return s.listening.raw.Read(func(uintptr) bool {
		before := waited
		waited = true
		return before
	})
}

// Sweep removes what runs left that were killed.
func (s *Socket) Sweep() { s.directory.sweep() }

// Place is the socket's file, to be bound: a descriptor of the caller's own.
func (s *Socket) Place() (descriptor.File, error) { return duplicate(uintptr(s.file)) }

// Listening is where it listens: a descriptor of the caller's own.
func (s *Socket) Listening() (file descriptor.File, err error) {
	if failed := s.listening.raw.Control(func(fd uintptr) { file, err = duplicate(fd) }); failed != nil {
		return 0, failed
	}
	return file, err
}

// Shut ends Wait; who connects is refused.
func (s *Socket) Shut() { s.listening.close() }

// Close takes the socket away.
func (s *Socket) Close() {
	s.listening.close()
	s.directory.remove()
	s.file.Close()
}

func duplicate(fd uintptr) (descriptor.File, error) {
	n, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	return descriptor.File(max(n, 0)), err
}

// listen makes a socket in the directory. It returns its file, to be bound, and where it listens.
func (d directory) listen() (file descriptor.File, listening conn, err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, conn{}, err
	}
	err = errors.Join(
		unix.Fchmod(fd, 0o600), // before there is a file: bind gives it this mode
		unix.Bind(fd, &unix.SockaddrUnix{Name: d.name(socketName)}),
		unix.Listen(fd, maxConnections))
	if err == nil {
		file, err = d.open(socketName)
	}
	if err != nil {
		unix.Close(fd)
		return 0, conn{}, err
	}
	if listening, err = newConn(descriptor.File(fd)); err != nil {
		file.Close()
	}
	return file, listening, err
}

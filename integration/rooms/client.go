package rooms

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
)

// ErrUnknown means that there is no such sandbox, or that it has ended.
var ErrUnknown = errors.New("there is no such session")

// A StartError is a command that was not run.
type StartError struct {
	Why    string
	Status int // the exit status, as run has it
}

func (e *StartError) Error() string { return e.Why }

// names are the names of the sockets, and doors those of doors.
func names(dir string) []string { return named(dir, 'b') }

func doors(dir string) []string { return named(dir, doorNames) }

func named(dir string, what byte) (list []string) {
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if isName(entry.Name(), what) && len(list) < maxRooms {
			list = append(list, entry.Name())
		}
	}
	return list
}

// List lists the sandboxes that answer, the oldest first.
func List(dir string) ([]Room, error) {
	list := []Room{}
	for _, id := range names(dir) {
		if room, err := Show(dir, id); err == nil {
			list = append(list, room)
		}
	}
	slices.SortFunc(list, func(a, b Room) int { return a.Began.Compare(b.Began) })
	return list, nil
}

// Show says what runs in one.
func Show(dir, id string) (Room, error) {
	said, err := ask(dir, id, call{Do: doShow}, timeout)
	if err == nil && said.Room == nil {
		err = errors.New("it does not say what it is")
	}
	if err != nil {
		return Room{}, err
	}
	said.Room.ID = id
	return *said.Room, nil
}

// stopTimeout is how long one may take to end.
const stopTimeout = 30 * time.Second

// Stop ends one, with all that runs there.
func Stop(dir, id string) error {
	_, err := ask(dir, id, call{Do: doStop}, stopTimeout)
	if err == nil || errors.Is(err, ErrUnknown) {
		return err
	}
	for began := time.Now(); time.Since(began) < timeout; time.Sleep(10 * time.Millisecond) { // who had it may have ended with it
		conn, gone := open(dir, id)
		if errors.Is(gone, ErrUnknown) {
			return nil
		}
		if gone == nil {
			conn.Close()
		}
	}
	return err
}

// Publish leads from a port of the host's loopback interface to one of the sandbox, as long as that
// stays.
func Publish(dir, id string, port profile.PublishedPort) error {
	_, err := ask(dir, id, call{Do: doPublish, Port: port.String()}, timeout)
	return err
}

func ask(dir, id string, c call, wait time.Duration) (answer, error) {
	conn, err := open(dir, id)
	if err != nil {
		return answer{}, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(wait))
	if err := send(conn, c, nil); err != nil {
		return answer{}, err
	}
	return hear(conn)
}

func open(dir, id string) (*net.UnixConn, error) {
	if !isID(id) {
		return nil, ErrUnknown
	}
	conn, err := dial(filepath.Join(dir, id))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		err = ErrUnknown
	}
	return conn, err
}

// hear reads an answer.
func hear(conn *net.UnixConn) (a answer, err error) {
	text, files, err := receive(conn)
	closeAll(files)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return a, errors.New("it does not answer")
	case err != nil:
		return a, errors.New("it has ended, or takes no calls from this process")
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("its answer: %w", err)
	}
	if a.Ended {
		return a, ErrUnknown
	}
	if a.Error != "" {
		return a, &StartError{a.Error, a.Status}
	}
	return a, nil
}

// A Started is a command that runs in a sandbox. It is ended when this process is.
type Started struct{ conn *net.UnixConn }

// Start starts a command in one.
func Start(dir, id string, command Command) (*Started, error) {
	conn, err := open(dir, id)
	if err != nil {
		return nil, err
	}
	return start(conn, command, timeout)
}

// StartThrough starts a command by the socket of a Door. The sandbox for it may have to begin
// first.
func StartThrough(path string, command Command) (*Started, error) {
	conn, err := dial(path)
	if err != nil {
		return nil, err
	}
	return start(conn, command, doorTimeout)
}

func start(conn *net.UnixConn, command Command, wait time.Duration) (*Started, error) {
	conn.SetDeadline(time.Now().Add(wait))
	c := call{Do: doStart, Argv: command.Argv, Dir: command.Dir, Terminal: command.Terminal}
	if command.Terminal {
		c.Term = os.Getenv("TERM")
	}
	files := command.Streams[:]
	if command.Extra != nil {
		files = append(files, command.Extra)
	}
	err := send(conn, c, files)
	if err == nil {
		_, err = hear(conn)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	return &Started{conn}, nil
}

// Wait waits for its end, and returns its exit status and what there is to tell.
func (s *Started) Wait() (status int, notices []string, err error) {
	defer s.conn.Close()
	a, err := hear(s.conn)
	return a.ExitCode, a.Notices, err
}

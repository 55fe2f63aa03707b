package rooms

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What an agent's sandbox can say at its door is a stranger's: a command with pipes is started, and
// all else is refused before there is a sandbox for it.
func TestThroughADoorCommandsAreStartedAndNothingElse(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "door")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	open := func(path string, flags int) *os.File {
		file, err := os.OpenFile(path, flags, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		return file
	}
	if err := unix.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket := os.NewFile(uintptr(pair[0]), "socket")
	defer socket.Close()
	defer unix.Close(pair[1])
	start := call{Do: doStart, Argv: []string{"true"}}
	for name, c := range map[string]struct {
		call    call
		streams []*os.File
		outside bool
		want    string
	}{
		"a command":                   {call: start, streams: []*os.File{read, write, write}, want: "there is a room"},
		"a command that tells":        {call: start, streams: []*os.File{read, write, write, write}, want: "there is a room"},
		"of somebody else":            {call: start, streams: []*os.File{read, write, write}, outside: true, want: "takes no call"},
		"a directory for its input":   {call: start, streams: []*os.File{open("/", unix.O_RDONLY), write, write}, want: "is no pipe"},
		"a file for its output":       {call: start, streams: []*os.File{read, open(dir+"/file", os.O_CREATE|os.O_WRONLY), write}, want: "is no pipe"},
		"a pipe with a name":          {call: start, streams: []*os.File{read, write, open(dir+"/fifo", os.O_RDWR)}, want: "is no pipe"},
		"a socket":                    {call: start, streams: []*os.File{socket, write, write}, want: "is no pipe"},
		"a device":                    {call: start, streams: []*os.File{open(os.DevNull, os.O_RDWR), write, write}, want: "is no pipe"},
		"a directory besides":         {call: start, streams: []*os.File{read, write, write, open("/", unix.O_RDONLY)}, want: "is no pipe"},
		"a place by its path":         {call: start, streams: []*os.File{open("/", unix.O_PATH), write, write}, want: "is no pipe"},
		"a terminal":                  {call: call{Do: doStart, Terminal: true}, streams: []*os.File{read, write, write}, want: "with pipes"},
		"to see what runs":            {call: call{Do: doShow}, want: "a command is started"},
		"to end it":                   {call: call{Do: doStop}, want: "a command is started"},
		"to have a port published":    {call: call{Do: doPublish, Port: "80"}, want: "a command is started"},
		"something that is not there": {call: call{Do: "grant"}, want: "a command is started"},
		"nothing":                     {want: "a command is started"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			door := Door{Has: func(pid int) bool { return !c.outside && pid == os.Getpid() },
				Room: func() (Opened, error) { asked++; return Opened{}, errors.New("there is a room") }}
			path := NewDoor(dir)
			end, err := door.Serve(path)
			if err != nil {
				t.Fatal(err)
			}
			defer end()
			if filepath.Dir(path) != dir || len(names(dir)) != 0 {
				t.Errorf("%s is taken for a room's", path)
			}
			conn, err := dial(path)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := send(conn, c.call, c.streams); err != nil && !c.outside {
				t.Fatal(err)
			}
			if _, err := hear(conn); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if begun := asked > 0; begun != (c.want == "there is a room") {
				t.Errorf("a sandbox was asked for %d times", asked)
			}
		})
	}
}

// Whoever was killed leaves the name of a door, which the next one takes away, and no other.
func TestADoorOfNobodyIsSweptAway(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "door")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	left := NewDoor(dir)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: left, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	one, other := NewDoor(dir), NewDoor(dir)
	for _, path := range []string{one, other} {
		end, err := Door{Has: func(int) bool { return true }}.Serve(path)
		if err != nil {
			t.Fatal(err)
		}
		defer end()
	}
	if _, err := os.Lstat(left); err == nil {
		t.Error("the name of nobody's door is there")
	}
	if _, err := os.Lstat(one); err != nil {
		t.Error(err)
	}
}

// Of whom nothing is known, and what is no message of ours, nothing is started.
func TestADoorStaysShutWhereSomethingIsWrong(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "door")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	asked := make(chan struct{}, 8)
	door := Door{Has: func(int) bool { return true }, Room: func() (Opened, error) { asked <- struct{}{}; return Opened{}, errors.New("there is a room") }}
	path := NewDoor(dir)
	end, err := door.Serve(path)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	connect := func() *net.UnixConn {
		conn, err := dial(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	gone := connect()
	gone.Close()
	for name, conn := range map[string]*net.UnixConn{"one that has ended": gone, "none": {}} {
		if err := door.check(conn); err == nil {
			t.Errorf("%s may call", name)
		}
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	five := unix.UnixRights(int(read.Fd()), int(write.Fd()), int(write.Fd()), int(write.Fd()), int(write.Fd()))
	three := unix.UnixRights(int(read.Fd()), int(write.Fd()), int(write.Fd()))
	for name, message := range map[string]struct {
		text   string
		rights []byte
	}{
		"no JSON":                           {`{"do":"start","argv":["true"]`, three},
		"a list":                            {`["start"]`, three},
		"more files than a command has":     {`{"do":"start","argv":["true"]}`, five},
		"more text than is taken of a call": {`{"do":"start","argv":["` + strings.Repeat("x", maxMessage) + `"]}`, three},
	} {
		conn := connect()
		if _, _, err := conn.WriteMsgUnix([]byte(message.text), message.rights, nil); err != nil {
			t.Fatal(name, err)
		}
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%s is answered: %v", name, err)
		}
	}
	select {
	case <-asked:
		t.Error("a sandbox was asked for")
	default:
	}
}

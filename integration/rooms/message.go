package rooms

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/wire/socket"
)

func dial(path string) (*net.UnixConn, error) {
	short, done, err := socket.ShortPath(path)
	if err != nil {
		return nil, err
	}
	defer done()
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: short, Net: "unixpacket"})
}

// send sends a message, with files beside it.
func send(conn *net.UnixConn, message any, files []*os.File) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(text) > maxMessage {
		return errors.New("it is too long")
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, file := range files {
			fds[i] = int(file.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	_, _, err = conn.WriteMsgUnix(text, rights, nil)
	return err
}

// receive reads a message, with at most four files beside it.
func receive(conn *net.UnixConn) (text []byte, files []*os.File, err error) {
	text = make([]byte, maxMessage)
	rights := make([]byte, unix.CmsgSpace(4*4))
	n, size, flags, _, err := conn.ReadMsgUnix(text, rights)
	if err != nil {
		return nil, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:size])
	for _, m := range messages {
		if fds, err := unix.ParseUnixRights(&m); err == nil {
			for _, fd := range fds {
				unix.CloseOnExec(fd)
				files = append(files, os.NewFile(uintptr(fd), "stream"))
			}
		}
	}
	if err != nil || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || n == 0 {
		closeAll(files)
		return nil, nil, errors.Join(err, errors.New("it is no whole message"))
	}
	return text[:n], files, nil
}

// takeCall receives a call, for which whoever calls has so long.
func takeCall(conn *net.UnixConn) (c call, files []*os.File, err error) {
	conn.SetDeadline(time.Now().Add(timeout))
	text, files, err := receive(conn)
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		closeAll(files)
		return call{}, nil, err
	}
	conn.SetDeadline(time.Time{})
	return c, files, nil
}

func closeAll(files []*os.File) {
	for _, file := range files {
		file.Close()
	}
}

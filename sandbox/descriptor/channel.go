package descriptor

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Channel makes a socket through which a descriptor comes. It returns our end and the child's.
func Channel() (*net.UnixConn, File, error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, 0, err
	}
	file := os.NewFile(uintptr(ends[0]), "descriptor channel")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		unix.Close(ends[1])
		return nil, 0, err
	}
	return conn.(*net.UnixConn), File(ends[1]), nil
}

// Receive takes the one descriptor that was sent out of the channel.
func Receive(channel *net.UnixConn) (int, error) {
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := channel.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return 0, errors.New("no descriptor came")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return 0, errors.New("no descriptor came")
	}
	return fds[0], nil
}

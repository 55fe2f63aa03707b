package publish

import (
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// The parts of sock_diag(7) that it takes to list what listens.
const (
	sockDiagByFamily = 20
	tcpListen        = 10
	diagRequestSize  = 56 // struct inet_diag_req_v2
	diagMessageSize  = 72 // struct inet_diag_msg
	headerSize       = unix.NLMSG_HDRLEN

	// maxReads bounds what is read of one answer, in pieces of 32 KiB: a command may listen at
	// every port.
	maxReads = 64
)

// ErrTooMany means that more listens than is looked through.
var ErrTooMany = errors.New("too much listens there")

// Listening lists the TCP ports of the sandbox's network at which something listens, in order.
func (d *Dialer) Listening() ([]uint16, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lists < 0 {
		return nil, ErrClosed
	}
	if d.talks < 0 {
		l := &trampoline.List{}
		fd, _, err := d.hand(l, l.Call(0, unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG))
		if err != nil {
			return nil, err
		}
		d.talks = fd
		limit := unix.NsecToTimeval(timeout.Nanoseconds())
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
			return nil, err
		}
	}
	var list []uint16
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		ports, err := d.listening(family)
		if err != nil {
			unix.Close(d.talks) // the rest of the answer goes with it
			d.talks = -1
			return nil, err
		}
		list = append(list, ports...)
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

func (d *Dialer) listening(family byte) ([]uint16, error) {
	request := make([]byte, headerSize+diagRequestSize)
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], sockDiagByFamily)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	request[headerSize], request[headerSize+1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(request[headerSize+4:], 1<<tcpListen)
	if err := unix.Sendto(d.talks, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	var list []uint16
	buffer := make([]byte, 32<<10)
	for range maxReads {
		n, err := unix.Read(d.talks, buffer)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		ports, done, err := readListening(buffer[:n])
		list = append(list, ports...)
		if done || err != nil {
			return list, err
		}
	}
	return nil, ErrTooMany
}

// readListening reads a piece of the kernel's answer. done says that it was the last.
func readListening(text []byte) (list []uint16, done bool, err error) {
	for len(text) >= headerSize {
		size := int(binary.NativeEndian.Uint32(text))
		if size < headerSize || size > len(text) {
			return list, true, errors.New("a malformed answer")
		}
		body := text[headerSize:size]
		switch binary.NativeEndian.Uint16(text[4:]) {
		case unix.NLMSG_DONE:
			return list, true, nil
		case unix.NLMSG_ERROR:
			if len(body) < 4 {
				return list, true, errors.New("a malformed answer")
			}
			return list, true, unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
		case sockDiagByFamily:
			if len(body) >= diagMessageSize && body[1] == tcpListen {
				list = append(list, binary.BigEndian.Uint16(body[4:]))
			}
		}
		text = text[min((size+3)&^3, len(text)):]
	}
	return list, false, nil
}

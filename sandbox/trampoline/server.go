package trampoline

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

const (
	areaAddress = 0x10000000 // where a served list comes to be
	// MaxList bounds a served list: a socket takes more than that as one message, whatever the
	// system's defaults are.
	MaxList = 192 << 10
)

// Server is the ELF of a program that carries out the list, and then lists as they come, one after
// the other, on a SOCK_SEQPACKET socket, whose number this is. It answers each with its results and
// its data as they are then, and ends when nobody has the socket's other end any more. See
// List.Serve.
func (l *List) Server(socket int) []byte {
	l.Call(0, unix.SYS_MMAP, areaAddress, MaxList, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED, ^uint64(0), 0)
	loop := l.Call(MayFail, unix.SYS_READ, uint64(socket), areaAddress, MaxList)
	l.Call(IfZero, unix.SYS_EXIT_GROUP, 0)
	l.Call(jump, 0, areaAddress+listOffset, areaAddress)
	failed := l.Call(MayFail, unix.SYS_SENDTO, uint64(socket), dataAddress+headerFailure, failureSize, unix.MSG_NOSIGNAL, 0, 0)
	l.Call(MayFail, unix.SYS_EXIT_GROUP, 0)
	program := l.encode(dataAddress)
	for at, value := range map[int]uint64{headerOnFailure: recordAddress(dataAddress, failed),
		headerLoop: recordAddress(dataAddress, loop), headerSocket: uint64(socket)} {
		binary.LittleEndian.PutUint64(program[at:], value)
	}
	return elfImage(code(), program)
}

// failureSize is how long the answer to a list is that failed: the errno as the kernel returned it,
// and the address of the record.
const failureSize = 16

// A CallError is a call of a list that failed, and must not have. Those after it were not made.
type CallError struct {
	Number int // in the list; -1 if it is one of the list that the server began with
	Errno  unix.Errno
}

func (e *CallError) Error() string { return e.Errno.Error() }
func (e *CallError) Unwrap() error { return e.Errno }

// Results are what became of a served list.
type Results struct {
	calls []byte
	data  []byte
}

// Of is what a call returned: the low half of it, negative for an errno.
func (r *Results) Of(number int) int {
	return int(int32(binary.LittleEndian.Uint32(r.calls[4*number:])))
}

// Err is the errno of a call that was allowed to fail, or nil.
func (r *Results) Err(number int) error {
	if result := r.Of(number); result < 0 {
		return unix.Errno(-result)
	}
	return nil
}

// Data is what is at an address of the list's data.
func (r *Results) Data(address uint64, size int) []byte {
	at := int(address &^ uint64(markMask))
	return r.data[at : at+size]
}

// ErrEnded means that the server has ended. ErrSilent means that it did not answer in the time that
// the socket allows.
var (
	ErrEnded  = errors.New("it has ended")
	ErrSilent = errors.New("it does not answer")
)

// Send hands a list to the server at the other end of a socket. Answer waits for what became of it.
func (l *List) Send(socket int) error {
	n := len(l.calls) + 4
	size := resultsSize(n) + len(l.data)
	answer := func(text, size uint64) {
		l.calls = append(l.calls,
			call{number: unix.SYS_SENDTO, flags: MayFail | indirect, arguments: [6]uint64{dataAddress + headerSocket, text, size, unix.MSG_NOSIGNAL}},
			call{flags: jump | indirect, arguments: [6]uint64{dataAddress + headerLoop, dataAddress}})
	}
	answer(recordAddress(areaAddress, n), uint64(size))
	failed := len(l.calls)
	answer(areaAddress+headerFailure, failureSize)
	message := l.encode(areaAddress)
	binary.LittleEndian.PutUint64(message[headerOnFailure:], recordAddress(areaAddress, failed))
	if len(message) > MaxList {
		return unix.E2BIG
	}
	err := again(func() error { return unix.Sendto(socket, message, unix.MSG_NOSIGNAL, nil) })
	if err == unix.EPIPE {
		err = nil // it has ended: what it said last is the answer
	}
	return err
}

// Answer waits for what became of a list that was sent, as long as the socket's timeout says. The
// error is a *CallError if a call failed that must not.
func (l *List) Answer(socket int) (*Results, error) {
	n := len(l.calls)
	answer := make([]byte, resultsSize(n)+len(l.data)+failureSize)
	var length int
	read := func() (err error) { length, err = unix.Read(socket, answer); return err }
	err := again(read)
	if err == unix.ECONNRESET {
		err = again(read) // it ended without reading all that it was sent; what it said before is still to be read
	}
	switch {
	case err == unix.EAGAIN:
		return nil, ErrSilent
	case err != nil || length == 0:
		return nil, ErrEnded
	}
	if failed, is := ReadFailure(answer); is {
		return nil, failed
	}
	switch {
	case length < resultsSize(n)+len(l.data):
		return nil, ErrEnded
	}
	return &Results{answer[tagSize:resultsSize(n)], answer[resultsSize(n):length]}, nil
}

// again repeats what a signal interrupted.
func again(do func() error) error {
	for {
		if err := do(); err != unix.EINTR {
			return err
		}
	}
}

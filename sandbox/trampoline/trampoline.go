// Package trampoline makes programs of some forty instructions that carry out a list of system
// calls, and then execute another program in their place, or wait for the next list. Nothing in
// them decides anything: the list is data that the caller wrote.
//
// Some things only a process at the right place can do: inside a sandbox, restrict itself by a
// Landlock ruleset for files (outside, that would forbid bubblewrap to mount); with a single
// thread, enter a user namespace, which no program of Go's can. Any other program executed for that
// would take longer than all of it: about 1 ms for Go, 0.3 ms for C. A trampoline is an ELF of two
// pages, put together from the code in trampoline_*.s and the list.
package trampoline

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// trampoline and codeAddress are in assembly. trampoline is never called.
//
//lint:ignore U1000 its code is copied
func trampoline()
func codeAddress() *byte

// Flags of a call.
const (
	MayFail     = 1 << iota // go on if it fails
	AfterNoExec             // only if the call before failed with ENOEXEC
	Environment             // the third argument is the environment
	IfZero                  // only if the call before returned 0
	jump                    // no call: go on at the record at the first address, whose header is at the second

	indirect = 1 << 8 // and the five bits above: the argument is the address of an earlier result
)

// AtCWD is AT_FDCWD as an argument.
const AtCWD = ^uint64(99)

// A call is one record of the list.
type call struct {
	number    uint32
	flags     uint32
	arguments [6]uint64
	store     uint64 // where the low half of the result goes, besides Result
}

const (
	codeAddressInside = 0x410000
	dataAddress       = 0x520000 // as in trampoline_*.s: the place of the header, the list and its data
	// The header: the address of what to do about a failure, the last failure as the kernel
	// returned it, the address of the record that failed; of a server, where it waits for the next
	// list, and its socket. The list is behind it.
	headerOnFailure, headerFailure, headerLoop, headerSocket, listOffset = 0, 8, 24, 32, 64
	recordSize                                                           = 64
)

// codeEnd stands behind the code.
var codeEnd = []byte{0x0f, 0x0b, 'S', 'T', 'U', 'B', 0x0f, 0x0b}

func code() []byte {
	text := unsafe.Slice(codeAddress(), 1<<10)
	for i := 0; i+len(codeEnd) <= len(text); i++ {
		if bytes.Equal(text[i:i+len(codeEnd)], codeEnd) {
			return text[:i]
		}
	}
	panic("trampoline: the code has no end")
}

// A List is a list of system calls under construction. The zero List is empty.
type List struct {
	calls []call
	data  []byte // behind the list
	words []int  // offsets in data of words that are offsets in data themselves
}

// Arguments that are no plain numbers are marked in their upper bits, which no address and no
// number in use has.
const (
	markMask   = 0xffff << 48
	markOffset = 0x5354 << 48 // an offset in the data
	markResult = 0x5355 << 48 // the number of an earlier call: its result
	markRecord = 0x5356 << 48 // the number of a call: its record
	markHeader = 0x5357 << 48 // the list's header
	markLoad   = 0x5358 << 48 // an offset in the data: what is there when the call is made
)

// Reset makes the list empty again. What was made of it stays.
func (l *List) Reset() { l.calls, l.data, l.words = l.calls[:0], l.data[:0], l.words[:0] }

// Put adds bytes to the data, on a multiple of eight, and returns their address as an argument.
func (l *List) Put(text []byte) uint64 {
	for len(l.data)%8 != 0 {
		l.data = append(l.data, 0)
	}
	l.data = append(l.data, text...)
	return markOffset | uint64(len(l.data)-len(text))
}

// Text adds a string that ends in a zero byte.
func (l *List) Text(s string) uint64 {
	at := uint64(len(l.data))
	l.data = append(append(l.data, s...), 0)
	return markOffset | at
}

// Words adds 64-bit words, of which each may itself be an address in the data.
func (l *List) Words(values ...uint64) uint64 {
	at := l.Put(make([]byte, 8*len(values)))
	for i, value := range values {
		offset := int(at&^uint64(markMask)) + 8*i
		binary.LittleEndian.PutUint64(l.data[offset:], value)
		if mark := value & markMask; mark == markOffset || mark == markRecord {
			l.words = append(l.words, offset)
		}
	}
	return at
}

// Vector adds an array of strings, as execve(2) takes it.
func (l *List) Vector(words []string) uint64 {
	addresses := make([]uint64, 0, len(words)+1)
	for _, word := range words {
		addresses = append(addresses, l.Text(word))
	}
	return l.Words(append(addresses, 0)...)
}

// Call adds a system call and returns its number in the list. Arguments are numbers, addresses in
// the data, and results.
func (l *List) Call(flags uint32, number uintptr, arguments ...uint64) int {
	c := call{number: uint32(number), flags: flags}
	copy(c.arguments[:], arguments)
	l.calls = append(l.calls, c)
	return len(l.calls) - 1
}

// Result is what a call of the list returned, as an argument of a later one: the low half, as for a
// descriptor. That of a call that failed is no descriptor.
func (l *List) Result(number int) uint64 { return markResult | uint64(number) }

// Store has the low half of a call's result written to an address in the data as well.
func (l *List) Store(number int, address uint64) { l.calls[number].store = address }

// Load is what is at an address in the data when the call is made, as an argument: the low half, as
// for a descriptor that an earlier call has put there.
func (l *List) Load(address uint64) uint64 { return markLoad | address&^uint64(markMask) }

// Jump is no call: the list goes on where Land says, with IfZero only if the call before returned 0.
func (l *List) Jump(flags uint32) int { return l.Call(flags|jump, 0, 0, markHeader) }

// Land says that a jump leads to the next call that is added. Where that is another process,
// failures are its own: header is from Header; 0 is the list's.
func (l *List) Land(number int, header uint64) {
	l.calls[number].arguments[0] = markRecord | uint64(len(l.calls))
	if header != 0 {
		l.calls[number].arguments[1] = header
	}
}

// Forever ends the list with a call that is made again and again, whatever it returns.
func (l *List) Forever(number uintptr, arguments ...uint64) {
	again := l.Call(MayFail, number, arguments...)
	l.calls[l.Jump(0)].arguments[0] = markRecord | uint64(again)
}

// Header adds a header for a process of its own, which goes on where Fails says when a call fails
// that must not. What failed is then at failure.
func (l *List) Header() (header, failure uint64) {
	header = l.Words(0, 0, 0, 0, 0, 0, 0, 0)
	return header, header + headerFailure
}

// Fails says that a header's failures go on at the next call that is added.
func (l *List) Fails(header uint64) {
	offset := int(header &^ uint64(markMask))
	binary.LittleEndian.PutUint64(l.data[offset:], markRecord|uint64(len(l.calls)))
	l.words = append(l.words, offset)
}

// FailureSize is how long a failure is, at the place that Header says. ReadFailure reads it: the
// errno, and the number of the call.
const FailureSize = failureSize

// ReadFailure is what a failure says of a served list.
func ReadFailure(failure []byte) (*CallError, bool) {
	if len(failure) < FailureSize || binary.LittleEndian.Uint32(failure) == 0 {
		return nil, false
	}
	e := &CallError{Number: -1, Errno: unix.Errno(-int32(binary.LittleEndian.Uint32(failure)))}
	if at := binary.LittleEndian.Uint64(failure[8:]); at >= areaAddress {
		e.Number = int(at-areaAddress-listOffset) / recordSize
	}
	return e, true
}

// Len is how many calls there are.
func (l *List) Len() int { return len(l.calls) }

// Size is about how many bytes the list takes.
func (l *List) Size() int { return listOffset + (recordSize+4)*len(l.calls) + len(l.data) + 16 }

// encode writes the list for an address: a header, the records, the results, the data.
func (l *List) encode(base uint64) []byte {
	results := base + uint64(listOffset+recordSize*len(l.calls))
	data := results + uint64(resultsSize(len(l.calls)))
	address := func(value uint64) uint64 {
		switch rest := value &^ uint64(markMask); value & markMask {
		case markOffset:
			return data + rest
		case markRecord:
			return recordAddress(base, int(rest))
		case markHeader:
			return base
		}
		return value
	}
	slot := func(number int) uint64 {
		if store := l.calls[number].store; store != 0 {
			return address(store)
		}
		return results + tagSize + 4*uint64(number)
	}
	image := make([]byte, listOffset, int(data-base)+len(l.data))
	for i, c := range l.calls {
		flags := c.flags
		arguments := c.arguments
		for k, argument := range arguments {
			switch rest := argument &^ uint64(markMask); argument & markMask {
			case markResult:
				flags |= indirect << k
				arguments[k] = slot(int(rest))
			case markLoad:
				flags |= indirect << k
				arguments[k] = data + rest
			default:
				arguments[k] = address(argument)
			}
		}
		image = binary.LittleEndian.AppendUint32(image, c.number)
		image = binary.LittleEndian.AppendUint32(image, flags)
		for _, argument := range arguments {
			image = binary.LittleEndian.AppendUint64(image, argument)
		}
		image = binary.LittleEndian.AppendUint64(image, slot(i))
	}
	image = append(image, make([]byte, resultsSize(len(l.calls)))...)
	image = append(image, l.data...)
	for _, offset := range l.words {
		word := image[int(data-base)+offset:]
		binary.LittleEndian.PutUint64(word, address(binary.LittleEndian.Uint64(word)))
	}
	return image
}

// tagSize is what stands before the results: zero, which tells a served list's answer from a
// failure.
const tagSize = 8

func resultsSize(calls int) int { return (tagSize + 4*calls + 7) &^ 7 }

// Execute ends the list: the command takes the trampoline's place. A name without a slash is looked
// for as execvp(3) does. With an environment, the command gets that one, else the trampoline's.
func (l *List) Execute(command []string, path string, environment []string) {
	candidates := []string{command[0]}
	if !strings.Contains(command[0], "/") {
		candidates = nil
		for dir := range strings.SplitSeq(path, ":") {
			if dir == "" {
				dir = "."
			}
			candidates = append(candidates, dir+"/"+command[0])
		}
	}
	flags, variables := uint32(MayFail|Environment), uint64(0)
	if environment != nil {
		flags, variables = MayFail, l.Vector(environment)
	}
	argv := l.Vector(command)
	for _, candidate := range candidates {
		name := l.Text(candidate)
		l.Call(flags, unix.SYS_EXECVE, name, argv, variables)
		script := l.Vector(append([]string{"/bin/sh", candidate}, command[1:]...)) // without a first line, it is the shell's
		l.Call(flags|AfterNoExec, unix.SYS_EXECVE, l.Text("/bin/sh"), script, variables)
	}
}

// Reports of a program: one byte, and the errno.
const (
	ReportSetup   = 's' // something before the command could not be done: the command was not run
	ReportCommand = 'c' // the command could not be executed
)

// StatusNotRun is the exit status of a program whose command was not executed. The report tells;
// this is for people.
const StatusNotRun = 127

// Program is the ELF, and ends the list. report is the descriptor for what went wrong; -1 is none.
func (l *List) Program(report int) []byte {
	fail := func(what byte) {
		if report >= 0 {
			l.Call(MayFail, unix.SYS_WRITE, uint64(report), l.Put([]byte{what}), 1)
			l.Call(MayFail, unix.SYS_WRITE, uint64(report), dataAddress+headerFailure, 4)
		}
		l.Call(MayFail, unix.SYS_EXIT_GROUP, StatusNotRun)
	}
	fail(ReportCommand)
	failed := len(l.calls)
	fail(ReportSetup)
	return l.elf(failed)
}

// elf is the program whose failures go on at a record.
func (l *List) elf(failed int) []byte {
	image := l.encode(dataAddress)
	binary.LittleEndian.PutUint64(image[headerOnFailure:], recordAddress(dataAddress, failed))
	return elfImage(code(), image)
}

func recordAddress(base uint64, number int) uint64 {
	return base + listOffset + recordSize*uint64(number)
}

// ReadReport is what a program reported of a failure, in the bytes that it wrote, if it wrote any.
func ReadReport(said []byte) (what byte, errno unix.Errno, failed bool) {
	if len(said) < 5 {
		return 0, 0, false
	}
	return said[0], unix.Errno(-int32(binary.LittleEndian.Uint32(said[1:]))), true
}

// Seal puts a program into a file in memory that nobody can change any more, close-on-exec, to be
// executed as /proc/self/fd/N.
func Seal(name string, program []byte) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 all were
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, err
	}
	for len(program) > 0 {
		n, err := unix.Write(fd, program)
		if err != nil && err != unix.EINTR {
			unix.Close(fd)
			return -1, err
		}
		program = program[max(n, 0):]
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
		unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

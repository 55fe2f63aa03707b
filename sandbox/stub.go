package sandbox

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The stub is a program of some thirty instructions that bwrap executes inside the sandbox, and that executes the command in
// its own place. It carries out a list of system calls that the launcher wrote; nothing in it decides anything. That is
// what only a process inside can do to itself: a Landlock ruleset for files (outside, it would forbid bwrap to mount), the
// signals' effects, closing what an old bwrap leaves open.
//
// It is an ELF of two pages, put together here from the code in stub_*.s and the list, because to execute any other program
// first would take longer than all of that: about 1 ms for Go, 0.3 ms for C.

// stub and stubAddress are in assembly. stub is never called.
//
//lint:ignore U1000 its code is copied
func stub()
func stubAddress() *byte

// A stubCall is one record of the list.
type stubCall struct {
	number    uint32
	flags     uint32
	arguments [6]uint64
	store     uint64 // where the low half of the result goes; 0: nowhere
}

const (
	stubMayFail     = 1 << iota // go on if it fails
	stubAfterNoExec             // only if the call before failed with ENOEXEC
	stubEnvironment             // the third argument is the environment
)

const (
	stubText = 0x410000
	stubData = 0x520000 // as in stub_*.s: the place of the header, the list and its data
	// The header: the address of what to do about a failure, and the last failure as the kernel returned it. The list is
	// behind it.
	stubFailed, stubFailure, stubList = 0, 8, 64
	stubRecord                        = 64
)

// stubEnd stands behind the code.
var stubEnd = []byte{0x0f, 0x0b, 'S', 'T', 'U', 'B', 0x0f, 0x0b}

// stubCode is the machine code of stub.
func stubCode() []byte {
	code := unsafe.Slice(stubAddress(), 1<<10)
	for i := 0; i+len(stubEnd) <= len(code); i++ {
		if bytes.Equal(code[i:i+len(stubEnd)], stubEnd) {
			return code[:i]
		}
	}
	panic("sandbox: the stub has no end")
}

// A stubProgram is a list under construction.
type stubProgram struct {
	calls []stubCall
	data  []byte // behind the list
	words []int  // offsets in data of words that are offsets in data themselves
}

// put adds bytes to the data and returns the offset. Offsets become addresses in image, when the list's length is known.
func (p *stubProgram) put(text []byte) uint64 {
	for len(p.data)%8 != 0 {
		p.data = append(p.data, 0)
	}
	p.data = append(p.data, text...)
	return stubOffset | uint64(len(p.data)-len(text))
}

// stubOffset marks an argument that is an offset in the data. No address and no number that is used has these bits.
const stubOffset = 0x5354 << 48

func (p *stubProgram) text(s string) uint64 { return p.put(append([]byte(s), 0)) }

// vector adds an array of strings, as execve(2) takes it.
func (p *stubProgram) vector(words []string) uint64 {
	addresses := make([]uint64, len(words)+1)
	for i, word := range words {
		addresses[i] = p.text(word)
	}
	at := p.put(make([]byte, 8*len(addresses)))
	for i, address := range addresses[:len(words)] {
		offset := int(at&^stubOffset) + 8*i
		binary.LittleEndian.PutUint64(p.data[offset:], address)
		p.words = append(p.words, offset)
	}
	return at
}

func (p *stubProgram) call(flags uint32, number uintptr, arguments ...uint64) *stubCall {
	call := stubCall{number: uint32(number), flags: flags}
	copy(call.arguments[:], arguments)
	p.calls = append(p.calls, call)
	return &p.calls[len(p.calls)-1]
}

// restoreSignals gives the terminal's signals their usual effect again, as far as the launcher itself had it.
func (p *stubProgram) restoreSignals() {
	usual := p.put(make([]byte, 32)) // struct sigaction of the kernel: SIG_DFL, no flags, no mask
	for _, s := range terminalSignals {
		if !signal.Ignored(s) {
			p.call(stubMayFail, unix.SYS_RT_SIGACTION, uint64(s), usual, 0, 8)
		}
	}
}

// execute ends the list: the command takes the stub's place. A name without a slash is looked for as execvp(3) does.
func (p *stubProgram) execute(command []string, path string) {
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
	argv := p.vector(command)
	for _, candidate := range candidates {
		name := p.text(candidate)
		p.call(stubMayFail|stubEnvironment, unix.SYS_EXECVE, name, argv)
		script := p.vector(append([]string{"/bin/sh", candidate}, command[1:]...)) // without a first line, it is the shell's
		p.call(stubMayFail|stubAfterNoExec|stubEnvironment, unix.SYS_EXECVE, p.text("/bin/sh"), script)
	}
}

// Reports of the stub: one byte, and the errno.
const (
	reportSetup   = 's' // something before the command could not be done: the command was not run
	reportCommand = 'c' // the command could not be executed
)

// image is the ELF, and ends the program. report is the descriptor for what went wrong.
func (p *stubProgram) image(report int) []byte {
	fail := func(what byte) {
		p.call(stubMayFail, unix.SYS_WRITE, uint64(report), p.put([]byte{what}), 1)
		p.call(stubMayFail, unix.SYS_WRITE, uint64(report), stubData+stubFailure, 4)
		p.call(stubMayFail, unix.SYS_EXIT_GROUP, statusNotRun)
	}
	fail(reportCommand)
	failed := len(p.calls)
	fail(reportSetup)

	data := uint64(stubList + stubRecord*len(p.calls)) // where the data is, behind stubData
	address := func(value uint64) uint64 {
		if value&stubOffset == stubOffset && value>>48 == stubOffset>>48 {
			return stubData + data + value&^stubOffset
		}
		return value
	}
	for _, offset := range p.words {
		binary.LittleEndian.PutUint64(p.data[offset:], address(binary.LittleEndian.Uint64(p.data[offset:])))
	}
	list := make([]byte, stubList, int(data)+len(p.data))
	binary.LittleEndian.PutUint64(list[stubFailed:], uint64(stubData+stubList+stubRecord*failed))
	for _, call := range p.calls {
		list = binary.LittleEndian.AppendUint32(list, call.number)
		list = binary.LittleEndian.AppendUint32(list, call.flags)
		for _, argument := range call.arguments {
			list = binary.LittleEndian.AppendUint64(list, address(argument))
		}
		list = binary.LittleEndian.AppendUint64(list, address(call.store))
	}
	return elfImage(stubCode(), append(list, p.data...))
}

// statusNotRun is the exit status of a stub whose command was not executed. The report tells; this is for people.
const statusNotRun = 127

// elfImage is a static program of a code segment and a data segment, and a stack that cannot be executed (elf(5)).
func elfImage(code, data []byte) []byte {
	align := uint64(4 << 10)
	machine := elf.EM_X86_64
	if runtime.GOARCH == "arm64" {
		align, machine = 64<<10, elf.EM_AARCH64 // the largest page of any kernel
	}
	header := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Entry: stubText,
		Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 3,
	}
	segment := func(offset, address uint64, content []byte, flags elf.ProgFlag) elf.Prog64 {
		n := uint64(len(content))
		return elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(flags), Off: offset, Vaddr: address, Paddr: address, Filesz: n, Memsz: n, Align: align}
	}
	var image bytes.Buffer
	image.Grow(int(2*align) + len(data))
	binary.Write(&image, binary.LittleEndian, header)
	binary.Write(&image, binary.LittleEndian, []elf.Prog64{
		segment(align, stubText, code, elf.PF_R|elf.PF_X),
		segment(2*align, stubData, data, elf.PF_R|elf.PF_W),
		{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W), Align: 16},
	})
	image.Write(make([]byte, int(align)-image.Len()))
	image.Write(code)
	image.Write(make([]byte, int(2*align)-image.Len()))
	image.Write(data)
	return image.Bytes()
}

// throughStub makes the command that bwrap executes the stub, with a list that ends in the command.
func (a *attempt) throughStub(p *stubProgram) ([]string, error) {
	report, writer, err := pipe()
	if err != nil {
		return nil, err
	}
	a.report = report
	fd, err := strconv.Atoi(a.pass(writer))
	if err != nil {
		return nil, err
	}
	p.execute(a.command, a.plan.variable("PATH"))
	program, err := sealedProgram("stub", p.image(fd))
	if err != nil {
		return nil, err
	}
	return []string{"/proc/self/fd/" + a.pass(program)}, nil
}

// stubFailed says what the stub reported, if it reported anything. bwrap has ended.
func (a *attempt) stubFailed() error {
	what, errno, failed := readReport(a.report)
	if !failed {
		return nil
	}
	if what != reportCommand {
		return &SetupError{Why: "the last preparations inside: " + errno.Error()}
	}
	if errno == unix.EACCES {
		return &CommandError{Name: a.command[0], Found: true, Why: errno.Error()}
	}
	return cannotExecute(a.command[0])
}

// readReport reads a stub's report, if there is one. Nobody has the other end any more.
func readReport(report descriptor) (what byte, errno unix.Errno, failed bool) {
	if report == 0 {
		return 0, 0, false
	}
	said := make([]byte, 5)
	if n, _ := unix.Read(int(report), said); n < len(said) {
		return 0, 0, false
	}
	return said[0], unix.Errno(-int32(binary.LittleEndian.Uint32(said[1:]))), true
}

// sealedProgram is sealed, for a program.
func sealedProgram(name string, text []byte) (descriptor, error) {
	d, err := sealed(name, text, unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 all were
		d, err = sealed(name, text, 0)
	}
	return d, err
}

// Package seccomp is the filter of system calls that every command has (seccomp(2)): a table of
// what is refused, with the reason of each row, and the program that is made of it for the kernel.
// It knows nothing of sandboxes but whether a command may nest another one.
package seccomp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A Rule refuses one system call, or one form of it.
type Rule struct {
	Call         string
	AMD64, ARM64 uint32      // its numbers
	When         []Condition // all must hold; none always holds
	Errno        unix.Errno
	UnlessNested bool // allowed where the command may make user namespaces
	Reason       string
}

// None stands for the number of a call that an architecture does not have.
const None = ^uint32(0)

// A Condition looks at one argument: argument&Mask is one of In, or none of NotIn. The kernel looks
// at the low 32 bits of these arguments only, and so does the filter: a request with high bits set
// is the same one.
type Condition struct {
	Argument  int // from 0
	Mask      uint32
	In, NotIn []uint32
}

// Number is that of the call on an architecture.
func (r Rule) Number(goarch string) uint32 {
	switch goarch {
	case "amd64":
		return r.AMD64
	case "arm64":
		return r.ARM64
	}
	return None
}

// Rules are those that hold for a sandbox.
func Rules(nestedNamespaces bool) []Rule {
	rules := make([]Rule, 0, len(table))
	for _, rule := range table {
		if !rule.UnlessNested || !nestedNamespaces {
			rules = append(rules, rule)
		}
	}
	return rules
}

// auditArch are the kernel's names for the architectures whose system call numbers the rules have.
var auditArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// x32Bit marks system calls of the x32 interface, which is another table of calls under the same
// architecture.
const x32Bit = 0x40000000

// Assemble assembles the filter for bwrap's --seccomp: struct sock_filter records in native byte
// order (seccomp(2)). It allows what no rule refuses, and nothing of another architecture's.
//
// A call's number is looked for in a tree: when a filter is loaded, the kernel runs it once for
// each number that there is, to know which calls it need not ask about, and bwrap loads it twice. A
// list of all numbers in place of the tree takes 0.25 ms more of each start.
func Assemble(goarch string, rules []Rule) ([]byte, error) {
	arch, known := auditArch[goarch]
	if !known {
		return nil, fmt.Errorf("no system call filter for the architecture %s", goarch)
	}
	f := filter{returns: map[uint32]int{}}
	allow := f.answer(unix.SECCOMP_RET_ALLOW)
	refusals := map[uint32]int{} // where the rules for a number begin
	for _, rule := range slices.Backward(rules) {
		if number := rule.Number(goarch); number != None {
			otherwise, more := refusals[number]
			if !more {
				otherwise = allow
			}
			refusals[number] = f.rule(rule, otherwise)
		}
	}
	ranges := []numberRange{{0, allow}}
	for _, number := range slices.Sorted(maps.Keys(refusals)) {
		for _, from := range []uint32{number, number + 1} {
			then, is := refusals[from]
			if !is {
				then = allow
			}
			if then != ranges[len(ranges)-1].then {
				ranges = append(ranges, numberRange{from, then})
			}
		}
	}
	next := f.tree(ranges)
	if goarch == "amd64" {
		next = f.jump(bpf.JumpBitsSet, x32Bit, f.answer(refused(unix.ENOSYS)), next)
	}
	next = f.load(offsetNr, next)
	next = f.jump(bpf.JumpEqual, arch, next, f.answer(refused(unix.ENOSYS)))
	f.load(offsetArch, next)
	return f.text()
}

// Where the fields of struct seccomp_data lie.
const offsetNr, offsetArch, offsetArguments = 0, 4, 16

func refused(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }

// A filter is a program that is put together from its end: jumps only lead forward, so where one
// leads is known when it is made. A place is the number of an instruction, counted from the end.
type filter struct {
	backward []bpf.Instruction
	returns  map[uint32]int // where the answers are
	tooFar   bool           // for a jump
}

// A numberRange is the calls from a number on, up to the next one's, and where it goes on for them.
type numberRange struct {
	from uint32
	then int
}

func (f *filter) add(i bpf.Instruction) (place int) {
	f.backward = append(f.backward, i)
	return len(f.backward) - 1
}

// answer is the place that ends with an answer.
func (f *filter) answer(value uint32) int {
	place, is := f.returns[value]
	if !is {
		place = f.add(bpf.RetConstant{Val: value})
		f.returns[value] = place
	}
	return place
}

// jump goes on at one place if a test of what was loaded holds, and at the other one if not.
func (f *filter) jump(test bpf.JumpTest, value uint32, holds, holdsNot int) int {
	here := len(f.backward)
	f.tooFar = f.tooFar || here-1-min(holds, holdsNot) > math.MaxUint8
	return f.add(bpf.JumpIf{Cond: test, Val: value, SkipTrue: uint8(here - 1 - holds), SkipFalse: uint8(here - 1 - holdsNot)})
}

// before adds an instruction behind which it goes on at a place.
func (f *filter) before(then int, i bpf.Instruction) int {
	if last := len(f.backward) - 1; then != last {
		f.add(bpf.Jump{Skip: uint32(last - then)})
	}
	return f.add(i)
}

// load loads a word, and goes on at a place.
func (f *filter) load(offset uint32, then int) int {
	return f.before(then, bpf.LoadAbsolute{Off: offset, Size: 4})
}

// tree looks for the range of the number that is loaded.
func (f *filter) tree(ranges []numberRange) int {
	if len(ranges) == 1 {
		return ranges[0].then
	}
	middle := len(ranges) / 2
	above, below := f.tree(ranges[middle:]), f.tree(ranges[:middle])
	return f.jump(bpf.JumpGreaterOrEqual, ranges[middle].from, above, below)
}

// rule refuses the call if all conditions hold, and otherwise goes on elsewhere.
func (f *filter) rule(r Rule, otherwise int) int {
	next := f.answer(refused(r.Errno))
	for _, c := range slices.Backward(r.When) {
		next = f.condition(c, next, otherwise)
	}
	return next
}

func (f *filter) condition(c Condition, holds, holdsNot int) int {
	values, found, next := c.In, holds, holdsNot
	if c.NotIn != nil {
		values, found, next = c.NotIn, holdsNot, holds
	}
	for _, value := range slices.Backward(values) {
		next = f.jump(bpf.JumpEqual, value, found, next)
	}
	if c.Mask != all {
		next = f.before(next, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: c.Mask})
	}
	return f.load(uint32(offsetArguments+8*c.Argument), next) // the low word stands first: both architectures are little-endian
}

// text is the program as the kernel takes it.
func (f *filter) text() ([]byte, error) {
	if f.tooFar {
		return nil, errors.New("the system call filter has a jump that is too long")
	}
	slices.Reverse(f.backward)
	raw, err := bpf.Assemble(f.backward)
	if err != nil {
		return nil, err
	}
	text := make([]byte, 0, 8*len(raw))
	for _, instruction := range raw {
		text = binary.NativeEndian.AppendUint16(text, instruction.Op)
		text = append(text, instruction.Jt, instruction.Jf)
		text = binary.NativeEndian.AppendUint32(text, instruction.K)
	}
	return text, nil
}

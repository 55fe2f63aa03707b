package sandbox

import (
	"encoding/binary"
	"fmt"
	"runtime"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A syscallRule refuses one system call, or one form of it.
type syscallRule struct {
	call         string
	amd64, arm64 uint32      // its numbers
	when         []condition // all must hold; none always holds
	errno        unix.Errno
	unlessNested bool // allowed where the command may make user namespaces
	reason       string
}

// none stands for the number of a call that an architecture does not have.
const none = ^uint32(0)

// A condition looks at one argument: argument&mask is one of in, or none of notIn. The kernel looks at the low 32 bits of
// these arguments only, and so does the filter: a request with high bits set is the same one.
type condition struct {
	argument  int // from 0
	mask      uint32
	in, notIn []uint32
}

// number is that of the call on an architecture.
func (r syscallRule) number(goarch string) uint32 {
	switch goarch {
	case "amd64":
		return r.amd64
	case "arm64":
		return r.arm64
	}
	return none
}

// rulesFor are the rules that hold for a plan.
func rulesFor(nestedNamespaces bool) []syscallRule {
	rules := make([]syscallRule, 0, len(syscallRules))
	for _, rule := range syscallRules {
		if !rule.unlessNested || !nestedNamespaces {
			rules = append(rules, rule)
		}
	}
	return rules
}

// auditArch are the kernel's names for the architectures whose system call numbers the rules have.
var auditArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// x32Bit marks system calls of the x32 interface, which is another table of calls under the same architecture.
const x32Bit = 0x40000000

// seccompProgram assembles the filter for bwrap's --seccomp: struct sock_filter records in native byte order
// (seccomp(2)). It allows what no rule refuses, and nothing of another architecture's.
func seccompProgram(goarch string, rules []syscallRule) ([]byte, error) {
	arch, known := auditArch[goarch]
	if !known {
		return nil, fmt.Errorf("no system call filter for the architecture %s", goarch)
	}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1},
		refuse(unix.ENOSYS),
		bpf.LoadAbsolute{Off: offsetNr, Size: 4},
	}
	if goarch == "amd64" {
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: x32Bit, SkipTrue: 1},
			refuse(unix.ENOSYS))
	}
	for _, rule := range rules {
		number := rule.number(goarch)
		if number == none {
			continue
		}
		block := rule.block()
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: number, SkipTrue: uint8(len(block))})
		program = append(program, block...)
	}
	program = append(program, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})

	raw, err := bpf.Assemble(program)
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

// Where the fields of struct seccomp_data lie.
const offsetNr, offsetArch, offsetArguments = 0, 4, 16

func refuse(errno unix.Errno) bpf.Instruction {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

// block refuses the call if all conditions hold, and otherwise leaves the call's number loaded for the next rule.
func (r syscallRule) block() []bpf.Instruction {
	block := []bpf.Instruction{refuse(r.errno)}
	if r.when == nil {
		return block
	}
	block = append(block, bpf.LoadAbsolute{Off: offsetNr, Size: 4})
	for i := len(r.when) - 1; i >= 0; i-- {
		block = append(r.when[i].instructions(uint8(len(block)-1)), block...)
	}
	return block
}

// instructions go on behind themselves if the condition holds, and otherwise pass over what follows up to the block's
// last instruction, which is that many further on.
func (c condition) instructions(further uint8) []bpf.Instruction {
	list := []bpf.Instruction{ // the low word stands first: both architectures are little-endian
		bpf.LoadAbsolute{Off: uint32(offsetArguments + 8*c.argument), Size: 4},
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: c.mask},
	}
	values, holds, holdsNot := c.in, uint8(0), further
	if c.notIn != nil {
		values, holds, holdsNot = c.notIn, further, 0
	}
	for i, value := range values {
		left := uint8(len(values) - 1 - i)
		jump := bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: left + holds}
		if left == 0 {
			jump.SkipFalse = holdsNot
		}
		list = append(list, jump)
	}
	return list
}

// seccompFilter is the filter of this machine for a plan.
func (p *Plan) seccompFilter() ([]byte, error) {
	return seccompProgram(runtime.GOARCH, rulesFor(p.NestedNamespaces))
}

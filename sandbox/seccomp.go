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
	name  string
	calls map[string]uint32 // number by GOARCH
	// arg, where it is given, is the argument that decides: the rule holds if arg&mask is one of values. The kernel looks
	// at the low 32 bits of these arguments only, and so does the filter: a request with high bits set is the same one.
	arg    *argument
	errno  unix.Errno
	reason string
}

type argument struct {
	index  int
	mask   uint32
	values []uint32
}

// syscallRules is what no command in a sandbox may ask of the kernel.
func syscallRules(nestedNamespaces bool) []syscallRule {
	newUser := &argument{index: 0, mask: unix.CLONE_NEWUSER, values: []uint32{unix.CLONE_NEWUSER}}
	rules := []syscallRule{
		{"ioctl", map[string]uint32{"amd64": 16, "arm64": 29},
			&argument{index: 1, mask: ^uint32(0), values: []uint32{unix.TIOCSTI, unix.TIOCLINUX}}, unix.EPERM,
			"TIOCSTI types into the caller's terminal (CVE-2017-5226), TIOCLINUX pastes into a console (CVE-2023-28100)"},
	}
	if !nestedNamespaces {
		rules = append(rules,
			syscallRule{"clone", map[string]uint32{"amd64": 56, "arm64": 220}, newUser, unix.EPERM,
				"a user namespace brings capabilities, and with them most of the kernel's attack surface"},
			syscallRule{"unshare", map[string]uint32{"amd64": 272, "arm64": 97}, newUser, unix.EPERM,
				"the same by another way"},
			syscallRule{"clone3", map[string]uint32{"amd64": 435, "arm64": 435}, nil, unix.ENOSYS,
				"its flags are in memory, where a filter cannot look; libc falls back to clone"},
		)
	}
	return rules
}

// auditArch are the kernel's names for the architectures whose system call numbers syscallRules has.
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
	refuse := func(errno unix.Errno) bpf.Instruction {
		return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
	}
	const offsetNr, offsetArch, offsetArgs = 0, 4, 16 // in struct seccomp_data
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
		nr := rule.calls[goarch]
		if rule.arg == nil {
			program = append(program,
				bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nr, SkipTrue: 1},
				refuse(rule.errno))
			continue
		}
		block := []bpf.Instruction{ // low word first: both architectures are little-endian
			bpf.LoadAbsolute{Off: uint32(offsetArgs + 8*rule.arg.index), Size: 4},
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: rule.arg.mask},
		}
		for _, value := range rule.arg.values {
			block = append(block,
				bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: value, SkipTrue: 1},
				refuse(rule.errno))
		}
		block = append(block, bpf.LoadAbsolute{Off: offsetNr, Size: 4}) // for the next rule
		program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: nr, SkipTrue: uint8(len(block))})
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

// seccompFilter is the filter of this machine for a plan.
func (p *Plan) seccompFilter() ([]byte, error) {
	return seccompProgram(runtime.GOARCH, syscallRules(p.NestedNamespaces))
}

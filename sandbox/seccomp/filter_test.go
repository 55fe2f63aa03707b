package seccomp

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The numbers of the other architecture cannot be had from constants: they are read where x/sys
// keeps them.
func TestTheRulesHaveTheKernelsNumbers(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil || len(dir) == 0 {
		t.Skipf("Go does not say here where the source of x/sys is: %v", err)
	}
	for _, goarch := range []string{"amd64", "arm64"} {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "unix", "zsysnum_linux_"+goarch+".go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range table {
			want := None
			if found := regexp.MustCompile(`SYS_` + strings.ToUpper(rule.Call) + `\s+= (\d+)\n`).FindSubmatch(text); found != nil {
				n, _ := strconv.Atoi(string(found[1]))
				want = uint32(n)
			}
			if got := rule.Number(goarch); got != want {
				t.Errorf("%s on %s: %d, want %d", rule.Call, goarch, got, want)
			}
		}
	}
}

var update = flag.Bool("update", false, "write docs/syscalls.md anew")

// TestTheDocumentHasTheTable holds docs/syscalls.md to the rules; -update writes it.
func TestTheDocumentHasTheTable(t *testing.T) {
	var text strings.Builder
	text.WriteString("# System calls that no command may make\n\n" +
		"Written by `go test -run TestTheDocumentHasTheTable ./sandbox/seccomp -update` from `sandbox/seccomp/rules.go`. All else is allowed.\n" +
		"Calls of another architecture's table (32-bit, x32) are refused with ENOSYS. A condition looks at the low 32 bits of an\n" +
		"argument, as the kernel does. Nesting is off but for `--allow-nesting`.\n\n" +
		"| call | refused if | answer | reason |\n|---|---|---|---|\n")
	for _, rule := range table {
		var when []string
		if rule.UnlessNested {
			when = append(when, "nesting is off")
		}
		for _, c := range rule.When {
			what, values := "is one of", c.In
			if c.NotIn != nil {
				what, values = "is none of", c.NotIn
			}
			mask := ""
			if c.Mask != all {
				mask = fmt.Sprintf(" & %#x", c.Mask)
			}
			when = append(when, fmt.Sprintf("argument %d%s %s %#x", c.Argument, mask, what, values))
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %s |\n", rule.Call, strings.Join(when, "; "), unix.ErrnoName(rule.Errno), rule.Reason)
	}
	path := filepath.Join("..", "..", "docs", "syscalls.md")
	if *update {
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != text.String() {
		t.Errorf("%s is not what the rules say (%v): write it with -update", path, err)
	}
}

// systemCall is one as the filter sees it.
type systemCall struct {
	number    uint32
	arguments [6]uint64
}

// verdict runs a filter over a call, as the kernel does: 0 if it is allowed, else the errno.
func verdict(t *testing.T, program []byte, arch uint32, call systemCall) unix.Errno {
	t.Helper()
	return verdicts(t, program)(arch, call)
}

func verdicts(t *testing.T, program []byte) func(arch uint32, call systemCall) unix.Errno {
	t.Helper()
	raw := make([]bpf.RawInstruction, len(program)/8)
	for i := range raw {
		text := program[8*i:]
		raw[i] = bpf.RawInstruction{Op: binary.NativeEndian.Uint16(text), Jt: text[2], Jf: text[3], K: binary.NativeEndian.Uint32(text[4:])}
	}
	instructions, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("the filter cannot be read back")
	}
	vm, err := bpf.NewVM(instructions)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 64) // struct seccomp_data; the machine reads words as a network has them
	return func(arch uint32, call systemCall) unix.Errno {
		t.Helper()
		binary.BigEndian.PutUint32(data[offsetNr:], call.number)
		binary.BigEndian.PutUint32(data[offsetArch:], arch)
		for i, argument := range call.arguments {
			binary.BigEndian.PutUint32(data[offsetArguments+8*i:], uint32(argument))
			binary.BigEndian.PutUint32(data[offsetArguments+8*i+4:], uint32(argument>>32))
		}
		result, err := vm.Run(data)
		switch {
		case err != nil:
			t.Fatal(err)
		case uint32(result) == unix.SECCOMP_RET_ALLOW:
			return 0
		case uint32(result)&^0xffff != unix.SECCOMP_RET_ERRNO:
			t.Fatalf("the filter answers %#x", result)
		}
		return unix.Errno(result & 0xffff)
	}
}

// byTheTable is what the table says of a Call: the first rule that refuses it counts.
func byTheTable(goarch string, arch uint32, rules []Rule, call systemCall) unix.Errno {
	if arch != auditArch[goarch] || goarch == "amd64" && call.number&x32Bit != 0 {
		return unix.ENOSYS
	}
	for _, rule := range rules {
		refused := rule.Number(goarch) == call.number && call.number != None
		for _, c := range rule.When {
			value := uint32(call.arguments[c.Argument]) & c.Mask
			refused = refused && (c.In == nil || slices.Contains(c.In, value)) && (c.NotIn == nil || !slices.Contains(c.NotIn, value))
		}
		if refused {
			return rule.Errno
		}
	}
	return 0
}

// tellingArguments are combinations of those values by which the rules for a number tell calls
// apart, of such beside them, and of all with high bits.
func tellingArguments(goarch string, rules []Rule, number uint32) [][6]uint64 {
	values := [6][]uint64{}
	for i := range values {
		values[i] = []uint64{0}
	}
	for _, rule := range rules {
		if rule.Number(goarch) != number {
			continue
		}
		for _, c := range rule.When {
			of := &values[c.Argument]
			*of = append(*of, uint64(all), uint64(c.Mask), uint64(^c.Mask), 0xdead_beef_0000_0000)
			for _, value := range append(slices.Clone(c.In), c.NotIn...) {
				*of = append(*of, uint64(value), uint64(value)-1, uint64(value)+1, uint64(value|^c.Mask), 0xdead_beef_0000_0000|uint64(value))
			}
		}
	}
	list := [][6]uint64{{}}
	for i := range values {
		slices.Sort(values[i])
		var longer [][6]uint64
		for _, arguments := range list {
			for _, value := range slices.Compact(values[i]) {
				arguments[i] = value
				longer = append(longer, arguments)
			}
		}
		list = longer
	}
	return list
}

// The table is the measure of what is made of it: every number that there may be, of each
// architecture, with all arguments that count.
func TestTheFilterSaysOfEveryCallWhatTheTableSays(t *testing.T) {
	for goarch := range auditArch {
		for _, nested := range []bool{false, true} {
			rules := Rules(nested)
			program, err := Assemble(goarch, rules)
			if err != nil {
				t.Fatal(err)
			}
			verdictOf := verdicts(t, program)
			tried := map[unix.Errno]int{}
			numbers := []uint32{x32Bit - 1, 1<<31 - 1, 1 << 31, 1<<31 | 165, ^uint32(0) - 1, ^uint32(0)}
			for number := range uint32(2048) {
				numbers = append(numbers, number, x32Bit|number)
			}
			for _, number := range numbers {
				for _, arch := range []uint32{unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_AARCH64, unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_ARM, unix.AUDIT_ARCH_AARCH64 + 1, 0} {
					list := [][6]uint64{{}, {^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}}
					if arch == auditArch[goarch] {
						list = append(list, tellingArguments(goarch, rules, number)...)
					}
					for _, arguments := range list {
						call := systemCall{number, arguments}
						got, want := verdictOf(arch, call), byTheTable(goarch, arch, rules, call)
						if got != want {
							t.Fatalf("%s, nested %v: call %d%x of architecture %#x: %v, want %v", goarch, nested, number, arguments, arch, got, want)
						}
						tried[got]++
					}
				}
			}
			if tried[0] < 5000 || tried[unix.EPERM] < 100 || tried[unix.EPROTONOSUPPORT] < 1000 || tried[unix.EAFNOSUPPORT] < 1000 {
				t.Errorf("%s, nested %v: too little was tried: %v", goarch, nested, tried)
			}
			if n := len(program) / 8; n > 200 {
				t.Errorf("%s, nested %v: %d instructions, of which each makes every start longer", goarch, nested, n)
			}
		}
	}
}

func TestWhatTheFilterAllowsAndRefuses(t *testing.T) {
	const highBits = 0xdead_beef_0000_0000
	type call struct {
		name      string
		arguments [6]uint64
		errno     unix.Errno
		nested    unix.Errno // with nested namespaces
	}
	of := func(arguments ...uint64) (list [6]uint64) { copy(list[:], arguments); return }
	cases := []call{
		{"ioctl", of(0, unix.TIOCSTI), unix.EPERM, unix.EPERM},
		{"ioctl", of(0, highBits|unix.TIOCSTI), unix.EPERM, unix.EPERM},
		{"ioctl", of(0, unix.TIOCLINUX), unix.EPERM, unix.EPERM},
		{"ioctl", of(0, unix.TIOCSETD), unix.EPERM, unix.EPERM},
		{"ioctl", of(0, highBits|unix.TIOCSETD), unix.EPERM, unix.EPERM},
		{"ioctl", of(0, unix.TIOCEXCL), unix.EPERM, unix.EPERM},
		{"ioctl", of(0, unix.TIOCNXCL), 0, 0},
		{"ioctl", of(0, 0x4b49), unix.EPERM, unix.EPERM},          // KDSKBSENT
		{"ioctl", of(0, highBits|0x4b45), unix.EPERM, unix.EPERM}, // KDSKBMODE
		{"ioctl", of(0, 0x5606), unix.EPERM, unix.EPERM},          // VT_ACTIVATE
		{"ioctl", of(0, 0xc0045600), 0, 0},                        // another driver's
		{"ioctl", of(0, unix.TIOCGWINSZ), 0, 0},
		{"ioctl", of(0, unix.TIOCSPTLCK), 0, 0},
		{"ioctl", of(0, unix.TIOCSCTTY), 0, 0},
		{"ioctl", of(0, 0x5421), 0, 0}, // FIONBIO
		{"ioctl", of(0, unix.TCSETS), 0, 0},
		{"clone", of(uint64(syscall.SIGCHLD)), 0, 0},
		{"clone", of(unix.CLONE_NEWUSER | uint64(syscall.SIGCHLD)), unix.EPERM, 0},
		{"clone", of(highBits | unix.CLONE_NEWUSER), unix.EPERM, 0},
		{"clone", of(unix.CLONE_VM | unix.CLONE_THREAD), 0, 0},
		{"unshare", of(unix.CLONE_NEWUSER | unix.CLONE_NEWNS), unix.EPERM, 0},
		{"unshare", of(unix.CLONE_FILES), 0, 0},
		{"clone3", of(), unix.ENOSYS, 0},
		{"setns", of(), unix.EPERM, 0},
		{"mount", of(), unix.EPERM, 0},
		{"fsopen", of(), unix.ENOSYS, unix.ENOSYS},
		{"socket", of(unix.AF_UNIX, unix.SOCK_SEQPACKET), 0, 0},
		{"socket", of(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK), 0, 0},
		{"socket", of(unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP), 0, 0},
		{"socket", of(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP), 0, 0},
		{"socket", of(unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP), 0, 0},
		{"socket", of(unix.AF_INET, unix.SOCK_SEQPACKET), unix.ESOCKTNOSUPPORT, unix.ESOCKTNOSUPPORT},
		{"socket", of(unix.AF_INET6, 6 /* SOCK_DCCP */), unix.ESOCKTNOSUPPORT, unix.ESOCKTNOSUPPORT},
		{"socket", of(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP), unix.EPROTONOSUPPORT, unix.EPROTONOSUPPORT},
		{"socket", of(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE), 0, 0},
		{"socket", of(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER), unix.EPROTONOSUPPORT, unix.EPROTONOSUPPORT},
		{"socket", of(highBits|unix.AF_NETLINK, unix.SOCK_RAW, highBits|unix.NETLINK_SOCK_DIAG), unix.EPROTONOSUPPORT, unix.EPROTONOSUPPORT},
		{"socket", of(unix.AF_VSOCK, unix.SOCK_STREAM), unix.EAFNOSUPPORT, unix.EAFNOSUPPORT},
		{"socket", of(unix.AF_PACKET, unix.SOCK_RAW), unix.EAFNOSUPPORT, unix.EAFNOSUPPORT},
		{"socket", of(unix.AF_ALG), unix.EAFNOSUPPORT, unix.EAFNOSUPPORT},
		{"fchmodat", of(0, 0, 0o755), 0, 0},
		{"fchmodat", of(0, 0, 0o4755), unix.EPERM, unix.EPERM},
		{"openat", of(0, 0, unix.O_CREAT|unix.O_WRONLY, 0o644), 0, 0},
		{"openat", of(0, 0, unix.O_RDONLY, 0o4755), 0, 0},
		{"openat", of(0, 0, unix.O_CREAT|unix.O_WRONLY, highBits|0o4755), unix.EPERM, unix.EPERM},
		{"mknodat", of(0, 0, 0o4755), unix.EPERM, unix.EPERM},
		{"openat2", of(), unix.ENOSYS, unix.ENOSYS},
		{"personality", of(0), 0, 0},
		{"personality", of(0xffffffff), 0, 0},
		{"personality", of(addressNoRandomize), 0, 0},
		{"personality", of(personalityLinux32), 0, 0},
		{"personality", of(0x0400000 /* READ_IMPLIES_EXEC */), unix.EPERM, unix.EPERM},
		{"personality", of(0x4000001 /* PER_SVR4 */), unix.EPERM, unix.EPERM},
		{"ptrace", of(), 0, 0},
		{"seccomp", of(), 0, 0},
		{"landlock_create_ruleset", of(), 0, 0},
	}
	for _, name := range []string{"io_uring_setup", "bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key",
		"open_by_handle_at", "finit_module", "kexec_file_load", "syslog"} {
		cases = append(cases, call{name, of(), unix.EPERM, unix.EPERM})
	}
	others := map[string]map[string]uint32{
		"amd64": {"ptrace": 101, "seccomp": 317, "landlock_create_ruleset": 444},
		"arm64": {"ptrace": 117, "seccomp": 277, "landlock_create_ruleset": 444},
	}
	for goarch, arch := range auditArch {
		for _, nested := range []bool{false, true} {
			program, err := Assemble(goarch, Rules(nested))
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range cases {
				number, known := others[goarch][c.name]
				if i := slices.IndexFunc(table, func(r Rule) bool { return r.Call == c.name }); i >= 0 {
					number, known = table[i].Number(goarch), true
				}
				if !known {
					t.Fatalf("no number for %s", c.name)
				}
				want := c.errno
				if nested {
					want = c.nested
				}
				if got := verdict(t, program, arch, systemCall{number, c.arguments}); got != want {
					t.Errorf("%s, nested %v: %s%v: %v, want %v", goarch, nested, c.name, c.arguments, got, want)
				}
			}
			for number := range uint32(1024) {
				if got := verdict(t, program, unix.AUDIT_ARCH_I386, systemCall{number: number}); got != unix.ENOSYS {
					t.Fatalf("%s: call %d of another architecture: %v", goarch, number, got)
				}
			}
		}
	}
	program, _ := Assemble("amd64", Rules(false))
	if got := verdict(t, program, unix.AUDIT_ARCH_X86_64, systemCall{number: x32Bit | 1}); got != unix.ENOSYS {
		t.Errorf("a call of x32: %v", got)
	}
}

package sandbox

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/seccomp"
)

func init() { helpers["system calls"] = trySystemCalls }

// trySystemCalls makes each refused call for real and prints what came of it.
func trySystemCalls() {
	for _, rule := range seccomp.Rules(false) {
		arguments := [6]uintptr{}
		if rule.When != nil {
			arguments = forbiddenArguments(rule)
		}
		number := rule.Number(runtime.GOARCH)
		if number == seccomp.None {
			continue
		}
		_, _, errno := unix.RawSyscall6(uintptr(number), arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5])
		fmt.Printf("%s %v %d %d\n", rule.Call, arguments, errno, rule.Errno)
	}
	page := make([]byte, 1)
	_, _, errno := unix.RawSyscall(unix.SYS_PTRACE, unix.PTRACE_PEEKDATA, 0, uintptr(unsafe.Pointer(&page[0])))
	fmt.Printf("ptrace [] %d %d\n", errno, unix.ESRCH) // no such process, and no refusal
}

// forbiddenArguments are some that a rule refuses.
func forbiddenArguments(rule seccomp.Rule) (arguments [6]uintptr) {
	for _, c := range rule.When {
		value := uint32(0x3f)
		switch {
		case c.In != nil:
			value = c.In[0]
		case value&c.Mask == 0:
			value = c.Mask
		}
		arguments[c.Argument] = uintptr(value & c.Mask)
	}
	if rule.Call == "socket" && arguments[1] == 0 {
		arguments[1] = unix.SOCK_STREAM
	}
	return arguments
}

func TestTheKernelRefusesWhatTheRulesRefuse(t *testing.T) {
	h := newHost(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h.grant(self, profile.ReadOnly)
	h.profile.Environment = append(h.profile.Environment, profile.Variable{Name: "CLAI_SANDBOX_TEST_HELPER", Value: "system calls"})
	tried := lines(h.sh(self))
	for _, line := range tried {
		fields := strings.Fields(line)
		if got, want := fields[len(fields)-2], fields[len(fields)-1]; got != want {
			t.Errorf("%s: errno %s, want %s", line, got, want)
		}
	}
	if len(tried) < 40 {
		t.Errorf("only %d calls were tried:\n%s", len(tried), strings.Join(tried, "\n"))
	}
}

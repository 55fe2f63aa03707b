package sandbox

import (
	"bufio"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/clairun/clai-sandbox/sandbox/process"
)

func TestTheCommandHasASessionOfItsOwnUnlessItSharesTheTerminal(t *testing.T) {
	h := newHost(t)
	session := func() string { return strings.TrimSpace(h.sh("cut -d' ' -f6 /proc/self/stat")) }
	if got := session(); got == "0" { // a session from outside has no number inside
		t.Error("the command is in the caller's session")
	}
	h.launcher.Terminal = true
	if got := session(); got != "0" {
		t.Errorf("the command on a terminal is in session %s", got)
	}
}

func TestControlCOnATerminalWithAndWithoutAGuardNamespace(t *testing.T) {
	for _, s := range terminalSignals {
		signal.Notify(make(chan os.Signal, 1), s) // so that children do not ignore them, wherever the tests run
	}
	for _, guard := range []string{"plain", "best"} {
		for script, want := range map[string]string{
			"trap 'echo interrupted; exit 5' INT; echo ready; while :; do sleep 0.05; done": "exit status 5",
			"echo ready; exec sleep 1000": "exit status 130",
		} {
			h := newHost(t)
			cmd := h.launch("/bin/sh", "-c", script)
			cmd.Env = append(cmd.Env, "CLAI_SANDBOX_TEST_GUARD="+guard)
			keys, err := pty.Start(cmd)
			if err != nil {
				t.Fatal(err)
			}
			screen := bufio.NewReader(keys)
			if line, err := screen.ReadString('\n'); strings.TrimSpace(line) != "ready" {
				t.Fatalf("%s: %q, %v", guard, line, err)
			}
			if _, err := keys.WriteString("\x03"); err != nil {
				t.Fatal(err)
			}
			rest, _ := io.ReadAll(screen)
			if err := cmd.Wait(); err == nil || err.Error() != want {
				t.Errorf("%s: %s: %v, want %s; %q", guard, script, err, want, rest)
			}
			keys.Close()
		}
	}
}

func TestWithoutAGuardNamespaceATimeoutStillEndsTheTree(t *testing.T) {
	h := newHost(t)
	h.launcher.guard = process.GuardPlain
	h.launcher.Grace = DefaultGrace / 20
	h.profile.Limits.Timeout = time.Second // when the set-up is over: before that, who is killed without a guard may leave something
	for _, script := range []string{"sleep 1000", "trap '' TERM; setsid sleep 1000 & sleep 1000; sleep 1000"} {
		if r := h.run("/bin/sh", "-c", script); r.Outcome != TimedOut {
			t.Errorf("%s: %+v, %v", script, r.Result, r.Failure)
		}
	}
	if r := h.run("/bin/sh", "-c", "kill -KILL $$"); r.Signal != syscall.SIGKILL && r.Outcome != TimedOut {
		t.Errorf("%+v, %v", r.Result, r.Failure)
	}
}

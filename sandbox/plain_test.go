package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// plainOnATerminal starts a shell script without a guard namespace, as on a host whose AppArmor
// lets bwrap alone make user namespaces. What it shows is read until a deadline.
func (h *host) plainOnATerminal(script string) (*exec.Cmd, *os.File) {
	h.t.Helper()
	for _, s := range append([]syscall.Signal{syscall.SIGHUP}, terminalSignals...) {
		signal.Notify(make(chan os.Signal, 1), s) // so that children do not ignore them, wherever the tests run
	}
	cmd := h.launch("/bin/sh", "-c", script)
	cmd.Env = append(cmd.Env, "CLAI_SANDBOX_TEST_GUARD=plain")
	screen, err := pty.Start(cmd)
	if err == nil {
		err = screen.SetReadDeadline(time.Now().Add(20 * time.Second))
	}
	if err != nil {
		h.t.Fatal(err)
	}
	waitTimeout := time.AfterFunc(20*time.Second, func() { cmd.Process.Kill() })
	h.t.Cleanup(func() {
		waitTimeout.Stop()
		screen.Close()
	})
	return cmd, screen
}

// shows reads the screen to a word.
func shows(t *testing.T, screen io.Reader, word string) {
	t.Helper()
	var read []byte
	for b := make([]byte, 1); !bytes.HasSuffix(read, []byte(word)); read = append(read, b[0]) {
		if n, err := screen.Read(b); n == 0 || err != nil {
			t.Fatalf("no %q on the screen: %q, %v", word, read, err)
		}
	}
}

func TestWithoutAGuardNamespaceTheTerminalsKeysAreTheCommands(t *testing.T) {
	h := newHost(t)
	for _, c := range []struct {
		name   string
		script string
		steps  []string // what the screen shows, and what is typed then
		status int
	}{
		{"Ctrl-C reaches it once, and the sandbox survives it",
			"n=0; trap 'n=$((n+1)); echo interrupt $n' INT; echo ready; while [ $n -lt 2 ]; do sleep 0.02; done; read line; echo $n in all; exit 5",
			[]string{"ready", "\x03", "interrupt 1", "\x03", "interrupt 2", "\n", "2 in all", ""}, 5},
		{"Ctrl-\\ ends it", "ulimit -c 0; echo ready; exec sleep 1000", []string{"ready", "\x1c"}, 131},
		{"it may ignore Ctrl-C", "trap '' INT; echo ready; read line; exit 6", []string{"ready", "\x03", "^C", "\n"}, 6},
		{"and its children with it", "trap '' INT; sh -c 'kill -INT $$; echo ready'; exit 7", []string{"ready", ""}, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd, screen := h.plainOnATerminal(c.script)
			for i := 0; i < len(c.steps); i += 2 {
				shows(t, screen, c.steps[i])
				if _, err := screen.WriteString(c.steps[i+1]); err != nil {
					t.Error(err)
				}
			}
			cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != c.status {
				t.Errorf("%v, want %d", cmd.ProcessState, c.status)
			}
		})
	}
}

func TestWithoutAGuardNamespaceClosingTheTerminalEndsTheSandbox(t *testing.T) {
	h := newHost(t)
	marker := fmt.Sprintf("marker-%d", rand.Uint32())
	cmd, screen := h.plainOnATerminal("trap '' HUP TERM; setsid sleep 1000 & echo ready; sleep 1000; : " + marker)
	shows(t, screen, "ready")
	screen.Close()
	cmd.Wait()
	waitUntil(t, "the sandbox is gone", func() bool { return processesNaming(marker) == nil })
}

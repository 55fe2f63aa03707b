package shell

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// started starts a program that starts another, and so on, and returns its process and that of the
// last one.
func started(t *testing.T, dir string, argv ...string) (first, last int) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Kill(-cmd.Process.Pid, unix.SIGKILL); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	last, err = strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, last
}

// The directory in which an agent starts a line decides nothing, nor does a shell in between.
func TestALineIsTheAgentsAndNotItsShells(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "agent")
	// The last process is a sleep, which tells its number by the shell that becomes it.
	if err := os.WriteFile(script, []byte("cd / && sh -c 'cd /tmp; sh -c \"echo \\$\\$; exec sleep 100\"; true'; true\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	agent, line := started(t, dir, "sh", script)
	o, err := OwnerOf(line)
	if err != nil || o.PID != agent || o.Directory != "/" || o.Program != "sh" {
		t.Errorf("%+v, %v; the agent is %d", o, err, agent)
	}
	if !o.Runs() || (Owner{PID: o.PID, Began: o.Began + 1}).Runs() {
		t.Error("it is not known by when it began")
	}
	unix.Kill(-agent, unix.SIGKILL)
	for o.Runs() {
		unix.Wait4(agent, nil, 0, nil)
	}
	if _, err := OwnerOf(line); err == nil {
		t.Error("told of a line whose agent has ended")
	}
}

// What stands between an agent and its line is left out, and a person's own shell is not.
func TestOnlyAShellWithALineStandsBetween(t *testing.T) {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	for words, want := range map[string]bool{"-c": true, "-lc": true, "-l -c": true, "-eu -c": true, "-s": false} {
		script := "echo $$; read x"
		argv := append([]string{"sh"}, strings.Fields(words)...)
		if want {
			argv = append(argv, script)
		} else {
			argv = []string{"sh", "-c", "exec sh -s <<'E'\n" + script + "\nsleep 100\nE"}
		}
		cmd := exec.Command(argv[0], argv[1:]...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if got := between(cmd.Process.Pid, self); got != want {
			t.Errorf("sh %s: %v", words, got)
		}
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	}
	if !between(os.Getpid(), self) {
		t.Error("this program itself is taken for an agent")
	}
}

func TestASandboxIsFoundByItsOwner(t *testing.T) {
	dir := t.TempDir()
	_, began, err := status(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	mine, gone := Owner{PID: os.Getpid(), Began: began}, Owner{PID: os.Getpid(), Began: began + 1}
	for _, name := range []string{gone.Name(), "owner-x", "b12345678"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("b87654321"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	forget, err := Keep(dir, mine, "b12345678")
	if err != nil {
		t.Fatal(err)
	}
	if got := Found(dir, mine) + Found(dir, gone); got != "b12345678" {
		t.Errorf("found %s", got)
	}
	again, err := Keep(dir, mine, "bffffffff")
	if err != nil {
		t.Fatal(err)
	}
	forget() // it is another's by now
	if got := Found(dir, mine); got != "bffffffff" {
		t.Errorf("found %s", got)
	}
	again()
	entries, err := os.ReadDir(dir)
	if got := fmt.Sprint(entries); err != nil || strings.Contains(got, mine.Name()) || strings.Contains(got, gone.Name()) || len(entries) != 2 {
		t.Errorf("%s, %v", got, err)
	}
}

// What an agent has read into its environment since it was started leads this program nowhere, also
// where it has started itself anew with it.
func TestWhatAnAgentReadSinceItsStartIsNotItsEnvironment(t *testing.T) {
	perl, err := exec.LookPath("perl")
	if err != nil {
		t.Skip(err)
	}
	t.Setenv("CHOSEN", "by the person")
	line := `$ENV{CHOSEN} = $ENV{READ} = "since"; system "sh", "-c", 'echo $$; exec sleep 100'`
	for how, argv := range map[string][]string{
		"once": {perl, "-e", line},
		"anew": {perl, "-e", `$ENV{CHOSEN} = "since"; system "sh", "-c", '"$@"; true', "sh", @ARGV`, perl, "-e", line},
	} {
		_, last := started(t, t.TempDir(), argv...)
		o, err := OwnerOf(last)
		if err != nil {
			t.Fatal(err)
		}
		environ, err := o.Environment()
		if text := strings.Join(environ, "\n") + "\n"; err != nil || !strings.Contains(text, "CHOSEN=by the person\n") || strings.Contains(text, "since") {
			t.Errorf("%s: %v, %q", how, err, text)
		}
		if _, err := (Owner{PID: o.PID, Began: o.Began + 1}).Environment(); err == nil {
			t.Errorf("%s: another process is taken for it", how)
		}
	}
	// A shell is where a person sets variables: they are the line's.
	script := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(script, []byte("sh -c 'echo $$; exec sleep 100'; true\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, last := started(t, "/", "sh", script)
	o, err := OwnerOf(last)
	if err != nil {
		t.Fatal(err)
	}
	if environ, err := o.Environment(); environ != nil || err != nil {
		t.Errorf("a shell: %q, %v", environ, err)
	}
}

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/outside/container"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
)

// TestMain makes the test binary the daemon and the program that asks, by the name under which it
// is started.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "clai-sandboxd":
		main()
		os.Exit(0)
	case client.AskName, client.HostExecName, client.AskPersonName:
		os.Exit(client.Programs[filepath.Base(os.Args[0])](context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	case answersName:
		os.Exit(answers())
	case notedName, askedName:
		os.Exit(noted())
	case inContainerName:
		os.Exit(container.Program(os.Args[1:], os.Stdout, os.Stderr))
	}
	if os.Getenv(asCommand) != "" {
		main()
		os.Exit(0)
	}
	// People type clai-sandbox, which hands approvals and explain over.
	testscript.Main(m, map[string]func(){"clai-sandbox": main})
}

// installed is a directory with both programs.
func installed(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for _, name := range []string{"clai-sandboxd", client.AskName, client.AskPersonName} {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}

// TestAnAgentAsksAndAPersonAnswers goes the whole way through the programs: the gateway is started
// on demand, a session is opened, its inside asks by the program that a sandbox shows, a person
// narrows the answer.
func TestAnAgentAsksAndAPersonAnswers(t *testing.T) {
	bin := installed(t)
	// Not where the programs are: nothing around those is granted for writing.
	home, err := os.MkdirTemp("/var/tmp", "clai-sandbox-test-")
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shuttest.RemoveAll(home) })
	t.Setenv("HOME", home)
	for name, dir := range map[string]string{"XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state", "XDG_RUNTIME_DIR": "run"} {
		t.Setenv(name, filepath.Join(home, dir))
	}
	os.MkdirAll(home+"/data/part", 0o700)
	caller, err := profile.CurrentCaller()
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(grants.SocketDirectory(caller.Directories()), grants.SocketName)
	c := &client.Client{Socket: socket, Start: client.Starter{Program: bin + "/clai-sandboxd", Args: []string{"gateway", "--idle", "1m"}, Socket: socket,
		Log: home + "/gateway.log"}.Start}
	status, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(status.PID, syscall.SIGKILL) })
	s, err := c.Open(t.Context(), grants.SessionSpec{Agent: "main", Workspace: home + "/work"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	run := func(name string, args ...string) (string, int) {
		command := exec.Command(bin+"/"+name, args...)
		command.Env = []string{client.SocketVariable + "=" + s.Socket}
		command.Dir = home
		out, err := command.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), command.ProcessState.ExitCode()
	}
	ask := func(args ...string) (string, int) { return run(client.AskName, args...) }
	type result struct {
		out    string
		status int
	}
	asked := make(chan result, 1)
	go func() {
		out, status := ask("data", "--access", "rw", "--reason", "to see\x1b[31m")
		asked <- result{out, status}
	}()
	waiting := func() grants.Request {
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if list, err := c.Pending(t.Context()); err == nil && len(list) == 1 {
				return list[0]
			}
		}
		t.Fatal("nobody asks")
		return grants.Request{}
	}
	r := waiting()
	if r.RequestedPath != home+"/data" || r.RequestedAccess != profile.ReadWrite || r.Agent != "main" {
		t.Errorf("%+v", r)
	}
	if _, err := c.Decide(t.Context(), r.ID, grants.Decision{Kind: grants.AllowAlways, Path: home + "/data/part", Access: profile.ReadOnly, Scope: grants.ScopeAlways}); err != nil {
		t.Fatal(err)
	}
	if got := <-asked; got.status != client.AskGranted || !strings.Contains(got.out, home+"/data/part read_only, which is less") {
		t.Errorf("%+v", got)
	}
	// In words, with and without an answer.
	go func() {
		out, status := run(client.AskPersonName, "which?", "--choice", "this", "--choice=that")
		asked <- result{out, status}
	}()
	r = waiting()
	if r.Question == nil || r.Question.Text != "which?" || strings.Join(r.Question.Choices, " ") != "this that" || r.Agent != "main" {
		t.Errorf("%+v", r)
	}
	if _, err := c.Decide(t.Context(), r.ID, grants.Decision{Kind: grants.GiveAnswer, Answer: "that"}); err != nil {
		t.Fatal(err)
	}
	if got := <-asked; got.status != client.AskGranted || !strings.HasSuffix("\n"+got.out, "\nthat\n") {
		t.Errorf("%+v", got)
	}
	go func() {
		out, status := run(client.AskPersonName, "--json", "why?")
		asked <- result{out, status}
	}()
	if _, err := c.Decide(t.Context(), waiting().ID, grants.Decision{Kind: grants.Deny, Reason: "\x1b[2J later"}); err != nil {
		t.Fatal(err)
	}
	if got := <-asked; got.status != client.AskDenied || !strings.Contains(got.out, `"outcome":"denied"`) || strings.Contains(got.out, "\x1b") {
		t.Errorf("%+v", got)
	}
	if out, status := ask(home + "/data/part/x"); status != client.AskGranted || !strings.Contains(out, "as before") {
		t.Errorf("%d: %s", status, out)
	}
	if out, status := ask("/proc/1/environ"); status != client.AskDenied || !strings.Contains(out, "never granted") {
		t.Errorf("%d: %s", status, out)
	}
	if out, status := ask("/a", "--reason", strings.Repeat("x", 2000)); status != client.AskMisused {
		t.Errorf("%d: %s", status, out)
	}
	if shown, notices := grants.Current(home+"/state/clai-sandbox", "main", time.Now()); len(shown) != 1 || len(notices) != 0 {
		t.Errorf("%+v %+v", shown, notices)
	}
}

func TestTheDaemonSaysWhatIsWrong(t *testing.T) {
	bin := installed(t)
	for _, args := range [][]string{{"gatway"}, {"gateway", "x"}, {"gateway", "--timeout", "0s"}, {"gateway", "--idle", "never"}} {
		command := exec.CommandContext(context.Background(), bin+"/clai-sandboxd", args...)
		out, err := command.CombinedOutput()
		if err == nil || command.ProcessState.ExitCode() != statusFailed || !strings.Contains(string(out), "clai-sandboxd: ") {
			t.Errorf("%q: %v: %s", args, err, out)
		}
	}
}

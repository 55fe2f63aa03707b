package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/integration/shell"
	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
	"github.com/clairun/clai-sandbox/sandbox"
	"github.com/clairun/clai-sandbox/sandbox/mounts/nomount"
)

// TestMain makes the test binary the command.
func TestMain(m *testing.M) {
	sandbox.InsideMain()
	if shell.Is(os.Args[0]) { // in place of a shell
		main()
	}
	testscript.Main(m, map[string]func(){
		"clai-sandbox": func() {
			if err := nomount.Apply(); err != nil {
				panic(err)
			}
			main()
		},
		client.AskName: main, client.HostExecName: main, client.AskPersonName: main, shellName: main, holderName: main,
		staysName: staysMain,
		// A fake: it says how it was started.
		"clai-sandboxd": func() {
			if os.Getenv(doesChanges) != "" {
				changesDaemon()
				return
			}
			fmt.Printf("%q\n", os.Args[1:])
		},
	})
}

// TestScripts runs the terminal sessions of testdata/script. Each has a home of its own, and a
// project in it, where it begins. They are not below /tmp, which every sandbox has its own of.
//
// Two words are theirs, besides those of testscript:
//
//	exits STATUS PROGRAM [ARGUMENT…]   like exec, with the exit status that must come of it
//	refused [OPTION…]                  clai-sandbox run with these options runs nothing: status 125, one line on
//	                                   stderr that a terminal can be shown, and no sign of the command
func TestScripts(t *testing.T) {
	root := newHome(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		WorkdirRoot:         root,
		RequireExplicitExec: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "refused": refused,
		},
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			env.Setenv("HOME", home)
			env.Setenv("USER", "somebody")
			env.Setenv("SHELL", "/bin/sh")
			env.Setenv("LANG", "C.UTF-8")
			// What cannot be written in a script, or should not be.
			env.Setenv("ESC", "\x1b")
			env.Setenv("NEWLINE", "\n")
			env.Setenv("BIDI", "\u202e")
			env.Setenv("LONG", strings.Repeat("n", 300))
			env.Cd = filepath.Join(home, "project")
			return os.MkdirAll(env.Cd, 0o755)
		},
	})
}

// newHome is a directory that goes with the test and is not below /tmp.
func newHome(t *testing.T) string {
	t.Helper()
	home, err := os.MkdirTemp("/var/tmp", "clai-sandbox-test-")
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shuttest.RemoveAll(home) })
	return home
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits status program [argument...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := statusOfScript(ts, args[1:]); got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

func statusOfScript(ts *testscript.TestScript, command []string) int {
	var exit *exec.ExitError
	err := ts.Exec(command[0], command[1:]...)
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	ts.Check(err)
	return 0
}

func refused(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: refused [option...]")
	}
	// Two marks, because the workspace may be one that the command could not write in.
	mark := ts.MkAbs("it-ran")
	command := append([]string{"clai-sandbox", "run"}, args...)
	status := statusOfScript(ts, append(command, "--", "sh", "-c", `echo it ran; touch "$0"`, mark))
	stdout, stderr := ts.ReadFile("stdout"), ts.ReadFile("stderr")
	_, err := os.Lstat(mark)
	line, rest, _ := strings.Cut(stderr, "\n")
	switch {
	case status != statusNoSandbox:
		ts.Fatalf("exit status %d, want %d", status, statusNoSandbox)
	case stdout != "" || err == nil:
		ts.Fatalf("something ran")
	case rest != "" || !strings.HasPrefix(line, "clai-sandbox: "):
		ts.Fatalf("not one line of clai-sandbox's on stderr: %q", stderr)
	case len(line) > 1000:
		ts.Fatalf("a line of %d bytes", len(line))
	case strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }):
		ts.Fatalf("a terminal would obey this: %q", line)
	}
}

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
)

// asCommand is set where the test binary is to be the command, whatever its name.
const asCommand = "CLAI_SANDBOXD_TEST_COMMAND"

// TestScripts runs the terminal sessions of testdata/script, each with a home and a project in it.
func TestScripts(t *testing.T) {
	root, err := os.MkdirTemp("/var/tmp", "clai-sandboxd-test-")
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shuttest.RemoveAll(root) })
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		WorkdirRoot:         root,
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "kept": kept, "altered": altered, "digest": digest, "layered": layered, "proposed": proposed, "printed": printed},
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			env.Setenv("HOME", home)
			env.Setenv("LANG", "C.UTF-8")
			env.Setenv("COMMANDS", strings.Split(env.Getenv("PATH"), string(os.PathListSeparator))[0])
			env.Setenv("BIDI", "\u202e")
			env.Setenv("NEWLINE", "\n")
			env.Cd = filepath.Join(home, "project")
			return os.MkdirAll(env.Cd, 0o755)
		},
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits status program [argument...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var status *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &status):
		got = status.ExitCode()
	default:
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// The configuration's words and the policy's are two lists, because neither room knows the other.
func TestTheConfigurationsWordsAreThePolicys(t *testing.T) {
	home := t.TempDir()
	for _, host := range []policy.Host{policy.HostSandbox, policy.HostGateway, policy.HostNode, policy.HostAuto} {
		for _, security := range []policy.Security{policy.SecurityDeny, policy.SecurityAllowlist, policy.SecurityFull} {
			for _, ask := range []policy.Ask{policy.AskAlways, policy.AskOnMiss, policy.AskOff} {
				text := `{"defaults": {"execution": {"outside": {"host": "` + host.String() + `", "security": "` + security.String() + `", "ask": "` + ask.String() + `"}}}}`
				if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				config, err := profile.Load(profile.Directories{Config: home})
				if err != nil {
					t.Fatal(err)
				}
				outside, err := config.Outside("")
				if err != nil || outside.Host != host.String() || outside.Security != security.String() || outside.Ask != ask.String() {
					t.Errorf("%s: %+v %v", text, outside, err)
				}
			}
		}
	}
}

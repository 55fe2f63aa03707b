package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/clairun/clai-sandbox/sandbox"
)

// TestMain makes the test binary the command, and the command's inner stage.
func TestMain(m *testing.M) {
	sandbox.InnerMain()
	testscript.Main(m, map[string]func(){"clai-sandbox": main})
}

// TestScripts runs the terminal sessions of testdata/script. Each has a home of its own, and a project in it, where it
// begins. They are not below /tmp, which every sandbox has its own of.
func TestScripts(t *testing.T) {
	root, err := os.MkdirTemp("/var/tmp", "clai-sandbox-script-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if root, err = filepath.EvalSymlinks(root); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		WorkdirRoot:         root,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			env.Setenv("HOME", home)
			env.Setenv("USER", "somebody")
			env.Setenv("SHELL", "/bin/sh")
			env.Cd = filepath.Join(home, "project")
			return os.MkdirAll(env.Cd, 0o755)
		},
	})
}

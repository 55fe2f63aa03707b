package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

// A script of the project says in its first line what of the person's a sandbox shows besides: a
// command may have written that line.
func TestAScriptOfTheProjectShowsNothingElse(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := write("bin/deploy", "#!/bin/sh\ntoken\n")
	node := write("bin/node", "program")
	write("bin/env", "program")
	mine := write("tools/mine", "#!"+secret+"\n")
	t.Setenv("PATH", filepath.Join(home, "bin")+":/usr/bin:/bin")
	c := profile.Caller{UID: os.Getuid(), Home: home, WorkingDirectory: filepath.Join(home, "project")}
	for first, want := range map[string]string{
		"#!" + secret:                      "",
		"#!/usr/bin/env deploy":            "",
		"#!" + home + "/bin/env node":      "",
		"#!/usr/bin/env -S deploy node":    "",
		"#!/usr/bin/env node":              node,
		"#!/usr/bin/env -S node --no-warn": node,
	} {
		script := write("project/run.sh", first+"\n")
		list := installed(script, c)
		if got := len(list) == 2; got != (want != "") || got && list[1].Path != want {
			t.Errorf("%s: %v", first, list)
		}
	}
	if list := installed(mine, c); len(list) != 2 || list[1].Path != secret {
		t.Errorf("the person's own: %v", list)
	}
	if err := os.Symlink(secret, filepath.Join(home, "project/link")); err != nil {
		t.Fatal(err)
	}
	tool := write("project/node_modules/tool/cli.js", "#!/usr/bin/env node\n")
	beside := filepath.Join(home, "project/node_modules/.bin/tool")
	if err := errors.Join(os.Mkdir(filepath.Dir(beside), 0o755), os.Symlink("../tool/cli.js", beside)); err != nil {
		t.Fatal(err)
	}
	if a := (agentRun{caller: c}); !a.isLed(filepath.Join(home, "project/link"), secret) || a.isLed(secret, secret) || a.isLed(beside, tool) {
		t.Error("a link in the project shows what it leads to")
	}
}

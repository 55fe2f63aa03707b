package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/preset"
	"github.com/clairun/clai-sandbox/sandbox"
)

// programs makes files that can be executed, by their names and texts, in a directory that PATH
// has.
func programs(t *testing.T, texts map[string]string) (dir string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	return dir
}

// A script that needs a shell, at whatever remove, has none where commands run apart.
func TestAnAgentThatIsAScriptForAShellRunsNothingApart(t *testing.T) {
	dir := programs(t, map[string]string{"program": "binary", "node": "binary"})
	write := func(name, first string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!"+first+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a := agentRun{program: &preset.Preset{Name: "mine", Program: "mine", ByShell: true}}
	byShell, byNode := write("by-shell", "/bin/sh"), write("by-node", "/usr/bin/env node")
	for path, want := range map[string]string{
		filepath.Join(dir, "program"):        "",
		byNode:                               "",
		"/bin/sh":                            "is a script for a shell",
		byShell:                              "is a script for a shell",
		write("by-script", byShell):          "is a script for a shell",
		write("by-env", "/usr/bin/env bash"): "is a script for a shell",
		write("by-env-s", "/usr/bin/env -S bash -e"):                  "is a script for a shell",
		write("twice", write("once", filepath.Join(dir, "by-shell"))): "is a script for a shell",
	} {
		err := a.checkApart(path)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.(*usage).why, want)) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	a.program.ByShell = false
	if err := a.checkApart(byNode); err == nil {
		t.Error("an agent of which nothing is known is kept apart")
	}
	a.program = nil
	if err := a.checkApart(byNode); err == nil {
		t.Error("a command without a preset is kept apart")
	}
}

// What a script's first line says is read as the kernel and env(1) do, and nothing else is an
// interpreter.
func TestWhatInterpretsAScript(t *testing.T) {
	dir := programs(t, map[string]string{"node": "binary", "python3.12": "binary", "tool": "binary"})
	script := filepath.Join(dir, "script")
	for text, want := range map[string][2]string{ // of the person's script, and of one that a command could have written
		"#!/usr/bin/env node\n":                {dir + "/node", dir + "/node"},
		"#!/usr/bin/env -S node -x\n":          {dir + "/node", dir + "/node"},
		"#!/usr/bin/env python3.12\n":          {dir + "/python3.12", dir + "/python3.12"},
		"#!/usr/bin/env tool\n":                {dir + "/tool", ""},
		"#!" + dir + "/node\n":                 {dir + "/node", ""},
		"#! /usr/bin/env node\n":               {dir + "/node", dir + "/node"},
		"#!/usr/bin/env nothing-of-the-kind\n": {},
		"#!/usr/bin/env node":                  {}, // no whole line
		"#!\n":                                 {},
		"":                                     {},
		"node\n":                               {},
		"#!" + strings.Repeat(" ", 300) + dir + "/node\n": {},
	} {
		if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		if got := [2]string{interpreter(script, false), interpreter(script, true)}; got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := interpreter(filepath.Join(dir, "none"), false); got != "" {
		t.Errorf("of no file: %q", got)
	}
}

// Scripts that name each other show a sandbox no more than five files.
func TestWhatAProgramConsistsOfIsBounded(t *testing.T) {
	dir := programs(t, map[string]string{"0": "binary"})
	path := filepath.Join(dir, "0")
	for i := range 8 {
		next := filepath.Join(dir, fmt.Sprint(i+1))
		if err := os.WriteFile(next, []byte("#!"+path+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		path = next
	}
	if list := installed(path, profile.Caller{UID: os.Getuid(), Home: "/nowhere"}); len(list) != 5 {
		t.Errorf("%d: %v", len(list), list)
	}
}

// When the agent has ended, nothing begins in its commands' sandbox.
func TestNoCommandBeginsWhenTheAgentHasEnded(t *testing.T) {
	r := &apartRun{door: func() {}}
	r.ended()
	if _, err := r.room(); err == nil || !strings.Contains(err.Error(), "the agent has ended") {
		t.Error(err)
	}
}

// What is kept of commands for the end is bounded, and each thing is kept once.
func TestWhatIsKeptOfCommandsForTheEndIsBounded(t *testing.T) {
	r := &apartRun{}
	for i := range 2 * maxApartNotices {
		n := sandbox.Notice{Kind: sandbox.NoticeProtected, Path: fmt.Sprint("/w/", i/2), Text: "was set aside"}
		r.note([]sandbox.Notice{n})
	}
	if len(r.notices) != maxApartNotices {
		t.Errorf("%d are kept", len(r.notices))
	}
	if r.note([]sandbox.Notice{{Kind: sandbox.NoticeProtected, Path: "/w/more"}}); len(r.notices) != maxApartNotices {
		t.Errorf("%d are kept", len(r.notices))
	}
}

// Without clai-shell beside this program, an agent's hook lets nothing run.
func TestAHookWithoutItsShellRefuses(t *testing.T) {
	var missing *sandbox.SetupError
	if path, err := shellPath(); !errors.As(err, &missing) { // the test's own program has none beside it
		t.Fatalf("%q, %v", path, err)
	}
	if status := hookProgram("", nil); status != hookRefuses {
		t.Errorf("without the program: %d", status)
	}
}

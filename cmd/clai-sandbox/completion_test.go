package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// complete asks a real shell what it offers for a command line, and wants the command itself never executed for that.
func complete(t *testing.T, shell, line string) []string {
	t.Helper()
	if _, err := exec.LookPath(shell); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	executed := filepath.Join(dir, "executed")
	write("clai-sandbox", "#!/bin/sh\ntouch "+executed+"\n", 0o755)
	script := write("script", completionScripts[shell](newApp().Commands), 0o644)
	os.Mkdir(filepath.Join(dir, "subdir"), 0o755)
	driver := map[string]string{
		"bash": `source "$1"; COMP_WORDS=($2); [[ $2 == *' ' ]] && COMP_WORDS+=(''); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _clai_sandbox; printf '%s\n' "${COMPREPLY[@]}"`,
		"fish": `source $argv[1]; complete -C "$argv[2]"`,
	}[shell]
	args := []string{"--norc", "--noprofile", "-c", driver, "bash", script, line}
	if shell == "fish" {
		args = []string{"--no-config", "-c", driver, script, line}
	}
	cmd := exec.Command(shell, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v %s", line, err, out)
	}
	if _, err := os.Stat(executed); err == nil {
		t.Errorf("%s: the command was executed to complete it", line)
	}
	var words []string
	for word := range strings.Lines(string(out)) {
		word, _, _ = strings.Cut(strings.TrimSpace(word), "\t")
		words = append(words, strings.TrimSuffix(word, "/"))
	}
	return words
}

func TestShellsCompleteFromTheSameDefinitions(t *testing.T) {
	for _, shell := range []string{"bash", "fish"} {
		t.Run(shell, func(t *testing.T) {
			for line, want := range map[string]string{
				"clai-sandbox ":                       "run explain doctor completion",
				"clai-sandbox run --net":              "--network",
				"clai-sandbox run --network ":         "enabled disabled",
				"clai-sandbox explain --session-bus ": "filtered allow deny",
				"clai-sandbox run --workspace sub":    "subdir",
				"clai-sandbox run --env HOM":          "HOME",
				"clai-sandbox completion ":            "bash zsh fish",
				"clai-sandbox run -- expr":            "expr",
			} {
				got := complete(t, shell, line)
				for word := range strings.FieldsSeq(want) {
					if !slices.Contains(got, word) {
						t.Errorf("%q offers %q, not %s", line, got, word)
					}
				}
			}
			for _, line := range []string{"clai-sandbox run -- make --net", "clai-sandbox run -- true --"} {
				if got := complete(t, shell, line); slices.Contains(got, "--network") {
					t.Errorf("%q offers our own options to another command: %q", line, got)
				}
			}
		})
	}
}

func TestTheZshCompletionIsZsh(t *testing.T) {
	if _, err := exec.LookPath("zsh"); err != nil {
		t.Skip(err)
	}
	cmd := exec.Command("zsh", "-f", "-c", `autoload -U compinit && compinit -D -u && source /dev/stdin && (( $+_comps[clai-sandbox] )) && whence -w _clai_sandbox`)
	cmd.Stdin = strings.NewReader(zshCompletion(newApp().Commands))
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "_clai_sandbox: function") {
		t.Errorf("%v: %s", err, out)
	}
}

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile/preset"
)

// conversations are where agents keep what was said, in all projects, and what they take for
// instructions the next time.
var conversations = []string{".claude/projects/-other/memory/MEMORY.md", ".claude/projects/-other/one.jsonl", ".claude/history.jsonl", ".claude/file-history/one/two",
	".claude/plans/one.md", ".claude/todos/one.json", ".codex/sessions/2026/one.jsonl", ".codex/archived_sessions/one.jsonl", ".codex/history.jsonl",
	".gemini/tmp/other/memory/MEMORY.md", ".gemini/tmp/bin/rg", ".gemini/history/other/one", ".local/share/goose/sessions/sessions.db", ".local/share/opencode/opencode.db",
	".local/share/opencode/storage/one.json"}

const otherProjects = "of another project"

// Each preset has a command that must succeed with it, by the real program where that is here, and
// one that must fail.
func TestEachPresetDoesWhatItSays(t *testing.T) {
	all, err := preset.Load("")
	if err != nil {
		t.Fatal(err)
	}
	agents, err := filepath.Abs("../../bin/agents/bin")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", agents+":"+os.Getenv("PATH"))
	files := []string{".gitconfig", "config", "ignore", "attributes", "env", "uv", "uvx", "history.jsonl"}
	for _, p := range all {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			m := newProject(t)
			m.write(".config/gh/hosts.yml", "a token")
			for _, path := range p.Paths {
				name := strings.TrimPrefix(path.Path, "~/")
				base := filepath.Base(name)
				if isFile := strings.Contains(strings.TrimPrefix(base, "."), ".") || slices.Contains(files, base); isFile {
					m.write(name, "")
				} else if err := os.MkdirAll(filepath.Join(m.home, name), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for _, path := range conversations {
				m.write(path, otherProjects)
			}
			in := func(words []string) ([]byte, error) {
				return m.command(append([]string{"clai-sandbox", "agent", "--unattended", "deny", "--preset", p.Name, "--"}, words...)...).CombinedOutput()
			}
			if out, err := in(p.Fails); err == nil || strings.Contains(string(out), "is not in your PATH") {
				t.Errorf("%v succeeded, or did not begin: %v: %s", p.Fails, err, out)
			}
			if out, err := in([]string{"grep", "-rs", otherProjects, m.home}); err == nil {
				t.Errorf("it reads what was said of other projects: %s", out)
			}
			in([]string{"sh", "-c", "cd; for f in " + strings.Join(conversations, " ") + "; do mkdir -p ${f%/*}; echo x >>$f; done"})
			for _, path := range conversations {
				if text, err := os.ReadFile(filepath.Join(m.home, path)); err != nil || string(text) != otherProjects {
					t.Errorf("%s is now %q, %v", path, text, err)
				}
			}
			if path, err := exec.LookPath(p.Succeeds[0]); err != nil || strings.HasPrefix(path, os.Getenv("HOME")+"/.") {
				t.Skipf("%s is not here, or only in a home", p.Succeeds[0])
			}
			if out, err := in(p.Succeeds); err != nil {
				t.Errorf("%v: %v: %s", p.Succeeds, err, out)
			}
		})
	}
}

package agents

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var ourWords = regexp.MustCompile(`(?m)clai-sandbox: .*\n?`)

// byShell are agents that run outside, as their makers sell them, with clai-shell for their
// commands: what install-agent wrote into their settings, and what else it takes until they run
// nothing otherwise.
var byShell = map[string]struct {
	arguments []string
	settings  func(m *machine) map[string]string // besides those of inside
	variables map[string]string
	byHand    bool // nothing is installed: settings have it
	reads     bool // the project's .env
}{
	"claude":   {arguments: []string{"--dangerously-skip-permissions"}, variables: map[string]string{"IS_SANDBOX": "1"}},
	"codex":    {arguments: []string{"-c", `approval_policy="never"`, "-c", `sandbox_mode="danger-full-access"`, "--dangerously-bypass-hook-trust"}},
	"gemini":   {arguments: []string{"--approval-mode=yolo"}, variables: map[string]string{"GEMINI_CLI_TRUST_WORKSPACE": "true"}, reads: true},
	"opencode": {variables: map[string]string{"OPENCODE_PERMISSION": `{"*":"allow"}`}},
	"claude by a hook": {
		arguments: []string{"--dangerously-skip-permissions"}, variables: map[string]string{"IS_SANDBOX": "1"}, byHand: true,
		settings: func(m *machine) map[string]string {
			hook := map[string]any{"matcher": "Bash", "hooks": []any{map[string]any{"type": "command", "command": filepath.Dir(m.command) + "/clai-shell --agent=claude --hook || exit 2"}}}
			return map[string]string{".claude/settings.json": object(map[string]any{"hooks": map[string]any{"PreToolUse": []any{hook}}})}
		},
	},
}

// The real agents run their commands in a sandbox of which they know nothing but that it is their
// shell; what each was told is in testdata/shell.
func TestRealAgentsRunTheirCommandsByOurShell(t *testing.T) {
	for name, with := range byShell {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			program, _, _ := strings.Cut(name, " ")
			is := inside[program]
			m := newMachine(t, installed(t, program))
			if _, err := os.Stat(filepath.Dir(m.command) + "/clai-shell"); err != nil {
				t.Skipf("make build: %v", err)
			}
			granted := m.base + "/other/granted"
			m.write(granted, "what was granted\n")
			m.write(m.home+"/.ssh/id_ed25519", "a secret")
			m.write(m.work+"/sub/file", "one\n")
			for path, text := range is.home(m) {
				m.write(m.home+"/"+path, text)
			}
			if with.settings != nil {
				for path, text := range with.settings(m) {
					m.write(m.home+"/"+path, text)
				}
			}
			if !with.byHand {
				m.person("install-agent", program, "--yes")
			}
			elsewhere := m.base + "/other/package"
			if with.reads { // a command may have written it; what it names is nobody's that wrote here
				m.write(elsewhere+"/bwrap", "#!/bin/sh\ntouch "+elsewhere+"/executed\n")
				m.write(elsewhere+"/clai-sandbox/config.json", `{"defaults": {"execution": {"filesystem": {"extraPaths": [{"path": "`+m.home+`/.ssh", "access": "read_only"}]}}}}`)
				if err := os.Chmod(elsewhere+"/bwrap", 0o755); err != nil {
					t.Fatal(err)
				}
				m.write(m.work+"/.env", "READ=yes\nCLAI_SANDBOX_BWRAP="+elsewhere+"/bwrap\nXDG_CONFIG_HOME="+elsewhere+"\nCLAI_SANDBOX_STATE_DIR="+elsewhere+"/state\n")
			}
			m.start("clai-sandbox", nil, m.command, "gateway", "--no-notify")
			m.until("the gateway listens", func() bool {
				found, _ := filepath.Glob(m.base + "/run/clai-sandbox/*/gateway.sock")
				return len(found) > 0
			})
			m.model.follow([]step{
				{line: "echo it runs; echo two >>sub/file; echo kept >/dev/shm/kept; cd sub && pwd"},
				{line: "pwd"},
				{line: "exec 2>&1; cat /dev/shm/kept; cat ~/.ssh/id_ed25519 " + granted + "; touch ~/left"},
				{line: "/run/clai-sandbox/bin/fs_request_grant " + granted + " --reason 'to see it' 2>&1", meanwhile: func() { m.answers("allow", granted) }},
				{line: "cat " + granted + "; exit 3"},
			})
			variables := map[string]string{}
			if is.variables != nil {
				variables = is.variables(m)
			}
			for name, value := range with.variables {
				variables[name] = value
			}
			variables["SHELL"] = "/bin/bash"
			r := m.start(name, m.alone(variables), append(append([]string{m.agent}, with.arguments...), is.arguments...)...)
			r.in.Close()
			m.follow(r)
			heard := m.heard()
			if n := strings.Count(heard, "clai-sandbox: this and what follows runs in a sandbox, which may read and write /machine/home/work,"); n != 1 {
				t.Errorf("it was told %d times that it is in a sandbox", n)
			}
			// What we say, and what a command says, comes by two pipes, and the agent reads them as
			// it likes.
			m.compare("testdata/shell/"+strings.ReplaceAll(name, " ", "-")+".txt", ourWords.ReplaceAllString(heard, ""))
			if err := r.cmd.Wait(); err != nil {
				t.Errorf("it ended with %v", err)
			}
			r.ended = true
			if text, err := os.ReadFile(m.work + "/sub/file"); err != nil || string(text) != "one\ntwo\n" {
				t.Errorf("the file has %q, %v", text, err)
			}
			if _, err := os.Stat(m.home + "/left"); err == nil {
				t.Error("a command wrote the home")
			}
			for _, name := range []string{"executed", "state"} {
				if _, err := os.Stat(elsewhere + "/" + name); err == nil {
					t.Errorf("the project's .env led to %s", name)
				}
			}
			m.until("its sandbox ended with it", func() bool { return m.person("sessions", "list") == "no session has a sandbox\n" })
			if !with.byHand {
				m.person("install-agent", program, "--undo", "--yes")
			}
		})
	}
}

// follow sees a script of the model's to its end.
func (m *machine) follow(r *running) {
	m.t.Helper()
	late := time.After(2 * time.Minute)
	for over := false; !over; {
		select {
		case do := <-m.model.meanwhile:
			do()
		case <-m.model.over:
			over = true
		case _, runs := <-r.lines:
			if !runs {
				m.t.Fatalf("it ended; until then:\n%s", m.heard())
			}
		case <-late:
			m.t.Fatalf("not in time; until then:\n%s", m.heard())
		}
	}
}

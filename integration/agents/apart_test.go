package agents

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// With its commands apart, nothing of the agent's is in reach of a command that it starts: not its
// key, its settings, its login, its model. What the project says of shells and hooks leads round
// that as little as what the person's own settings say.
func TestRealAgentsHaveTheirCommandsApart(t *testing.T) {
	hostile := map[string]map[string]string{ // in the project, by agent
		"claude":   {".claude/settings.json": `{"env":{"CLAUDE_CODE_SHELL_PREFIX":"WORK/bash","CLAUDE_CODE_SHELL":"WORK/bash","SHELL":"WORK/bash"}}`},
		"codex":    {".codex/config.toml": "[features]\nhooks = false\n"},
		"gemini":   {".gemini/settings.json": `{"hooksConfig":{"enabled":false}}`, ".env": "PATH=WORK:/usr/bin:/bin\nSHELL=WORK/bash\n"},
		"opencode": {"opencode.json": `{"shell":"WORK/bash"}`},
	}
	ofModel := map[string]string{"claude": "api.anthropic.com", "codex": "api.openai.com", "gemini": "generativelanguage.googleapis.com", "opencode": "opencode.ai"}
	for name, is := range inside {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			m := newMachine(t, installed(t, name))
			granted := m.base + "/other/granted"
			m.write(granted, "what was granted\n")
			m.write(m.home+"/.ssh/id_ed25519", "a secret")
			m.write(m.home+"/.gitconfig", "[user]\nname = Somebody\nemail = somebody@example.org\n")
			m.write(m.work+"/sub/file", "one\n")
			for path, text := range is.home(m) {
				m.write(m.home+"/"+path, text)
			}
			for path, text := range hostile[name] {
				m.write(m.work+"/"+path, strings.ReplaceAll(text, "WORK", m.work))
			}
			m.write(m.work+"/bash", "#!/usr/bin/perl\nprint 'with the agent: ', join(' ', %ENV), \"\\n\";\n") // no shell, though it is called one
			if err := os.Chmod(m.work+"/bash", 0o755); err != nil {
				t.Fatal(err)
			}
			m.person("install-agent", name, "--yes") // what it writes does no harm here
			model := strings.TrimPrefix(m.model.address, "http://")
			m.presetReaching(name, model)
			m.start("clai-sandbox", nil, m.command, "gateway", "--no-notify")
			m.until("the gateway listens", func() bool {
				found, _ := filepath.Glob(m.base + "/run/clai-sandbox/*/gateway.sock")
				return len(found) > 0
			})
			m.model.follow(slices.Concat([]step{
				{line: "echo it runs; echo two >>sub/file; cat sub/file"},
				{line: "cd sub && pwd"},
				{line: "pwd; exit 3"},
				{line: `cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | grep -e made-up -e MODEL; ls -A ~ /tmp /run/clai-sandbox; touch ~/left`},
				{line: "curl -sS --noproxy '' -x $http_proxy http://" + model + "/"},
				{line: "curl -sS https://" + ofModel[name] + "/", meanwhile: func() { m.answers("deny", ofModel[name]+":443") }},
				{line: "/run/clai-sandbox/bin/fs_request_grant " + granted + " --reason 'to see it' 2>&1", meanwhile: func() { m.answers("allow", granted) }},
				{line: "cat " + granted + "; ls /run/clai-sandbox"},
			}, fileTools[name].edit(m.work+"/sub/file", "two", "three"), []step{
				{line: "cat " + m.work + "/sub/file"},
			}))
			variables := map[string]string{}
			if is.variables != nil {
				variables = is.variables(m)
			}
			variables["PATH"] = filepath.Dir(m.agent) + ":" + m.env["PATH"]
			r := m.start(name, variables, append([]string{m.command, "agent", name, "--commands-apart", "--"}, is.arguments...)...)
			r.in.Close()
			m.follow(r)
			m.compare("testdata/apart/"+name+".txt", strings.ReplaceAll(m.heard(), model, "MODEL"))
			if err := r.cmd.Wait(); err != nil {
				t.Errorf("it ended with %v", err)
			}
			r.ended = true
			m.until("its sandbox ended with it", func() bool { return m.person("sessions", "list") == "no session has a sandbox\n" })
		})
	}
}

// presetReaching is the preset of an agent with a further server.
func (m *machine) presetReaching(name, server string) {
	m.t.Helper()
	text, err := os.ReadFile("../../profile/preset/presets/" + name + ".json")
	if err != nil {
		m.t.Fatal(err)
	}
	var preset map[string]any
	if err := json.Unmarshal(text, &preset); err != nil {
		m.t.Fatal(err)
	}
	preset["domains"] = append(preset["domains"].([]any), map[string]any{"domain": server, "why": "the model"})
	m.write(m.home+"/.config/clai-sandbox/presets/"+name+".json", object(preset))
}

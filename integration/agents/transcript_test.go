package agents

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// reaching is how many servers an agent reaches, of which the test's own is one more.
var reaching = regexp.MustCompile(`reaches .* and \d+ more servers`)

// What docs/agents.md has a new person type comes to what stands below it, by the real agent. Its
// model follows a script, and the first command, which fetches and installs, has been carried out.
func TestANewPersonsFiveCommands(t *testing.T) {
	text, err := os.ReadFile("../../docs/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## From nothing to a commit\n")
	_, rest, _ = strings.Cut(rest, "```console\n$ ")
	block, _, is := strings.Cut(rest, "```\n")
	commands := strings.Split(block, "\n$ ")
	if !is || len(commands) < 4 || len(commands) > 5 || !strings.HasPrefix(commands[0], "git clone ") {
		t.Fatalf("docs/agents.md has no such commands: %q", commands)
	}
	m := newMachine(t, installed(t, "claude"))
	m.write(m.home+"/.ssh/id_ed25519", "a secret")
	m.write(m.home+"/.gitconfig", "[user]\nname = Somebody\nemail = somebody@example.org\n")
	m.write(m.home+"/.config/clai-sandbox/config.json", object(map[string]any{"agents": map[string]any{"claude": map[string]any{"execution": map[string]any{
		"sandbox": map[string]any{"allowedDomains": []string{strings.TrimPrefix(m.model.address, "http://")}}}}}}))
	for path, text := range inside["claude"].home(m) {
		m.write(m.home+"/"+path, text)
	}
	if out, err := exec.Command("git", "init", "-q", m.work).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m.start("clai-sandbox", nil, m.command, "gateway", "--no-notify")
	m.until("the gateway listens", func() bool {
		found, _ := filepath.Glob(m.base + "/run/clai-sandbox/*/gateway.sock")
		return len(found) > 0
	})
	m.model.follow([]step{{line: "echo hello >greeting && git add greeting && git commit -qm 'a greeting'"}, {line: "cat ~/.ssh/id_ed25519"}})
	variables := inside["claude"].variables(m)
	variables["PATH"] = filepath.Dir(m.command) + ":" + filepath.Dir(m.agent) + ":" + m.env["PATH"]
	dir := m.home
	for _, command := range commands[1:] {
		line, want, _ := strings.Cut(command, "\n")
		if name, is := strings.CutPrefix(line, "cd ~/"); is {
			dir = m.home + "/" + name
			continue
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir, cmd.Env = dir, m.environment(variables)
		out, _ := cmd.CombinedOutput()
		got := reaching.ReplaceAllString(strings.ReplaceAll(string(out), m.home, "/home/me"), "reaches api.anthropic.com:443 and 3 more servers")
		got = strings.ReplaceAll(got, "⚠ Claude Sonnet 4.5 will be retired on November 30, 2026. Consider switching to a newer model.\n", "")
		if strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("%s came to:\n%s", line, got)
		}
	}
	if heard := m.heard(); !strings.Contains(heard, "id_ed25519: No such file or directory") {
		t.Errorf("the agent was not refused:\n%s", heard)
	}
}

package agents

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// inside are the agents that run in a sandbox as a whole: what a person has of each at home, which
// variables, and the arguments with which it does one task.
var inside = map[string]struct {
	home      func(m *machine) map[string]string // files, by their paths in the home directory
	variables func(m *machine) map[string]string
	arguments []string
}{
	"claude": {
		home: func(*machine) map[string]string {
			return map[string]string{".claude.json": `{"hasCompletedOnboarding":true}`, ".claude/settings.json": "{}", ".claude/projects/x/y": ""}
		},
		variables: func(m *machine) map[string]string {
			return map[string]string{"ANTHROPIC_BASE_URL": m.model.address, "ANTHROPIC_API_KEY": "sk-ant-made-up"}
		},
		arguments: []string{"-p", "go", "--model", "claude-sonnet-4-5"},
	},
	"codex": {
		home: func(m *machine) map[string]string {
			return map[string]string{".codex/AGENTS.md": "be brief", ".codex/sessions/x": "", ".codex/config.toml": fmt.Sprintf(`model = "scripted"
model_provider = "scripted"
analytics = { enabled = false }
features = { plugins = false, apps = false }
model_providers.scripted = { name = "scripted", base_url = %q, wire_api = "responses", env_key = "OPENAI_API_KEY" }
`, m.model.address+"/v1")}
		},
		variables: func(*machine) map[string]string { return map[string]string{"OPENAI_API_KEY": "made-up"} },
		arguments: []string{"exec", "--skip-git-repo-check", "go"},
	},
	"gemini": {
		home: func(*machine) map[string]string {
			return map[string]string{".gemini/settings.json": `{"security":{"auth":{"selectedType":"gemini-api-key"}},"privacy":{"usageStatisticsEnabled":false}}`, ".gemini/GEMINI.md": "be brief"}
		},
		variables: func(m *machine) map[string]string {
			return map[string]string{"GEMINI_API_KEY": "made-up", "GOOGLE_GEMINI_BASE_URL": m.model.address}
		},
		arguments: []string{"-p", "go", "-m", "gemini-2.5-pro"},
	},
	"opencode": {
		home: func(m *machine) map[string]string {
			return map[string]string{".config/opencode/opencode.json": object(map[string]any{
				"autoupdate": false, "snapshot": false, "share": "disabled", "model": "scripted/scripted",
				"provider": map[string]any{"scripted": map[string]any{"npm": "@ai-sdk/openai-compatible", "name": "scripted",
					"options": map[string]any{"baseURL": m.model.address + "/v1", "apiKey": "made-up"},
					"models":  map[string]any{"scripted": map[string]any{"name": "scripted", "tool_call": true}}}}})}
		},
		arguments: []string{"run", "go"},
	},
}

// fileTools are the agents' own, by which they change a file that they have read, and write one.
var fileTools = map[string]struct {
	edit  func(path, old, now string) []step
	write func(path, text string) step
}{
	"claude": {
		edit: func(path, old, now string) []step {
			return []step{{server: own, tool: "Read", arguments: map[string]any{"file_path": path}},
				{server: own, tool: "Edit", arguments: map[string]any{"file_path": path, "old_string": old, "new_string": now}}}
		},
		write: func(path, text string) step {
			return step{server: own, tool: "Write", arguments: map[string]any{"file_path": path, "content": text}}
		},
	},
	"codex": { // it takes such a line for a call of its own tool, and starts nothing
		edit: func(path, old, now string) []step {
			return []step{{line: "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: " + path + "\n@@\n-" + old + "\n+" + now + "\n*** End Patch\nEOF"}}
		},
		write: func(path, text string) step {
			return step{line: "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: " + path + "\n+" + text + "\n*** End Patch\nEOF"}
		},
	},
	"gemini": {
		edit: func(path, old, now string) []step {
			return []step{{server: own, tool: "replace", arguments: map[string]any{"file_path": path, "old_string": old, "new_string": now, "instruction": "change it"}}}
		},
		write: func(path, text string) step {
			return step{server: own, tool: "write_file", arguments: map[string]any{"file_path": path, "content": text}}
		},
	},
	"opencode": {
		edit: func(path, old, now string) []step {
			return []step{{server: own, tool: "read", arguments: map[string]any{"filePath": path}},
				{server: own, tool: "edit", arguments: map[string]any{"filePath": path, "oldString": old, "newString": now}}}
		},
		write: func(path, text string) step {
			return step{server: own, tool: "write", arguments: map[string]any{"filePath": path, "content": text}}
		},
	},
}

// One start of each agent, as a whole in a sandbox, holds all that docs/agents.md says of it.
func TestRealAgentsWorkInsideAsAWhole(t *testing.T) {
	for name, is := range inside {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			m := newMachine(t, installed(t, name))
			granted, denied := m.base+"/other/granted", m.base+"/other/denied"
			m.write(granted, "what was granted\n")
			m.write(denied, "what was not\n")
			m.write(m.home+"/.ssh/id_ed25519", "a secret")
			m.write(m.home+"/.gitconfig", "[user]\nname = Somebody\nemail = somebody@example.org\n")
			m.write(m.work+"/sub/file", "one\n")
			m.write(m.work+"/.envrc", "a person\n")
			if out, err := exec.Command("git", "init", "-q", m.work).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for path, text := range is.home(m) {
				m.write(m.home+"/"+path, text)
			}
			m.person("install-agent", name, "--yes") // inside, clai-shell is but the shell
			before := m.files()
			m.start("clai-sandbox", nil, m.command, "gateway", "--no-notify")
			m.until("the gateway listens", func() bool {
				found, _ := filepath.Glob(m.base + "/run/clai-sandbox/*/gateway.sock")
				return len(found) > 0
			})
			tools := fileTools[name]
			setAside := tools.write(m.work+"/sub/.envrc", "export X=1")
			setAside.races = true // the agent looks at the file before or after
			m.model.follow(slices.Concat([]step{
				{line: "echo it runs; echo two >>sub/file; cat sub/file"},
				{line: "git init -q . && git add -A && git commit -qm one && git log --format=%an"},
				{line: "cd sub && pwd"},
				{line: "pwd"},
				{line: "cat ~/.ssh/id_ed25519; cat " + denied + "; touch ~/left; touch ~/.gitconfig /usr/left"},
				{line: "curl -sS -m 5 http://example.org/; curl -sS -m 5 --noproxy '*' http://example.org/", meanwhile: func() { m.answers("deny", "example.org:80") }},
				{line: "fs_request_grant " + granted + " --reason 'to see it'", meanwhile: func() { m.answers("allow", granted) }},
				{line: "cat " + granted},
				{line: "fs_request_grant " + denied + " --reason 'to see it, too'", meanwhile: func() { m.answers("deny", denied) }},
				{line: "cat " + denied},
			}, tools.edit(m.work+"/sub/file", "one", "three"), []step{
				{line: "cat " + m.work + "/sub/file"},
				tools.write(m.work+"/new", "written"),
				{line: "cat " + m.work + "/new"},
			}, tools.edit(m.work+"/.envrc", "a person", "a command"), []step{
				setAside,
				tools.write(m.work+"/.git/hooks/post-commit", "#!/bin/sh"),
				tools.write(m.base+"/other/new", "written"),
				tools.write("/usr/left", "written"),
			}))
			variables := map[string]string{}
			if is.variables != nil {
				variables = is.variables(m)
			}
			variables["PATH"] = filepath.Dir(m.agent) + ":" + m.env["PATH"]
			r := m.start(name, variables, append([]string{m.command, "agent", name, "--allow-domain", strings.TrimPrefix(m.model.address, "http://"), "--"}, is.arguments...)...)
			r.in.Close()
			m.follow(r)
			m.compare("testdata/inside/"+name+".txt", m.heard())
			if err := r.cmd.Wait(); err != nil {
				t.Errorf("it ended with %v", err)
			}
			r.ended = true
			if told := r.heard(); !strings.Contains(told, "set aside: "+m.work+"/sub/.envrc") {
				t.Errorf("nobody was told of the file that was set aside:\n%s", told)
			}
			m.leaves(before, []string{"work/sub/file", "work/new", "work/.git"})
			if list, err := filepath.Glob(m.work + "/.git/hooks/post-commit"); err != nil || list != nil {
				t.Errorf("a hook is there: %v, %v", list, err)
			}
		})
	}
}

// files are what there is on the machine, with what it holds.
func (m *machine) files() map[string]string {
	m.t.Helper()
	list := map[string]string{}
	err := filepath.WalkDir(m.base, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == "shut" { // of ours, which nobody enters
			return fs.SkipDir
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		list[strings.TrimPrefix(path, m.base+"/")] = string(text)
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return list
}

// leaves holds what an agent left of the person's files against what there was: nothing differs but
// what may, by paths in the home directory, and our own state.
func (m *machine) leaves(before map[string]string, may []string) {
	m.t.Helper()
	after := m.files()
	for path := range after {
		inHome, is := strings.CutPrefix(path, "home/")
		may := !is && (strings.HasPrefix(path, "run/") || strings.HasPrefix(path, "tmp/")) || strings.HasPrefix(inHome, ".local/state/clai-sandbox/") ||
			slices.ContainsFunc(may, func(dir string) bool { return inHome == dir || strings.HasPrefix(inHome, dir+"/") })
		if before[path] != after[path] && !may {
			m.t.Errorf("%s was left or changed", path)
		}
	}
	for path := range before {
		if _, is := after[path]; !is {
			m.t.Errorf("%s is gone", path)
		}
	}
}

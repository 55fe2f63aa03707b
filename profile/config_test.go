package profile

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

var update = flag.Bool("update", false, "write the generated files anew")

// load reads a system file and a user file; "" is none.
func load(t *testing.T, system, user string) (*Config, error) {
	t.Helper()
	dir := t.TempDir()
	d := Directories{SystemConfig: dir + "/etc", Config: dir + "/home"}
	for path, text := range map[string]string{d.SystemConfig: system, d.Config: user} {
		os.MkdirAll(path, 0o755)
		if text != "" {
			if err := os.WriteFile(filepath.Join(path, configName), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return Load(d)
}

func TestAMistakeIsNamedWithItsPlace(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"{\n  // comment\n  \"defaults\": {\n    \"execution\": {\n      \"sandbox\": {\n        \"network\": \"enabled\"\n        \"sessionBus\": \"deny\"\n}}}}",
			"config.json:7:9: syntax error: "},
		{`{"defaults": {"execution": {"sandbox": {"netwrk": "enabled"}}}}`,
			`config.json:1:41: defaults.execution.sandbox: unknown key "netwrk" (known: nestedNamespaces, network, sessionBus)`},
		{"{\n\"agent\": {}}", `config.json:2:1: unknown key "agent" (known: $schema, agents, defaults)`},
		{`{"agents": {"main": {"execution": {"sandbox": {"network": "on"}}}}}`,
			`config.json:1:59: agents.main.execution.sandbox.network: "on" is not disabled or enabled`},
		{`{"agents": {"main": {"execution": {"filesystem": {"extraPaths": [{"path": "/a", "access": "none"}]}}}}}`,
			`"none" is not read_only or read_write`},
		{`{"agents": {"main": {"execution": {"limits": {"timeoutSeconds": -1}}}}}`, "must be a whole number from 0"},
		{`{"agents": {"main": {"execution": {"limits": {"timeoutSeconds": 1e3}}}}}`, "must be a whole number from 0"},
		{`{"agents": {"main": {"execution": {"limits": {"timeoutSeconds": 99999999999999999999}}}}}`, "must be a whole number from 0"},
		{`{"agents": {"main": {"execution": {"limits": {"timeoutSeconds": "5"}}}}}`, "must be a whole number"},
		{`{"agents": {"main": {"execution": {"sandbox": {"nestedNamespaces": "yes"}}}}}`, "must be true or false"},
		{`{"agents": {"main": {"execution": {"sandbox": {"nestedNamespaces": null}}}}}`, "must be true or false"},
		{`{"agents": {"main": {"execution": {"sandbox": null}}}}`, "must be an object"},
		{`{"agents": []}`, "agents: must be an object"},
		{`[]`, "must be an object"},
		{`null`, "must be an object"},
		{`{"agents": {"main": {"execution": {"filesystem": {"extraPaths": {}}}}}}`, "extraPaths: must be a list"},
		{`{"agents": {"main": {"execution": {"environment": {"pass": [1]}}}}}`, "environment.pass.0: must be a string"},
		{`{"defaults": {}, "defaults": {}}`, `1:18: key "defaults" stands twice`},
		{`{"agents": {"a b": {}}}`, `agents: agent "a b": a name is 1 to 64 of`},
		{`{"agents": {"..": {}}}`, `agents: agent ".."`},
		{`{"agents": {"a\u001b[2J": {"x": 1}}}`, `unknown key "x"`},
		{strings.Repeat("[", 40), "nested deeper than 32"},
		{"{}" + strings.Repeat(" ", maxConfigSize), "larger than"},
		{"{\xff}", "syntax error"},
	} {
		_, err := load(t, "", c.text)
		var mistake *ConfigError
		if !errors.As(err, &mistake) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80q: %v, want %q", c.text, err, c.want)
		}
	}
}

func TestCommentsAndTrailingCommasAreFine(t *testing.T) {
	for _, text := range []string{"", "  \n", "{}", "// nothing\n{}", `{
		// what all agents may
		"defaults": {"execution": {"sandbox": {"network": "disabled",},},}, /* end */
	}`} {
		if _, err := load(t, "", text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestAFileThatOthersCanWriteIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/" + configName
	d := Directories{Config: dir}
	for _, mode := range []os.FileMode{0o666, 0o664, 0o646} {
		os.WriteFile(path, []byte("{}"), 0o600)
		os.Chmod(path, mode)
		if _, err := Load(d); err == nil || !strings.Contains(err.Error(), "chmod go-w") {
			t.Errorf("%o: %v", mode, err)
		}
	}
	os.Remove(path)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(d); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a named pipe: %v", err)
	}
	os.Remove(path)
	os.Mkdir(path, 0o700)
	if _, err := Load(d); err == nil {
		t.Error("a directory was read")
	}
	os.Remove(path)
	if os.Getuid() == 0 {
		os.WriteFile(path, []byte("{}"), 0o600)
		os.Chown(path, 4321, 4321)
		if _, err := Load(d); err == nil || !strings.Contains(err.Error(), "belongs to user 4321") {
			t.Errorf("another's file: %v", err)
		}
	} else {
		os.WriteFile(path, []byte("{}"), 0o000)
		if _, err := Load(d); err == nil {
			t.Error("an unreadable file was taken for none")
		}
	}
}

func TestTheMoreSpecificSettingDecides(t *testing.T) {
	agent := func(name, sandbox string) string {
		return fmt.Sprintf(`"agents": {%q: {"execution": {"sandbox": {%s}}}}`, name, sandbox)
	}
	defaults := func(sandbox string) string {
		return fmt.Sprintf(`"defaults": {"execution": {"sandbox": {%s}}}`, sandbox)
	}
	off, on := `"network": "disabled"`, `"network": "enabled"`
	for name, c := range map[string]struct {
		system, user string
		want         Network
	}{
		"nothing said":                        {"", "", NetworkEnabled},
		"system defaults":                     {"{" + defaults(off) + "}", "", NetworkDisabled},
		"system agent over its defaults":      {"{" + defaults(on) + "," + agent("main", off) + "}", "", NetworkDisabled},
		"user defaults over system agent":     {"{" + agent("main", on) + "}", "{" + defaults(off) + "}", NetworkDisabled},
		"user agent over user defaults":       {"", "{" + defaults(on) + "," + agent("main", off) + "}", NetworkDisabled},
		"another agent's":                     {"", "{" + agent("other", off) + "}", NetworkEnabled},
		"a user file that says nothing of it": {"{" + defaults(off) + "}", `{"defaults": {"execution": {"sandbox": {"sessionBus": "deny"}}}}`, NetworkDisabled},
	} {
		config, err := load(t, c.system, c.user)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		p, err := Resolve(config, caller(), Request{})
		if err != nil || p.Network != c.want {
			t.Errorf("%s: %v, %v", name, p.Network, err)
		}
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"defaults": {"execution": {"filesystem": {"extraPaths": [{"path": "~/x", "access": "read_only"}]}}}}`))
	f.Add([]byte(`{"agents": {"a": {"execution": {"environment": {"pass": ["A"], "set": {"B": "c"}}, "limits": {"timeoutSeconds": 5}}}}}`))
	f.Add([]byte("// c\n{\"$schema\": 1,}"))
	f.Add([]byte("[[[[{\"\\ud800\": 1e999}]]]]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var c configFile
		err := decodeConfig("config.json", text, &c)
		var mistake *ConfigError
		if errors.As(err, &mistake) {
			if n := 1 + strings.Count(string(text), "\n"); mistake.Line > n {
				t.Errorf("line %d of %d", mistake.Line, n)
			}
			if strings.ContainsAny(err.Error(), "\n\r\x1b\x00") {
				t.Errorf("the message is more than a line of text: %q", err)
			}
			return
		}
		if err != nil {
			t.Errorf("%T: %v", err, err)
		}
		for id := range c.Agents {
			config := &Config{layers: []configFile{c}}
			if p, err := Resolve(config, caller(), Request{Agent: id}); err == nil {
				for _, g := range p.Grants {
					if g.Access == NoAccess || !filepath.IsAbs(g.Path) {
						t.Errorf("%+v", g)
					}
				}
			}
		}
	})
}

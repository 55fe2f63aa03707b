package profile

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What another implementation makes of sessions, modes and scopes; see the policy package for the
// cases as such. Its configuration is put into this program's words. Where its default is laxer,
// ours counts: no mode is all, and not off.
func TestModesAndScopesAreThoseOfTheCases(t *testing.T) {
	dir := os.Getenv("EXEC_CASES_DIR")
	if dir == "" {
		dir = "../../shared/cases/exec"
	}
	text, err := os.ReadFile(filepath.Join(dir, "sandbox.json"))
	if err != nil {
		t.Skipf("no behaviour cases: %v", err)
	}
	type settings struct {
		Mode, Scope, WorkspaceAccess string
		PerSession                   *bool
		Prune                        *struct{ IdleHours, MaxAgeDays *int }
	}
	type theirs struct {
		Session struct{ MainKey, Scope string }
		Agents  struct {
			Defaults struct{ Sandbox settings }
			List     []struct {
				ID      string
				Sandbox settings
			}
		}
	}
	ours := func(s settings) map[string]any {
		sandbox, files := map[string]any{}, map[string]any{}
		for name, word := range map[string]string{"mode": s.Mode, "scope": s.Scope} {
			if word != "" {
				sandbox[name] = word
			}
		}
		if s.PerSession != nil && s.Scope == "" {
			sandbox["scope"] = map[bool]string{true: "session", false: "shared"}[*s.PerSession]
		}
		if s.Prune != nil {
			prune := map[string]any{}
			if s.Prune.IdleHours != nil {
				prune["idleHours"] = *s.Prune.IdleHours
			}
			if s.Prune.MaxAgeDays != nil {
				prune["maxAgeDays"] = *s.Prune.MaxAgeDays
			}
			sandbox["prune"] = prune
		}
		if s.WorkspaceAccess != "" {
			files["workspaceAccess"] = map[string]string{"none": "none", "ro": "read_only", "rw": "read_write"}[s.WorkspaceAccess]
		}
		return map[string]any{"execution": map[string]any{"sandbox": sandbox, "filesystem": files}}
	}
	translated := func(c theirs) *Config {
		file := map[string]any{"defaults": ours(c.Agents.Defaults.Sandbox)}
		session := map[string]any{}
		if c.Session.MainKey != "" {
			session["mainKey"] = c.Session.MainKey
		}
		if c.Session.Scope != "" {
			session["scope"] = c.Session.Scope
		}
		agents := map[string]any{}
		for _, a := range c.Agents.List {
			agents[a.ID] = ours(a.Sandbox)
		}
		file["session"], file["agents"] = session, agents
		text, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		config, err := load(t, "", string(text))
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
	var cases struct {
		Cases []struct {
			Name, Fn      string
			Input, Expect json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, c := range cases.Cases {
		var in struct {
			Cfg        theirs
			SessionKey string
			Args       []json.RawMessage
		}
		var want struct {
			AgentID, MainSessionKey, Mode, Scope string
			Sandboxed                            bool
			Prune                                struct{ IdleHours, MaxAgeDays int }
		}
		switch c.Fn {
		case "sandboxRuntimeStatus":
			if json.Unmarshal(c.Input, &in) != nil || json.Unmarshal(c.Expect, &want) != nil {
				t.Fatal(c.Name)
			}
			got, err := translated(in.Cfg).Session(in.SessionKey, "")
			if mode := in.Cfg.Agents.Defaults.Sandbox.Mode; err != nil || got.Agent != want.AgentID || got.Main != want.MainSessionKey || got.Sandboxed != want.Sandboxed && (mode != "" || !got.Sandboxed) {
				t.Errorf("%s: %+v, %v, want %+v", c.Name, got, err, want)
			}
		case "resolveSandboxConfigForAgent":
			var config theirs
			agent := DefaultAgent
			if json.Unmarshal(c.Input, &in) != nil || json.Unmarshal(c.Expect, &want) != nil {
				t.Fatal(c.Name)
			}
			if len(in.Args) > 0 && json.Unmarshal(in.Args[0], &config) != nil || len(in.Args) > 1 && json.Unmarshal(in.Args[1], &agent) != nil {
				t.Fatal(c.Name)
			}
			ours := translated(config)
			got, err := ours.Session("agent:"+agent+":x", "")
			prune := ours.Prune(agent)
			if err != nil || got.Scope.String() != want.Scope || got.Mode.String() != want.Mode && (want.Mode != "off" || got.ModeOrigin.Kind != OriginDefault) ||
				int(prune.Idle.Hours()) != want.Prune.IdleHours || int(prune.Age.Hours()) != 24*want.Prune.MaxAgeDays {
				t.Errorf("%s: %+v, %v, %v, want %+v", c.Name, got, prune, err, want)
			}
		case "resolveSandboxScope":
			var s settings
			var scope string
			if json.Unmarshal(c.Input, &in) != nil || json.Unmarshal(c.Expect, &scope) != nil || len(in.Args) > 0 && json.Unmarshal(in.Args[0], &s) != nil {
				t.Fatal(c.Name)
			}
			var config theirs
			config.Agents.Defaults.Sandbox = s
			if got, err := translated(config).Session("x", ""); err != nil || got.Scope.String() != scope {
				t.Errorf("%s: %+v, %v, want %s", c.Name, got, err, scope)
			}
		default:
			continue // containers; tools are policy's
		}
		tried++
	}
	if tried == 0 {
		t.Error("no case was tried")
	}
}

func TestWhichSessionsAreSandboxedAndWhatTheyShare(t *testing.T) {
	const config = `{"session": {"mainKey": "work"}, "defaults": {"execution": {"sandbox": {"mode": "non-main"}}},
		"agents": {"a": {"execution": {"sandbox": {"scope": "session"}}}, "A": {}, "off": {"execution": {"sandbox": {"mode": "off", "scope": "shared"}}}}}`
	for _, c := range []struct {
		key, agent       string
		sandboxed        bool
		scope            string
		refused, configs string
	}{
		{key: "main", scope: "agent:main"},
		{key: " work ", scope: "agent:main"},
		{key: "agent:main:main", scope: "agent:main"},
		{key: "agent:main:work", scope: "agent:main"},
		{key: "agent:main:works", sandboxed: true, scope: "agent:main"},
		{key: "agent:main:WORK", sandboxed: true, scope: "agent:main"},
		{key: "global", sandboxed: true, scope: "agent:main"},
		{key: "global", configs: `{"session": {"scope": "global"}, "defaults": {"execution": {"sandbox": {"mode": "non-main"}}}}`, scope: "agent:main"},
		{key: "agent:a:main", scope: "session:a:main"},
		{key: "main", agent: "a", scope: "session:a:main"},
		{key: "agent:a:main:x", sandboxed: true, scope: "session:a::main:x"},
		{key: "chat", agent: "a", sandboxed: true, scope: "session:a:.chat"},
		{key: "agent:a:chat", sandboxed: true, scope: "session:a::chat"},
		{key: "agent:A:chat", sandboxed: true, scope: "agent:A"},
		{key: "agent:Off:chat", scope: "shared"},
		{key: "agent::x", sandboxed: true, scope: "agent:main"},
		{key: "agent:a:x", agent: "main", refused: "is of agent a, and not of main"},
		{key: "agent:default:x", refused: "no agent is called default"},
		{key: "", refused: "session key"},
		{key: "a\nb", refused: "session key"},
		{key: strings.Repeat("k", 513), refused: "session key"},
	} {
		if c.configs == "" {
			c.configs = config
		}
		loaded, err := load(t, "", c.configs)
		if err != nil {
			t.Fatal(err)
		}
		s, err := loaded.Session(c.key, c.agent)
		switch {
		case c.refused != "":
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%+v: %v", c, err)
			}
		case err != nil || s.Sandboxed != c.sandboxed || s.ScopeKey != c.scope:
			t.Errorf("%+v: %+v, %v", c, s, err)
		}
	}
}

func TestSandboxNamesAreReadableAndDifferent(t *testing.T) {
	names := map[string]string{}
	for _, key := range []string{"shared", "agent:a", "session:a:main", "session:a::x", "session:a:.x", "session:a::../..", "session:a::" + strings.Repeat("long/", 90), "session:a::é", "agent:A"} {
		name := Session{ScopeKey: key}.SandboxName()
		if was := names[name]; was != "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-._") != "" || name[0] == '.' || len(name) > 50 {
			t.Errorf("%s: %s (%s)", key, name, was)
		}
		names[name] = key
	}
}

func TestAnAgentsNameIsNormalized(t *testing.T) {
	for name, want := range map[string]string{"": "main", "Coder": "coder", " My  Agent!": "my-agent", "--": "main", "a_b-c": "a_b-c", "Ünï": "n", "../x": "x",
		"a.b": "a-b", strings.Repeat("x", 80): strings.Repeat("x", 64), "🤖": "main"} {
		if got := NormalizeAgent(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

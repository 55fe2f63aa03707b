package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

func toolPolicyOf(t *testing.T, text string) toolPolicy {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := profile.Load(profile.Directories{Config: dir})
	if err != nil {
		t.Fatal(err)
	}
	return newToolPolicy(config, "main")
}

func TestEveryLayerHasToAllowATool(t *testing.T) {
	all := strings.Join(offered, " ")
	for text, want := range map[string]string{
		`{}`: all,
		`{"defaults": {"execution": {"tools": {"deny": ["exec"]}}}}`:                                                                            "process read write edit apply_patch glob grep fs_request_grant ask_person sandbox_explain changes_propose",
		`{"defaults": {"execution": {"tools": {"deny": ["group:fs", "process"]}}}}`:                                                             "bash_exec exec fs_request_grant ask_person sandbox_explain changes_propose",
		`{"defaults": {"execution": {"tools": {"allow": ["read"]}}}}`:                                                                           "read glob grep fs_request_grant ask_person sandbox_explain changes_propose",
		`{"defaults": {"execution": {"tools": {"allow": ["*"], "deny": ["fs_request_grant"]}}}}`:                                                strings.Replace(all, "fs_request_grant ", "", 1),
		`{"defaults": {"execution": {"tools": {"allow": []}}}}`:                                                                                 "fs_request_grant ask_person sandbox_explain changes_propose",
		`{"defaults": {"execution": {"tools": {"profile": "minimal", "alsoAllow": ["read"]}}}}`:                                                 "read glob grep fs_request_grant ask_person sandbox_explain changes_propose",
		`{"defaults": {"execution": {"tools": {"profile": "coding"}}}}`:                                                                         all,
		`{"defaults": {"execution": {"tools": {"deny": ["exec"]}}}, "agents": {"main": {"execution": {"tools": {"allow": ["exec", "read"]}}}}}`: "read glob grep fs_request_grant ask_person sandbox_explain changes_propose",
		`{"agents": {"main": {"execution": {"sandbox": {"tools": {"deny": ["write", "edit", "apply_patch"]}}}}}}`:                               "bash_exec exec process read glob grep fs_request_grant ask_person sandbox_explain changes_propose",
		`{"agents": {"other": {"execution": {"tools": {"allow": []}}}}}`:                                                                        all,
	} {
		p := toolPolicyOf(t, text)
		var allowed []string
		for _, tool := range offered {
			if p.check(tool).Allowed {
				allowed = append(allowed, tool)
			}
		}
		if got := strings.Join(allowed, " "); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", text, got, want)
		}
	}
}

func TestNoToolWritesWhereTheWorkspaceIsRead(t *testing.T) {
	for access, want := range map[profile.Access]bool{profile.NoAccess: true, profile.ReadOnly: false, profile.CopyOnWrite: true, profile.ReadWrite: true} {
		p := toolPolicyOf(t, `{}`).withWorkspace(access, profile.Origin{Kind: profile.OriginFlag, Source: "--workspace-access"})
		for _, tool := range []string{"write", "edit", "apply_patch"} {
			if d := p.check(tool); d.Allowed != want || !want && d.Layer != "workspaceAccess read_only (flag --workspace-access)" {
				t.Errorf("%s, %s: %+v", access, tool, d)
			}
		}
		if !p.check("read").Allowed || !p.check("bash_exec").Allowed {
			t.Errorf("%s: a tool that changes no files is not offered", access)
		}
	}
}

func TestTheLayerThatRefusesIsNamed(t *testing.T) {
	p := toolPolicyOf(t, "{\"agents\": {\"main\": {\"execution\": {\"tools\":\n {\"deny\": [\"exec\"]}}}}}")
	if d := p.check("bash_exec"); d.Allowed || !strings.Contains(d.Layer, "tools of agent main") || !strings.Contains(d.Layer, "config.json:2") {
		t.Errorf("%+v", d)
	}
	p = toolPolicyOf(t, `{"defaults": {"execution": {"tools": {"allow": [], "deny": ["bash_exce", "group:nothing", "exec*"]}}}}`)
	for _, want := range []string{"the allow list is empty", `no tool is called bash_exce; is bash_exec meant?`, "no group is called group:nothing"} {
		if !strings.Contains(strings.Join(p.mistakes, "\n"), want) {
			t.Errorf("no %q in %q", want, p.mistakes)
		}
	}
	if len(p.mistakes) != 3 {
		t.Errorf("%q", p.mistakes)
	}
}

package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/written"
)

// newCaller has a home with a configuration and an approvals file.
func newCaller(t *testing.T, config, approvals string) profile.Caller {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(home, ".config", "clai-sandbox")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"config.json": config, ApprovalsName: approvals} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return profile.Caller{Home: home, User: "tester", WorkingDirectory: home}
}

// The configured host counts: a request may name the same one, or any where the configuration says
// auto.
func TestARequestRunsWhereTheConfigurationLetsIt(t *testing.T) {
	gateway, sandbox := policy.HostGateway, policy.HostSandbox
	const security = `"security": "full", "ask": "off"`
	for _, c := range []struct {
		configured string
		layers     policy.Layers
		verdict    policy.Verdict
		on         policy.Host
	}{
		{`{` + security + `}`, policy.Layers{Session: policy.Preference{Host: &gateway}}, policy.Run, policy.HostGateway},
		{`{` + security + `}`, policy.Layers{Parameter: policy.Preference{Host: &gateway}}, policy.Deny, policy.HostSandbox},
		{`{"host": "gateway", ` + security + `}`, policy.Layers{Parameter: policy.Preference{Host: &gateway}}, policy.Run, policy.HostGateway},
		{`{"host": "auto", ` + security + `}`, policy.Layers{Parameter: policy.Preference{Host: &gateway}, InSandbox: true}, policy.Run, policy.HostGateway},
		{`{"host": "auto", ` + security + `}`, policy.Layers{}, policy.Run, policy.HostSandbox},
		{`{"host": "gateway", ` + security + `}`, policy.Layers{Parameter: policy.Preference{Host: &sandbox}}, policy.Deny, policy.HostSandbox},
		{`{}`, policy.Layers{Session: policy.Preference{Host: &gateway}}, policy.Deny, policy.HostGateway},
	} {
		caller := newCaller(t, `{"defaults": {"execution": {"outside": `+c.configured+`}}}`, `{"version": 1, "defaults": {"security": "full", "ask": "off"}}`)
		h, err := Load(caller, "/usr/bin:/bin", "main")
		if err != nil {
			t.Fatal(err)
		}
		if d := h.Policy(c.layers).Decide(policy.Request{Argv: []string{"true"}, Cwd: caller.Home}); d.Verdict != c.verdict || d.Host != c.on {
			t.Errorf("%s, %+v: %s on %s: %v", c.configured, c.layers, d.Verdict, d.Host, d.Lines())
		}
	}
}

func TestAFileThatCannotBeReadDeniesEverything(t *testing.T) {
	caller := newCaller(t, `{"defaults": {"execution": {"outside": {"host": "gateway", "security": "full", "ask": "off"}}}}`, `{"version": 2}`)
	h, err := Load(caller, "/usr/bin:/bin", "main")
	if err != nil {
		t.Fatal(err)
	}
	if d := h.Policy(policy.Layers{}).Decide(policy.Request{Argv: []string{"true"}, Cwd: caller.Home}); d.Verdict != policy.Deny || d.Reason != policy.ReasonPolicyUnreadable {
		t.Errorf("%+v", d)
	}
	if _, err := Load(newCaller(t, `{"defaults": `, ""), "", "main"); err == nil {
		t.Error("a configuration that cannot be read counts")
	}
}

// What a command in a sandbox could have put into a directory of PATH is not what a bare name
// means, and nothing that is started finds it there.
func TestNoProgramIsTakenFromWhereACommandCouldPutIt(t *testing.T) {
	caller := newCaller(t, `{"defaults": {"execution": {"outside": {"host": "gateway", "security": "full", "ask": "off"}}}}`,
		`{"version": 1, "defaults": {"security": "full", "ask": "off"}}`)
	place := func(path string) string { return filepath.Join(caller.Home, path) }
	for _, dir := range []string{"work/.venv/bin", "work/to-mine", "mine", "links", "state"} {
		if err := os.MkdirAll(place(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"work/.venv/bin/tool", "work/own", "mine/tool", "mine/other"} {
		if err := os.WriteFile(place(program), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"venv": "work/.venv/bin", "links/own": "work/own", "links/tool": "work/chosen", "work/chosen": "mine/other", "led": "work/to-mine/../../mine"} {
		if err := os.Symlink(caller.Home+"/"+target, place(name)); err != nil {
			t.Fatal(err)
		}
	}
	caller.Environ = append(caller.Environ, profile.StateVariable+"="+place("state"))
	account := filepath.Join(place("state"), profile.WrittenName)
	find := func(dirs ...string) string {
		t.Helper()
		path := "."
		for _, dir := range dirs {
			path += ":" + place(dir)
		}
		h, err := Load(caller, path, "main")
		if err != nil {
			t.Fatal(err)
		}
		m := h.Policy(policy.Layers{}).Machine
		program, err := m.Find("tool", place("work"))
		if err != nil {
			return ""
		}
		return program.Real
	}
	if got := find("work/.venv/bin", "mine"); got != place("work/.venv/bin/tool") {
		t.Errorf("where no command ran: %q", got)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(account, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	device, inode := written.OnDisk(place("work"))
	for _, list := range []written.List{{{Path: place("work")}}, {{Device: device, Inode: inode, Path: "/elsewhere"}}} {
		write(list.Text())
		for _, dir := range []string{"work/.venv/bin", "venv", "links", "led"} {
			if got := find(dir, "mine"); got != place("mine/tool") {
				t.Errorf("%s: %q", dir, got)
			}
			if got := find(dir); got != "" {
				t.Errorf("%s alone: %q", dir, got)
			}
		}
		h, err := Load(caller, place("work/.venv/bin")+":/usr/bin", "main")
		if err != nil {
			t.Fatal(err)
		}
		m := h.Policy(policy.Layers{}).Machine
		if len(m.Path) != 1 || m.Path[0] != "/usr/bin" {
			t.Errorf("%v", m.Path)
		}
		if _, err := m.Find(place("work/.venv/bin/tool"), place("work")); err != nil {
			t.Errorf("by its path: %v", err)
		}
	}
	write("not an account\n")
	if _, err := Load(caller, "/usr/bin", "main"); err == nil {
		t.Error("an account that cannot be read counts for none")
	}
}

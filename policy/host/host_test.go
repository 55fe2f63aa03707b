package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/profile"
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

// The configured host counts: a request may name the same one, or any where the configuration says auto.
func TestARequestRunsWhereTheConfigurationLetsIt(t *testing.T) {
	gateway, sandbox := policy.HostGateway, policy.HostSandbox
	const security = `"security": "full", "ask": "off"`
	for _, c := range []struct {
		configured string
		layers     policy.Layers
		verdict    policy.Verdict
		on         policy.Host
	}{
		{`{` + security + `}`, policy.Layers{Session: policy.Wish{Host: &gateway}}, policy.Run, policy.HostGateway},
		{`{` + security + `}`, policy.Layers{Parameter: policy.Wish{Host: &gateway}}, policy.Deny, policy.HostSandbox},
		{`{"host": "gateway", ` + security + `}`, policy.Layers{Parameter: policy.Wish{Host: &gateway}}, policy.Run, policy.HostGateway},
		{`{"host": "auto", ` + security + `}`, policy.Layers{Parameter: policy.Wish{Host: &gateway}, InSandbox: true}, policy.Run, policy.HostGateway},
		{`{"host": "auto", ` + security + `}`, policy.Layers{}, policy.Run, policy.HostSandbox},
		{`{"host": "gateway", ` + security + `}`, policy.Layers{Parameter: policy.Wish{Host: &sandbox}}, policy.Deny, policy.HostSandbox},
		{`{}`, policy.Layers{Session: policy.Wish{Host: &gateway}}, policy.Deny, policy.HostGateway},
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

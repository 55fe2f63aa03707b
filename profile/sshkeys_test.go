package profile

import (
	"os"
	"reflect"
	"strings"
	"testing"
)

func TestHostsOfSSHAreReadAsTheyAreTyped(t *testing.T) {
	for text, want := range map[string]SSHHost{
		"github.com":           {Name: "github.com"},
		"GitHub.com":           {Name: "github.com"},
		"git@github.com":       {User: "git", Name: "github.com"},
		"git@example.org:2222": {User: "git", Name: "example.org", Port: 2222},
		"example.org:22":       {Name: "example.org"},
		"192.0.2.7:2222":       {Name: "192.0.2.7", Port: 2222},
		"::1":                  {Name: "::1"},
		"[::1]:2222":           {Name: "::1", Port: 2222},
		"[example.org]:2222":   {Name: "example.org", Port: 2222},
	} {
		got, err := ParseSSHHost(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if again, err := ParseSSHHost(got.String()); err != nil || again != want {
			t.Errorf("%s, which is %s: %+v, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "@github.com", "git@", "github.com:", "github.com:0", "github.com:65536", "github.com:x", "*.github.com", "a/b", "-oProxyCommand=x", "a b", "a,b",
		"a@b@github.com", "[::1]2222", "[::1]:", "é.org", ".org", strings.Repeat("a", 254), "a\x1b@github.com"} {
		if got, err := ParseSSHHost(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestKeysOfTheAgentAreNamedByFileOrFingerprint(t *testing.T) {
	const sum = "SHA256:3PPzosBt+tauqWKquZYF74lefYtOUZfPpCIW8/3lASY"
	config := `{"defaults": {"execution": {"sandbox": {"sshKeys": [{"key": "id_work", "hosts": ["git@github.com"]}, {"key": "` + sum + `", "signCommits": true, "unbound": true}]}}}}`
	p, err := resolve(t, config, Request{SSHAgent: []string{"example.org:2222=id_work", "a.org=/keys/other"}, SignCommits: []string{"id_work.pub"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.SSHKeys {
		p.SSHKeys[i].Origin = Origin{}
	}
	want := []SSHKey{
		{Name: "id_work", File: p.Home + "/.ssh/id_work.pub", Hosts: []SSHHost{{User: "git", Name: "github.com"}, {Name: "example.org", Port: 2222}}, SignCommits: true},
		{Name: sum, Fingerprint: sum, SignCommits: true, Unbound: true},
		{Name: "/keys/other", File: "/keys/other.pub", Hosts: []SSHHost{{Name: "a.org"}}},
	}
	if !reflect.DeepEqual(p.SSHKeys, want) {
		t.Errorf("%+v", p.SSHKeys)
	}
	for _, r := range []Request{{SSHAgent: []string{""}}, {SSHAgent: []string{"id_work"}}, {SSHAgent: []string{"github.com="}}, {SSHAgent: []string{"a b=id_work"}}, {SSHAgent: []string{"SHA256:x"}}, {SignCommits: []string{"a\nb"}}} {
		if _, err := resolve(t, "", r); err == nil || !strings.HasPrefix(err.Error(), "--s") {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func TestKeysOfTheAgentAreTakenAwayByWhoNarrows(t *testing.T) {
	config, err := load(t, `{"enforced": {"sandbox": {"sshAgent": false}}}`, "")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Resolve(config, caller(), Request{SSHAgent: []string{"github.com=id_work"}})
	if err != nil || p.SSHKeys != nil || len(p.Narrowed) != 1 || p.Narrowed[0].Key != "sandbox.sshAgent" {
		t.Errorf("%+v %+v, %v", p.SSHKeys, p.Narrowed, err)
	}
}

func TestAHostThatIsAllowedAlwaysIsKeptBesideTheOthers(t *testing.T) {
	for name, c := range map[string]struct{ was, want string }{
		"nothing": {"", `{"agents":{"main":{"execution":{"sandbox":{"sshKeys":[{"key":"id_work","hosts":["git@a.org"]}]}}}}}`},
		"another host, and a comment": {`{"agents": {"main": {/*mine*/ "execution": {"sandbox": {"network": "filtered", "sshKeys": [{"key": "id_work", "hosts": ["b.org"], "signCommits": true}]}}}}}`,
			`{"agents":{"main":{/*mine*/"execution":{"sandbox":{"network":"filtered","sshKeys":[{"key":"id_work","hosts":["b.org","git@a.org"],"signCommits":true}]}}}}}`},
		"that one":                   {`{"agents":{"main":{"execution":{"sandbox":{"sshKeys":[{"key":"id_work","hosts":["git@a.org"]}]}}}}}`, `{"agents":{"main":{"execution":{"sandbox":{"sshKeys":[{"key":"id_work","hosts":["git@a.org"]}]}}}}}`},
		"what all agents have stays": {`{"defaults":{"execution":{"sandbox":{"sshKeys":[{"key":"id_all","unbound":true}]}}}}`, `"sshKeys":[{"key":"id_all","unbound":true},{"key":"id_work","hosts":["git@a.org"]}]}}}}}`},
	} {
		d := Directories{Config: t.TempDir(), State: t.TempDir()}
		if c.was != "" {
			if err := os.WriteFile(d.Config+"/config.json", []byte(c.was), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		path, err := KeepSSHHost(d, "main", "id_work", SSHHost{User: "git", Name: "a.org"})
		text, _ := os.ReadFile(path)
		if got := strings.Join(strings.Fields(string(text)), ""); err != nil || !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, c.want)
		}
	}
}

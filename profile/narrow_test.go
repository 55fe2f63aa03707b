package profile

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const enforcing = `{"enforced": {
	"filesystem": {"hiddenPaths": ["~/keys", "/srv/pay"], "protectedPaths": ["Makefile"]},
	"sandbox": {"network": "filtered", "deniedDomains": ["bad.example.org"], "sessionBus": "deny", "nestedNamespaces": false},
	"limits": {"memory": "1GiB", "timeoutSeconds": 60}}}`

// Whatever the user's file, the command line and approvals say, what is enforced holds; who has
// less keeps that.
func TestNobodyLoosensWhatIsEnforced(t *testing.T) {
	for name, user := range map[string]string{
		"nothing": "",
		"all": `{"defaults": {"execution": {"filesystem": {"unprotectedPaths": ["Makefile"], "hiddenPaths": []},
			"sandbox": {"network": "enabled", "sessionBus": "allow", "nestedNamespaces": true}, "limits": {"memory": "8GiB", "timeoutSeconds": 0}}}}`,
		"an agent": `{"agents": {"main": {"execution": {"sandbox": {"network": "filtered", "allowedDomains": ["*"], "sessionBus": "filtered"}, "limits": {"memory": "0"}}}}}`,
	} {
		config, err := load(t, enforcing, user)
		if err != nil {
			t.Fatal(name, err)
		}
		for _, r := range []Request{{}, {Network: "enabled", SessionBus: "allow", NestedNamespaces: true, Unprotect: []string{"Makefile"}, Limits: []string{"memory=0"}, Timeout: time.Hour}} {
			p, err := Resolve(config, caller(), r)
			if err != nil {
				t.Fatal(name, err)
			}
			hidden := func(path string) bool {
				return slices.ContainsFunc(p.Hidden, func(h HiddenPath) bool { return h.Path == path && h.Enforced })
			}
			if p.Network != NetworkFiltered || p.Domains.Judge(destination(t, "bad.example.org:443")).Verdict != DomainDenied || p.SessionBus != SessionBusDeny || p.NestedNamespaces ||
				!hidden(caller().Home+"/keys") || !hidden("/srv/pay") || !p.Protects("Makefile") || p.Limits.Of(LimitMemory) != 1<<30 || p.Limits.Timeout != time.Minute {
				t.Errorf("%s, %+v: %+v", name, r, p)
			}
			if len(p.Narrowed) == 0 || !strings.HasSuffix(p.Narrowed[0].Origin.Source, "config.json: enforced") {
				t.Errorf("%s: %+v", name, p.Narrowed)
			}
		}
		p, err := Resolve(config, caller(), Request{Network: "disabled", Limits: []string{"memory=64MiB"}, Timeout: time.Second})
		if err != nil || p.Network != NetworkDisabled || p.Limits.Of(LimitMemory) != 64<<20 || p.Limits.Timeout != time.Second {
			t.Errorf("%s: what is narrower: %+v, %v", name, p, err)
		}
	}
	config, err := load(t, `{"enforced": {"sandbox": {"deniedDomains": ["bad.example.org"]}}}`, "")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Resolve(config, caller(), Request{})
	if err != nil || p.Network != NetworkFiltered || p.Domains.Judge(destination(t, "bad.example.org:443")).Verdict != DomainDenied || p.Domains.Judge(destination(t, "good.example.org:443")).Verdict != DomainAllowed {
		t.Errorf("denied on an enabled network: %+v, %v", p.Domains, err)
	}
	if _, err := load(t, "", enforcing); err == nil || !strings.Contains(err.Error(), "only the administrator's file") {
		t.Errorf("a user enforces: %v", err)
	}
}

func destination(t *testing.T, text string) Destination {
	t.Helper()
	host, _, _ := strings.Cut(text, ":")
	to, err := ParseDestination(host, 443)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func TestAWorkspacesOwnFileOnlyNarrows(t *testing.T) {
	dir := t.TempDir()
	read := func(text string) (*Project, error) {
		if err := os.WriteFile(filepath.Join(dir, ProjectName), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return ReadProject(dir)
	}
	if p, err := ReadProject(dir); p != nil || err != nil {
		t.Errorf("none: %+v, %v", p, err)
	}
	project, err := read(`{"filesystem": {"hiddenPaths": ["secrets"], "protectedPaths": ["Makefile"]}, "sandbox": {"network": "enabled", "sessionBus": "deny"}, /* more */ "limits": {"processes": 100}}`)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Resolve(&Config{}, caller(), Request{Project: project, Network: "disabled"})
	if last := p.Hidden[len(p.Hidden)-1]; err != nil || p.Network != NetworkDisabled || p.SessionBus != SessionBusDeny || p.Limits.Of(LimitProcesses) != 100 || last.Path != dir+"/secrets" || !last.Enforced {
		t.Errorf("%+v, %v", p, err)
	}
	if len(p.Narrowed) != 4 || p.Narrowed[0].Origin.Source != filepath.Join(dir, ProjectName) {
		t.Errorf("%+v", p.Narrowed)
	}
	for text, want := range map[string]string{
		`{"filesystem": {"extraPaths": []}}`:                         "unknown key",
		`{"filesystem": {"unprotectedPaths": [".git"]}}`:             "unknown key",
		`{"filesystem": {"hiddenPaths": ["../other"]}}`:              "leads out",
		`{"filesystem": {"hiddenPaths": ["**/*.pem"]}}`:              "is a pattern",
		`{"filesystem": {"protectedPaths": ["*.mk"]}}`:               "is a pattern",
		`{"filesystem": {"hiddenPaths": ["/etc"]}}`:                  "write it as it is called",
		`{"sandbox": {"allowedDomains": ["*"]}}`:                     "unknown key",
		`{"sandbox": {"nestedNamespaces": true}}`:                    "must be false",
		`{"environment": {"set": {"A": "b"}}}`:                       "unknown key",
		`{"defaults": {}}`:                                           "unknown key",
		`{"sandbox": {"network": "off"}}`:                            "is not disabled",
		`{`:                                                          "syntax error",
		`{"$schema": "` + strings.Repeat("x", maxProjectSize) + `"}`: "larger than",
	} {
		var mistake *ConfigError
		if _, err := read(text); !errors.As(err, &mistake) || !strings.Contains(err.Error(), want) || mistake.Hint == "" {
			t.Errorf("%.60s: %v", text, err)
		}
	}
	for what, make := range map[string]func(string) error{
		"a link":       func(path string) error { return os.Symlink("/dev/zero", path) },
		"a named pipe": func(path string) error { return syscall.Mkfifo(path, 0o666) },
		"a directory":  func(path string) error { return os.Mkdir(path, 0o755) },
	} {
		path := filepath.Join(dir, ProjectName)
		os.Remove(path)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadProject(dir); err == nil {
			t.Errorf("%s is read", what)
		}
	}
}

// Who works in a part of a project has its file as well, whatever a command made of that part.
func TestTheFilesAboveAWorkspaceCountToo(t *testing.T) {
	top := t.TempDir()
	part := filepath.Join(top, "a", "part")
	if err := os.MkdirAll(part, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(dir, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, ProjectName), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(top, `{"filesystem": {"hiddenPaths": ["secrets"]}, "sandbox": {"network": "filtered"}, "limits": {"processes": 100}}`)
	for _, own := range []string{"", `{"filesystem": {"hiddenPaths": ["more"]}, "sandbox": {"network": "disabled"}, "limits": {"processes": 200}}`} {
		network := NetworkFiltered
		hidden := []string{filepath.Join(top, "secrets")}
		if own != "" {
			write(part, own)
			network, hidden = NetworkDisabled, append(hidden, filepath.Join(part, "more"))
		}
		project, err := ReadProject(part)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Resolve(&Config{}, caller(), Request{Project: project})
		if err != nil || p.Network != network || p.Limits.Of(LimitProcesses) != 100 {
			t.Errorf("%+v, %v", p, err)
		}
		for _, path := range hidden {
			if !slices.ContainsFunc(p.Hidden, func(h HiddenPath) bool { return h.Path == path && h.Enforced }) {
				t.Errorf("%s is not hidden", path)
			}
		}
	}
	write(top, `{"filesystem": {"extraPaths": []}}`)
	if _, err := ReadProject(part); err == nil || !strings.Contains(err.Error(), filepath.Join(top, ProjectName)) {
		t.Errorf("one above that cannot be read counts for none: %v", err)
	}
	if os.Getuid() != 0 {
		return
	}
	if err := os.Lchown(filepath.Join(top, ProjectName), 1, 1); err != nil {
		t.Fatal(err)
	}
	if project, err := ReadProject(part); err != nil || project == nil || project.above != nil {
		t.Errorf("another user's, above the workspace: %v", err)
	}
}

package profile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func caller() Caller {
	return Caller{UID: 1000, Home: "/home/u", User: "u", Shell: "/bin/bash", WorkingDirectory: "/home/u/work",
		Environ: []string{"PATH=/usr/bin:/bin", "LANG=de_DE.UTF-8", "LC_ALL=C", "TERM=xterm", "SECRET=s3cret", "HOME=/home/u", "SSH_AUTH_SOCK=/run/s", "BASH_FUNC_x%%=() { :; }"}}
}

func resolve(t *testing.T, text string, r Request) (Profile, error) {
	t.Helper()
	config, err := load(t, "", text)
	if err != nil {
		return Profile{}, err
	}
	return Resolve(config, caller(), r)
}

func grantsOf(p Profile) string {
	var list []string
	for _, g := range p.Grants {
		list = append(list, fmt.Sprintf("%s %s %s", g.Path, g.Access, g.Origin.Kind))
	}
	return strings.Join(list, ", ")
}

func TestANewAgentReadsTheHomeAndWritesTheWorkspace(t *testing.T) {
	p, err := resolve(t, "", Request{})
	if err != nil || grantsOf(p) != "/home/u read_only default, /home/u/work read_write workspace" || p.Agent != "main" ||
		p.SessionBus != SessionBusFiltered || p.Network != NetworkEnabled || p.NestedNamespaces || p.Limits.Timeout != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	if !slices.Equal(p.OwnDirectories, []string{"/etc/clai-sandbox", "/home/u/.config/clai-sandbox", "/home/u/.local/state/clai-sandbox"}) {
		t.Error(p.OwnDirectories)
	}
}

func TestTheDefaultGrantGoesWhenTheConfigurationHasAList(t *testing.T) {
	with := func(list string) string {
		return `{"agents": {"main": {"execution": {"filesystem": {"extraPaths": ` + list + `}}}}}`
	}
	for list, want := range map[string]string{
		"[]": "/home/u/work read_write workspace",
		`[{"path": "~/x", "access": "read_write"}, {"path": "/data", "access": "read_only"}]`: "/home/u/x read_write config, /data read_only config, /home/u/work read_write workspace",
	} {
		if p, err := resolve(t, with(list), Request{}); err != nil || grantsOf(p) != want {
			t.Errorf("%s: %s, %v", list, grantsOf(p), err)
		}
	}
}

func TestWhatStandsAtTheHome(t *testing.T) {
	with := func(filesystem string) string {
		return `{"agents": {"main": {"execution": {"filesystem": {` + filesystem + `}}}}}`
	}
	for _, c := range []struct {
		config  string
		request Request
		want    Home
		reads   bool // the caller's own
		refused string
	}{
		{reads: true},
		{config: `"extraPaths": []`, want: HomePrivate},
		{config: `"extraPaths": [{"path": "~/x", "access": "read_only"}]`, want: HomePrivate},
		{config: `"extraPaths": [{"path": "~", "access": "read_only"}]`, reads: true},
		{config: `"extraPaths": []`, request: Request{Grants: []string{"~"}}, reads: true},
		{config: `"extraPaths": [], "home": "ephemeral"`, want: HomeEphemeral},
		{config: `"extraPaths": [], "home": "readable"`, reads: true},
		{config: `"home": "private"`, want: HomePrivate},
		{config: `"home": "private"`, request: Request{Home: "ephemeral"}, want: HomeEphemeral},
		{config: `"home": "private"`, request: Request{Home: "readable"}, reads: true},
		{config: `"home": "private"`, request: Request{Grants: []string{"~"}}, refused: "--grant ~"},
		{config: `"home": "private"`, request: Request{Workspace: "/home"}, refused: "/home shows /home/u (workspace)"},
		{config: `"home": "private"`, request: Request{Stored: []Grant{{Path: "/home/u", Access: ReadOnly, Origin: Origin{Kind: OriginApproval}}}}, reads: true},
		{config: `"extraPaths": [{"path": "~", "access": "read_only"}], "home": "private"`, refused: "config.json:1"},
		{request: Request{Home: "mine"}, refused: `--home: "mine" is not readable, private or ephemeral`},
	} {
		p, err := resolve(t, with(c.config), c.request)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%+v: %v, want %q", c, err, c.refused)
			}
			continue
		}
		reads := slices.ContainsFunc(p.Grants, func(g Grant) bool { return g.Path == p.Home })
		if err != nil || p.HomeIs != c.want || reads != c.reads {
			t.Errorf("%+v: %s, read %v, %v", c, p.HomeIs, reads, err)
		}
	}
}

func TestGrantsStandTheLeastSpecificFirst(t *testing.T) {
	p, err := resolve(t, `{"defaults": {"execution": {"filesystem": {"extraPaths": [{"path": "/c", "access": "read_only"}]}}}}`,
		Request{Grants: []string{"/f:rw", "~/g"}, Stored: []Grant{{Path: "/s", Access: ReadOnly, Origin: Origin{Kind: "approval"}}}})
	want := "/c read_only config, /s read_only approval, /home/u/work read_write workspace, /f read_write flag, /home/u/g read_only flag"
	if err != nil || grantsOf(p) != want {
		t.Errorf("%s, %v", grantsOf(p), err)
	}
}

func TestWhatCannotBeMeantIsRefused(t *testing.T) {
	for _, c := range []struct {
		config string
		r      Request
		want   string
	}{
		{"", Request{Workspace: "/"}, "the whole file system"},
		{"", Request{Workspace: "/proc/self"}, "nothing of /proc"},
		{"", Request{Workspace: "~other/x"}, "another user's home"},
		{"", Request{Workspace: "/a\x00"}, "NUL"},
		{"", Request{Workspace: "/" + strings.Repeat("n", 300)}, "300 bytes"},
		{"", Request{WorkingDirectory: "~x"}, "--cwd"},
		{"", Request{Grants: []string{"--network"}}, "looks like an option; write ./"},
		{"", Request{Grants: []string{"/run/docker.sock"}}, "nothing of /run"},
		{"", Request{Grants: []string{"/"}}, "the whole file system"},
		{"", Request{Grants: slices.Repeat([]string{"/a"}, 10_000)}, "10002 grants: at most 1000"},
		{"", Request{Network: "on"}, `--network: "on" is not`},
		{"", Request{SessionBus: "raw"}, `--session-bus: "raw" is not`},
		{"", Request{Agent: "a/b"}, "agent"},
		{`{"defaults": {"execution": {"filesystem": {"extraPaths": [{"path": "/sys/x", "access": "read_only"}]}}}}`, Request{}, "config.json:1:68: defaults.execution.filesystem.extraPaths.0.path: nothing of /sys"},
		{`{"defaults": {"execution": {"filesystem": {"extraPaths": [{"path": "~/../../dev", "access": "read_only"}]}}}}`, Request{}, "config.json:1: nothing of /dev"},
		{"", Request{Grants: []string{"/proc/\x1b[2J\n"}}, `--grant "/proc/\x1b[2J\n": nothing of /proc`},
		{"", Request{Grants: []string{"-\x1b\u202e"}}, `"-\x1b\u202e": looks like an option`},
		{"", Request{Network: strings.Repeat("n", 5000)}, "n\"… is not"},
		{"", Request{Environment: []string{"\x1b=1"}}, `variable "\x1b": is no name`},
	} {
		_, err := resolve(t, c.config, c.r)
		if err == nil || !strings.Contains(err.Error(), c.want) || !oneSafeLine(err.Error()) {
			t.Errorf("%+.100v: %v, want %q", c.r, err, c.want)
		}
	}
}

func TestTheWorkspaceAndTheWorkingDirectoryMayBeRelative(t *testing.T) {
	for _, c := range []struct{ workspace, cwd, wantWorkspace, wantCwd string }{
		{"", "", "/home/u/work", "/home/u/work"},
		{".", "", "/home/u/work", "/home/u/work"},
		{"..", "", "/home/u", "/home/u/work"},
		{"sub", "", "/home/u/work/sub", "/home/u/work/sub"},
		{"/srv", "", "/srv", "/srv"},
		{"~/x", "sub", "/home/u/x", "/home/u/work/sub"},
		{"", "/tmp", "/home/u/work", "/tmp"},
	} {
		p, err := resolve(t, "", Request{Workspace: c.workspace, WorkingDirectory: c.cwd})
		if err != nil || p.Workspace != c.wantWorkspace || p.WorkingDirectory != c.wantCwd {
			t.Errorf("%+v: %s in %s, %v", c, p.WorkingDirectory, p.Workspace, err)
		}
	}
}

func TestTheCommandLineStandsOverTheConfiguration(t *testing.T) {
	config := `{"agents": {"main": {"execution": {"sandbox": {"network": "enabled", "sessionBus": "allow", "nestedNamespaces": true}, "limits": {"timeoutSeconds": 60}}}}}`
	p, err := resolve(t, config, Request{Network: "disabled", SessionBus: "deny", Timeout: time.Second})
	if err != nil || p.Network != NetworkDisabled || p.SessionBus != SessionBusDeny || p.Limits.Timeout != time.Second || !p.NestedNamespaces {
		t.Errorf("%+v, %v", p, err)
	}
	p, err = resolve(t, config, Request{})
	if err != nil || p.SessionBus != SessionBusAllow || p.Limits.Timeout != time.Minute {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestTheSessionBusNamesOfTheCommandLineComeOnTop(t *testing.T) {
	usual := strings.Join(DefaultSessionBusNames, " ")
	const some, deny, allow = `{"defaults": {"execution": {"sandbox": {"sessionBusNames": ["org.a.B"]}}}}`,
		`{"defaults": {"execution": {"sandbox": {"sessionBus": "deny"}}}}`, `{"defaults": {"execution": {"sandbox": {"sessionBus": "allow"}}}}`
	for _, c := range []struct {
		config  string
		request Request
		want    string
	}{
		{"", Request{SessionBusNames: []string{"org.c.D", "org.c.D", "org.freedesktop.secrets"}}, usual + " org.c.D"},
		{some, Request{SessionBusNames: []string{"org.c.*"}}, "org.a.B org.c.*"},
		{deny, Request{SessionBus: "filtered", SessionBusNames: []string{"org.c.D"}}, usual + " org.c.D"},
		{deny, Request{SessionBusNames: []string{"org.c.D"}}, "is set to deny"},
		{allow, Request{SessionBusNames: []string{"org.c.D"}}, "is set to allow"},
		{"", Request{SessionBus: "deny", SessionBusNames: []string{"org.c.D"}}, "is set to deny"},
		{"", Request{SessionBusNames: []string{"org.*"}}, "is not a name on the bus"},
		{"", Request{SessionBusNames: []string{""}}, "is not a name on the bus"},
		{"", Request{SessionBusNames: []string{"a.b=*@/c"}}, "is not a name on the bus"},
		{"", Request{SessionBusNames: []string{"--own=a.b"}}, "is not a name on the bus"},
		{"", Request{SessionBusNames: []string{":1.5"}}, "is not a name on the bus"},
		{"", Request{SessionBusNames: []string{"a." + strings.Repeat("b", 254)}}, "is not a name on the bus"},
	} {
		p, err := resolve(t, c.config, c.request)
		got := strings.Join(p.SessionBusNames, " ")
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.HasPrefix(got, "--session-bus-name: ") || !strings.Contains(got, c.want)) {
			t.Errorf("%s %+v: %s, want %s", c.config, c.request, got, c.want)
		}
	}
	if len(DefaultSessionBusNames) != 3 {
		t.Error("the usual names were changed")
	}
}

func TestTheSessionBusNamesOfTheConfigurationReplaceTheUsualOnes(t *testing.T) {
	for config, want := range map[string]string{"": strings.Join(DefaultSessionBusNames, " "),
		`{"defaults": {"execution": {"sandbox": {"sessionBusNames": []}}}}`:                     "",
		`{"defaults": {"execution": {"sandbox": {"sessionBusNames": ["org.a.B", "org.c.*"]}}}}`: "org.a.B org.c.*"} {
		if p, err := resolve(t, config, Request{}); err != nil || strings.Join(p.SessionBusNames, " ") != want {
			t.Errorf("%s: %q, %v", config, p.SessionBusNames, err)
		}
	}
	who := caller()
	who.Environ = []string{"DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1/bus", "XDG_RUNTIME_DIR=/run/user/1"}
	if p, err := Resolve(&Config{}, who, Request{}); err != nil || p.SessionBusAddress != "unix:path=/run/user/1/bus" || p.RuntimeDirectory != "/run/user/1" {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestZeroValuesAreTheSafeOnes(t *testing.T) {
	var p Profile
	if p.Network.String() != "disabled" || p.SessionBus.String() != "deny" || NoAccess != 0 || p.NestedNamespaces {
		t.Errorf("%+v", p)
	}
	access, network := ReadWrite, NetworkEnabled
	if access.UnmarshalText([]byte("rw")) == nil || access != ReadWrite || network.UnmarshalText(nil) == nil {
		t.Error("a word that is none was taken")
	}
}

package instructions

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

func TestTextSaysWhatHolds(t *testing.T) {
	grant := func(path string, access profile.Access) sandbox.Step {
		return sandbox.Step{Kind: sandbox.Bind, Path: path, Access: access, Origin: profile.Origin{Kind: profile.OriginConfig}}
	}
	plan := &sandbox.Plan{Network: profile.NetworkDisabled, Hidden: []string{"/home/you/.ssh"},
		Steps: []sandbox.Step{grant("/work", profile.ReadWrite), grant("/data", profile.ReadWrite), grant("/copy", profile.CopyOnWrite), grant("/ref\x1b", profile.ReadOnly)}}
	text := Text(About{Profile: profile.Profile{Workspace: "/work"}, Plan: plan, CanAsk: true})
	for _, part := range []string{"workspace /work, /data", "Writable as a copy: /copy.", `/ref\x1b`, "fs_request_grant", "Network: none", "Credential stores are hidden", "Never rewrite authorship"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in %s", part, text)
		}
	}
	if text := Text(About{Profile: profile.Profile{Workspace: "/work"}, Plan: plan}); strings.Contains(text, "fs_request_grant") || !strings.Contains(text, "Nobody can be asked") {
		t.Errorf("%s", text)
	}
	plan.SSHAgent.Keys = []profile.SSHKey{{Name: "id_work\x1b", Hosts: []profile.SSHHost{{User: "git", Name: "github.com"}}, SignCommits: true}, {Name: "id_any", Unbound: true}}
	for asks, part := range map[bool]string{true: "git's commits, id_any signs in anywhere; at another host a person is asked", false: `id_work\x1b" signs in at git@github.com and signs git's commits, id_any signs in anywhere.`} {
		if text := Text(About{Profile: profile.Profile{Workspace: "/work"}, Plan: plan, CanAsk: asks}); !strings.Contains(text, part) {
			t.Errorf("no %q in %s", part, text)
		}
	}
	for about, want := range map[*About]bool{{CanAsk: true, HostExec: true}: true, {CanAsk: true}: false, {HostExec: true}: false} {
		about.Profile.Workspace, about.Plan = "/work", plan
		if text := Text(*about); strings.Contains(text, "hostexec") != want || len(text) > Limit {
			t.Errorf("%v: %s", want, text)
		}
	}
	if text := Text(About{Unavailable: "no bwrap"}); !strings.Contains(text, "no bwrap") || strings.Contains(text, "workspace") {
		t.Errorf("%s", text)
	}
}

func TestTextIsNeverLong(t *testing.T) {
	long := "/" + strings.Repeat("ä", 5000)
	for _, a := range []About{{Unavailable: long}, {Profile: profile.Profile{Workspace: long}, Plan: &sandbox.Plan{}}} {
		if text := Text(a); len(text) > Limit || !utf8.ValidString(text) {
			t.Errorf("%d bytes", len(text))
		}
	}
}

func TestTheSystemIsWhatTheHostHasOfIt(t *testing.T) {
	plan := sandbox.Plan{Steps: []sandbox.Step{{Kind: sandbox.Bind, Path: "/usr", Access: profile.ReadOnly, Origin: profile.Origin{Kind: profile.OriginBaseline}},
		{Kind: sandbox.Bind, Path: "/etc", Access: profile.ReadOnly, Origin: profile.Origin{Kind: profile.OriginBaseline}}}}
	if text := Text(About{Plan: &plan}); strings.Contains(text, "/opt") || !strings.Contains(text, "the system (/usr, /etc)") {
		t.Error(text)
	}
	plan.Steps = append(plan.Steps, sandbox.Step{Kind: sandbox.Symlink, Path: "/opt", Source: "usr/opt"})
	if text := Text(About{Plan: &plan}); !strings.Contains(text, "the system (/usr, /etc, /opt)") {
		t.Error(text)
	}
}

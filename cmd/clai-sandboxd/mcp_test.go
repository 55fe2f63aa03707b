package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
)

// What lies in the home directory is seen by the sandboxes of other agents, and the token or the
// socket would let them in.
func TestATokenAndASocketLieWhereNoSandboxSeesThem(t *testing.T) {
	home, err := os.MkdirTemp("/var/tmp", "clai-sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shuttest.RemoveAll(home) })
	directories := profile.Directories{Config: home + "/.config/clai-sandbox", State: home + "/.local/state/clai-sandbox", Runtime: home + "/run/clai-sandbox"}
	for _, dir := range []string{directories.Config, directories.State, directories.Runtime, directories.Config + "-beside", home + "/project"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	token := func(path string) string {
		if err := os.WriteFile(path, []byte(strings.Repeat("t", 32)), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	link := func(to, path string) string {
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	outside := token(home + "/project/token")
	hard := directories.Config + "/hard"
	if err := os.Link(token(home+"/project/other"), hard); err != nil {
		t.Fatal(err)
	}
	link(home+"/project", directories.Runtime+"/project")
	for name, c := range map[string]struct {
		address, file string
		taken         bool
	}{
		"a token of ours":               {"127.0.0.1:0", token(directories.Config + "/token"), true},
		"a link to it":                  {"127.0.0.1:0", link(directories.Config+"/token", home+"/project/link"), true},
		"a token in the home":           {"127.0.0.1:0", outside, false},
		"a link to that":                {"127.0.0.1:0", link(outside, directories.Config+"/link"), false},
		"one with another name":         {"127.0.0.1:0", hard, false},
		"one beside":                    {"127.0.0.1:0", token(directories.Config + "-beside/token"), false},
		"one by a way out":              {"127.0.0.1:0", directories.Config + "/../../project/token", false},
		"a socket of ours":              {"unix:" + directories.Runtime + "/mcp.sock", "", true},
		"a socket in the home":          {"unix:" + home + "/project/mcp.sock", "", false},
		"a socket by a linked place":    {"unix:" + directories.Runtime + "/project/mcp.sock", "", false},
		"a socket of ours, a token not": {"unix:" + directories.Runtime + "/mcp2.sock", outside, false},
		"the directory itself":          {"unix:" + directories.Runtime, "", false},
	} {
		listener, _, err := listenMCP(directories, c.address, c.file)
		if listener != nil {
			listener.Close()
		}
		if (err == nil) != c.taken {
			t.Errorf("%s: %v", name, err)
		}
		var wrong *misuse
		if !c.taken && err != nil && errors.As(err, &wrong) && !strings.Contains(wrong.Error()+wrong.hint, "/clai-sandbox") {
			t.Errorf("%s: %v says not what to do", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(home, "project/mcp.sock")); err == nil {
		t.Error("a socket was made")
	}
}

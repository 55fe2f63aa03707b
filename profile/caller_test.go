package profile

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestTheCallerIsWhoTheEnvironmentSaysOrPasswd(t *testing.T) {
	t.Setenv("HOME", "/home/somebody/")
	t.Setenv("USER", "somebody")
	t.Setenv("SHELL", "/bin/zsh")
	c, err := CurrentCaller()
	if err != nil || c.Home != "/home/somebody" || c.User != "somebody" || c.Shell != "/bin/zsh" {
		t.Errorf("%+v, %v", c, err)
	}
	t.Setenv("HOME", "relative")
	t.Setenv("USER", "")
	t.Setenv("LOGNAME", "")
	t.Setenv("SHELL", "")
	name, home, shell := passwdEntry(c.UID)
	if c, err = CurrentCaller(); home != "" && (err != nil || c.Home != home || c.User != name || c.Shell != shell) {
		t.Errorf("%+v, %v; passwd says %s %s %s", c, err, name, home, shell)
	}
}

func TestOwnDirectoriesFollowTheXDGVariables(t *testing.T) {
	c := Caller{Home: "/h", Environ: []string{"XDG_CONFIG_HOME=/c", "XDG_STATE_HOME=relative", "XDG_RUNTIME_DIR=/run/user/1"}}
	want := Directories{"/etc/clai-sandbox", "/c/clai-sandbox", "/h/.local/state/clai-sandbox", "/run/user/1/clai-sandbox", ""}
	if got := c.Directories(); got != want {
		t.Errorf("%+v", got)
	}
	for value, state := range map[string]string{"/own/state/": "/own/state", "own": want.State, "": want.State} {
		with := Caller{Home: c.Home, Environ: append([]string{StateVariable + "=" + value}, c.Environ...)}
		if got := with.Directories(); got.State != state || got.Config != want.Config {
			t.Errorf("%q: %+v", value, got)
		}
	}
}

// git writes in all of a repository, so all of it is the workspace; but not what only seems to be
// one, or is more than a project.
func TestTheRepositoryOfAWorkingDirectory(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"project/.git", "project/a/b", "project/module", "plain/a", ".dotfiles", ".config/.git", ".config/nvim", "linked", ".git"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	os.Symlink(home+"/project/.git", home+"/linked/.git")
	os.Mkdir(home+"/linked/a", 0o755)
	os.WriteFile(home+"/project/module/.git", []byte("gitdir: ../.git/modules/module\n"), 0o644)
	os.Mkdir(home+"/project/module/a", 0o755)
	for dir, want := range map[string]string{
		"project/a/b": "project", "project/.git": "project", "project": "", "plain/a": "", ".config/nvim": "", ".dotfiles": "", "linked/a": "",
		"project/module/a": "project/module", "project/module": "",
	} {
		if want != "" {
			want = filepath.Join(home, want)
		}
		c := Caller{UID: os.Getuid(), Home: home, WorkingDirectory: filepath.Join(home, dir)}
		if got := c.repository(); got != want {
			t.Errorf("%s: %q, want %q", dir, got, want)
		}
		if c.UID++; c.repository() != "" {
			t.Errorf("%s: of somebody else", dir)
		}
	}
	config, err := load(t, "", `{"defaults": {"execution": {"filesystem": {"hiddenPaths": ["/h/repo/keys"]}}}}`)
	if err != nil {
		t.Fatal(err)
	}
	c := Caller{Home: "/h", WorkingDirectory: "/h/repo/a", Repository: "/h/repo"}
	if p, err := Resolve(config, c, Request{}); err != nil || p.Workspace != "/h/repo" || p.WorkingDirectory != "/h/repo/a" {
		t.Errorf("%s, %s, %v", p.Workspace, p.WorkingDirectory, err)
	}
	for dir, top := range map[string]string{"/h/.config/gh/a": "/h/.config/gh", "/h/repo/keys": "/h/repo"} {
		c.WorkingDirectory, c.Repository = dir, top
		if _, err := Resolve(config, c, Request{}); err == nil {
			t.Errorf("%s: credentials are a workspace", dir)
		}
	}
}

// Who names another directory for the state has commands that see the usual one as little.
func TestTheUsualStateIsOursWhereverTheStateIs(t *testing.T) {
	c := Caller{Home: t.TempDir(), Environ: []string{StateVariable + "=/elsewhere"}}
	usual := filepath.Join(c.Home, ".local/state", ownName)
	if own, _ := c.Directories().Places(); slices.Contains(own, usual) {
		t.Errorf("there is none: %v", own)
	}
	if err := os.MkdirAll(usual, 0o700); err != nil {
		t.Fatal(err)
	}
	if own, _ := c.Directories().Places(); !slices.Contains(own, usual) || !slices.Contains(own, "/elsewhere") {
		t.Errorf("%v", own)
	}
}

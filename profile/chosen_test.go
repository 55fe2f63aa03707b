package profile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a command could write chooses neither what this program believes nor what it executes,
// whoever passed the variable on.
func TestNoVariableLeadsToWhereACommandCouldWrite(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	account := home + "/.local/state/clai-sandbox/" + WrittenName
	for _, dir := range []string{home + "/project/sub", home + "/apart", filepath.Dir(account)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../project/sub", home+"/apart/link"); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(account, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("0 0 \"" + home + "/project\"\n")
	check := func(environ ...string) error {
		return Caller{UID: os.Getuid(), Home: home, Environ: environ}.checkChosen()
	}
	for _, name := range choosing {
		for _, where := range []string{"/project", "/project/sub/none/", "/apart/link", "/apart/link/none", "/project/../project/x"} {
			// Also where the state is said to be elsewhere, with an account of its own.
			if err := check("XDG_STATE_HOME="+home+"/apart", name+"="+home+where); (err == nil || !strings.Contains(err.Error(), name+": is ")) && name != "XDG_STATE_HOME" {
				t.Errorf("%s=%s: %v", name, where, err)
			}
			if err := check(name + "=" + home + where); err == nil {
				t.Errorf("%s=%s is believed", name, where)
			}
		}
		for _, where := range []string{"/apart", "/projects", "/none/x", "/.config"} {
			if err := check(name + "=" + home + where); err != nil {
				t.Error(err)
			}
		}
	}
	if err := check("OTHER="+home+"/project", "XDG_CONFIG_HOME=project"); err != nil {
		t.Error(err)
	}
	t.Setenv("HOME", home)
	t.Setenv(BwrapVariable, home+"/project/bwrap")
	if _, err := CurrentCaller(); err == nil {
		t.Error("the caller's own environment is not looked at")
	}
	// A project that was cloned chooses nothing either, before any command wrote.
	if err := os.MkdirAll(home+"/clone/.git", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(home+"/clone/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	for cwd, refused := range map[string]bool{"/clone": true, "/clone/sub": true, "/apart": false, "": false, "/..": false} {
		for _, name := range choosing {
			c := Caller{UID: os.Getuid(), Home: home, WorkingDirectory: filepath.Clean(home + cwd), Environ: []string{name + "=" + home + "/clone/x"}}
			if err := c.checkChosen(); (err != nil) != refused {
				t.Errorf("%s in %s: %v", name, cwd, err)
			}
		}
	}
	c := Caller{UID: os.Getuid(), Home: home, WorkingDirectory: home + "/.config", Environ: []string{"XDG_CONFIG_HOME=" + home + "/.config"}}
	if err := c.checkChosen(); err != nil {
		t.Error(err)
	}
	write("garbage\n")
	if err := check("XDG_CONFIG_HOME=" + home + "/apart"); err == nil {
		t.Error("an account that cannot be read says nothing")
	}
	if err := check(); err != nil {
		t.Error(err)
	}
}

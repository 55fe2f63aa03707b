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

// What is executed or believed by its path is asked about as it is named, and as it leads on.
func TestWhatACommandOrAProjectCouldHaveChosen(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	state := home + "/.local/state/clai-sandbox"
	for _, dir := range []string{state, home + "/written/sub", home + "/apart", home + "/clone/.git", home + "/clone/sub", home + "/plain/sub", home + "/other"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"/apart/in": home + "/written", "/written/out": home + "/apart", "/apart/clone": home + "/clone", "/clone/out": home + "/apart"} {
		if err := os.Symlink(to, home+link); err != nil {
			t.Fatal(err)
		}
	}
	account := state + "/" + WrittenName
	if err := os.WriteFile(account, []byte("0 0 \""+home+"/written\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	could := func(cwd, path string) bool {
		return Caller{UID: os.Getuid(), Home: home, WorkingDirectory: home + cwd}.CouldBeChosen(home + path)
	}
	for _, c := range []struct {
		cwd, path string
		want      bool
	}{
		{"/other", "/written/sub/x", true},
		{"/other", "/apart/in/sub/x", true}, // leads there
		{"/other", "/written/out/x", true},  // leads elsewhere as long as a command lets it
		{"/other", "/apart/../written/x", true},
		{"/other", "/apart/x", false},
		{"/other", "/writtenx", false},
		{"/clone/sub", "/clone/x", true}, // of the repository that this is in
		{"/clone/sub", "/apart/clone/x", true},
		{"/clone/sub", "/clone/out/x", true},
		{"/clone/sub", "/apart/x", false},
		{"/plain/sub", "/plain/sub/x", true},
		{"/plain/sub", "/plain/x", false},
		{"/other", "/clone/x", false},
		{"", "/clone/x", false}, // the home is no project
	} {
		if got := could(c.cwd, c.path); got != c.want {
			t.Errorf("%s in %s: %v", c.path, c.cwd, got)
		}
	}
	if os.Getuid() == 0 { // what somebody else put there makes no repository of it
		if err := os.Mkdir(home+"/plain/.git", 0o755); err != nil {
			t.Fatal(err)
		}
		if !could("/plain/sub", "/plain/x") {
			t.Error("a repository of the person's is not looked at")
		}
		for _, path := range []string{"/plain/.git", "/plain"} {
			if err := os.Lchown(home+path, 12345, -1); err != nil {
				t.Fatal(err)
			}
			if could("/plain/sub", "/plain/x") {
				t.Errorf("%s is somebody else's, and counts", path)
			}
			if err := os.Lchown(home+path, 0, -1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(account, []byte("garbage\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !could("/other", "/apart/x") {
		t.Error("an account that cannot be read says that no command could")
	}
}

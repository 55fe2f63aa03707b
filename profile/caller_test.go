package profile

import (
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
	want := Directories{"/etc/clai-sandbox", "/c/clai-sandbox", "/h/.local/state/clai-sandbox", "/run/user/1/clai-sandbox"}
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

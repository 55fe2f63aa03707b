package profile

import (
	"slices"
	"strings"
	"testing"
)

func environmentOf(p Profile) string {
	var list []string
	for _, v := range p.Environment {
		list = append(list, v.Name+"="+v.Value)
	}
	return strings.Join(list, " ")
}

func TestACommandGetsFewOfTheCallersVariables(t *testing.T) {
	p, err := resolve(t, "", Request{})
	want := "HOME=/home/u LANG=de_DE.UTF-8 LC_ALL=C LOGNAME=u PATH=/usr/bin:/bin SHELL=/bin/bash TERM=xterm USER=u"
	if err != nil || environmentOf(p) != want {
		t.Errorf("%s, %v", environmentOf(p), err)
	}
}

func TestOnlyWhatIsAVariablesNameIsPassedByItself(t *testing.T) {
	who := caller()
	who.Environ = []string{"LC_TIME=C", "LC_=x", "LC_A B=x", "LC_\x1b=x", "PATHX=x", "LANGUAGE=x", "BASH_FUNC_LC_x%%=() { :; }", "no equals sign", "=x"}
	p, err := Resolve(&Config{}, who, Request{})
	if want := "HOME=/home/u LC_=x LC_TIME=C LOGNAME=u PATH=" + defaultPath + " SHELL=/bin/bash USER=u"; err != nil || environmentOf(p) != want {
		t.Errorf("%s, %v", environmentOf(p), err)
	}
}

func TestWhoTheCallerIsCannotBeReplaced(t *testing.T) {
	for _, name := range []string{"HOME", "USER", "LOGNAME", "SHELL"} {
		for source, c := range map[string]struct {
			config string
			r      Request
		}{
			"--env NAME":       {"", Request{Environment: []string{name}}},
			"--env NAME=VALUE": {"", Request{Environment: []string{name + "=/x"}}},
			"pass":             {`{"defaults": {"execution": {"environment": {"pass": ["` + name + `"]}}}}`, Request{}},
			"set":              {`{"defaults": {"execution": {"environment": {"set": {"` + name + `": "/x"}}}}}`, Request{}},
		} {
			if _, err := resolve(t, c.config, c.r); err == nil || !strings.Contains(err.Error(), `variable "`+name+`": is set by the sandbox itself`) {
				t.Errorf("%s through %s: %v", name, source, err)
			}
		}
	}
}

func TestVariablesAreAddedByNameOrValue(t *testing.T) {
	config := `{"defaults": {"execution": {"environment": {"pass": ["SECRET", "NOT_SET"], "set": {"A": "1", "B": "x"}}}}}`
	p, err := resolve(t, config, Request{Environment: []string{"B=a=b", "C=", "PATH=/opt/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"SECRET=s3cret", "A=1", "B=a=b", "C=", "PATH=/opt/bin"} {
		if !slices.ContainsFunc(p.Environment, func(v Variable) bool { return v.Name+"="+v.Value == want }) {
			t.Errorf("no %s in %s", want, environmentOf(p))
		}
	}
}

func TestTheDenyListWinsOverEverything(t *testing.T) {
	for _, name := range strings.Fields(`SSH_AUTH_SOCK SSH_AGENT_PID DBUS_SESSION_BUS_ADDRESS DBUS_SYSTEM_BUS_ADDRESS XDG_RUNTIME_DIR
		DOCKER_HOST CONTAINER_HOST PODMAN_HOST WAYLAND_DISPLAY DISPLAY XAUTHORITY GPG_AGENT_INFO GPG_TTY GIT_ASKPASS SSH_ASKPASS
		SUDO_ASKPASS LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT LD_ANYTHING DYLD_INSERT_LIBRARIES BASH_ENV ENV PYTHONSTARTUP PYTHONHOME
		PYTHONWARNINGS NODE_OPTIONS npm_config_node_options PERL5OPT PERL5LIB PERL5DB PERL5DBCMD RUBYOPT RUBYLIB RUBYSHELL BUN_OPTIONS
		JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS JAVA_OPTS CATALINA_OPTS MAVEN_OPTS LUA_INIT LUA_INIT_5_4 PHPRC R_PROFILE_USER
		R_ENVIRON ERL_FLAGS ELIXIR_ERL_OPTIONS CORECLR_PROFILER_PATH_64 DOTNET_STARTUP_HOOKS OPENSSL_CONF OPENSSL_ENGINES GTK_MODULES
		GIT_SSH GIT_SSH_COMMAND GIT_EXTERNAL_DIFF GIT_EDITOR GIT_SEQUENCE_EDITOR GIT_PAGER GIT_EXEC_PATH GIT_CONFIG_COUNT
		GIT_CONFIG_KEY_0 GIT_PROXY_COMMAND GIT_TEMPLATE_DIR GIT_HOOK_PATH GIT_DIR SVN_SSH BZR_SSH BZR_PLUGIN_PATH GCONV_PATH
		GLIBC_TUNABLES SHELLOPTS PS4 PROMPT_COMMAND ZDOTDIR IFS LESSOPEN LESSCLOSE BASH_FUNC_ls CONFIG_SITE VIMINIT EXINIT GVIMINIT
		MAKEFLAGS MFLAGS RUSTC_WRAPPER CARGO_BUILD_RUSTC_WRAPPER COMPILER_PATH SSH_SK_PROVIDER HOSTALIASES DOCKER_CONTEXT TMUX
		KITTY_LISTEN_ON VSCODE_IPC_HOOK_CLI WSL_INTEROP CREDENTIALS_DIRECTORY`) {
		if _, denied := Denied(name); !denied {
			t.Errorf("%s is not denied", name)
		}
		for source, try := range map[string]func() error{
			"--env NAME":       func() error { _, err := resolve(t, "", Request{Environment: []string{name}}); return err },
			"--env NAME=VALUE": func() error { _, err := resolve(t, "", Request{Environment: []string{name + "=t0ken"}}); return err },
			"pass": func() error {
				_, err := resolve(t, `{"defaults": {"execution": {"environment": {"pass": ["`+name+`"]}}}}`, Request{})
				return err
			},
			"set": func() error {
				_, err := resolve(t, `{"defaults": {"execution": {"environment": {"set": {"`+name+`": "t0ken"}}}}}`, Request{})
				return err
			},
		} {
			if err := try(); err == nil || !strings.Contains(err.Error(), "refused: ") || strings.Contains(err.Error(), "t0ken") {
				t.Errorf("%s through %s: %v", name, source, err)
			}
		}
	}
}

func TestHarmlessVariablesAreAPersonsToGive(t *testing.T) {
	for _, name := range strings.Fields("CI NODE_ENV EDITOR PAGER PYTHONPATH GOFLAGS GOCACHE GOPATH CARGO_HOME MY_TOKEN FORCE_COLOR TMPDIR CC VISUAL BROWSER CLASSPATH NODE_PATH HTTPS_PROXY TERMINFO MALLOC_ARENA_MAX XDG_CONFIG_HOME GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL") {
		if _, err := resolve(t, "", Request{Environment: []string{name + "=1"}}); err != nil {
			t.Error(err)
		}
	}
}

func TestAVariableThatCannotBeIsRefusedWithoutItsValue(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"NOT_SET_HERE", "is not set here"}, {"1A=s3cret", "is no name"}, {"=s3cret", "is no name"}, {"A B=s3cret", "is no name"}, {"", "is no name"},
		{"A=s3cret\x00", "NUL"}, {"A=s3cret" + strings.Repeat("x", 128<<10), "longer than"}, {"HOME=/s3cret", "set by the sandbox"}, {"USER=s3cret", "set by the sandbox"},
	} {
		_, err := resolve(t, "", Request{Environment: []string{c.text}})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") || !oneSafeLine(err.Error()) {
			t.Errorf("%.20q: %v", c.text, err)
		}
	}
	var many []string
	for i := range 1001 {
		many = append(many, "V"+strings.Repeat("x", i)+"=1")
	}
	if _, err := resolve(t, "", Request{Environment: many}); err == nil {
		t.Error("1001 variables were taken")
	}
}

func TestAFeatureIsNamedWhereOneHandsTheVariableOver(t *testing.T) {
	if reason, _ := Denied("DBUS_SESSION_BUS_ADDRESS"); !strings.Contains(reason, "--session-bus") {
		t.Error(reason)
	}
}

// A command with the host's network goes through the caller's proxy, as without a sandbox; any
// other sees nothing of it.
func TestProxiesOfTheCallerArePassedOnWithTheHostsNetworkAlone(t *testing.T) {
	who := caller()
	who.Environ = append(who.Environ, "HTTPS_PROXY=http://me:secret@proxy.example:3128", "no_proxy=.example.org", "ALL_PROXY=")
	for _, c := range []struct {
		name    string
		request Request
		want    string
	}{
		{"the host's", Request{Network: "enabled"}, "HTTPS_PROXY=http://me:secret@proxy.example:3128 no_proxy=.example.org"},
		{"nobody says", Request{}, "HTTPS_PROXY=http://me:secret@proxy.example:3128 no_proxy=.example.org"},
		{"another is said", Request{Environment: []string{"HTTPS_PROXY=http://other"}}, "HTTPS_PROXY=http://other no_proxy=.example.org"},
		{"filtered", Request{AllowDomains: []string{"a.example"}}, ""},
		{"none", Request{Network: "disabled"}, ""},
		{"narrowed", Request{Network: "enabled", Project: &Project{narrowing: narrowing[protectedName]{Sandbox: narrowingSandbox{Network: new(NetworkFiltered)}}}}, ""},
	} {
		p, err := Resolve(&Config{}, who, c.request)
		if err != nil {
			t.Fatal(c.name, err)
		}
		var got []string
		for _, v := range p.Environment {
			if strings.HasSuffix(strings.ToUpper(v.Name), "_PROXY") {
				got = append(got, v.Name+"="+v.Value)
			}
		}
		if strings.Join(got, " ") != c.want || !slices.IsSortedFunc(p.Environment, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

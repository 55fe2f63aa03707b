package profile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// passedByDefault are the caller's variables that every command gets: where programs are, and how to speak to the
// person. None of them says anything about the caller's accounts.
var passedByDefault = []string{"PATH", "LANG", "TZ", "TERM", "COLORTERM", "NO_COLOR", "LC_*"}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// denied are the variables that no command gets, whoever asks for them. A name that ends in "*" stands for all that begin
// so.
//
// Two kinds: those that lead to a service of the caller's outside, and those that load code into programs which did not
// ask for it, so that what runs is no longer what was shown. A variable that merely says where a program looks for its
// own libraries (PYTHONPATH, NODE_PATH, CLASSPATH), or which tool it starts for a person (EDITOR, PAGER, CC), is a
// person's to set: it is not denied, and not passed unless asked for. PERL5LIB and RUBYLIB, which are alike, are denied: few
// ask for them, and strict is better there.
var denied = []struct {
	reason  string
	feature string // what hands it over in a safe way, if anything does
	names   string
}{
	{"it leads to the caller's ssh keys", "", "SSH_AUTH_SOCK SSH_AGENT_PID SSH_AGENT_LAUNCHER"},
	{"it leads to the caller's session bus", "use --session-bus", "DBUS_SESSION_BUS_ADDRESS DBUS_SESSION_BUS_PID DBUS_STARTER_ADDRESS DBUS_STARTER_BUS_TYPE AT_SPI_BUS_ADDRESS IBUS_ADDRESS"},
	{"it leads to the system bus", "", "DBUS_SYSTEM_BUS_ADDRESS"},
	{"it leads to the sockets of the caller's session", "", "XDG_RUNTIME_DIR NOTIFY_SOCKET LISTEN_FDS LISTEN_PID LISTEN_FDNAMES LISTEN_PIDFDID PULSE_SERVER PIPEWIRE_REMOTE PIPEWIRE_RUNTIME_DIR CREDENTIALS_DIRECTORY GNOME_KEYRING_CONTROL"},
	{"it leads to a program outside that runs what it is told", "", "TMUX STY KITTY_LISTEN_ON WEZTERM_UNIX_SOCKET ALACRITTY_SOCKET NVIM NVIM_LISTEN_ADDRESS EMACS_SERVER_FILE VSCODE_IPC_HOOK* VSCODE_GIT_IPC_HANDLE SWAYSOCK I3SOCK NIRI_SOCKET HYPRLAND_INSTANCE_SIGNATURE WSL_INTEROP"},
	{"it leads to a container engine, which runs anything as root", "", "DOCKER_HOST DOCKER_CONTEXT DOCKER_CERT_PATH CONTAINER_HOST CONTAINER_CONNECTION CONTAINER_SSHKEY PODMAN_HOST CONTAINERD_ADDRESS BUILDKIT_HOST"},
	{"it leads to the caller's display, where keys can be read and typed", "", "WAYLAND_DISPLAY WAYLAND_SOCKET DISPLAY XAUTHORITY ICEAUTHORITY SESSION_MANAGER"},
	{"it leads to the caller's gpg keys", "", "GPG_AGENT_INFO GPG_TTY"},
	{"it names a program that asks for passwords", "", "GIT_ASKPASS VSCODE_GIT_ASKPASS_* SSH_ASKPASS SSH_ASKPASS_REQUIRE SUDO_ASKPASS"},
	{"it loads code into every program", "", "LD_* DYLD_* GCONV_PATH GLIBC_TUNABLES"},
	{"it makes every program read other files or ask other servers", "", "GETCONF_DIR LOCPATH NLSPATH HOSTALIASES RESOLV_HOST_CONF RES_OPTIONS LOCALDOMAIN"},
	{"it loads code into every shell, or makes it read commands in another way", "", "BASH_ENV ENV BASH_FUNC_* BASH_LOADABLES_PATH SHELLOPTS BASHOPTS PS4 PROMPT_COMMAND ZDOTDIR FPATH IFS CDPATH GLOBIGNORE FIGNORE CONFIG_SITE"},
	{"it loads code into every interpreter", "", "PYTHONSTARTUP PYTHONHOME PYTHONINSPECT PYTHONBREAKPOINT PYTHONEXECUTABLE PYTHONPLATLIBDIR PYTHONUSERBASE PYTHONWARNINGS " +
		"NODE_OPTIONS NPM_CONFIG_NODE_OPTIONS npm_config_node_options NODE_REPL_EXTERNAL_MODULE NODE_CHANNEL_FD BUN_OPTIONS " +
		"PERL5OPT PERL5LIB PERLLIB PERL5DB* PERL5SHELL RUBYOPT RUBYLIB RUBYSHELL " +
		"JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS JDK_JAVAC_OPTIONS JAVA_OPTS CATALINA_OPTS MAVEN_OPTS GRADLE_OPTS SBT_OPTS ANT_OPTS " +
		"CORECLR_PROFILER CORECLR_PROFILER_PATH* CORECLR_ENABLE_PROFILING COR_PROFILER* COR_ENABLE_PROFILING DOTNET_STARTUP_HOOKS DOTNET_ADDITIONAL_DEPS " +
		"PHPRC PHP_INI_SCAN_DIR LUA_INIT* R_PROFILE* R_ENVIRON* ERL_AFLAGS ERL_FLAGS ERL_ZFLAGS ELIXIR_ERL_OPTIONS"},
	{"it loads code into every program that uses the library", "", "OPENSSL_CONF OPENSSL_ENGINES OPENSSL_MODULES GTK_MODULES GTK3_MODULES GIO_EXTRA_MODULES GIO_MODULE_DIR QT_PLUGIN_PATH"},
	{"it loads code into every editor", "", "VIMINIT EXINIT GVIMINIT VIMRUNTIME EMACSLOADPATH"},
	{"it loads code into ssh", "", "SSH_SK_PROVIDER SSH_SK_HELPER SSH_PKCS11_HELPER"},
	{"it makes git start programs, or read another configuration", "", "GIT_SSH GIT_SSH_COMMAND GIT_EXTERNAL_DIFF GIT_EDITOR GIT_SEQUENCE_EDITOR GIT_PAGER GIT_PROXY_COMMAND GIT_EXEC_PATH GIT_HOOK_PATH GIT_TEMPLATE_DIR GIT_CONFIG GIT_CONFIG_* GIT_ALLOW_PROTOCOL GIT_PROTOCOL_FROM_USER GIT_DIR GIT_COMMON_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_ATTR_SOURCE"},
	{"it makes a version control or copying program start others, or load code", "", "SVN_SSH BZR_SSH BZR_PLUGIN_PATH CVS_RSH RSYNC_RSH HGRCPATH"},
	{"it makes a build start other programs", "", "RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER CARGO_BUILD_RUSTC_WRAPPER CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER GOTOOLDIR GCC_EXEC_PREFIX COMPILER_PATH MAKEFLAGS GNUMAKEFLAGS MFLAGS MAKEFILES"},
	{"it opens files with a program of the caller's", "", "LESSOPEN LESSCLOSE"},
}

// Denied reports whether no command may be given the variable, and why. What a feature of this program sets itself is not
// asked for here.
func Denied(name string) (reason string, no bool) {
	for _, row := range denied {
		for pattern := range strings.FieldsSeq(row.names) {
			if matches(pattern, name) {
				if row.feature != "" {
					return row.reason + "; " + row.feature, true
				}
				return row.reason, true
			}
		}
	}
	return "", false
}

func matches(pattern, name string) bool {
	if prefix, found := strings.CutSuffix(pattern, "*"); found {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

const (
	maxVariables     = 1000
	maxVariableBytes = 128 << 10 // MAX_ARG_STRLEN: the kernel takes no longer one
	maxEnvironment   = 1 << 20
)

// ownVariables say who the caller is, and are always true.
var ownVariables = []string{"HOME", "USER", "LOGNAME", "SHELL"}

// environment collects the command's variables. Later ones replace earlier ones of the same name.
type environment struct {
	caller map[string]string
	given  map[string]Variable
}

func newEnvironment(environ []string) *environment {
	e := &environment{caller: make(map[string]string, len(environ)), given: make(map[string]Variable, 16)}
	for _, entry := range environ {
		if name, value, found := strings.Cut(entry, "="); found && name != "" {
			e.caller[name] = value
		}
	}
	return e
}

// passDefaults gives the command what the caller has of the default names.
func (e *environment) passDefaults() {
	for name, value := range e.caller {
		for _, pattern := range passedByDefault {
			if matches(pattern, name) && isVariableName(name) {
				e.put(name, value, Origin{Kind: OriginBaseline})
			}
		}
	}
	if e.caller["PATH"] == "" {
		e.put("PATH", defaultPath, Origin{Kind: OriginBaseline})
	}
}

func (e *environment) put(name, value string, origin Origin) {
	e.given[name] = Variable{name, value, origin}
}

// allow gives the command one more variable. A nil value is the caller's; optional ones that the caller does not have
// are left out. The error never holds the value: it may be a secret.
func (e *environment) allow(name string, value *string, optional bool, origin Origin) error {
	if err := checkVariable(name); err != nil {
		return fmt.Errorf("%s: %w", origin.Source, err)
	}
	if value == nil {
		of, found := e.caller[name]
		switch {
		case !found && optional:
			return nil
		case !found:
			return fmt.Errorf("%s: variable %s: is not set here; write %s=VALUE to give it one", origin.Source, shorten(name), shortText(name))
		}
		value = &of
	}
	if err := checkVariableValue(name + "=" + *value); err != nil {
		return fmt.Errorf("%s: variable %s: %w", origin.Source, shorten(name), err)
	}
	e.put(name, *value, origin)
	return nil
}

// checkVariable refuses a name that no command is given.
func checkVariable(name string) error {
	refuse := func(why string) error { return fmt.Errorf("variable %s: %s", shorten(name), why) }
	if !isVariableName(name) {
		if before, _, found := strings.Cut(name, "="); found {
			name = before + "=…" // behind it there may be a secret
		}
		return refuse("is no name of a variable: letters, digits and _, and no digit first")
	}
	if slices.Contains(ownVariables, name) {
		return refuse("is set by the sandbox itself, to who the caller is")
	}
	if reason, no := Denied(name); no {
		return refuse("refused: " + reason)
	}
	return nil
}

func checkVariableValue(value string) error {
	if strings.IndexByte(value, 0) >= 0 {
		return errors.New("its value holds a NUL byte")
	}
	if len(value) >= maxVariableBytes {
		return fmt.Errorf("longer than %d bytes", maxVariableBytes)
	}
	return nil
}

func isVariableName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// list is the environment, sorted by name.
func (e *environment) list() ([]Variable, error) {
	list := make([]Variable, 0, len(e.given))
	size := 0
	for _, v := range e.given {
		list = append(list, v)
		size += len(v.Name) + len(v.Value) + 2
	}
	if len(list) > maxVariables || size > maxEnvironment {
		return nil, fmt.Errorf("environment: %d variables of %d bytes: at most %d of %d", len(list), size, maxVariables, maxEnvironment)
	}
	slices.SortFunc(list, func(a, b Variable) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

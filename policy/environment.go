package policy

import (
	"fmt"
	"sort"
	"strings"
)

// MarkerVariable tells a command that it was run under this policy.
const MarkerVariable = "CLAI_SANDBOX_EXEC"

// An EnvironmentError names the variables of a request that may not be set.
type EnvironmentError struct {
	Blocked []string // in capitals: they would choose what runs, or for whom
	Invalid []string // no portable names
}

func (e *EnvironmentError) Error() string {
	var parts []string
	if len(e.Blocked) > 0 {
		parts = append(parts, "blocked override keys: "+DisplayText(strings.Join(e.Blocked, ", ")))
	}
	if len(e.Invalid) > 0 {
		parts = append(parts, "invalid override keys: "+DisplayText(strings.Join(e.Invalid, ", ")))
	}
	return fmt.Sprintf("SYSTEM_RUN_DENIED: environment override rejected (%s)", strings.Join(parts, "; "))
}

// CheckOverrides says whether a request may set its variables. The error is an *EnvironmentError.
func CheckOverrides(overrides map[string]string) error {
	e := &EnvironmentError{}
	for _, name := range sortedNames(overrides) {
		switch {
		case !portableName(name):
			e.Invalid = append(e.Invalid, name)
		case blockedOverride(strings.ToUpper(name)):
			e.Blocked = append(e.Blocked, strings.ToUpper(name))
		}
	}
	if e.Blocked == nil && e.Invalid == nil {
		return nil
	}
	sort.Strings(e.Blocked)
	return e
}

// Environment is what a command on this host starts with: what the host's own process has, without what would choose programs,
// and the overrides that may be set. Through a shell only how text looks may be overridden.
func Environment(inherited, overrides map[string]string, shell bool) map[string]string {
	env := map[string]string{}
	for name, value := range inherited {
		if name != "" && !strings.ContainsAny(name, "=\x00") && keptInherited(strings.ToUpper(name)) {
			env[name] = value
		}
	}
	for name, value := range overrides {
		if KeepOverride(name, shell) && !strings.Contains(value, "\x00") {
			env[name] = value
		}
	}
	env[MarkerVariable] = "1"
	return env
}

// KeepOverride says whether an override reaches the command.
func KeepOverride(name string, shell bool) bool {
	if !portableName(name) || blockedOverride(strings.ToUpper(name)) {
		return false
	}
	return !shell || shellOverride(name)
}

func shellOverride(name string) bool {
	switch name {
	case "TERM", "LANG", "COLORTERM", "NO_COLOR", "FORCE_COLOR":
		return true
	}
	return strings.HasPrefix(name, "LC_")
}

// portableName is [A-Za-z_][A-Za-z0-9_]*.
func portableName(name string) bool {
	for i := 0; i < len(name); i++ {
		if !nameByte(name[i]) || i == 0 && name[i] >= '0' && name[i] <= '9' {
			return false
		}
	}
	return name != ""
}

// blockedOverride says whether a variable chooses which code runs, which configuration it reads, whom it trusts, or as whom it
// speaks. Whole families are blocked, because each release of a program may add to them.
func blockedOverride(name string) bool {
	return codeVariable(name) || trustVariable(name) || secretVariable(name) || callerVariable(name)
}

// keptInherited says whether a variable of the host's own process reaches a command. What the host's user set up for whom to
// trust and where to log in stays; what chooses code does not.
func keptInherited(name string) bool {
	if keptAnyway(name) {
		return true
	}
	return !codeVariable(name) && !secretInherited(name)
}

// keptAnyway are variables that a host's user needs and set: they choose code too, but nobody who sends a command could write them.
func keptAnyway(name string) bool {
	switch name {
	case "PATH", "HOME", "TMPDIR", "USER", "LOGNAME", "PWD", "HISTFILE", "ZDOTDIR",
		"PAGER", "MANPAGER", "GIT_PAGER", "GIT_CONFIG_COUNT", "GRADLE_USER_HOME",
		"NODE_TLS_REJECT_UNAUTHORIZED", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
		"NO_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NPM_CONFIG_REGISTRY", "KUBECONFIG",
		"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "DOCKER_CONFIG",
		"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "GOOGLE_APPLICATION_CREDENTIALS",
		"AZURE_AUTH_LOCATION", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS",
		"EMAIL", "OLDPWD", "TMP", "TEMP", "TZ", "XDG_RUNTIME_DIR", "XDG_SESSION_ID", "XDG_SESSION_TYPE", "XDG_CURRENT_DESKTOP":
		return true
	}
	return strings.HasPrefix(name, "GIT_CONFIG_KEY_") || strings.HasPrefix(name, "GIT_CONFIG_VALUE_") || strings.HasPrefix(name, "TF_VAR_")
}

// codeFamilies are the beginnings of names by which programs are told what to load, to start, or to read at their start.
var codeFamilies = [...]string{
	"LD_", "DYLD_", "GLIBC_", "GCONV_", "MALLOC_", "NLSPATH", "LOCPATH", "RES_", "HOSTALIASES", "LOCALDOMAIN", "RESOLV_",
	"BASH_", "ZSH_", "KSH_", "FISH_", "GIT_", "SVN_", "HG", "BZR_", "CVS_", "P4",
	"NODE_", "NPM_", "NPX_", "PNPM_", "YARN_", "BUN_", "DENO_", "TS_NODE_", "TSX_", "ELECTRON_", "COREPACK_", "VOLTA_", "NVM_",
	"PYTHON", "PYENV_", "PIP_", "PIPENV_", "POETRY_", "UV_", "PDM_", "CONDA_", "VIRTUAL_ENV", "PYTEST_", "TOX_", "JUPYTER_", "IPYTHON",
	"PERL", "RUBY", "GEM_", "BUNDLE_", "BUNDLER_", "RBENV_", "RAILS_", "IRBRC", "PHP", "COMPOSER_", "LUA_", "LUAROCKS_", "R_", "RSTUDIO_",
	"JULIA_", "ERL_", "ELIXIR_", "MIX_", "HEX_", "IEX_", "REBAR_", "GHC", "CABAL_", "STACK_", "OCAML", "OPAM", "GUILE_", "TCL", "TK_",
	"JAVA_", "_JAVA", "JDK_", "JRE_", "CLASSPATH", "MAVEN_", "M2_", "GRADLE_", "ANT_", "SBT_", "KOTLIN_", "SCALA_", "CATALINA_", "JBOSS_",
	"DOTNET_", "CORECLR_", "COMPLUS_", "COR_", "NUGET_", "MSBUILD", "MONO_",
	"GOAUTH", "GOBIN", "GOCACHE", "GOCOVERDIR", "GODEBUG", "GOENV", "GOEXPERIMENT", "GOFLAGS", "GOINSECURE", "GOMOD", "GONO", "GOOS", "GOPATH",
	"GOPRIVATE", "GOPROXY", "GOROOT", "GOSUMDB", "GOTMPDIR", "GOTOOL", "GOVCS", "GOWORK", "CGO_", "RUST", "CARGO_", "RUSTUP_", "CMAKE_", "CTEST_", "CONFIG_S", "MAKE", "MFLAGS", "GNUMAKEFLAGS", "NINJA_", "MESON_",
	"BAZEL_", "CCACHE_", "SCCACHE_", "DISTCC_", "PKG_CONFIG", "ACLOCAL", "AUTOCONF", "AUTOHEADER", "AUTOM4TE", "AUTOMAKE", "AUTOPOINT", "AUTORECONF", "LIBTOOL", "GCC_", "COMPILER_PATH", "LIBRARY_PATH", "CPATH",
	"LESS", "MANLESS", "MANOPT", "MANPAGER", "MANPATH", "MANROFF", "VIM", "NVIM", "EXINIT", "GVIM", "EMACS", "NANO", "READLINE", "INPUTRC", "TERMINFO", "TERMCAP", "SCREENRC", "TMUX_",
	"XDG_", "QT_", "GTK_", "GIO_", "GST_", "GSETTINGS_", "DBUS_", "LIBGL_", "VK_", "MESA_", "FONTCONFIG_", "CUPS_", "SANE_", "ALSA_",
	"OPENSSL_", "GNUPG", "GPG_", "PKCS11", "KRB5", "SASL_", "LDAP", "NSS_", "P11_",
	"ANSIBLE_", "HELM_", "KUBE", "KUSTOMIZE_", "TF_", "TERRAFORM_", "TERRAGRUNT_", "PULUMI_", "PACKER_", "VAGRANT_", "CHEF_", "PUPPET_", "SALT_",
	"DOCKER_", "COMPOSE_", "BUILDKIT_", "BUILDAH_", "PODMAN_", "CONTAINER_", "CONTAINERS_", "CONTAINERD_", "MINIKUBE_",
	"CURL_", "WGET", "ARIA2_", "RSYNC_", "SSH", "SFTP_", "SUDO", "ASKPASS", "DEBUGINFOD_", "GDB", "LLDB_", "VALGRIND_", "STRACE_",
	"DEB_", "DEBEMAIL", "DEBFULLNAME", "DEBIAN_", "DPKG_", "APT_", "RPM_", "YUM_", "DNF_", "BREW_", "HOMEBREW_", "NIX_", "GUIX_", "SNAP_", "FLATPAK_",
	"AWS_", "AZURE_", "ARM_", "GOOGLE_", "GCLOUD_", "CLOUDSDK_", "GCP_", "OCI_", "DIGITALOCEAN_", "HCLOUD_", "LINODE_", "VAULT_", "CONSUL_", "NOMAD_",
	"MYSQL_", "PG", "PSQL", "SQLITE_", "ORACLE_", "ODBC", "MONGO", "REDIS_", "AMQP_", "CELERY_", "DJANGO_", "FLASK_", "LARAVEL_",
	"OPENCL_", "OCL_", "CUDA_", "NVIDIA_", "ROCM_", "HIP_", "OMP_", "MPI_", "OMPI_", "SLURM_",
	"PREFIX", "PROMPT_", "FPATH", "CDPATH", "MODULE", "LMOD_", "ASAN_", "LSAN_", "MSAN_", "TSAN_", "UBSAN_", "LLVM_", "CLANG_",
}

// codeVariable says whether a variable, in capitals, chooses which code a program runs.
func codeVariable(name string) bool {
	for _, family := range codeFamilies {
		if strings.HasPrefix(name, family) {
			return true
		}
	}
	for _, ending := range [...]string{"_OPTS", "_OPTIONS", "_ARGS", "FLAGS", "_EDITOR", "PAGER", "_PRELOAD", "_LIBRARY_PATH", "_PLUGINS", "_PLUGIN_PATH",
		"_PLUGIN_DIR", "_WRAPPER", "_SHELL", "_COMMAND", "_CMD", "_BROWSER", "_STARTUP", "_INIT", "_RC", "_RCFILE", "_HOOK", "_HOOKS", "_HOOK_PATH",
		"_MODULE_PATH", "_INCLUDE_PATH", "_EXEC_PATH", "_ASKPASS", "_REGISTRY", "_INDEX_URL", "_COMPILER", "_LINKER", "_CONFIG_FILE",
		"_CONFIG", "_CONFIG_PATH", "_CONFIG_DIR", "_SOCK", "_AGENT"} {
		if strings.HasSuffix(name, ending) {
			return true
		}
	}
	switch name {
	case "PATH", "HOME", "ENV", "IFS", "SHELL", "SHELLOPTS", "BASHOPTS", "PS0", "PS1", "PS2", "PS3", "PS4", "ZDOTDIR", "HISTFILE", "HISTCONTROL",
		"MAIL", "MAILPATH", "TMPDIR", "TMP", "TEMP", "TEMPDIR", "EDITOR", "VISUAL", "BROWSER", "PAGER", "FCEDIT", "OPENER", "TERMINAL", "TZDIR",
		"CC", "CXX", "CPP", "LD", "AR", "AS", "NM", "RANLIB", "STRIP", "OBJC", "FC", "F77", "GREP_OPTIONS", "GREP_COLORS", "TAPE", "POSIXLY_CORRECT",
		"CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "OBJC_INCLUDE_PATH", "CRYPTODEV", "DOTENV", "PYTHONPATH", "SDKROOT", "DEVELOPER_DIR",
		"LOGNAME", "EMAIL", "REPLYTO", "PRINTER", "WINEDEBUG", "WINEPREFIX", "DISPLAY", "XAUTHORITY", "WAYLAND_DISPLAY", "TRAPS", "FUNCNEST",
		"EXECIGNORE", "GLOBIGNORE", "INSIDE_EMACS", "OLDPWD", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", MarkerVariable:
		return true
	}
	return false
}

// trustVariable says whether a variable chooses whom a program believes, or through whom it speaks.
func trustVariable(name string) bool {
	switch {
	case strings.HasSuffix(name, "_PROXY"), strings.HasPrefix(name, "SSL_"), strings.HasPrefix(name, "TLS_"), strings.HasPrefix(name, "REQUESTS_"),
		strings.Contains(name, "CA_BUNDLE"), strings.Contains(name, "CA_CERT"), strings.Contains(name, "CERT_FILE"), strings.Contains(name, "CERT_DIR"),
		strings.Contains(name, "REJECT_UNAUTHORIZED"), strings.HasSuffix(name, "_CERT"), strings.HasSuffix(name, "_TRUSTED_HOST"):
		return true
	}
	return false
}

// secretVariable says whether a variable is what a program logs in with, or where: a request could let it act as somebody else.
func secretVariable(name string) bool {
	for _, ending := range [...]string{"TOKEN", "_SECRET", "PASSWORD", "PASSWD", "_PASS", "_API_KEY", "APIKEY", "_ACCESS_KEY", "_ACCESS_KEY_ID",
		"_PRIVATE_KEY", "_CREDENTIALS", "_CREDENTIAL", "_AUTH", "_DSN", "_CLIENT_ID", "_CLIENT_SECRET", "_TENANT_ID", "_URI", "_AUTH_LOCATION",
		"_CONNECTION_STRING", "_SESSION_KEY", "_WEBHOOK", "_WEBHOOK_URL"} {
		if strings.HasSuffix(name, ending) {
			return true
		}
	}
	switch name {
	case "DATABASE_URL", "REDIS_URL", "MONGODB_URL", "MONGO_URL", "POSTGRES_URL", "MYSQL_URL", "AMQP_URL", "BROKER_URL", "CLOUDAMQP_URL", "ELASTICSEARCH_URL",
		"SENTRY_DSN", "NETRC":
		return true
	}
	return strings.HasSuffix(name, "DATABASE_URL") || strings.HasSuffix(name, "REDIS_URL")
}

// secretInherited keeps the host's own secrets from commands that agents chose.
func secretInherited(name string) bool { return secretVariable(name) }

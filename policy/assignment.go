package policy

import "strings"

// quietVariables are of families that choose code (environment.go), and choose none themselves:
// with one of these values a line may set them for a command. "word" is any word of letters, digits
// and . _ , : @ % + -, which names no path.
var quietVariables = map[string]string{
	"CGO_ENABLED": "0|1", "GOOS": "word", "GOARCH": "word", "GOARM": "word", "GO111MODULE": "on|off|auto", "GOMAXPROCS": "word", "GOPROXY": "off|direct", "GOSUMDB": "off",
	"NODE_ENV": "word", "NODE_NO_WARNINGS": "0|1", "NODE_DISABLE_COLORS": "0|1", "NPM_CONFIG_COLOR": "false|true|always", "NPM_CONFIG_LOGLEVEL": "word", "NPM_CONFIG_YES": "false|true", "YARN_ENABLE_COLORS": "0|1|true|false", "COREPACK_ENABLE_DOWNLOAD_PROMPT": "0",
	"PYTHONUNBUFFERED": "0|1", "PYTHONDONTWRITEBYTECODE": "0|1", "PYTHONHASHSEED": "word", "PYTHONUTF8": "0|1", "PYTHONIOENCODING": "word", "PYTHONFAULTHANDLER": "0|1", "PIP_DISABLE_PIP_VERSION_CHECK": "0|1", "PIP_NO_INPUT": "0|1", "PIP_NO_CACHE_DIR": "0|1|off",
	"DJANGO_DEBUG": "0|1|true|false", "FLASK_ENV": "word", "FLASK_DEBUG": "0|1", "RAILS_ENV": "word", "RACK_ENV": "word", "MIX_ENV": "word",
	"RUST_BACKTRACE": "0|1|full", "RUST_LOG": "word", "RUST_TEST_THREADS": "word", "CARGO_TERM_COLOR": "always|never|auto", "CARGO_INCREMENTAL": "0|1", "CARGO_NET_OFFLINE": "true|false",
	"GIT_PAGER": "cat", "PAGER": "cat", "MANPAGER": "cat", "GH_PAGER": "cat", "SYSTEMD_PAGER": "cat", "AWS_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0|1", "GIT_EDITOR": "true|:|cat", "EDITOR": "true|:|cat", "GIT_OPTIONAL_LOCKS": "0|1", "GIT_MERGE_AUTOEDIT": "no|0|1", "GIT_SEQUENCE_EDITOR": "true|:",
	"GIT_AUTHOR_NAME": "any", "GIT_AUTHOR_EMAIL": "any", "GIT_COMMITTER_NAME": "any", "GIT_COMMITTER_EMAIL": "any", "GIT_AUTHOR_DATE": "any", "GIT_COMMITTER_DATE": "any",
	"DEBIAN_FRONTEND": "noninteractive", "MAKELEVEL": "0", "TERM": "word", "COLUMNS": "word", "LINES": "word", "TZ": "word", "CI": "word", "LANG": "word", "LANGUAGE": "word", "NO_COLOR": "word", "FORCE_COLOR": "word", "CLICOLOR": "word", "CLICOLOR_FORCE": "word",
	"DOCKER_BUILDKIT": "0|1", "BUILDKIT_PROGRESS": "plain|auto", "ANSIBLE_NOCOLOR": "0|1|true", "PGCONNECT_TIMEOUT": "word", "LESSCHARSET": "word", "POSIXLY_CORRECT": "1|", "HUSKY": "0", "SKIP": "word", "ASAN_OPTIONS": "detect_leaks=0",
}

// harmlessAssignment says whether a line may set a variable for one of its commands: a name that
// chooses no code, with a value that is no path, since what a program does with the variables of
// its own is not known here.
func harmlessAssignment(name, value string) bool {
	if kinds, ok := quietVariables[name]; ok {
		for _, kind := range strings.Split(kinds, "|") {
			switch {
			case value == kind, kind == "word" && quietValue(value), kind == "any" && !strings.ContainsAny(value, "\n\x00"):
				return true
			}
		}
		return false
	}
	return portableName(name) && !blockedOverride(strings.ToUpper(name)) && !changesTheShell(name) && quietValue(value)
}

func quietValue(value string) bool { return plain(value, ".,:@%+-_") }

package policy

import "strings"

// maxWrappers is how many wrappers are looked through. A fifth is refused.
const maxWrappers = 4

// An unwrapped is a command without the programs that only start it.
type unwrapped struct {
	Argv     []string   // the command that is started
	Policy   []string   // the command that an allowlist is asked about: with busybox sh, busybox
	Wrappers []string   // names, the outermost first
	Outer    [][]string // what stands before Argv, a part for each wrapper
	Blocked  string     // the wrapper that cannot be looked through
	Why      string     // and why not
}

// Unwrap looks through the wrappers that do nothing but start another command: env without options
// or assignments, nice, nohup, stdbuf, time, timeout. Whatever else starts a command, or has a flag
// that is not known, is blocked.
func Unwrap(argv []string) unwrapped { return unwrap(argv, nil) }

// unwrap takes a name for each word from alias, so that a link called e to env counts as env.
func unwrap(argv []string, alias func(word string) string) unwrapped {
	u := unwrapped{Argv: argv}
	for len(u.Argv) > 0 {
		name := wrapperName(u.Argv[0], alias)
		n, why := wrapperWords(name, u.Argv)
		if why == "" && n > 0 && n < len(u.Argv) && strings.HasPrefix(u.Argv[n], "-") {
			why = "the command that it starts is not clear"
		}
		if why == "" && n > 0 && n >= len(u.Argv) {
			why = "it starts no command"
		}
		if why == "" && n > 0 && len(u.Wrappers) == maxWrappers {
			why = "there are too many wrappers"
		}
		if why != "" {
			u.Wrappers, u.Outer, u.Policy = nil, nil, u.Argv
			u.Blocked, u.Why = name, why
			return u
		}
		if n == 0 {
			break
		}
		u.Wrappers, u.Outer = append(u.Wrappers, name), append(u.Outer, u.Argv[:n])
		u.Argv = u.Argv[n:]
	}
	u.Policy = u.Argv
	u.multiplexer(alias)
	return u
}

func wrapperName(word string, alias func(string) string) string {
	base := baseOf(word)
	if alias == nil || isWrapper(base) {
		return base
	}
	for _, name := range append(canonicalNames(baseOf(alias(word))), canonicalNames(base)...) {
		if isWrapper(name) {
			return name
		}
	}
	return base
}

// multiplexer looks at busybox and toybox, whose first argument is the program.
func (u *unwrapped) multiplexer(alias func(string) string) {
	if len(u.Argv) == 0 {
		return
	}
	name := wrapperName(u.Argv[0], alias)
	if !isMultiplexer(name) {
		return
	}
	rest := u.Argv[1:]
	if len(rest) > 0 && rest[0] == "--" {
		rest = rest[1:]
	}
	if len(rest) > 0 && isShell(baseOf(rest[0])) {
		u.Wrappers, u.Argv = append(u.Wrappers, name), rest
		return
	}
	u.Wrappers, u.Outer, u.Blocked, u.Why = nil, nil, name, "what it does is its argument's choice"
}

func isMultiplexer(name string) bool { return name == "busybox" || name == "toybox" }

// isWrapper names the programs that run a command which is one of their arguments, and nothing
// besides. Only the transparent ones are looked through.
func isWrapper(name string) bool { return transparent(name) || opaque(name) || isMultiplexer(name) }

func transparent(name string) bool {
	switch name {
	case "env", "nice", "nohup", "stdbuf", "time", "timeout":
		return true
	}
	return false
}

// opaque wrappers change who runs a command, where, or what it can reach, or take a command that is
// not an argument of its own.
func opaque(name string) bool {
	if strings.HasPrefix(name, "ld") && strings.Contains(name, ".so") { // the loader, by any of its names
		return true
	}
	switch name {
	case "sudo", "doas", "su", "sudoedit", "pkexec", "runuser", "gosu", "su-exec", "setpriv", "capsh", "newgrp", "sg",
		"setsid", "chrt", "ionice", "taskset", "numactl", "prlimit", "setarch", "arch", "linux32", "linux64", "choom", "uclampset",
		"strace", "ltrace", "gdb", "gdbserver", "lldb", "perf", "valgrind", "rr", "uftrace",
		"script", "scriptreplay", "unbuffer", "expect", "rlwrap", "flock", "watch", "entr", "parallel",
		"chroot", "unshare", "nsenter", "ip", "firejail", "bwrap", "proot", "fakeroot", "fakechroot", "runcon", "systemd-run",
		"systemd-inhibit", "dbus-run-session", "dbus-launch", "ssh-agent", "xvfb-run", "startx", "xinit",
		"start-stop-daemon", "daemonize", "dtach", "screen", "tmux", "at", "batch", "crontab",
		"torsocks", "torify", "proxychains", "proxychains4", "tsocks", "catchsegv", "chronic", "ifne", "logsave", "systemd-cat", "eatmydata", "ld.so", "ld-linux-x86-64.so.2",
		"ld-linux-aarch64.so.1", "xcrun", "command", "builtin", "exec", "eval":
		return true
	}
	return false
}

// wrapperWords counts the words of argv that belong to the wrapper, with its own name. It is 0 for
// what is no wrapper.
func wrapperWords(name string, argv []string) (n int, why string) {
	switch {
	case opaque(name):
		return 0, "what it starts runs otherwise than it would alone"
	case name == "env":
		return envWords(argv)
	case transparent(name):
		return flagWords(name, argv)
	}
	return 0, ""
}

// envWords lets env pass only as "env COMMAND" and "env -- COMMAND". Also behind "--", a word with
// "=" in it is an assignment.
func envWords(argv []string) (int, string) {
	n := 1
	if n < len(argv) && argv[n] == "--" {
		n++
	}
	if n < len(argv) && (strings.HasPrefix(argv[n], "-") || strings.Contains(argv[n], "=")) {
		return 0, "it changes the environment"
	}
	if n == len(argv) {
		return 0, "it prints the environment"
	}
	return n, ""
}

// flagWords walks over the known flags of a wrapper, and the one operand that timeout has.
func flagWords(name string, argv []string) (int, string) {
	n := 1
	for n < len(argv) && strings.HasPrefix(argv[n], "-") && argv[n] != "-" {
		word := argv[n]
		if word == "--" {
			n++
			break
		}
		words := flagLength(name, word)
		if words == 0 {
			return 0, "its flag " + word + " is not known"
		}
		if words == 2 && (n+1 >= len(argv) || !plain(argv[n+1], ".+-")) {
			return 0, "the value of its flag " + word + " is not clear"
		}
		n += words
	}
	if name == "timeout" {
		if n >= len(argv) || !plain(argv[n], ".") {
			return 0, "its duration is not clear"
		}
		n++
	}
	if name == "env" && n < len(argv) && strings.Contains(argv[n], "=") {
		return 0, "it changes the environment"
	}
	return n, ""
}

// flagLength is how many words a flag of a wrapper takes: 1, 2, or 0 where it is not known.
func flagLength(name, word string) int {
	long, value, inline := strings.Cut(word, "=")
	if inline && !plain(value, ".+-") {
		return 0
	}
	takesValue := func() int {
		if inline {
			return 1
		}
		return 2
	}
	short := func(flags string) int {
		if len(word) < 2 || strings.HasPrefix(word, "--") || strings.IndexByte(flags, word[1]) < 0 {
			return 0
		}
		if len(word) == 2 {
			return 2
		}
		if !plain(word[2:], ".+-") {
			return 0
		}
		return 1
	}
	switch name {
	case "nice":
		if long == "--adjustment" {
			return takesValue()
		}
		if len(word) > 1 && strings.Trim(word[1:], "0123456789") == "" {
			return 1 // -5
		}
		return short("n")
	case "timeout":
		switch {
		case word == "--foreground" || word == "--preserve-status" || word == "--verbose" || word == "-v":
			return 1
		case long == "--kill-after" || long == "--signal":
			return takesValue()
		}
		return short("ks")
	case "stdbuf":
		if long == "--input" || long == "--output" || long == "--error" {
			return takesValue()
		}
		return short("ioe")
	case "time":
		if word == "-p" {
			return 1
		}
	}
	return 0
}

package policy

import (
	"errors"
	"path/filepath"
	"strings"
)

// errUnbindable says that what an interpreter would run cannot be told from the command's words, so
// that no approval can be bound to it.
var errUnbindable = errors.New("SYSTEM_RUN_DENIED: approval cannot safely bind this interpreter/runtime command")

// errCwd says that a working directory is reached through a link, which could lead elsewhere when
// the command runs.
var errCwd = errors.New("SYSTEM_RUN_DENIED: approval requires a canonical working directory (no symbolic link in it)")

// Prepare makes the plan of a command for a prompt: its program by the real path, its directory
// without links, its script by hash.
func (m *Machine) Prepare(r CommandRequest, cwd, agent, session string) (Plan, error) {
	if len(r.Argv) == 0 {
		return Plan{}, MissingCommandError{}
	}
	real, err := m.Files.Real(cwd)
	if err != nil || !filepath.IsAbs(cwd) || real != filepath.Clean(cwd) {
		return Plan{}, errCwd
	}
	p := Plan{Argv: append([]string{}, r.Argv...), Cwd: real, Preview: r.Preview, Agent: agent, Session: session}
	index, bound := scriptOperand(p.Argv, func(word string) bool { return m.script(word, real) != "" })
	switch bound {
	case bindFile:
		if p.File, err = m.bindFile(p.Argv[index], index, real); err != nil {
			return Plan{}, errUnbindable
		}
	case bindNothing:
	default:
		return Plan{}, errUnbindable
	}
	if err := m.pin(&p); err != nil {
		return Plan{}, err
	}
	p.CommandText = CommandText(p.Argv)
	return p, nil
}

// pin puts the real path in argv[0]'s place, and notes what the words lead to.
func (m *Machine) pin(p *Plan) error {
	exec, err := m.Find(p.Argv[0], p.Cwd)
	if err != nil {
		return err
	}
	p.Argv[0] = exec.Real
	p.Executable = exec.Real
	p.words = append(p.words, Executable{Word: exec.Real, Path: exec.Real, Real: exec.Real})
	u := Unwrap(p.Argv)
	if len(u.Wrappers) > 0 && len(u.Policy) > 0 && u.Blocked == "" {
		inner, err := m.Find(u.Policy[0], p.Cwd)
		if err != nil {
			return err
		}
		p.Executable = inner.Real
		p.words = append(p.words, inner)
	}
	return nil
}

// script is the real path of a script that a word names, or empty.
func (m *Machine) script(word, cwd string) string {
	path := word
	if !filepath.IsAbs(path) {
		path = cwd + "/" + path
	}
	kind, err := m.Files.Stat(path)
	if err != nil || kind != fileRegular && kind != fileExecutable {
		return ""
	}
	real, err := m.Files.Real(path)
	if err != nil {
		return ""
	}
	return real
}

func (m *Machine) bindFile(word string, index int, cwd string) (*boundFile, error) {
	path := m.script(word, cwd)
	sum, err := m.Files.Hash(path)
	return &boundFile{index, path, sum}, err
}

// A bindable says what an approval has to be bound to besides the words. The zero value is: it
// cannot be told.
type bindable uint8

const (
	bindUnclear bindable = iota
	bindNothing
	bindFile
)

// scriptOperand finds the script in the words of a command.
func scriptOperand(argv []string, isFile func(string) bool) (index int, _ bindable) {
	u := Unwrap(argv)
	if u.Blocked != "" {
		for _, word := range u.Argv[1:] {
			if isRuntime(runtimeName(word)) {
				return 0, bindUnclear
			}
		}
		return 0, bindNothing
	}
	at := len(argv) - len(u.Argv)
	name := runtimeName(u.Argv[0])
	rest := u.Argv[1:]
	var kind bindable
	switch {
	case isShell(name):
		index, kind = shellOperand(name, u.Argv, isFile)
		return at + index, kind
	case isPackageRunner(name):
		inner, ok := runnerCommand(name, rest)
		switch {
		case !ok:
			return 0, bindUnclear
		case inner == 0 || inner > len(rest) || !isRuntime(runtimeName(rest[inner-1])):
			return 0, bindNothing
		}
		index, kind = scriptOperand(rest[inner-1:], isFile)
		return at + inner + index, kind
	case isRuntime(name):
		index, kind = runtimeOperand(name, rest, isFile)
		return at + 1 + index, kind
	}
	return 0, bindNothing
}

func shellOperand(name string, argv []string, isFile func(string) bool) (int, bindable) {
	use := shellUse(name, argv)
	switch {
	case use.Inline:
		// The line is one of the words. A script that it names is not.
		for _, word := range strings.FieldsFunc(use.Payload+" "+strings.Join(argv[1:], " "), func(r rune) bool { return strings.ContainsRune(" \t\n;|&()`'\"$={}<>", r) }) {
			if n := runtimeName(word); isRuntime(n) || isPackageRunner(n) {
				return 0, bindUnclear
			}
		}
		return 0, bindNothing
	case use.Script > 0 && !use.Unclear && isFile(argv[use.Script]):
		return use.Script, bindFile
	}
	return 0, bindUnclear
}

// runtimeName is the name by which a program counts as an interpreter: without version, and without
// what its script's name ends in.
func runtimeName(word string) string {
	base := baseOf(word)
	for _, ending := range [...]string{".js", ".cjs", ".mjs"} {
		base = strings.TrimSuffix(base, ending)
	}
	return familyOf(base)
}

// isRuntime names the programs whose first operand is a script.
func isRuntime(name string) bool {
	switch name {
	case "node", "nodejs", "bun", "deno", "tsx", "ts-node", "vite-node", "jiti", "esno", "swc-node", "babel-node", "python", "pypy", "ruby", "jruby",
		"perl", "php", "lua", "luajit", "r", "rscript", "julia", "groovy", "osascript", "tclsh", "guile", "racket", "elixir", "awk", "gawk", "mawk", "nawk",
		"sed", "gsed":
		return true
	}
	return false
}

func isPackageRunner(name string) bool {
	switch name {
	case "pnpm", "npm", "npx", "pnpx", "bunx", "yarn", "yarnpkg", "uvx", "pipx":
		return true
	}
	return false
}

// runtimeOperand finds the script of an interpreter. The index is one of args.
func runtimeOperand(name string, args []string, isFile func(string) bool) (int, bindable) {
	switch name {
	case "awk", "gawk", "mawk", "nawk", "sed", "gsed":
		return programFile(args, isFile)
	case "deno":
		if len(args) == 0 || args[0] != "run" {
			return 0, versionOnly(args)
		}
		i, kind := firstFile(args[1:], isFile)
		return 1 + i, kind
	case "bun":
		if len(args) > 0 && args[0] == "run" {
			i, kind := firstFile(args[1:], isFile)
			return 1 + i, kind
		}
	}
	if flag := inlineFlag(name, args); flag != "" {
		if loads(flag) {
			return 0, bindUnclear
		}
		return 0, bindNothing // the code is one of the words
	}
	for _, arg := range args {
		if arg == "--" || !strings.HasPrefix(arg, "-") {
			break
		}
		if word, _, _ := strings.Cut(arg, "="); loads(word) || strings.HasPrefix(arg, "-I") || strings.HasPrefix(arg, "-m") && !strings.HasPrefix(arg, "--") ||
			strings.HasPrefix(arg, "-M") || name == "ruby" && strings.HasPrefix(arg, "-r") {
			return 0, bindUnclear
		}
	}
	return firstFile(args, isFile)
}

// loads says whether a flag makes an interpreter read code from another place than its script.
func loads(flag string) bool {
	switch flag {
	case "-r", "--require", "--import", "--loader", "--experimental-loader", "--preload", "--env-file", "-M", "-m", "-I", "-l", "-d", "-C", "--define":
		return true
	}
	return false
}

// firstFile takes the first operand for the script. It must be there: a name that is none means
// something else.
func firstFile(args []string, isFile func(string) bool) (int, bindable) {
	for i, arg := range args {
		if arg == "--" {
			if i+1 < len(args) && isFile(args[i+1]) {
				return i + 1, bindFile
			}
			return 0, bindUnclear
		}
		if strings.HasPrefix(arg, "-") {
			continue
		}
		if isFile(arg) {
			return i, bindFile
		}
		return 0, bindUnclear
	}
	return 0, versionOnly(args)
}

// versionOnly lets a command pass that asks an interpreter about itself.
func versionOnly(args []string) bindable {
	if len(args) == 1 {
		switch args[0] {
		case "--version", "-v", "-V", "--help", "-h":
			return bindNothing
		}
	}
	return bindUnclear
}

// programFile finds the file of awk -f and sed -f.
func programFile(args []string, isFile func(string) bool) (int, bindable) {
	found, at := bindNothing, 0
	for i, arg := range args {
		switch {
		case arg == "--":
			return at, found
		case arg == "-f" || arg == "--file":
			if found == bindFile || i+1 >= len(args) || !isFile(args[i+1]) {
				return 0, bindUnclear
			}
			found, at = bindFile, i+1
		case strings.HasPrefix(arg, "-f") || strings.HasPrefix(arg, "--file=") || strings.HasPrefix(arg, "-i") && len(arg) == 2 || strings.HasPrefix(arg, "-E"):
			if arg == "-i" {
				continue
			}
			return 0, bindUnclear
		}
	}
	return at, found
}

// runnerCommand finds the command that a package runner starts: its place in args, counted from 1,
// and 0 for none.
func runnerCommand(name string, args []string) (int, bool) {
	i, ok := runnerFlags(args, 0)
	if !ok || i >= len(args) {
		return 0, ok
	}
	switch name {
	case "npx", "pnpx", "bunx", "uvx":
		return i + 1, true
	}
	switch args[i] {
	case "exec", "x", "dlx":
		i, ok = runnerFlags(args, i+1)
		if !ok || i >= len(args) {
			return 0, ok
		}
		return i + 1, true
	case "node":
		return i + 1, true
	case "run", "run-script", "start", "test", "t", "stop", "restart", "rum", "urn":
		return 0, false // a script of package.json
	case "add", "install", "i", "ci", "remove", "rm", "uninstall", "update", "up", "outdated", "list", "ls", "why", "audit", "view", "info", "config",
		"login", "whoami", "pack", "publish", "link", "unlink", "prune", "store", "root", "bin", "init", "create", "help", "version", "search":
		return 0, true
	}
	return 0, false
}

// runnerFlags walks over the flags that are known to change nothing about which command is started.
func runnerFlags(args []string, i int) (int, bool) {
	for ; i < len(args); i++ {
		word, _, inline := strings.Cut(args[i], "=")
		switch word {
		case "--":
			return i + 1, true
		case "-w", "--workspace-root", "-s", "--silent", "-y", "--yes", "-q", "--quiet", "--no-install", "--offline", "--prefer-offline", "-r", "--recursive",
			"--bun", "-v", "--version", "--help", "-h":
		case "--package", "-p", "--reporter", "--filter", "-F", "-C", "--dir", "--loglevel", "--workspace", "--prefix", "--cwd":
			if !inline {
				i++
			}
		default:
			if strings.HasPrefix(word, "-") {
				return i, false
			}
			return i, true
		}
	}
	return i, true
}

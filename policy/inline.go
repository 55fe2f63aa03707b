package policy

import "strings"

// An Inline is code that stands in a command's arguments and that the program will run.
type Inline struct {
	Program string `json:"program"` // "python3"
	Flag    string `json:"flag"`    // "-c", "<program>"
	Why     string `json:"why,omitempty" jsonschema:"why it is asked about"`
}

// text says for a person what is asked about.
func (i Inline) text() string {
	if i.Why == "" {
		return i.Program + " " + i.Flag + " is code in the arguments"
	}
	return i.Program + ": " + i.Flag + " " + i.Why
}

// FindInline looks for code in the arguments of an interpreter, or of a program that runs other
// programs. The name is the base of argv[0].
func FindInline(argv []string) (Inline, bool) {
	if len(argv) == 0 {
		return Inline{}, false
	}
	return findInline(strings.ToLower(baseOf(argv[0])), argv)
}

func findInline(name string, argv []string) (Inline, bool) {
	flag := inlineFlag(familyOf(name), argv[1:])
	if flag == "" || flag == "-E" {
		// A capital, or a place behind the script, hides nothing.
		if folded := foldedFlag(familyOf(name), argv[1:]); folded != "" {
			flag = folded
		}
	}
	return Inline{Program: name, Flag: flag}, flag != ""
}

// foldedFlag finds an interpreter's flag for code in any case, before a --.
func foldedFlag(family string, args []string) string {
	var flags []string
	switch family {
	case "python", "pypy":
		flags = []string{"-c"}
	case "node", "nodejs", "bun", "deno":
		flags = []string{"-e", "--eval", "-p", "--print"}
	case "ruby", "perl", "lua", "osascript":
		flags = []string{"-e"}
	case "php":
		flags = []string{"-r"}
	}
	for _, arg := range args {
		lower := strings.ToLower(strings.TrimSpace(arg))
		if lower == "--" {
			return ""
		}
		for _, flag := range flags {
			if lower == flag {
				return flag
			}
		}
	}
	return ""
}

// inlineFlag names the argument that is code, or that makes the program run code that is named
// there.
func inlineFlag(family string, args []string) string {
	switch family {
	case "awk", "gawk", "mawk", "nawk", "original-awk":
		return awkFlag(args)
	case "sed", "gsed":
		return sedFlag(args)
	case "find", "gfind":
		return exactFlag(args, "-exec", "-execdir", "-ok", "-okdir")
	case "xargs", "gxargs":
		if list, ok := xargsCommand(append([]string{"xargs"}, args...)); len(list) > 0 || !ok {
			return "<command>"
		}
		return ""
	case "make", "gmake":
		return makeFlag(args)
	case "deno":
		if len(args) > 0 && (args[0] == "eval" || args[0] == "repl") {
			return args[0]
		}
	}
	if flag := exactFlag(args, anywhereFlags(family)...); flag != "" {
		return flag
	}
	flags, letters, ok := inlineFlags(family)
	if !ok {
		return ""
	}
	return leadingFlag(args, flags, letters)
}

// inlineFlags are an interpreter's flags for code: whole words, and letters that may stand in a
// cluster.
func inlineFlags(family string) (flags []string, letters string, ok bool) {
	switch family {
	case "python", "pypy", "pythonw":
		return nil, "c", true
	case "node", "nodejs", "bun", "deno":
		return []string{"-e", "--eval", "-p", "--print", "-pe", "-r", "--require", "--import", "--loader", "--experimental-loader",
			"--preload", "--env-file"}, "", true
	case "tsx", "ts-node", "jiti", "vite-node":
		return []string{"-e", "--eval", "-p", "--print", "-pe", "-r", "--require", "--import", "--loader"}, "", true
	case "ruby", "jruby":
		return nil, "er", true
	case "perl":
		return nil, "eEMm", true
	case "php":
		return []string{"-r", "-B", "-R", "-E", "-d", "--run", "--process-begin", "--process-code", "--process-end", "--define"}, "", true
	case "lua", "luajit", "luau":
		return nil, "el", true
	case "osascript":
		return []string{"-e"}, "", true
	case "r", "rscript", "julia", "groovy", "scala", "elixir", "swipl", "gjs", "guile", "racket", "ocaml", "ghc", "octave", "tclsh":
		return []string{"-e", "-E", "--eval", "-c", "--execute", "-g", "--expr"}, "", true
	case "vim", "vi", "nvim", "view", "ex", "emacs":
		return []string{"-c", "--cmd", "-S", "-s", "-u", "--eval", "-l", "--load", "--script", "-es"}, "", true
	case "gdb", "lldb":
		return []string{"-ex", "-x", "-eval-command", "--eval-command", "-o"}, "", true
	case "git":
		return []string{"-c", "--config-env", "--exec-path"}, "", true
	}
	return nil, "", false
}

// anywhereFlags are the flags by which a program that is no interpreter runs another program,
// wherever they stand.
func anywhereFlags(family string) []string {
	switch family {
	case "git":
		// What git runs is then the argument's choice, as with -c alias.x=!command before the
		// subcommand.
		return []string{"--upload-pack", "--receive-pack", "--exec", "--open-files-in-pager", "--extcmd"}
	case "tar", "gtar", "bsdtar":
		return []string{"-I", "--to-command", "--checkpoint-action", "--use-compress-program", "-F", "--info-script",
			"--new-volume-script", "--rsh-command", "--rmt-command"}
	case "rsync":
		return []string{"-e", "--rsh", "--rsync-path"}
	case "ssh", "scp", "sftp":
		return []string{"-o", "-F"}
	case "rg":
		return []string{"--pre", "--hostname-bin"}
	case "fd", "fdfind":
		return []string{"-x", "--exec", "-X", "--exec-batch"}
	case "sort", "gsort":
		return []string{"--compress-program"}
	case "zip":
		return []string{"-TT", "--unzip-command"}
	case "man":
		return []string{"-P", "--pager", "-H", "--html"}
	case "sqlite":
		return []string{"-cmd", "-init"}
	case "openssl":
		return []string{"-engine", "-provider", "-provider-path"}
	case "curl":
		return []string{"-K", "--config"}
	case "wget":
		return []string{"-e", "--execute", "--use-askpass"}
	}
	return nil
}

// leadingFlag finds one of the flags before the script's name: what stands behind that is the
// script's own. The first word behind a flag may be the flag's value, and does not count as the
// script.
func leadingFlag(args []string, flags []string, letters string) string {
	behindFlag := false
	for _, arg := range args {
		if arg == "--" {
			return ""
		}
		if !strings.HasPrefix(arg, "-") || arg == "-" {
			if !behindFlag {
				return ""
			}
			behindFlag = false
			continue
		}
		word, _, inline := strings.Cut(arg, "=")
		behindFlag = !inline
		for _, flag := range flags {
			if word == flag || len(flag) == 2 && !strings.HasPrefix(arg, "--") && strings.HasPrefix(arg, flag) {
				return flag
			}
		}
		if strings.HasPrefix(arg, "--") {
			continue
		}
		if i := strings.IndexAny(arg[1:], letters); letters != "" && i >= 0 {
			return "-" + arg[1+i:2+i]
		}
	}
	return ""
}

// exactFlag finds one of the flags, also with its value in the same word.
func exactFlag(args []string, flags ...string) string {
	if len(flags) == 0 {
		return ""
	}
	for _, arg := range args {
		word, _, _ := strings.Cut(arg, "=")
		for _, flag := range flags {
			if word == flag || len(flag) == 2 && !strings.HasPrefix(arg, "--") && strings.HasPrefix(arg, flag) {
				return flag
			}
		}
	}
	return ""
}

// awkFlag finds awk's program: the first operand, unless -f names a file. gawk has more flags for
// code.
func awkFlag(args []string) string {
	fromFile, program := false, ""
	for i := 0; i < len(args); i++ {
		arg := args[i]
		word, _, inline := strings.Cut(arg, "=")
		switch {
		case arg == "--":
			if i+1 < len(args) && program == "" {
				program = "<program>"
			}
			i = len(args)
		case strings.HasPrefix(arg, "-e") || strings.HasPrefix(arg, "-l") || strings.HasPrefix(arg, "-i") || strings.HasPrefix(arg, "-E"):
			return arg[:2]
		case word == "--source" || word == "--load" || word == "--include" || word == "--exec":
			return word
		case arg == "-f" || arg == "--file":
			fromFile = true
			i++
		case strings.HasPrefix(arg, "-f") || word == "--file":
			fromFile = true
		case arg == "-F" || arg == "-v" || (word == "--field-separator" || word == "--assign") && !inline:
			i++
		case strings.HasPrefix(arg, "-") && arg != "-":
		case program == "":
			program = "<program>"
		}
	}
	if fromFile {
		return ""
	}
	return program
}

// sedFlag finds sed's program: -e, or the first operand, unless -f names a file.
func sedFlag(args []string) string {
	fromFile, program := false, ""
	for i := 0; i < len(args); i++ {
		arg := args[i]
		word, _, inline := strings.Cut(arg, "=")
		switch {
		case arg == "--":
			if i+1 < len(args) && program == "" {
				program = "<program>"
			}
			i = len(args)
		case word == "--expression":
			return word
		case word == "--file":
			fromFile = true
			if !inline {
				i++
			}
		case strings.HasPrefix(arg, "--"):
		case strings.HasPrefix(arg, "-i"): // what follows is the backup's suffix
		case strings.HasPrefix(arg, "-") && len(arg) > 1:
			for j := 1; j < len(arg); j++ {
				if arg[j] == 'e' {
					return "-e"
				}
				if arg[j] == 'f' {
					fromFile = true
					if j == len(arg)-1 {
						i++
					}
					break
				}
				if arg[j] == 'l' { // a number follows
					if j == len(arg)-1 {
						i++
					}
					break
				}
			}
		case program == "":
			program = "<program>"
		}
	}
	if fromFile {
		return ""
	}
	return program
}

// makeFlag finds a makefile that is named, and variables that hold code.
func makeFlag(args []string) string {
	for _, arg := range args {
		word, value, inline := strings.Cut(arg, "=")
		switch {
		case strings.HasPrefix(arg, "-f") || strings.HasPrefix(arg, "-E") || strings.HasPrefix(arg, "-I") || strings.HasPrefix(arg, "-C"):
			return arg[:2]
		case word == "--file" || word == "--makefile" || word == "--eval" || word == "--directory" || word == "--include-dir":
			return word
		case inline && strings.ContainsAny(value, "$`"):
			return "<variable>"
		}
	}
	return ""
}

// looksInline looks for code in the arguments in a line that was not understood. It reads words as
// a hurried reader would, and is no proof that there is none.
func looksInline(text string) (Inline, bool) {
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\n;|&()`'\"<>{}", r) })
	for i := range words {
		words[i] = strings.ReplaceAll(words[i], "\\", "")
	}
	for i := range words {
		if inline, ok := FindInline(words[i:min(len(words), i+128)]); ok {
			return inline, true
		}
	}
	return Inline{}, false
}

func interpreter(family string) bool {
	switch family {
	case "awk", "gawk", "mawk", "nawk", "original-awk", "sed", "gsed", "find", "gfind", "xargs", "gxargs", "make", "gmake", "git-shell":
		return true
	case "git":
		return false // it runs code only through a flag
	}
	_, _, ok := inlineFlags(family)
	return ok || isShell(family)
}

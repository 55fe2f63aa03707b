package policy

import "strings"

// isShell names the shells. What follows -c is a line for them.
func isShell(name string) bool {
	switch name {
	case "sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "fish", "rbash", "rksh", "yash", "posh", "busybox-sh",
		"csh", "tcsh", "pwsh", "powershell", "nu", "elvish", "xonsh", "rc", "es":
		return true
	}
	return false
}

// readsLikeSh says which shells read && || ; | and plain words as sh does.
func readsLikeSh(name string) bool {
	switch name {
	case "sh", "bash", "dash", "ash", "ksh", "mksh":
		return true
	}
	return false
}

// A ShellUse is what a shell is started for.
type ShellUse struct {
	Name     string
	Payload  string // the line behind -c
	Inline   bool   // there is one
	Operands int    // words behind the payload: $0, $1
	Exact    bool   // the words are the shell's name, -c and the payload, and no more
	Script   int    // index of the script's name in argv, or 0
	Unclear  bool   // it reads standard input, or a flag is not known
}

// shellUse reads the words of a shell's command.
func shellUse(name string, argv []string) ShellUse {
	use := ShellUse{Name: name}
	for i := 1; i < len(argv); i++ {
		word := argv[i]
		switch {
		case word == "--command" && name == "fish" || word == "--init-command" && name == "fish":
			return use.inline(argv, i+1)
		case word == "--rcfile" || word == "--init-file":
			use.Unclear = true
			i++
		case strings.HasPrefix(word, "--") && len(word) > 2:
			use.Unclear = true
		case word == "--" || word == "-":
			// What follows is the script and its arguments, whatever it looks like.
			use.Unclear = true
			if i+1 < len(argv) {
				use.Script = i + 1
			}
			return use
		case strings.HasPrefix(word, "-") || strings.HasPrefix(word, "+"):
			if strings.HasPrefix(word, "-") && strings.Contains(word, "c") {
				return use.inline(argv, i+1)
			}
			use.Unclear = true
			if strings.ContainsAny(word, "oO") {
				i++
			}
		default:
			use.Script = i
			use.Unclear = use.Unclear || i != 1
			return use
		}
	}
	use.Unclear = true // it reads its commands from standard input
	return use
}

func (use ShellUse) inline(argv []string, i int) ShellUse {
	if i >= len(argv) {
		use.Unclear = true
		return use
	}
	use.Inline, use.Payload, use.Operands = true, argv[i], len(argv)-i-1
	use.Exact = len(argv) == 3 && argv[1] == "-c"
	return use
}

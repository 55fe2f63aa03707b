package sandbox

import (
	"slices"
	"strings"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/repository"
)

// What a command of git's settings does with a plain name, only its program knows: "tool -c rules"
// may read the file rules, or do what is called so. So of each word that is no program's name, the
// file in the root of the working tree counts: what is there is read-only, and what is not there is
// set aside. Some programs need no name at all: what they go by lies in the working tree, and that
// is told.

const (
	// maxShellWords bounds how many words of one command are looked at.
	maxShellWords = 256
	// maxShellDepth is how deep a command in a command's word is looked into.
	maxShellDepth = 3
)

// A shellWord is one word of a line for a shell, without its quotes.
type shellWord struct {
	text    string
	program bool // it stands where a program's name does
}

// shellWords are the words of a line, and of the lines in its words. What a variable stands for is
// not known, and left as it is.
func shellWords(line string, depth int) (words []shellWord) {
	var text strings.Builder
	var around []byte // what is quoted around a command whose output is a part of a word
	program, begun, quote := true, false, byte(0)
	end := func() {
		if !begun {
			return
		}
		word := text.String()
		_, value, assigns := strings.Cut(word, "=")
		switch {
		case program && assigns: // of a variable
			words = append(words, shellWord{text: value})
		default:
			words = append(words, shellWord{word, program})
			program = program && slices.Contains(carriers, word)
		}
		if depth < maxShellDepth && strings.ContainsAny(word, " \t\n") {
			words = append(words, shellWords(word, depth+1)...)
		}
		begun = false
		text.Reset()
	}
	for i := 0; i < len(line) && len(words) < maxShellWords; i++ {
		c := line[i]
		leaves := len(around) > 0 && quote == 0 && (c == ')' || c == '`')
		switch {
		case c == '\\' && quote != '\'' && i+1 < len(line):
			i++
			text.WriteByte(line[i])
			begun = true
		case leaves:
			end()
			quote, around = around[len(around)-1], around[:len(around)-1]
			program = false
		case quote != '\'' && (c == '`' || strings.HasPrefix(line[i:], "$(")):
			end()
			quote, around, program = 0, append(around, quote), true
		case c == quote:
			quote = 0
		case quote != 0:
			text.WriteByte(c)
		case c == '"' || c == '\'':
			quote, begun = c, true
		case strings.IndexByte(" \t<>", c) >= 0:
			end()
		case strings.IndexByte("\n;|&(){}!", c) >= 0:
			end()
			program = true
		default:
			text.WriteByte(c)
			begun = true
		}
	}
	end()
	return words
}

// carriers are programs, and words of the shell's, behind which another program stands.
var carriers = []string{"env", "exec", "command", "nice", "nohup", "time", "setsid", "if", "then", "else", "elif", "while", "until", "do"}

// subcommanded are programs whose first plain name is what they do, and never a file.
var subcommanded = []string{"git", "git-lfs", "git-annex", "git-crypt", "git-nbdiffdriver", "git-nbmergedriver", "git-nbdifftool", "git-nbmergetool", "nbdime", "jupyter", "gh", "glab", "hub"}

// saysWhether are values of options.
var saysWhether = []string{"true", "false", "yes", "no", "on", "off", "auto", "always", "never"}

// plainNames are the plain names in a command that are no program's.
func plainNames(command string) (names []string) {
	first := false // what a program does is named next
	for _, word := range shellWords(strings.TrimPrefix(command, "!"), 0) {
		if word.program {
			first = slices.Contains(subcommanded, baseName("/"+word.text))
			continue
		}
		if first && !strings.HasPrefix(word.text, "-") {
			first = false
			continue
		}
		first = first && strings.HasPrefix(word.text, "--") && strings.Contains(word.text, "=")
		candidates := strings.FieldsFunc(word.text, func(r rune) bool { return strings.ContainsRune("=:,", r) })
		if text := word.text; len(text) > 2 && text[0] == '-' && text[1] != '-' { // in one word with an option's letter
			candidates = append(candidates, text[2:])
		}
		for _, name := range candidates {
			if !strings.ContainsAny(name, "/$%*?[]{}() \t\n") && name[0] != '-' && len(name) < 256 && profile.CheckProtectedName(name) == nil && !slices.Contains(names, name) && !slices.Contains(saysWhether, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// projectRunners go by files of the directory in which they are started, whatever they are asked
// for.
var projectRunners = []string{"make", "gmake", "just", "task", "npm", "npx", "pnpm", "pnpx", "yarn", "bun", "bunx", "cargo", "go", "rake", "bundle", "gradle", "mvn", "sbt", "lein",
	"tox", "nox", "uv", "uvx", "poetry", "pipenv", "hatch", "pdm", "rye", "pixi", "nix", "mise", "composer", "mix", "dotnet", "bazel", "cmake", "ninja", "scons", "docker", "podman"}

// goesByTree says how a command goes by more in a working tree than what it names, and what does
// not. It is empty for any other.
func (b *builder) goesByTree(tree, command string) (how, instead string) {
	python, takesNext := "", false
	for _, word := range shellWords(strings.TrimPrefix(command, "!"), 0) {
		name := strings.TrimRight(baseName("/"+word.text), "0123456789.")
		switch {
		case word.program && slices.Contains(projectRunners, name):
			return name + " goes by files of the working tree", "a program by its whole path"
		case word.program:
			python, takesNext = "", false
			if isPython(name) {
				python = word.text
			}
		case python == "":
		case takesNext:
			takesNext = false
		case !strings.HasPrefix(word.text, "-"):
			if script := absolute(b.expandHome(word.text), tree); b.writable(script) {
				return "Python imports what lies beside " + word.text + " first", python + " -P " + word.text
			}
			python = ""
		case strings.HasPrefix(word.text, "--"):
		case strings.ContainsAny(word.text, "IP"): // neither its script's directory nor the working one
			python = ""
		case strings.ContainsAny(word.text, "mc") || word.text == "-":
			return "Python imports what lies in the working tree first", python + " -P " + word.text
		default:
			takesNext = word.text == "-W" || word.text == "-X"
		}
	}
	return "", ""
}

// tellTree tells, once, of a setting with which git executes what nobody named.
func (b *builder) tellTree(tree string, s repository.Setting) {
	how, instead := b.goesByTree(tree, s.Value)
	if how == "" || b.toldTree || !b.writable(tree) {
		return
	}
	b.toldTree = true
	b.notices = append(b.notices, Notice{Kind: NoticeProtected, Path: tree, Text: "git outside the sandbox executes what a command writes in " + printable(tree) + ": " + printable(shortened(s.Key)) + " = " + printable(shortened(s.Value)) +
		": " + printable(how) + "; safe is " + printable(shortened(instead)) + " (git config --show-origin " + printable(shortened(Quote(s.Key))) + " says where it is set)"})
}

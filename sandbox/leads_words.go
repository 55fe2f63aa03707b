package sandbox

import (
	"path"
	"slices"
	"strings"
)

// A command in git's settings is a line for a shell, and what that makes of it depends on more than
// can be known here. So all words of it count that may name a program, or what one executes.

// maxOutputs bounds how many outputs of other commands are looked into.
const maxOutputs = 64

// words are those of a command of git's. What stands behind a variable or another command's output
// counts as relative, what is quoted also as a whole, and behind "cd", plain names, too; so do
// those that look like a script's, or stand where an interpreter takes one. modules are those of
// Python's: it looks for them in the working tree's top, and nowhere else.
func (b *builder) words(command string) (words, modules []string) {
	command = strings.NewReplacer("${HOME}/", "~/", "$HOME/", "~/", `\ `, " ").Replace(strings.TrimPrefix(command, "!"))
	for _, text := range commandsIn(command) {
		more, of := b.plainWords(behindAnother(text))
		words, modules = append(words, more...), append(modules, of...)
	}
	return words, modules
}

// commandsIn are a command, in which "$_" stands for each variable with a default and for the
// output of another command, and those other commands and defaults.
func commandsIn(command string) []string {
	var others []string
	put := func(from, to int, text string) { command = command[:from] + text + command[to:] }
	for range maxOutputs {
		if end := strings.IndexAny(command, ")}"); end >= 0 {
			open := strings.LastIndexByte(command[:end], map[byte]byte{')': '(', '}': '{'}[command[end]])
			switch {
			case open < 0:
				put(end, end+1, " ")
			case open == 0 || command[open-1] != '$':
				put(end, end+1, " ")
				put(open, open+1, " ")
			case command[open] == '(':
				others = append(others, command[open+1:end])
				put(open-1, end+1, "$_")
			default:
				body := command[open+1 : end]
				if i := strings.IndexAny(body, "-=+?"); i >= 0 {
					others = append(others, body[i+1:])
				}
				put(open-1, end+1, "$_")
			}
			continue
		}
		open := strings.IndexByte(command, '`')
		length := strings.IndexByte(command[open+1:], '`')
		if open < 0 || length < 0 {
			break
		}
		others = append(others, command[open+1:open+1+length])
		put(open, open+length+2, "$_")
	}
	return append(others, command)
}

// behindAnother makes what stands behind a variable and a slash relative.
func behindAnother(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '$' {
			rest := strings.TrimLeft(text[i+1:], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@*#?!")
			if end := strings.IndexAny(rest, " \t\n/\"'"); len(rest) < len(text)-i-1 && end >= 0 {
				if rest = strings.TrimLeft(rest[end:], `"'`); rest != "" && rest[0] == '/' {
					b.WriteString(" ./")
					i = len(text) - len(rest)
					continue
				}
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// plainWords are those of a command without variables.
func (b *builder) plainWords(command string) (words, modules []string) {
	list := strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(" \t\n\"'|;&<>=!,", r) })
	for _, quote := range []string{`"`, "'"} {
		for i, quoted := range strings.Split(command, quote) {
			if i%2 == 1 && strings.Contains(quoted, " ") {
				list = append(list, strings.TrimSpace(quoted))
			}
		}
	}
	if strings.Contains(command, " ") {
		list = append(list, strings.TrimSpace(command))
	}
	moved, python, module, node := false, false, false, false
	imports := func(module string) {
		if files := modulesOf(module); moved { // to any directory
			words = append(words, files...)
		} else {
			modules = append(modules, files...)
		}
	}
	script := "" // the interpreter that one of the next words is for
	for _, word := range list {
		word = b.expandHome(strings.Trim(word, "(){}`"))
		switch {
		case word == "" || word[0] == '%' || word[0] == '$':
		case module:
			imports(word)
			script, module = "", false
		case word[0] == '-':
			words = append(words, inOption(b, word)...)
			switch {
			case python && strings.HasPrefix(word, "-m"):
				module = word == "-m"
				imports(word[2:])
				script, python = "", false
			case isCode(script, word):
				script, python = "", false
			}
		case moved, script != "" && !strings.Contains(word, " "), strings.Contains(word, "/"), isScript(word):
			words = append(words, word)
			if node && path.Ext(word) == "" { // it looks for these, too
				words = append(words, word+".js", word+".node")
			}
			script = ""
		}
		if is := interpreter(word); is != "" {
			script, python, node = is, isPython(is), strings.HasPrefix(is, "node")
		}
		moved = moved || word == "cd" || word == "pushd"
	}
	return words, modules
}

// inOption are the paths that may stand in one word with an option: -F/a/b, -Itools.
func inOption(b *builder, word string) (words []string) {
	if len(word) > 2 && word[1] != '-' && strings.Contains(word, "/") {
		words = append(words, b.expandHome(word[2:]))
	}
	if i := strings.IndexAny(word, "/~."); i > 0 && strings.Contains(word[i:], "/") {
		words = append(words, b.expandHome(word[i:]))
	}
	return words
}

// isCode reports whether an option of an interpreter's has the code itself behind it.
func isCode(interpreter, option string) bool {
	switch last := option[len(option)-1]; {
	case option[1:] == "" || option[1] == '-':
		return option == "--eval" || option == "--print"
	case isPython(interpreter) || strings.HasSuffix(interpreter, "sh"):
		return last == 'c'
	default:
		return strings.IndexByte("eEpr", last) >= 0
	}
}

func isPython(interpreter string) bool { return interpreter == "python" || interpreter == "pypy" }

// modulesOf are the files in which Python looks for a module.
func modulesOf(module string) (files []string) {
	if module == "" || strings.ContainsAny(module, "/ ") {
		return nil
	}
	module = strings.ReplaceAll(module, ".", "/")
	files = []string{module + "/__main__.py"}
	for ; module != "."; module = path.Dir(module) {
		files = append(files, module+".py", module+"/__init__.py")
	}
	return files
}

var interpreters = []string{"sh", "bash", "dash", "zsh", "ksh", "fish", "python", "pypy", "perl", "ruby", "node", "nodejs", "deno", "bun", "php", "lua", "luajit", "tclsh", "Rscript", "pwsh"}

// interpreter is the one that a word names, or nothing.
func interpreter(word string) string {
	name := strings.TrimRight(baseName("/"+word), "0123456789.")
	if !slices.Contains(interpreters, name) {
		return ""
	}
	return name
}

var scriptEndings = []string{".sh", ".bash", ".zsh", ".fish", ".py", ".pyz", ".pl", ".rb", ".js", ".mjs", ".cjs", ".ts", ".mts", ".php", ".lua", ".awk", ".sed", ".jq", ".jar", ".tcl", ".R", ".ps1", ".exe"}

func isScript(word string) bool {
	ending := path.Ext(word)
	return ending != "" && ending != word && slices.Contains(scriptEndings, ending) && !strings.Contains(word, " ")
}

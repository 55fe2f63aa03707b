package sandbox

import (
	"path"
	"slices"
	"strings"
)

// A person's hook is often one line: exec ./scripts/check.sh. It is the script that git executes
// then, so what a hook executes of the working tree is protected as what a setting names. It counts
// where a command stands, and nowhere else: what a hook looks through is the project's own.

const (
	maxHooks    = 64
	maxHookText = 64 << 10
	// maxMoves is how many directories of one script count.
	maxMoves = 8
)

// madeAnew are directories of what builds and package managers make: what is in them has to stay
// writable.
var madeAnew = []string{"build", "dist", "out", "target", "_build", "bazel-bin", ".next", ".tox", ".nox", ".venv", "venv", "coverage"}

// hookLeads protects what the hooks in a directory execute in a working tree.
func (b *builder) hookLeads(dir, tree string) {
	entries, err := b.tree.ReadDir(dir)
	if err != nil || tree == "" {
		return
	}
	entries = slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool { return e.Dir || strings.HasSuffix(e.Name, ".sample") })
	for _, entry := range entries[:min(len(entries), maxHooks)] {
		w, err := follow(b.tree, join(dir, entry.Name))
		if err != nil || !w.Object.Mode.IsRegular() {
			continue
		}
		text, err := b.tree.ReadFile(w.Real, maxHookText)
		if err != nil || !isShellScript(text) {
			continue
		}
		files, moved := executedIn(text)
		for _, file := range append(files, moved...) {
			if file = absolute(b.expandHome(file), tree); !b.isMadeAnew(file) {
				b.leadFile(file, gitOrigin)
			}
		}
	}
}

// isMadeAnew reports whether a path is in what builds and package managers make.
func (b *builder) isMadeAnew(file string) bool {
	for name := range strings.SplitSeq(file, "/") {
		if slices.Contains(madeAnew, name) && b.writable(file) {
			return true
		}
	}
	_, err := b.tree.Lstat(join(parent(parent(file)), "pyvenv.cfg"))
	return err == nil || b.protection.names.InPackages(file)
}

// isShellScript reports whether git has a shell read a hook: it does so where no program is named,
// too.
func isShellScript(text string) bool {
	first, _, _ := strings.Cut(text, "\n")
	if strings.IndexByte(text, 0) >= 0 {
		return false
	}
	words := strings.Fields(strings.TrimPrefix(first, "#!"))
	return !strings.HasPrefix(first, "#!") || slices.ContainsFunc(words, func(word string) bool { return strings.HasSuffix(interpreter(word), "sh") })
}

// before are words behind which a command stands.
var before = []string{"if", "then", "else", "elif", "do", "while", "until", "!", "time", "exec", "command", "env", "nohup", "eval"}

// executedIn are the paths that a shell's script executes, or reads as a part of itself. Behind
// "cd", they count from there, too: moved.
func executedIn(script string) (files, moved []string) {
	var dirs []string
	add := func(file string) {
		if file == "" || strings.ContainsAny(file, "$*?[") {
			return
		}
		files = append(files, path.Clean(file))
		for _, dir := range dirs {
			if !path.IsAbs(file) && file[0] != '~' {
				moved = append(moved, path.Join(dir, file))
			}
		}
	}
	for line := range strings.Lines(strings.ReplaceAll(script, "\\\n", " ")) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, text := range commandsIn(strings.NewReplacer("${HOME}/", "~/", "$HOME/", "~/").Replace(line)) {
			for command := range strings.FieldsFuncSeq(behindAnother(text), func(r rune) bool { return strings.ContainsRune(";&|(){}\n", r) }) {
				words := strings.Fields(command)
				for i := range words {
					words[i] = strings.Trim(words[i], `"'`)
				}
				for len(words) > 0 && (words[0] == "" || slices.Contains(before, words[0]) || isAssignment(words[0])) {
					words = words[1:]
				}
				if len(words) == 0 {
					continue
				}
				switch first := words[0]; {
				case first == "cd" || first == "pushd":
					words = slices.DeleteFunc(words, func(word string) bool { return word == "" || word[0] == '-' })
					if len(words) > 1 && len(dirs) < maxMoves && !strings.ContainsAny(words[1], "$*?[") {
						dirs = append(dirs, words[1])
					}
				case first == "." || first == "source":
					add(strings.Join(words[1:min(len(words), 2)], ""))
				case strings.Contains(first, "/"):
					add(first)
				}
				if is := interpreter(words[0]); is != "" {
					add(scriptOf(is, words[1:]))
				}
			}
		}
	}
	return files, moved
}

// isAssignment reports whether a word of a shell's sets a variable.
func isAssignment(word string) bool {
	name, _, is := strings.Cut(word, "=")
	return is && name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_+") == ""
}

// scriptOf is the script among an interpreter's arguments, if it is given one: the first that looks
// like a file, or else the first that is no option.
func scriptOf(interpreter string, words []string) (script string) {
	for _, word := range words {
		switch {
		case word == "":
		case word[0] == '<', word[0] == '>':
			return script
		case word[0] == '-':
			if isCode(interpreter, word) || word == "-m" {
				return ""
			}
		case isScript(word), strings.Contains(word, "/"):
			return word
		case script == "":
			script = word
		}
	}
	return script
}

package sandbox

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/clairun/clai-sandbox/profile"
)

// What shells, editors and ssh start with in a home often reads more from elsewhere: ". ~/project/aliases". Words are looked for, as each
// program has a language of its own: what is a whole path to something that the command may write is protected, as what a variable names.

// startupTexts are such files, and directories of them, in the home.
var startupTexts = []string{
	".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".bashrc.d", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc",
	".inputrc", ".xprofile", ".xinitrc", ".xsession", ".xsessionrc", ".vimrc", ".gvimrc", ".tmux.conf", ".screenrc", ".gdbinit", ".lldbinit", ".emacs", ".emacs.d/init.el",
	".psqlrc", ".irbrc", ".pryrc", ".pythonrc", ".pythonrc.py", ".Rprofile", ".npmrc", ".muttrc", ".ssh/config", ".ssh/config.d", ".gnupg/gpg.conf", ".gnupg/gpg-agent.conf",
	".config/fish/config.fish", ".config/fish/conf.d", ".config/nushell/config.nu", ".config/nushell/env.nu", ".config/nvim/init.vim", ".config/nvim/init.lua",
	".config/tmux/tmux.conf", ".config/environment.d", ".config/autostart", ".config/systemd/user", ".config/pip/pip.conf", ".cargo/config.toml",
}

const (
	maxStartupFiles = 256
	maxStartupText  = 256 << 10
	maxStartupWords = 4096
	// maxStartupDepth is how many files may name each other until one is reached.
	maxStartupDepth = 4
)

// typed begin lines of which the person types the name, and knows what it is of: they may name scripts of a project.
var typed = []string{"#", "alias ", "abbr ", "bind ", "bind-key ", "bindkey ", "cd "}

func (b *builder) startupLeads(origin profile.Origin) {
	var texts []string // in the order in which they are read
	seen := map[string]bool{}
	var read func(file string, depth int)
	read = func(file string, depth int) {
		w, err := follow(b.tree, file)
		if err != nil || !w.Object.Mode.IsRegular() || seen[w.Real] || len(texts) == maxStartupFiles {
			return
		}
		seen[w.Real] = true
		b.linkedOutside(w.Real, w.Object)
		text, err := b.tree.ReadFile(w.Real, maxStartupText)
		if err != nil {
			return
		}
		texts = append(texts, text)
		if depth == maxStartupDepth {
			return
		}
		for line := range strings.Lines(text) { // what it reads in turn, where it names that as a whole
			for _, word := range b.startupWords(homeIn(line)) {
				if profile.Within(word, b.profile.Home) || b.writable(word) {
					read(word, depth+1)
				}
			}
		}
	}
	for _, name := range startupTexts {
		file := join(b.profile.Home, name)
		if _, err := follow(b.tree, file); err != nil { // few have more than some of them
			continue
		}
		entries, err := b.tree.ReadDir(file)
		if err != nil {
			read(file, 0)
			continue
		}
		for _, entry := range entries {
			read(join(file, entry.Name), 0)
		}
	}
	v := assigned{} // of all files: which is read first, the shell decides
	assign := func() {
		for _, text := range texts {
			for line := range strings.Lines(text) {
				v.assign(v.expand(line))
			}
		}
	}
	assign()
	if dir := b.expandHome(v["ZDOTDIR"]); path.IsAbs(dir) {
		for _, name := range []string{".zshenv", ".zprofile", ".zshrc", ".zlogin", ".zlogout"} {
			read(join(path.Clean(dir), name), 0)
		}
		assign()
	}
	words := 0
	for _, text := range texts {
		for line := range strings.Lines(text) {
			for _, word := range b.startupWords(v.expand(line)) {
				if words++; words <= maxStartupWords {
					b.startupLead(word, origin)
				}
			}
		}
	}
}

// startupLead protects what a word leads to. One with a pattern leads to the directory, whatever is made there; or, where that is all that the command
// writes, to what there is of it.
func (b *builder) startupLead(word string, origin profile.Origin) {
	i := strings.IndexAny(word, "*?[")
	if i < 0 {
		b.leadFile(word, origin)
		for _, made := range compiledFrom(word) {
			b.leadFile(made, origin)
		}
		return
	}
	dir := word[:max(strings.LastIndexByte(word[:i], '/'), 1)]
	for _, root := range b.protection.Roots {
		if n := strings.Count(root, "/"); within(root, dir) && root != dir && strings.Count(word, "/") > n {
			parts := strings.Split(word, "/")
			if is, err := path.Match(strings.Join(parts[:n+1], "/"), root); is && err == nil {
				b.startupLead(root+"/"+strings.Join(parts[n+1:], "/"), origin)
			}
		}
	}
	w, err := follow(b.tree, dir)
	if err != nil || !b.writable(w.Real) || !b.isRoot(w.Real) {
		b.lead(dir, origin)
		return
	}
	entries, _ := b.tree.ReadDir(w.Real)
	pattern, _, _ := strings.Cut(strings.TrimPrefix(word[len(dir):], "/"), "/")
	for _, entry := range entries {
		if is, err := path.Match(pattern, entry.Name); (is || err != nil) && !entry.Dir {
			b.leadFile(join(w.Real, entry.Name), origin)
		}
	}
}

// compiledFrom are the files that zsh, and Emacs, take in the place of one. zsh does so for a directory of functions as well.
func compiledFrom(file string) []string {
	list := []string{file + ".zwc"}
	switch path.Ext(file) {
	case ".el":
		list = append(list, file+"c")
	case "":
		list = append(list, file+".el", file+".elc")
	}
	return list
}

// assigned are variables that startup files set to whole paths.
type assigned map[string]string

var (
	assignment = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?:^|[\s;])([A-Za-z_][A-Za-z0-9_]*)(?:=|\s+)["']?([~/][^\s"';&|]*)`)
	})
	variable = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\$(?:\{[A-Za-z_][A-Za-z0-9_]*\}|[A-Za-z_][A-Za-z0-9_]*)`)
	})
)

const (
	maxAssigned = 256
	maxExpanded = 8 << 10
)

// assign remembers what a line sets: a=/b, export a=/b, and fish's "set -gx a /b".
func (v assigned) assign(line string) {
	for _, match := range assignment().FindAllStringSubmatch(line, -1) {
		if len(v) < maxAssigned && len(match[2]) < 4096 {
			v[match[1]] = match[2]
		}
	}
}

// expand puts values in the place of variables.
func (v assigned) expand(line string) string {
	line = homeIn(line)
	if len(v) == 0 || len(line) > maxExpanded {
		return line
	}
	return variable().ReplaceAllStringFunc(line, func(name string) string {
		if value := v[strings.Trim(name, "${}")]; value != "" {
			return value
		}
		return name
	})
}

// behindCommand is what stands behind the first command of a line.
func behindCommand(line string) string {
	var quote byte
	for i := range len(line) {
		switch c := line[i]; {
		case quote == 0 && strings.IndexByte(";&|\n", c) >= 0 && line[0] != '#':
			return strings.TrimLeft(line[i:], ";&| \t\r\n")
		case c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		}
	}
	return ""
}

// homeIn puts the home's sign in the place of its other names.
func homeIn(line string) string {
	return strings.NewReplacer("${HOME}/", "~/", "$HOME/", "~/", "%h/", "~/").Replace(line)
}

// startupWords are the whole paths in a line.
func (b *builder) startupWords(line string) (words []string) {
	line = strings.TrimSpace(line)
	for isTyped := true; isTyped; {
		isTyped = slices.ContainsFunc(typed, func(begin string) bool { return strings.HasPrefix(line, begin) })
		if isTyped {
			line = behindCommand(line)
		}
	}
	for word := range strings.FieldsFuncSeq(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'`;&|<>(){},=:", r) }) {
		if word = b.expandHome(word); path.IsAbs(word) && len(word) > 1 {
			words = append(words, path.Clean(word))
		}
	}
	return words
}

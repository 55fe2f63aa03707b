package sandbox

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/clairun/clai-sandbox/profile"
)

// What shells, editors and ssh start with in a home often reads more from elsewhere: ".
// ~/project/aliases". Words are looked for, as each program has a language of its own: what is a
// whole path to something that the command may write is protected, as what a variable names.

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

// typed begin lines of which the person types the name, and knows what it is of: they may name
// scripts of a project.
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
		text = withoutComments(text)
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
	v := newAssigned() // of all files: which is read first, the shell decides
	for _, setting := range b.profile.PersonsVariables {
		v.assign(setting)
	}
	for range maxStartupDepth { // what one sets may be what another one goes by
		for _, text := range texts {
			for line := range strings.Lines(text) {
				v.assign(v.expand(line))
			}
		}
		if dir := b.expandHome(v.paths["ZDOTDIR"]); path.IsAbs(dir) {
			for _, name := range []string{".zshenv", ".zprofile", ".zshrc", ".zlogin", ".zlogout"} {
				read(join(path.Clean(dir), name), 0)
			}
		}
		before := len(texts)
		for _, text := range texts {
			for _, word := range b.startupLeadsOf(text, v) {
				if profile.Within(word, b.profile.Home) || b.writable(word) {
					read(word, 1)
				}
			}
		}
		if len(texts) == before {
			break
		}
	}
	words := 0
	for _, text := range texts {
		for _, word := range b.startupLeadsOf(text, v) {
			if words++; words <= maxStartupWords {
				b.startupLead(word, origin)
			}
		}
	}
	if words > maxStartupWords || len(texts) == maxStartupFiles {
		b.notices = append(b.notices, Notice{Kind: NoticeProtected, Path: b.profile.Home,
			Text: "the files that shells and editors start with name more than is looked at: what the rest of it leads to in what the command writes is not protected"})
	}
}

// withoutComments leaves out the lines that say nothing: most do, and each is looked at several
// times.
func withoutComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if begin := strings.TrimSpace(line); begin != "" && begin[0] != '#' {
			b.WriteString(line)
		}
	}
	return b.String()
}

// startupLeadsOf are the whole paths in a text: of each line, and those that it goes to behind
// "cd".
func (b *builder) startupLeadsOf(text string, v *assigned) (words []string) {
	var moves strings.Builder
	for line := range strings.Lines(text) {
		for _, line := range v.lines(line) {
			words = append(words, b.startupWords(line)...)
			if moves.Len() < maxStartupText {
				moves.WriteString(line)
			}
		}
	}
	if expanded := moves.String(); strings.Contains(expanded, "cd ") || strings.Contains(expanded, "pushd ") {
		_, moved := executedIn(expanded)
		for _, word := range moved {
			if word = b.expandHome(word); path.IsAbs(word) {
				words = append(words, path.Clean(word))
			}
		}
	}
	return words
}

// startupLead protects what a word leads to. One with a pattern leads to the directory, whatever is
// made there; or, where that is all that the command writes, to what there is of it.
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

// compiledFrom are the files that zsh, and Emacs, take in the place of one. zsh does so for a
// directory of functions as well.
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

// assigned are variables that startup files set: to whole paths, and to one or more other words, in
// a loop, too.
type assigned struct {
	paths map[string]string
	lists map[string][]string
}

func newAssigned() *assigned { return &assigned{map[string]string{}, map[string][]string{}} }

var (
	assignment = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?:^|[\s;])([A-Za-z_][A-Za-z0-9_]*)(?:=|\s+)["']?([~/][^\s"';&|]*)`)
	})
	listed = sync.OnceValue(func() *regexp.Regexp { // x=a, x=(a b), for x in a b; do, set x a b
		const oneVariable = `([A-Za-z_][A-Za-z0-9_]*)`
		return regexp.MustCompile(`(?:^|[\s;])` + oneVariable + `\+?=(?:\(([^()]*)\)|["']?([^\s"';&|(){}]+))|\bfor\s+` + oneVariable + `\s+(?:in\s+)?\(?([^;()\n]+)|\bset\s+(?:-[A-Za-z]+\s+)*` + oneVariable + `\s+([^;\n]+)`)
	})
	variable = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\$(?:\{[A-Za-z_][A-Za-z0-9_]*(?:\[[@*]\])?\}|[A-Za-z_][A-Za-z0-9_]*)`)
	})
	braces = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{[^{}\s]*,[^{}\s]*\}`) })
)

const (
	maxAssigned = 256
	maxExpanded = 8 << 10
	// maxAlternatives is how many words one variable may stand for, and how many lines may come of
	// one.
	maxAlternatives = 32
)

// assign remembers what a line sets: a=/b, export a=/b, and fish's "set -gx a /b"; and words that
// are no whole paths.
func (v *assigned) assign(line string) {
	if !strings.Contains(line, "=") && !strings.Contains(line, "for") && !strings.Contains(line, "set") && !strings.ContainsAny(line, "~/") {
		return
	}
	for _, match := range assignment().FindAllStringSubmatch(line, -1) {
		if len(v.paths) < maxAssigned && len(match[2]) < 4096 {
			v.paths[match[1]] = match[2]
		}
	}
	for _, match := range listed().FindAllStringSubmatch(line, -1) {
		name, words := match[1]+match[4]+match[6], match[2]+match[3]+match[5]+match[7]
		for _, words := range v.lines(words) {
			for _, word := range strings.Fields(words) {
				v.add(name, strings.Trim(word, `"'`))
			}
		}
	}
}

func (v *assigned) add(name, word string) {
	list := v.lists[name]
	if word != "" && len(word) < 4096 && !strings.Contains(word, "$") && len(list) < maxAlternatives && (list != nil || len(v.lists) < maxAssigned) && !slices.Contains(list, word) {
		v.lists[name] = append(list, word)
	}
}

// nameOf is the variable that $a, ${a} and ${a[@]} stand for.
func nameOf(reference string) string {
	name, _, _ := strings.Cut(strings.Trim(reference, "${}"), "[")
	return name
}

// expand puts values in the place of variables that are whole paths.
func (v *assigned) expand(line string) string {
	line = homeIn(line)
	if len(v.paths) == 0 || len(line) > maxExpanded || !strings.Contains(line, "$") {
		return line
	}
	return variable().ReplaceAllStringFunc(line, func(reference string) string {
		if value := v.paths[nameOf(reference)]; value != "" {
			return value
		}
		return reference
	})
}

// lines are a line with each value that its variables may have, and each of the words that braces
// stand for.
func (v *assigned) lines(line string) []string {
	list := []string{v.expand(line)}
	if !strings.ContainsAny(list[0], "${") {
		return list
	}
	for range 4 { // as many different variables, or braces, in one line
		var more []string
		for _, line := range list {
			more = append(more, v.alternatives(line)...)
		}
		if slices.Equal(more, list) || len(more) > maxAlternatives*maxAlternatives {
			return list
		}
		list = more
	}
	return list
}

// alternatives are what comes of a line by the first of its variables, or braces, that stand for
// words.
func (v *assigned) alternatives(line string) []string {
	if len(line) > maxExpanded || !strings.ContainsAny(line, "${") {
		return []string{line}
	}
	replace := func(at []int, words []string) (list []string) {
		for _, word := range words {
			list = append(list, line[:at[0]]+word+line[at[1]:])
		}
		return list
	}
	for _, at := range variable().FindAllStringIndex(line, -1) {
		if words := v.lists[nameOf(line[at[0]:at[1]])]; len(words) > 0 {
			return replace(at, words)
		}
	}
	if at := braces().FindStringIndex(line); at != nil && (at[0] == 0 || line[at[0]-1] != '$') {
		return replace(at, strings.Split(line[at[0]+1:at[1]-1], ","))
	}
	return []string{line}
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
	if !strings.ContainsAny(line, "$%") {
		return line
	}
	return homeNames().Replace(line)
}

var homeNames = sync.OnceValue(func() *strings.Replacer { return strings.NewReplacer("${HOME}/", "~/", "$HOME/", "~/", "%h/", "~/") })

// startupWords are the whole paths in a line.
func (b *builder) startupWords(line string) (words []string) {
	if !strings.ContainsAny(line, "/~") {
		return nil
	}
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

package diagnosis

import (
	"iter"
	"path"
	"slices"
	"strings"
)

// A commandLine is what was run, as far as it helps to read what came out. It is not a shell's
// parser, and decides nothing alone.
type commandLine struct {
	text      string     // all of it
	words     []string   // all of it, without quotes
	parts     [][]string // the same, command by command
	last      []string   // programs of the last list of commands, whose status is that of all
	earlier   []string   // programs of what came before it
	directory string     // where it goes first: cd DIR && …
	moves     bool       // it goes elsewhere later
	still     string     // the text before it does
	strict    bool       // set -e
	printing  bool       // a part of it prints what others wrote
}

// parseCommand reads an argv: of a shell with -c, the line is what counts.
func parseCommand(argv []string) commandLine {
	c := commandLine{text: strings.Join(argv, " "), words: argv}
	c.still = c.text
	line, isLine := shellLine(argv)
	if !isLine {
		c.parts = [][]string{argv}
		if len(argv) > 0 {
			c.printing = slices.Contains(printers, path.Base(argv[0]))
			c.last = []string{path.Base(argv[0])}
		}
		return c
	}
	c.text = line
	lists := splitLine(line)
	c.words = nil
	for i, list := range lists {
		var programs []string
		for _, part := range list {
			words := strings.Fields(part)
			for j, word := range words {
				words[j] = strings.Trim(word, `'"`)
			}
			c.words = append(c.words, words...)
			c.parts = append(c.parts, words)
			for len(words) > 0 && strings.Contains(words[0], "=") && !strings.HasPrefix(words[0], "=") {
				words = words[1:]
			}
			if len(words) == 0 {
				continue
			}
			if words[0] == "cd" && len(words) == 2 {
				if i == 0 && len(programs) == 0 || len(c.earlier) == 0 && len(programs) == 0 {
					c.directory = words[1]
				} else {
					c.moves = true
				}
			}
			if words[0] == "set" && slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "-") && strings.Contains(w, "e") }) {
				c.strict = true
			}
			if slices.Contains([]string{"pushd", "for", "while", "(cd"}, words[0]) || slices.Contains(words, "-C") {
				c.moves = true
			}
			if words[0] == "exit" && len(words) == 2 && strings.HasPrefix(words[1], "$") {
				c.strict = true // it passes on a status that it kept
				continue
			}
			programs = append(programs, path.Base(words[0]))
			c.printing = c.printing || slices.Contains(printers, path.Base(words[0])) && !strings.Contains(part, ">")
		}
		if i == len(lists)-1 {
			c.last = programs
		} else {
			c.earlier = append(c.earlier, programs...)
		}
	}
	known := 0
	if c.directory != "" {
		known = 1
	}
	c.moves = c.moves || strings.Count(line, "cd ") > known || strings.Contains(line, "chdir")
	c.still = line
	if c.moves {
		c.still = beforeMoving(line, c.directory != "")
	}
	return c
}

// beforeMoving is what a line says before it goes elsewhere, or goes elsewhere again.
func beforeMoving(line string, again bool) string {
	end, from := len(line), 0
	if again {
		from = strings.Index(line, "cd ") + len("cd ")
	}
	for _, word := range []string{"cd ", "chdir", "pushd", "for ", "while ", "-C"} {
		if i := strings.Index(line[from:], word); i >= 0 {
			end = min(end, from+i)
		}
	}
	return line[:end]
}

// shellLine is the line of sh -c LINE.
func shellLine(argv []string) (string, bool) {
	if len(argv) < 3 || !slices.Contains([]string{"sh", "bash", "dash", "zsh", "ash", "ksh"}, path.Base(argv[0])) {
		return "", false
	}
	for i, word := range argv[1:] {
		switch {
		case strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--") && strings.Contains(word, "c"):
			if i+2 < len(argv) {
				return argv[i+2], true
			}
			return "", false
		case !strings.HasPrefix(word, "-"):
			return "", false
		}
	}
	return "", false
}

// LeavesInBackground reports whether a command is a shell's line with a program in the background
// for which it does not wait: what comes behind the last & only says something, waits for a moment,
// or asks a server. So does a command that is known to put itself into the background.
func LeavesInBackground(argv []string) bool {
	line, is := shellLine(argv)
	if !is {
		return slices.ContainsFunc(daemons, func(words []string) bool { return isDaemon(argv, words) })
	}
	last := -1
	for i := range unquoted(line) {
		near := func(at int) byte {
			if at < 0 || at >= len(line) {
				return 0
			}
			return line[at]
		}
		if line[i] == '&' && !strings.ContainsRune("&><|", rune(near(i-1))) && !strings.ContainsRune("&>", rune(near(i+1))) {
			last = i
		}
	}
	left := last >= 0
	rest := line[last+1:]
	for _, list := range splitLine(rest) {
		for _, part := range list {
			words := strings.Fields(part)
			for len(words) > 0 && strings.Contains(words[0], "=") {
				words = words[1:]
			}
			if slices.ContainsFunc(daemons, func(daemon []string) bool { return isDaemon(words, daemon) }) {
				left = true
			} else if len(words) > 0 && !slices.Contains(passing, path.Base(words[0])) {
				left = false
			}
		}
	}
	return left
}

// passing are programs that do not end what is in the background, and do not wait for it.
var passing = []string{"echo", "printf", "sleep", "true", ":", "disown", "curl", "wget", "jobs", "exit", "cat", "head", "tail", "psql", "redis-cli", "nc", "ss", "ps", "pgrep", "date", "ls"}

// daemons put themselves into the background: a program, and a word that says so.
var daemons = [][]string{{"pg_ctl", "start"}, {"pg_ctlcluster", "start"}, {"redis-server", "--daemonize"}, {"tmux", "-d"}, {"screen", "-dm"}, {"screen", "-dmS"}, {"nginx"}, {"gunicorn", "--daemon"},
	{"gunicorn", "-D"}, {"pm2", "start"}, {"mongod", "--fork"}, {"memcached", "-d"}, {"emacs", "--daemon"}, {"daemonize"}}

func isDaemon(argv, daemon []string) bool {
	return len(argv) > 0 && path.Base(argv[0]) == daemon[0] && (len(daemon) == 1 || slices.Contains(argv[1:], daemon[1])) &&
		!slices.ContainsFunc(argv[1:], func(word string) bool {
			return strings.Contains(word, "daemon off") || slices.Contains([]string{"-t", "-v", "-V", "-h", "--version", "--help"}, word)
		})
}

// unquoted are the places of a line that are outside of quotes.
func unquoted(line string) iter.Seq[int] {
	return func(yield func(int) bool) {
		quote := byte(0)
		for i := 0; i < len(line); i++ {
			c := line[i]
			switch {
			case quote != '\'' && c == '\\':
				i++
			case quote != 0:
				if c == quote {
					quote = 0
				}
			case c == '\'' || c == '"' || c == '`':
				quote = c
			case !yield(i):
				return
			}
		}
	}
}

// splitLine takes a line apart at ; and line ends and ||, and each of that at && and |, outside of
// quotes.
func splitLine(line string) (lists [][]string) {
	var list []string
	quote, start := byte(0), 0
	end := func(at, skip int) {
		if part := strings.TrimSpace(line[start:at]); part != "" {
			list = append(list, part)
		}
		start = at + skip
	}
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote == 0 && c == '\\', quote == '"' && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"' || c == '`':
			quote = c
		case strings.HasPrefix(line[i:], "||"):
			end(i, 2)
			lists, list = append(lists, list), nil
			i++
		case strings.HasPrefix(line[i:], "&&"):
			end(i, 2)
			i++
		case c == '|':
			end(i, 1)
		case c == ';' || c == '\n':
			end(i, 1)
			if len(list) > 0 {
				lists, list = append(lists, list), nil
			}
		}
	}
	end(len(line), 0)
	if len(list) > 0 {
		lists = append(lists, list)
	}
	return lists
}

// saysNo reports whether the status is an answer and no failure: of grep, diff and the like.
func (c commandLine) saysNo(status int) bool {
	return status == 1 && len(c.last) > 0 && slices.Contains([]string{"grep", "egrep", "fgrep", "rg", "diff", "cmp", "test", "[", "[[", "false", "pgrep", "which", "type", "command", "expr"}, c.last[len(c.last)-1])
}

// printers only print what they were given: what stands in that is not about them. With those that
// say nothing at all, what is printed was printed before.
var printers = []string{"cat", "head", "tail", "echo", "printf", "grep", "rg", "sed", "awk", "less", "more", "journalctl", "strings", "jq", "exit", "false", "test", "[", "tac", "sort", "uniq", "column"}

// disowns reports whether a line is of a program whose failure was not the end: "cat x; false".
func (c commandLine) disowns(line string) bool {
	if len(c.last) == 0 || c.strict || len(c.earlier) == 0 {
		return false
	}
	program, _, ok := strings.Cut(line, ":")
	if !ok || program == "" || strings.ContainsAny(program, " /") {
		return slices.Contains(c.last, "exit") || slices.Contains(c.last, "false")
	}
	if slices.Contains([]string{"sh", "bash", "dash", "zsh"}, program) { // of the shell itself: a redirection, cd
		return slices.Contains(c.last, "exit") || slices.Contains(c.last, "false")
	}
	return slices.Contains(c.earlier, program) && !slices.Contains(c.last, program) ||
		slices.Contains(c.last, "exit") || slices.Contains(c.last, "false")
}

// names reports whether the command's own words have a path in them, or what that is below, seen
// from where it began.
func (c commandLine) names(text string) bool {
	for ; ; text = path.Dir(text) {
		if strings.Contains(c.still, text) {
			return true
		}
		if base := path.Base(text); base == ".." || base == "." || base == "/" || !strings.HasPrefix(path.Dir(text), "../") {
			return false
		}
	}
}

// options are the values of an option that is written together with them, or before them.
func (c commandLine) options(name string) (list []string) {
	for i, word := range c.words {
		if value, ok := strings.CutPrefix(word, name); ok && value != "" {
			list = append(list, value)
		} else if ok && i+1 < len(c.words) {
			list = append(list, c.words[i+1])
		}
	}
	return list
}

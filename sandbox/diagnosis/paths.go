package diagnosis

import (
	"path"
	"slices"
	"strings"
)

// quotes are how programs quote a path: the opening and the closing one.
var quotes = [][2]string{{"'", "'"}, {`"`, `"`}, {"`", "'"}, {"`", "`"}, {"‘", "’"}, {"“", "”"}, {"«", "»"}, {"„", "“"}}

// introductions stand between a program's name and a path.
var introductions = []string{"cannot open ", "can't open ", "cannot create ", "can't create ", "can't cd to ", "cannot access ", "cannot stat ", "unable to access jarfile ",
	"could not open ", "open ", "stat ", "lstat ", "mkdir ", "chdir ", "fork/exec ", "exec ", "readlink ", "unlink ", "couldn't open file ", "cannot find ", "cd ", "creating ",
	"fatal error ", "failed to open ", "file ", "directory ", "path "}

// paths are the texts of a line that may be paths: what is quoted, what stands between colons, and
// words that begin as a path does. If a line has none of its own, those quoted in the lines before
// it are what it is about ("Caused by:").
func (d *diagnosis) paths(lines []string, i int) []string {
	line := withoutProgram(lines[i])
	list := quoted(line)
	inQuotes := list
	ownWords := len(list) > 0
	for _, field := range strings.Split(line, ": ") {
		field = strings.Trim(field, " \t,;()[]")
		list = append(list, introduced(field)...)
	}
	for _, word := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t'\"`‘’“”()<>[]{}=,;", r) }) {
		word = strings.TrimRight(word, ":.")
		if slices.ContainsFunc(inQuotes, func(text string) bool { return len(text) > len(word) && strings.HasPrefix(text, word) }) {
			continue // the beginning of a path with a space in it
		}
		if word != "" && (word[0] == '/' || strings.HasPrefix(word, "~/") || strings.HasPrefix(word, "../")) {
			list = append(list, word)
			if first, _, ok := strings.Cut(word, ":"); ok {
				list = append(list, first)
			}
		}
	}
	if rest, ok := strings.CutPrefix(line, "tar: "); ok {
		name, _, _ := strings.Cut(rest, ": ")
		for _, dir := range d.command.options("-C") {
			list = append(list, path.Join(dir, name))
		}
	}
	if header, library := wantedByCompiler(line); header != "" {
		for _, dir := range d.command.options("-I") {
			list = append(list, path.Join(dir, header))
		}
	} else if library != "" {
		for _, dir := range d.command.options("-L") {
			list = append(list, path.Join(dir, "lib"+library+".so"), path.Join(dir, "lib"+library+".a"))
		}
	}
	if !ownWords && !hasPath(list) && carriesOn(lines[i]) {
		for before := i - 1; before >= max(i-4, 0); before-- {
			if !neutral(lines[before]) && (strings.HasSuffix(lines[before], ":") || complains(lines[before])) {
				list = append(list, quoted(lines[before])...)
			}
		}
	}
	return unique(list)
}

// withoutProgram is a line without the path of the program that wrote it: "/bin/bash: line 1: …".
func withoutProgram(line string) string {
	if program, rest, ok := strings.Cut(line, ": "); ok && strings.HasPrefix(program, "/") && strings.Contains(rest, ": ") {
		return rest
	}
	return line
}

// carriesOn reports whether a line tells more of what the lines before it began: cargo's "Caused
// by:" and curl.
func carriesOn(line string) bool {
	return strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "curl: (26)") || strings.HasPrefix(line, "curl: (37)")
}

// wantedByCompiler is the header or the library that a compiler did not find in its directories.
func wantedByCompiler(line string) (header, library string) {
	if _, rest, ok := strings.Cut(line, "fatal error: "); ok {
		if name, _, ok := strings.Cut(rest, ": No such file"); ok && !path.IsAbs(name) {
			return name, ""
		}
		if name, _, ok := strings.Cut(strings.TrimPrefix(rest, "'"), "' file not found"); ok { // clang
			return name, ""
		}
	}
	if _, rest, ok := strings.Cut(line, "cannot find -l"); ok {
		name, _, _ := strings.Cut(rest, ":")
		return "", strings.TrimSpace(name)
	}
	return "", ""
}

func quoted(line string) (list []string) {
	for _, q := range quotes {
		rest := line
		for range 16 {
			_, after, ok := strings.Cut(rest, q[0])
			if !ok {
				break
			}
			if before := len(rest) - len(after) - len(q[0]); q[0] == "'" && before > 0 && isLetter(rest[before-1]) {
				rest = after // can't
				continue
			}
			text, behind, ok := strings.Cut(after, q[1])
			if !ok {
				break
			}
			list = append(list, text)
			rest = behind
		}
	}
	return list
}

// introduced is a field, without what introduces a path in it.
func introduced(field string) []string {
	if field == "" {
		return nil
	}
	if path, _, ok := strings.Cut(field, " ("); ok && field[0] == '/' { // java: "/x (No such file…"
		field = path
	}
	list := []string{field}
	small := strings.ToLower(field)
	for _, words := range introductions {
		if i := strings.Index(small, words); i >= 0 && len(small) == len(field) {
			list = append(list, strings.Trim(field[i+len(words):], " "))
		}
	}
	return list
}

func hasPath(list []string) bool {
	for _, text := range list {
		if strings.HasPrefix(text, "/") || strings.HasPrefix(text, "~/") || strings.HasPrefix(text, "../") {
			return true
		}
	}
	return false
}

func unique(list []string) []string {
	seen := map[string]bool{}
	var fresh []string
	for _, text := range list {
		if text != "" && !seen[text] && len(fresh) < 64 {
			seen[text] = true
			fresh = append(fresh, text)
		}
	}
	return fresh
}

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

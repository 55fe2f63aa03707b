package shell

import (
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// Line is where the line is among the words that an agent gave in place of its shell; -1: there is
// none.
func Line(given []string) int {
	if len(given) == 1 && given[0] != "" && given[0][0] != '-' && given[0][0] != '+' {
		return 0
	}
	for i, word := range given {
		switch {
		case len(word) < 2 || word[0] != '-' && word[0] != '+' || word == "--":
			return -1
		case word[0] == '-' && word[1] != '-' && strings.Contains(word, "c"):
			for j := i + 1; j < len(given); j++ { // bash takes further options before the line
				if len(given[j]) < 2 || given[j][0] != '-' && given[j][0] != '+' {
					return j
				}
			}
			return -1
		}
	}
	return -1
}

// directoryNote is how Claude Code ends each line: it reads there in which directory to begin the
// next one.
var directoryNote = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^((?s).*) && pwd -P >\| (/[^\s'"\\$` + "`" + `;&|<>()*?\[\]{}~!#]+)$`)
})

// noteName is the name of that file.
var noteName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^claude-[0-9A-Za-z]{1,32}-cwd$`) })

// TakeNote takes off a line what ends it by noting its directory, and returns the file for that. It
// is a file of the agent's outside, which no line reaches: who has run the line writes it. Only a
// name that Claude Code makes, right in the directory for its temporary files, is one.
func TakeNote(line string, temporary []string) (rest, file string) {
	found := directoryNote().FindStringSubmatch(line)
	if found == nil || !noteName().MatchString(filepath.Base(found[2])) || filepath.Clean(found[2]) != found[2] {
		return line, ""
	}
	for _, dir := range temporary {
		if filepath.IsAbs(dir) && filepath.Clean(dir) == filepath.Dir(found[2]) {
			return found[1], found[2]
		}
	}
	return line, ""
}

// jobsNote is how Gemini CLI begins each line: in a file in a directory of its own it reads which
// processes the line left.
var jobsNote = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^((?:shopt -u [a-z ]+; ?)?_bgpids_file=)'?/[^\s'"\\$` + "`" + `;&|<>()]*/gemini-shell-[0-9A-Za-z]+/bgpids\.tmp'?\n`)
})

// WithoutJobs is a line that notes them nowhere: for an agent whose directories its lines do not
// see. Their numbers would mean nothing to it.
func WithoutJobs(line string) string { return jobsNote().ReplaceAllString(line, "${1}/dev/null\n") }

// Noting is a line that tells at its end, on a descriptor, in which directory it is, as TakeNote's
// line did.
func Noting(line string, fd string) string { return line + " && pwd -P >&" + fd }

// maxDirectory is PATH_MAX.
const maxDirectory = 4096

// Directory is the directory that a line told, if it is one: a whole path without links, and
// nothing that a reader takes for more than that.
func Directory(told []byte, links func(string) (string, error), isDirectory func(string) bool) (string, bool) {
	dir, ends := strings.CutSuffix(string(told), "\n")
	switch {
	case !ends || len(dir) >= maxDirectory || !filepath.IsAbs(dir) || filepath.Clean(dir) != dir:
		return "", false
	case strings.ContainsFunc(dir, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\uFFFD' }):
		return "", false
	}
	real, err := links(dir)
	return dir, err == nil && real == dir && isDirectory(dir)
}

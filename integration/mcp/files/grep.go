package files

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	maxGrepped  = 1000      // matches in one result
	maxGrepText = 512 << 10 // bytes of text in one result
	maxGrepFile = 32 << 20  // larger files are passed over
	maxGrepLine = 1000      // bytes of a line that are returned
	maxContext  = 20        // lines around a match
)

// Grep asks which lines fit an expression.
type Grep struct {
	Pattern    string `json:"pattern" jsonschema:"a regular expression as RE2 reads it, held against each line"`
	Path       string `json:"path,omitempty" jsonschema:"the file or directory to look in; the working directory if absent"`
	Glob       string `json:"glob,omitempty" jsonschema:"only files whose path below the directory fits this glob; without a slash, their name"`
	IgnoreCase bool   `json:"ignoreCase,omitempty" jsonschema:"treat small and capital letters alike"`
	Context    int    `json:"context,omitempty" jsonschema:"how many lines to return before and after each match, at most 20"`
	MaxResults int    `json:"maxResults,omitempty" jsonschema:"at most that many matches; 200 if absent, 1000 at most"`
}

// A GrepResult lists lines.
type GrepResult struct {
	Path          string  `json:"path" jsonschema:"where it was looked, absolute"`
	Matches       []Match `json:"matches" jsonschema:"the lines that fit, by path and line"`
	Truncated     bool    `json:"truncated" jsonschema:"whether there may be more"`
	FilesSearched int     `json:"filesSearched" jsonschema:"how many files were read"`
	FilesSkipped  int     `json:"filesSkipped" jsonschema:"how many were not: no text, larger than 32 MiB, or not readable"`
}

// A Match is a line that fits.
type Match struct {
	Path   string   `json:"path" jsonschema:"the file, absolute"`
	Line   int      `json:"line" jsonschema:"the line's number, from 1"`
	Text   string   `json:"text" jsonschema:"the line without its end; at most 1000 bytes of it"`
	Before []string `json:"before,omitempty" jsonschema:"the lines before it"`
	After  []string `json:"after,omitempty" jsonschema:"the lines after it"`
}

// A search is a Grep in progress.
type search struct {
	tools
	Grep
	expression *regexp.Regexp
	result     *GrepResult
	bytes      int
}

func (t tools) grep(g Grep) (*GrepResult, error) {
	switch {
	case g.Pattern == "" || len(g.Pattern) > maxPattern || !utf8.ValidString(g.Pattern):
		return nil, invalid("", "a pattern is UTF-8 text of 1 to 4096 bytes")
	case g.Context < 0 || g.Context > maxContext:
		return nil, invalid("", "context is 0 to 20 lines")
	case g.MaxResults < 0:
		return nil, invalid("", "maxResults is not negative")
	case g.MaxResults == 0:
		g.MaxResults = 200
	}
	g.MaxResults = min(g.MaxResults, maxGrepped)
	flags := ""
	if g.IgnoreCase {
		flags = "(?i)"
	}
	expression, err := regexp.Compile(flags + g.Pattern)
	if err != nil {
		return nil, invalid("", "the pattern: "+err.Error()+`; it is RE2, without backreferences and lookaround, and \ before ( ) [ ] { } . * + ? ^ $ | makes a letter of them`)
	}
	root, err := absolute(t.cwd, cmpOr(g.Path, "."))
	if err != nil {
		return nil, err
	}
	s := search{tools: t, Grep: g, expression: expression, result: &GrepResult{Path: root, Matches: []Match{}}}
	info, err := os.Stat(root)
	switch {
	case err != nil:
		return nil, failure(root, err)
	case info.Mode().IsRegular():
		file, err := open(root)
		if err != nil {
			return nil, err
		}
		file.Close()
		s.file(root)
		return s.result, nil
	case !info.IsDir():
		return nil, regular(root, info.Mode())
	}
	return s.result, s.directory(root)
}

func (s *search) directory(root string) error {
	fits := func(string) bool { return true }
	if s.Glob != "" {
		glob, err := compileGlob(s.Glob)
		if err != nil {
			return err
		}
		fits = func(below string) bool {
			if !strings.Contains(s.Glob, "/") {
				below = filepath.Base(below)
			}
			return glob.MatchString(below)
		}
	}
	walk := walk{tools: s.tools, root: root}
	err := walk.each(func(f found) {
		if f.entry.Type().IsRegular() && fits(f.below) {
			s.file(f.path)
			walk.stop = s.result.Truncated
		}
	})
	s.result.Truncated = s.result.Truncated || walk.cut
	return err
}

// file searches one file. What it is cut down to is said in the result.
func (s *search) file(path string) {
	file, err := open(path)
	if err != nil {
		s.result.FilesSkipped++
		return
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() > maxGrepFile {
		s.result.FilesSkipped++
		return
	}
	reader := bufio.NewReaderSize(io.LimitReader(file, maxGrepFile), 64<<10)
	head, _ := reader.Peek(sniffed)
	if bytes.IndexByte(head, 0) >= 0 {
		s.result.FilesSkipped++
		return
	}
	s.result.FilesSearched++
	s.lines(strings.ToValidUTF8(path, "\uFFFD"), reader)
}

func (s *search) lines(path string, reader *bufio.Reader) {
	var before []string
	var open []int // matches that still take lines after them, by their place in the result
	for number := 1; ; number++ {
		line, err := wholeLine(reader)
		if len(line) == 0 && err != nil {
			return
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})
		if number%1024 == 0 && s.late() {
			s.result.Truncated = true
			return
		}
		at := s.expression.FindIndex(line)
		shown := ""
		if at != nil || s.Context > 0 {
			shown = excerpt(line, at)
		}
		for len(open) > 0 && len(s.result.Matches[open[0]].After) >= s.Context {
			open = open[1:]
		}
		for _, i := range open {
			s.take(shown)
			s.result.Matches[i].After = append(s.result.Matches[i].After, shown)
		}
		if at != nil {
			if len(s.result.Matches) == s.MaxResults || s.bytes > maxGrepText {
				s.result.Truncated = true
				return
			}
			match := Match{Path: path, Line: number, Text: shown, Before: append([]string(nil), before...)}
			for _, text := range before {
				s.take(text)
			}
			s.take(shown)
			s.result.Matches = append(s.result.Matches, match)
			if s.Context > 0 {
				open = append(open, len(s.result.Matches)-1)
			}
		}
		if s.Context > 0 {
			if before = append(before, shown); len(before) > s.Context {
				before = before[1:]
			}
		}
		if s.bytes > 2*maxGrepText {
			s.result.Truncated = true
			return
		}
	}
}

func (s *search) take(text string) { s.bytes += len(text) + 64 }

// wholeLine reads a line of any length; a file is at most maxGrepFile.
func wholeLine(reader *bufio.Reader) ([]byte, error) {
	line, err := reader.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	whole := append([]byte(nil), line...)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = reader.ReadSlice('\n')
		whole = append(whole, line...)
	}
	return whole, err
}

// excerpt is a line, or the part of it around what fits.
func excerpt(line []byte, at []int) string {
	if len(line) <= maxGrepLine {
		return strings.ToValidUTF8(string(line), "\uFFFD")
	}
	from := 0
	if at != nil {
		from = min(max(at[0]-100, 0), len(line)-maxGrepLine)
	}
	text := string(line[from : from+maxGrepLine])
	for text != "" && from > 0 && !utf8.RuneStart(text[0]) {
		text = text[1:]
	}
	for i := 0; i < utf8.UTFMax && text != ""; i++ {
		if r, size := utf8.DecodeLastRuneInString(text); r != utf8.RuneError || size != 1 {
			break
		}
		text = text[:len(text)-1]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

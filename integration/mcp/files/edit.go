package files

import (
	"bytes"
	"fmt"
	"os"
	"sort"
	"strings"
	"unicode/utf8"
)

// maxMatches is how far matches are counted.
const maxMatches = 100

// Edit asks for text of a file to be replaced: one edit, or several, of which each sees what those
// before it left.
type Edit struct {
	Path       string        `json:"path" jsonschema:"the file, absolute, below ~ or in the working directory"`
	OldText    string        `json:"oldText,omitempty" jsonschema:"the text to replace, exactly as in the file, and with enough around it to be there only once"`
	NewText    string        `json:"newText,omitempty" jsonschema:"the text to put in its place"`
	ReplaceAll bool          `json:"replaceAll,omitempty" jsonschema:"replace oldText wherever it is"`
	Edits      []Replacement `json:"edits,omitempty" jsonschema:"several replacements, one after the other, all of them or none; instead of oldText and newText"`
}

// A Replacement is one edit of several.
type Replacement struct {
	OldText    string `json:"oldText" jsonschema:"the text to replace"`
	NewText    string `json:"newText" jsonschema:"the text to put in its place"`
	ReplaceAll bool   `json:"replaceAll,omitempty" jsonschema:"replace oldText wherever it is"`
}

// An EditResult says what was changed.
type EditResult struct {
	Path         string `json:"path" jsonschema:"the file, absolute"`
	Replacements int    `json:"replacements" jsonschema:"how many places were replaced"`
	FirstLine    int    `json:"firstLine" jsonschema:"the line where the first edit begins"`
	Bytes        int    `json:"bytes" jsonschema:"how many bytes the file has now"`
	InPlace      bool   `json:"inPlace,omitempty" jsonschema:"whether it was overwritten, because it could not be replaced in one step"`
}

func (t tools) edit(e Edit) (*EditResult, error) {
	path, err := absolute(t.cwd, e.Path)
	if err != nil {
		return nil, err
	}
	edits := e.Edits
	if len(edits) == 0 {
		edits = []Replacement{{e.OldText, e.NewText, e.ReplaceAll}}
	} else if e.OldText != "" || e.NewText != "" || e.ReplaceAll {
		return nil, invalid(path, "either edits, or oldText and newText")
	}
	if len(edits) > 1000 {
		return nil, invalid(path, "more than 1000 edits")
	}
	text, err := load(path)
	if err != nil {
		return nil, err
	}
	result := &EditResult{Path: path}
	text, err = apply(text, edits, result)
	if err != nil {
		return nil, failure(path, err)
	}
	if _, err := os.Lstat(path); err != nil {
		return nil, failure(path, err)
	}
	_, result.InPlace, err = replace(path, text, 0o666)
	result.Bytes = len(text)
	return result, err
}

// apply makes the edits in a text.
func apply(text []byte, edits []Replacement, result *EditResult) ([]byte, error) {
	for i, edit := range edits {
		changed, first, count, err := edit.in(text)
		if err != nil {
			err.Path = result.Path
			if len(edits) > 1 {
				err.Message = fmt.Sprintf("edit %d of %d: %s; nothing was changed", i+1, len(edits), err.Message)
			}
			return nil, err
		}
		if len(changed) > MaxFile {
			return nil, &Error{Code: TooLarge, Path: result.Path, Message: fmt.Sprintf("would be larger than %d MiB", MaxFile>>20)}
		}
		if i == 0 {
			result.FirstLine = first
		}
		text, result.Replacements = changed, result.Replacements+count
	}
	return text, nil
}

// in replaces in a text. A byte order mark stays first, and each line end is matched by a line
// feed, with or without a carriage return: agents see and send the one, whatever the file has.
func (r Replacement) in(text []byte) (changed []byte, line, count int, failed *Error) {
	switch {
	case r.OldText == "":
		return nil, 0, 0, invalid("", "oldText is empty; write makes a file, or replaces all of it")
	case r.OldText == r.NewText:
		return nil, 0, 0, invalid("", "oldText and newText are the same")
	}
	f := fold(text)
	old, replacement := []byte(r.OldText), r.NewText
	if len(f.returns) > 0 || !bytes.Contains(f.text, old) {
		old = bytes.ReplaceAll(old, []byte("\r\n"), []byte("\n"))
		replacement = strings.ReplaceAll(replacement, "\r\n", "\n")
	}
	places := find(f.text, old)
	switch {
	case len(places) == 0:
		return nil, 0, 0, noMatch(f.text, old)
	case len(places) > 1 && !r.ReplaceAll:
		return nil, 0, 0, ambiguous(f.text, places)
	case r.ReplaceAll:
		places = findApart(f.text, old, len(replacement)-len(old))
	}
	if places == nil {
		return nil, 0, 0, &Error{Code: TooLarge, Message: fmt.Sprintf("would be larger than %d MiB", MaxFile>>20)}
	}
	var b bytes.Buffer
	b.Write(f.mark)
	end := 0
	for _, at := range places {
		b.Write(f.raw(end, at))
		end = at + len(old)
		b.WriteString(f.ends(replacement, at, end))
	}
	b.Write(f.raw(end, len(f.text)))
	return b.Bytes(), lineOf(f.text, places[0]), len(places), nil
}

// A folded text is one with plain line ends, which remembers what it was.
type folded struct {
	mark    []byte // the byte order mark, if there is one
	text    []byte
	returns []int // where in text a line feed had a carriage return before it, in order
	before  []byte
}

func fold(text []byte) folded {
	var f folded
	if rest, ok := bytes.CutPrefix(text, []byte("\uFEFF")); ok {
		f.mark, text = text[:3], rest
	}
	f.before, f.text = text, text
	if !bytes.Contains(text, []byte("\r\n")) {
		return f
	}
	f.text = make([]byte, 0, len(text))
	for i, c := range text {
		if c == '\r' && i+1 < len(text) && text[i+1] == '\n' {
			f.returns = append(f.returns, len(f.text))
			continue
		}
		f.text = append(f.text, c)
	}
	return f
}

// raw is a part of the text as it was.
func (f folded) raw(from, to int) []byte {
	return f.before[from+sort.SearchInts(f.returns, from) : to+sort.SearchInts(f.returns, to)]
}

// ends gives a replacement the line ends of what it replaces, or else of most of the file.
func (f folded) ends(replacement string, from, to int) string {
	lines := bytes.Count(f.text[from:to], []byte{'\n'})
	returns := sort.SearchInts(f.returns, to) - sort.SearchInts(f.returns, from)
	if lines == 0 {
		lines, returns = bytes.Count(f.text, []byte{'\n'}), len(f.returns)
	}
	if 2*returns <= lines || returns == 0 {
		return replacement
	}
	return strings.ReplaceAll(replacement, "\n", "\r\n")
}

// find lists where old is in text, up to maxMatches, overlapping ones too: "aa" is twice in "aaa".
func find(text, old []byte) []int {
	var places []int
	for at := 0; len(places) < maxMatches; at++ {
		i := bytes.Index(text[at:], old)
		if i < 0 {
			break
		}
		at += i
		places = append(places, at)
	}
	return places
}

// findApart lists all places, none of which overlaps another; nil if replacing them would make too
// large a file. more is how much longer each becomes.
func findApart(text, old []byte, more int) []int {
	var places []int
	for at := 0; ; at += len(old) {
		i := bytes.Index(text[at:], old)
		if i < 0 {
			return places
		}
		at += i
		if places = append(places, at); len(text)+len(places)*more > MaxFile {
			return nil
		}
	}
}

// lineOf is the line of a place, from 1.
func lineOf(text []byte, at int) int { return 1 + bytes.Count(text[:at], []byte{'\n'}) }

func ambiguous(text []byte, places []int) *Error {
	const named = 10
	var lines []string
	for _, at := range places[:min(len(places), named)] {
		lines = append(lines, fmt.Sprint(lineOf(text, at)))
	}
	more, many := "", fmt.Sprint(len(places))
	if len(places) > named {
		more = ", …"
	}
	if len(places) == maxMatches {
		many = "at least " + many
	}
	return &Error{Code: Ambiguous, Matches: len(places),
		Message: fmt.Sprintf("oldText is there %s times, in lines %s%s; put more of what is around it into it, or set replaceAll", many, strings.Join(lines, ", "), more)}
}

// noMatch tells which line is most like the first of what was looked for.
func noMatch(text, old []byte) *Error {
	failed := &Error{Code: NoMatch, Message: "oldText is not there"}
	wanted := ""
	for line := range strings.Lines(string(old[:min(len(old), 64<<10)])) {
		if wanted = strings.TrimSpace(line); wanted != "" {
			break
		}
	}
	line, same := nearest(text, wanted)
	switch {
	case line == 0:
		failed.Message += ", and no line is like it"
	case same && bytes.Contains(bytes.TrimSpace(old), []byte{'\n'}):
		failed.Message += fmt.Sprintf("; line %d begins like it, but the white space or a line behind it differs", line)
	case same:
		failed.Message += fmt.Sprintf("; line %d differs only in white space", line)
	default:
		failed.Message += fmt.Sprintf("; line %d is the nearest", line)
	}
	failed.Line = line
	return failed
}

// nearest is the line that is most like wanted, from 1, or 0; and whether only white space differs.
// It looks at the first lines of a large file only.
func nearest(text []byte, wanted string) (line int, same bool) {
	const lines, length = 20_000, 400
	if wanted == "" {
		return 0, false
	}
	wanted = squeeze(wanted, length)
	pairs, best := pairsOf(wanted), 0.5
	number := 0
	for candidate := range bytes.Lines(text) {
		if number++; number > lines {
			break
		}
		short := squeeze(string(candidate[:min(len(candidate), 4*length)]), length)
		if short == wanted {
			return number, true
		}
		if like := pairs.like(short); like > best {
			line, best = number, like
		}
	}
	return line, false
}

// squeeze makes all white space one space, and cuts.
func squeeze(text string, length int) string {
	text = strings.Join(strings.Fields(text), " ")
	for length < len(text) && length > 0 && !utf8.RuneStart(text[length]) {
		length--
	}
	return text[:min(len(text), length)]
}

// pairs are how often each two neighbouring bytes are in a text.
type pairs map[[2]byte]int

func pairsOf(text string) pairs {
	p := pairs{}
	for i := 1; i < len(text); i++ {
		p[[2]byte{text[i-1], text[i]}]++
	}
	return p
}

// like is 1 for a text with the same pairs and 0 for one without any (Dice's coefficient).
func (p pairs) like(text string) float64 {
	other := pairsOf(text)
	common, total := 0, 0
	for pair, n := range p {
		common += min(n, other[pair])
		total += n
	}
	for _, n := range other {
		total += n
	}
	if total == 0 {
		return 0
	}
	return 2 * float64(common) / float64(total)
}

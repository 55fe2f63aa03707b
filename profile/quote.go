package profile

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// shorten quotes text of unknown origin for a message and keeps it to a line's length. What a terminal would obey comes
// out escaped.
func shorten(text string) string {
	if len(text) > 80 {
		end := 80
		for end > 77 && !utf8.RuneStart(text[end]) {
			end--
		}
		return strconv.Quote(text[:end]) + "…"
	}
	return strconv.Quote(text)
}

// printable is text as it stands, if a terminal shows all of it, and quoted otherwise.
func printable(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return text
	}
	return strconv.Quote(text)
}

// Printable is text of unknown origin, safe for a terminal and a log: as it stands if a terminal shows all of it, and
// quoted otherwise, so that control characters, bidirectional overrides and other line ends come out escaped.
func Printable(text string) string { return printable(text) }

// nearest is the name that was probably meant by what was typed, or empty. Case, "_" and "-" do not count.
func nearest(typed string, names []string) string {
	fold := func(name string) string {
		return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
	}
	if len(typed) > 64 {
		return ""
	}
	best, bestDistance := "", 3
	for _, name := range names {
		if d := editDistance(fold(typed), fold(name)); d < bestDistance && 2*d < len(name) {
			best, bestDistance = name, d
		}
	}
	return best
}

// editDistance counts the bytes to insert, leave out or replace to make b of a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

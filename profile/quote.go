package profile

import (
	"strings"
	"unicode/utf8"

	"github.com/clairun/clai-sandbox/profile/text"
)

// shorten quotes text of unknown origin for a message and keeps it to a line's length. What a
// terminal would obey comes out escaped.
func shorten(s string) string {
	if len(s) > 80 {
		end := 80
		for end > 77 && !utf8.RuneStart(s[end]) {
			end--
		}
		return text.Quote(s[:end]) + "…"
	}
	return text.Quote(s)
}

// printable is text as it stands, if a reader sees all of it, and quoted otherwise.
func printable(s string) string { return text.Value(s) }

// Printable is text of unknown origin, safe for a terminal and a log: as it stands if a reader sees
// all of it, and quoted otherwise, so that control characters, bidirectional overrides and other
// line ends come out escaped.
func Printable(s string) string { return text.Value(s) }

// Nearest is the name that was probably meant by what was typed, or empty. Case, "_" and "-" do not
// count.
func Nearest(typed string, names []string) string {
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

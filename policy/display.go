package policy

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// DisplayText is text for a prompt, a page or a log: what cannot be seen, or turns the text around, comes out as an escape.
func DisplayText(text string) string {
	if !strings.ContainsFunc(text, hidden) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD"):
			fmt.Fprintf(&b, "\\x%02X", text[i])
		case hidden(r):
			fmt.Fprintf(&b, "\\u{%X}", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// hidden says whether a reader would not see a character, or take it for a space: control and format characters, other spaces than the
// usual one, fillers that print as nothing, signs that choose a variant of what stands before them.
func hidden(r rune) bool {
	switch r {
	case ' ':
		return false
	case '\u115F', '\u1160', '\u3164', '\uFFA0', '\u2800', '\u034F', '\u17B4', '\u17B5':
		return true
	}
	return !unicode.IsPrint(r) || r >= '\uFE00' && r <= '\uFE0F' || r >= '\U000E0100' && r <= '\U000E01EF'
}

// Package text shows text of unknown origin to people: on a terminal, in a notification, on a page,
// in a log.
//
// One rule says for all of them what is shown as it stands and what comes out escaped: control and
// format characters, spaces other than the usual one, what prints as nothing, what is written from
// right to left (it turns the text around it, too), marks without a letter or in heaps, characters
// that pass for a slash, and bytes that are no text. What looks like an escape and is none is
// escaped as well, so that the two can be told apart.
//
// It imports nothing, and costs nothing at a program's start.
package text

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Value is a path, a name or another single thing: as it stands if a reader sees all of it, and
// else quoted as in Go.
func Value(s string) string {
	if !strings.Contains(s, `\`) && Plain(s) {
		return s
	}
	if Plain(s) && !likeEscape(s, `uUx`) {
		return s
	}
	return Quote(s)
}

// Name is a path or a name that somebody else may have chosen, in the middle of a sentence: with a
// backslash in it, or empty, it is quoted.
func Name(s string) string {
	if s == "" || strings.Contains(s, `\`) {
		return Quote(s)
	}
	return Value(s)
}

// likeEscape reports whether a backslash stands before one of the letters.
func likeEscape(s, letters string) bool {
	for {
		_, rest, found := strings.Cut(s, `\`)
		if !found {
			return false
		}
		if rest != "" && strings.IndexByte(letters, rest[0]) >= 0 {
			return true
		}
		s = rest
	}
}

// Quote is a value between quotes, with escapes as in Go.
func Quote(s string) string {
	out := []byte{'"'}
	scan(s, func(part string, r rune, hidden bool) {
		switch {
		case r == utf8.RuneError && len(part) == 1:
			out = fmt.Appendf(out, `\x%02x`, part[0])
		case hidden && r > 0xffff:
			out = fmt.Appendf(out, `\U%08x`, r)
		case hidden && r > 0x7f:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			quoted := strconv.Quote(part)
			out = append(out, quoted[1:len(quoted)-1]...)
		}
	})
	return string(append(out, '"'))
}

// Line is running text, such as a command or a message, that may hold quotes and backslashes: what
// a reader would not see comes out as \u{NUMBER}, a byte that is no text as \x{NUMBER}.
func Line(s string) string {
	if !strings.Contains(s, `\`) && Plain(s) {
		return s
	}
	var out strings.Builder
	at := 0
	scan(s, func(part string, r rune, hidden bool) {
		at += len(part)
		switch {
		case r == utf8.RuneError && len(part) == 1:
			fmt.Fprintf(&out, `\x{%02X}`, part[0])
		case hidden, r == '\\' && (strings.HasPrefix(s[at:], "u{") || strings.HasPrefix(s[at:], "x{")):
			fmt.Fprintf(&out, `\u{%X}`, r)
		default:
			out.WriteString(part)
		}
	})
	return out.String()
}

// Plain reports whether a reader sees all of a text, and nothing that is not there.
func Plain(s string) bool {
	plain := true
	scan(s, func(part string, r rune, hidden bool) { plain = plain && !hidden })
	return plain
}

// maxMarks may stand on one letter: more than any language needs, fewer than cover the line above.
const maxMarks = 3

// scan calls do for each character, and says whether a reader would not see it for what it is.
func scan(s string, do func(part string, r rune, hidden bool)) {
	marks := maxMarks // a mark wants something to stand on
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		hidden := Hidden(r)
		switch {
		case hidden, r == ' ':
			marks = maxMarks
		case unicode.Is(unicode.M, r):
			if marks++; marks > maxMarks {
				hidden = true
			}
		default:
			marks = 0
		}
		do(s[:size], r, hidden)
		s = s[size:]
	}
}

// Hidden reports whether a reader would not see a character for what it is, wherever it stands.
func Hidden(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7f
	}
	return !unicode.IsPrint(r) || unicode.Is(unicode.Me, r) || unicode.Is(unseen, r) || unicode.Is(slashes, r) || rightToLeft(r)
}

// unseen print as nothing, as a blank or as a sign for what cannot be shown, though Unicode counts
// them as letters, marks and symbols: fillers, an empty pattern of Braille, signs that choose a
// variant of what stands before them, the replacement character.
var unseen = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x034f, Hi: 0x034f, Stride: 1}, {Lo: 0x115f, Hi: 0x1160, Stride: 1}, {Lo: 0x17b4, Hi: 0x17b5, Stride: 1},
		{Lo: 0x180b, Hi: 0x180f, Stride: 1}, {Lo: 0x2800, Hi: 0x2800, Stride: 1}, {Lo: 0x3164, Hi: 0x3164, Stride: 1},
		{Lo: 0xfe00, Hi: 0xfe0f, Stride: 1}, {Lo: 0xffa0, Hi: 0xffa0, Stride: 1}, {Lo: 0xfffc, Hi: 0xfffd, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x16fe4, Hi: 0x16fe4, Stride: 1}, {Lo: 0x1d159, Hi: 0x1d159, Stride: 1}, {Lo: 0xe0100, Hi: 0xe01ef, Stride: 1},
	},
}

// slashes pass for the ones that part a path, or begin an escape.
var slashes = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x2044, Hi: 0x2044, Stride: 1}, {Lo: 0x2215, Hi: 0x2216, Stride: 1}, {Lo: 0x27cb, Hi: 0x27cb, Stride: 1},
		{Lo: 0x27cd, Hi: 0x27cd, Stride: 1}, {Lo: 0x29f5, Hi: 0x29f5, Stride: 1}, {Lo: 0x29f8, Hi: 0x29f9, Stride: 1},
		{Lo: 0x2571, Hi: 0x2572, Stride: 1}, {Lo: 0xfe68, Hi: 0xfe68, Stride: 1}, {Lo: 0xff0f, Hi: 0xff0f, Stride: 1},
		{Lo: 0xff3c, Hi: 0xff3c, Stride: 1},
	},
}

// rightToLeft reports whether a character is of the ranges that Unicode keeps for scripts that are
// written from right to left (DerivedBidiClass.txt): each turns what stands beside it around,
// digits and slashes above all.
func rightToLeft(r rune) bool {
	return r >= 0x0590 && r <= 0x08ff || r >= 0xfb1d && r <= 0xfdff || r >= 0xfe70 && r <= 0xfeff ||
		r >= 0x10800 && r <= 0x10fff || r >= 0x1e800 && r <= 0x1efff
}

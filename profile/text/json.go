package text

import (
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// PlainJSON escapes, in JSON text, what JSON lets stand and a terminal would obey or hide: control
// characters, overrides of the direction of writing, other line ends. Only strings can hold it, so
// the meaning stays.
func PlainJSON(text []byte) []byte {
	out := make([]byte, 0, len(text)+16)
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r < utf8.RuneSelf && r != 0x7f || !Hidden(r):
			out = append(out, text[:n]...)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[n:]
	}
	return out
}

package policy

import "strings"

// quote is one word of a shell line, in single quotes, whatever it holds.
func quote(word string) string {
	if !strings.Contains(word, "'") {
		return "'" + word + "'"
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func appendQuoted(b *strings.Builder, argv []string) {
	for i, word := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(quote(word))
	}
}

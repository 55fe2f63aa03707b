package repository

import "strings"

// A Setting is one line of a git configuration file (git-config(1)): section.name or
// section.subsection.name in lower case but for the subsection, and its value.
type Setting struct{ Key, Value string }

// Parse reads as much of a git configuration file as says which other files git reads or executes.
// Where git would stop with an error, it goes on with the next line: what a file says there
// protects too much at worst.
func Parse(text string) []Setting {
	var settings []Setting
	section := ""
	text = strings.ReplaceAll(text, "\r\n", "\n")
	for text != "" {
		text = strings.TrimLeft(text, " \t\n\f\v")
		switch {
		case text == "":
		case text[0] == '#' || text[0] == ';':
			_, text, _ = strings.Cut(text, "\n")
		case text[0] == '[':
			section, text = gitSection(text[1:])
			section += "."
		default:
			var name, value string
			name, value, text = gitVariable(text)
			settings = append(settings, Setting{section + strings.ToLower(name), value})
		}
	}
	return settings
}

// gitSection reads what stands behind "[": a name, or a name and a quoted subsection.
func gitSection(text string) (section, rest string) {
	i := strings.IndexAny(text, " \t]\"\n")
	if i < 0 {
		return "", ""
	}
	section, text = strings.ToLower(text[:i]), strings.TrimLeft(text[i:], " \t")
	if !strings.HasPrefix(text, `"`) {
		return section, strings.TrimPrefix(text, "]")
	}
	var name strings.Builder
	for i = 1; i < len(text) && text[i] != '"' && text[i] != '\n'; i++ {
		if text[i] == '\\' && i+1 < len(text) {
			i++
		}
		name.WriteByte(text[i])
	}
	text = strings.TrimPrefix(text[min(i, len(text)):], `"`)
	return section + "." + name.String(), strings.TrimPrefix(strings.TrimLeft(text, " \t"), "]")
}

// gitVariable reads a name and what stands behind its "=", over as many lines as it takes.
func gitVariable(text string) (name, value, rest string) {
	i := strings.IndexFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-')
	})
	if i < 0 {
		return text, "true", ""
	}
	name, text = text[:i], strings.TrimLeft(text[i:], " \t")
	if !strings.HasPrefix(text, "=") {
		_, rest, _ = strings.Cut(text, "\n")
		return name, "true", rest
	}
	value, rest = gitValue(strings.TrimLeft(text[1:], " \t"))
	return name, value, rest
}

// gitValue reads a value: quotes come off, a comment ends it, and a backslash escapes the next byte
// or the line's end.
func gitValue(text string) (value, rest string) {
	var b strings.Builder
	quoted := false
	end := 0 // of the value without the space behind it
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n':
			return b.String()[:end], text[i+1:]
		case c == '\\' && i+1 < len(text):
			i++
			if text[i] == '\n' {
				continue
			}
			b.WriteByte(unescaped(text[i]))
			end = b.Len()
		case c == '"':
			quoted = !quoted
			end = b.Len()
		case !quoted && (c == '#' || c == ';'):
			_, rest, _ = strings.Cut(text[i:], "\n")
			return b.String()[:end], rest
		default:
			b.WriteByte(c)
			if quoted || c != ' ' && c != '\t' {
				end = b.Len()
			}
		}
	}
	return b.String()[:end], ""
}

func unescaped(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	}
	return c
}

// IsSettings reports whether git reads a text as a file of settings, and all programs read it in
// the same way.
func IsSettings(text string) bool {
	_, err := parseDocument(text)
	return err == nil
}

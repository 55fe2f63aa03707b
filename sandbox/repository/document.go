package repository

import (
	"errors"
	"strings"
)

// A document is a configuration file in pieces: one after the other, they are the file, byte for
// byte.
type document []piece

// A piece is the head of a section, a variable with the rest of its lines, or what is between
// those: white space and comments.
type piece struct {
	raw     string
	kind    pieceKind
	section string // of a head, and of each variable below it: "branch.main"
	name    string // of a variable, in lower case
	value   string // of a variable; "true" where it has none
}

type pieceKind uint8

const (
	between pieceKind = iota
	head
	variable
)

func (p *piece) key() string { return p.section + "." + p.name }

// errSyntax means that git does not read the file either, or that not everyone reads it in the same
// way.
var errSyntax = errors.New("not a configuration file of git's")

const byteOrderMark = "\xef\xbb\xbf"

// parseDocument takes a file apart exactly as git does (config.c: git_parse_source). What git
// refuses is an error, and so is a NUL.
func parseDocument(text string) (document, error) {
	if strings.IndexByte(text, 0) >= 0 {
		return nil, errSyntax
	}
	r := &reader{text: text}
	r.at = len(text) - len(strings.TrimPrefix(text, byteOrderMark))
	var d document
	add := func(from int, p piece) {
		if p.raw = text[from:r.at]; p.raw != "" {
			d = append(d, p)
		}
	}
	section, from := "", 0
	for {
		r.skipBetween()
		add(from, piece{})
		from = r.at
		switch c, ok := r.peek(); {
		case !ok:
			return d, nil
		case c == '[':
			r.at++
			name, ok := r.head()
			if !ok || name == "" {
				return nil, errSyntax
			}
			section = name
			add(from, piece{kind: head, section: section})
		case isLetter(c) && section != "":
			name, value, ok := r.variable()
			if !ok {
				return nil, errSyntax
			}
			add(from, piece{kind: variable, section: section, name: name, value: value})
		default:
			return nil, errSyntax
		}
		from = r.at
	}
}

// text puts the pieces together again.
func (d document) text() string {
	var b strings.Builder
	for i := range d {
		b.WriteString(d[i].raw)
	}
	return b.String()
}

// settings are the variables, in the file's order.
func (d document) settings() []Setting {
	var list []Setting
	for i := range d {
		if d[i].kind == variable {
			list = append(list, Setting{d[i].key(), d[i].value})
		}
	}
	return list
}

func isLetter(c byte) bool  { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isKeyChar(c byte) bool { return isLetter(c) || c >= '0' && c <= '9' || c == '-' }
func isBlank(c byte) bool   { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// A reader goes through a text. A carriage return before the end of a line belongs to that.
type reader struct {
	text string
	at   int
}

func (r *reader) peek() (byte, bool) {
	if r.at >= len(r.text) {
		return 0, false
	}
	return r.text[r.at], true
}

// next is the next byte; behind the last one, the end of a line.
func (r *reader) next() (c byte, ok bool) {
	if c, ok = r.peek(); !ok {
		return '\n', false
	}
	r.at++
	if c == '\r' && r.at < len(r.text) && r.text[r.at] == '\n' {
		r.at++
		c = '\n'
	}
	return c, true
}

// skipBetween skips white space and comments.
func (r *reader) skipBetween() {
	for {
		switch c, ok := r.peek(); {
		case !ok:
			return
		case c == '#' || c == ';':
			for c, ok := r.next(); ok && c != '\n'; c, ok = r.next() {
			}
		case isBlank(c):
			r.at++
		default:
			return
		}
	}
}

// head reads what stands behind "[".
func (r *reader) head() (string, bool) {
	var name strings.Builder
	for {
		c, ok := r.next()
		switch {
		case !ok:
			return "", false
		case c == ']':
			return name.String(), true
		case c == '\n':
			return "", false
		case isBlank(c):
			return r.subsection(&name)
		case !isKeyChar(c) && c != '.':
			return "", false
		}
		name.WriteString(strings.ToLower(string(rune(c))))
	}
}

// subsection reads a quoted name and the "]" behind it.
func (r *reader) subsection(name *strings.Builder) (string, bool) {
	c, _ := r.next()
	for isBlank(c) && c != '\n' {
		c, _ = r.next()
	}
	if c != '"' {
		return "", false
	}
	name.WriteByte('.')
	for {
		c, _ := r.next()
		if c == '"' {
			break
		}
		if c == '\\' {
			c, _ = r.next()
		}
		if c == '\n' {
			return "", false
		}
		name.WriteByte(c)
	}
	c, ok := r.next()
	return name.String(), ok && c == ']'
}

// variable reads a name and its value, up to the end of the last line.
func (r *reader) variable() (name, value string, ok bool) {
	from := r.at
	for r.at < len(r.text) && isKeyChar(r.text[r.at]) {
		r.at++
	}
	name = strings.ToLower(r.text[from:r.at])
	c, _ := r.next()
	for c == ' ' || c == '\t' {
		c, _ = r.next()
	}
	switch c {
	case '\n':
		return name, "true", true
	case '=':
		value, ok = r.value()
		return name, value, ok
	}
	return "", "", false
}

// value reads what stands behind "=".
func (r *reader) value() (string, bool) {
	var b strings.Builder
	quoted, comment := false, false
	end := 0 // of the value without the white space behind it
	for {
		c, _ := r.next()
		switch {
		case c == '\n':
			return b.String()[:end], !quoted
		case comment:
		case !quoted && isBlank(c):
			if b.Len() > 0 {
				b.WriteByte(c)
			}
			continue
		case !quoted && (c == '#' || c == ';'):
			comment = true
		case c == '"':
			quoted = !quoted
			end = b.Len()
		case c == '\\':
			c, ok := r.next()
			switch {
			case c == '\n':
				if !ok {
					return "", false // at the end of the file
				}
				continue
			case !strings.ContainsRune(`tbn\"`, rune(c)):
				return "", false
			}
			b.WriteByte(unescaped(c))
			end = b.Len()
		default:
			b.WriteByte(c)
			end = b.Len()
		}
	}
}

// writeValue writes a value as git does.
func writeValue(value string) string {
	var b strings.Builder
	quote := strings.HasPrefix(value, " ") || strings.HasSuffix(value, " ") || strings.ContainsAny(value, ";#\r")
	if quote {
		b.WriteByte('"')
	}
	for i := range len(value) {
		switch c := value[i]; c {
		case '\n':
			b.WriteString(`\n`)
		case '\t':
			b.WriteString(`\t`)
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	if quote {
		b.WriteByte('"')
	}
	return b.String()
}

// writeHead writes the head of a section as git does.
func writeHead(section string) string {
	name, sub, has := strings.Cut(section, ".")
	if !has {
		return "[" + name + "]"
	}
	return "[" + name + ` "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(sub) + `"]`
}

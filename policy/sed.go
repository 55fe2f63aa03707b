package policy

import "strings"

// sedRefusal reads a script of sed's. Of the language, what prints, deletes, replaces and jumps is
// known here; what executes (e), writes or reads other files (w, W, r, R), or is not known, is
// refused.
//
// A delimiter within [ ] does not end an expression. A sed that takes it for the end finds an
// expression with a [ that is not closed, which is an error.
func sedRefusal(script string) string {
	if len(script) > MaxLine || strings.ContainsAny(script, "\x00\r") {
		return "is a script that is not analysed"
	}
	p := sedParser{text: script}
	p.script()
	return p.refusal
}

type sedParser struct {
	text    string
	at      int
	refusal string
}

func (p *sedParser) refuse(what string) {
	if p.refusal == "" {
		p.refusal = what
	}
}

func (p *sedParser) fail() {
	p.refuse("is a script that is not understood")
}

func (p *sedParser) peek() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

func (p *sedParser) skip(set string) {
	for p.at < len(p.text) && strings.IndexByte(set, p.text[p.at]) >= 0 {
		p.at++
	}
}

func (p *sedParser) script() {
	for p.refusal == "" {
		p.skip(" \t\n;")
		if p.at == len(p.text) {
			return
		}
		p.command()
	}
}

func (p *sedParser) command() {
	if p.address() {
		p.skip(" \t")
		if p.peek() == ',' {
			p.at++
			p.skip(" \t")
			if c := p.peek(); c == '+' || c == '~' {
				p.at++
				p.number()
			} else if !p.address() {
				p.fail()
			}
		}
	}
	p.skip(" \t!")
	c := p.peek()
	p.at++
	switch c {
	case '{', '}':
		return
	case '=', 'd', 'D', 'g', 'G', 'h', 'H', 'n', 'N', 'p', 'P', 'x', 'z', 'F':
		p.end()
	case 'q', 'Q', 'l', 'L':
		p.skip(" \t")
		p.number()
		p.end()
	case '#':
		for p.at < len(p.text) && p.text[p.at] != '\n' {
			p.at++
		}
	case ':', 'b', 't', 'T':
		p.skip(" \t")
		for p.at < len(p.text) && plain(p.text[p.at:p.at+1], "_.-") {
			p.at++
		}
		p.end()
	case 'a', 'i', 'c':
		p.lines()
	case 's':
		p.substitute()
	case 'y':
		d := p.delimiter()
		p.until(d, false)
		p.until(d, false)
		p.end()
	case 'e':
		p.refuse("has sed's e, which executes")
	case 'w', 'W', 'r', 'R':
		p.refuse("has sed's " + string(c) + ", which opens another file")
	case 0:
		p.fail()
	default:
		p.refuse("has a command of sed's that is not known here")
	}
}

// end must follow a command: a separator, a bracket that closes, or a comment.
func (p *sedParser) end() {
	p.skip(" \t")
	switch p.peek() {
	case 0, ';', '\n', '}', '#':
	default:
		p.refuse("has text behind a command of sed's")
	}
}

func (p *sedParser) number() { p.skip("0123456789") }

// address reads a line number, $, first~step or an expression, if there is one.
func (p *sedParser) address() bool {
	switch c := p.peek(); {
	case c >= '0' && c <= '9':
		p.number()
		if p.peek() == '~' {
			p.at++
			p.number()
		}
	case c == '$':
		p.at++
	case c == '/' || c == '\\':
		p.at++
		if c == '\\' {
			c = p.delimiter()
		}
		p.until(c, true)
		p.skip("IM")
	default:
		return false
	}
	return true
}

func (p *sedParser) delimiter() byte {
	c := p.peek()
	p.at++
	if c == 0 || c == '\n' || c == '\\' || c >= 0x80 {
		p.fail()
	}
	return c
}

// until reads up to a delimiter, which a backslash takes its meaning from.
func (p *sedParser) until(delimiter byte, expression bool) {
	for p.at < len(p.text) && p.refusal == "" {
		c := p.text[p.at]
		p.at++
		switch {
		case c == delimiter:
			return
		case c == '\\':
			p.at++
		case c == '\n' && expression:
			p.fail()
		case c == '[' && expression:
			p.bracket()
		}
	}
	p.fail()
}

// bracket reads to the ] that closes a bracket expression.
func (p *sedParser) bracket() {
	p.skipOne('^')
	p.skipOne(']')
	for p.at < len(p.text) {
		rest := p.text[p.at:]
		for _, class := range [...]string{"[:", "[.", "[="} {
			if strings.HasPrefix(rest, class) {
				if end := strings.Index(rest[2:], class[1:]+"]"); end >= 0 {
					p.at += end + 4
					rest = p.text[p.at:]
				}
			}
		}
		if rest == "" {
			break
		}
		p.at++
		switch rest[0] {
		case ']':
			return
		case '\n':
			p.fail()
			return
		}
	}
	p.fail()
}

func (p *sedParser) skipOne(c byte) {
	if p.peek() == c {
		p.at++
	}
}

func (p *sedParser) substitute() {
	d := p.delimiter()
	p.until(d, true)
	p.until(d, false)
	for p.at < len(p.text) && p.refusal == "" {
		switch c := p.text[p.at]; {
		case c >= '0' && c <= '9', c == 'g', c == 'p', c == 'i', c == 'I', c == 'm', c == 'M':
			p.at++
			continue
		case c == 'e':
			p.refuse("has the flag e of sed's s, which executes")
		case c == 'w':
			p.refuse("has the flag w of sed's s, which writes a file")
		}
		break
	}
	p.end()
}

// lines reads the text behind a, i and c: to the end of the line, and on where a backslash stands
// before that.
func (p *sedParser) lines() {
	for p.at < len(p.text) {
		c := p.text[p.at]
		p.at++
		switch c {
		case '\\':
			p.at++
		case '\n':
			return
		}
	}
	p.at = min(p.at, len(p.text))
}

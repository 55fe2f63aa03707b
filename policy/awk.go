package policy

import (
	"strings"
)

// awkFunctions are those of awk's functions that compute.
var awkFunctions = wordSet(`atan2 cos exp int log rand sin sqrt srand gsub index length match split sub substr sprintf tolower toupper gensub patsplit
	strtonum asort asorti isarray typeof mkbool strftime systime mktime and or xor compl lshift rshift close fflush bindtextdomain dcgettext dcngettext`)

var awkKeywords = wordSet(`BEGIN END BEGINFILE ENDFILE if else while for do break continue next nextfile exit return delete in function func print printf
	switch case default`)

// awkForeign are the names by which awk reaches what is outside of its input.
var awkForeign = wordSet(`system getline ENVIRON PROCINFO SYMTAB FUNCTAB extension`)

func wordSet(words string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(words) {
		set[w] = true
	}
	return set
}

// awkRefusal reads a program of awk's: its tokens, as every awk takes them. What computes and
// prints is harmless; a pipe, a redirection, getline, system, the environment, or a function that
// is not known, is refused, and so is what awks read in different ways.
func awkRefusal(program string) string {
	if len(program) > MaxLine {
		return "is a program that is too long"
	}
	p := awkParser{text: program, defined: map[string]bool{}}
	p.tokens()
	for _, name := range p.called {
		if p.refusal == "" && !p.defined[name] {
			p.refusal = "calls a function that is not known here: " + DisplayText(name)
		}
	}
	return p.refusal
}

type awkParser struct {
	text     string
	at       int
	previous string // the token before: a name, a sign, "0" for a number, "\"" for a string, "/" for an expression
	printing bool
	depth    int // of brackets since print
	called   []string
	defined  map[string]bool
	refusal  string
}

func (p *awkParser) refuse(what string) {
	if p.refusal == "" {
		p.refusal = what
	}
}

func (p *awkParser) tokens() {
	for p.at < len(p.text) && p.refusal == "" {
		c := p.text[p.at]
		switch {
		case c == ' ' || c == '\t':
			p.at++
		case c == '\\' && strings.HasPrefix(p.text[p.at:], "\\\n"):
			p.at += 2
		case c == '#':
			if i := strings.IndexByte(p.text[p.at:], '\n'); i >= 0 {
				p.at += i
			} else {
				p.at = len(p.text)
			}
		case c == '\n':
			p.at++
			p.previous = "\n"
		case c == '"':
			p.string()
		case c >= '0' && c <= '9' || c == '.':
			p.at = max(behindNumber(p.text, p.at), p.at+1)
			p.previous = "0"
		case nameByte(c):
			p.name()
		case c == '/':
			p.slash()
		default:
			p.sign(c)
		}
	}
}

func (p *awkParser) string() {
	for p.at++; p.at < len(p.text); p.at++ {
		switch p.text[p.at] {
		case '\\':
			p.at++
			if p.at < len(p.text) && p.text[p.at] == '\n' {
				p.refuse("has a string over several lines")
				return
			}
		case '\n':
			p.refuse("has a string over several lines")
			return
		case '"':
			p.at++
			p.previous = "\""
			return
		}
	}
	p.refuse("has a string without an end")
}

func (p *awkParser) name() {
	start := p.at
	for p.at < len(p.text) && nameByte(p.text[p.at]) {
		p.at++
	}
	name := p.text[start:p.at]
	called := p.at < len(p.text) && p.text[p.at] == '('
	switch {
	case awkForeign[name]:
		p.refuse("has awk's " + name)
	case name == "print" || name == "printf":
		p.printing, p.depth = true, 0
	case p.previous == "function" || p.previous == "func":
		p.defined[name] = true
	case called && !awkFunctions[name] && !awkKeywords[name]:
		p.called = append(p.called, name)
	}
	p.previous = name
}

// slash is a division behind an operand, and begins an expression elsewhere. Behind a bracket it
// may be either.
func (p *awkParser) slash() {
	prev := p.previous
	switch {
	case prev == ")" || prev == "++" || prev == "--" || prev == "length" || prev == "}":
		if prev == "}" {
			break
		}
		p.refuse("has a / that may be two things")
		return
	case prev == "]" || prev == "0" || prev == "\"" || prev == "/" || prev == "$" || prev != "" && nameByte(prev[0]) && !awkKeywords[prev]:
		p.at++
		p.previous = "÷"
		return
	}
	for p.at++; p.at < len(p.text); p.at++ {
		switch p.text[p.at] {
		case '\\':
			p.at++
			if p.at < len(p.text) && p.text[p.at] == '\n' {
				p.refuse("has an expression over several lines")
				return
			}
		case '[':
			// A / in [ ] ends the expression for some awks.
			if i := strings.IndexAny(p.text[p.at+1:], "/\n]"); i < 0 || p.text[p.at+1+i] != ']' {
				p.refuse("has a / within [ ]")
				return
			} else if i <= 1 && (i == 0 || p.text[p.at+1] == '^') {
				p.refuse("has a ] within [ ]")
				return
			}
		case '\n':
			p.refuse("has an expression over several lines")
			return
		case '/':
			p.at++
			p.previous = "/"
			return
		}
	}
	p.refuse("has an expression without an end")
}

func (p *awkParser) sign(c byte) {
	two := ""
	if p.at+1 < len(p.text) {
		two = p.text[p.at : p.at+2]
	}
	switch two {
	case ">>":
		p.refuse("writes a file")
		return
	case "|&", "::":
		p.refuse("has a sign of awk's that is not known here")
		return
	case "||", "&&", "==", "!=", "<=", ">=", "++", "--", "+=", "-=", "*=", "%=", "^=", "**":
		p.at += 2
		p.previous = two
		return
	}
	switch c {
	case '(', '[':
		p.depth++
	case ')', ']':
		p.depth--
	case ';', '{', '}':
		p.printing = false
	case '|':
		p.refuse("has a pipe")
	case '>':
		if p.printing && p.depth <= 0 {
			p.refuse("writes a file")
		}
	case '<', '+', '-', '*', '%', '^', '!', '=', '~', '?', ':', ',', '$':
	default:
		p.refuse("has a sign that is not awk's")
	}
	p.at++
	p.previous = string(c)
}

// behindNumber is where a decimal number ends.
func behindNumber(text string, at int) int {
	digits := func() {
		for at < len(text) && text[at] >= '0' && text[at] <= '9' {
			at++
		}
	}
	digits()
	if at < len(text) && text[at] == '.' {
		at++
		digits()
	}
	if at+1 < len(text) && text[at]|0x20 == 'e' && (text[at+1] >= '0' && text[at+1] <= '9' || at+2 < len(text) && (text[at+1] == '+' || text[at+1] == '-') && text[at+2] >= '0' && text[at+2] <= '9') {
		at += 2
		digits()
	}
	return at
}

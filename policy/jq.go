package policy

import (
	"strings"
)

// jqBuiltins are those of jq's functions that compute. They read neither the environment nor other
// files.
var jqBuiltins = wordSet(`not empty null true false and or if then elif else end as def reduce foreach try catch label break limit first last nth until while repeat
	range floor ceil round sqrt pow log log2 log10 exp exp2 exp10 fabs abs infinite nan isinfinite isnan isnormal isvalid sort sort_by group_by unique unique_by
	min max min_by max_by add any all flatten map map_values path paths leaf_paths del delpaths to_entries from_entries with_entries keys keys_unsorted values
	has in inside contains length utf8bytelength reverse index rindex indices startswith endswith ltrimstr rtrimstr trimstr trim ltrim rtrim explode implode
	split splits join ascii ascii_downcase ascii_upcase test match capture scan sub gsub recurse recurse_down tostring tonumber toboolean type arrays objects
	iterables booleans numbers normals finites strings nulls scalars select error tojson fromjson todate fromdate now localtime mktime gmtime strftime
	strptime strflocaltime dateadd datesub date dateadd fromdateiso8601 todateiso8601 getpath setpath pick to_number tojson transpose combinations walk splits
	isempty input inputs debug stderr halt halt_error input_line_number getpath limit skip group_by bsearch ascii significand gamma lgamma tgamma trunc
	logb scalb nearbyint cbrt sin cos tan asin acos atan atan2 sinh cosh tanh fmin fmax fma have_literal_numbers have_decnum tostream fromstream
	truncate_stream limit getpath splits ltrimstr min_by have_literal_numbers abs toarray error add pick debug scan INDEX GROUP_BY IN ascii builtins
	getpath inputs tojson ldexp frexp modf drem significand`)

// jqRefusal reads a program of jq's: its tokens, in strings with \( ) too. What computes is
// harmless; the environment, modules and functions that are not known are refused.
func jqRefusal(program string) string {
	if len(program) > MaxLine {
		return "is a program that is too long"
	}
	p := jqParser{text: program, defined: map[string]bool{}}
	p.tokens(0)
	for _, name := range p.called {
		if p.refusal == "" && !p.defined[name] {
			p.refusal = "calls what is not known here: " + DisplayText(name)
		}
	}
	return p.refusal
}

type jqParser struct {
	text     string
	at       int
	previous byte // the sign right before, or a letter for a name; 0 at the start
	defining bool
	called   []string
	defined  map[string]bool
	refusal  string
}

func (p *jqParser) refuse(what string) {
	if p.refusal == "" {
		p.refusal = what
	}
}

// tokens reads to the end, or, within a string's \( ), to the bracket that closes it.
func (p *jqParser) tokens(depth int) {
	if depth > 32 {
		p.refuse("is nested too deep")
	}
	brackets := 0
	for p.at < len(p.text) && p.refusal == "" {
		c := p.text[p.at]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			p.at++
			if p.previous == '.' {
				p.previous = ' '
			}
		case c == '#':
			// Versions differ in whether a backslash continues a comment.
			end := strings.IndexByte(p.text[p.at:], '\n')
			if end < 0 {
				end = len(p.text) - p.at
			}
			if strings.ContainsAny(p.text[p.at:p.at+end], "\\\r") {
				p.refuse("has a comment that versions read otherwise")
			}
			p.at += end
			if p.previous == '.' {
				p.previous = ' '
			}
		case c == '"':
			p.at++
			p.string(depth)
			p.previous = '"'
		case nameByte(c) && (c < '0' || c > '9'):
			p.name()
		case c >= '0' && c <= '9':
			p.at = max(behindNumber(p.text, p.at), p.at+1)
			p.previous = '0'
		case c == '(':
			brackets++
			p.at++
			p.previous = c
		case c == ')':
			if brackets--; brackets < 0 && depth > 0 {
				p.at++
				return
			}
			p.at++
			p.previous = c
		case strings.IndexByte(".|,:;=!<>+-*/%?[]{}$@", c) >= 0:
			if c == '.' && p.previous == '.' {
				c = ' ' // .. is the recursive descent, and no field follows it
			}
			p.at++
			p.previous = c
		default:
			p.refuse("has a sign that is not jq's")
		}
	}
	if depth > 0 {
		p.refuse("has a string without an end")
	}
}

func (p *jqParser) string(depth int) {
	for p.at < len(p.text) && p.refusal == "" {
		c := p.text[p.at]
		p.at++
		switch c {
		case '"':
			return
		case '\\':
			if p.at < len(p.text) && p.text[p.at] == '(' {
				p.at++
				p.previous = 0
				p.tokens(depth + 1)
				continue
			}
			p.at++
		}
	}
	p.refuse("has a string without an end")
}

func (p *jqParser) name() {
	start := p.at
	for p.at < len(p.text) && nameByte(p.text[p.at]) {
		p.at++
	}
	name, before := p.text[start:p.at], p.previous
	p.previous = 'a'
	rest := strings.TrimLeft(p.text[p.at:], " \t\n")
	switch {
	case strings.HasPrefix(rest, "::"):
		p.refuse("has a module")
	case before == '$' || p.dollarBefore(start):
		if strings.HasPrefix(name, "ENV") || strings.HasPrefix(name, "__") && name != "__loc__" {
			p.refuse("reads the environment")
		}
	case before == '.' || before == '@':
	case p.defining:
		p.defining = false
		p.defined[name] = true
		// What a definition is given is a name, too.
		if strings.HasPrefix(rest, "(") {
			if end := strings.IndexByte(rest, ')'); end > 0 {
				for _, parameter := range strings.FieldsFunc(rest[1:end], func(r rune) bool { return r == ';' || r == ' ' || r == '$' }) {
					p.defined[parameter] = true
				}
			}
		}
	case name == "def":
		p.defining = true
	case jqBuiltins[name]:
	case (before == '{' || before == ',') && strings.HasPrefix(rest, ":") && name != "import" && name != "include":
		// a key of an object
	case before == '{' && (strings.HasPrefix(rest, "}") || strings.HasPrefix(rest, ",")), before == ',' && strings.HasPrefix(rest, "}"):
		if name == "env" || name == "input_filename" {
			p.refuse("reads the environment")
		}
	case name == "env" || name == "import" || name == "include":
		p.refuse("has jq's " + name)
	default:
		p.called = append(p.called, name)
	}
}

// dollarBefore says whether a $ stands before a name, with space or a comment between them.
func (p *jqParser) dollarBefore(start int) bool {
	before := strings.TrimRight(p.text[:start], " \t\n\r")
	return strings.HasSuffix(before, "$")
}

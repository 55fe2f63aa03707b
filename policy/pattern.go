package policy

import "strings"

// A Pattern is a glob over absolute paths: ** is any text, * and ? stay within one component,
// everything else is literal.
type Pattern struct {
	text    string
	literal int // bytes before the first * or ?
	ending  int // bytes behind the last
	fold    bool
}

const maxPattern = 4096

// newPattern reads a pattern as people write it: space around it does not count, ~ at its start is
// the home directory.
func newPattern(text, home string) Pattern {
	text = strings.TrimSpace(text)
	if home != "" && (text == "~" || strings.HasPrefix(text, "~/")) {
		text = strings.TrimSuffix(home, "/") + text[1:]
	}
	p := Pattern{text: text, literal: strings.IndexAny(text, "*?")}
	if p.literal < 0 {
		p.literal = len(text)
	}
	p.ending = len(text) - 1 - strings.LastIndexAny(text, "*?")
	return p
}

// insensitive is the older behaviour: on a case-sensitive file system it lets another program pass.
func (p Pattern) insensitive() Pattern {
	p = newPattern(strings.ToLower(p.text), "") // a small letter may be longer or shorter than its capital
	p.fold = true
	return p
}

// Match takes time linear in the path for each star: no pattern makes it slow.
func (p Pattern) Match(path string) bool {
	if p.text == "" || len(p.text) > maxPattern || len(path) > maxPattern {
		return false
	}
	if p.fold {
		path = strings.ToLower(path)
	}
	if len(path) < p.literal || path[:p.literal] != p.text[:p.literal] {
		return false
	}
	if p.literal == len(p.text) {
		return len(path) == p.literal
	}
	// Most patterns of a long list end here.
	if len(path) < p.literal+p.ending || path[len(path)-p.ending:] != p.text[len(p.text)-p.ending:] {
		return false
	}
	return glob(p.text[p.literal:], path[p.literal:])
}

// glob walks all states of the pattern at once. State i is: everything before p[i] has matched.
func glob(p, s string) bool {
	var small [2][128]bool
	now, next := small[0][:], small[1][:]
	if len(p) >= len(now) {
		now, next = make([]bool, len(p)+1), make([]bool, len(p)+1)
	}
	now[0] = true
	skipStars(p, now)
	for j := 0; j < len(s); j++ {
		clear(next)
		c := s[j]
		alive := false
		for i := range p {
			if !now[i] {
				continue
			}
			switch {
			case p[i] == '*' && (deep(p, i) || c != '/'):
				next[i] = true // the star takes one more
			case p[i] == '*':
				continue
			case p[i] == c || p[i] == '?' && c != '/':
				next[i+1] = true
			default:
				continue
			}
			alive = true
		}
		if !alive {
			return false
		}
		skipStars(p, next)
		now, next = next, now
	}
	return now[len(p)]
}

// skipStars lets every star match nothing.
func skipStars(p string, states []bool) {
	for i := range p {
		if states[i] && p[i] == '*' {
			states[i+1] = true
		}
	}
}

// deep says whether the star at i is one of several in a row.
func deep(p string, i int) bool {
	return i > 0 && p[i-1] == '*' || i+1 < len(p) && p[i+1] == '*'
}

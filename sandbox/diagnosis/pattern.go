package diagnosis

import (
	"regexp"
	"sync"
)

// A pattern is a regular expression that is compiled when it is first needed: all of them together
// take 2 ms, and most commands do not fail.
type pattern struct {
	once       sync.Once
	text       string
	expression *regexp.Regexp
}

func lazily(text string) *pattern { return &pattern{text: text} }

func (p *pattern) compiled() *regexp.Regexp {
	p.once.Do(func() { p.expression = regexp.MustCompile(p.text) })
	return p.expression
}

func (p *pattern) MatchString(s string) bool { return p.compiled().MatchString(s) }

func (p *pattern) FindString(s string) string { return p.compiled().FindString(s) }

func (p *pattern) FindStringSubmatch(s string) []string { return p.compiled().FindStringSubmatch(s) }

package profile

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// changesConfig says which of the changes that were made copy on write need a person.
type changesConfig struct {
	Apply     *[]changePattern `json:"apply,omitempty" jsonschema:"changes that need nobody, by patterns of paths as in the directory: * and ? within a name, ** for any number of directories; what is executed outside of a sandbox only by its name"`
	Ask       *[]changePattern `json:"ask,omitempty" jsonschema:"changes that need a person all the same, with all that is below; what no list has needs one, too"`
	Never     *[]changePattern `json:"never,omitempty" jsonschema:"changes that are never brought to the host, with all that is below"`
	Deletions *Deletions       `json:"deletions,omitempty" jsonschema:"what becomes of a deletion whose path apply has: ask, apply or never; if nobody says, ask"`
}

func (c *changesConfig) overlay(over changesConfig) {
	overlay(&c.Apply, over.Apply)
	overlay(&c.Ask, over.Ask)
	overlay(&c.Never, over.Never)
	overlay(&c.Deletions, over.Deletions)
}

// Deletions says what becomes of deletions. The zero value asks.
type Deletions uint8

const (
	DeletionsAsk Deletions = iota
	DeletionsApply
	DeletionsNever
)

var deletionNames = []string{"ask", "apply", "never"}

func (d *Deletions) UnmarshalText(text []byte) error {
	i, err := valueOf(deletionNames, text)
	if err == nil {
		*d = Deletions(i)
	}
	return err
}

// A ChangePattern is a pattern for paths below a directory.
type ChangePattern struct {
	Text   string
	Origin Origin
	parts  []string
}

// changePattern is one as it stands in a file.
type changePattern ChangePattern

func (p *changePattern) setPlace(o Origin) { p.Origin = o }

func (p *changePattern) UnmarshalText(text []byte) error {
	parsed, err := ParseChangePattern(string(text))
	p.Text, p.parts = parsed.Text, parsed.parts
	return err
}

const (
	maxChangePattern  = 1024 // bytes
	maxChangePatterns = 1000 // in one list
)

// ParseChangePattern reads a pattern: names with slashes between them, each as path.Match takes it,
// or ** for any number of directories.
func ParseChangePattern(text string) (ChangePattern, error) {
	p := ChangePattern{Text: text, parts: strings.Split(text, "/")}
	switch {
	case text == "" || len(text) > maxChangePattern || strings.IndexByte(text, 0) >= 0:
		return p, fmt.Errorf("a pattern has 1 to %d bytes", maxChangePattern)
	case text[0] == '/' || text[0] == '~':
		return p, errors.New("write it as from the directory that was changed, for example src/**")
	}
	for _, part := range p.parts {
		_, err := path.Match(part, "")
		switch {
		case part == "" || part == "." || part == "..":
			return p, errors.New("an empty name, . or .. is in no path of a change; dir/** is all that is in dir")
		case err != nil:
			return p, fmt.Errorf("%s is no pattern of a name: * and ? and [a-z] stand for others, \\ before one of them for itself", shorten(part))
		case part != "**" && strings.Contains(part, "**"):
			return p, errors.New("** stands between slashes: src/**/*.go")
		}
	}
	return p, nil
}

// Matches reports whether a path is one of the pattern's. Names are bytes; ** is any number of
// them, none among these. Those in fixed, by their places in the path, must be written out in the
// pattern.
func (p ChangePattern) Matches(parts []string, fixed []int) bool {
	must := make([]bool, len(parts))
	for _, i := range fixed {
		must[i] = true
	}
	// reached[i] says that the pattern so far matches the first i names.
	reached := make([]bool, len(parts)+1)
	reached[0] = true
	for _, part := range p.parts {
		if part == "**" {
			for i := range parts {
				reached[i+1] = reached[i+1] || reached[i] && !must[i]
			}
			continue
		}
		for i := len(parts) - 1; i >= 0; i-- {
			ok, err := path.Match(part, parts[i])
			reached[i+1] = reached[i] && ok && err == nil && (!must[i] || part == parts[i])
		}
		reached[0] = false
	}
	return reached[len(parts)]
}

// covers reports whether a path, or one above it, is one of the pattern's.
func (p ChangePattern) covers(parts []string) bool {
	for n := 1; n <= len(parts); n++ {
		if p.Matches(parts[:n], nil) {
			return true
		}
	}
	return false
}

// yields reports whether a pattern is all of a directory, and another one names something in it.
func (p ChangePattern) yields(other ChangePattern) bool {
	dir, all := strings.CutSuffix(p.Text, "**")
	return all && other.Text != p.Text && strings.HasPrefix(other.Text, dir)
}

// ChangeRules say which changes need a person. The zero value has all need one.
type ChangeRules struct {
	Apply, Ask, Never []ChangePattern
	Deletions         Deletions
	// Protected are names that the configuration adds to those which are executed outside.
	Protected []ProtectedPath
}

// A Verdict is what rules say of a path. The zero value asks.
type Verdict uint8

const (
	VerdictAsk Verdict = iota
	VerdictApply
	VerdictNever
)

// Judge says what the rules have to say of a path, and which one it is; none is the zero pattern. A
// name whose place is in fixed is applied only where the pattern has it written out.
func (r ChangeRules) Judge(name string, fixed []int) (Verdict, ChangePattern) {
	parts := strings.Split(name, "/")
	for _, p := range r.Never {
		if p.covers(parts) {
			return VerdictNever, p
		}
	}
	for _, apply := range r.Apply {
		if !apply.Matches(parts, fixed) {
			continue
		}
		for _, ask := range r.Ask {
			if ask.covers(parts) && !ask.yields(apply) {
				return VerdictAsk, ask
			}
		}
		return VerdictApply, apply
	}
	return VerdictAsk, ChangePattern{}
}

// ChangeRules are those of an agent, or nil if nobody wrote any.
func (c *Config) ChangeRules(agent string) (*ChangeRules, error) {
	execution := c.settings(agent)
	settings := execution.Changes
	if settings == (changesConfig{}) {
		return nil, nil
	}
	rules := &ChangeRules{}
	for _, list := range []struct {
		name string
		from *[]changePattern
		to   *[]ChangePattern
	}{{"apply", settings.Apply, &rules.Apply}, {"ask", settings.Ask, &rules.Ask}, {"never", settings.Never, &rules.Never}} {
		if list.from == nil {
			continue
		}
		if len(*list.from) > maxChangePatterns {
			return rules, fmt.Errorf("changes.%s has more than %d patterns", list.name, maxChangePatterns)
		}
		for _, p := range *list.from {
			*list.to = append(*list.to, ChangePattern(p))
		}
	}
	if settings.Deletions != nil {
		rules.Deletions = *settings.Deletions
	}
	if names := execution.Filesystem.ProtectedPaths; names != nil {
		for _, n := range *names {
			rules.Protected = append(rules.Protected, ProtectedPath{path.Clean(n.name), false, n.origin})
		}
	}
	return rules, nil
}

package policy

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A Lister is a file system whose directories can be listed. Without, no glob is expanded.
type Lister interface {
	// List is the names in a directory, sorted, at most limit.
	List(dir string, limit int) ([]string, error)
}

// Bounds of what a glob may look at.
const (
	maxListed  = 10000 // names in a directory
	maxListing = 200   // directories
)

// expand is a word with its globs, if there are any that match: the names, sorted by their bytes.
// What matches nothing stays as it is.
func (r *lineResolver) expand(pieces []piece, w *syntax.Word) ([]string, *Refusal) {
	var literal, pattern strings.Builder
	glob, sets := false, hasSet(pieces)
	for _, p := range pieces {
		literal.WriteString(p.text)
		for i := 0; i < len(p.text); i++ {
			c := p.text[i]
			special := strings.IndexByte(`*?[]\!^-`, c) >= 0
			quoted := p.quoted || c == '[' && !sets
			if special && (quoted || c == '!' || c == '^' || c == '-') {
				pattern.WriteByte('\\')
			}
			pattern.WriteByte(c)
			glob = glob || special && !quoted && (c == '*' || c == '?' || c == '[')
		}
	}
	if !glob {
		return []string{literal.String()}, nil
	}
	if sets && !simpleSets(pieces) {
		return nil, at("a glob with a range", w.Pos())
	}
	lister, ok := r.machine.Files.(Lister)
	if !ok || !filepath.IsAbs(r.dir) {
		return nil, at("a glob", w.Pos())
	}
	g := globber{lister: lister, files: r.machine.Files, dir: r.dir}
	names := g.walk("", strings.Split(pattern.String(), "/"))
	if g.dots {
		return nil, at("a glob for . and ..", w.Pos())
	}
	if g.bounded {
		return nil, at("a glob over so many files", w.Pos())
	}
	if len(names) == 0 {
		return []string{literal.String()}, nil
	}
	slices.Sort(names)
	return names, nil
}

// hasSet says whether a [ outside of quotes has a ] behind it. Without, it is a bracket.
func hasSet(pieces []piece) bool {
	open := false
	for _, p := range pieces {
		for i := 0; i < len(p.text); i++ {
			open = open || p.text[i] == '[' && !p.quoted
			if open && p.text[i] == ']' {
				return true
			}
		}
	}
	return false
}

// simpleSets says whether all [ ] are lists of letters, digits and signs: shells and languages
// differ about ranges, classes and what ^ is.
func simpleSets(pieces []piece) bool {
	for _, p := range pieces {
		if p.quoted {
			continue
		}
		for i := 0; i < len(p.text); i++ {
			if strings.IndexByte("!^-]", p.text[i]) >= 0 && p.text[i] != ']' {
				return false
			}
		}
	}
	// Quoted parts within a set are rare, and are refused with it.
	text := ""
	for _, p := range pieces {
		if !p.quoted {
			text += p.text
		} else {
			text += strings.Map(func(r rune) rune {
				if plain(string(r), "._") {
					return 'a'
				}
				return '/'
			}, p.text)
		}
	}
	for rest := text; ; {
		open := strings.IndexByte(rest, '[')
		if open < 0 {
			return true
		}
		end := strings.IndexByte(rest[open:], ']')
		if end < 2 || !plain(rest[open+1:open+end], "") {
			return false
		}
		rest = rest[open+end+1:]
	}
}

type globber struct {
	lister   Lister
	files    Files
	dir      string
	listings int
	dots     bool // it would match . or ..
	bounded  bool // there is more than may be looked at
	found    int
}

// walk is what the components match below a prefix, which is "" or ends in a slash.
func (g *globber) walk(prefix string, components []string) (names []string) {
	component, rest := components[0], components[1:]
	if !strings.ContainsAny(strings.NewReplacer(`\*`, "", `\?`, "", `\[`, "").Replace(component), "*?[") {
		name := prefix + unescaped(component)
		if len(rest) > 0 {
			return g.walk(name+"/", rest)
		}
		if component != "" {
			if _, err := g.files.Stat(g.absolute(name)); err != nil {
				return nil
			}
		} else if kind, err := g.files.Stat(g.absolute(prefix)); err != nil || kind != fileDirectory {
			return nil
		}
		return []string{name}
	}
	for _, dots := range [...]string{".", ".."} {
		if ok, _ := path.Match(component, dots); ok && strings.HasPrefix(component, ".") {
			g.dots = true // shells differ
			return nil
		}
	}
	if g.listings++; g.listings > maxListing {
		g.bounded = true
	}
	if g.bounded {
		return nil
	}
	list, err := g.lister.List(g.absolute(prefix), maxListed+1)
	if err != nil {
		return nil
	}
	if len(list) > maxListed {
		g.bounded = true
		return nil
	}
	for _, name := range list {
		if strings.HasPrefix(name, ".") && !strings.HasPrefix(component, ".") {
			continue
		}
		if ok, err := path.Match(component, name); err != nil || !ok {
			continue
		}
		if len(rest) > 0 {
			if kind, err := g.files.Stat(g.absolute(prefix + name)); err != nil || kind != fileDirectory {
				continue
			}
			names = append(names, g.walk(prefix+name+"/", rest)...)
			continue
		}
		names = append(names, prefix+name)
		if g.found++; g.found > maxWords {
			g.bounded = true
			return nil
		}
	}
	return names
}

func (g *globber) absolute(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return g.dir + "/" + name
}

func unescaped(component string) string {
	var b strings.Builder
	for i := 0; i < len(component); i++ {
		if component[i] == '\\' && i+1 < len(component) {
			i++
		}
		b.WriteByte(component[i])
	}
	return b.String()
}

package protect

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Name is one that something outside executes, or whose words it does.
type Name struct {
	Path string `json:"path"`           // the last components of a path, one or more
	In   string `json:"in,omitempty"`   // the one directory that it counts in, absolute; empty: any
	Rule string `json:"rule,omitempty"` // what allows it: --unprotect RULE. Empty: its Path
	Link bool   `json:"link,omitempty"` // only a symbolic link counts
	Leaf bool   `json:"leaf,omitempty"` // a directory does not count; in a git directory, nothing does but by In
	Made bool   `json:"made,omitempty"` // only what a program takes in its place counts: the file itself is there, and read-only
	// Anywhere says that it counts in what package managers fill, too. A name with In does.
	Anywhere bool `json:"anywhere,omitempty"`
}

// Names are what is protected, ready to be looked for. Letter case does not matter, as some file
// systems do not mind it either.
type Names struct {
	last     map[string][]suffix // by the last component
	in       map[string][]string // last components, by the one before
	packages map[string]bool
	room     []suffix // for lists of one, as most are
	longest  int      // how many components the longest has, with those of the directory that it counts in
	List     []Name   // all of them
	// Unprotected are those of git's own names that the person leaves writable.
	Unprotected map[string]bool
	// Inward reports of a symbolic link whether it leads where none may. A scan asks it; nil: it
	// does not.
	Inward func(path string) bool
}

type suffix struct {
	dir  string // the components before the last, with a slash at either end; empty: none
	in   string // the whole path of the directory
	rule string
	is   only
	// anywhere counts in what package managers fill, too.
	anywhere bool
}

// only says what counts.
type only uint8

const (
	anything only = iota
	links
	leaves // all but directories
	made   // what is taken in its place
)

// NewNames compiles names. Below a directory that is called like one of packages, only what git
// executes counts.
func NewNames(list []Name, packages []string) *Names {
	n := &Names{List: make([]Name, 0, len(list)), last: make(map[string][]suffix, len(list)), in: make(map[string][]string, len(list)/2), packages: make(map[string]bool, len(packages)),
		Unprotected: map[string]bool{}}
	for _, name := range packages {
		n.packages[name] = true
	}
	for _, name := range list {
		n.Add(name)
	}
	return n
}

// Add protects one more name.
func (n *Names) Add(name Name) {
	n.List = append(n.List, name)
	rule := name.Rule
	if rule == "" {
		rule = name.Path
	}
	path := fold(strings.Trim(name.Path, "/"))
	dir, last := "", path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		dir, last = "/"+path[:i]+"/", path[i+1:]
	}
	s := suffix{dir: dir, rule: rule, anywhere: name.Anywhere || name.In != ""}
	switch {
	case name.Link:
		s.is = links
	case name.Made:
		s.is = made
	case name.Leaf:
		s.is = leaves
	}
	if name.In != "" {
		s.in = strings.TrimSuffix(fold(name.In), "/") + "/" + strings.TrimPrefix(dir, "/")
	}
	if others := n.last[last]; others != nil {
		n.last[last] = append(others, s)
	} else {
		if len(n.room) == 0 {
			n.room = make([]suffix, 64)
		}
		n.room[0], n.last[last] = s, n.room[:1:1]
		n.room = n.room[1:]
	}
	n.longest = max(n.longest, strings.Count(s.in+dir, "/")+1)
	if above := strings.TrimSuffix(s.in+dir, "/"); above != "" {
		n.in[base(above)] = append(n.in[base(above)], last)
	}
}

// AddNew adds those that are not there.
func (n *Names) AddNew(list ...Name) {
	for _, name := range list {
		if !slices.Contains(n.List, name) {
			n.Add(name)
		}
	}
}

// without are those that others do not have.
func (n *Names) without(others *Names) []Name {
	have := make(map[Name]bool, len(others.List))
	for _, name := range others.List {
		have[name] = true
	}
	return slices.DeleteFunc(slices.Clone(n.List), func(name Name) bool { return have[name] })
}

// Match says which rule protects a name in a directory, if one does. Directories are absolute
// paths. inPackages says that the directory is one that package managers fill.
func (n *Names) Match(dir, name string, inPackages bool) (rule string, protected bool) {
	return n.match(dir, name, anything, inPackages)
}

// MatchLeaf is Match for names that count only where no directory has them. In a git directory, a
// branch may be called so.
func (n *Names) MatchLeaf(dir, name string, inGit bool) (rule string, protected bool) {
	return n.match(dir, name, leaves, inGit)
}

// MatchLink is Match for names that count only as symbolic links.
func (n *Names) MatchLink(dir, name string) (rule string, protected bool) {
	if isNamed(name, ".git") && !n.Unprotected[".git"] { // "git init" completes what it leads to, whatever that is called
		return ".git", true
	}
	return n.match(dir, name, links, false)
}

// match leaves out what counts not everywhere, but for some directories.
func (n *Names) match(dir, name string, is only, but bool) (rule string, protected bool) {
	if rule, protected = n.matchOf(dir, name, but, is); protected || is != anything {
		return rule, protected
	}
	if of, source := madeFrom(name); source != "" {
		if of != "" {
			if !isNamed(base(dir), of) {
				return "", false
			}
			dir = parent(dir)
		}
		return n.matchOf(dir, source, but, anything, leaves, made)
	}
	return "", false
}

func (n *Names) matchOf(dir, name string, but bool, is ...only) (rule string, protected bool) {
	for _, s := range n.last[fold(name)] {
		switch {
		case !slices.Contains(is, s.is), but && !s.anywhere:
		case s.in != "":
			if fold(dir)+"/" == s.in {
				return s.rule, true
			}
		case s.dir == "" || strings.HasSuffix(fold(dir)+"/", s.dir):
			return s.rule, true
		}
	}
	return "", false
}

// ends reports whether some protected path ends in a name, or in what that is made from.
func (n *Names) ends(name []byte) bool {
	if isFolded(name) && len(n.last[string(name)]) > 0 || !isFolded(name) && len(n.last[fold(string(name))]) > 0 {
		return true
	}
	if !isMade(name) {
		return false
	}
	_, source := madeFrom(string(name))
	return len(n.last[fold(source)]) > 0
}

// compiled is the directory in which Python keeps what it has compiled.
const compiled = "__pycache__"

// isMade reports whether some file may be taken in the place of another one because it is called
// so. It is for speed: most are not.
func isMade(name []byte) bool {
	for _, end := range []string{".pyc", ".so", ".zwc", ".elc", ".pmc"} {
		if n := len(name) - len(end); n > 0 && strings.EqualFold(string(name[n:]), end) {
			return true
		}
	}
	return len(name) > len(completions) && strings.EqualFold(string(name[:len(completions)]), completions)
}

// completions is what zsh's compinit writes, and executes; with the machine's name behind it in
// some set-ups.
const completions = ".zcompdump"

// madeFrom is the file in whose place a program takes one that is called name, without a look at
// what is in that: Python a module that is compiled, or an extension, of the same name; zsh, Emacs
// and Perl what was compiled. in is the directory that this counts in, beside the file; empty: that
// of the file.
func madeFrom(name string) (in, source string) {
	if name = fold(name); !isMade([]byte(name)) {
		return "", ""
	}
	stem, ending := cutEnding(name)
	module, tag, _ := strings.Cut(stem, ".")
	switch {
	case strings.HasPrefix(name, completions):
		return "", completions
	case ending == "zwc":
		return "", stem
	case ending == "elc":
		return "", stem + ".el"
	case ending == "pmc":
		return "", stem + ".pm"
	case ending == "pyc" && tag != "":
		return compiled, module + ".py"
	}
	return "", module + ".py"
}

// InPackages reports whether a path lies in what package managers fill.
func (n *Names) InPackages(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		if n.packages[part] {
			return true
		}
	}
	return false
}

func isFolded[T string | []byte](name T) bool {
	for i := range len(name) {
		if c := name[i]; c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return true
}

// foldBytes is fold, and costs nothing for a name that is folded already.
func foldBytes(name []byte) []byte {
	if isFolded(name) {
		return name
	}
	return []byte(fold(string(name)))
}

// fold makes letters that differ by case alone the same, the Kelvin sign and a k among them.
func fold(name string) string {
	if isFolded(name) {
		return name
	}
	return strings.Map(func(r rune) rune {
		least := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return unicode.ToLower(least)
	}, name)
}

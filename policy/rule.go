package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// An Entry is one line of an allowlist or of a deny list, as the approvals file holds it.
type Entry struct {
	ID               string `json:"id,omitempty"`
	Pattern          string `json:"pattern"`
	ArgPattern       string `json:"argPattern,omitempty"`
	Source           string `json:"source,omitempty"`  // "allow-always": made by an answer to a prompt
	Content          string `json:"content,omitempty"` // of an allow-always: the hash of what the files of code held
	Env              string `json:"env,omitempty"`     // of an allow-always: the hash of the variables that were set
	LastUsedAt       int64  `json:"lastUsedAt,omitempty"`
	LastUsedCommand  string `json:"lastUsedCommand,omitempty"`
	LastResolvedPath string `json:"lastResolvedPath,omitempty"`
	rest             string // what others keep in the entry: a JSON object, or empty
}

// knownEntry is an entry as this program knows it.
type knownEntry Entry

var entryNames = []string{"id", "pattern", "argPattern", "source", "content", "env", "lastUsedAt", "lastUsedCommand", "lastResolvedPath"}

// UnmarshalJSON keeps the fields that are not known, for whoever wrote them. They mean nothing
// here.
func (e *Entry) UnmarshalJSON(text []byte) error {
	var known knownEntry
	if err := json.Unmarshal(text, &known); err != nil {
		return err
	}
	var all fields
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	for name := range all {
		if slices.ContainsFunc(entryNames, func(n string) bool { return strings.EqualFold(n, name) }) {
			delete(all, name)
		}
	}
	// A command's text was kept here once: nothing reads it, and it may hold secrets.
	if text := all["commandText"]; len(text) > 0 && text[0] == '"' {
		delete(all, "commandText")
	}
	*e = Entry(known)
	if len(all) > 0 {
		rest, err := json.Marshal(all)
		e.rest = string(rest)
		return err
	}
	return nil
}

// MarshalJSON writes the fields that are not known behind the known ones.
func (e Entry) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(knownEntry(e)); err != nil {
		return nil, err
	}
	text := bytes.TrimSpace(b.Bytes())
	if e.rest != "" {
		text = append(append(text[:len(text)-1], ','), e.rest[1:]...)
	}
	return text, nil
}

// commandPrefix begins a pattern that is the hash of a whole line.
const commandPrefix = "=command:"

const sourceAllowAlways = "allow-always"

// A rule is an entry made ready for matching.
type rule struct {
	Entry
	pattern Pattern
	any     bool // "*": every program that was found
	name    bool // a deny entry by bare name
	command bool // the hash of a whole line
	args    ArgPattern
	hasArgs bool
	leads   string // of a deny entry: the real path of what it names
}

// leadTo notes what deny entries name by way of links, so that it is denied by its other names,
// too.
func leadTo(rules []rule, m *Machine) {
	for i := range rules {
		r := &rules[i]
		if r.any || r.command || r.pattern.literal != len(r.pattern.text) || r.pattern.fold {
			continue
		}
		if r.name {
			if exec, err := m.Find(r.pattern.text, ""); err == nil {
				r.leads = exec.Real
			}
		} else if real, err := m.Files.Real(r.pattern.text); err == nil {
			r.leads = real
		}
	}
}

// compile makes entries ready. One that cannot be is left out of an allowlist, and said; a deny
// list must not lose one.
func compile(entries []Entry, home string, fold bool) (rules []rule, problems []string) {
	for _, e := range entries {
		text := strings.TrimSpace(e.Pattern)
		if text == "" {
			continue
		}
		r := rule{Entry: e, pattern: newPattern(text, home), any: text == "*", command: strings.HasPrefix(text, commandPrefix)}
		if fold {
			r.pattern = r.pattern.insensitive()
		}
		r.name = !r.any && !r.command && !strings.Contains(text, "/") && !strings.HasPrefix(text, "~")
		if e.ArgPattern != "" {
			var err error
			r.hasArgs = true
			if r.args, err = NewArgPattern(e.ArgPattern); err != nil {
				problems = append(problems, fmt.Sprintf("the argument pattern of %q allows nothing: %v", text, err))
			}
		}
		rules = append(rules, r)
	}
	return rules, problems
}

func (r *rule) durable() bool { return r.Source == sourceAllowAlways }

// allowsPath says whether an allow entry is for a path. A bare name is for none: who can write to a
// directory on the PATH would be allowed.
func (r *rule) allowsPath(path string) bool {
	return r.any || !r.name && !r.command && r.pattern.Match(path)
}

func (r *rule) allowsArgs(u *use) bool {
	return (!r.hasArgs || !u.grows && r.args.match(u.args, u.hashed)) && (!r.durable() || r.Env == u.env && r.Content == u.contained())
}

// A ruleSet is a list with an index: most entries of a long one name a single path.
type ruleSet struct {
	rules []rule
	exact map[string][]int32 // by the path, in the list's order
	base  map[string][]int32 // by the last component, where it has no * or ?
	begin map[string][]int32 // by what stands before the first * or ?
	sizes []int              // of those
	rest  []int32
}

func newRuleSet(rules []rule) ruleSet {
	s := ruleSet{rules: rules, exact: map[string][]int32{}, base: map[string][]int32{}, begin: map[string][]int32{}}
	for i := range rules {
		r := &rules[i]
		switch text, n := r.pattern.text, r.pattern.literal; {
		case r.any || r.pattern.fold:
			s.rest = append(s.rest, int32(i))
		case n == len(text):
			s.exact[text] = append(s.exact[text], int32(i))
		case strings.LastIndexByte(text, '/') >= len(text)-r.pattern.ending:
			s.base[baseOf(text)] = append(s.base[baseOf(text)], int32(i))
		default:
			s.begin[text[:n]] = append(s.begin[text[:n]], int32(i))
			if !slices.Contains(s.sizes, n) {
				s.sizes = append(s.sizes, n)
			}
		}
	}
	return s
}

// find is the first rule that allows a path with the arguments of a use.
func (s *ruleSet) find(path string, u *use) *rule {
	best := int32(len(s.rules))
	look := func(list []int32) {
		for _, i := range list {
			if i >= best {
				break
			}
			if r := &s.rules[i]; r.allowsPath(path) && r.allowsArgs(u) {
				best = i
			}
		}
	}
	look(s.exact[path])
	look(s.rest)
	look(s.base[baseOf(path)])
	for _, n := range s.sizes {
		if n <= len(path) {
			look(s.begin[path[:n]])
		}
	}
	if int(best) == len(s.rules) {
		return nil
	}
	return &s.rules[best]
}

// A use is one program with its arguments, to be looked up in a list.
type use struct {
	exec  Executable
	cwd   string
	args  []string
	grows bool // more arguments come while it runs (xargs): no argument pattern can be for it
	hash  string

	env      string        // the hash of the variables that are set for it
	content  func() string // the hash of what the files hold that it runs
	contents string
	counted  bool
}

// contained is the hash of what the files hold, made once.
func (u *use) contained() string {
	if !u.counted && u.content != nil {
		u.contents, u.counted = u.content(), true
	}
	return u.contents
}

// hashed is the hash of the arguments and the directory, made once.
func (u *use) hashed() string {
	if u.hash == "" {
		u.hash = hashArguments(u.cwd, u.args)
	}
	return u.hash
}

// match finds the entry that allows a use. Where a link leads to another path, both need an entry,
// so that a link in an allowed directory does not let in what it points to. An allow-always with
// its arguments was given for the real path.
func match(rules *ruleSet, m *Machine, u use) *rule {
	find := func(path string) *rule { return rules.find(path, &u) }
	first := find(u.exec.Path)
	if u.exec.Path == u.exec.Real {
		if first != nil {
			return first
		}
		return findAny(find, m.otherNames(u.exec.Real))
	}
	second := find(u.exec.Real)
	if second == nil {
		second = findAny(find, m.otherNames(u.exec.Real))
	}
	switch {
	case second == nil:
		return nil
	case second.hasArgs && second.args.hash != "" && second.durable():
		return second
	case first == nil && slices.Contains(m.otherNames(u.exec.Real), u.exec.Path):
		return second // two names of one directory that is trusted
	case first == nil:
		return nil
	case first.durable():
		return second
	}
	return first
}

func findAny(find func(string) *rule, paths []string) *rule {
	for _, path := range paths {
		if r := find(path); r != nil {
			return r
		}
	}
	return nil
}

// denies finds the entry that forbids a use: by any of its names.
func denies(rules []rule, m *Machine, u use) *rule {
	if len(rules) == 0 {
		return nil
	}
	paths := []string{u.exec.Path, u.exec.Real}
	if u.exec.Real != "" {
		paths = append(paths, m.otherNames(u.exec.Real)...)
	}
	for i := range rules {
		r := &rules[i]
		named := r.any
		for _, path := range paths {
			named = named || path != "" && (r.pattern.Match(path) || path == r.leads)
		}
		if r.name || u.exec.Real == "" {
			named = named || r.namesWord(u.exec)
		}
		if !named {
			continue
		}
		// A pattern that cannot be read denies with any arguments; so does one for a command that
		// will get more of them.
		if !r.hasArgs || r.args == (ArgPattern{}) || u.grows || r.args.denies(u.args, u.hashed) {
			return r
		}
	}
	return nil
}

// namesWord compares a deny entry by base names: also of a program that was not found here and now.
// A version or a variant of the program is the program.
func (r *rule) namesWord(e Executable) bool {
	text := baseOf(r.pattern.text)
	base := newPattern(text, "")
	word, real := e.names()
	for _, name := range [...]string{word, real} {
		if name == "" {
			continue
		}
		if isVersionOf(name, text) || slices.ContainsFunc(append(canonicalNames(name), name), base.Match) {
			return true
		}
	}
	return false
}

// isVersionOf says whether a name is another with a version or a variant behind it: python3.11 is
// one of python3.
func isVersionOf(name, of string) bool {
	rest, ok := strings.CutPrefix(strings.ToLower(name), strings.ToLower(of))
	if !ok || rest == "" || of == "" {
		return ok && of != ""
	}
	tail := strings.TrimLeft(rest, "-._")
	return tail != "" && (tail[0] >= '0' && tail[0] <= '9' || len(tail) < len(rest) && slices.Contains(variants, tail))
}

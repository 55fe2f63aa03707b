package repository

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Left is a change that was not carried over.
type Left struct {
	Key     string // with its last part as the command spelled it
	Value   string
	Removed bool    // the command took the key away, or values of it
	Theirs  bool    // it was changed on the host as well: what is there stands
	Why     Verdict // otherwise
}

// maxChanges bounds how many keys are carried over at a time, and how many are told.
const maxChanges = 1000

// ErrTooMany means that more was changed than is carried over at a time. Nothing is.
var ErrTooMany = fmt.Errorf("more than %d of its settings were changed", maxChanges)

// ErrNotRead means that what the command made of the settings cannot be read as such, or that the
// host's cannot.
var ErrNotRead = errSyntax

// ErrElsewhere means that it cannot be told which of the changed settings lead git elsewhere.
var ErrElsewhere = errors.New("they lead git elsewhere")

// Carry makes in the host's settings the changes that a command made to a copy, from base to
// inside, as far as they do no harm and git goes where it went before. A key that was changed on
// the host meanwhile stays as it is there.
func Carry(base, inside, host string, around Around) (text string, left []Left, err error) {
	return carry(base, inside, host, rules{isHarmlessKey, Judge, &around})
}

// Follow makes all changes from base to host in the copy that a command has: they are the person's
// own. Where both changed a key, it is as on the host.
func Follow(base, host, inside string) (string, error) {
	text, left, err := carry(base, host, inside, rules{func(string) bool { return true }, func(string, string) Verdict { return Harmless }, nil})
	if err != nil {
		return "", err
	}
	theirs, err := parseDocument(host)
	if err != nil || len(left) == 0 {
		return text, err
	}
	d, err := parseDocument(text)
	if err != nil {
		return "", err
	}
	values := theirs.values()
	for _, l := range left {
		key := sectionOf(l.Key) + "." + strings.ToLower(nameOf(l.Key))
		d.set(key, nameOf(l.Key), values[key])
	}
	return d.text(), nil
}

// values are the values of each key.
func (d document) values() map[string][]string {
	all := map[string][]string{}
	for i := range d {
		if d[i].kind == variable {
			all[d[i].key()] = append(all[d[i].key()], d[i].value)
		}
	}
	return all
}

// keys are the keys of documents, each once, with the name as the last one has it.
func keys(documents ...document) []string {
	var list []string
	known := map[string]bool{}
	for _, d := range documents {
		for i := range d {
			if key := d[i].key(); d[i].kind == variable && !known[key] {
				known[key] = true
				list = append(list, key)
			}
		}
	}
	return list
}

// sections are the names of the sections that have a variable.
func (d document) sections() map[string]bool {
	all := map[string]bool{}
	for i := range d {
		if d[i].kind == variable {
			all[d[i].section] = true
		}
	}
	return all
}

// rules say which keys are carried over, and which values.
type rules struct {
	key   func(key string) bool
	value func(key, value string) Verdict
	// around is what says where git goes, which stays so. Nil: it may go anywhere.
	around *Around
}

// maxRounds bounds how often it is looked where git goes with what is left: what is left out may be
// what another change builds on.
const maxRounds = 16

func carry(base, inside, host string, r rules) (string, []Left, error) {
	before, err := parseDocument(host)
	if err != nil {
		return "", nil, ErrNotRead
	}
	refused := map[string]bool{}
	for range maxRounds {
		text, left, err := carryBut(refused, base, inside, host, r)
		if err != nil || r.around == nil || text == host {
			return text, left, err
		}
		after, err := parseDocument(text)
		if err != nil {
			return "", nil, ErrNotRead
		}
		more := elsewhere(before, after, r.around)
		if len(more) == 0 {
			return text, left, nil
		}
		maps.Copy(refused, more)
	}
	return "", nil, ErrElsewhere
}

// carryBut carries all over but some keys.
func carryBut(refused map[string]bool, base, inside, host string, r rules) (string, []Left, error) {
	b, err1 := parseDocument(base)
	i, err2 := parseDocument(inside)
	h, err3 := parseDocument(host)
	if err := errors.Join(err1, err2, err3); err != nil {
		return "", nil, ErrNotRead
	}
	if base == inside {
		return host, nil, nil
	}
	renameSections(b, i, h, r, refused)
	c := carrying{rules: r, refused: refused, base: b.values(), inside: i.values(), host: &h, spelled: i.names(), sections: i.sections()}
	was := h.values()
	for _, key := range keys(b, i) {
		if !slices.Equal(c.base[key], c.inside[key]) {
			if c.changes++; c.changes > maxChanges {
				return "", nil, ErrTooMany
			}
			c.key(key, was[key])
		}
	}
	return h.text(), c.left, nil
}

// names are the last parts of keys, as they are spelled.
func (d document) names() map[string]string {
	all := map[string]string{}
	for i := range d {
		if d[i].kind == variable {
			all[d[i].key()] = spelled(d[i].raw)
		}
	}
	return all
}

type carrying struct {
	rules        rules
	base, inside map[string][]string
	refused      map[string]bool // keys that lead git elsewhere
	host         *document
	spelled      map[string]string
	sections     map[string]bool // that are left inside
	changes      int
	left         []Left
}

// key carries the change of one key over. now are its values on the host.
func (c *carrying) key(key string, now []string) {
	name := c.spelled[key]
	if name == "" {
		name = nameOf(key)
	}
	leave := func(l Left) {
		l.Key = sectionOf(key) + "." + name
		c.left = append(c.left, l)
	}
	base, inside := c.base[key], c.inside[key]
	var next []string
	isLeft := false
	isAllowed := c.rules.key(key) || len(inside) == 0 && c.isGone(key)
	for _, value := range inside {
		if v := c.rules.value(key, value); v != Harmless && !slices.Contains(base, value) {
			leave(Left{Value: value, Why: v})
			isLeft = true
			continue
		}
		next = append(next, value)
	}
	switch {
	case isLeft && (!isAllowed || len(next) < len(base)): // it would take away what it was to replace
	case !isAllowed:
		leave(Left{Removed: true, Why: c.rules.value(key, "")})
	case slices.Equal(next, base), slices.Equal(next, now):
	case c.refused[key]:
		l := Left{Removed: len(next) == 0, Why: Leads}
		if !l.Removed {
			l.Value = next[len(next)-1]
		}
		leave(l)
	case !slices.Equal(now, base):
		l := Left{Theirs: true, Removed: len(next) == 0}
		if !l.Removed {
			l.Value = next[len(next)-1]
		}
		leave(l)
	default:
		c.host.set(key, name, next)
	}
}

// isGone reports whether a key's section is of a branch or a submodule that was removed as a whole.
func (c *carrying) isGone(key string) bool {
	return isNamed(sectionOf(key)) && !c.sections[sectionOf(key)]
}

func isNamed(section string) bool {
	first, _, has := strings.Cut(section, ".")
	return has && (first == "branch" || first == "submodule")
}

// renameSections looks for sections that a command renamed ("git branch -m"), where they have
// settings that are not carried over key by key, and renames them in base and host.
func renameSections(base, inside, host document, r rules, refused map[string]bool) {
	now, was, new := host.bySection(), base.bySection(), inside.bySection()
	harmful := func(section string, list []Setting) []Setting {
		return slices.DeleteFunc(slices.Clone(list), func(s Setting) bool { return r.value(section+"."+s.Key, s.Value) == Harmless })
	}
	isRefused := func(section string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(refused)), func(key string) bool { return sectionOf(key) == section })
	}
	for _, from := range base.ordered() {
		own := harmful(from, was[from])
		if new[from] != nil || len(own) == 0 || !slices.Equal(now[from], was[from]) || isRefused(from) {
			continue
		}
		for _, to := range inside.ordered() {
			first, sub, _ := strings.Cut(to, ".")
			if strings.HasPrefix(from, first+".") && isPlain(sub) && was[to] == nil && now[to] == nil && !isRefused(to) && slices.Equal(own, harmful(to, new[to])) {
				base.rename(from, to)
				host.rename(from, to)
				was[to], now[to] = was[from], now[from]
				break
			}
		}
	}
}

// ordered are the names of the sections of branches and submodules, each once; a bounded number.
func (d document) ordered() []string {
	var list []string
	for i := range d {
		if d[i].kind == variable && isNamed(d[i].section) && (len(list) == 0 || list[len(list)-1] != d[i].section) && len(list) < maxChanges {
			list = append(list, d[i].section)
		}
	}
	return list
}

// bySection are the variables of the sections that ordered has.
func (d document) bySection() map[string][]Setting {
	all := map[string][]Setting{}
	for i := range d {
		if d[i].kind == variable && isNamed(d[i].section) {
			all[d[i].section] = append(all[d[i].section], Setting{d[i].name, d[i].value})
		}
	}
	return all
}

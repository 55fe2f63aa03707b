package policy

import (
	"strings"
)

// An effect is what an option is told to do with what stands in the line. The zero value is: nobody
// said.
type effect uint8

const (
	effectUnknown effect = iota
	effectOK             // nothing that the program does not do anyway
	effectCode           // it names a program or code, or makes the program read some
	effectWrite          // it names a file that is written besides
)

// An arity says where an option's value stands.
type arity uint8

const (
	arityNone     arity = iota
	arityOne            // in the same word, or the next one
	arityOptional       // in the same word, or there is none
	arityTwo            // the next two words: a name and a value
	arityRest           // all words behind it are no options of this program any more
)

// An option is one line of a program's table.
type option struct {
	name   string
	effect effect
	arity  arity
	kind   string // what its value is: a language, "script", "word", or any text
}

// A grammar is how a program reads its options.
type grammar struct {
	stops     bool // at the first operand, as POSIX has it; else options may stand behind operands
	single    bool // one dash begins a whole name (find, openssl, Go's flag); no clusters
	prefixes  bool // an option's value stands right behind its name, whatever the name is (compilers)
	dashless  bool // the first word may be a cluster without its dash (tar)
	loose     bool // how much of a cluster is an option's value depends on what it is (perl)
	plus      bool // a word that begins with + is an option (editors, pagers)
	responses bool // a word that begins with @ is a file of options (pytest, compilers)
	slashed   bool // a long name may be written with _ for - (node)
}

// A found option or operand of a command.
type argument struct {
	option   *option // nil for an operand
	spelled  string  // as it was written, without its value
	value    string
	hasValue bool
	at       int // the word in which the value, or the operand, stands
}

// A misread is why the words of a command are not understood.
type misread struct{ word, why string }

// options takes the words behind a program's name apart, by the rules of getopt_long(3), popt(3)
// and Go's flag, with what the program's table says. What a name may be short for counts as the
// most dangerous of all that it may mean.
func (p *program) options(args []string) (list []argument, open bool, _ *misread) {
	open = true
	i := 0
	if p.grammar.dashless && len(args) > 0 && args[0] != "" && !strings.HasPrefix(args[0], "-") {
		more, next, bad := p.dashless(args)
		if bad != nil {
			return nil, false, bad
		}
		list, i = append(list, more...), next
	}
	for ; i < len(args); i++ {
		word := args[i]
		switch {
		case word == "--":
			for j := i + 1; j < len(args); j++ {
				list = append(list, argument{value: args[j], at: j})
			}
			return list, false, nil
		case p.grammar.plus && len(word) > 1 && word[0] == '+':
			return nil, false, &misread{word, "is an option that begins with +"}
		case len(word) < 2 || word[0] != '-':
			list = append(list, argument{value: word, at: i})
			if p.grammar.stops {
				for j := i + 1; j < len(args); j++ {
					list = append(list, argument{value: args[j], at: j})
				}
				return list, false, nil
			}
		default:
			more, next, bad := p.optionWord(args, i)
			if bad != nil {
				return nil, false, bad
			}
			list = append(list, more...)
			i = next - 1
			if last := more[len(more)-1]; last.option.arity == arityRest {
				for j := next; j < len(args); j++ {
					list = append(list, argument{value: args[j], at: j})
				}
				return list, false, nil
			}
		}
	}
	return list, open, nil
}

// optionWord reads the option, or the options, in args[i]; next is the first word behind them and
// their values.
func (p *program) optionWord(args []string, i int) (list []argument, next int, _ *misread) {
	word := args[i]
	switch {
	case p.grammar.single:
		return p.singleDash(args, i)
	case strings.HasPrefix(word, "--"):
		return p.long(args, i)
	case p.grammar.prefixes:
		return p.prefixed(args, i)
	case strings.Trim(word[1:], "0123456789") == "":
		if o := p.table["-5"]; o != nil {
			return []argument{{option: o, spelled: word}}, i + 1, nil
		}
	}
	return p.cluster(args, i, word[1:], i+1)
}

// long reads --name, --name=value, and what --name may be short for.
func (p *program) long(args []string, i int) ([]argument, int, *misread) {
	name, value, inline := strings.Cut(args[i], "=")
	if p.grammar.slashed {
		name = strings.ReplaceAll(name, "_", "-")
	}
	o := p.table[name]
	if o == nil {
		o = p.abbreviated(name)
	}
	if o == nil {
		return nil, 0, &misread{name, "is not an option that the table of " + p.names[0] + " has"}
	}
	a := argument{option: o, spelled: name, value: value, hasValue: inline, at: i}
	return p.withValue(a, args, i+1)
}

// abbreviated is the option that a name is short for. Where it may be several, the most dangerous
// counts; where they take their values in different ways, none does.
func (p *program) abbreviated(name string) *option {
	var found *option
	for full, o := range p.table {
		if !strings.HasPrefix(full, name) || !strings.HasPrefix(full, "--") {
			continue
		}
		switch {
		case found == nil || o.effect > found.effect:
			if found != nil && found.effect == effectOK && o.effect == effectUnknown {
				continue
			}
			found = o
		case o.effect == found.effect && (o.arity != found.arity || o.kind != found.kind):
			return nil
		}
	}
	return found
}

// withValue gives an option its value, which may be the next word.
func (p *program) withValue(a argument, args []string, next int) ([]argument, int, *misread) {
	switch a.option.arity {
	case arityNone:
		if a.hasValue && a.option.effect == effectOK && !p.grammar.single {
			return nil, 0, &misread{a.spelled, "takes no value"}
		}
	case arityTwo:
		if a.hasValue || next+1 >= len(args) {
			return nil, 0, &misread{a.spelled, "takes two words"}
		}
		a.value, a.hasValue, a.at = args[next+1], true, next+1
		return []argument{a}, next + 2, nil
	case arityOne:
		if a.hasValue {
			break
		}
		if next >= len(args) {
			if a.option.effect == effectCode {
				break
			}
			return nil, 0, &misread{a.spelled, "has no value"}
		}
		a.value, a.hasValue, a.at = args[next], true, next
		next++
		// Were the table wrong about the value, this would be an option of its own.
		if p.guarded && !p.exact && len(a.value) > 1 && a.value[0] == '-' && strings.Trim(a.value[1:], "0123456789.") != "" {
			return nil, 0, &misread{a.spelled, "has a value that looks like an option"}
		}
	}
	return []argument{a}, next, nil
}

// cluster reads letters that share a dash. A letter with a value ends it.
func (p *program) cluster(args []string, i int, letters string, next int) (list []argument, _ int, _ *misread) {
	for j := 0; j < len(letters); j++ {
		name := "-" + letters[j:j+1]
		o := p.table[name]
		if o == nil {
			// A name of several letters behind one dash: only where it is the whole word.
			if whole := p.table["-"+letters]; j == 0 && whole != nil && len(letters) > 1 {
				more, next, bad := p.withValue(argument{option: whole, spelled: "-" + letters, at: i}, args, next)
				return more, next, bad
			}
			return nil, 0, &misread{name, "is not an option that the table of " + p.names[0] + " has"}
		}
		a := argument{option: o, spelled: name, at: i}
		rest := letters[j+1:]
		if len(list) == 0 {
			if whole := p.table["-"+letters]; len(letters) > 1 && whole != nil && whole.effect > o.effect {
				o, rest = whole, ""
				a = argument{option: o, spelled: "-" + letters, at: i}
			}
		}
		switch o.arity {
		case arityNone:
			list = append(list, a)
			if rest == "" && len(a.spelled) > 2 {
				return list, next, nil
			}
			continue
		case arityRest:
			a.value, a.hasValue = rest, rest != ""
			return append(list, a), next, nil
		}
		a.value, a.hasValue = rest, rest != ""
		if p.grammar.loose && o.arity == arityOptional {
			// Only some letters are its value; which, depends.
			list = append(list, a)
			for k := range len(rest) {
				if hidden := p.table["-"+rest[k:k+1]]; hidden != nil && hidden.effect != effectOK {
					list = append(list, argument{option: hidden, spelled: "-" + rest[k:k+1], at: i})
				}
			}
			return list, next, nil
		}
		more, next, bad := p.withValue(a, args, next)
		return append(list, more...), next, bad
	}
	return list, next, nil
}

// dashless reads a first word as tar does: each letter with a value takes the next word.
func (p *program) dashless(args []string) (list []argument, next int, _ *misread) {
	next = 1
	for j := 0; j < len(args[0]); j++ {
		name := "-" + args[0][j:j+1]
		o := p.table[name]
		if o == nil {
			return nil, 0, &misread{name, "is not an option that the table of " + p.names[0] + " has"}
		}
		a := argument{option: o, spelled: name}
		if o.arity == arityOne {
			if next >= len(args) {
				return nil, 0, &misread{name, "has no value"}
			}
			a.value, a.hasValue, a.at = args[next], true, next
			next++
		}
		list = append(list, a)
	}
	return list, next, nil
}

// singleDash reads -name, --name, -name=value and -name value. There are no clusters and no short
// forms.
func (p *program) singleDash(args []string, i int) ([]argument, int, *misread) {
	word := args[i]
	name, value, inline := strings.Cut("-"+strings.TrimLeft(word, "-"), "=")
	o := p.table[name]
	if o == nil {
		return nil, 0, &misread{name, "is not an option that the table of " + p.names[0] + " has"}
	}
	return p.withValue(argument{option: o, spelled: name, value: value, hasValue: inline, at: i}, args, i+1)
}

// prefixed reads an option by the longest name that it begins with.
func (p *program) prefixed(args []string, i int) ([]argument, int, *misread) {
	word := args[i]
	if o := p.table[word]; o != nil {
		return p.withValue(argument{option: o, spelled: word, at: i}, args, i+1)
	}
	// A dangerous name may have its value right behind it, whatever a shorter name would make of
	// that.
	for n := len(word); n > 3; n-- {
		if o := p.table[strings.TrimSuffix(word[:n], "=")]; o != nil && o.effect != effectOK {
			return []argument{{option: o, spelled: word[:n], value: word[n:], hasValue: true, at: i}}, i + 1, nil
		}
	}
	for n := len(word); n > 1; n-- {
		if o := p.table[word[:n]+"*"]; o != nil {
			return []argument{{option: o, spelled: word[:n], value: word[n:], hasValue: true, at: i}}, i + 1, nil
		}
	}
	return nil, 0, &misread{word, "is not an option that the table of " + p.names[0] + " has"}
}

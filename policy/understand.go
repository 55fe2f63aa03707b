package policy

import (
	"slices"
	"strings"
)

// A circumstance is what surrounds a command, beside its words.
type circumstance struct {
	growth
	// special says of a word that it leads to a device, a pipe or a socket: what is read from there
	// is in no file.
	special func(word string) bool
}

// An understanding is what a program's table says about a command.
type understanding struct {
	inline *Inline  // code in it, or what is not understood: a person is asked
	reads  []string // the files of code that it names
	fixed  bool     // all code that it runs is in those files, or there is none
}

// understand holds a command's words against the tables, by each of its names. What has no table is
// what its entry says.
func understand(names []string, argv []string, c circumstance) understanding {
	result := understanding{fixed: true}
	var before *program
	for _, name := range names {
		p := programOf(name)
		if p == nil || p == before {
			continue
		}
		before = p
		u := p.understand(name, p.names[0], argv[1:], c)
		result.reads = append(result.reads, u.reads...)
		result.fixed = result.fixed && u.fixed
		if result.inline == nil {
			result.inline = u.inline
		}
	}
	return result
}

func asking(name, flag, why string) understanding {
	return understanding{inline: &Inline{Program: name, Flag: flag, Why: why}}
}

// understand holds words against one table. The path is the table's name: a program's, or that with
// subcommands.
func (p *program) understand(name, path string, args []string, c circumstance) understanding {
	switch {
	case p.asks != "":
		if p.versions && asksForVersion(args) && !c.any() {
			return understanding{fixed: true}
		}
		return asking(name, "<command>", p.asks)
	case len(args) == 0 && p.alone && !c.any():
		return understanding{fixed: true}
	case p.versions && asksForVersion(args) && !c.any():
		return understanding{fixed: true}
	}
	list, open, bad := p.options(args)
	if bad != nil {
		return asking(name, bad.word, bad.why)
	}
	r := reader{p: p, name: name, path: path, args: args, c: c, result: understanding{fixed: !p.project}}
	for _, a := range list {
		if a.option == nil {
			r.operand(a)
		} else {
			r.option(a)
		}
		if r.result.inline != nil || r.done {
			return r.result
		}
	}
	r.end(open)
	return r.result
}

// asksForVersion lets a command pass that asks a program about itself.
func asksForVersion(args []string) bool {
	if len(args) != 1 {
		return false
	}
	switch args[0] {
	case "--version", "-version", "-V", "-v", "--help", "-h", "-help", "version", "help":
		return true
	}
	return false
}

// A reader goes through the words of one command.
type reader struct {
	p        *program
	name     string
	path     string
	args     []string
	c        circumstance
	result   understanding
	operands int
	program  bool // an option had the program of a small language, or the script
	done     bool
}

func (r *reader) ask(flag, why string) {
	r.result.inline, r.result.fixed = &Inline{Program: r.name, Flag: flag, Why: why}, false
}

// unseen says whether text that nobody has seen is put into a word while the command runs.
func (r *reader) unseen(word string) bool {
	return r.c.placeholder != "" && strings.Contains(word, r.c.placeholder)
}

func (r *reader) option(a argument) {
	switch {
	case r.unseen(a.spelled):
		r.ask(a.spelled, "holds words that nobody has seen")
	case a.option.name == "-m" && a.option.arity == arityRest && len(r.p.modules) > 0:
		r.module(a)
		r.result.fixed = false
	case a.option.effect == effectCode:
		r.ask(a.option.name, "is code, or names a program")
	case a.option.effect == effectWrite:
		r.ask(a.option.name, "names a file that is written besides")
	case a.option.effect != effectOK:
		r.ask(a.option.name, "is not known")
	case slices.Contains(r.p.instead, a.option.name):
		r.program = true
	case a.hasValue:
		r.value(a.option.kind, a.option.name, a.value)
	}
}

// module is python's -m: a program by the name of its module. Those that are here take no code as
// arguments; one that has a table is held against it.
func (r *reader) module(a argument) {
	r.done = true
	name, rest := a.value, r.args[min(a.at+1, len(r.args)):]
	if !a.hasValue {
		if len(rest) == 0 {
			r.ask("-m", "has no module")
			return
		}
		name, rest = rest[0], rest[1:]
	}
	switch table := programOf(name); {
	case !slices.Contains(r.p.modules, name) || r.unseen(name):
		r.ask("-m", "is a module that the table does not have")
	case table != nil:
		r.result = table.understand(name, name, rest, r.c)
	}
}

// value looks at a word that is of a language, or the name of a script.
func (r *reader) value(kind, flag, word string) {
	switch kind {
	case "sed", "awk", "jq":
		r.program = true
		if r.unseen(word) {
			r.ask(flag, "holds words that nobody has seen")
		} else if why := languageRefusal(kind, word); why != "" {
			r.ask(flag, why)
		}
	case "script":
		r.program = true
		r.script(flag, word)
	case "suffix":
		if strings.ContainsAny(word, "/*") {
			r.ask(flag, "is a suffix that is a path")
		}
	case "archive":
		if i := strings.IndexByte(word, ':'); i >= 0 && !strings.Contains(word[:i], "/") || r.special(word) && word != "/dev/stdin" && word != "/dev/stdout" && word != "/dev/null" {
			r.ask(flag, "is on another machine, which another program reaches")
		}
	case "":
	default:
		r.known(kind, flag, word)
	}
}

// known lets only values pass that the table has: -m=pytest|venv, and * for a word of letters and
// digits.
func (r *reader) known(kind, flag, word string) {
	for _, k := range strings.Split(kind, "|") {
		if word == k || k == "number" && word != "" && strings.Trim(word, "0123456789") == "" || k == "host" && word != "" && plain(word, "._,:@-") && word[0] != '-' || k == "word" && word != "" && plain(word, "_,+:-") && word[0] != '-' || strings.HasSuffix(k, "*") && strings.HasPrefix(word, k[:len(k)-1]) && plain(word[len(k)-1:], "._,+:/@-") {
			r.program = r.program || kind != "word" && kind != "number" && kind != "host" && r.p.operands == "script"
			return
		}
	}
	r.ask(flag, "has a value that the table does not know")
}

func (r *reader) script(flag, word string) {
	switch {
	case word == "-":
		r.ask("-", "is code from the input")
	case r.unseen(word):
		r.ask(flag, "is a file of code that nobody has seen")
	case r.special(word):
		r.ask(flag, "is no file: what it reads is not in one")
	case r.path == "node" && (word == "inspect" || word == "debug"):
		r.ask(word, "reads code from its input")
	case r.path == "go run" && !strings.HasPrefix(word, ".") && !strings.HasPrefix(word, "/") && strings.Contains(word, "@"), strings.Contains(word, "://"):
		r.ask(flag, "is code from another machine")
	default:
		r.result.reads = append(r.result.reads, word)
	}
}

func (r *reader) special(word string) bool {
	for _, tree := range [...]string{"/dev/", "/proc/", "/sys/"} {
		if strings.HasPrefix(word, tree) {
			return true
		}
	}
	return r.c.special != nil && r.c.special(word)
}

func (r *reader) operand(a argument) {
	r.operands++
	if r.c.leads && r.c.placeholder != "" && strings.HasPrefix(a.value, r.c.placeholder) && r.p.guarded && r.optionsEndedBefore(a.at) {
		r.ask(a.value, "may become an option")
		return
	}
	if r.p.grammar.responses && strings.HasPrefix(a.value, "@") {
		r.ask(a.value, "is a file of options")
		return
	}
	if r.path == "man" && strings.Contains(a.value, "/") {
		r.ask(a.value, "is a file, whose orders to the formatter are its author's")
		return
	}
	switch r.p.operands {
	case "data":
	case "none":
		r.ask(a.value, "is an operand, of which the program has none")
	case "one":
		if r.operands > 1 || !strings.Contains(a.value, ".") && a.value != "list" {
			r.ask(a.value, "is an operand more than the table has")
		}
	case "script":
		if r.program {
			return
		}
		r.program = true
		r.script("<script>", a.value)
	case "code":
		r.ask(a.value, "is code, or names a program")
	case "sed", "awk", "jq":
		if !r.program {
			r.value(r.p.operands, "<program>", a.value)
		}
	case "targets":
		r.target(a.value)
	case "sub":
		r.subcommand(a)
	default:
		r.ask(a.value, "is not known")
	}
}

// optionsEndedBefore says whether no -- stands before a word.
func (r *reader) optionsEndedBefore(at int) bool {
	for _, word := range r.args[:min(at, len(r.args))] {
		if word == "--" {
			return false
		}
	}
	return true
}

// target is a name for make, or a variable that its recipes put into commands.
func (r *reader) target(word string) {
	name, value, variable := strings.Cut(word, "=")
	switch {
	case r.unseen(word):
		r.ask(word, "is a target, or a variable, that nobody has seen")
	case variable && !quietVariable(name, value):
		r.ask("<variable>", "is put into commands")
	case !variable && strings.ContainsAny(word, "$`"):
		r.ask("<variable>", "is put into commands")
	}
}

// quietVariable says whether a variable of make only says how much is told.
func quietVariable(name, value string) bool {
	switch name {
	case "V", "VERBOSE", "DEBUG", "NDEBUG", "RELEASE", "QUIET", "CI":
		switch strings.ToLower(value) {
		case "", "0", "1", "2", "yes", "no", "true", "false", "on", "off":
			return true
		}
	}
	return false
}

func (r *reader) subcommand(a argument) {
	r.done = true
	name := r.path + " " + a.value
	sub := programs()[name]
	switch {
	case r.unseen(a.value):
		r.ask(a.value, "is a subcommand that nobody has seen")
	case sub == nil:
		r.ask(a.value, "is not a subcommand that the table of "+r.p.names[0]+" has")
	default:
		// What stood before it is known by now, and counts for nothing here.
		u := sub.understand(r.name, name, r.args[a.at+1:], r.c)
		u.fixed = u.fixed && !r.p.project
		if u.inline != nil && u.inline.Flag == "<command>" {
			u.inline.Flag = a.value
		}
		r.result = u
	}
}

// end looks at what is missing, and at what may come.
func (r *reader) end(open bool) {
	switch r.p.operands {
	case "script":
		if !r.program {
			r.ask("<input>", "reads code from its input")
			return
		}
	case "sub":
		if r.operands == 0 && len(r.args) > 0 && !r.c.behind {
			return // its options alone tell something
		}
		r.ask("<command>", "has no subcommand in the line")
		return
	}
	if !r.c.behind || !r.p.guarded {
		return
	}
	switch {
	case open:
		r.ask("<input>", "may get options that nobody has seen")
	case r.p.operands == "data", r.program && r.p.operands != "targets":
	default:
		r.ask("<input>", "gets words that nobody has seen")
	}
}

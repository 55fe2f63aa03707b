package policy

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
)

// A program is what the table says about one that can execute something, or that reads code. The
// tables are in programs/, for people to read and add to. What has no table does what it can do: an
// entry for it is a person's word that it may.
type program struct {
	names    []string
	grammar  grammar
	table    map[string]*option
	operands string   // what they are: see operandKinds
	asks     string   // why it is asked about whatever its words are
	guarded  bool     // some of its options are dangerous
	alone    bool     // without any word it does nothing but tell of itself, or read data
	versions bool     // with one word that asks for its version or its help, too
	exact    bool     // the table is certain of which options have values
	project  bool     // it runs code of the project that no word names
	files    []string // and that begins in these
	instead  []string // options that stand for the script
	modules  []string // what may stand behind -m
}

// operandKinds are the words behind operands: in a table.
//
//	data       any text: files, patterns, addresses
//	none       there are none
//	one        there is at most one, the name of a setting
//	script     the first is a file of code, and what follows is for it; without one, code comes from the input
//	code       any is code, or makes the program run something
//	sub        the first is a subcommand, with a table of its own: "git log"
//	sed awk jq the first is a program of that language, unless an option had it; what follows is data
//	targets    names of what is to be made; NAME=value is a variable
var operandKinds = []string{"data", "none", "one", "script", "code", "sub", "sed", "awk", "jq", "targets"}

//go:embed programs/*.txt
var programFiles embed.FS

// programs are the tables, by each name of each program.
var programs = sync.OnceValue(func() map[string]*program {
	all := map[string]*program{}
	files, err := programFiles.ReadDir("programs")
	if err != nil {
		panic(err) // it is in the binary
	}
	for _, f := range files {
		text, err := programFiles.ReadFile(path.Join("programs", f.Name()))
		if err == nil {
			err = readPrograms(string(text), all)
		}
		if err != nil {
			panic(fmt.Errorf("programs/%s: %w", f.Name(), err)) // a test reads them all
		}
	}
	return all
})

// readPrograms reads a file of tables: see programs/README.
func readPrograms(text string, all map[string]*program) error {
	var p *program
	for n, line := range strings.Split(text, "\n") {
		if i := strings.Index(line, "#"); i == 0 || i > 0 && line[i-1] == ' ' {
			line = line[:i]
		}
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		wrong := func(what string) error { return fmt.Errorf("line %d: %s: %q", n+1, what, line) }
		if words[0] == "program" {
			p = &program{table: map[string]*option{}, operands: "data"}
			for _, name := range words[1:] {
				name = strings.ReplaceAll(name, "/", " ")
				if all[name] != nil {
					return wrong("a second table of " + name)
				}
				p.names = append(p.names, name)
				all[name] = p
			}
			continue
		}
		if p == nil || len(words) < 2 && words[0] != "alone" && words[0] != "versions" && words[0] != "exact" && words[0] != "project" {
			return wrong("it belongs to no program, or says nothing")
		}
		if err := p.line(words[0], words[1:]); err != "" {
			return wrong(err)
		}
	}
	return nil
}

func (p *program) line(about string, words []string) (mistake string) {
	switch about {
	case "ok":
		return p.add(effectOK, words)
	case "code":
		p.guarded = true
		return p.add(effectCode, words)
	case "write":
		p.guarded = true
		return p.add(effectWrite, words)
	case "operands":
		p.operands = words[0]
		if !slices.Contains(operandKinds, p.operands) {
			return "no such kind of operand"
		}
		p.guarded = p.guarded || p.operands != "data" && p.operands != "none"
	case "asks":
		p.asks, p.guarded = strings.Join(words, " "), true
	case "project":
		p.project = true
		p.files = words
	case "instead":
		p.instead = words
	case "modules":
		p.modules = words
	case "exact":
		p.exact = true
	case "alone":
		p.alone = true
	case "versions":
		p.versions = true
	case "grammar":
		for _, word := range words {
			switch word {
			case "gnu":
			case "posix":
				p.grammar.stops = true
			case "single":
				p.grammar.single = true
			case "go":
				p.grammar.single, p.grammar.stops = true, true
			case "prefixes":
				p.grammar.prefixes, p.grammar.responses = true, true
			case "responses":
				p.grammar.responses = true
			case "dashless":
				p.grammar.dashless = true
			case "loose":
				p.grammar.loose = true
			case "plus":
				p.grammar.plus = true
			case "underscores":
				p.grammar.slashed = true
			default:
				return "no such grammar"
			}
		}
	default:
		return "not known"
	}
	return ""
}

// add notes options: -x, -x= with a value, -x[=] with one in the same word or none, -x=sed with one
// of a language, -x=... where all that follows is the value.
func (p *program) add(e effect, words []string) (mistake string) {
	for _, word := range words {
		o := &option{effect: e}
		name := word
		switch i := strings.IndexByte(word, '='); {
		case strings.HasSuffix(word, "*") && !strings.Contains(word, "|") && (i < 0 || strings.HasSuffix(word, "=*")):
		case strings.HasSuffix(word, "]"):
			name, o.kind, _ = strings.Cut(strings.TrimSuffix(word, "]"), "[=")
			o.arity = arityOptional
		case strings.HasSuffix(word, "=..."):
			name, o.arity = strings.TrimSuffix(word, "=..."), arityRest
		case i > 0:
			name, o.arity, o.kind = word[:i], arityOne, word[i+1:]
			if o.kind == "two" {
				o.arity, o.kind = arityTwo, ""
			}
		}
		if len(name) < 2 || name[0] != '-' {
			return "no option: " + word
		}
		o.name = name
		if have := p.table[name]; have != nil && *have != *o {
			return "said in two ways: " + name
		}
		p.table[name] = o
	}
	return ""
}

// programOf is the table for a program by its name, or by the name that it has without version and
// variant. Empty is: none.
func programOf(base string) *program {
	all := programs()
	if p := all[base]; p != nil && !strings.Contains(base, " ") {
		return p
	}
	for _, name := range canonicalNames(base) {
		if p := all[name]; p != nil && !strings.Contains(name, " ") {
			return p
		}
	}
	return nil
}

// variants are what distributions put behind a program's name, besides versions.
var variants = []string{"static", "dynamic", "basic", "tiny", "nox", "gtk", "gtk2", "gtk3", "athena", "huge", "dbg", "debug", "real", "orig", "distrib", "bin", "wrapped", "wrapper",
	"posix", "traditional", "openbsd", "gnu", "linux", "musl", "glibc", "stable", "nightly", "lts", "dev", "beta", "canary", "x86_64", "amd64", "arm64",
	"aarch64", "armhf", "armv7", "armv7l", "i386", "i686", "riscv64", "s390x", "ppc64le", "64", "32", "unwrapped", "minimal", "full", "nocap", "bfd", "suid", "perl", "cgi", "cli", "fpm", "zts"}

// canonicalNames are the names that a program's file name may stand for, the closest first:
// vim.basic is vim, python3.11-dbg is python, x86_64-linux-gnu-gcc-12 is gcc. A version is whatever
// begins with a digit behind the name.
func canonicalNames(base string) []string {
	name := strings.TrimSuffix(strings.ToLower(base), ".exe")
	names := []string{name}
	add := func(n string) {
		if n != "" && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	for _, ending := range [...]string{".js", ".cjs", ".mjs", ".py", ".pl", ".rb", ".sh"} {
		if short := strings.TrimSuffix(name, ending); short != name {
			add(short)
		}
	}
	for i := 0; i < len(names) && len(names) < 24; i++ {
		n := names[i]
		if j := strings.LastIndexAny(n, "-._"); j > 0 && slices.Contains(variants, n[j+1:]) {
			add(n[:j])
		}
		if j := strings.IndexAny(n, "0123456789"); j > 0 {
			// pypy3, perl5.36-x86_64-linux-gnu, lua5.4, ksh93: the name ends where the version
			// begins; 7z and md5sum have no version.
			add(strings.TrimRight(n[:j], "-._"))
		}
		if j := strings.LastIndex(n, "-linux-gnu-"); j > 0 {
			add(n[j+len("-linux-gnu-"):])
		}
	}
	return names
}

package policy

import (
	"slices"
	"strings"
	"testing"
)

// spellings are the ways in which a dangerous option of a program can be written: in full, short
// for it, its value attached, behind other letters, behind harmless options with values, behind
// operands.
func (p *program) spellings(o *option) (list [][]string) {
	value := []string{"./evil"}
	switch o.arity {
	case arityNone, arityOptional:
		value = nil
	case arityTwo:
		value = []string{"a", "./evil"}
	case arityRest:
		value = []string{"./evil", "x"}
	}
	with := func(words ...string) { list = append(list, append(words, value...)) }
	name := strings.TrimSuffix(o.name, "*")
	attached := o.arity == arityOne || o.arity == arityOptional || o.name != name
	with(name)
	switch {
	case strings.HasPrefix(name, "--") && !p.grammar.single:
		for end := len(name); end > 3; end-- {
			short := name[:end]
			if exact := p.table[short]; exact != nil && exact != o {
				continue // another option's whole name
			}
			with(short)
			if attached {
				list = append(list, []string{short + "=./evil"})
			}
		}
		if p.grammar.slashed {
			with("--" + strings.ReplaceAll(name[2:], "-", "_"))
		}
	case p.grammar.single:
		with("-" + name)
		if attached {
			list = append(list, []string{name + "=./evil"}, []string{"-" + name + "=./evil"})
		}
	default:
		if attached {
			list = append(list, []string{name + "./evil"}, []string{name + "=./evil"})
		}
		if len(name) == 2 && !p.grammar.prefixes {
			for _, flag := range p.letters() {
				with("-" + flag + name[1:])
				with("-" + flag + flag + name[1:])
				if attached {
					list = append(list, []string{"-" + flag + name[1:] + "./evil"})
				}
			}
			if p.grammar.dashless {
				list = append(list, []string{name[1:], "./evil"}, []string{"v" + name[1:] + "f", "./evil", "a.tar"}, []string{"xf" + name[1:], "a.tar", "./evil"})
			}
		}
	}
	for _, words := range slices.Clone(list) {
		if p.grammar.dashless && words[0][0] != '-' {
			continue // only the first word may be without its dash
		}
		for _, harmless := range p.before() {
			list = append(list, append(slices.Clone(harmless), words...))
		}
		if !p.grammar.stops && p.operands != "sub" {
			list = append(list, append([]string{"operand"}, words...), append([]string{"a", "-"}, words...))
		}
	}
	return list
}

// letters are the options of one letter without a value.
func (p *program) letters() (list []string) {
	for name, o := range p.table {
		if len(name) == 2 && o.effect == effectOK && o.arity == arityNone && name != "-5" {
			list = append(list, name[1:])
		}
	}
	slices.Sort(list)
	return list[:min(len(list), 6)]
}

// before are harmless words of each arity that may stand before.
func (p *program) before() (list [][]string) {
	arities := map[arity]bool{}
	var names []string
	for name := range p.table {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		o := p.table[name]
		if o.effect != effectOK || arities[o.arity] || o.kind != "" || strings.HasSuffix(name, "*") || name == "-5" || o.arity == arityRest {
			continue
		}
		arities[o.arity] = true
		switch o.arity {
		case arityOne:
			list = append(list, []string{name, "v"})
			if strings.HasPrefix(name, "--") || p.grammar.single {
				list = append(list, []string{name + "=v"})
			}
		case arityTwo:
			list = append(list, []string{name, "a", "b"})
		default:
			list = append(list, []string{name})
		}
	}
	return list
}

func TestNoSpellingOfADangerousOptionRuns(t *testing.T) {
	tr, p := everything(t)
	tried := 0
	for table, program := range programs() {
		name, subcommand, _ := strings.Cut(table, " ")
		for _, o := range program.table {
			if o.effect == effectOK {
				continue
			}
			for _, words := range program.spellings(o) {
				// An option that stands for nothing that the program needs: its operands and its
				// script are there, too.
				argv := append([]string{name}, strings.Fields(subcommand)...)
				argv = append(argv, words...)
				tried++
				if u := understand([]string{name}, append(argv, "operand"), circumstance{}); u.inline == nil {
					t.Errorf("%s: %q is taken for harmless", o.name, argv)
				}
				if tried%50 != 0 {
					continue
				}
				for _, more := range [][]string{nil, {"operand"}} {
					if d := p.Decide(Request{Argv: append(slices.Clone(argv), more...), Cwd: tr.cwd()}); d.Verdict == Run {
						t.Errorf("%s: %q runs", o.name, argv)
					}
				}
			}
		}
	}
	t.Logf("%d spellings", tried)
	if tried < 20000 {
		t.Errorf("only %d spellings were tried", tried)
	}
}

// What the tables say that a subcommand has must be reachable by the words that lead there.
func TestEverySubcommandHasAProgram(t *testing.T) {
	for table := range programs() {
		words := strings.Fields(table)
		for i := 1; i < len(words); i++ {
			parent := programs()[strings.Join(words[:i], " ")]
			if parent == nil || parent.operands != "sub" {
				t.Errorf("%s: %s has no subcommands", table, strings.Join(words[:i], " "))
			}
		}
	}
}

func TestAnOptionThatNoTableHasIsAskedAbout(t *testing.T) {
	for table, program := range programs() {
		if program.asks != "" || !program.guarded {
			continue
		}
		for _, word := range []string{"--zzz-unknown", "--zzz-unknown=x", "-\u00e9", "--zzz", "-~", "---", "--=x", "-%x"} {
			argv := append(strings.Fields(table), word)
			if u := understand([]string{argv[0]}, argv, circumstance{}); u.inline == nil {
				t.Errorf("%s %s is taken for harmless", table, word)
			}
		}
	}
}

// Of a value that looks like an option nobody can be sure, were a table wrong about who has values.
func TestAValueThatLooksLikeAnOptionIsAskedAbout(t *testing.T) {
	for _, line := range []string{"tar -C --to-command=id -xf a", "tar -xf -Iid", "git log --author --output=x", "gcc -o -wrapper x.c", "curl -o --config=x u", "rg -e --pre=./evil a", "make -C -fx", "sort -k -ox f"} {
		argv := strings.Fields(line)
		if u := understand(argv[:1], argv, circumstance{}); u.inline == nil {
			t.Errorf("%s is taken for harmless", line)
		}
	}
	for _, line := range []string{"sort --rev f", "git log --onel", "tar --extr --file=a", "head --lin=3", "rg --ignore-c x", "git log -n -5", "tar -xf -", "sed --quie -n p f", "find . -mtime -7 -size -10k"} {
		argv := strings.Fields(line)
		if u := understand(argv[:1], argv, circumstance{}); u.inline != nil {
			t.Errorf("%s: %+v", line, u.inline)
		}
	}
}

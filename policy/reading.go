package policy

import (
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// resolveLine takes a shell line apart as ParseLine does, and resolves what is safe once it is
// known: redirections between descriptors and to /dev/null, cd, assignments of harmless variables,
// globs and ~, newlines, !, for over words, here documents. What it returns holds no expansion any
// more. The line is built anew from that, so that what runs is what was looked at: a glob is
// expanded once.
func resolveLine(m *Machine, text, cwd string) ([]Segment, *Refusal) {
	// A comment ends with its line, whatever stands before that; the parser goes on behind a
	// backslash.
	if i := strings.Index(text, "\\\n"); i >= 0 && strings.Contains(text, "#") {
		return nil, &Refusal{"a line that goes on, and a comment", i}
	}
	file, refusal := parse(text)
	if refusal != nil {
		return nil, refusal
	}
	r := lineResolver{machine: m, text: text, dir: cwd, variables: map[string]string{"HOME": m.Home}}
	if refusal := r.statements(file.Stmts, End); refusal != nil {
		return nil, refusal
	}
	if len(r.segments) == 0 {
		return nil, &Refusal{"a line without a command", 0}
	}
	return r.segments, r.directories()
}

type lineResolver struct {
	machine   *Machine
	text      string
	dir       string
	variables map[string]string // those that are known
	segments  []Segment
	words     int
	loops     int
}

// statements adds commands that follow each other; the last has operator behind it.
func (r *lineResolver) statements(list []*syntax.Stmt, operator Operator) *Refusal {
	for i, s := range list {
		between := Then
		if i == len(list)-1 {
			between = operator
		}
		if loop, ok := s.Cmd.(*syntax.ForClause); ok {
			if refusal := r.loop(s, loop, between); refusal != nil {
				return refusal
			}
			continue
		}
		if refusal := r.statement(s, between); refusal != nil {
			return refusal
		}
	}
	return nil
}

// loop does for over words by doing its body once for each.
func (r *lineResolver) loop(s *syntax.Stmt, loop *syntax.ForClause, operator Operator) *Refusal {
	words, ok := loop.Loop.(*syntax.WordIter)
	if !ok || loop.Select || loop.Braces || len(words.Items) == 0 || s.Background || s.Coprocess || s.Disown || s.Negated || len(s.Redirs) > 0 || r.loops == 2 {
		return at("control flow", s.Pos())
	}
	name := words.Name.Value
	if _, known := r.variables[name]; known || blockedOverride(strings.ToUpper(name)) {
		return at("a loop over a variable that has a meaning", s.Pos())
	}
	var values []string
	for _, item := range words.Items {
		list, _, refusal := r.word(item)
		if refusal != nil {
			return refusal
		}
		values = append(values, list...)
	}
	if len(values) > maxSegments {
		return at("a loop over so many words", s.Pos())
	}
	r.loops++
	defer func() { r.loops--; delete(r.variables, name) }()
	for i, value := range values {
		between := Then
		if i == len(values)-1 {
			between = operator
		}
		r.variables[name] = value
		if refusal := r.statements(loop.Do, between); refusal != nil {
			return refusal
		}
	}
	return nil
}

func (r *lineResolver) statement(s *syntax.Stmt, operator Operator) *Refusal {
	switch {
	case s.Background:
		return at("&", s.Pos())
	case s.Coprocess:
		return at("|&", s.Pos())
	case s.Disown:
		return at("&!", s.Pos())
	}
	first := len(r.segments)
	if refusal := r.command(s, operator); refusal != nil {
		return refusal
	}
	if s.Negated {
		if r.segments[first].Negated || r.segments[first].shell && r.segments[first].Argv[0] != "true" && r.segments[first].Argv[0] != "false" {
			return at("!", s.Pos())
		}
		r.segments[first].Negated = true
	}
	return nil
}

func (r *lineResolver) command(s *syntax.Stmt, operator Operator) *Refusal {
	switch cmd := s.Cmd.(type) {
	case *syntax.CallExpr:
		return r.call(cmd, s.Redirs, operator)
	case *syntax.BinaryCmd:
		if len(s.Redirs) > 0 {
			return at("a redirection", s.Pos())
		}
		return r.binary(cmd, operator)
	case *syntax.TimeClause:
		if len(s.Redirs) > 0 || cmd.Stmt == nil || cmd.Stmt.Negated || timesDeep(cmd) {
			return at("time", s.Pos())
		}
		first := len(r.segments)
		if refusal := r.statement(cmd.Stmt, operator); refusal != nil {
			return refusal
		}
		if r.segments[first].shell || len(r.segments[first].Assigns) > 0 {
			return at("time", s.Pos())
		}
		words := []string{"time"}
		if cmd.PosixFormat {
			words = append(words, "-p")
		}
		r.segments[first].Argv = append(words, r.segments[first].Argv...)
		return nil
	case nil:
		return at("a redirection without a command", s.Pos())
	default:
		return at(describe(cmd), s.Pos())
	}
}

func (r *lineResolver) binary(cmd *syntax.BinaryCmd, operator Operator) *Refusal {
	between := map[syntax.BinCmdOperator]Operator{syntax.AndStmt: And, syntax.OrStmt: Or, syntax.Pipe: Pipe}[cmd.Op]
	if between == End {
		return at(cmd.Op.String(), cmd.OpPos)
	}
	// "cd DIR || exit" is cd that ends the line where it fails.
	if between == Or && operator == Then && isCall(cmd.X, "cd") && isCall(cmd.Y, "exit") {
		if refusal := r.statement(cmd.X, Then); refusal != nil {
			return refusal
		}
		rest := lineResolver{machine: r.machine, text: r.text, dir: r.dir}
		return rest.statement(cmd.Y, End)
	}
	if refusal := r.statement(cmd.X, between); refusal != nil {
		return refusal
	}
	return r.statement(cmd.Y, operator)
}

// isCall says whether a statement is a plain command of this name.
func isCall(s *syntax.Stmt, name string) bool {
	call, ok := s.Cmd.(*syntax.CallExpr)
	return ok && len(call.Args) > 0 && call.Args[0].Lit() == name && !s.Negated && !s.Background
}

func (r *lineResolver) call(cmd *syntax.CallExpr, redirs []*syntax.Redirect, operator Operator) *Refusal {
	if len(cmd.Args) == 0 {
		return at("an assignment", cmd.Pos())
	}
	if len(cmd.Assigns) > maxSegments {
		return at("a line of so many words", cmd.Pos())
	}
	s := Segment{Operator: operator, Portable: true, Dir: r.dir}
	for _, assign := range cmd.Assigns {
		text, refusal := r.assignment(assign)
		if refusal != nil {
			return refusal
		}
		s.Assigns = append(s.Assigns, text)
	}
	for _, word := range cmd.Args {
		list, portable, refusal := r.word(word)
		if refusal != nil {
			return refusal
		}
		s.Argv = append(s.Argv, list...)
		s.Portable = s.Portable && portable
		if r.words += len(list); r.words > maxWords {
			return at("a line of so many words", cmd.Pos())
		}
	}
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return at("an empty command name", cmd.Pos())
	}
	if len(r.segments) == maxSegments {
		return at("a line of so many words", cmd.Pos())
	}
	for _, redirect := range redirs {
		if refusal := r.redirect(&s, redirect); refusal != nil {
			return refusal
		}
	}
	s.Portable = s.Portable && s.Here == nil && len(s.Redirs) == 0 && len(s.Assigns) == 0
	if changesTheShell(s.Argv[0]) || len(s.Argv) == 1 && (s.Argv[0] == "true" || s.Argv[0] == "false") {
		if refusal := r.ofTheShell(&s, cmd); refusal != nil {
			return refusal
		}
	}
	r.segments = append(r.segments, s)
	return nil
}

// ofTheShell are the few commands of the shell's own that do no more than their words say.
func (r *lineResolver) ofTheShell(s *Segment, cmd *syntax.CallExpr) *Refusal {
	refusal := at("the shell's own "+s.Argv[0], cmd.Pos())
	if len(s.Assigns) > 0 || s.Here != nil {
		return refusal
	}
	s.shell, s.Portable = true, false
	args := s.Argv[1:]
	switch name := s.Argv[0]; {
	case name == "true", name == "false":
		return nil
	case name == ":" && len(args) == 0:
		s.Argv = []string{"true"}
		return nil
	case name == "exit" && (len(args) == 0 || len(args) == 1 && isNumber(args[0])) && s.Operator != Pipe && (len(r.segments) == 0 || r.segments[len(r.segments)-1].Operator != Pipe):
		return nil
	case name == "set" && len(args) == 1 && slices.Contains([]string{"-e", "-u", "-eu", "-ue"}, args[0]) && s.Operator == Then && r.loops == 0:
		return nil
	case name == "command" && len(args) == 2 && args[0] == "-v" && plain(args[1], "._+-/") && !strings.HasPrefix(args[1], "-"):
		return nil
	case name == "cd" && len(args) == 1 && r.loops == 0:
		return r.changeDirectory(s, args[0], cmd)
	}
	return refusal
}

func isNumber(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// changeDirectory is cd to a directory that is there, and is no link's.
func (r *lineResolver) changeDirectory(s *Segment, name string, cmd *syntax.CallExpr) *Refusal {
	if name == "" || strings.HasPrefix(name, "-") || !filepath.IsAbs(r.dir) {
		return at("cd", cmd.Pos())
	}
	dir := name
	if !filepath.IsAbs(dir) {
		dir = r.dir + "/" + dir
	}
	kind, err := r.machine.Files.Stat(dir) // as it is written: what stands before .. must be there
	if err != nil || kind != fileDirectory {
		return at("cd to what is no directory", cmd.Pos())
	}
	real, err := r.machine.Files.Real(dir)
	if dir = filepath.Clean(dir); err != nil || real != dir {
		return at("cd through a link", cmd.Pos())
	}
	s.Argv, s.Redirs, s.Dir = []string{"cd", dir}, nil, dir
	r.dir = dir
	return nil
}

// directories looks at where each cd stands: what follows it must be done there, whatever became of
// what stands before.
func (r *lineResolver) directories() *Refusal {
	for i := range r.segments {
		s := &r.segments[i]
		if s.Argv[0] != "cd" || !s.shell {
			continue
		}
		if s.Negated || s.Operator != And && s.Operator != Then {
			return &Refusal{"cd in this place", 0}
		}
		if i == 0 || r.segments[i-1].Operator == Then {
			s.leaves, s.Operator = true, Then
			continue
		}
		if r.segments[i-1].Operator != And || s.Operator != And {
			return &Refusal{"cd in this place", 0}
		}
		for _, later := range r.segments[i:] {
			if later.Operator == Or || later.Operator == Then {
				return &Refusal{"cd in this place", 0}
			}
		}
	}
	return nil
}

// assignment is NAME=value of a variable that chooses no code.
func (r *lineResolver) assignment(a *syntax.Assign) (string, *Refusal) {
	if a.Append || a.Naked || a.Index != nil || a.Array != nil || a.Name == nil {
		return "", at("an assignment", a.Pos())
	}
	value := ""
	if a.Value != nil {
		list, _, refusal := r.word(a.Value)
		if refusal != nil {
			return "", refusal
		}
		if len(list) != 1 {
			return "", at("an assignment", a.Pos())
		}
		value = list[0]
	}
	if !harmlessAssignment(a.Name.Value, value) {
		return "", at("an assignment of "+a.Name.Value, a.Pos())
	}
	return a.Name.Value + "=" + value, nil
}

// redirect notes what goes to another descriptor or to /dev/null, and a here document.
func (r *lineResolver) redirect(s *Segment, d *syntax.Redirect) *Refusal {
	refusal := at("a redirection", d.OpPos)
	descriptor := ""
	if d.N != nil {
		descriptor = d.N.Value
	}
	if descriptor != "" && descriptor != "0" && descriptor != "1" && descriptor != "2" {
		return refusal
	}
	if d.Op == syntax.Hdoc || d.Op == syntax.DashHdoc || d.Op == syntax.WordHdoc {
		if descriptor != "" && descriptor != "0" || s.Here != nil {
			return refusal
		}
		return r.here(s, d)
	}
	list, _, bad := r.word(d.Word)
	if bad != nil || len(list) != 1 {
		return refusal
	}
	target := list[0]
	switch d.Op {
	case syntax.RdrOut, syntax.AppOut, syntax.RdrClob:
		if target == "/dev/null" {
			s.Redirs = append(s.Redirs, descriptor+">/dev/null")
			return nil
		}
	case syntax.RdrIn:
		if target == "/dev/null" && descriptor == "" {
			s.Redirs = append(s.Redirs, "</dev/null")
			return nil
		}
	case syntax.DplOut:
		// With a space before the digit, or a redirection right behind it, shells differ: it may be
		// the next one's.
		if int(d.Word.Pos().Offset()) == int(d.OpPos.Offset())+len(">&") && !r.before(d.Word.End(), "<>") && (target == "1" || target == "2") && descriptor != "0" {
			s.Redirs = append(s.Redirs, descriptor+">&"+target)
			return nil
		}
	case syntax.RdrAll, syntax.AppAll:
		if target == "/dev/null" && descriptor == "" {
			s.Redirs = append(s.Redirs, ">/dev/null", "2>&1")
			return nil
		}
	}
	return refusal
}

// before says whether one of some signs stands at a place of the line.
func (r *lineResolver) before(pos syntax.Pos, signs string) bool {
	at := int(pos.Offset())
	return at < len(r.text) && strings.IndexByte(signs, r.text[at]) >= 0
}

// here is a document, or a word, that becomes the input.
func (r *lineResolver) here(s *Segment, d *syntax.Redirect) *Refusal {
	if d.Op == syntax.WordHdoc {
		list, _, refusal := r.word(d.Word)
		if refusal != nil || len(list) != 1 {
			return at("a here string", d.OpPos)
		}
		text := list[0] + "\n"
		s.Here = &text
		return nil
	}
	quoted := false
	for _, part := range d.Word.Parts {
		lit, literal := part.(*syntax.Lit)
		quoted = quoted || !literal || strings.Contains(lit.Value, `\`)
	}
	var b strings.Builder
	if d.Hdoc != nil {
		for _, part := range d.Hdoc.Parts {
			lit, ok := part.(*syntax.Lit)
			if !ok || !quoted && strings.ContainsAny(lit.Value, "\\$`") {
				return at("an expansion in a here document", part.Pos())
			}
			b.WriteString(lit.Value)
		}
	}
	text := b.String()
	if d.Op == syntax.DashHdoc && (strings.HasPrefix(text, "\t") || strings.Contains(text, "\n\t")) {
		return at("a here document with tabs", d.OpPos)
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		return at("a here document without an end", d.OpPos)
	}
	s.Here = &text
	return nil
}

// A piece of a word is text that is quoted, or may be a glob.
type piece struct {
	text   string
	quoted bool
}

// word is what becomes of a word: several, where it is a glob.
func (r *lineResolver) word(w *syntax.Word) (list []string, portable bool, _ *Refusal) {
	var pieces []piece
	portable = true
	for i, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			more, refusal := r.literal(part, i == 0, i == len(w.Parts)-1)
			if refusal != nil {
				return nil, false, refusal
			}
			portable = portable && plain(part.Value, "_./:@%+,-=")
			pieces = append(pieces, more...)
		case *syntax.SglQuoted:
			if part.Dollar {
				return nil, false, at("$'…'", part.Pos())
			}
			portable = portable && !strings.ContainsAny(part.Value, "\\\n")
			pieces = append(pieces, piece{part.Value, true})
		case *syntax.DblQuoted:
			text, refusal := r.doubleQuoted(part)
			if refusal != nil {
				return nil, false, refusal
			}
			portable = portable && plain(text, "_./:@%+,-= ")
			pieces = append(pieces, piece{text, true})
		case *syntax.ParamExp:
			value, ok := r.variable(part)
			if !ok || !plain(value, "_./:@%+,-=") || value == "" {
				return nil, false, at(describe(part), part.Pos())
			}
			portable = false
			pieces = append(pieces, piece{value, true})
		default:
			return nil, false, at(describe(part), part.Pos())
		}
	}
	list, refusal := r.expand(pieces, w)
	return list, portable, refusal
}

// variable is the value of a loop's variable, or of HOME.
func (r *lineResolver) variable(p *syntax.ParamExp) (string, bool) {
	if p.Param == nil || p.Excl || p.Length || p.Width || p.Index != nil || p.Slice != nil || p.Repl != nil || p.Exp != nil || p.Names != 0 {
		return "", false
	}
	if p.Param.Value == "PWD" && filepath.IsAbs(r.dir) {
		return r.dir, true
	}
	value, ok := r.variables[p.Param.Value]
	return value, ok
}

// literal takes text outside of quotes apart.
func (r *lineResolver) literal(lit *syntax.Lit, first, last bool) (list []piece, _ *Refusal) {
	value := lit.Value
	var text []byte // of the piece at hand
	quotes := false
	flush := func() {
		if len(text) > 0 {
			list = append(list, piece{string(text), quotes})
			text = text[:0]
		}
	}
	add := func(more string, quoted bool) {
		if quoted != quotes {
			flush()
			quotes = quoted
		}
		text = append(text, more...)
	}
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case c == '\\':
			if i++; i == len(value) || value[i] == '\n' {
				return nil, at("a backslash at the end of a line", lit.Pos())
			}
			char, size := utf8.DecodeRuneInString(value[i:])
			if refusal := refuseRune(char, lit); refusal != nil {
				return nil, refusal
			}
			add(value[i:i+size], true)
			i += size - 1
		case c == '~' && first && i == 0:
			if len(value) > 1 && value[1] != '/' || len(value) == 1 && !last || r.machine.Home == "" {
				return nil, at("~", lit.Pos())
			}
			add(strings.TrimSuffix(r.machine.Home, "/"), true)
		case c == '~' && i > 0 && (value[i-1] == '=' || value[i-1] == ':') && strings.Contains(value[:i], "="):
			return nil, at("~", lit.Pos())
		case c == '$' && !(last && i == len(value)-1):
			return nil, at("$", lit.Pos())
		case c == '{' && strings.HasPrefix(value[i:], "{}"):
			add("{}", true)
			i++
		case c == '{', c == '}':
			return nil, at("a brace", lit.Pos())
		case c == '`', c == '\n':
			return nil, at("unquoted text", lit.Pos())
		case c >= utf8.RuneSelf:
			char, size := utf8.DecodeRuneInString(value[i:])
			if refusal := refuseRune(char, lit); refusal != nil {
				return nil, refusal
			}
			add(value[i:i+size], true)
			i += size - 1
		default:
			add(value[i:i+1], strings.IndexByte("*?[]!^-", c) < 0)
		}
	}
	flush()
	return list, nil
}

// doubleQuoted takes the backslashes out of "…", and puts known variables in.
func (r *lineResolver) doubleQuoted(q *syntax.DblQuoted) (string, *Refusal) {
	if q.Dollar {
		return "", at(`$"…"`, q.Pos())
	}
	var b strings.Builder
	for n, part := range q.Parts {
		if p, ok := part.(*syntax.ParamExp); ok {
			value, known := r.variable(p)
			if !known {
				return "", at(describe(part), part.Pos())
			}
			b.WriteString(value)
			continue
		}
		lit, ok := part.(*syntax.Lit)
		if !ok {
			return "", at(describe(part), part.Pos())
		}
		value := lit.Value
		for i := 0; i < len(value); i++ {
			c := value[i]
			switch c {
			case '\\':
				if i+1 == len(value) || value[i+1] == '\n' {
					return "", at("a backslash at the end of a line", lit.Pos())
				}
				switch value[i+1] {
				case '$', '`', '"', '\\':
					i++
					c = value[i]
				case '!':
					return "", at("!", lit.Pos()) // shells differ
				}
			case '$':
				if n != len(q.Parts)-1 || i != len(value)-1 {
					return "", at("$", lit.Pos())
				}
			case '`':
				return "", at("unquoted text", lit.Pos())
			}
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}

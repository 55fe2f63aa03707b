package policy

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"

	shown "github.com/clairun/clai-sandbox/profile/text"
)

// Bounds of what is analysed. A longer line is refused before it is parsed.
const (
	MaxLine     = 64 << 10 // bytes
	maxSegments = 64
	maxWords    = 4096
	maxBrackets = 1000 // each may be a recursion of the parser's
)

// A Operator is the operator between two commands of a line.
type Operator uint8

const (
	End  Operator = iota // of the line
	And                  // &&
	Or                   // ||
	Then                 // ;
	Pipe                 // |
)

var jointTexts = [...]string{"", "&&", "||", ";", "|"}

func (j Operator) String() string { return nameOf(jointTexts[:], uint8(j)) }

// A Segment is one command of a line: words without any expansion left in them.
type Segment struct {
	Argv         []string
	Operator     Operator // what stands behind it
	HereDocument bool     // text of the line is its input
	// Portable says that every shell reads these words alike, also those whose quoting is not sh's.
	Portable bool

	// What only a line that was resolved has:
	Dir     string   // where it is done
	Negated bool     // ! stands before the pipeline that it begins
	Assigns []string // NAME=value, of this command alone
	Redirs  []string // between descriptors and /dev/null, in order
	Here    *string  // its input, which stands in the line
	shell   bool     // the shell does it itself, and it does no more than its words say
	leaves  bool     // it is cd, and the line ends if it fails
}

// A Refusal is why a line is not plainly understood. It is no mistake of whoever wrote the line.
type Refusal struct {
	What   string `json:"what" jsonschema:"what is not analysed, for a person"`
	Offset int    `json:"offset" jsonschema:"its place in the line, in bytes"`
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("%s at byte %d is not analysed", r.What, r.Offset)
}

// ParseLine takes a shell line apart. It refuses what is not plainly a list of simple commands with
// literal words, joined by && || ; and |: the caller then asks a person. An unknown syntax node is
// refused.
func ParseLine(text string) ([]Segment, *Refusal) {
	file, refusal := parse(text)
	if refusal != nil {
		return nil, refusal
	}
	p := lineParser{text: text}
	if refusal := p.statements(file.Stmts); refusal != nil {
		return nil, refusal
	}
	if refusal := p.newlines(); refusal != nil {
		return nil, refusal
	}
	return p.segments, nil
}

// parse is the tree of a line, which is not too large to be read.
func parse(text string) (*syntax.File, *Refusal) {
	if refusal := refuseBytes(text); refusal != nil {
		return nil, refusal
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		return nil, syntaxRefusal(err)
	}
	return file, nil
}

// refuseBytes keeps away from the parser what shells and parsers are known to read in different
// ways.
func refuseBytes(text string) *Refusal {
	switch {
	case len(text) > MaxLine:
		return &Refusal{fmt.Sprintf("a line of more than %d bytes", MaxLine), MaxLine}
	case !utf8.ValidString(text):
		return &Refusal{"text that is not UTF-8", 0}
	}
	brackets := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c < ' ' && c != '\t' && c != '\n', c == 0x7f:
			return &Refusal{"a control character", i}
		case c == '(', c == '{', c == '`':
			// Wherever they stand: quotes are for the parser to tell.
			if brackets++; brackets > maxBrackets {
				return &Refusal{"a line of so many brackets", i}
			}
		}
	}
	return nil
}

func syntaxRefusal(err error) *Refusal {
	r := &Refusal{What: "a syntax error (" + err.Error() + ")"}
	switch e := err.(type) {
	case syntax.ParseError:
		r.What, r.Offset = "a syntax error ("+e.Text+")", int(e.Pos.Offset())
	case syntax.LangError:
		r.What, r.Offset = "a syntax error ("+e.Feature+")", int(e.Pos.Offset())
	}
	return r
}

type lineParser struct {
	text     string
	segments []Segment
	words    int
	inner    int // newlines that are part of a word or of a here document
	here     bool
}

func (p *lineParser) statements(list []*syntax.Stmt) *Refusal {
	if len(list) == 0 {
		return &Refusal{"a line without a command", 0}
	}
	for i, s := range list {
		last := i == len(list)-1
		switch {
		case last && s.Semicolon.IsValid():
			return at("an operator at the end", s.Semicolon)
		case !last && !s.Semicolon.IsValid():
			return at("a newline between commands", s.End())
		}
		operator := Then
		if last {
			operator = End
		}
		if refusal := p.statement(s, operator); refusal != nil {
			return refusal
		}
	}
	return nil
}

// statement adds the commands of s, of which the last has operator behind it.
func (p *lineParser) statement(s *syntax.Stmt, operator Operator) *Refusal {
	switch {
	case s.Background:
		return at("&", s.Pos())
	case s.Coprocess:
		return at("|&", s.Pos())
	case s.Disown:
		return at("&!", s.Pos())
	case s.Negated:
		return at("!", s.Pos())
	}
	here, refusal := p.redirections(s.Redirs)
	if refusal != nil {
		return refusal
	}
	switch cmd := s.Cmd.(type) {
	case *syntax.CallExpr:
		return p.call(cmd, operator, here)
	case *syntax.BinaryCmd:
		if here {
			return at("a here document", s.Pos())
		}
		return p.binary(cmd, operator)
	case *syntax.TimeClause:
		if here || cmd.Stmt == nil {
			return at("time", s.Pos())
		}
		return p.time(cmd, operator)
	case nil:
		return at("a redirection without a command", s.Pos())
	default:
		return at(describe(cmd), s.Pos())
	}
}

// time reads bash's keyword as the program of that name: it is a wrapper around one command. sh has
// no such keyword.
func (p *lineParser) time(cmd *syntax.TimeClause, operator Operator) *Refusal {
	if timesDeep(cmd) {
		return at("time within time", cmd.Pos())
	}
	first := len(p.segments)
	if refusal := p.statement(cmd.Stmt, operator); refusal != nil {
		return refusal
	}
	words := []string{"time"}
	if cmd.PosixFormat {
		words = append(words, "-p")
	}
	p.segments[first].Argv = append(words, p.segments[first].Argv...)
	return nil
}

// timesDeep says whether time stands before time more often than wrappers are looked through.
func timesDeep(cmd *syntax.TimeClause) bool {
	for range maxWrappers + 1 {
		if cmd.Stmt == nil {
			return false
		}
		inner, ok := cmd.Stmt.Cmd.(*syntax.TimeClause)
		if !ok {
			return false
		}
		cmd = inner
	}
	return true
}

func (p *lineParser) binary(cmd *syntax.BinaryCmd, operator Operator) *Refusal {
	var between Operator
	switch cmd.Op {
	case syntax.AndStmt:
		between = And
	case syntax.OrStmt:
		between = Or
	case syntax.Pipe:
		between = Pipe
	default:
		return at(cmd.Op.String(), cmd.OpPos)
	}
	if refusal := p.statement(cmd.X, between); refusal != nil {
		return refusal
	}
	return p.statement(cmd.Y, operator)
}

// redirections lets here documents pass, whose text is given in the line; a person is asked all the
// same. Every other redirection opens a file.
func (p *lineParser) redirections(list []*syntax.Redirect) (here bool, _ *Refusal) {
	for _, r := range list {
		if (r.Op != syntax.Hdoc && r.Op != syntax.DashHdoc) || r.N != nil || p.here {
			return false, at("a redirection", r.OpPos)
		}
		here, p.here = true, true
		if r.Hdoc == nil { // without a line
			continue
		}
		for _, part := range r.Hdoc.Parts {
			lit, ok := part.(*syntax.Lit)
			if !ok {
				return false, at("an expansion in a here document", part.Pos())
			}
			p.inner += strings.Count(lit.Value, "\n")
		}
	}
	return here, nil
}

func (p *lineParser) call(cmd *syntax.CallExpr, operator Operator, here bool) *Refusal {
	if len(cmd.Assigns) > 0 {
		return at("an assignment", cmd.Assigns[0].Pos())
	}
	if len(cmd.Args) == 0 {
		return at("a line without a command", cmd.Pos())
	}
	p.words += len(cmd.Args)
	if p.words > maxWords || len(p.segments) == maxSegments {
		return at("a line of so many words", cmd.Pos())
	}
	s := Segment{Argv: make([]string, 0, len(cmd.Args)), Operator: operator, HereDocument: here, Portable: !here}
	for _, word := range cmd.Args {
		text, portable, refusal := p.word(word)
		if refusal != nil {
			return refusal
		}
		s.Argv = append(s.Argv, text)
		s.Portable = s.Portable && portable
	}
	if s.Argv[0] == "" {
		return at("an empty command name", cmd.Pos())
	}
	if changesTheShell(s.Argv[0]) {
		return at("the shell's own "+s.Argv[0], cmd.Pos())
	}
	p.segments = append(p.segments, s)
	return nil
}

// word is the text of a word that has nothing left to expand.
func (p *lineParser) word(w *syntax.Word) (text string, portable bool, _ *Refusal) {
	var b strings.Builder
	portable = true
	for i, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			literal, refusal := unquoted(part, i == len(w.Parts)-1)
			if refusal != nil {
				return "", false, refusal
			}
			portable = portable && plain(part.Value, "_./:@%+,-=")
			b.WriteString(literal)
		case *syntax.SglQuoted:
			if part.Dollar {
				return "", false, at("$'…'", part.Pos())
			}
			p.inner += strings.Count(part.Value, "\n")
			portable = portable && !strings.ContainsAny(part.Value, "\\\n")
			b.WriteString(part.Value)
		case *syntax.DblQuoted:
			literal, refusal := doubleQuoted(part)
			if refusal != nil {
				return "", false, refusal
			}
			portable = portable && plain(literal, "_./:@%+,-= ")
			b.WriteString(literal)
		default:
			return "", false, at(describe(part), part.Pos())
		}
	}
	return b.String(), portable, nil
}

// plain says whether text has only letters, digits and the given bytes.
func plain(text, also string) bool {
	for i := 0; i < len(text); i++ {
		c := text[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && strings.IndexByte(also, c) < 0 {
			return false
		}
	}
	return true
}

// unquoted takes the backslashes out of text outside of quotes, and refuses what a shell would do
// more with.
func unquoted(lit *syntax.Lit, last bool) (string, *Refusal) {
	value := lit.Value
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch c {
		case '\\':
			if i++; i == len(value) || value[i] == '\n' {
				return "", at("a backslash at the end of a line", lit.Pos())
			}
			r, size := utf8.DecodeRuneInString(value[i:])
			if refusal := refuseRune(r, lit); refusal != nil {
				return "", refusal
			}
			b.WriteString(value[i : i+size])
			i += size - 1
			continue
		case '$':
			if !last || i != len(value)-1 {
				return "", at("$", lit.Pos())
			}
		case '*', '?', '[':
			return "", at("a glob", lit.Pos())
		case '~':
			return "", at("~", lit.Pos())
		case '!':
			return "", at("!", lit.Pos())
		case '{':
			// "{}" is what find and xargs replace; no shell expands it.
			if !strings.HasPrefix(value[i:], "{}") {
				return "", at("a brace", lit.Pos())
			}
			b.WriteString("{}")
			i++
			continue
		case '}':
			return "", at("a brace", lit.Pos())
		case '`', '\n':
			return "", at("unquoted text", lit.Pos())
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(value[i:])
			if refusal := refuseRune(r, lit); refusal != nil {
				return "", refusal
			}
			b.WriteString(value[i : i+size])
			i += size - 1
			continue
		}
		b.WriteByte(c)
	}
	return b.String(), nil
}

// refuseRune refuses what looks like a space or like nothing, where a reader takes it for the end
// of a word.
func refuseRune(r rune, lit *syntax.Lit) *Refusal {
	if r >= utf8.RuneSelf && shown.Hidden(r) {
		return at("an invisible character outside of quotes", lit.Pos())
	}
	return nil
}

// doubleQuoted takes the backslashes out of "…".
func doubleQuoted(q *syntax.DblQuoted) (string, *Refusal) {
	if q.Dollar {
		return "", at(`$"…"`, q.Pos())
	}
	var b strings.Builder
	for n, part := range q.Parts {
		lit, ok := part.(*syntax.Lit)
		if !ok {
			return "", at(describe(part), part.Pos())
		}
		value := lit.Value
		for i := 0; i < len(value); i++ {
			c := value[i]
			switch c {
			case '\\':
				if i+1 == len(value) {
					return "", at("a backslash at the end of a line", lit.Pos())
				}
				switch value[i+1] {
				case '$', '`', '"', '\\':
					i++
					c = value[i]
				case '!':
					return "", at("!", lit.Pos()) // bash and sh differ
				}
			case '$':
				if n != len(q.Parts)-1 || i != len(value)-1 {
					return "", at("$", lit.Pos())
				}
			case '!':
				return "", at("!", lit.Pos())
			case '`', '\n':
				return "", at("a newline in double quotes", lit.Pos())
			}
			b.WriteByte(c)
		}
	}
	return b.String(), nil
}

// newlines refuses a newline that separates commands or continues a line. Those in single quotes
// and in a here document were counted.
func (p *lineParser) newlines() *Refusal {
	all := strings.Count(p.text, "\n")
	if p.here {
		// The one behind the command, and the one behind the closing word, if there is one.
		if rest := all - p.inner; rest == 1 || rest == 2 && strings.HasSuffix(p.text, "\n") {
			return nil
		}
		return &Refusal{"a newline", strings.IndexByte(p.text, '\n')}
	}
	if all != p.inner {
		return &Refusal{"a newline", strings.IndexByte(p.text, '\n')}
	}
	return nil
}

func at(what string, pos syntax.Pos) *Refusal { return &Refusal{what, int(pos.Offset())} }

// describe names a syntax node for a person.
func describe(node syntax.Node) string {
	switch node.(type) {
	case *syntax.CmdSubst:
		return "$( )"
	case *syntax.ParamExp:
		return "$VARIABLE"
	case *syntax.ArithmExp, *syntax.ArithmCmd:
		return "arithmetic"
	case *syntax.ProcSubst:
		return "<( )"
	case *syntax.ExtGlob:
		return "a glob"
	case *syntax.Subshell:
		return "( )"
	case *syntax.Block:
		return "{ }"
	case *syntax.FuncDecl:
		return "a function"
	case *syntax.DeclClause, *syntax.LetClause:
		return "a declaration"
	case *syntax.IfClause, *syntax.WhileClause, *syntax.ForClause, *syntax.CaseClause:
		return "control flow"
	case *syntax.TestClause:
		return "[[ ]]"
	default:
		return "shell syntax"
	}
}

// changesTheShell names the commands that a shell runs itself and that change how it goes on, or
// what the next words mean. What a shell has built in that does no more than the program of the
// same name (echo, printf, test, kill) is not here: the program is what runs.
func changesTheShell(name string) bool {
	switch name {
	case ".", ":", "alias", "bg", "bind", "break", "builtin", "caller", "cd", "chdir", "command", "compgen", "complete", "compopt",
		"continue", "coproc", "declare", "dirs", "disown", "enable", "eval", "exec", "exit", "export", "fc", "fg", "function",
		"getopts", "hash", "help", "history", "jobs", "let", "local", "logout", "mapfile", "popd", "pushd", "read", "readarray",
		"readonly", "return", "select", "set", "shift", "shopt", "source", "suspend", "times", "trap", "type", "typeset",
		"ulimit", "umask", "unalias", "unset", "until", "wait":
		return true
	}
	return false
}

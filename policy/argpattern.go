package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// argHashPrefix begins an argument pattern that is no expression, but the hash of one working
// directory and one list of arguments.
const argHashPrefix = "sha256:cwd-argv:v1:"

// hashArguments binds an entry to exactly these arguments in exactly this directory.
func hashArguments(cwd string, args []string) string {
	var b strings.Builder
	field := func(text string) {
		b.WriteString(strconv.Itoa(len(text)))
		b.WriteByte(0)
		b.WriteString(text)
		b.WriteByte(0)
	}
	field(cwd)
	b.WriteString(strconv.Itoa(len(args)))
	b.WriteByte(0)
	for _, arg := range args {
		field(arg)
	}
	sum := sha256.Sum256([]byte(b.String()))
	return argHashPrefix + hex.EncodeToString(sum[:])
}

// An ArgPattern says which arguments an entry is for. The zero value is for none.
type ArgPattern struct {
	hash       string
	expression *regexp.Regexp
	nul        bool // the expression names the end of each argument
}

// NewArgPattern reads an argument pattern. An expression is anchored at both ends, whatever it
// says.
func NewArgPattern(text string) (ArgPattern, error) {
	if strings.HasPrefix(text, argHashPrefix) {
		if len(text) != len(argHashPrefix)+64 {
			return ArgPattern{}, errors.New("the hash is not whole")
		}
		return ArgPattern{hash: text}, nil
	}
	expression, err := anchored(text)
	if err != nil {
		return ArgPattern{}, err
	}
	if err := unambiguous(text); err != nil {
		return ArgPattern{}, err
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return ArgPattern{}, err
	}
	if !namesEnd(tree) {
		return ArgPattern{expression: expression}, nil
	}
	// What stands for any character, or for all but some, does not stand for an argument's end:
	// that must be written.
	withoutEnd(tree)
	expression, err = regexp.Compile(`\A(?:` + tree.String() + `)\z`)
	return ArgPattern{expression: expression, nul: true}, err
}

// namesEnd says whether an expression names the end of an argument, which is a zero byte.
func namesEnd(node *syntax.Regexp) bool {
	return node.Op == syntax.OpLiteral && slices.Contains(node.Rune, 0) || node.Op == syntax.OpCharClass && len(node.Rune) == 2 && node.Rune[0] == 0 && node.Rune[1] == 0 ||
		slices.ContainsFunc(node.Sub, namesEnd)
}

// withoutEnd takes the zero byte out of all that stands for several characters.
func withoutEnd(node *syntax.Regexp) {
	switch node.Op {
	case syntax.OpAnyChar:
		node.Op, node.Rune = syntax.OpCharClass, []rune{1, 0x10ffff}
	case syntax.OpAnyCharNotNL:
		node.Op, node.Rune = syntax.OpCharClass, []rune{1, '\n' - 1, '\n' + 1, 0x10ffff}
	case syntax.OpCharClass:
		if len(node.Rune) >= 2 && node.Rune[0] == 0 && (len(node.Rune) > 2 || node.Rune[1] > 0) {
			if node.Rune[0]++; node.Rune[0] > node.Rune[1] {
				node.Rune = node.Rune[2:]
			}
		}
	}
	for _, sub := range node.Sub {
		withoutEnd(sub)
	}
}

// Match says whether the arguments behind the program's name, in this working directory, are those
// that were meant.
func (p ArgPattern) Match(cwd string, args []string) bool {
	return p.match(args, func() string { return hashArguments(cwd, args) })
}

// match takes the hash from whoever has it already: a list may hold a thousand of them.
func (p ArgPattern) match(args []string, hash func() string) bool {
	switch {
	case p.hash != "":
		return p.hash == hash() // it is no secret
	case p.expression == nil:
		return false
	case p.nul:
		if slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, "\x00") }) {
			return false
		}
		return p.expression.MatchString(strings.Join(args, "\x00") + "\x00")
	}
	// Joined by spaces, ["a b"] and ["a", "b"] would be the same text: an argument with space in it
	// is never meant.
	for _, arg := range args {
		if arg == "" || strings.ContainsAny(arg, " \t\n\r\v\f") {
			return false
		}
	}
	return p.expression.MatchString(strings.Join(args, " "))
}

// denies says whether the arguments may be those that a deny entry means. What the pattern cannot
// be held against, since joined by spaces it would be another list of arguments too, is denied; it
// is tried joined as well.
func (p ArgPattern) denies(args []string, hash func() string) bool {
	switch {
	case p.hash != "":
		return p.match(args, hash)
	case p.expression == nil:
		return true
	case p.nul:
		return p.match(args, hash) || slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, "\x00") })
	}
	ambiguous := slices.ContainsFunc(args, func(arg string) bool { return arg == "" || strings.ContainsFunc(arg, unicode.IsSpace) })
	return ambiguous || p.expression.MatchString(strings.Join(args, " "))
}

// maxExpression bounds what a person may write, in bytes.
const maxExpression = 4096

// anchored compiles an expression so that it matches the whole text or nothing.
func anchored(text string) (*regexp.Regexp, error) {
	if len(text) > maxExpression {
		return nil, fmt.Errorf("the expression is longer than %d bytes", maxExpression)
	}
	// By itself first: "a)|(b" is an expression only between the parentheses.
	if _, err := syntax.Parse(text, syntax.Perl); err != nil {
		return nil, err
	}
	return regexp.Compile(`\A(?:` + text + `)\z`)
}

// unambiguous refuses expressions that an engine with backtracking may take for ever for:
// repetitions within repetitions, and two of the same characters with nothing between them. Ours is
// linear in any case, but the file is shared with programs whose engine is not, and such an
// expression is a mistake.
func unambiguous(text string) error {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return err
	}
	return ambiguity(tree, false)
}

func ambiguity(node *syntax.Regexp, repeated bool) error {
	if repeats(node) {
		if repeated {
			return errors.New("a repetition within a repetition")
		}
		repeated = true
	}
	if node.Op == syntax.OpConcat {
		if err := neighbours(node.Sub); err != nil {
			return err
		}
	}
	for _, sub := range node.Sub {
		if err := ambiguity(sub, repeated); err != nil {
			return err
		}
	}
	return nil
}

func repeats(node *syntax.Regexp) bool {
	return node.Op == syntax.OpStar || node.Op == syntax.OpPlus || node.Op == syntax.OpRepeat && (node.Max < 0 || node.Max > 1)
}

func neighbours(list []*syntax.Regexp) error {
	for i, a := range list {
		if !repeats(a) {
			continue
		}
		for _, b := range list[i+1:] {
			if repeats(b) && overlap(runes(a), runes(b)) {
				return errors.New("two repetitions of the same characters with nothing between them")
			}
			if !optional(b) {
				break
			}
		}
	}
	return nil
}

// optional says whether a node may match nothing.
func optional(node *syntax.Regexp) bool {
	switch node.Op {
	case syntax.OpStar, syntax.OpQuest, syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return true
	case syntax.OpRepeat:
		return node.Min == 0 || optional(node.Sub[0])
	case syntax.OpPlus, syntax.OpCapture:
		return optional(node.Sub[0])
	case syntax.OpConcat:
		return !slices.ContainsFunc(node.Sub, func(sub *syntax.Regexp) bool { return !optional(sub) })
	case syntax.OpAlternate:
		return slices.ContainsFunc(node.Sub, optional)
	}
	return false
}

// runes are the ranges of all characters that a node may match.
func runes(node *syntax.Regexp) []rune {
	switch node.Op {
	case syntax.OpLiteral:
		var list []rune
		for _, r := range node.Rune {
			list = append(list, r, r)
			if node.Flags&syntax.FoldCase != 0 {
				list = append(list, []rune(strings.ToLower(string(r)))[0], []rune(strings.ToLower(string(r)))[0])
			}
		}
		return list
	case syntax.OpCharClass:
		return node.Rune
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return []rune{0, 0x10ffff}
	}
	var list []rune
	for _, sub := range node.Sub {
		list = append(list, runes(sub)...)
	}
	return list
}

func overlap(a, b []rune) bool {
	for i := 0; i+1 < len(a); i += 2 {
		for j := 0; j+1 < len(b); j += 2 {
			if a[i] <= b[j+1] && b[j] <= a[i+1] {
				return true
			}
		}
	}
	return false
}

package policy

import (
	"fmt"
	"strings"
	"testing"
)

func TestALineOfPlainCommandsIsTakenApart(t *testing.T) {
	for line, want := range map[string]string{
		"rg a":                          `["rg" "a"]`,
		"rg a && git b || c; d | e":     `["rg" "a"] && ["git" "b"] || ["c"] ; ["d"] | ["e"]`,
		"a | b && c | d":                `["a"] | ["b"] && ["c"] | ["d"]`,
		`r\g "a b" 'c d' e\ f`:          `["rg" "a b" "c d" "e f"]`,
		`rg "a\$b" "\"" "\\" "\x"`:      `["rg" "a$b" "\"" "\\" "\\x"]`,
		`rg 'a'"b"c`:                    `["rg" "abc"]`,
		`rg '' ""`:                      `["rg" "" ""]`,
		"rg a$ \"b$\"":                  `["rg" "a$" "b$"]`,
		"rg 'a\nb'":                     `["rg" "a\nb"]`,
		"rg a # ; curl x":               `["rg" "a"]`,
		"rg a#b":                        `["rg" "a#b"]`,
		"time -p rg a | b":              `["time" "-p" "rg" "a"] | ["b"]`,
		"find . -exec ls {} \\;":        `["find" "." "-exec" "ls" "{}" ";"]`,
		"rg 'ü' ü":                      `["rg" "ü" "ü"]`,
		"cat <<'EOF'\n$(id)\nEOF":       `["cat"]`,
		"cat <<EOF | wc -l\nplain\nEOF": `["cat"] | ["wc" "-l"]`,
	} {
		segments, refusal := ParseLine(line)
		if refusal != nil {
			t.Errorf("%q: %v", line, refusal)
			continue
		}
		var got []string
		for _, s := range segments {
			got = append(got, fmt.Sprintf("%q", s.Argv))
			if s.Operator != End {
				got = append(got, s.Operator.String())
			}
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%q: %s, want %s", line, text, want)
		}
	}
}

func TestWhatIsNotPlainlyUnderstoodIsRefused(t *testing.T) {
	for _, line := range []string{
		"", " ", "# a", "a &", "a & b", "a |& b", "a;", "a ;; b", "a &&", "&& a", "| a", "a |", "! a",
		"a > f", "a >> f", "a < f", "a 2>&1", "a &> f", "a <<< x", "a <> f", "> f", "a 3<<EOF\nx\nEOF",
		"a $(b)", "a `b`", `a "$(b)"`, "a \"`b`\"", "a <(b)", "a >(b)", "a $x", `a "$x"`, "a ${x}", "a $((1))", "a $'x'", `a $"x"`,
		"a *", "a ?", "a [b]", "a ~", "a ~/x", "a x=~/y", "a {b,c}", "a {1..3}", "a !b", `a "!b"`, "a @(b)",
		"x=1", "x=1 a", "x+=1 a", "x[1]=2 a", "(a)", "{ a; }", "f() { a; }", "if a; then b; fi", "for i in a; do b; done",
		"while a; do b; done", "case a in b) c;; esac", "[[ a ]]", "((1))", "let a", "declare a", "coproc a", "function f { a; }",
		"a\nb", "a \\\n b", "\"a\nb\"", "a\n", "\na", "a\rb", "a\x00b", "a\x01", "a\x7f", "a\xff",
		"cd /", "export A=1", "eval a", ". a", "source a", "exec a", "set -e", "alias a=b", "command a", "builtin a", "trap a EXIT",
		`"cd" /`, `c\d /`, "unset a", "a && cd /", "a; eval b",
		"cat <<EOF\n$x\nEOF", "cat <<EOF\n$(x)\nEOF", "cat <<EOF\n`x`\nEOF", "cat <<EOF\nx", "cat <<EOF\nx\nEOF\ncurl y",
		"cat <<A <<B\nx\nA\ny\nB", "cat <<E &&\nx\nE\ncurl y", "cat <<E |\nx\nE\ncurl y", "cat <<E\nx\nE\n\n", "a > f\n", "a < f\n", "a <<< f\n", "'' a", `"" a`, "a\u00a0b", "a\u200bb", "a\u202eb", "a \\", "'a", `"a`, "a 'b",
		strings.Repeat("a ", MaxLine), "a " + strings.Repeat("b ", maxWords+1), "a" + strings.Repeat(";a", maxSegments),
	} {
		if segments, refusal := ParseLine(line); refusal == nil {
			t.Errorf("%.60q is taken for %v", line, segments)
		}
	}
}

package policy

import (
	"strings"
	"testing"
)

func TestALineIsResolvedIntoWhatIsShown(t *testing.T) {
	tr := newTree(t, "rg", "git", "cat", "make", "cmake", "python3", "sh")
	for _, name := range []string{"a.go", "b.go", "sub/c.go", ".h", "-x", "it's"} {
		tr.write("work/"+name, "", 0o644)
	}
	tr.link("sub", "work/link")
	p := tr.policy("rg", "git", "cat", "make", "python3")
	for line, want := range map[string]string{
		"rg a 2>&1 | cat":                        "RG 'a' 2>&1 | CAT",
		"rg a >/dev/null 2>/dev/null":            "RG 'a' >/dev/null 2>/dev/null",
		"rg a &>/dev/null":                       "RG 'a' >/dev/null 2>&1",
		"cd sub && rg a; git status":             "cd 'DIR/work/sub' || exit 1 ; RG 'a' ; GIT 'status'",
		"git status && cd sub && rg *":           "GIT 'status' && cd 'DIR/work/sub' && RG 'c.go'",
		"cd sub/.. && rg *.go":                   "cd 'DIR/work' || exit 1 ; RG 'a.go' 'b.go'",
		"FOO=1 rg a":                             "FOO='1' RG 'a'",
		"rg *.go ~/x $HOME \"$PWD\"":             "RG 'a.go' 'b.go' 'DIR/home/x' 'DIR/home' 'DIR/work'",
		"rg nothing*":                            "RG 'nothing*'",
		"rg '*' \\*":                             "RG '*' '*'",
		"rg [ab].go":                             "RG 'a.go' 'b.go'",
		"! rg a\nrg b":                           "! RG 'a' ; RG 'b'",
		"for x in *.go; do rg \"$x\" ${x}; done": "RG 'a.go' 'a.go' ; RG 'b.go' 'b.go'",
		"cat <<'EOF' && rg a\n$(id) END\nEOF":    "CAT <<'END' && RG 'a'\n$(id) END\nEND",
		"cat <<E\nEND\nE":                        "CAT <<'END_'\nEND\nEND_",
		"cat <<< 'a b'":                          "CAT <<'END'\na b\nEND",
		"git commit -m \"fix: foo!\"":            "GIT 'commit' '-m' 'fix: foo!'",
		"git commit -m \"a\n\nb\"":               "GIT 'commit' '-m' 'a\n\nb'",
		"git diff HEAD~1 HEAD^":                  "GIT 'diff' 'HEAD~1' 'HEAD^'",
		"true && rg a":                           "true && RG 'a'",
		"rg a || exit 1; rg b":                   "RG 'a' || exit '1' ; RG 'b'",
		"set -e\nrg a":                           "set '-e' ; RG 'a'",
	} {
		want = strings.NewReplacer("RG", "'DIR/bin/rg'", "GIT", "'DIR/bin/git'", "CAT", "'DIR/bin/cat'").Replace(want)
		want = strings.ReplaceAll(want, "DIR", tr.dir)
		if d := tr.decide(p, line); d.Verdict != Run || d.Command != want {
			t.Errorf("%q: %v\n%s\nnot\n%s\n%s", line, d.Verdict, d.Command, want, strings.Join(d.Lines(), "\n"))
		}
	}
}

func TestWhatIsNotResolvedIsAskedAbout(t *testing.T) {
	tr, p := everything(t)
	tr.write("work/sub/c.go", "", 0o644)
	tr.link("sub", "work/link")
	for name, lines := range map[string][]string{
		"files":       {"rg a > f", "rg a >> f", "rg a 2> f", "rg a < f", "rg a >| f", "rg a &> f", "rg a >&f", "rg a 3>&1", "rg a <&0", "rg a 2>& 1>/dev/null", "rg a 2>&1>/dev/null", "rg a > /dev/null/x", "rg a > /dev/tty", "rg a <> f", "rg a 2>&-", "{ rg a; } 2>&1", "rg a > $HOME/f", "rg a > ~/f", "rg a >'/dev/nul'"},
		"directories": {"cd", "cd -", "cd link && rg a", "cd nosuch && rg a", "cd f && rg a", "cd sub", "cd sub | rg a", "rg a | cd sub && rg b", "rg a || cd sub && rg b", "rg a && cd sub; rg b", "cd sub || rg a", "cd sub && rg a & rg b", "cd a b && rg c", "cd -P sub && rg a", "cd $X && rg a", "pushd sub && rg a", "(cd sub && rg a)", "! cd sub && rg a", "cd nosuch/.. && rg a", "for x in sub; do cd $x && rg a; done", "if cd sub; then rg a; fi", "CDPATH=/ cd sub && rg a", "cd '' && rg a"},
		"assignments": {"PATH=. rg a", "LD_PRELOAD=x rg a", "A=b", "A=b; rg a", "A=$(id) rg a", "A=./evil make", "CC=evil make", "MAKEFLAGS=x make", "GIT_PAGER='sh -c id' git log", "GIT_EDITOR=./evil git log", "A+=b rg a", "A[0]=b rg a", "A=(b) rg a", "export A=b; rg a", "BASH_ENV=x rg a", "HARNESS_PERL_SWITCHES=x perl a", "NODE_OPTIONS=x node a.js", "PYTHONPATH=x python3 a.py", "GOFLAGS=x go test", "RUSTFLAGS=x cargo test", "EDITOR=id git log", "A=~/x rg a", "A=b env rg a", "A=b nice rg a", "ZIPOPT=-T zip a b", "PS4=x rg a", "IFS=x rg a", "HOME=. git log", "1A=b rg a", "DEBUG=/x node a.js"},
		"globs":       {"rg .*", "rg [a-z]*", "rg [!a]*", "rg [[:alpha:]]*", "rg @(a)", "rg ?(a)", "rg {a,b}", "rg {1..3}", "rg ~root/x", "rg ~+", "rg a=~/x", "rg [^a]*", "rg ['a'-z]*"},
		"expansions":  {"rg $X", "rg \"$X\"", "rg ${HOME%x}", "rg ${HOME:-x}", "rg ${#HOME}", "rg ${!HOME}", "rg $(id)", "rg `id`", "rg $((1))", "rg $1", "rg \"$@\"", "rg $?", "rg $'a'", "rg <(id)", "for x in $Y; do rg $x; done", "for x in $(ls); do rg $x; done", "for x in a 'b c'; do rg $x; done", "for x in a; do rg $x; done; rg $x", "for ((i=0;i<2;i++)); do rg a; done", "for x; do rg $x; done", "select x in a; do rg $x; done", "for PATH in a; do rg $PATH; done", "for HOME in a; do rg $HOME; done", "while true; do rg a; done", "for x in a; do eval $x; done", "for x in a; do break; done", "for x in rm; do $x f; $(x); done", "for x in a; do rg $x; done | cat", "for x in a; do rg $x; done > f", "for x in a; do rg a; done &"},
		"documents":   {"cat <<EOF\n$X\nEOF", "cat <<EOF\n$(id)\nEOF", "cat <<EOF\n`id`\nEOF", "cat <<EOF\n\\$x\nEOF", "python3 <<'EOF'\nimport os\nEOF", "sh <<'EOF'\nid\nEOF", "bash -s <<'EOF'\nid\nEOF", "ssh h <<'EOF'\nid\nEOF", "cat <<'EOF' | sh\nid\nEOF", "make -f - <<'EOF'\nx:\nEOF", "git apply <<'EOF'\nx\nEOF", "xargs rg <<'EOF'\n--pre=x\nEOF", "patch <<'EOF'\nx\nEOF", "at now <<'EOF'\nid\nEOF", "cat <<A <<B\na\nA\nb\nB", "cat 3<<E\na\nE", "node <<< 'x'", "perl - <<< x", "sed -f - f <<< e", "sqlite3 x <<< '.shell id'"},
		"operators":   {"rg a &", "rg a & rg b", "rg a |& cat", "rg a;; rg b", "! ! rg a", "coproc rg a", "rg a # \\\ngit log", "exec rg a", "command rg a", "builtin cd", "set -x; rg a", "set -- a; rg a", "trap id EXIT; rg a", "exit x; rg a", "exit 1 | rg a", "f() { rg a; }; f", "[[ -f x ]]", "((1))", "let x=1", "rg a \x01", "time time time time time time rg a", "command -v $(id)", "command -v -p rg", "alias rg=id\nrg a", "wait", ": > f", "true > f"},
	} {
		for _, line := range lines {
			if d := tr.decide(p, line); d.Verdict != AskPerson {
				t.Errorf("%s: %q: %v %s\n%s", name, line, d.Verdict, d.Command, strings.Join(d.Lines(), "\n"))
			}
		}
	}
}

package policy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// What the tables and the parsers of small languages take for harmless is executed, in a sandbox
// and under strace: it must execute nothing but itself and what is named here, and leave no file
// but those that the program is for.

// executed are programs that are tried where they are installed: what they may start (compressors),
// and whether they write files.
var executed = map[string]struct {
	helpers string
	writes  bool
}{
	"sed": {writes: true}, "awk": {}, "gawk": {}, "mawk": {}, "jq": {}, "sort": {}, "split": {writes: true}, "diff": {}, "find": {writes: true}, "less": {}, "date": {}, "install": {writes: true}, "cpio": {writes: true}, "rg": {}, "fd": {},
	"tar": {"gzip bzip2 xz zstd lzma lzip lzop compress", true}, "zip": {writes: true}, "pkg-config": {}, "git": {"git", true},
}

// pieces of programs of small languages: some are dangerous, and must be refused where they count.
var pieces = map[string][]string{
	"sed": {"s", "/", "a", "b", "g", "p", "e", "w", "W", "r", "R", "{", "}", ";", "\n", "1", ",", "$", "!", "d", "n", "N", "y", "[", "]", "^", "\\", "|", "&", "I", "M", "=", "q", "l", ":x", "bx", "tx", "a text", "i\\\n", "c x", "#", "~", "+2", " ", "s/a/b/", "s/[/]/x/", "s,a,b,", "/a/", "\\,a,", "1~2", "s/a/touch pwned/", "e touch pwned", "w pwned", "s/./touch pwned/e", "s/a/b/w pwned\n", "F", "z", "x", "[^/]", "[[:alpha:]]", "\\n", "\\/", "T", "D", "G"},
	"awk": {"{", "}", "print", "printf", "\"touch pwned\"", "\"pwned\"", "|", ">", ">>", "getline", "system(", ")", "(", "/", "a", "$1", "$0", "1", ";", "\n", ",", "~", "!", "!=", "==", "/re/", "/[/]/", "\"a\"", "\\", "#", "BEGIN", "END", "x", "=", "+", "-", "++", "length", "in", "[", "]", "function f(x)", "f(1)", "if(", "else", "while(", "for(;;)", "?", ":", "&&", "||", "<", "close(\"pwned\")", "print > \"pwned\"", "print | \"touch pwned\"", "system(\"touch pwned\")", "\"touch pwned\" | getline", "@", "%", "1system(\"touch pwned\")", "ENVIRON", "sub(/a/,\"b\")", "substr($0,1,2)", "return", "next", "exit", "delete a", "\"\\\"\"", "'", "|&", "1/2", "a/b", ")/c/"},
	"jq":  {".", "a", "|", ",", "(", ")", "[", "]", "{", "}", "env", "$ENV", "$", "ENV", "\"", "\\(", "\\", "input", "import \"x\" as y;", "include \"x\";", "def f:", ";", "f", "1", "+", "-", "map(", "select(", ".a", ".env", "..", "#", "\n", "@base64", "@sh", "reduce", "as", "$x", "if", "then", "else", "end", "try", "?", "//", "==", "not", "empty", "$__loc__", "$__prog_args", "input_filename", "debug", "error", "keys", ":", "getpath([\"a\"])", "\"\\(env)\"", "label", "break", "limit(1;", "range(3)", "tojson", "modulemeta", "get_search_list", " "},
}

func TestWhatIsTakenForHarmlessExecutesNothing(t *testing.T) {
	for _, name := range []string{"bwrap", "strace"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("it cannot be tried: %v", err)
		}
	}
	dir, err := os.MkdirTemp("/var/tmp", "policy-executes")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if out, err := traced(dir, "true").CombinedOutput(); err != nil {
		t.Skipf("nothing can be traced here: %v: %s", err, out)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var names []string
	for name := range executed {
		if _, err := exec.LookPath(name); err == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Clone(names) { // the parsers of languages are tried most
		if pieces[programOf(name).operands] != nil {
			names = append(names, name, name, name, name)
		}
	}
	lines, ran := 0, map[string]int{}
	for end := time.Now().Add(*shellsFor); time.Now().Before(end) && !t.Failed(); {
		name := names[random.IntN(len(names))]
		argv := append([]string{name}, randomWords(random, name)...)
		lines++
		if u := understand([]string{name}, argv, circumstance{}); u.inline != nil {
			continue
		}
		ran[name]++
		tryExecuting(t, dir, argv)
	}
	t.Logf("%d lines, of which ran: %v", lines, ran)
}

// randomWords are words by a program's table: more harmless options than others, with values and
// operands.
func randomWords(random *rand.Rand, name string) (argv []string) {
	p := programOf(name)
	if p.operands == "sub" {
		subs := []string{"status", "log", "diff", "show", "branch", "tag", "ls-files", "grep", "describe", "blame", "rev-parse", "shortlog", "reflog", "cat-file", "for-each-ref", "stash", "config", "archive", "remote", "ls-tree"}
		sub := subs[random.IntN(len(subs))]
		argv = append(argv, sub)
		if p = programs()[name+" "+sub]; p == nil {
			return argv
		}
	}
	var options []string
	for option := range p.table {
		options = append(options, option)
	}
	slices.Sort(options)
	value := func(kind string) string {
		if list := pieces[kind]; list != nil {
			return madeUp(random, list)
		}
		return []string{"1", "f", "a", "sub", "touch pwned", "./evil", "x=y", "pwned", "10", "-1", "%p", "HEAD"}[random.IntN(12)]
	}
	for range random.IntN(4) {
		if len(options) == 0 {
			break
		}
		o := p.table[options[random.IntN(len(options))]]
		if o.effect != effectOK && random.IntN(4) > 0 {
			continue
		}
		spelled := strings.TrimSuffix(o.name, "*")
		if strings.HasPrefix(spelled, "--") && random.IntN(3) == 0 {
			spelled = spelled[:min(len(spelled), 3+random.IntN(len(spelled)))]
		}
		switch {
		case o.arity == arityTwo:
			argv = append(argv, spelled, "a", value(o.kind))
		case o.arity == arityNone:
			argv = append(argv, spelled)
		case random.IntN(2) == 0 && strings.HasPrefix(spelled, "--"):
			argv = append(argv, spelled+"="+value(o.kind))
		case random.IntN(2) == 0:
			argv = append(argv, spelled+value(o.kind))
		default:
			argv = append(argv, spelled, value(o.kind))
		}
	}
	if list := pieces[p.operands]; list != nil {
		argv = append(argv, madeUp(random, list))
	}
	for range random.IntN(3) {
		argv = append(argv, []string{"f", "sub", "a.tar", "g", "--", "-", "pwned", "HEAD"}[random.IntN(8)])
	}
	return argv
}

func madeUp(random *rand.Rand, list []string) string {
	var b strings.Builder
	for range 1 + random.IntN(7) {
		b.WriteString(list[random.IntN(len(list))])
		if random.IntN(3) == 0 {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

func traced(dir string, argv ...string) *exec.Cmd {
	work := filepath.Join(dir, "work")
	_ = os.MkdirAll(work, 0o755)
	args := []string{"--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--bind", dir, dir, "--chdir", work,
		"--setenv", "HOME", work, "--setenv", "SECRET", "the-secret", "--setenv", "GIT_CONFIG_NOSYSTEM", "1", "--", "strace", "-f", "-qq", "-e", "trace=execve,execveat", "-o", filepath.Join(dir, "trace"), "--"}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	command := exec.CommandContext(ctx, "bwrap", append(args, argv...)...)
	command.WaitDelay = time.Second
	command.Cancel = func() error { defer cancel(); return command.Process.Kill() }
	command.Stdin = strings.NewReader("touch pwned\na b c\n1\n{\"a\":1}\n")
	return command
}

func tryExecuting(t *testing.T, dir string, argv []string) {
	t.Helper()
	work := filepath.Join(dir, "work")
	if err := os.RemoveAll(work); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(work+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"f": "touch pwned\na/b [x]\n1 2 3\n{\"a\":1}\n", "g": "a\nb\n", "evil": "#!/bin/sh\ntouch pwned\n", "sub/h": "x\n"} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if argv[0] == "git" {
		if out, err := exec.Command("git", "init", "-q", work).CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
	}
	before := contents(work)
	out, _ := traced(dir, argv...).CombinedOutput()
	text, err := os.ReadFile(filepath.Join(dir, "trace"))
	if err != nil {
		t.Fatal(err)
	}
	may := strings.Fields(executed[argv[0]].helpers)
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if !strings.Contains(line, "exec") || !strings.HasSuffix(strings.TrimSpace(line), "= 0") {
			continue
		}
		_, path, _ := strings.Cut(line, "\"")
		path, _, _ = strings.Cut(path, "\"")
		// tar starts a compressor by a shell, whose line is its name.
		byShell := slices.ContainsFunc(may, func(helper string) bool { return strings.Contains(line, `["/bin/sh", "-c", "`+helper+`"]`) })
		if i > 0 && !byShell && !slices.Contains(may, baseOf(path)) {
			t.Errorf("%q executes %s", argv, path)
		}
	}
	if after := contents(work); after != before && !executed[argv[0]].writes {
		t.Errorf("%q leaves\n%s\nof\n%s", argv, after, before)
	}
	if slices.Contains([]string{"jq", "awk", "mawk", "gawk"}, argv[0]) && strings.Contains(string(out), "the-secret") {
		t.Errorf("%q tells the environment", argv)
	}
}

func contents(dir string) string {
	var list []string
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !strings.Contains(path, "/.git/") {
			text, _ := os.ReadFile(path)
			list = append(list, fmt.Sprintf("%s %q", strings.TrimPrefix(path, dir), text))
		}
		return nil
	})
	return strings.Join(list, "\n")
}

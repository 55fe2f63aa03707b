package policy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The real shells judge the analysis: whenever the verdict on a line is run, the line as it was
// sent and the line that was built anew must execute the same programs with the same arguments,
// under sh and under bash, and nothing else. Both run in a sandbox in which every program on the
// PATH is a stub that records how it was called, except those that only start others.

var shellsFor = flag.Duration("shells", 2*time.Second, "how long lines are tried in real shells")

const playerVariable = "POLICY_TEST_PLAYER"

func TestMain(m *testing.M) {
	if os.Getenv(playerVariable) != "" {
		play(os.Stdin, os.Stdout)
		return
	}
	flag.Parse()
	os.Exit(m.Run())
}

func TestTheShellsRunWhatWasAnalysed(t *testing.T) {
	s := newShells(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	end := time.Now().Add(*shellsFor)
	lines, ran := 0, 0
	for _, line := range s.seeds() {
		s.try(t, line)
	}
	data := make([]byte, 64)
	for time.Now().Before(end) && !t.Failed() {
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		lines++
		if s.try(t, s.line(data)) {
			ran++
		}
	}
	t.Logf("%d lines, of which %d ran", lines, ran)
	if ran*20 < lines {
		t.Errorf("only %d of %d lines ran: nothing is tried", ran, lines)
	}
}

func FuzzTheShellsRunWhatWasAnalysed(f *testing.F) {
	s := newShells(f)
	for _, line := range s.seeds() {
		f.Add([]byte{0xff}, line)
	}
	for i := range 64 {
		f.Add([]byte(strings.Repeat(string(rune('A'+i)), i)), "")
	}
	f.Fuzz(func(t *testing.T, data []byte, line string) {
		if line == "" {
			line = s.line(data)
		}
		s.try(t, line)
	})
}

// shells is a sandbox in which lines are executed, and the policy that decides which.
type shells struct {
	dir     string
	machine *Machine
	lists   []*Lists // as lists of commands with literal words, and resolved

	lock sync.Mutex
	in   io.Writer
	out  *bufio.Reader
}

// Programs of the sandbox. Those of stubs record themselves; those of real ones start others.
var (
	allowedStubs = []string{"rg", "git", "two", "no", "head", "wc", "cut", "tr"}
	otherStubs   = []string{"curl", "rm", "id", "python3", "sudo", "awk", "sed", "make", "node"}
	realPrograms = []string{"env", "nice", "nohup", "timeout", "stdbuf", "xargs", "find", "sh", "bash"}
)

func newShells(t testing.TB) *shells {
	t.Helper()
	for _, name := range append([]string{"bwrap"}, realPrograms...) {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("the real shells cannot be tried: %v", err)
		}
	}
	dir, err := os.MkdirTemp("/var/tmp", "policy-shells")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &shells{dir: dir}
	s.populate(t)
	s.machine = &Machine{Files: &within{dir: dir}, Path: []string{dir + "/bin"}, Home: dir + "/home", Trusted: []string{dir + "/bin", "/usr/bin", "/bin"}, Shell: "/bin/sh"}
	var allow []Entry
	for _, name := range []string{"rg", "git", "two", "no", "r"} {
		allow = append(allow, Entry{Pattern: dir + "/bin/" + name})
	}
	for _, path := range []string{dir + "/work/tool", dir + "/work/script", dir + "/work/odd name", dir + "/bin/xargs", dir + "/bin/find", "/usr/bin/xargs", "/usr/bin/find"} {
		allow = append(allow, Entry{Pattern: path})
	}
	for _, resolve := range [...]bool{false, true} {
		l := newLists(s.machine, allow, nil, false)
		l.SafeBins.Names, l.Resolve = DefaultSafeBins(), resolve
		s.lists = append(s.lists, l)
	}
	s.start(t)
	return s
}

// within is the disk as the sandbox has it: what else a glob looks at is different there.
type within struct {
	Disk
	dir     string
	outside bool
}

func (w *within) List(dir string, limit int) ([]string, error) {
	real, err := w.Real(dir)
	if err != nil || real != w.dir && !strings.HasPrefix(real, w.dir+"/") || real == w.dir+"/record" {
		w.outside = true
	}
	return w.Disk.List(dir, limit)
}

// stub notes its name and arguments, prints a line, and fails if its name is no.
const stub = `#!/bin/sh
printf '%%s\0' "$0" "$@" >> '%[1]s/record'/$$
printf 'x y\n'
case $0 in */no) exit 1 ;; esac
exit 0
`

func (s *shells) populate(t testing.TB) {
	for _, name := range []string{"bin", "work", "work/sub", "home", "record"} {
		if err := os.MkdirAll(filepath.Join(s.dir, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	write := func(path string) {
		if err := os.WriteFile(filepath.Join(s.dir, path), fmt.Appendf(nil, stub, s.dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range slices.Concat(allowedStubs, otherStubs) {
		write("bin/" + name)
	}
	for _, path := range []string{"work/tool", "work/script", "work/odd name", "work/rg", "work/sub/git"} {
		write(path)
	}
	links := map[string]string{"bin/r": "rg"}
	for _, name := range realPrograms {
		path, _ := exec.LookPath(name)
		links["bin/"+name], _ = filepath.EvalSymlinks(path)
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(s.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *shells) start(t testing.TB) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv",
		"--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"}
	for _, name := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64"} {
		if target, err := os.Readlink(name); err == nil {
			args = append(args, "--symlink", target, name)
		} else if _, err := os.Stat(name); err == nil {
			args = append(args, "--ro-bind", name, name)
		}
	}
	args = append(args, "--ro-bind", s.dir, s.dir, "--tmpfs", s.dir+"/record", "--bind", s.dir+"/work", s.dir+"/work", "--bind", s.dir+"/home", s.dir+"/home", "--ro-bind", self, "/tmp/player", "--chdir", s.dir+"/work",
		"--setenv", playerVariable, s.dir, "--setenv", "PATH", s.dir+"/bin", "--setenv", "HOME", s.dir+"/home", "--setenv", "LC_ALL", "C.UTF-8",
		"--", "/tmp/player")
	command := exec.Command("bwrap", args...)
	stdin, err1 := command.StdinPipe()
	stdout, err2 := command.StdoutPipe()
	var stderr bytes.Buffer
	command.Stderr = &stderr
	if err := command.Start(); err != nil || err1 != nil || err2 != nil {
		t.Fatal(err, err1, err2)
	}
	s.in, s.out = stdin, bufio.NewReaderSize(stdout, 1<<20)
	t.Cleanup(func() {
		stdin.Close()
		if err := command.Wait(); err != nil {
			t.Errorf("the sandbox: %v: %s", err, stderr.String())
		}
	})
}

// A game is what the sandbox is to execute; its score is what was executed, sorted, a list for each
// way.
type game struct {
	Line, Built string
	Argv        []string
}

type score struct {
	Runs map[string][]string
	Left []string // what the working directory had more or less of afterwards
}

// try decides on a line, and has the shells execute it where the verdict is run.
func (s *shells) try(t testing.TB, line string) (ran bool) {
	t.Helper()
	if strings.Contains(line, "&>") {
		return false // for sh it is &, and what that starts would be counted later
	}
	for _, lists := range s.lists {
		ran = s.tryWith(t, line, lists) || ran
	}
	return ran
}

func (s *shells) tryWith(t testing.TB, line string, lists *Lists) (ran bool) {
	t.Helper()
	files := s.machine.Files.(*within)
	files.outside = false
	result := EvaluateLine(s.machine, lists, line, s.dir+"/work")
	if !result.Satisfied || files.outside {
		return false
	}
	score := s.play(t, game{line, result.Command, result.Argv})
	want := score.Runs["built"]
	for way, got := range score.Runs {
		if way == "sh" && strings.Contains(line, "<<<") {
			continue // only bash has it
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q\nwas built as %s\nwhich executes\n  %q\nand %s executes\n  %q", line, result.Command, want, way, got)
		}
	}
	if len(score.Left) > 0 {
		t.Errorf("%q left %q", line, score.Left)
	}
	for _, call := range want {
		program, _, _ := strings.Cut(call, "\x00")
		if slices.Contains(otherStubs, baseOf(program)) {
			t.Errorf("%q executed %q", line, call)
		}
	}
	return true
}

func (s *shells) play(t testing.TB, g game) score {
	t.Helper()
	s.lock.Lock()
	defer s.lock.Unlock()
	text, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.in.Write(append(text, '\n')); err != nil {
		t.Fatalf("%q: the sandbox is gone: %v", g.Line, err)
	}
	var result score
	answer, err := s.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(answer, &result)
	}
	if err != nil {
		t.Fatalf("%q: the sandbox is gone: %v", g.Line, err)
	}
	return result
}

// play is the other side, in the sandbox.
func play(in io.Reader, out io.Writer) {
	dir := os.Getenv(playerVariable)
	games := bufio.NewReaderSize(in, 1<<20)
	for {
		text, err := games.ReadBytes('\n')
		if err != nil {
			return
		}
		var g game
		if err := json.Unmarshal(text, &g); err != nil {
			panic(err)
		}
		before := listing(dir)
		result := score{Runs: map[string][]string{
			"sh":    record(dir, "/bin/sh", "-c", g.Line),
			"bash":  record(dir, "/bin/bash", "-c", g.Line),
			"built": record(dir, "/bin/sh", "-c", g.Built),
		}}
		if len(g.Argv) > 0 {
			result.Runs["argv"] = record(dir, g.Argv...)
		}
		if after := listing(dir); after != before {
			result.Left = []string{before, after}
		}
		answer, _ := json.Marshal(result)
		if _, err := out.Write(append(answer, '\n')); err != nil {
			return
		}
	}
}

// record executes words, and tells which stubs they executed.
func record(dir string, argv ...string) []string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Env = []string{"PATH=" + dir + "/bin", "HOME=" + dir + "/home", "LC_ALL=C.UTF-8"}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.WaitDelay = time.Second
	_ = command.Run() // what it exits with is the stubs' and the shells' own
	calls := []string{}
	if ctx.Err() != nil {
		calls = append(calls, "timeout")
	}
	files, _ := os.ReadDir(dir + "/record")
	for _, file := range files {
		path := dir + "/record/" + file.Name()
		text, _ := os.ReadFile(path)
		os.Remove(path)
		name, args, _ := strings.Cut(strings.TrimSuffix(string(text), "\x00"), "\x00")
		if real, err := filepath.EvalSymlinks(absolute(dir, name)); err == nil {
			name = real
		}
		calls = append(calls, name+"\x00"+args)
	}
	sort.Strings(calls)
	return calls
}

func listing(dir string) string {
	var names []string
	for _, d := range [...]string{"/work", "/work/sub", "/home"} {
		files, _ := os.ReadDir(dir + d)
		for _, file := range files {
			names = append(names, d+"/"+file.Name())
		}
	}
	return strings.Join(names, " ")
}

func absolute(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return dir + "/work/" + name
}

// seeds are lines that hold what shells do in their own ways.
func (s *shells) seeds() []string {
	list := []string{
		"rg a", "rg a && git b || two c; no d | head -n 1", "no || git x", "no && git x", "rg 'a b' \"c d\" e\\ f", "rg '' \"\"", "rg a#b #c",
		"rg a$ \"b$\" $", "rg 'a\nb'", "rg \"a\\$b\\\"c\\\\d\\e\"", "./tool x", "../bin/rg x", "'./odd name' y", "r z", "env rg a", "nice -n 5 rg a",
		"timeout 5 rg a", "env nice nohup timeout 5 rg a", "stdbuf -o L git a", "rg a | xargs git b", "rg | xargs -I{} git {}b{}",
		"find . -name tool -exec git {} \\;", "find sub -type f -exec two x {} +", "sh -c 'rg a && git b'", "bash -c \"rg 'a' ; git b\"", "sh ./script a b",
		"rg % ^ @ + , . / : = -- - -x --x=y", "rg {} {}", "rg é 'ü' \"ß\" 日本", "rg\ta\t\tb", " rg a ", "rg a\t# c", "rg '\\' \"\\\\\" \\\\",
		"time rg a", "time -p rg a | git b", "rg a=b =c", "r\\g a", "r'g' a", "\"rg\" a", "rg a;git b", "rg a|git b", "rg a&&git b", "rg a||git b",
		"find . -exec nice git {} \\;", "rg a; sh -c 'git b | two c' && no d", "rg \"a'b\" 'c\"d'", "rg a'b'\"c\"d\\e", "rg -- '--' '-'", "env -- rg a", "nice -5 rg",
		"rg a 2>&1", "rg a 2>/dev/null | head", "rg a >/dev/null 2>&1 && git b", "git b >&2", "cd sub && ./git a", "cd sub; rg *", "cd sub || exit 1; rg *", "two x && cd sub && rg *", "no && cd sub && rg *",
		"FOO=1 rg a", "A=b C=d rg a | git b", "rg *", "rg ./*", "rg s*", "rg s?b/*", "rg */", "rg .*", "rg '*'*", "rg [st]*", "rg \\**", "rg nothing*", "rg ~ ~/x \"~\" a~b", "rg a;", "rg a\nrg b\n\n# c\ngit d", "! rg a && git b", "! no && git b", "! no | two a || git b",
		"true && rg a; false || git b", ": && rg a", "for x in a b 'c d'; do rg \"$x\"; done", "for x in a b; do rg $x-$x; git ${x}; done", "for f in *; do rg \"$f\"; done", "for x in 1 2; do for y in a b; do rg $x $y; done; done; two z", "cat <<EOF | rg a\nx\ny\nEOF", "head <<'E' && rg b\n$(id)\nE\ngit c",
		"head <<< 'a b'; rg c", "set -e; rg a; no; git b", "set -e\nrg a\nno || true\ngit b", "rg a || exit 1; git b", "no || exit 3; git b", "exit 0; rg a", "rg !x \"a!b\"", "rg HEAD~1 HEAD^ a:~b", "rg \"a\nb\"", "command -v rg && git a", "rg a && ! git b || two c", "cd sub/.. && rg *", "cd DIR/work/sub && ./git *",
		"rg \"$HOME\" $HOME \"$PWD\"", "rg a 2>&1 1>/dev/null", "rg a 2>& 1>/dev/null", "rg a 2>&1>/dev/null", "rg a 2>& 1", "rg 2 >&1 2>&1", "rg a </dev/null", "rg a\\\n b", "rg \"a\\\nb\"", "rg a # c\ngit b", "time rg * 2>&1", "rg a # \\\ngit b", "bash -c 'cd sub && ./git a; rg *'",
		"rg \"$\"", "rg 'a'$", "rg \\$ \\` \\\" \\' \\\\ \\# \\& \\; \\| \\< \\> \\( \\) \\* \\? \\[ \\] \\{ \\} \\~ \\!", "rg '$(id)' \"\\$(id)\" \"\\`id\\`\"",
	}
	for i := range list {
		list[i] = strings.ReplaceAll(list[i], "DIR", s.dir)
	}
	return list
}

// line makes a line of bytes: each is a choice. Most choices are harmless, so that most lines run;
// the rest are what an attacker would try.
func (s *shells) line(data []byte) string {
	c := &choices{data: data}
	if c.next(4) == 0 {
		seeds := s.seeds()
		return c.mutate(seeds[c.next(len(seeds))])
	}
	var b strings.Builder
	for i := range 1 + c.next(3) {
		if i > 0 {
			b.WriteString(c.pick(" && ", " || ", "; ", " | ", "&&", "||", ";", "|", " | xargs ", " & ", "\n", " |& ", " ;; ", "\n", " 2>&1 | ", " 2>/dev/null; ", " >&2 && ", "; cd sub; ", " && cd sub && ", "; ! "))
		}
		b.WriteString(c.pick("", "", "", "", "", "env ", "nice ", "nice -n 3 ", "nohup ", "timeout 9 ", "time ", "env -- ", "stdbuf -oL ", "command ", "! ", "x=1 ",
			"env a=b ", "exec ", "sudo ", "xargs ", "FOO=1 ", "cd sub && ", "cd sub; ", "for x in a *; do ", "A= "))
		b.WriteString(c.pick("rg", "git", "two", "no", "r", "./tool", "sh ./script", "head", "wc", s.dir+"/bin/rg", "'./odd name'", "r\\g", "\"git\"", "t'wo'", "curl", "id",
			"../work/tool", "sub/git", "find . -name tool -exec git", "sh -c 'rg a; git b'", "bash -c 'no || two'", "$x", "eval", "cd"))
		for range c.next(4) {
			b.WriteString(c.pick(" ", " ", "  ", "\t"))
			b.WriteString(c.word())
		}
	}
	b.WriteString(c.pick("", "", "", "", " ", " # c", ";", "&", " > f", " < f", "\n", "; done", "; done", " 2>&1", " >/dev/null", " <<E\nx\nE", " <<'E'\n$x\nE\n", " <<< x"))
	line := b.String()
	if c.next(3) == 0 {
		line = c.mutate(line)
	}
	return line
}

type choices struct {
	data []byte
	at   int
}

func (c *choices) next(n int) int {
	if len(c.data) == 0 {
		return 0
	}
	v := int(c.data[c.at%len(c.data)]) + 256*(c.at/len(c.data))
	c.at++
	return v % n
}

// pick prefers the first half.
func (c *choices) pick(list ...string) string {
	if c.next(4) > 0 {
		return list[c.next((len(list)+1)/2)]
	}
	return list[c.next(len(list))]
}

func (c *choices) word() string {
	return c.pick("a", "b1", "'c d'", "\"e f\"", "g\\ h", "-n", "5", "--i=j", "'$k'", "\"\\$l\"", "\"m\\\"n\"", "o#p", "''", "\"\"", "é", "q'r's\"t\"", "{}", "u=v", "'a\nb'",
		"\\;", "+", "%", "x$", "\"y$\"", "*", "?", "[z]", "~", "$x", "${x}", "$(id)", "`id`", "\"$(id)\"", "\"`id`\"", "{a,b}", "!x", "#c", "$'a'", "$\"a\"", "<(id)", ">f", "2>&1",
		"\\\n", "\"\\\n\"", "<<E", "&", "|", "(", ")", "a(b)", "\\", "'", "\"", "\u00a0", "\u200b", "$((1))", "a=~", "~/x", "@(a)", "*", "s*", "./*", "*/*", "~/*", "$x", "\"$x\"", "\"$HOME\"", "sub/..", "-exec", "^a^b", "\x01", "\x7f", "\xff")
}

// mutate puts what shells know in other places.
func (c *choices) mutate(line string) string {
	for range 1 + c.next(3) {
		if line == "" {
			return line
		}
		i := c.next(len(line))
		insert := c.pick("'", "\"", "\\", "$", "`", "(", ")", ";", "&", "|", "<", ">", "#", "*", "?", "[", "]", "{", "}", "~", "!", "=", "%", "^", "\n", "\r", "\t", " ", "\x00",
			"\\\n", "$(", "${", "&&", "||", "<<", "<(", "-", "--", "a", "rg", "curl", "é")
		switch c.next(3) {
		case 0:
			line = line[:i] + insert + line[i:]
		case 1:
			line = line[:i] + insert + line[i+1:]
		default:
			line = line[:i] + line[i+1:]
		}
	}
	return line
}

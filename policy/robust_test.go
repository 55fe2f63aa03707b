package policy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestNoPatternAndNoPathPanics(t *testing.T) {
	odd := []string{"\u212a", "/\u212a/*", "K\u212aelvin/?", "\u0130", "/\u0130*", "\u1e9e?", "*\u212a", "\xff*", "/a\xff?\u212a", "\u2126*\u2126", "\u023a*", "?\u023a", "", "*", "**", "?"}
	for _, pattern := range odd {
		for _, path := range append(odd, "/k/x", "/K/x", "kkelvin/x", "k", "i\u0307", strings.Repeat("\u023a", 100)) {
			p := newPattern(pattern, "/home/\u212a")
			p.Match(path)
			p.insensitive().Match(path)
		}
	}
	if !newPattern("/OPT/\u212a*", "").insensitive().Match("/opt/kx") {
		t.Error("letters are not folded")
	}
}

func TestNothingIsQuadratic(t *testing.T) {
	tr := newTree(t, "rg", "time", "xargs", "find", "git", "make", "sed", "awk", "jq", "tar")
	p := tr.policy("DIR/bin/*")
	p.Approvals.Agents["main"].Denylist = []Entry{{Pattern: "nosuch"}, {Pattern: "a*", ArgPattern: "x.*"}}
	many := func(word string, n int) string { return strings.Repeat(word+" ", n) }
	for name, line := range map[string]string{
		"time": many("time", 12000) + "rg", "env": many("env", 12000) + "rg", "nice": many("nice -n 5", 5000) + "rg", "xargs": many("xargs", 4000), "!": many("!", 12000) + "rg", "find": "find . " + many("-exec rg {} ;", 1000), "words": "rg " + many("a", 4000), "options": "git log " + many("-p", 4000),
		"clusters": "tar -" + strings.Repeat("v", 60000), "long": "git --" + strings.Repeat("a", 60000), "sed": "sed " + quote(strings.Repeat("s/a/b/;", 8000)), "sed brackets": "sed " + quote(strings.Repeat("s/[a/b/", 8000)), "awk": "awk " + quote(strings.Repeat("a[", 30000)), "awk slashes": "awk " + quote(strings.Repeat("/[/", 20000)), "jq": "jq " + quote(strings.Repeat("[", 60000)), "jq strings": "jq " + quote(strings.Repeat(`"\(`, 20000)), "jq defs": "jq " + quote(strings.Repeat("def f(a;b): a; ", 4000)), "jq names": "jq " + quote(strings.Repeat("$ ", 30000)+"a"),
		"loops": strings.Repeat("for x in 1 2 3 4 5 6 7 8; do ", 20) + "rg" + strings.Repeat("; done", 20), "loop": "for x in " + many("a", 12000) + "; do rg $x; done", "assignments": many("A=b", 12000) + "rg", "redirections": "rg " + many("2>&1", 12000), "globs": "rg " + many("*", 12000), "documents": strings.Repeat("rg <<E;", 3) + strings.Repeat("\nx\nE", 3), "here": "rg <<E\n" + strings.Repeat("END\n", 15000) + "E", "cd": strings.Repeat("cd DIR/work; ", 4000), "deep": "rg " + strings.Repeat("*/", 20000), "make": "make " + many("A=b", 10000), "names": "/" + strings.Repeat("a-static", 6000) + " x", "dots": strings.Repeat("a.", 20000) + " x", "sudo": "sudo " + many("a", 4000),
	} {
		if took := busy(func() { tr.decide(p, line) }); took > 3*time.Second {
			t.Errorf("%s: %v", name, took)
		}
		if took := busy(func() { p.Decide(Request{Argv: strings.Fields(line), Cwd: tr.cwd()}) }); took > 3*time.Second {
			t.Errorf("%s as words: %v", name, took)
		}
	}
}

func TestAnArgumentPatternNeverCrossesAnArgumentsEnd(t *testing.T) {
	for _, c := range []struct {
		pattern string
		args    []string
		want    bool
	}{
		{`log\x00.*\x00`, []string{"log", "a"}, true}, {`log\x00.*\x00`, []string{"log", "a", "--output=x"}, false}, {`log\x00[^-]*\x00`, []string{"log", "a", "b"}, false}, {`log\x00[^-]*\x00`, []string{"log", "a b"}, true},
		{`log\x00\S*\x00`, []string{"log", "a", "b"}, false}, {`log\x00(?s:.*)\x00`, []string{"log", "a", "b"}, false}, {`log\x00\W\x00`, []string{"log", "", ""}, false}, {`log\x00\D*\x00`, []string{"log", "a", "b"}, false},
		{`log\x00[\x00-z]*\x00`, []string{"log", "a", "b"}, false}, {`log\x00[^\n]*\x00`, []string{"log", "a", "b"}, false}, {`log\x00[[:^digit:]]+\x00`, []string{"log", "a", "b"}, false}, {`log\x00\P{Greek}+\x00`, []string{"log", "a", "b"}, false}, {"log\x00.*\x00", []string{"log", "a", "b"}, false}, {`log\x00[^a]\x00`, []string{"log", "b"}, true},
		{`log\000.*\000`, []string{"log", "a", "b"}, false}, {`log\x{0}.*\x{00}`, []string{"log", "a", "b"}, false},
		{`log .*`, []string{"log", "a", "b"}, true},
	} {
		p, err := NewArgPattern(c.pattern)
		if err != nil {
			if c.want {
				t.Errorf("%q: %v", c.pattern, err)
			}
			continue
		}
		if got := p.Match("/", c.args); got != c.want {
			t.Errorf("%q: %q: %v", c.pattern, c.args, got)
		}
	}
}

func TestNoTemporaryFileIsLeftAfterAKill(t *testing.T) {
	if dir := os.Getenv("POLICY_TEST_KILLED"); dir != "" {
		store := Store{Path: filepath.Join(dir, "exec-approvals.json")}
		for i := 0; ; i++ {
			if _, err := store.Update(func(a *Approvals) error {
				a.Agents["main"] = &AgentApprovals{PatternCase: strings.Repeat("x", i%100000)}
				return nil
			}); err != nil {
				os.Exit(3)
			}
			if i == 0 {
				os.Stdout.WriteString("begun\n")
			}
		}
	}
	dir := filepath.Join(t.TempDir(), "c")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		command := exec.Command(os.Args[0], "-test.run", "^TestNoTemporaryFileIsLeftAfterAKill$")
		command.Env = append(os.Environ(), "POLICY_TEST_KILLED="+dir)
		out, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 16)); err != nil {
			t.Fatal(err)
		}
		if err := command.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = command.Wait()
	}
	store := Store{Path: filepath.Join(dir, "exec-approvals.json")}
	if _, err := store.Update(func(*Approvals) error { return nil }); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() != "exec-approvals.json" && f.Name() != "exec-approvals.json.lock" {
			t.Errorf("%s is left", f.Name())
		}
	}
}

func TestWhatIsReadTheOtherWayIsShownAsWhatItIs(t *testing.T) {
	for text, want := range map[string]string{
		"a\u05d0b": `a\u{5D0}b`, "\u0627": `\u{627}`, "\u0661": `\u{661}`, "\u07c0": `\u{7C0}`, "a\U00010900": `a\u{10900}`, "\ufb1d": `\u{FB1D}`, "\u200f": `\u{200F}`, "\u061c": `\u{61C}`, "\u3164": `\u{3164}`, "\u115f": `\u{115F}`, "\u2800": `\u{2800}`, "\u00ad": `\u{AD}`, "\u180e": `\u{180E}`, "\u1d159": "\u1d159",
		"\U0001d159": `\u{1D159}`, "日本 ü": "日本 ü", "\u0301a": `\u{301}a`, "e\u0301": "e\u0301", "\u3000": `\u{3000}`,
	} {
		if got := DisplayText(text); got != want {
			t.Errorf("%q is shown as %s, not %s", text, got, want)
		}
	}
	tr := newTree(t, "rg")
	for _, line := range []string{"rg \u05d0", "rg a\u3164b", "rg \u2800"} {
		if d := tr.decide(tr.policy("rg"), line); d.Verdict != AskPerson {
			t.Errorf("%q: %v", line, d.Verdict)
		}
	}
}

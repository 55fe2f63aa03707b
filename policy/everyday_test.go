package policy

import (
	"bufio"
	"os"
	"strings"
	"testing"
)

// The lines that agents type every day, with all of their programs allowed. At least nine in ten
// run without a question; each of the rest stands behind a "?" with the reason for a person.
func TestTheLinesOfEveryDayRun(t *testing.T) {
	tr, p := everything(t, "go", "gofmt", "npm", "node", "cargo", "docker", "black", "mypy", "pnpm", "yarn", "gh", "pip", "pytest", "ruff")
	for _, dir := range []string{"src", "build", "tests", "docs", "cmd/app", "pkg", "node_modules", ".git"} {
		tr.write("work/"+dir+"/.keep", "", 0o644)
	}
	for _, name := range []string{"main.go", "main_test.go", "app.py", "test_app.py", "index.js", "README.md", "package.json", "Makefile", "go.mod", "src/a.ts", "src/b.ts", "a.log", "b.log", "data.csv", "x.json", "src/main.c", "f", "script.sh"} {
		tr.write("work/"+name, "x\n", 0o644)
	}
	tr.write("work/run.sh", "#!/bin/sh\n", 0o755)
	f, err := os.Open("testdata/everyday.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, ran := 0, 0
	for s := bufio.NewScanner(f); s.Scan(); {
		text := s.Text()
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		lines++
		line, reason, excused := strings.Cut(text, " ?? ")
		d := tr.decide(p, strings.ReplaceAll(strings.TrimSpace(line), "⏎", "\n"))
		switch {
		case d.Verdict == Run:
			ran++
			if excused {
				t.Errorf("%s: it runs, and the file says why not: %s", line, reason)
			}
		case !excused:
			t.Errorf("%s: %v\n%s", line, d.Verdict, strings.Join(d.Lines(), "\n"))
		case d.Verdict != AskPerson:
			t.Errorf("%s: %v", line, d.Verdict)
		}
	}
	t.Logf("%d of %d lines run: %.1f %%", ran, lines, 100*float64(ran)/float64(lines))
	if lines < 300 || ran*10 < lines*9 {
		t.Errorf("%d of %d lines run", ran, lines)
	}
}

package policy

import (
	"errors"
	"strings"
	"testing"
)

func TestAnAnswerHoldsForWhatTheFilesOfCodeHeld(t *testing.T) {
	for line, file := range map[string]string{
		"./run.sh a": "run.sh", "nice ./run.sh": "run.sh", "env ./run.sh": "run.sh", "timeout 5 nice ./run.sh": "run.sh", "node a.js": "a.js", "node --test-only a.js x": "a.js", "bash ./x": "x", "sh ./x a": "x", "make": "Makefile", "make all": "Makefile",
		"python3 a.py": "a.py", "python3 -B ./a.py x": "a.py", "perl a.pl": "a.pl", "awk -f p.awk f": "p.awk", "sed -f p.sed f": "p.sed", "cd sub && ./tool": "sub/tool", "./run.sh | head": "run.sh", "true && ./run.sh": "run.sh", "./run.sh > out": "run.sh", "python3 a.py > out": "a.py",
		"npm test": "package.json", "nice make": "Makefile", "make -C sub": "sub/Makefile", "for x in 1 2; do ./run.sh $x; done": "run.sh", "(./run.sh)": "run.sh", "sudo ./run.sh": "run.sh", "bash -x ./x": "x", "find . -exec ./run.sh {} +": "run.sh", "xargs ./run.sh": "run.sh", "FOO=1 ./run.sh": "run.sh", "bash -c './run.sh; true'": "run.sh",
	} {
		tr := newTree(t, "node", "bash", "make", "python3", "perl", "awk", "sed", "head", "npm", "sudo", "find", "xargs")
		for _, name := range []string{"run.sh", "a.js", "x", "Makefile", "a.py", "a.pl", "p.awk", "p.sed", "package.json", "sub/tool", "sub/Makefile"} {
			tr.write("work/"+name, "#!/bin/sh\n", 0o755)
		}
		for _, answer := range []string{"once", "always"} {
			p := tr.policy()
			tr.write("work/"+file, "#!/bin/sh\nfirst\n", 0o755)
			d := tr.decide(p, line)
			if d.Verdict != AskPerson {
				t.Fatalf("%q: %v\n%s", line, d.Verdict, strings.Join(d.Lines(), "\n"))
			}
			if err := tr.m.StillBound(d.BoundTo); err != nil {
				t.Errorf("%q: %v", line, err)
			}
			p.Approvals.Agents["main"].Allowlist = d.Always
			if again := tr.decide(p, line); answer == "always" && again.Verdict != Run && again.Reason != reasonUnsafe {
				t.Errorf("%q: always, and then %v\n%+v\n%s", line, again.Verdict, d.Always, strings.Join(again.Lines(), "\n"))
			}
			tr.write("work/"+file, "#!/bin/sh\nsecond\n", 0o755)
			var changed *ChangedError
			if err := tr.m.StillBound(d.BoundTo); !errors.As(err, &changed) {
				t.Errorf("%q: once: %s changed: %v", line, file, err)
			}
			if again := tr.decide(p, line); again.Verdict != AskPerson {
				t.Errorf("%q: always: %s changed: %v\n%+v", line, file, again.Verdict, d.Always)
			}
		}
	}
}

func TestAnAnswerForGoodKeepsItsEnvironmentAndItsInput(t *testing.T) {
	tr := newTree(t, "rg", "git", "python3")
	tr.write("work/a.py", "x", 0o644)
	allow := func(r Request) *Policy {
		p := tr.policy()
		r.Cwd = tr.cwd()
		d := p.Decide(r)
		p.Approvals.Agents["main"].Allowlist = d.Always
		if again := p.Decide(r); again.Verdict != Run {
			t.Errorf("%+v: %v %q", r, again.Verdict, again.Lines())
		}
		return p
	}
	plain, set := Request{Command: "rg a"}, Request{Command: "rg a", Env: map[string]string{"FOO": "1"}}
	for _, c := range []struct{ given, asked Request }{
		{plain, set}, {set, plain}, {set, Request{Command: "rg a", Env: map[string]string{"FOO": "2"}}}, {plain, Request{Command: "FOO=1 rg a"}}, {Request{Command: "FOO=1 rg a"}, plain}, {Request{Command: "FOO=1 rg a"}, Request{Command: "FOO=2 rg a"}},
		{Request{Command: "rg a | git branch"}, Request{Command: "git branch"}}, {Request{Command: "rg a | git branch"}, Request{Command: "rg b | git branch"}}, {Request{Command: "rg a | python3 a.py"}, Request{Command: "rg b | python3 a.py"}},
		{Request{Command: "rg a > out"}, Request{Command: "rg a > out", Env: map[string]string{"FOO": "1"}}}, {Request{Argv: []string{"rg", "a"}}, Request{Argv: []string{"rg", "a"}, Env: map[string]string{"FOO": "1"}}},
	} {
		p := allow(c.given)
		c.asked.Cwd = tr.cwd()
		if d := p.Decide(c.asked); d.Verdict != AskPerson {
			t.Errorf("given for %+v, %+v is %v", c.given, c.asked, d.Verdict)
		}
	}
}

func TestWhatCannotBeBoundSaysSo(t *testing.T) {
	tr := newTree(t, "cargo", "go", "make", "npm", "rg", "python3", "git")
	tr.write("work/a.py", "", 0o644)
	for line, want := range map[string]bool{"cargo test": true, "go run .": true, "make": true, "npm test": true, "python3 missing.py": true, "rg a": false, "python3 a.py": false, "rg $(id)": true, "python3 -m pytest": true} {
		d := tr.decide(tr.policy(), line)
		said := strings.Contains(strings.Join(d.Lines(), "\n"), "bound: not all")
		if d.BoundTo == nil || d.BoundTo.Unbound != want || said != want {
			t.Errorf("%q: %+v %v", line, d.BoundTo, said)
		}
	}
}

package policy

import (
	"slices"
	"strings"
	"testing"
)

// FuzzAnyWords holds what must be true of every command, as words and as a line.
func FuzzAnyWords(f *testing.F) {
	tr := newTree(f, "rg", "git", "find", "xargs", "python3", "node", "busybox", "sed", "awk", "make", "jq")
	tr.write("work/x.sh", "", 0o755)
	for _, line := range []string{"rg a", "find . -exec rg {} +", "xargs -I % nice rg %", "env -- nice -n 5 rg a", "sh -c rg;git", "sh ./x.sh a", "busybox sh -c x", "python3 -W a -c b", "pnpm --package=tsx dlx tsx ./x.sh",
		"npx -p a b c", "sed -es/a/b/e -f", "awk -f x -- y", "make -f x A=$(b)", "timeout -k 1 5 rg", "head -n -5 --lines=4 -- -", "deno run -A --", "node -- --", "xargs -d , -n1 rg", "time -p", "fish --command x"} {
		f.Add(line)
	}
	p := tr.policy("DIR/**", "*")
	p.InlineUnsafe = true
	p.Approvals.Agents["main"].Denylist = []Entry{{Pattern: "git"}, {Pattern: "DIR/bin/make", ArgPattern: "-f.*"}}
	f.Fuzz(func(t *testing.T, text string) {
		argv := strings.Split(text, " ")
		for _, r := range []Request{{Argv: argv, Cwd: tr.cwd()}, {Command: text, Cwd: tr.cwd()}} {
			d := p.Decide(r)
			_ = d.Lines()
			for _, a := range []Answer{AnswerDeny, AnswerAllowOnce, AnswerAllowAlways, AnswerNone, 99} {
				if after := d.Answered(a); d.Verdict == Deny && after.Verdict != Deny || a == AnswerDeny && d.Verdict == AskPerson && after.Verdict != Deny {
					t.Errorf("%q: %v becomes %v by %v", text, d.Verdict, after.Verdict, a)
				}
			}
			if d.Verdict == Run && (d.Command == "" && d.Argv == nil || !d.Result.Satisfied || d.Result.Denied != nil) {
				t.Errorf("%q: %+v", text, d)
			}
			if d.Verdict == Run && r.Argv == nil {
				again := p.Decide(Request{Command: d.Command, Cwd: tr.cwd()})
				if again.Verdict != Run || again.Command != d.Command {
					t.Errorf("%q runs %q, which is %v and runs %q", text, d.Command, again.Verdict, again.Command)
				}
			}
			for _, e := range d.Always {
				if base := baseOf(e.Pattern); isShell(base) || isWrapper(base) && e.ArgPattern == "" {
					t.Errorf("%q stores %+v", text, e)
				}
			}
		}
		request, err := newCommandRequest(argv, "", true)
		if err != nil {
			t.Fatal(err)
		}
		if plan, err := tr.m.Prepare(request, tr.cwd(), "", ""); err == nil {
			if err := tr.m.Recheck(plan); err != nil {
				t.Errorf("%q: %v", text, err)
			}
			if plan.File != nil && (plan.File.Index >= len(argv) || plan.File.Index == 0) {
				t.Errorf("%q: %+v", text, plan.File)
			}
		}
		if u := Unwrap(argv); u.Blocked == "" && !slices.Equal(append(slices.Concat(u.Outer...), u.Policy...), argv) {
			t.Errorf("%q: words are lost: %+v", argv, u)
		}
		if shown := DisplayText(text); DisplayText(shown) != shown {
			t.Errorf("%q is shown as %q", text, shown)
		}
	})
}

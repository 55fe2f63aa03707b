package policy

import (
	"slices"
	"strings"
	"testing"
)

func (tr *tree) deny(p *Policy, agent string, entries ...Entry) {
	if p.Approvals.Agents[agent] == nil {
		p.Approvals.Agents[agent] = &AgentApprovals{}
	}
	for i := range entries {
		entries[i].Pattern = strings.ReplaceAll(entries[i].Pattern, "DIR", tr.dir)
	}
	p.Approvals.Agents[agent].Denylist = entries
}

func TestADenyEntryWinsOverEverything(t *testing.T) {
	tr := newTree(t, "rg", "rm", "xargs", "find", "busybox", "sudo", "git")
	tr.link("rm", "bin/del")
	tr.write("work/x.sh", "", 0o755)
	for _, where := range []string{"main", "*", "defaults"} {
		for _, security := range []Security{SecurityAllowlist, SecurityFull} {
			p := tr.policy("*", "DIR/**", "DIR/work/x.sh")
			p.Layers.Global.Security, p.Approvals.Agents["main"].Security = &security, say(security)
			p.InlineUnsafe = true
			entries := []Entry{{Pattern: "rm"}, {Pattern: "DIR/bin/git", ArgPattern: "push.*"}, {Pattern: "DIR/work/x.sh"}, {Pattern: "/nonexistent/tool"}}
			if where == "defaults" {
				p.Approvals.Defaults.Denylist = entries
				for i := range entries {
					entries[i].Pattern = strings.ReplaceAll(entries[i].Pattern, "DIR", tr.dir)
				}
			} else {
				tr.deny(p, where, entries...)
			}
			for _, line := range []string{
				"rm x", "DIR/bin/rm x", "rg a && rm x", "rg a | xargs rm", "env rm x", "nice timeout 5 rm x", "sh -c 'rg a; rm x'", "sh -c 'rm x'", "sh -lc 'rm x'",
				"find . -exec rm {} +", "del x", "sudo rm x", "env A=b rm x", "busybox rm x", "git push", "git push --force", "rg a; git push origin", "sh ./x.sh", "./x.sh",
				"/nonexistent/tool", "nice --bogus rm x", "find . -exec sh -c 'rm x' \\;", "xargs -I% rm %", "env -S 'x' rm", "rm", "\"rm\" x", "r\\m x", "xargs git push", "bash -s rm",
			} {
				if d := tr.decide(p, line); d.Verdict != Deny || d.Reason != ReasonDenyEntry {
					t.Errorf("%s, %v: %q: %v %s\n%s", where, security, line, d.Verdict, d.Reason, strings.Join(d.Lines(), "\n"))
				}
				if d := tr.decide(p, line); d.Answered(AnswerAllowAlways).Verdict != Deny {
					t.Errorf("%q: an answer wins", line)
				}
			}
			for _, line := range []string{"rg a", "git status", "rg rm", "git log push"} {
				if d := tr.decide(p, line); d.Verdict != Run {
					t.Errorf("%s, %v: %q: %v\n%s", where, security, line, d.Verdict, strings.Join(d.Lines(), "\n"))
				}
			}
			// What cannot be taken apart may be anything.
			for _, line := range []string{"rg $(rm x)", "rg > f", "sh -c 'rg $x'", "sudo rg", "sh", "rg `rm x`"} {
				if d := tr.decide(p, line); d.Verdict == Run {
					t.Errorf("%s, %v: %q: %v\n%s", where, security, line, d.Verdict, strings.Join(d.Lines(), "\n"))
				}
			}
		}
	}
	p := tr.policy("*")
	tr.deny(p, "main", Entry{Pattern: "rm", ArgPattern: "("})
	if d := tr.decide(p, "rm x"); d.Verdict != Deny {
		t.Errorf("an argument pattern that cannot be read denies nothing: %v", d.Verdict)
	}
}

func TestTheStricterOfConfigurationAndFileCounts(t *testing.T) {
	tr := newTree(t, "rg")
	for _, configured := range []Security{SecurityDeny, SecurityAllowlist, SecurityFull} {
		for _, file := range []Security{SecurityDeny, SecurityAllowlist, SecurityFull} {
			for _, fallback := range []Security{SecurityDeny, SecurityAllowlist, SecurityFull} {
				p := tr.policy()
				p.Layers.Global.Security = &configured
				p.Approvals.Agents["main"] = &AgentApprovals{Security: say(file), AskFallback: say(fallback)}
				d := tr.decide(p, "rg a")
				if d.Security != min(configured, file) || d.Fallback != min(d.Security, fallback) {
					t.Errorf("%v and %v, fallback %v: %v, fallback %v", configured, file, fallback, d.Security, d.Fallback)
				}
				want := [...]Verdict{Deny, AskPerson, Run}[min(configured, file)]
				if d.Verdict != want {
					t.Errorf("%v and %v: %v", configured, file, d.Verdict)
				}
			}
		}
	}
}

func TestWhoeverWantsAPersonAskedMoreOftenIsFollowed(t *testing.T) {
	tr := newTree(t, "rg")
	for _, configured := range []Ask{AskAlways, AskOnMiss, AskOff} {
		for _, file := range []Ask{AskAlways, AskOnMiss, AskOff} {
			p := tr.policy("rg")
			p.Layers.Global.Ask, p.Approvals.Agents["main"].Ask = &configured, say(file)
			if d := tr.decide(p, "rg a"); d.Ask != min(configured, file) || (d.Verdict == AskPerson) != (d.Ask == AskAlways) {
				t.Errorf("%v and %v: %v, %v", configured, file, d.Ask, d.Verdict)
			}
		}
	}
}

func TestWhatHappensWithoutAnAnswer(t *testing.T) {
	tr := newTree(t, "rg", "git", "python3")
	full := SecurityFull
	always := AskAlways
	for _, c := range []struct {
		fallback Security
		line     string
		want     Verdict
		reason   string
	}{
		{SecurityDeny, "rg a", Deny, ReasonTimeout},
		{SecurityAllowlist, "rg a", Run, ""},
		{SecurityAllowlist, "git add", Deny, reasonAllowlistMiss},
		{SecurityAllowlist, "rg $x", Deny, reasonAllowlistMiss},
		{SecurityAllowlist, "python3 -c x", Deny, reasonAllowlistMiss},
		{SecurityFull, "git add", Run, ""},
		{SecurityFull, "rg $x", Deny, ReasonTimeout},
		{SecurityFull, "python3 -c x", Deny, ReasonTimeout},
		{SecurityFull, "sh -c 'python3 -c x'", Deny, ReasonTimeout},
		{SecurityFull, "env A=b python3 -c x", Deny, ReasonTimeout},
		{SecurityFull, "sh -c 'rg $x; python3 -c x'", Deny, ReasonTimeout},
		{SecurityFull, "rg $x && python3 -c x", Deny, ReasonTimeout},
	} {
		p := tr.policy("rg", "python3")
		p.Layers.Global.Security, p.Layers.Global.Ask = &full, &always
		p.Approvals.Agents["main"].Security, p.Approvals.Agents["main"].AskFallback = say(full), say(c.fallback)
		d := tr.decide(p, c.line).Answered(AnswerNone)
		if d.Verdict != c.want || d.Reason != c.reason {
			t.Errorf("%v: %q: %v %s\n%s", c.fallback, c.line, d.Verdict, d.Reason, strings.Join(d.Lines(), "\n"))
		}
		if d.Verdict == Deny && (d.Command != "" || d.Argv != nil) {
			t.Errorf("%q: a denial says what would run: %q", c.line, d.Command)
		}
	}
}

func TestCodeInTheArgumentsIsAskedAboutWhateverAListSays(t *testing.T) {
	tr := newTree(t, "python3")
	for _, security := range []Security{SecurityAllowlist, SecurityFull} {
		p := tr.policy("python3", "*")
		p.Layers.Global.Security, p.Approvals.Agents["main"].Security = &security, say(security)
		for _, line := range []string{"python3 -c x > f", "rg $x; python3 -c x", "env A=b python3 -c x", "sudo python3 -c x", "(python3 -c x)", "py\\thon3 -c x >f", "sh -c 'python3 -c x >f'"} {
			if d := tr.decide(p, line); d.Verdict != AskPerson {
				t.Errorf("%v: %q: %v", security, line, d.Verdict)
			}
		}
		d := tr.decide(p, "python3 -c x")
		if d.Verdict != AskPerson || d.Reason != reasonUnsafe || d.Always != nil {
			t.Errorf("%v: %v %s %v", security, d.Verdict, d.Reason, d.Always)
		}
		if d.Answered(AnswerAllowOnce).Verdict != Run {
			t.Errorf("%v: an answer counts for nothing", security)
		}
		off := AskOff
		p.Layers.Global.Ask, p.Approvals.Agents["main"].Ask = &off, say(off)
		if d := tr.decide(p, "python3 -c x"); d.Verdict != Deny {
			t.Errorf("%v: with ask off: %v", security, d.Verdict)
		}
		p.InlineUnsafe = true
		if d := tr.decide(p, "python3 -c x"); d.Verdict != Run {
			t.Errorf("%v: where it is not asked about: %v", security, d.Verdict)
		}
	}
}

func TestWhatRunsIsBuiltAnew(t *testing.T) {
	tr := newTree(t, "rg", "git")
	tr.link("rg", "bin/r")
	p := tr.policy("rg", "git", "r")
	for line, want := range map[string]string{
		"rg a":                               "'DIR/bin/rg' 'a'",
		"env rg a":                           "'DIR/bin/rg' 'a'",
		"nice -n 5 rg \"it's\"":              `'DIR/bin/nice' '-n' '5' 'DIR/bin/rg' 'it'\''s'`,
		"rg a&&git branch||rg c;git diff|rg": "'DIR/bin/rg' 'a' && 'DIR/bin/git' 'branch' || 'DIR/bin/rg' 'c' ; 'DIR/bin/git' 'diff' | 'DIR/bin/rg'",
		"r a # b":                            "'DIR/bin/rg' 'a'",
		"sh -c 'rg a; git branch'":           `'DIR/bin/sh' '-c' ''\''DIR/bin/rg'\'' '\''a'\'' ; '\''DIR/bin/git'\'' '\''branch'\'''`,
	} {
		d := tr.decide(p, line)
		if want = strings.ReplaceAll(want, "DIR", tr.dir); d.Verdict != Run || d.Command != want {
			t.Errorf("%q: %v %s", line, d.Verdict, d.Command)
		}
	}
	// A person who saw the line lets the line run, and nothing else.
	d := tr.decide(p, "rg $x")
	if d.Verdict != AskPerson || d.Command != "rg $x" || !d.BoundTo.Unbound {
		t.Errorf("%v %q %+v", d.Verdict, d.Command, d.BoundTo)
	}
}

func TestWordsThatNoShellReadsAreTheCommand(t *testing.T) {
	tr := newTree(t, "rg", "git")
	p := tr.policy("rg")
	decide := func(argv ...string) Decision { return p.Decide(Request{Argv: argv, Cwd: tr.cwd()}) }
	if d := decide("rg", "$(git)", "; git", "*", "a\nb\x01"); d.Verdict != Run || !slices.Equal(d.Argv, []string{tr.dir + "/bin/rg", "$(git)", "; git", "*", "a\nb\x01"}) {
		t.Errorf("%v %q", d.Verdict, d.Argv)
	}
	for _, argv := range [][]string{{"git"}, {}, {""}, {"rg", "a\x00"}, {"rg git"}, {"rg; git"}, {"sh", "-c", "rg"}} {
		if d := decide(argv...); d.Verdict == Run {
			t.Errorf("%q: %v", argv, d.Verdict)
		}
	}
	if d := decide("rg", strings.Repeat("a", MaxLine)); d.Verdict != AskPerson {
		t.Errorf("a long word: %v", d.Verdict)
	}
}

func TestAnotherAgentsEntriesAreNotOnes(t *testing.T) {
	tr := newTree(t, "rg", "git")
	p := tr.policy("rg")
	p.Approvals.Agents["*"] = &AgentApprovals{Allowlist: tr.entries("git")}
	for agent, want := range map[string][2]Verdict{"main": {Run, Run}, "": {Run, Run}, "other": {AskPerson, Run}, "Main": {AskPerson, Run}, "*": {AskPerson, Run}} {
		p.Approvals.Defaults.Security = say(SecurityAllowlist)
		for i, line := range []string{"rg a", "git add"} {
			if d := p.Decide(Request{Command: line, Cwd: tr.cwd(), Agent: agent}); d.Verdict != want[i] {
				t.Errorf("%q: %q: %v", agent, line, d.Verdict)
			}
		}
	}
}

func TestALongListOfAgentsDoesNotGrowThePolicy(t *testing.T) {
	tr := newTree(t, "rg")
	p := tr.policy("rg")
	for i := range 3 * maxCompiled {
		p.Decide(Request{Command: "rg a", Cwd: tr.cwd(), Agent: strings.Repeat("a", i+1)})
	}
	if len(p.lists) > maxCompiled {
		t.Errorf("%d lists", len(p.lists))
	}
}

func TestEveryVerdictSaysWhy(t *testing.T) {
	tr := newTree(t, "rg")
	for _, line := range []string{"rg a", "rg $x", "nosuch", "sudo rg", "rg > f", "sh -c 'rg'"} {
		d := tr.decide(tr.policy("rg"), line)
		if len(d.Lines()) < 5 || !slices.ContainsFunc(d.Why, func(s Step) bool { return s.About == "verdict" }) || d.Verdict != Run && d.Reason == "" {
			t.Errorf("%q: %q", line, d.Lines())
		}
	}
}

package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestADenyEntryThatCannotBeHeldAgainstTheArgumentsDenies(t *testing.T) {
	tr := newTree(t, "git", "rg")
	p := tr.policy("git", "rg")
	p.Approvals.Agents["main"].Denylist = []Entry{{Pattern: "git", ArgPattern: "push.*"}}
	for _, argv := range [][]string{{"git", "push", "a b"}, {"git", "push", ""}, {"git", "push origin"}, {"git", "commit", "-m", "a b"}, {"git", "log", "\t"}, {"git", "push", "x"}} {
		d := p.Decide(Request{Argv: argv, Cwd: tr.cwd()})
		if d.Verdict != Deny {
			t.Errorf("%q: %v", argv, d.Verdict)
		}
	}
	if d := p.Decide(Request{Argv: []string{"git", "status"}, Cwd: tr.cwd()}); d.Verdict != Run {
		t.Errorf("%v", d.Verdict)
	}
}

func TestADenyEntryKnowsAProgramByWhatItIs(t *testing.T) {
	tr := newTree(t, "python3.11", "rm", "coreutils", "chronic", "ifne", "logsave", "systemd-cat", "eatmydata", "busybox", "vim.basic", "bash-static", "mawk", "parallel", "find", "xargs", "git", "grep", "perl5.36.0")
	tr.link("python3.11", "bin/python3")
	tr.link("mawk", "bin/awk")
	tr.link("vim.basic", "bin/vi")
	for deny, lines := range map[string][]string{
		"python3":         {"python3.11 a.py", "python3 a.py", "DIR/bin/python3.11 x", "nice python3.11 x", "find . -exec python3.11 {} +", "cd home && ../bin/python3 x; python3.11 x"},
		"python3.11":      {"python3 a.py"},
		"DIR/bin/python3": {"python3.11 a.py", "python3 x"},
		"python":          {"python3.11 a.py", "python3 x"},
		"rm":              {"coreutils --coreutils-prog=rm x", "coreutils rm x", "busybox rm x", "chronic rm x", "ifne rm x", "logsave f rm x", "systemd-cat rm x", "systemd-cat -t x rm y", "eatmydata rm x", "parallel rm ::: x", "nice rm x", "chronic -v nice rm x", "xargs rm", "FOO=1 rm x", "! rm x", "rm x 2>/dev/null", "for x in a b; do rm $x; done", "true && rm x", "eatmydata -- rm x", "chronic DIR/bin/rm x"},
		"vim":             {"vim.basic f", "vi f"},
		"bash":            {"bash-static x", "./../bin/bash-static x"},
		"awk":             {"mawk 1", "awk 1"},
		"perl":            {"perl5.36.0 x"},
	} {
		p := tr.policy("DIR/bin/*")
		p.Approvals.Agents["main"].Denylist = tr.entriesAsTheyAre(deny)
		for _, line := range lines {
			if d := tr.decide(p, strings.ReplaceAll(line, "home", tr.dir+"/home")); d.Verdict != Deny || d.Reason != ReasonDenyEntry {
				t.Errorf("deny %s: %q: %v\n%s", deny, line, d.Verdict, strings.Join(d.Lines(), "\n"))
			}
		}
		for _, line := range []string{"git status", "grep rm f", "grep python3 f"} {
			if d := tr.decide(p, line); d.Verdict != Run {
				t.Errorf("deny %s: %q: %v", deny, line, d.Verdict)
			}
		}
	}
}

func TestADenyEntryIsForVersionsWithoutALink(t *testing.T) {
	tr := newTree(t, "python3.11", "ruby-3.2", "gcc-12", "grep")
	p := tr.policy("DIR/bin/*")
	p.Approvals.Agents["main"].Denylist = tr.entriesAsTheyAre("python3", "ruby", "gcc")
	for line, want := range map[string]Verdict{"python3.11 a.py": Deny, "ruby-3.2 x": Deny, "gcc-12 x.c": Deny, "grep gcc f": Run} {
		if d := tr.decide(p, line); d.Verdict != want {
			t.Errorf("%q: %v", line, d.Verdict)
		}
	}
}

func (tr *tree) entriesAsTheyAre(patterns ...string) (list []Entry) {
	for _, p := range patterns {
		list = append(list, Entry{Pattern: strings.ReplaceAll(p, "DIR", tr.dir)})
	}
	return list
}

func TestWithoutAnApprovalsFileFullAndOffRunNothing(t *testing.T) {
	tr := newTree(t, "rg", "head")
	dir := filepath.Join(t.TempDir(), "c")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	store := Store{Path: filepath.Join(dir, "exec-approvals.json")}
	gateway, full, off, allowlist := HostGateway, SecurityFull, AskOff, SecurityAllowlist
	for name, w := range map[string]Preference{"full": {Host: &gateway, Security: &full}, "full and off": {Host: &gateway, Security: &full, Ask: &off}, "off": {Host: &gateway, Security: &allowlist, Ask: &off}} {
		snapshot, err := store.Load()
		if err != nil {
			t.Fatal(err)
		}
		p := &Policy{Machine: tr.m, Layers: Layers{Global: w}, Approvals: snapshot.Approvals, SafeBins: SafeBins{Names: DefaultSafeBins()}}
		for _, line := range []string{"rg a", "head -n 1", "true", "head -n 1 && rg a"} {
			d := tr.decide(p, line)
			if d.Verdict != Deny || !strings.Contains(strings.Join(d.Lines(), "\n"), "approvals file") {
				t.Errorf("%s: %q: %v\n%s", name, line, d.Verdict, strings.Join(d.Lines(), "\n"))
			}
		}
	}
	if _, err := store.Update(func(a *Approvals) error { a.Defaults.Security = say(SecurityFull); return nil }); err != nil {
		t.Fatal(err)
	}
	snapshot, err := store.Load()
	if err != nil {
		t.Fatal(err)
	}
	p := &Policy{Machine: tr.m, Layers: Layers{Global: Preference{Host: &gateway, Security: &full, Ask: &off}}, Approvals: snapshot.Approvals}
	if d := tr.decide(p, "rg a"); d.Verdict != Run {
		t.Errorf("with a file: %v %q", d.Verdict, d.Lines())
	}
}

func TestAMisspeltFieldThatRestrictsDenies(t *testing.T) {
	for text, names := range map[string]string{
		`{"version":1,"agents":{"main":{"denyList":[{"pattern":"rm"}]}}}`:                               "denyList",
		`{"version":1,"agents":{"main":{"deny":[{"pattern":"rm"}]}}}`:                                   "deny",
		`{"version":1,"agents":{"main":{"denylists":[]}}}`:                                              "denylists",
		`{"version":1,"agents":{"main":{"allowlist":[{"pattern":"/bin/x","argPatern":"a"}]}}}`:          "argPatern",
		`{"version":1,"agents":{"main":{"allowlist":[{"pattern":"/bin/x","ArgPattern":"a"}]}}}`:         "ArgPattern",
		`{"version":1,"agents":{"main":{"allowlist":[{"pattern":"/bin/x","args":"a"}]}}}`:               "args",
		`{"version":1,"agents":{"main":{"allowlist":[{"pattern":"/bin/x","argpattern":"a"}]}}}`:         "argpattern",
		`{"version":1,"agents":{"main":{"allowlist":[{"pattern":"/bin/x","arg_pattern":"a"}]}}}`:        "arg_pattern",
		`{"version":1,"agents":{"main":{"allowlist":[{"pattern":"/bin/x","Content":"a"}]}}}`:            "Content",
		`{"version":1,"agents":{"main":{"allowlist":[{"Pattern":"/bin/x"}]}}}`:                          "Pattern",
		`{"version":1,"Agents":{"main":{"denylist":[{"pattern":"rm"}]}}}`:                               "Agents",
		`{"version":1,"agent":{"main":{}}}`:                                                             "agent",
		`{"version":1,"default":{"security":"deny"}}`:                                                   "default",
		`{"version":1,"Defaults":{"security":"deny"}}`:                                                  "Defaults",
		`{"version":1,"defaults":{"Security":"deny"}}`:                                                  "Security",
		`{"version":1,"defaults":{"securty":"deny"}}`:                                                   "securty",
		`{"version":1,"defaults":{"askFallBack":"deny"}}`:                                               "askFallBack",
		`{"version":1,"defaults":{"ask_fallback":"deny"}}`:                                              "ask_fallback",
		`{"version":1,"defaults":{"Ask":"always"}}`:                                                     "Ask",
		`{"version":1,"defaults":{"ask":"off","Ask":"always"}}`:                                         "Ask",
		`{"version":1,"agents":{"main":{"denylist":[{"pattern":"rm"}],"denyList":[{"pattern":"id"}]}}}`: "denyList",
		`{"version":1,"agents":{"main":{"denylist":[{"pattern":"rm","pattern":"id"}]}}}`:                "pattern",
		`{"version":1,"agents":{"main":{"denylist":[{"pattern":"rm","PATTERN":"id"}]}}}`:                "PATTERN",
		`{"version":1,"agents":{"main":{"denylist":[{"patern":"rm"}]}}}`:                                "patern",
		`{"version":1,"agents":{"main":{"blocklist":["rm"]}}}`:                                          "blocklist",
		`{"version":1,"agents":{"main":{"denyllist":["rm"]}}}`:                                          "denyllist",
	} {
		if a, err := ParseApprovals([]byte(text)); err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v %+v", text, err, a)
		}
	}
	for _, text := range []string{`{"version":1,"agents":{"main":{"note":"mine","allowlist":[{"pattern":"/bin/x","comment":"why","addedBy":"me","commandText":"x"}]}},"$schema":"x","ui":{"a":1}}`} {
		if _, err := ParseApprovals([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestAnEntryWithoutAnIDGetsOneThatStays(t *testing.T) {
	text := []byte(`{"version":1,"agents":{"main":{"allowlist":["/bin/x",{"pattern":"/bin/y","argPattern":"a"},{"pattern":"/bin/x"}],"denylist":["/bin/x"]},"other":{"allowlist":["/bin/x"]}}}`)
	first, err := ParseApprovals(text)
	if err != nil {
		t.Fatal(err)
	}
	second, _ := ParseApprovals(text)
	seen := map[string]bool{}
	for _, id := range []string{"main", "other"} {
		for i, e := range first.Agents[id].Allowlist {
			if e.ID == "" || e.ID != second.Agents[id].Allowlist[i].ID || seen[e.ID] {
				t.Errorf("%s[%d]: %q %q", id, i, e.ID, second.Agents[id].Allowlist[i].ID)
			}
			seen[e.ID] = true
		}
	}
	if a, b := first.Agents["main"].Denylist[0].ID, second.Agents["main"].Denylist[0].ID; a != b || seen[a] {
		t.Errorf("%q %q", a, b)
	}
	written, _ := ParseApprovals(first.JSON())
	if written.Agents["main"].Allowlist[0].ID != first.Agents["main"].Allowlist[0].ID {
		t.Error("another id once it is written")
	}
}

func TestAnAgentNamedDefaultKeepsItsOwnLists(t *testing.T) {
	a, err := ParseApprovals([]byte(`{"version":1,"agents":{"default":{"denylist":["rm"],"allowlist":["/bin/x"],"security":"deny"},"main":{"security":"full"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if r := a.Resolve("default", Preference{}); len(r.Deny) != 1 || len(r.Allow) != 1 || r.Security != SecurityDeny {
		t.Errorf("%+v", r)
	}
	again, err := ParseApprovals(a.JSON())
	if err != nil {
		t.Fatal(err)
	}
	if r := again.Resolve("default", Preference{}); len(r.Deny) != 1 || r.Security != SecurityDeny {
		t.Errorf("once it is written: %+v", r)
	}
}

func TestAnEntryByABareNameIsToldAsUseless(t *testing.T) {
	a, err := ParseApprovals([]byte(`{"version":1,"agents":{"main":{"allowlist":["cat",{"pattern":"r*"},"/bin/x","~/x","*"],"denylist":["rm"]}}}`))
	if err != nil || len(a.Problems) != 2 || !strings.Contains(a.Problems[0], "cat") || !strings.Contains(a.Problems[1], "r*") {
		t.Errorf("%v %q", err, a.Problems)
	}
}

package policy

import (
	"errors"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"
)

// Each of these was a hole in another implementation: a command that ran without anybody being
// asked.

func TestLinesThatWereHolesAreAskedAbout(t *testing.T) {
	programs := []string{"rg", "git", "cat", "find", "xargs", "awk", "sed", "make", "python3", "node", "ruby", "perl", "busybox", "toybox", "bash", "sort", "grep",
		"jq", "head", "tail", "wc", "cut", "uniq", "tr", "nohup", "stdbuf", "time", "sudo", "setsid", "deno"}
	tr := newTree(t, programs...)
	tr.write("work/run.sh", "#!/bin/sh\n", 0o755)
	tr.write("work/x.sh", "id\n", 0o644)
	// Everything that the lines name is on the list: what is asked about is the way in which it is
	// named.
	allow := append([]string{"DIR/work/run.sh"}, slices.DeleteFunc(slices.Clone(programs), func(name string) bool {
		return slices.Contains([]string{"sort", "grep", "jq", "head", "tail", "wc", "cut", "uniq", "tr"}, name)
	})...)
	p := tr.policy(append(allow, "sh", "env", "nice", "timeout")...)
	p.SafeBins.Names = append(DefaultSafeBins(), "jq", "grep", "sort", "awk", "sed")
	for name, lines := range map[string][]string{
		"substitution in double quotes":        {`rg "$(id)"`, "rg \"`id`\"", `rg "a $(id) b"`},
		"globs and variables in safe binaries": {"head $HOME", "head -n $X", "wc *", "tail ?", "cut -f [a]", "head '*'", "wc ${X}", "sort -k '1*'"},
		"a here document that expands":         {"cat <<EOF\n$(id)\nEOF", "cat <<EOF\n`id`\nEOF", "cat <<EOF\n$HOME\nEOF"},
		"backslash and newline":                {"rg \"$\\\n(id)\"", "rg a\\\r\nb"},
		"applets of busybox":                   {"busybox sh -c id", "busybox ls", "busybox sh -c 'rg a; git branch'", "toybox nc", "busybox -- sh x", "busybox"},
		"env -S":                               {"env -S 'sh -c id'", "env --split-string='rg a'", "env -S'rg a'", "env -i rg a", "env -u PATH rg", "env A=b rg", "env -- A=b rg", "env - rg", "env"},
		"more wrappers than are looked through": {"env env env env env rg a", "nice nice nice nice nice rg a", "env nice nohup timeout 5 env rg a",
			"env env env env env sh -c id"},
		"wrappers that do more":       {"sudo rg a", "setsid rg a", "nice --bogus rg a", "timeout --bogus 5 rg a", "timeout 5", "nice", "stdbuf -x rg", "time -o f rg a", "nice -n x/y rg"},
		"a shell's start-up files":    {"bash --rcfile ./x.sh ./run.sh", "bash --init-file x.sh -i", "bash -l ./run.sh", "bash -i", "sh -s a", "bash -lc 'rg a; git branch'", "sh ./x.sh", "sh"},
		"a shell's own entry":         {"sh -c id", "sh -c 'rg a'", "sh -c 'rg a && id'", "bash -c 'rg $(id)'", "sh -c 'sh -c \"rg a; git branch\"'", "env sh -c 'rg a; git branch'"},
		"carriers in $0":              {`sh -c '$0 "$@"' curl a`, `sh -c 'exec "$0"' id`, `sh -c 'rg a; git branch' curl`, `sh -c '"$0"; rg' id`},
		"sort -o and its like":        {"sort -o out", "sort -oout", "sort --output=out", "sort -T /tmp", "sort --compress-program=sh", "sort --files0-from=x", "sort --random-source=x", "sort out"},
		"grep -f and its like":        {"grep -f pats", "grep -fpats", "grep --file=p", "grep -r -e x", "grep -R -e x", "grep -d recurse -e x", "grep x", "grep -e x f", "grep -e x -- f"},
		"jq -f and its like":          {"jq -f prog", "jq -L /tmp .", "jq --rawfile a b .a", "jq --slurpfile a b .", "jq --argfile a b .", "jq --from-file x", "jq --library-path x ."},
		"jq reads the environment":    {"jq env", "jq '$ENV'", "jq '$ENV.SECRET'", "jq '.a, env.HOME'", "jq 'include \"x\"; .'", "jq 'import \"x\" as x; .'"},
		"abbreviated long options":    {"sort --out=x", "sort --compress-prog=sh", "sort --files0-fro=x", "wc --files0-fro=x", "grep --fil=x", "grep --recur -e x", "tail --foll", "sort --f=1", "grep --dir=recurse"},
		"files of safe binaries":      {"head file", "head /etc/passwd", "wc ./x", "tail -f", "tail -F", "tail --follow=name", "tail --retry", "wc --files0-from=-", "uniq a b", "tr a b c", "cut -f 1 f", "uniq --group f"},
		"awk and sed are never safe":  {"awk 'BEGIN{system(\"id\")}'"},
		"code in the arguments":       {"awk 'BEGIN{system(\"id\")}'", "awk -e 1", "sed 's/a/b/e'", "sed -e 1e", "find . -ok rg {} \\;", "rg a | xargs rg", "make -f x", "make --eval=x", "make -E x", "python3 -c x", "python3 -W ignore -c x", "python3 -Bc x", "node -e x", "node --eval=x", "deno eval x", "perl -ne x", "perl -E x", "ruby -e x", "git -c alias.x='!id' x", "git -c core.pager=id log"},
		"code that is loaded":         {"ruby -r./x y.rb", "perl -Mx y", "perl -mx y", "node -r ./x y", "node --require=./x y", "node --import ./x y", "ruby -ryaml x"},
		"carried commands":            {"find . -exec curl {} \\;", "find . -exec {} \\;", "xargs curl", "xargs -I rg rg a", "xargs -a f rg", "xargs sh -c id", "find . -exec sh -c id \\;", "xargs env"},
		"redirections":                {"rg a > f", "rg a >> f", "rg a 2> f", "rg a >| f", "rg a &> f", "cat < f", "rg a >(git)", "cat <(git)"},
		"operators":                   {"rg a & git branch", "rg a &", "rg a |& git branch", "rg a\ngit b", "rg a\r", "(rg a)", "{ rg a; }", "rg a ;; git branch"},
		"assignments and built-ins":   {"PATH=. rg a", "eval rg a", "exec rg a", "command rg a", ". ./x.sh", "source x.sh", "export A=b", "alias rg=id", "set -x", "trap id EXIT", "builtin rg"},
		"what only looks like a word": {"rg a\u00a0b", "rg a\u200bb", "rg \u202e", "rg a\x00b", "rg\u2003a", "rg a\x01", "rg a\x7f", "rg \xff"},
		"history, tilde and braces":   {"rg a=~", "rg {a,b}", "rg {1..9}"},
		"a script by name":            {"sh run.sh", "sh -x ./run.sh", "sh ./run.sh/../x.sh", "bash ./nonexistent"},
	} {
		for _, line := range lines {
			if d := tr.decide(p, line); d.Verdict != AskPerson {
				t.Errorf("%s: %q: %v\n%s", name, line, d.Verdict, strings.Join(d.Lines(), "\n"))
			}
		}
	}
	for _, line := range []string{"A=b rg a", "cd / && rg a", "rg !x", "rg \"!x\"", "rg ~/x", "rg *.go", "rg ?", "rg [a]", "cat <<EOF\nplain\nEOF", "cat <<'EOF'\n$(id)\nEOF", "cat <<< x", "rg a 2>&1",
		"rg a \\\ncurl", "rg a;", "! rg a", "rg a\nrg b", "rg a", "env rg a", "nice -n 5 timeout 5 rg a", "rg a | head -n 5", "sh ./run.sh a", "sh -c 'rg a; git branch'", "cut -d , -f 1", "sort -k 1", "grep -e x"} {
		if d := tr.decide(p, line); d.Verdict != Run {
			t.Errorf("%q: %v\n%s", line, d.Verdict, strings.Join(d.Lines(), "\n"))
		}
	}
}

func TestAnArgumentWithASpaceAtItsEndIsAnotherCommand(t *testing.T) {
	bound := newBinding([]string{"runner"}, "/w", "main", "s", nil)
	var e *BindingError
	if err := bound.Check(newBinding([]string{"runner "}, "/w", "main", "s", nil)); !errors.As(err, &e) || e.Code != codeRequestMismatch {
		t.Errorf("%v", err)
	}
	if err := bound.Check(newBinding([]string{"runner"}, "/w", "main", "s", nil)); err != nil {
		t.Error(err)
	}
}

func TestAnApprovalIsForOneEnvironmentDirectoryAgentAndSession(t *testing.T) {
	bound := newBinding([]string{"git", "diff"}, "/w", "main", "s", map[string]string{"A": "1", "B": "2"})
	if err := bound.Check(newBinding([]string{"git", "diff"}, "/w", "main", "s", map[string]string{"B": "2", "A": "1"})); err != nil {
		t.Error(err)
	}
	for want, run := range map[string]Binding{
		codeEnvMismatch: newBinding([]string{"git", "diff"}, "/w", "main", "s", map[string]string{"A": "2"}), codeRequestMismatch: newBinding([]string{"git"}, "/w", "main", "s", nil),
	} {
		var e *BindingError
		if err := bound.Check(run); !errors.As(err, &e) || e.Code != want {
			t.Errorf("%v, not %s", err, want)
		}
	}
	var e *BindingError
	if err := newBinding([]string{"a"}, "/", "", "", nil).Check(newBinding([]string{"a"}, "/", "", "", map[string]string{"A": "1"})); !errors.As(err, &e) || e.Code != codeEnvMissing {
		t.Error(err)
	}
	for name, run := range map[string]Binding{
		"another value":    newBinding([]string{"git", "diff"}, "/w", "main", "s", map[string]string{"A": "1", "B": "3"}),
		"one more":         newBinding([]string{"git", "diff"}, "/w", "main", "s", map[string]string{"A": "1", "B": "2", "C": "3"}),
		"none":             newBinding([]string{"git", "diff"}, "/w", "main", "s", nil),
		"another place":    newBinding([]string{"git", "diff"}, "/x", "main", "s", map[string]string{"A": "1", "B": "2"}),
		"another agent":    newBinding([]string{"git", "diff"}, "/w", "other", "s", map[string]string{"A": "1", "B": "2"}),
		"another session":  newBinding([]string{"git", "diff"}, "/w", "main", "t", map[string]string{"A": "1", "B": "2"}),
		"words joined":     newBinding([]string{"git diff"}, "/w", "main", "s", map[string]string{"A": "1", "B": "2"}),
		"one word more":    newBinding([]string{"git", "diff", ""}, "/w", "main", "s", map[string]string{"A": "1", "B": "2"}),
		"nothing approved": {},
	} {
		if bound.Check(run) == nil {
			t.Errorf("%s passes", name)
		}
	}
	if (Binding{}).Check(Binding{}) == nil {
		t.Error("an empty approval is for something")
	}
}

func TestAWorkingDirectoryThroughALinkIsRefused(t *testing.T) {
	tr := newTree(t, "rg")
	tr.link("work", "alias")
	d := tr.policy("rg").Decide(Request{Command: "rg a", Cwd: tr.dir + "/alias"})
	if d.Verdict != Deny {
		t.Errorf("%v: %q", d.Verdict, d.Lines())
	}
	if _, err := tr.m.Prepare(CommandRequest{Argv: []string{"rg"}}, tr.dir+"/alias", "", ""); !errors.Is(err, errCwd) {
		t.Errorf("%v", err)
	}
}

func TestPatternsMindCaseAndComponents(t *testing.T) {
	for pattern, path := range map[string]string{"/opt/Tool": "/opt/tool", "/opt?tool": "/opt/tool", "/opt/*": "/opt/a/tool", "/opt/t?": "/opt/t/", "/OPT/**": "/opt/tool",
		"/opt/[t]ool": "/opt/tool", "/opt/tool": "/opt/toolx", "/opt/**/tool": "/opt/tool", "rg": "rg", "": ""} {
		if newPattern(pattern, "/home/u").Match(path) && pattern != "rg" {
			t.Errorf("%q matches %q", pattern, path)
		}
	}
}

func TestABareNameOnTheListAllowsNothing(t *testing.T) {
	tr := newTree(t, "rg")
	p := tr.policy()
	p.Approvals.Agents["main"].Allowlist = []Entry{{Pattern: "rg"}, {Pattern: "r*"}, {Pattern: "**"}}
	if d := tr.decide(p, "rg a"); d.Verdict != AskPerson {
		t.Errorf("%v", d.Verdict)
	}
}

func TestWhatCannotBeSeenIsShownInPrompts(t *testing.T) {
	for text, want := range map[string]string{
		"a\u200bb": `a\u{200B}b`, "a\u202eb": `a\u{202E}b`, "a\nb": `a\u{A}b`, "a\x1b[2Jb": `a\u{1B}[2Jb`, "a\u00a0b": `a\u{A0}b`, "a\u3164b": `a\u{3164}b`,
		"a\u2066b\u2069": `a\u{2066}b\u{2069}`, "a\ufeffb": `a\u{FEFF}b`, "a\U000e0041b": `a\u{E0041}b`, "a\ufe0fb": `a\u{FE0F}b`, "a\xffb": `a\x{FF}b`, "a\u00adb": `a\u{AD}b`,
		"a\u2028b": `a\u{2028}b`, "a\u034fb": `a\u{34F}b`, "a\u2800b": `a\u{2800}b`, "plain ü 日本": "plain ü 日本", "a\r": `a\u{D}`, "\t": `\u{9}`, "a\uFFFDb": `a\u{FFFD}b`,
		"a\u05d0b": `a\u{5D0}b`, `\u{202E}`: `\u{5C}u{202E}`, `printf '\x41\u0041'`: `printf '\x41\u0041'`,
	} {
		if got := DisplayText(text); got != want {
			t.Errorf("%q is shown as %s", text, got)
		}
	}
}

func TestWhatAnInterpreterWouldRunMustBeClear(t *testing.T) {
	tr := newTree(t, "pnpm", "npx", "node", "bun", "perl", "ruby", "yarn", "npm", "deno", "python3")
	tr.write("work/run.ts", "x", 0o644)
	for _, argv := range [][]string{
		{"pnpm", "--future-flag", "dlx", "tsx", "./run.ts"}, {"pnpm", "run", "dev"}, {"pnpm", "dev"}, {"npx", "-c", "node run.ts"}, {"npx", "tsx", "./missing.ts"},
		{"node", "-r", "./run.ts", "./run.ts"}, {"node", "--import=./run.ts", "./run.ts"}, {"node", "--require", "./run.ts", "./run.ts"}, {"node"}, {"node", "missing.js"},
		{"bun", "run", "dev"}, {"bun", "dev"}, {"deno", "eval", "x"}, {"deno", "task", "x"}, {"perl", "-Ilib", "./run.ts"}, {"perl", "-MX", "./run.ts"},
		{"ruby", "-r./run.ts", "./run.ts"}, {"ruby", "-I.", "./run.ts"}, {"python3", "-m", "mod"}, {"sh", "-c", "node ./run.ts"}, {"sh", "-s"}, {"sh"}, {"npm", "start"},
		{"yarn", "dev"}, {"env", "A=b", "node", "./run.ts"}, {"node", "--", "--x"},
	} {
		if plan, err := tr.m.Prepare(CommandRequest{Argv: argv}, tr.cwd(), "", ""); !errors.Is(err, errUnbindable) {
			t.Errorf("%q: %+v %v", argv, plan, err)
		}
	}
	for _, argv := range [][]string{{"node", "./run.ts"}, {"npx", "tsx", "./run.ts"}, {"pnpm", "exec", "tsx", "./run.ts"}, {"deno", "run", "-A", "./run.ts"}, {"python3", "-B", "run.ts"}} {
		plan, err := tr.m.Prepare(CommandRequest{Argv: argv}, tr.cwd(), "", "")
		if err != nil || plan.File == nil || plan.File.Path != tr.cwd()+"/run.ts" {
			t.Errorf("%q: %+v %v", argv, plan, err)
		}
	}
}

func TestVariablesThatChooseCodeAreRefused(t *testing.T) {
	for _, name := range []string{
		"GIT_EXEC_PATH", "GIT_EDITOR", "GIT_PAGER", "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_SEQUENCE_EDITOR", "GIT_ASKPASS", "GIT_TEMPLATE_DIR", "GIT_CONFIG_COUNT",
		"EDITOR", "VISUAL", "PAGER", "LESSOPEN", "BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "ZDOTDIR", "IFS", "CDPATH", "PROMPT_COMMAND", "PATH", "path",
		"LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "PYTHONPATH", "PYTHONSTARTUP", "NODE_OPTIONS", "PERL5OPT", "RUBYOPT", "RUBYLIB",
		"HTTPS_PROXY", "SSL_CERT_FILE", "NODE_TLS_REJECT_UNAUTHORIZED", "HOME", "TMPDIR", "1BAD", "A B", "A-B", "", "BASH_FUNC_x%%", "A=B", "GITHUB_TOKEN", "KUBECONFIG",
		"SSH_AUTH_SOCK", "RUSTC_WRAPPER", "CC", "MAKEFLAGS", "GOFLAGS", "GCONV_PATH", "AWS_PROFILE",
	} {
		if checkOverrides(map[string]string{name: "x"}) == nil {
			t.Errorf("%q may be set", name)
		}
	}
	tr := newTree(t, "rg")
	d := tr.policy("rg").Decide(Request{Command: "rg a", Cwd: tr.cwd(), Env: map[string]string{"BASH_ENV": "/tmp/x"}})
	if d.Verdict != Deny || d.Reason != ReasonEnvironment || !strings.Contains(strings.Join(d.Lines(), " "), "BASH_ENV") {
		t.Errorf("%v %q", d.Verdict, d.Lines())
	}
	if env := Environment(map[string]string{"LD_PRELOAD": "x", "BASH_ENV": "x", "A": "b"}, map[string]string{"PS4": "$(id)", "C": "d"}, false); len(env) != 3 || env["A"]+env["C"] != "bd" {
		t.Errorf("%v", env)
	}
	if env := Environment(nil, map[string]string{"C": "d", "LANG": "C", "LC_ALL": "C"}, true); len(env) != 3 || env["LANG"] != "C" {
		t.Errorf("through a shell: %v", env)
	}
}

func TestAnEmptyListOfApproversIsNobody(t *testing.T) {
	operator := Answerer{ID: "op", Operator: true}
	if (Approvers{}).Check(operator) == nil || (Approvers)(nil).Check(operator) == nil || (Approvers{""}).Check(Answerer{Operator: true}) == nil {
		t.Error("nobody is everybody")
	}
	if err := (Approvers{"op"}).Check(operator); err != nil {
		t.Error(err)
	}
}

func TestAnAgentCannotAnswer(t *testing.T) {
	command, ok, err := ParseApprove("/approve abc allow-always")
	if !ok || err != nil || command.Answer != AnswerAllowAlways {
		t.Fatal(command, ok, err)
	}
	for _, who := range []Answerer{{ID: "op", Operator: true, Agent: true}, {ID: "op"}, {ID: "other", Operator: true}, {}} {
		if (Approvers{"op"}).Check(who) == nil {
			t.Errorf("%+v may answer", who)
		}
	}
}

func TestAllowAlwaysStoresNeitherShellNorWrapperNorTail(t *testing.T) {
	tr := newTree(t, "rg", "git", "payload", "python3", "busybox", "xargs", "find", "awk", "bash")
	tr.write("work/run.sh", "", 0o644)
	for line, want := range map[string][]string{
		"sh -c 'rg a'":                   {"rg"},
		"bash -lc 'rg a && git branch'":  {"rg", "git"},
		"env nice rg a":                  {"rg"},
		"rg a # && payload":              {"rg"},
		"rg a | git branch":              {"rg"},
		"python3 x.py":                   nil,
		"busybox sh -c 'rg a'":           nil,
		"rg a | xargs git":               {"rg"},
		"find . -exec rg {} +":           nil,
		"awk 1":                          nil,
		`sh -c '$0 "$@"' rg a`:           nil,
		"env A=b rg a":                   nil,
		"rg $(payload)":                  nil,
		"sh -c 'sh -c \"rg a\"'":         {"rg"},
		"sh ./run.sh a":                  {"DIR/work/run.sh"},
		"bash --rcfile x ./run.sh":       nil,
		"cat <<EOF | rg a\nx\nEOF":       nil,
		"nosuch a":                       nil,
		"rg a && nosuch":                 {"rg"},
		"nice -n 5 timeout 5 sh -c 'id'": nil,
	} {
		result := EvaluateLine(tr.m, tr.lists(), line, tr.cwd())
		var got []string
		for _, e := range result.AllowAlways(line, []string{line}, tr.cwd(), false, false) {
			if e.Source != sourceAllowAlways || !strings.HasPrefix(e.ArgPattern, argHashPrefix) {
				t.Errorf("%q stores %+v", line, e)
			}
			if !strings.HasPrefix(e.Pattern, commandPrefix) {
				got = append(got, e.Pattern)
			}
		}
		var paths []string
		for _, name := range want {
			if !strings.Contains(name, "/") {
				name = "DIR/bin/" + name
			}
			paths = append(paths, strings.ReplaceAll(name, "DIR", tr.dir))
		}
		if !slices.Equal(got, paths) {
			t.Errorf("%q stores %q, not %q", line, got, paths)
		}
	}
}

func TestAllowAlwaysAllowsThatCommandThereAndNoOther(t *testing.T) {
	tr := newTree(t, "rg", "git")
	p := tr.policy()
	p.Approvals.Agents["main"].Allowlist = tr.decide(p, "rg a 'b c'").Always
	for line, want := range map[string]Verdict{"rg a 'b c'": Run, "env rg a b\\ c": Run, "rg a b c": AskPerson, "rg a": AskPerson, "rg a 'b c' d": AskPerson,
		"rg a 'b c '": AskPerson, "git add 'b c'": AskPerson, "rg a 'b c' && rg": AskPerson, "rg a 'b c' # d": Run} {
		if d := tr.decide(p, line); d.Verdict != want {
			t.Errorf("%q: %v\n%s", line, d.Verdict, strings.Join(d.Lines(), "\n"))
		}
	}
	if d := p.Decide(Request{Command: "rg a 'b c'", Cwd: tr.dir + "/home"}); d.Verdict != AskPerson {
		t.Errorf("elsewhere: %v", d.Verdict)
	}
	always := AskAlways
	p.Layers.Parameter.Ask = &always
	d := tr.decide(p, "rg a 'b c'")
	if d.Verdict != AskPerson || slices.Contains(d.Offers, AnswerAllowAlways) || d.Always != nil {
		t.Errorf("with ask=always: %v %v", d.Verdict, d.Offers)
	}
	if d.Answered(AnswerAllowAlways).Verdict != Deny {
		t.Error("an answer that was not offered counts")
	}
}

func guardedRecord() *ApprovalRecord {
	b := newBinding([]string{"echo", "a"}, "/w", "main", "s", nil)
	return &ApprovalRecord{ID: "run", Node: "n", Binding: &b, ExpiresAt: 100, By: Caller{"conn", "dev"}, Resolved: true, Answer: AnswerAllowOnce}
}

func TestApprovedByTheCallerCountsForNothing(t *testing.T) {
	call := Invocation{CommandRequest: CommandRequest{Argv: []string{"echo", "a"}}, Cwd: "/w", Agent: "main", Session: "s", RunID: "run", Approved: true, Answer: AnswerAllowOnce}
	caller := Caller{"conn", "dev"}
	out, consume, err := Guard(call, "n", caller, guardedRecord(), 0)
	if err != nil || !out.Approved || !consume {
		t.Fatalf("%+v %v %v", out, consume, err)
	}
	for name, change := range map[string]func(*Invocation, *Caller, *ApprovalRecord) *ApprovalRecord{
		"without a record":  func(*Invocation, *Caller, *ApprovalRecord) *ApprovalRecord { return nil },
		"without an id":     func(i *Invocation, _ *Caller, r *ApprovalRecord) *ApprovalRecord { i.RunID = ""; return r },
		"with another id":   func(i *Invocation, _ *Caller, r *ApprovalRecord) *ApprovalRecord { i.RunID = "x"; return r },
		"expired":           func(_ *Invocation, _ *Caller, r *ApprovalRecord) *ApprovalRecord { r.ExpiresAt = 0; return r },
		"by another device": func(_ *Invocation, c *Caller, r *ApprovalRecord) *ApprovalRecord { c.Device = "x"; return r },
		"by another connection": func(_ *Invocation, c *Caller, r *ApprovalRecord) *ApprovalRecord {
			r.By.Device, c.Connection = "", "x"
			return r
		},
		"by nobody": func(_ *Invocation, c *Caller, r *ApprovalRecord) *ApprovalRecord {
			r.By, *c = Caller{}, Caller{}
			return r
		},
		"for another node":  func(_ *Invocation, _ *Caller, r *ApprovalRecord) *ApprovalRecord { r.Node = "m"; return r },
		"for no node":       func(_ *Invocation, _ *Caller, r *ApprovalRecord) *ApprovalRecord { r.Node = ""; return r },
		"used already":      func(_ *Invocation, _ *Caller, r *ApprovalRecord) *ApprovalRecord { r.Consumed = true; return r },
		"not answered":      func(_ *Invocation, _ *Caller, r *ApprovalRecord) *ApprovalRecord { r.Resolved = false; return r },
		"denied":            func(_ *Invocation, _ *Caller, r *ApprovalRecord) *ApprovalRecord { r.Answer = AnswerDeny; return r },
		"without a binding": func(_ *Invocation, _ *Caller, r *ApprovalRecord) *ApprovalRecord { r.Binding = nil; return r },
		"with another environment": func(i *Invocation, _ *Caller, r *ApprovalRecord) *ApprovalRecord {
			i.Env = map[string]string{"A": "b"}
			return r
		},
		"with other words": func(i *Invocation, _ *Caller, r *ApprovalRecord) *ApprovalRecord {
			i.Argv = []string{"echo", "b"}
			return r
		},
		"with another text":         func(i *Invocation, _ *Caller, r *ApprovalRecord) *ApprovalRecord { i.Raw = "echo b"; return r },
		"for another session":       func(i *Invocation, _ *Caller, r *ApprovalRecord) *ApprovalRecord { i.Session = "x"; return r },
		"from another directory":    func(i *Invocation, _ *Caller, r *ApprovalRecord) *ApprovalRecord { i.Cwd = "/"; return r },
		"with an answer of no kind": func(_ *Invocation, _ *Caller, r *ApprovalRecord) *ApprovalRecord { r.Answer = AnswerNone; return r },
	} {
		i, c := call, caller
		r := change(&i, &c, guardedRecord())
		if out, _, err := Guard(i, "n", c, r, 0); err == nil {
			t.Errorf("%s: %+v", name, out)
		}
	}
	call.Approved, call.Answer, call.Plan = false, AnswerDeny, &Plan{Argv: []string{"curl"}}
	if out, _, err := Guard(call, "n", caller, nil, 0); err != nil || out.Approved || out.Plan != nil {
		t.Errorf("stripped: %+v %v", out, err)
	}
}

func TestTheStoredPlanTakesThePlaceOfTheCallersWords(t *testing.T) {
	r := guardedRecord()
	r.Plan = &Plan{Argv: []string{"echo", "a"}, Cwd: "/w", CommandText: "echo a", Agent: "main", Session: "s"}
	call := Invocation{CommandRequest: CommandRequest{Argv: []string{"rm", "-rf", "/"}}, Raw: "rm -rf /", Cwd: "/", Agent: "evil", Session: "x", RunID: "run", Approved: true}
	out, _, err := Guard(call, "n", Caller{"conn", "dev"}, r, 0)
	if err != nil || !slices.Equal(out.Argv, r.Plan.Argv) || out.Cwd != "/w" || out.Agent != "main" || out.Raw != "echo a" {
		t.Errorf("%+v %v", out, err)
	}
}

func TestATextThatIsNotThatOfTheWordsIsRefused(t *testing.T) {
	for _, raw := range []string{"echo hi", "uname  -a", "uname -a x", "uname"} {
		var mismatch *MismatchError
		if _, err := newCommandRequest([]string{"uname", "-a"}, raw, true); !errors.As(err, &mismatch) {
			t.Errorf("%q: %v", raw, err)
		}
	}
	for _, argv := range [][]string{{"env", "BASH_ENV=x", "sh", "-c", "id"}, {"sh", "-c", "id", "x"}, {"sudo", "sh", "-c", "id"}} {
		if _, err := newCommandRequest(argv, "id", true); err == nil {
			t.Errorf("%q passes for id", argv)
		}
	}
}

func TestWhetherAFileExistsCannotBeAsked(t *testing.T) {
	tr := newTree(t, "head", "sort")
	p := tr.policy()
	p.SafeBins.Names = append(p.SafeBins.Names, "sort")
	before := [...]Verdict{tr.decide(p, "head secret").Verdict, tr.decide(p, "sort -o secret").Verdict, tr.decide(p, "head -n secret").Verdict}
	tr.write("work/secret", "x", 0o644)
	if after := [...]Verdict{tr.decide(p, "head secret").Verdict, tr.decide(p, "sort -o secret").Verdict, tr.decide(p, "head -n secret").Verdict}; after != before {
		t.Errorf("%v, and %v once the file is there", before, after)
	}
}

func TestASafeBinaryThatIsFirstOnThePathIsNotSafe(t *testing.T) {
	tr := newTree(t, "head")
	tr.write("evil/head", "#!/bin/sh\n", 0o755)
	tr.m.Path = []string{tr.dir + "/evil", tr.dir + "/bin"}
	if d := tr.decide(tr.policy(), "head -n 1"); d.Verdict != AskPerson {
		t.Errorf("%v", d.Verdict)
	}
	t.Chdir(tr.dir)
	tr.m.Path = []string{"", ".", "evil", tr.dir + "/bin"}
	if d := tr.decide(tr.policy(), "head -n 1"); d.Verdict != Run {
		t.Errorf("relative elements count: %q", d.Lines())
	}
	tr.link("../evil/head", "bin/tail")
	if d := tr.decide(tr.policy(), "tail -n 1"); d.Verdict != AskPerson {
		t.Errorf("a link in the trusted directory: %v", d.Verdict)
	}
}

func TestAProfileSaysWhichArgumentsASafeBinaryHas(t *testing.T) {
	tr := newTree(t, "wc", "head", "jq", "awk", "cut", "sort", "grep", "mytool", "xargs")
	p := tr.policy()
	p.SafeBins = SafeBins{Names: append(DefaultSafeBins(), "jq", "awk", "sort", "grep", "mytool", "xargs"), Profiles: map[string]SafeBinProfile{
		"wc": {BooleanFlags: []string{"-l", "-w", "--lines"}, MaxPositional: new(0)}, "head": {BooleanFlags: []string{"-5"}, AllowedValueFlags: []string{"-n"}, MaxPositional: new(0)},
		"jq": {MaxPositional: new(1), BooleanFlags: []string{"-r"}, DeniedFlags: []string{"-f"}}, "awk": {}, "xargs": {}}}
	for line, want := range map[string]Verdict{
		"wc -l": Run, "wc -lw": Run, "wc --lines": Run, "wc --li": Run, "wc --lines=3": AskPerson, "wc -lx": AskPerson, "wc -l f": AskPerson, "wc -c": AskPerson, "head -5": Run, "head -12": Run, "head -5x": AskPerson,
		"head -n -5": Run, "head -c 1": AskPerson, "jq .a": Run, "jq -r .a": Run, "jq env": AskPerson, "jq '$ENV.x'": AskPerson, "jq .env": Run, "jq 'import \"x\" as y; .'": AskPerson, "jq -f x": AskPerson, "jq . f": AskPerson,
		"jq -rf x": AskPerson, "awk 1": AskPerson, "awk": AskPerson, "xargs": AskPerson, "mytool": AskPerson, "cut -xf1": AskPerson, "sort -rk1": AskPerson, "sort -rn": AskPerson, "sort -k1": Run, "grep --b=1 -e x": AskPerson,
		"grep --bef=1 -e x": Run, "grep -e": AskPerson, "grep -ex": Run, "cut -d": AskPerson, "sort -": AskPerson, "sort ''": AskPerson, "sort -- -": Run, "grep -e x -- ''": AskPerson, "cut -d ''": AskPerson, "cut --output-delimiter=: -f 1": Run,
	} {
		if d := tr.decide(p, line); d.Verdict != want {
			t.Errorf("%q: %v\n%s", line, d.Verdict, strings.Join(d.Lines(), "\n"))
		}
	}
}

func TestASafeBinaryMayHaveFlagsThatNameNothing(t *testing.T) {
	tr := newTree(t, "wc", "head", "tail", "cut", "uniq", "tr")
	for line, want := range map[string]Verdict{
		"head -20": Run, "tail -5 | head -1": Run, "wc -l": Run, "wc -lw": Run, "wc --li": Run, "uniq -c": Run, "uniq -cd": Run, "tr -d x": Run, "tr -cd a-z": Run, "cut -sf1": Run, "tail -n 5 2>/dev/null": Run,
		"head -20 f": AskPerson, "wc -l f": AskPerson, "uniq -c a b": AskPerson, "tail -f": AskPerson, "tail -5f": AskPerson, "tail -qf": AskPerson, "wc -l --files0-from=-": AskPerson, "wc -lx": AskPerson, "tr -d a b c": AskPerson, "tail --f": AskPerson, "head -qc /etc/passwd": AskPerson,
	} {
		if d := tr.decide(tr.policy(), line); d.Verdict != want {
			t.Errorf("%q: %v\n%s", line, d.Verdict, strings.Join(d.Lines(), "\n"))
		}
	}
}

func TestALinkInAnAllowedDirectoryLetsNothingElseIn(t *testing.T) {
	tr := newTree(t, "rg")
	tr.write("outside/evil", "#!/bin/sh\n", 0o755)
	tr.link("../outside/evil", "bin/link")
	tr.link("../outside", "bin/sub")
	tr.link("env", "bin/e")
	for _, line := range []string{"link a", "DIR/bin/link a", "DIR/bin/sub/evil", "e A=b rg", "DIR/bin/../outside/evil", "DIR/bin/sub/../outside/evil"} {
		if d := tr.decide(tr.policy("DIR/bin/*", "DIR/bin/**"), line); d.Verdict != AskPerson {
			t.Errorf("%q: %v\n%s", line, d.Verdict, strings.Join(d.Lines(), "\n"))
		}
	}
	tr.link("../outside/evil", "bin/ev")
	for _, allowed := range []string{"DIR/outside/*", "DIR/bin/*"} {
		if d := tr.decide(tr.policy(allowed), "ev a"); d.Verdict != AskPerson {
			t.Errorf("with %s alone: %v", allowed, d.Verdict)
		}
	}
	if d := tr.decide(tr.policy("DIR/bin/*", "DIR/outside/*"), "ev a"); d.Verdict != Run || d.Argv[0] != tr.dir+"/outside/evil" {
		t.Errorf("both are allowed: %v %q", d.Verdict, d.Argv)
	}
}

func TestAProgramUnderAnotherNameIsAskedAbout(t *testing.T) {
	tr := newTree(t, "xz", "python3.11", "mawk", "busybox", "coreutils")
	for link, target := range map[string]string{"unxz": "xz", "python3": "python3.11", "awk": "mawk", "ls": "busybox", "wc": "coreutils"} {
		tr.link(target, "bin/"+link)
	}
	for line, want := range map[string]Verdict{"unxz f": AskPerson, "xz f": Run, "python3 f": Run, "awk -f f": Run, "ls": AskPerson, "wc": AskPerson} {
		if d := tr.decide(tr.policy("DIR/bin/*"), line); d.Verdict != want {
			t.Errorf("%q: %v\n%s", line, d.Verdict, strings.Join(d.Lines(), "\n"))
		}
	}
}

func TestWordsAndALineOfTheSameTextAreTwoCommands(t *testing.T) {
	tr := newTree(t, "rg", "find")
	for _, argv := range [][]string{{"find", "$(rg)"}, {"find $(rg)"}, {"find", ".", ";", "rg"}} {
		p := tr.policy()
		words := Request{Argv: argv, Cwd: tr.cwd()}
		d := p.Decide(words)
		p.Approvals.Agents["main"].Allowlist = append(d.Always, Entry{Pattern: commandPattern(words.text()), Source: sourceAllowAlways})
		line := Request{Command: CommandText(argv), Cwd: tr.cwd()}
		if d := p.Decide(line); d.Verdict != AskPerson {
			t.Errorf("%q allows %q: %v", argv, line.Command, d.Verdict)
		}
		if d.BoundTo != nil {
			if run := p.Decide(line).BoundTo; run != nil && d.BoundTo.Check(run.Binding) == nil {
				t.Errorf("an approval of %q is one of %q", argv, line.Command)
			}
		}
		if d := p.Decide(words); argv[0] == "find" && d.Verdict != Run {
			t.Errorf("%q is not allowed for good: %v", argv, d.Verdict)
		}
	}
}

func TestThroughAShellOnlyHowTextLooksIsOverridden(t *testing.T) {
	tr := newTree(t, "rg", "git")
	p := tr.policy("rg", "git")
	for _, c := range []struct {
		r     Request
		shell bool
	}{{Request{Command: "rg a"}, false}, {Request{Argv: []string{"rg"}}, false}, {Request{Command: "rg a && git branch"}, true}, {Request{Argv: []string{"sh", "-c", "rg; git"}}, true}, {Request{Command: "rg $x"}, true},
		{Request{Argv: []string{"env", "A=b", "sh", "-c", "rg"}}, true}} {
		c.r.Cwd, c.r.Env = tr.cwd(), map[string]string{"FOO": "x"}
		d := p.Decide(c.r)
		if told := strings.Contains(strings.Join(d.Lines(), "\n"), "FOO is not overridden"); d.Shell != c.shell || told != c.shell {
			t.Errorf("%+v: %v %v", c.r, d.Shell, told)
		}
	}
}

func TestAScriptOrDirectoryThatChangedAfterTheApprovalDoesNotRun(t *testing.T) {
	for name, change := range map[string]func(*tree){
		"the script":  func(tr *tree) { tr.write("work/run.sh", "id\n", 0o755) },
		"the program": func(tr *tree) { os.Remove(tr.dir + "/bin/bash"); tr.link("sh", "bin/bash") },
		"the directory": func(tr *tree) {
			if err := errors.Join(os.Rename(tr.dir+"/work", tr.dir+"/old"), os.Symlink(tr.dir+"/old", tr.dir+"/work")); err != nil {
				t.Fatal(err)
			}
		},
		"gone": func(tr *tree) { os.Remove(tr.dir + "/work/run.sh") },
	} {
		tr := newTree(t, "bash")
		tr.write("work/run.sh", "true\n", 0o755)
		d := tr.decide(tr.policy(), "bash ./run.sh")
		if d.Verdict != AskPerson || d.BoundTo == nil || len(d.BoundTo.Scripts) != 1 {
			t.Fatalf("%+v", d)
		}
		plan, err := tr.m.Prepare(CommandRequest{Argv: []string{"bash", "./run.sh"}}, tr.cwd(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(tr.m.StillBound(d.BoundTo), tr.m.Recheck(plan)); err != nil {
			t.Errorf("%s: before: %v", name, err)
		}
		change(tr)
		var changed *ChangedError
		if err := tr.m.StillBound(d.BoundTo); !errors.As(err, &changed) {
			t.Errorf("%s: %v", name, err)
		}
		if err := tr.m.Recheck(plan); !errors.As(err, &changed) {
			t.Errorf("%s: plan: %v", name, err)
		}
	}
}

func TestASkillsNameElsewhereIsNotTheSkill(t *testing.T) {
	tr := newTree(t, "skill")
	tr.write("work/skill", "#!/bin/sh\n", 0o755)
	allowed := true
	p := tr.policy()
	p.Approvals.Defaults.AutoAllowSkills = &allowed
	for line, skill := range map[string]Skill{
		"skill a":         {"skill", "/opt/skill"},
		"./skill a":       {"skill", tr.dir + "/bin/skill"},
		"DIR/bin/skill a": {"skill", tr.dir + "/bin/skill"},
	} {
		p.Skills = []Skill{skill}
		if d := tr.decide(p, line); d.Verdict != AskPerson {
			t.Errorf("%q: %v", line, d.Verdict)
		}
	}
	if d := tr.decide(p, "skill a"); p.Skills[0].ResolvedPath == "/opt/skill" && d.Verdict == Run {
		t.Errorf("%v", d.Verdict)
	}
	p.Skills = []Skill{{"skill", tr.dir + "/bin/skill"}}
	if d := tr.decide(p, "skill a"); d.Verdict != Run {
		t.Errorf("%q", d.Lines())
	}
	allowed = false
	if d := tr.decide(p, "skill a"); d.Verdict != AskPerson {
		t.Errorf("skills are not allowed by themselves: %v", d.Verdict)
	}
}

// turning is a file system in which a link leads elsewhere when it is looked at again.
type turning struct {
	Disk
	path, other string
	looks       int
}

func (f *turning) Real(path string) (string, error) {
	if path == f.path {
		if f.looks++; f.looks > 1 {
			return f.other, nil
		}
	}
	return f.Disk.Real(path)
}

func TestTheLineThatWasBuiltIsCheckedAgain(t *testing.T) {
	tr := newTree(t, "rg", "evil")
	tr.m.Files = &turning{path: tr.dir + "/bin/rg", other: tr.dir + "/bin/evil"}
	result := EvaluateLine(tr.m, tr.lists("rg"), "rg a", tr.cwd())
	if result.Satisfied || result.Command != "" {
		t.Errorf("%+v", result)
	}
	result = &Evaluation{Satisfied: true, Command: "'" + tr.dir + "/bin/evil' 'a'", Commands: []*Command{{By: ByAllowlist, rebuilt: []string{tr.dir + "/bin/rg", "a"}}}}
	segments, refusal := ParseLine(result.Command)
	result.checkAgain(tr.m, tr.lists("*"), segments, refusal, tr.cwd())
	if result.Satisfied {
		t.Error("other words than those that were meant pass")
	}
}

func TestANodeOrGatewayWithoutAFileRunsNothing(t *testing.T) {
	tr := newTree(t, "rg")
	for _, host := range []Host{HostGateway, HostNode} {
		p := &Policy{Machine: tr.m, Layers: Layers{Global: Preference{Host: &host}}, Approvals: &Approvals{}}
		if d := tr.decide(p, "rg a"); d.Verdict != Deny || d.Security != SecurityDeny {
			t.Errorf("%v: %v", host, d.Verdict)
		}
	}
	if d := (&Policy{}).Decide(Request{}); d.Verdict == Run && d.Host != HostSandbox {
		t.Errorf("the zero policy: %v", d)
	}
}

func TestFilesOfTheKernelAreNoScripts(t *testing.T) {
	for _, path := range []string{"/proc/kmsg", "/proc/self/environ", "/sys/kernel/uevent_seqnum", "/dev/zero"} {
		if _, err := (Disk{}).Hash(path); err == nil {
			t.Errorf("%s is read", path)
		}
	}
}

func TestOnlyTheSystemsOwnShellsAndWrappersAreUsed(t *testing.T) {
	tr := newTree(t, "rg", "git", "nohup", "bash")
	tr.write("work/run.sh", "", 0o644)
	for _, name := range []string{"sh", "timeout", "nice", "env"} {
		tr.write("evil/"+name, "#!/bin/sh\n", 0o755)
	}
	tr.link("git", "bin/stdbuf")
	p := tr.policy("rg", "DIR/work/run.sh", "DIR/evil/*")
	for _, line := range []string{"DIR/evil/sh ./run.sh", "DIR/evil/timeout 5 rg", "DIR/evil/nice rg", "stdbuf -oL rg"} {
		if d := tr.decide(p, line); d.Verdict != AskPerson {
			t.Errorf("%q: %v\n%s", line, d.Verdict, strings.Join(d.Lines(), "\n"))
		}
	}
	// env does nothing, and is not run; a shell's line is run by the host's own sh.
	for line, want := range map[string]string{"DIR/evil/env rg a": "'DIR/bin/rg' 'a'", "DIR/evil/sh -c 'rg; rg'": `'DIR/bin/sh' '-c' ''\''DIR/bin/rg'\'' ; '\''DIR/bin/rg'\'''`} {
		if d := tr.decide(p, line); d.Verdict != Run || d.Command != strings.ReplaceAll(want, "DIR", tr.dir) {
			t.Errorf("%q: %v %s", line, d.Verdict, d.Command)
		}
	}
}

func TestAnEntryForEveryProgramIsNotOneForEveryScriptOrShell(t *testing.T) {
	tr := newTree(t, "rg", "bash", "busybox")
	tr.write("work/run.sh", "", 0o644)
	for _, line := range []string{"sh ./run.sh", "bash ./run.sh a", "bash", "sh -c rg", "sh -c 'rg $x; rg'", "sh -c 'nosuch; rg'", "busybox sh", "busybox rm x", "sh -lc 'rg; rg'", "sudo rg"} {
		if d := tr.decide(tr.policy("*", "DIR/bin/*", "DIR/**/bash"), line); d.Verdict != AskPerson {
			t.Errorf("%q: %v\n%s", line, d.Verdict, strings.Join(d.Lines(), "\n"))
		}
	}
}

func TestCarriedCommandsCountWhereCodeInTheArgumentsIsNotAskedAbout(t *testing.T) {
	tr := newTree(t, "rg", "git", "curl", "xargs", "find", "nohup")
	tr.link("xargs", "bin/xa")
	tr.write("work/{}", "", 0o755) // find puts any name in its place
	p := tr.policy("rg", "git", "xargs", "find", "DIR/bin/xa", "DIR/work/*")
	p.InlineUnsafe = true
	p.Approvals.Agents["main"].Allowlist = append(p.Approvals.Agents["main"].Allowlist, Entry{Pattern: tr.dir + "/bin/nohup"}, Entry{Pattern: tr.dir + "/bin/curl", ArgPattern: "safe"})
	for _, line := range []string{"rg a | xargs curl", "xargs curl safe", "find . -exec curl {} \\;", "find . -exec rg {} + -exec curl {} +", "xargs -I rg rg a", "xargs -I % %", "xargs -I{} {}", "find . -exec {} \\;",
		"find . -exec ./{} \\;", "xargs sh -c 'rg; git'", "xargs -a f rg", "xargs --arg-file=f rg", "xargs -i rg", "xargs -I % nice % a", "xargs env", "xargs nice", "xargs timeout 5", "find . -exec", "find . -exec rg",
		"xargs xargs curl", "find . -exec find . -exec curl {} \\; \\;", "xa curl", "xargs head", "find . -ok curl {} \\;", "find . -execdir curl {} +", "xargs xargs xargs xargs rg"} {
		if d := tr.decide(p, line); d.Verdict != AskPerson {
			t.Errorf("%q: %v\n%s", line, d.Verdict, strings.Join(d.Lines(), "\n"))
		}
	}
	for line, want := range map[string]string{
		"rg a | xargs git branch":               "'DIR/bin/rg' 'a' | 'DIR/bin/xargs' 'DIR/bin/git' 'branch'",
		"xargs -n 1 -P2 -0 git":                 "'DIR/bin/xargs' '-n' '1' '-P2' '-0' 'DIR/bin/git'",
		"xargs -I % git % a":                    "'DIR/bin/xargs' '-I' '%' 'DIR/bin/git' '%' 'a'",
		"find . -exec git {} + -exec rg {} \\;": "'DIR/bin/find' '.' '-exec' 'DIR/bin/git' '{}' '+' '-exec' 'DIR/bin/rg' '{}' ';'",
		"xargs env git":                         "'DIR/bin/xargs' 'DIR/bin/git'",
		"xargs":                                 "'DIR/bin/xargs'",
	} {
		if d := tr.decide(p, line); d.Verdict != Run || d.Command != strings.ReplaceAll(want, "DIR", tr.dir) {
			t.Errorf("%q: %v %s\n%s", line, d.Verdict, d.Command, strings.Join(d.Lines(), "\n"))
		}
	}
}

func TestAnAppletIsAllowedOnlyByItsName(t *testing.T) {
	tr := newTree(t, "busybox", "rg")
	tr.link("busybox", "bin/ls")
	p := tr.policy()
	p.InlineUnsafe = true
	for argPattern, c := range map[string]struct{ run, ask []string }{
		"ls.*": {[]string{"busybox ls", "busybox ls -l"}, []string{"busybox wc", "busybox", "ls", "busybox lsx a b\\ c", "nice busybox ls", "busybox -- ls"}},
		".*":   {[]string{"busybox ls"}, []string{"busybox sh -c id", "busybox ash x", "busybox awk 1", "busybox env id", "busybox nice id", "busybox xargs id", "busybox find . -exec id +", "busybox time id", "busybox busybox sh"}},
	} {
		p.Approvals.Agents["main"].Allowlist = []Entry{{Pattern: tr.dir + "/bin/busybox", ArgPattern: argPattern}}
		for _, line := range c.run {
			if d := tr.decide(p, line); d.Verdict != Run {
				t.Errorf("%s: %q: %v\n%s", argPattern, line, d.Verdict, strings.Join(d.Lines(), "\n"))
			}
		}
		for _, line := range c.ask {
			if d := tr.decide(p, line); d.Verdict != AskPerson {
				t.Errorf("%s: %q: %v\n%s", argPattern, line, d.Verdict, strings.Join(d.Lines(), "\n"))
			}
		}
	}
}

func TestADirectoryThatBecameALinkIsNotTheOneThatWasApproved(t *testing.T) {
	tr := newTree(t, "rg")
	d := tr.decide(tr.policy("rg"), "rg a")
	plan, err := tr.m.Prepare(CommandRequest{Argv: []string{tr.dir + "/bin/rg"}}, tr.cwd(), "", "")
	if err := errors.Join(err, tr.m.Recheck(plan), tr.m.StillBound(d.BoundTo)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(tr.cwd(), tr.dir+"/old"), os.Symlink(tr.dir+"/old", tr.cwd())); err != nil {
		t.Fatal(err)
	}
	if tr.m.Recheck(plan) == nil || tr.m.StillBound(d.BoundTo) == nil {
		t.Error("it is taken for the same")
	}
}

func TestAllowAlwaysStoresNothingThatNeededNoAnswer(t *testing.T) {
	tr := newTree(t, "rg", "git", "cat")
	for line, want := range map[string]int{"cat a && rg b && git commit": 1, "rg a && cat b": 2, "rg a | git branch": 2, "cat a": 1} {
		result := EvaluateLine(tr.m, tr.lists("rg", "git"), line, tr.cwd())
		if got := result.AllowAlways(line, []string{line}, tr.cwd(), false, false); len(got) != want {
			t.Errorf("%q: %+v", line, got)
		}
	}
}

// everything is a host on which every program that a line may name is allowed, whatever its
// arguments.
func everything(t testing.TB, more ...string) (*tree, *Policy) {
	programs := append(programNames(), "env", "nice", "nohup", "timeout", "stdbuf", "time", "printf", "cat", "echo", "ls", "grep", "bash", "sh", "busybox-static", "bash-static", "vim.basic", "python3",
		"php8.2", "perl5.36.0", "x86_64-linux-gnu-gcc-12", "head", "wc", "tail", "id", "true", "false", "test", "[", "cp", "mkdir", "rm", "mv", "touch", "basename", "dirname", "stat", "file", "which", "pwd",
		"sha256sum", "md5sum", "cut", "tr", "uniq", "tee", "sleep", "du", "df", "ps", "chmod", "ln", "nl", "seq", "comm", "paste", "uname", "whoami", "hostname", "tree", "realpath", "readlink", "column", "xxd", "base64", "gzip", "unzip", "diff3", "lsof", "kill", "free", "uptime", "od", "strings", "expr", "ripgrep", "mktemp", "rmdir")
	programs = append(programs, more...)
	var files []string
	for _, name := range programs {
		if !strings.Contains(name, " ") && !slices.Contains(files, name) {
			files = append(files, name)
		}
	}
	tr := newTree(t, files...)
	p := tr.policy("DIR/bin/*", "DIR/work/**")
	return tr, p
}

func TestSpellingsOfCodeAreAskedAbout(t *testing.T) {
	tr, p := everything(t)
	tr.write("work/evil", "#!/bin/sh\nid\n", 0o755)
	tr.write("work/bin/bash-static", "", 0o755)
	tr.link("../bin/find", "work/f")
	for name, lines := range map[string][]string{
		"abbreviated": {"sed --exp=1eid f", "sed --e=1eid", "sed --expressio 1eid f", "make '--eva=y:;@id' y", "make --ev 'y:;@id'", "gawk '--sou=BEGIN{system(\"id\")}'", "gawk --so 'BEGIN{system(\"id\")}'", "gawk --ex=x", "gawk --inc x 1", "gawk --loa x 1",
			"tar xf a.tar --to-comm=id", "tar --to-c id -xf a", "tar --checkpoint-a=exec=id -cf a .", "tar --use-c=id -tf a", "tar --rsh-c=x -tf h:f", "tar --files-f=x -cf a", "tar --inf=x -cf a b", "git ls-remote --upload-pa=./evil .", "git clone --upload=./evil . x", "git fetch --upl ./evil",
			"git push --exe=./evil", "git push --receive=./evil .", "git grep --open=./evil x", "git rebase --ex=id", "git archive --exe=id --rem=. HEAD", "git difftool --ext=id", "git log --out=x", "git diff --outp x", "sort --compress-p=./evil", "sort --compr ./evil f", "rsync --rs=./evil a b:c", "rsync --rsy=id a b:c", "curl --conf=x", "curl --conf x",
			"wget --exec=x=y", "wget --use-as=./evil u", "zip --unz=./evil -T a", "rg --pr=./evil x", "fd --exe id", "split --filt=id f", "man --pag=id ls", "node --ev=1", "node --requ=./a b.js", "python3 --help-al", "date --se=x", "install --strip-pr=./evil -s a b"},
		"clusters and attached values": {"php -nr 'system(\"id\");'", "php -qr1", "php8.2 -nr 1", "gawk -be 'BEGIN{system(\"id\")}'", "gawk -bE f", "tar -xvIprog f", "tar xvIf prog f", "tar -cvf a -I'sh -c id' b", "tar -cFid -f a", "ssh -4oProxyCommand=id h", "ssh -4o ProxyCommand=id h", "ssh h -oProxyCommand=id", "ssh -4Fx h", "scp -rSid a b:c", "scp -roProxyCommand=id a b:c", "rsync -ae ./evil a b:c", "rsync -ae./evil a b:c", "rsync -avze 'sh -c id' a b:c",
			"zip -qTT id a b", "zip -qT a b", "zip -T -TT id a b", "python3 -Bcx", "python3 -BEsc x", "python3 -ic x", "perl -0ne 1", "perl -i.bak -pe 1", "perl -lane 1", "perl -wle 1", "perl5.36.0 -e1", "perl -Mx y", "perl -0777ne 1", "ruby -ne 1", "ruby -W0e 1", "ruby -ryaml x", "node -pe 1", "make -sf x", "make -sfx", "make -kE 'y:;id'", "sed -ne 1eid f", "sed -nes/a/b/e f", "sed -En -e 1e f", "sed -zf - f",
			"lua -ve 1", "fd -Hx id", "fd -HX id", "git grep -nO./evil x", "git commit -aec HEAD", "sort -uo f x", "less -Nkx f", "curl -sK x", "curl -sKx", "wget -qex=y", "gcc -B. x.c", "gcc -wrapper ./evil x.c", "gcc -fplugin=./evil x.c", "gcc -specs=x x.c", "x86_64-linux-gnu-gcc-12 -wrapper ./evil,x x.c", "gcc @x"},
		"variables as words": {"make SHELL=./evil", "make all SHELL=./evil", "make 'X:=$(shell id)'", "make CC=./evil", "make -- SHELL=./evil", "make MAKEFLAGS=x", "make -j4 .SHELLFLAGS=-c", "make PYTHON=./evil", "make X=./evil", "make V=./evil", "make 'SHELL+=x'"},
		"code by the input": {"cat f | python3", "cat f | python3 -", "cat f | perl", "cat f | perl -", "echo 1eid | sed -f - f", "cat f | sed -f/dev/stdin f", "cat f | make -sf -", "cat f | make -f-", "python3 -m timeit 'import os'", "python3 -mtimeit x", "python3 -Bm timeit x", "python3 -m pdb x", "python3 -m cProfile -c x", "python3 -m code", "python3 -m runpy x", "python3 /dev/stdin", "python3 /dev/fd/0", "python3 /proc/self/fd/0", "cat f | node", "cat f | node -", "cat f | ruby", "cat f | php", "cat f | lua -",
			"cat f | bash", "cat f | sh -s", "cat f | gawk -f -", "cat f | awk -f /dev/stdin", "cat f | sqlite3", "cat f | psql", "cat f | vim -", "cat f | ed", "cat f | bc", "cat f | dc", "cat f | m4", "cat f | at now", "cat f | crontab -", "cat f | xargs -0 sh -c", "cat f | ssh h sh -oProxyCommand=id", "cat f | sftp h", "cat f | gdb", "cat f | mail -s x y", "cat f | parallel", "cat f | R", "cat f | Rscript -", "cat f | julia", "cat f | tclsh", "cat f | jshell", "cat f | irb", "cat f | python3 -i x.py", "cat f | tar -T - -cf a"},
		"carriers of carriers": {"printf 'sh\\0-c\\0id' | xargs -0 xargs", "echo x | xargs find", "xargs --max-lines ./x ls", "echo --pre=./evil | xargs rg", "echo x | xargs rg a", "xargs rg --pre", "xargs rg --pre=./evil a", "xargs python3", "xargs awk", "xargs sed s/a/b/", "xargs sed -i s/a/b/", "xargs tar -cf a", "xargs git", "xargs git log", "xargs make", "xargs -n1 make", "xargs node", "xargs ssh h", "xargs env", "xargs -I{} rg {} a", "xargs -I{} python3 {}",
			"xargs -I{} python3 -c {}", "xargs -I% sed %", "xargs -I% sed -n %p f", "xargs -I% awk % f", "xargs -I{} make {}", "xargs -I{} git {}", "find . -exec python3 {} +", "find . -exec sh {} +", "find . -exec node {} \\;", "find . -exec sed {} f \\;", "find . -exec find {} -exec id \\; \\;", "find . -fprint x", "find . -fprintf x %p", "find . -fls x", "find -files0-from x", "find . -exec awk {} +", "find . -exec make {} +", "find . -exec perl -e 1 {} +", "./f . -exec sh -c id +", "xargs -a f python3", "xargs -ifoo id", "xargs fd -x", "xargs -I{} fd x {}", "xargs --replace rg {} a"},
		"names":                             {"./bin/bash-static -c id", "busybox-static sh -c id", "busybox-static ash -c id", "bash-static -c id", "vim.basic -c '!id'", "vim.basic f", "vim f", "view f", "nano f", "npm exec -c id", "npm exec -- id", "npm x -c id", "npx -c id", "npx id", "npx --yes x", "pnpm dlx x", "pnpm exec id", "yarn dlx x", "yarn exec id", "bunx x", "uvx x", "pipx run x", "sqlite3 :memory: '.shell id'", "sqlite3 -cmd '.shell id' x", "sqlite3 x 'select 1'", "chronic id", "ifne id", "logsave f id", "systemd-cat id", "eatmydata id", "parallel id", "entr id", "coreutils --coreutils-prog=id", "python3.11 -c x", "awk.exe 'BEGIN{system(1)}'", "docker run x", "kubectl exec x", "uv run x", "poetry run x", "cargo install x", "go tool x", "mvn -f x", "gradle x", "bundle exec x", "dotnet run", "ansible all -a id", "nmap --script x h", "tcpdump -z id", "socat - EXEC:id", "nc -e id h 1", "xdg-open x", "run-parts .", "systemctl edit x", "apt-get -o x=y install z", "dpkg -i x", "journalctl --file=x", "emacs --eval 1", "gdb -ex '!id'", "openssl engine x", "ld -plugin x", "ar x", "patch", "exiftool -if 1 f", "rspec x", "rake x", "eslint x", "jest", "tsc"},
		"a subcommand that may be an alias": {"git x", "git -C . x", "git bisect run id", "git submodule foreach id", "git filter-branch x", "git help x", "git config alias.x '!id'", "git config --global core.pager id", "git -c core.pager=id log", "git -ccore.pager=id log", "git --exec-path=. log", "git --config-env=a=b log", "git -c core.pager='cat;id' log", "git rebase -i", "git rebase -x id HEAD~1", "git commit -e", "git difftool", "git mergetool", "git daemon", "git instaweb", "git send-email", "git hook run x", "git stash x", "git remote x", "git clone -c a=b u", "git clone --template=x u", "git init --template=x", "cargo x", "cargo --config x build", "npm x", "npm set-script a b", "npm config set x y", "npm --prefix x test", "npm run x --script-shell=./evil", "go x", "go test -exec ./evil", "go build -toolexec ./evil", "go vet -vettool=./evil", "go build '-ldflags=-extld=./evil'", "go generate -x -overlay=x", "pip config x", "pip install --index-url=http://x y", "deno eval x", "deno task x", "deno run https://x/y.ts", "bun x", "bun run x", "gh alias set x y", "gh extension install x", "gh x"},
		"seen later":                        {"git merge -s evil x", "git merge -sevil x", "git rebase -s ./evil x", "man ./f", "pytest @x", "python3 -m pytest @x", "mypy @x", "rustc @x", "tar -xf host:a.tar", "tar xf u@host:f", "tar -tf host:/x", "tar --file=host:x -t", "tar --fil host:x", "xargs --process-slot-var=BASH_ENV grep x", "awk 'BEGIN{x=(1)/2;system(\"id\")#/\n}'", "awk '{x++/2;system(\"id\")#/\n}'", "awk '{length/2;system(\"id\")#/\n}'", "jq 'def ENV: 1; $ ENV'", "jq 'def env: 1; def f: 2; 1env'", "tar -cM -L1 -f a.tar f", "tar -cf a -L 10 f", "tar --multi -cf a f", "tar cML a 1 f", "sed 's/\u4e2d\\/x/e' f", "awk '/\u4e2d\\/;x/'", "node inspect a.js", "node debug", "git --git-dir=x log", "git config edit", "git config set a.b c", "git config alias.x y", "go run x.com/y@latest", "go run example.com/y@v1 a", "python3 -W error::foo.Bar a.py", "pytest -W error::foo.Bar", "ssh -J 'a;id' h", "ssh -J -oProxyCommand=id h", "gtimeout 5 id", "pdflatex -shell-escape x", "latexmk -e x", "pandoc --filter ./evil f", "yt-dlp --exec id u", "fzf --preview id", "rclone --password-command id ls x", "webpack", "r2 -c '!id' f", "xargs -J x id"},
		"small languages": {"sed 1eid f", "sed -n '1e id' f", "sed 's/a/id/e' f", "sed 's/a/b/ge' f", "sed 's/a/b/w f' g", "sed '1w f' g", "sed '1r f' g", "sed '$!{e id\n}' f", "sed -e p -e '1e' f", "sed 's/a/b/;1e' f", "sed '/[/]/e' f", "sed 'y/a/b/;e' f", "sed ':a;e' f", "sed '{p;e}' f", "sed 'ba\ne' f", "sed '1!e' f", "sed '1,2e' f", "sed '/x/I,+2e' f", "sed '\\,x,e' f", "sed 's,a,b,e' f", "sed 'sxaxbxe' f", "sed 'a x\ne id' f", "sed 'i\\\nx\ne id' f", "sed --posix e f", "sed --debug -n e f", "sed 'W f' g", "sed v f", "sed F\\;e f", "sed -i/tmp/* s/a/b/ f", "sed 's/x/\\\n/;e' f", "sed '# c\ne' f", "sed 'q5;e' f", "sed 'l 5;e' f", "sed '}e' f", "sed -s -n '$e' f", "sed '0~4e' f", "sed 's/a/b/M;s/a/b/me' f", "sed -n '/a\\/e' f -e",
			"awk 'BEGIN{system(\"id\")}'", "awk '{print > \"f\"}'", "awk '{print $1, $2 >\"f\"}' f", "awk '{print(1)>\"f\"}'", "awk '{printf \"x\" >> \"f\"}'", "awk '{print | \"sh\"}'", "awk '\"id\"|getline'", "awk '{getline < \"f\"}'", "awk 'BEGIN{\"id\" | getline x}'", "awk '{print |& \"sh\"}'", "awk '@include \"f\"'", "awk '{f=\"system\";@f(\"id\")}'", "awk 'BEGIN{print ENVIRON[\"X\"]}'", "awk 'BEGIN{awk::system(1)}'", "awk 'BEGIN{x=1system(\"id\")}'", "awk 'BEGIN{a=1/2;b=\"/;system(\\\"id\\\")#\"}1/system(\"id\")/1'", "awk '1) /x/ {system(\"id\")} (/'", "awk '/[/]/;system(\"id\")#/'", "awk 'function f(x){return system(x)} BEGIN{f(\"id\")}'", "awk '{system\\\n(\"id\")}'", "awk 'BEGIN { system (\"id\") }'", "awk 'BEGIN{print PROCINFO[\"pid\"]}'", "awk '{print a, b\n> \"f\"}'", "awk '{print a,\nb > \"f\"}'", "awk 'BEGIN{x = \"a\\\nb\"}'", "awk -v x=1 -f - f", "awk -l x 1", "awk -i inplace 1 f", "awk -ix 1", "awk -Wexec f", "awk 'BEGIN{$0=\"x\";close(\"y\");unknown(1)}'", "awk 'BEGIN{while((\"id\"|getline l)>0)print l}'",
			"jq env f", "jq '$ENV.SECRET' f", "jq -n '$ ENV.SECRET'", "jq -n '$ENV|.x'", "jq -n '$\nENV'", "jq -n '$ #c\nENV'", "jq '\"\\($ENV)\"' f", "jq '\"\\(\"\\(env)\")\"' f", "jq 'include \"x\"; .' f", "jq 'import \"x\" as y; .'", "jq '.. | env'", "jq '. env'", "jq '[env]'", "jq '{a: env}'", "jq '{(env.X): 1}'", "jq 'def f: env; f'", "jq '$__prog_args'", "jq 'input_filename, env'", "jq -f x", "jq -L . .", "jq -nf x", "jq --from-f x", "jq '1as $x|env'", "jq 'modulemeta'", "jq 'get_search_list'", "jq 'x::y'", "jq '.a.b|$ENV'", "jq 'getpath([\"a\"])|env.X'", "jq '#\\\n env'", "jq -n 'env.HOME'", "jq '@text \"\\(env)\"'"},
	} {
		for _, line := range lines {
			if d := tr.decide(p, line); d.Verdict != AskPerson {
				t.Errorf("%s: %q: %v\n%s", name, line, d.Verdict, strings.Join(d.Lines(), "\n"))
			}
		}
	}
}

func TestTheLoaderIsAskedAboutByAnyName(t *testing.T) {
	tr, p := everything(t, "ld-linux.so.2", "ld-musl-x86_64.so.1", "ld64.so.1", "ld-linux-riscv64-lp64d.so.1", "ld.so")
	for _, name := range []string{"ld-linux.so.2", "ld-musl-x86_64.so.1", "ld64.so.1", "ld-linux-riscv64-lp64d.so.1", "ld.so"} {
		if d := tr.decide(p, name+" ./evil"); d.Verdict != AskPerson {
			t.Errorf("%s: %v", name, d.Verdict)
		}
	}
}

// programNames are the names of all tables, in order.
func programNames() []string {
	var names []string
	for name := range programs() {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

package policy

import (
	"encoding/json"
	"os"
	"strings"
)

func init() {
	caseTests["shell_analysis"] = tryShellAnalysis
	caseTests["evaluate_shell"] = tryEvaluateShell
	caseTests["evaluate_shell_recorded"] = tryEvaluateRecorded
	caseTests["evaluate_segments"] = tryEvaluateSegments
	caseTests["allowlist_pattern"] = tryPattern
	caseTests["allowlist_match"] = tryMatch
	caseTests["arg_pattern"] = tryArgPattern
	caseTests["wrappers"] = tryWrappers
	caseTests["inline_eval"] = tryInline
	caseTests["safe_bin_argv"] = trySafeBinArgv
	caseTests["safe_bin_usage"] = trySafeBinUsage
}

func tryShellAnalysis(t *trial) outcome {
	var in struct{ Command, Platform string }
	var want struct {
		OK          bool
		Executables []string
		Segments    [][]string
	}
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	if in.Platform == "windows" {
		return skipped("windows")
	}
	segments, refusal := ParseLine(in.Command)
	if got := refusal == nil; got != want.OK {
		return judge(got, want.OK, reasonOf(refusal))
	}
	for i, s := range segments {
		switch {
		case want.Executables != nil && (len(want.Executables) != len(segments) || want.Executables[i] != s.Argv[0]):
			return wrong("segments %v", segments)
		case want.Segments != nil && (len(want.Segments) != len(segments) || !sameWords(withoutHereDocument(want.Segments[i]), s.Argv)):
			return wrong("segments %v", segments)
		}
	}
	return equal
}

// withoutHereDocument leaves out the words of the redirection, which the reference keeps as if they
// were arguments.
func withoutHereDocument(words []string) []string {
	for i, word := range words {
		if strings.HasPrefix(word, "<<") {
			return words[:i]
		}
	}
	return words
}

// reasonOf is the heading of docs/policy-differences.md that a refused line belongs to.
func reasonOf(r *Refusal) string {
	switch {
	case r == nil:
		return "not allowed"
	case strings.Contains(r.What, "glob") || strings.Contains(r.What, "brace") || r.What == "~" || r.What == "!" ||
		r.What == "$VARIABLE" || r.What == "$":
		return "expansion"
	case strings.Contains(r.What, "control character"):
		return "control character"
	case strings.Contains(r.What, "invisible"):
		return "invisible character"
	}
	return "syntax"
}

type listsInput struct {
	Allowlist       []Entry
	SafeBins        []string
	SkillBins       []Skill
	AutoAllowSkills *bool
}

func (in listsInput) lists(m *Machine) *Lists {
	l := newLists(m, in.Allowlist, nil, false)
	l.SafeBins = SafeBins{Names: in.SafeBins}
	if in.AutoAllowSkills != nil && *in.AutoAllowSkills {
		l.Skills = in.SkillBins
	}
	return l
}

// whyNot is the reason of a line that is not allowed here.
func whyNot(result *Evaluation) string {
	if result.Refusal != nil {
		return reasonOf(result.Refusal)
	}
	for _, c := range result.Commands {
		if c.By != ByNothing {
			continue
		}
		switch {
		case strings.Contains(c.Why, "is a directory") || strings.Contains(c.Why, "not executable"):
			return "not a program"
		case strings.Contains(c.Why, "does not exist") || strings.Contains(c.Why, "not on the host"):
			return "no such program"
		case strings.Contains(c.Why, "busybox"):
			return "multiplexer"
		case baseOf(c.Executable.Real) == "jq":
			return "jq"
		case strings.Contains(c.Why, "in the line for"):
			return "payload"
		case strings.Contains(c.Why, "no entry allows the script"):
			return "script"
		case strings.Contains(c.Why, "would run is not"):
			return "carried command"
		case c.Executable.Path != c.Executable.Real:
			return "link"
		}
		return "segment"
	}
	return "not allowed"
}

func tryEvaluateShell(t *trial) outcome {
	var in struct {
		Command, Cwd string
		listsInput
	}
	var want struct{ Allowed bool }
	m := t.hermetic()
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	result := EvaluateLine(m, in.lists(m), in.Command, in.Cwd)
	return judge(result.Satisfied, want.Allowed, whyNot(result))
}

func tryEvaluateRecorded(t *trial) outcome {
	var in struct {
		Command, Cwd, PATH, Platform string
		listsInput
	}
	var want struct {
		AnalysisOk, AllowlistSatisfied bool
		SatisfiedBy                    []*string
	}
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	if in.Platform != "linux" {
		return skipped("windows")
	}
	t.build(t.FS)
	path := in.PATH
	if path == "" {
		path = "/usr/bin:/bin"
	}
	m := NewMachine(path, "/nonexistent")
	result := EvaluateLine(m, in.lists(m), in.Command, in.Cwd)
	for _, by := range want.SatisfiedBy {
		if by != nil && *by == "skillPrelude" && !result.Satisfied {
			return stricter("skill prelude")
		}
	}
	return judge(result.Satisfied, want.AllowlistSatisfied, whyNot(result))
}

// literalFiles is a file system in which every path is a program, and no path a link: for cases
// that give their resolutions.
type literalFiles struct{}

func (literalFiles) Real(path string) (string, error)   { return path, nil }
func (literalFiles) Stat(path string) (fileKind, error) { return fileExecutable, nil }
func (literalFiles) Hash(path string) (string, error)   { return "", os.ErrNotExist }

func tryEvaluateSegments(t *trial) outcome {
	var in struct {
		Segments []struct {
			Argv           words
			ResolvedPath   string
			ExecutableName string
		}
		Cwd string
		listsInput
	}
	var want struct {
		AllowlistSatisfied bool
	}
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	m := NewMachine("/usr/bin:/bin", "/nonexistent")
	segments := make([]Segment, len(in.Segments))
	files := givenFiles{}
	for i, s := range in.Segments {
		segments[i] = Segment{Argv: s.Argv, Operator: Then}
		if len(s.Argv) == 0 {
			return judge(false, want.AllowlistSatisfied, "segment")
		}
		inner := Unwrap(s.Argv).Policy[0]
		files[inner] = s.ResolvedPath
		if strings.Contains(inner, "/") {
			files[in.Cwd+"/"+inner] = s.ResolvedPath
		}
		if i := strings.LastIndex(s.ResolvedPath, "/"); i >= 0 {
			m.Path = append(m.Path, s.ResolvedPath[:i])
		}
	}
	m.Files = files
	result := (&evaluator{machine: m, lists: in.lists(m), cwd: in.Cwd}).line(segments)
	return judge(result.Satisfied, want.AllowlistSatisfied, whyNot(result))
}

// givenFiles holds what a case says that words resolve to.
type givenFiles map[string]string

func (f givenFiles) Real(path string) (string, error) {
	if real, ok := f[path]; ok {
		return real, nil
	}
	return path, nil
}

func (f givenFiles) Stat(path string) (fileKind, error) {
	for word, real := range f {
		if path == real || path == word {
			return fileExecutable, nil
		}
	}
	return fileOther, os.ErrNotExist
}

func (givenFiles) Hash(string) (string, error) { return "", os.ErrNotExist }

func tryPattern(t *trial) outcome {
	var in struct{ Pattern, Target, Home, PlatformMock string }
	var want bool
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	if in.PlatformMock != "" && in.PlatformMock != "linux" {
		return skipped(platform(in.PlatformMock))
	}
	in.Home, in.Target = strings.ReplaceAll(in.Home, "$HOME", "/home/u"), strings.ReplaceAll(in.Target, "$HOME", "/home/u")
	return judge(newPattern(in.Pattern, in.Home).Match(in.Target), want, "pattern")
}

func platform(name string) string {
	if name == "darwin" {
		return "macos"
	}
	return "windows"
}

func tryMatch(t *trial) outcome {
	var in struct {
		Entries    []Entry
		Resolution *struct{ RawExecutable, ResolvedPath string }
		Argv       words
		Platform   string
	}
	var want struct{ MatchIndex *int }
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	if in.Platform != "linux" {
		return skipped(platform(in.Platform))
	}
	if in.Resolution == nil || in.Resolution.ResolvedPath == "" {
		return judge(false, want.MatchIndex != nil, "no such program")
	}
	m := NewMachine("/usr/bin", "/nonexistent")
	m.Files = literalFiles{}
	for i := range in.Entries {
		in.Entries[i].ID = string(rune('a' + i))
	}
	rules, _ := compile(in.Entries, "", false)
	exec := Executable{in.Resolution.RawExecutable, in.Resolution.ResolvedPath, in.Resolution.ResolvedPath}
	var args []string
	if len(in.Argv) > 1 {
		args = in.Argv[1:]
	}
	set := newRuleSet(rules)
	r := match(&set, m, use{exec: exec, cwd: "/", args: args})
	switch {
	case r == nil || want.MatchIndex == nil:
		return judge(r != nil, want.MatchIndex != nil, "argument pattern")
	case r.ID != in.Entries[*want.MatchIndex].ID:
		return wrong("entry %s", r.ID)
	}
	return equal
}

func tryArgPattern(t *trial) outcome {
	var in struct {
		ArgPattern string
		Args       []string
	}
	var want struct{ Accept bool }
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	p, err := NewArgPattern(in.ArgPattern)
	return judge(err == nil && p.Match("/", in.Args), want.Accept, "argument pattern")
}

func tryWrappers(t *trial) outcome {
	var in struct {
		Argv words
		Fn   string
	}
	t.into(t.Input, &in)
	for _, word := range in.Argv {
		switch baseOf(word) {
		case "caffeinate", "sandbox-exec":
			return skipped("macos")
		case "pwsh", "pwsh.exe", "powershell", "cmd.exe":
			return skipped("windows")
		}
	}
	u := Unwrap(in.Argv)
	switch in.Fn {
	case "unwrapKnownDispatchWrapperInvocation":
		return tryUnwrapOnce(t, in.Argv)
	case "unwrapKnownShellMultiplexerInvocation":
		var want struct{ Kind string }
		t.into(t.Expect, &want)
		got := "not-wrapper"
		if len(u.Policy) != len(u.Argv) {
			got = "unwrapped"
		} else if u.Blocked != "" {
			got = "blocked"
		}
		if got != want.Kind {
			return wrong("%s", got)
		}
		return equal
	case "extractShellWrapperInlineCommand":
		return samePayload(t, u, t.Expect)
	case "hasEnvManipulationBeforeShellWrapper":
		var want bool
		t.into(t.Expect, &want)
		if got := changesEnvironment(in.Argv); got != want {
			return wrong("%v", got)
		}
		return equal
	}
	return tryTrustPlan(t, u)
}

func tryUnwrapOnce(t *trial, argv []string) outcome {
	var want struct {
		Kind, Wrapper string
		Argv          words
	}
	t.into(t.Expect, &want)
	u := Unwrap(argv)
	got := "not-wrapper"
	switch {
	case u.Blocked != "":
		got = "blocked"
	case len(u.Wrappers) > 0:
		got = "unwrapped"
	}
	switch {
	case got == "blocked" && want.Kind != "blocked":
		return stricter("wrapper")
	case got != want.Kind:
		return wrong("%s", got)
	case got == "blocked" && u.Blocked != want.Wrapper:
		return wrong("%s", u.Blocked)
	case got == "unwrapped" && (u.Wrappers[0] != want.Wrapper || !sameWords(u.Argv, want.Argv)):
		return wrong("%q", u)
	}
	return equal
}

func tryTrustPlan(t *trial, u unwrapped) outcome {
	var want struct {
		RawExecutable          *string
		EffectiveArgv          []string
		PolicyArgv             []string
		Argv                   words
		WrapperChain, Wrappers []string
		Blocked, PolicyBlocked bool
		BlockedWrapper         *string
		ShellInlineCommand     json.RawMessage
	}
	t.into(t.Expect, &want)
	if want.RawExecutable != nil {
		got := u.Policy[0]
		if got != *want.RawExecutable {
			return wrong("%q", u)
		}
		return equal
	}
	blocked := want.Blocked || want.PolicyBlocked
	if (u.Blocked != "") != blocked {
		if u.Blocked != "" {
			return stricter("wrapper")
		}
		return looser("%q", u)
	}
	argv := append(want.Argv, want.EffectiveArgv...)
	chain := append(want.WrapperChain, want.Wrappers...)
	switch {
	case blocked && want.BlockedWrapper != nil && u.Blocked != *want.BlockedWrapper:
		return wrong("blocked by %s", u.Blocked)
	case blocked:
		return equal
	case len(argv) > 0 && !sameWords(u.Argv, argv):
		// Not looked through: only the whole command's own path counts.
		if len(u.Wrappers) == 0 && sameWords(u.Argv[:1], t.inputArgv()[:1]) {
			return stricter("letter case")
		}
		return wrong("%q", u)
	case want.PolicyArgv != nil && !sameWords(u.Policy, want.PolicyArgv):
		return wrong("%q", u)
	case !sameWords(u.Wrappers, chain):
		return wrong("%q", u.Wrappers)
	case want.ShellInlineCommand != nil:
		return samePayload(t, u, want.ShellInlineCommand)
	}
	return equal
}

func (t *trial) inputArgv() []string {
	var in struct{ Argv words }
	t.into(t.Input, &in)
	return in.Argv
}

func samePayload(t *trial, u unwrapped, raw json.RawMessage) outcome {
	var want *string
	t.into(raw, &want)
	payload, ok := payloadOf(u)
	if ok != (want != nil) || ok && payload != *want {
		return wrong("payload %q %v", payload, ok)
	}
	return equal
}

func tryInline(t *trial) outcome {
	var in struct {
		Argv             words
		AllowlistPattern *string
	}
	var want struct {
		InlineEval, InterpreterLike bool
		Flag, Executable            *string
	}
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	if in.AllowlistPattern != nil {
		if got := interpreterLike(*in.AllowlistPattern); got != want.InterpreterLike {
			return judge(!got, !want.InterpreterLike, "inline code")
		}
		return equal
	}
	inline, got := FindInline(in.Argv)
	switch {
	case got != want.InlineEval:
		return judge(!got, !want.InlineEval, "inline code")
	case got && want.Flag != nil && inline.Flag != *want.Flag, got && want.Executable != nil && inline.Program != *want.Executable:
		return wrong("%+v", inline)
	}
	return equal
}

func trySafeBinArgv(t *trial) outcome {
	var in struct {
		Bin     string
		Args    []string
		Profile SafeBinProfile
	}
	var want bool
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	return judge(in.Profile.Accepts(in.Bin, in.Args), want, "safe binary")
}

func trySafeBinUsage(t *trial) outcome {
	var in struct {
		Argv           words
		ResolvedPath   string
		SafeBins       []string
		TrustedDirs    []string
		Platform       string
		CustomProfiles map[string]SafeBinProfile
	}
	var want bool
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	if in.Platform != "linux" {
		return skipped(platform(in.Platform))
	}
	m := NewMachine("/usr/bin", "/nonexistent")
	m.Files, m.Trusted = literalFiles{}, in.TrustedDirs
	exec := Executable{in.Argv[0], in.ResolvedPath, in.ResolvedPath}
	got := SafeBins{Names: in.SafeBins, Profiles: in.CustomProfiles}.Allows(in.Argv, exec, m.trusts(in.ResolvedPath))
	reason := "safe binary"
	if baseOf(in.ResolvedPath) == "jq" {
		reason = "jq"
	}
	return judge(got, want, reason)
}

// payloadOf is the line that a shell behind the wrappers is given with -c.
func payloadOf(u unwrapped) (string, bool) {
	if u.Blocked != "" || len(u.Argv) == 0 || !isShell(baseOf(u.Argv[0])) {
		return "", false
	}
	use := shellUse(baseOf(u.Argv[0]), u.Argv)
	return use.Payload, use.Inline
}

// changesEnvironment says whether an env with assignments or options stands before a command.
func changesEnvironment(argv []string) bool {
	u := Unwrap(argv)
	return u.Blocked == "env"
}

// interpreterLike reports whether a pattern names a program that runs what its arguments say. An
// allow-always stores no path for it.
func interpreterLike(pattern string) bool {
	return interpreter(familyOf(baseOf(strings.TrimSpace(pattern))))
}

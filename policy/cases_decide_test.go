package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

func init() {
	caseTests["policy"] = tryPolicy
	caseTests["approvals_file"] = tryApprovalsFile
	caseTests["allow_always"] = tryAllowAlways
	caseTests["approval_binding"] = tryBinding
	caseTests["approval_guard"] = tryGuard
	caseTests["exec_plan"] = tryPlan
	caseTests["system_run_command"] = tryCommandRequest
	caseTests["display_and_safety"] = tryDisplay
	caseTests["approve_command"] = tryApprove
	caseTests["node_resolution"] = tryNode
	caseTests["system_events"] = tryEvent
	caseTests["output_caps"] = tryOutput
	caseTests["sandbox"] = trySandbox
	for _, name := range [...]string{"ipc", "device_auth", "gateway_rpc_observed"} {
		caseTests[name] = func(*trial) outcome { return skipped("the gateway's protocol") }
	}
}

func tryPolicy(t *trial) outcome {
	switch t.Fn + t.Rule {
	case "requires_approval":
		return tryRequires(t)
	case "min_security", "max_ask":
		return tryStricter(t)
	case "allowed_decisions":
		return tryAnswers(t)
	case "base_decision":
		return tryUnanswered(t)
	case "system_run_policy":
		return tryJudge(t)
	case "normalize_enum":
		return tryWord(t)
	case "effective_policy":
		return tryEffective(t)
	}
	return wrong("%s is not known", t.Fn)
}

type factsInput struct {
	Security, Ask                                            string
	AnalysisOk, AllowlistSatisfied, DurableApprovalSatisfied bool
}

func (in factsInput) read() (Security, Ask, Facts) {
	security, _ := ParseSecurity(in.Security)
	ask, _ := ParseAsk(in.Ask)
	return security, ask, Facts{in.AnalysisOk, in.AllowlistSatisfied, in.DurableApprovalSatisfied}
}

func tryRequires(t *trial) outcome {
	var in factsInput
	var want bool
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	return judge(!requiresAsk(in.read()), !want, "ask")
}

func tryStricter(t *trial) outcome {
	var in struct{ A, B string }
	var want string
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	got := ""
	if t.Fn == "max_ask" {
		a, _ := ParseAsk(in.A)
		b, _ := ParseAsk(in.B)
		got = a.Stricter(b).String()
	} else {
		a, _ := ParseSecurity(in.A)
		b, _ := ParseSecurity(in.B)
		got = a.Stricter(b).String()
	}
	if got != want {
		return wrong("%s", got)
	}
	return equal
}

func tryAnswers(t *trial) outcome {
	var in struct{ Ask string }
	var want []string
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	ask, _ := ParseAsk(in.Ask)
	var got []string
	for _, a := range answers(ask) {
		got = append(got, a.String())
	}
	switch {
	case slices.Equal(got, want):
		return equal
	case subset(got, want):
		return stricter("unknown word")
	}
	return looser("%q", got)
}

func subset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}

func tryUnanswered(t *trial) outcome {
	var in struct {
		Decision    *string
		AskFallback string
	}
	var want struct {
		ApprovedByAsk, TimedOut bool
		DeniedReason            *string
	}
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	if in.Decision != nil {
		answer, ok := ParseAnswer(*in.Decision)
		denied := answer == AnswerDeny
		if !ok || denied != (want.DeniedReason != nil) || denied && *want.DeniedReason != ReasonUserDenied {
			return wrong("%v", answer)
		}
		return equal
	}
	fallback, _ := ParseSecurity(in.AskFallback)
	run, reason := unanswered(fallback, Facts{Understood: true}, false)
	switch {
	case run != want.ApprovedByAsk:
		return judge(run, want.ApprovedByAsk, "ask")
	case want.DeniedReason != nil && reason != *want.DeniedReason:
		return wrong("%s", reason)
	case want.DeniedReason == nil && !run && fallback != SecurityAllowlist: // what is not satisfied is denied later there
		return wrong("%s", reason)
	}
	return equal
}

func tryJudge(t *trial) outcome {
	var in struct {
		factsInput
		ApprovalDecision *string
		IsWindows        bool
	}
	var want struct {
		Allowed, RequiresAsk      bool
		EventReason, ErrorMessage *string
	}
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	if in.IsWindows {
		return skipped("windows")
	}
	security, ask, facts := in.read()
	answer := AnswerNone
	if in.ApprovalDecision != nil {
		answer, _ = ParseAnswer(*in.ApprovalDecision)
	}
	got := judgeAnswer(security, ask, facts, answer)
	switch {
	case got.Allowed != want.Allowed:
		return judge(got.Allowed, want.Allowed, "ask")
	case got.Asks != want.RequiresAsk, want.EventReason != nil && got.Reason != *want.EventReason,
		want.ErrorMessage != nil && got.Message() != *want.ErrorMessage:
		return wrong("%+v %s", got, got.Message())
	}
	return equal
}

func tryWord(t *trial) outcome {
	var in struct{ Field, Value string }
	var want *string
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	var got fmt.Stringer
	ok := false
	switch in.Field {
	case "host":
		got, ok = box(ParseHost(in.Value))
	case "security":
		got, ok = box(ParseSecurity(in.Value))
	case "ask":
		got, ok = box(ParseAsk(in.Value))
	}
	if ok != (want != nil) || ok && got.String() != *want {
		return wrong("%v %v", got, ok)
	}
	return equal
}

func box[T fmt.Stringer](value T, ok bool) (fmt.Stringer, bool) { return value, ok }

func tryEffective(t *trial) outcome {
	type exec struct{ Security, Ask *string }
	var in struct {
		Approvals                         json.RawMessage
		ScopeExecConfig, GlobalExecConfig exec
		AgentID                           string
	}
	type effective struct{ Effective string }
	var want struct{ Security, Ask, AskFallback effective }
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	a, err := ParseApprovals(in.Approvals)
	if err != nil {
		return stricter("invalid file")
	}
	gateway := HostGateway
	p := &Policy{Machine: NewMachine("", ""), Approvals: a, Layers: Layers{
		Agent: preference(in.ScopeExecConfig.Security, in.ScopeExecConfig.Ask), Global: preference(in.GlobalExecConfig.Security, in.GlobalExecConfig.Ask)}}
	p.Layers.Agent.Host = &gateway
	d := p.Decide(Request{Argv: []string{"/nonexistent"}, Cwd: "/", Agent: in.AgentID})
	got := [...]string{d.Security.String(), d.Ask.String(), d.Fallback.String()}
	if got == [...]string{want.Security.Effective, want.Ask.Effective, want.AskFallback.Effective} {
		return equal
	}
	wantSecurity, _ := ParseSecurity(want.Security.Effective)
	wantAsk, _ := ParseAsk(want.Ask.Effective)
	wantFallback, _ := ParseSecurity(want.AskFallback.Effective)
	if d.Security > wantSecurity || d.Ask > wantAsk || d.Fallback > wantFallback {
		return looser("%v", got)
	}
	return stricter("built-in values")
}

func preference(security, ask *string) Preference {
	var w Preference
	if security != nil {
		if s, ok := ParseSecurity(*security); ok {
			w.Security = &s
		}
	}
	if ask != nil {
		if a, ok := ParseAsk(*ask); ok {
			w.Ask = &a
		}
	}
	return w
}

func tryApprovalsFile(t *trial) outcome {
	var in struct {
		File      json.RawMessage
		AgentID   string
		Overrides *struct{ Security, Ask, AskFallback *string }
	}
	t.into(t.Input, &in)
	a, err := ParseApprovals(in.File)
	if err != nil {
		return stricter("invalid file")
	}
	var want map[string]json.RawMessage
	t.into(t.Expect, &want)
	if want["file"] != nil {
		return sameFile(a, want["file"])
	}
	var caller Preference
	if in.Overrides != nil {
		caller = preference(in.Overrides.Security, in.Overrides.Ask)
	}
	return sameResolved(t, a.Resolve(in.AgentID, caller))
}

// sameFile compares files as values. Where the reference drops a word that it does not know, it is
// kept here, and is the strictest.
func sameFile(a *Approvals, raw json.RawMessage) outcome {
	var got, want any
	if err := errors.Join(json.Unmarshal(a.JSON(), &got), json.Unmarshal(raw, &want)); err != nil {
		return wrong("%v", err)
	}
	forgetIDs(got, want)
	gotText, _ := json.Marshal(got)
	wantText, _ := json.Marshal(want)
	if string(gotText) == string(wantText) {
		return equal
	}
	// The agent called default keeps its own beside main.
	if agents, ok := got.(map[string]any)["agents"].(map[string]any); ok && agents["default"] != nil {
		delete(agents, "default")
		if gotText, _ := json.Marshal(got); string(gotText) == string(wantText) {
			return stricter("agent called default")
		}
	}
	if len(a.Problems) > 0 {
		return stricter("unknown word")
	}
	return wrong("%s", gotText)
}

// forgetIDs puts the placeholder for each id that was made.
func forgetIDs(got, want any) {
	switch want := want.(type) {
	case map[string]any:
		got, _ := got.(map[string]any)
		for name := range want {
			if want[name] == "$UUID" && len(fmt.Sprint(got[name])) == 36 {
				got[name] = "$UUID"
			}
			if got != nil {
				forgetIDs(got[name], want[name])
			}
		}
	case []any:
		got, _ := got.([]any)
		for i := range min(len(got), len(want)) {
			forgetIDs(got[i], want[i])
		}
	}
}

func sameResolved(t *trial, r Resolved) outcome {
	var want struct {
		Agent struct {
			Security, Ask, AskFallback string
			AutoAllowSkills            bool
		}
		AllowlistPatterns []string
	}
	t.into(t.Expect, &want)
	var patterns []string
	for _, e := range r.Allow {
		patterns = append(patterns, e.Pattern)
	}
	if len(want.AllowlistPatterns) != len(patterns) || len(patterns) > 0 && !slices.Equal(patterns, want.AllowlistPatterns) {
		return wrong("%q", patterns)
	}
	security, _ := ParseSecurity(want.Agent.Security)
	ask, _ := ParseAsk(want.Agent.Ask)
	fallback, _ := ParseSecurity(want.Agent.AskFallback)
	switch {
	case r.Security > security, r.Ask > ask, r.AskFallback > fallback, r.AutoAllowSkills && !want.Agent.AutoAllowSkills:
		return looser("%+v", r)
	case r.Security == security && r.Ask == ask && r.AskFallback == fallback:
		return equal
	}
	return stricter("built-in values")
}

func tryAllowAlways(t *trial) outcome {
	var in struct {
		Command  *string
		Segments []struct {
			Argv         words
			ResolvedPath string
		}
		Cwd, PATH, Platform        string
		StrictInlineEval, Hermetic bool
		listsInput
	}
	var want struct{ Patterns []string }
	var m *Machine
	var hints struct{ Hermetic bool }
	t.into(t.Input, &hints)
	if hints.Hermetic {
		m = t.hermetic()
	} else {
		t.build(t.FS)
	}
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	if m == nil {
		if in.Platform != "" && in.Platform != "linux" {
			return skipped(platform(in.Platform))
		}
		m = NewMachine(in.PATH, "/nonexistent")
	}
	var result *Evaluation
	if in.Command != nil {
		result = EvaluateLine(m, in.lists(m), *in.Command, in.Cwd)
	} else {
		segments := make([]Segment, len(in.Segments))
		for i, s := range in.Segments {
			segments[i] = Segment{Argv: s.Argv, Operator: Then}
			if base := baseOf(s.Argv[0]); base == "caffeinate" || base == "sandbox-exec" {
				return skipped("macos")
			}
		}
		result = (&evaluator{machine: m, lists: in.lists(m), cwd: in.Cwd}).line(segments)
	}
	var got []string
	for _, e := range result.AllowAlways("text", []string{"text"}, in.Cwd, false, in.StrictInlineEval) {
		if !strings.HasPrefix(e.Pattern, commandPrefix) {
			got = append(got, e.Pattern)
		}
	}
	switch {
	case slices.Equal(got, want.Patterns) || len(got)+len(want.Patterns) == 0:
		return equal
	case subset(got, want.Patterns):
		return stricter(whyNotStored(result))
	case len(got) == len(want.Patterns):
		// Another path of the same file: the real one.
		for i := range got {
			if real, err := m.Files.Real(want.Patterns[i]); err != nil || real != got[i] {
				return wrong("%q", got)
			}
		}
		return stricter("link")
	}
	return looser("%q", got)
}

func whyNotStored(result *Evaluation) string {
	for _, c := range result.Commands[:max(0, len(result.Commands)-1)] {
		if last := result.Commands[len(result.Commands)-1]; c.By == ByNothing && c.Executable.Real != "" && last.By != ByNothing {
			return "already allowed"
		}
	}
	if result.HereDocument {
		return "syntax"
	}
	for _, c := range result.Commands {
		if strings.Contains(c.Why, "looked through") || strings.Contains(c.Why, "it starts runs otherwise") {
			return "wrapper"
		}
	}
	return whyNot(result)
}

type bindingInput struct {
	Argv                words
	Cwd, AgentID        *string
	SessionKey, EnvHash *string
	Env                 texts
}

// texts are variables; what is no text is left out.
type texts map[string]string

func (e *texts) UnmarshalJSON(raw []byte) error {
	var all map[string]any
	if json.Unmarshal(raw, &all) != nil {
		return nil
	}
	*e = texts{}
	for name, value := range all {
		if text, ok := value.(string); ok {
			(*e)[name] = text
		}
	}
	return nil
}

func (in *bindingInput) binding() Binding {
	b := newBinding(in.Argv, text(in.Cwd), text(in.AgentID), text(in.SessionKey), in.Env)
	if in.EnvHash != nil {
		b.EnvHash = *in.EnvHash
	}
	return b
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func tryBinding(t *trial) outcome {
	var in struct {
		Argv    words
		Request *struct {
			Host                      string
			Binding, SystemRunBinding *bindingInput
		}
		Binding *bindingInput
		Invoke  *struct {
			Argv    words
			Binding *bindingInput
		}
		Match *struct {
			Code    string
			Message string
			Details struct {
				EnvKeys                        []string
				ExpectedEnvHash, ActualEnvHash string
			}
		}
		Env         texts
		CommandText *string
		Plan        json.RawMessage
		Cwd         *string
		Args        []string
	}
	t.into(t.Input, &in)
	switch {
	case in.Match != nil:
		e := &BindingError{in.Match.Code, in.Match.Details.EnvKeys, in.Match.Details.ExpectedEnvHash, in.Match.Details.ActualEnvHash}
		if e.Error() != in.Match.Message {
			return wrong("%v", e)
		}
		return equal
	case in.Request != nil:
		return tryBindingCheck(t, in.Request.Host, first(in.Request.Binding, in.Request.SystemRunBinding), in.Argv, in.Binding, in.Invoke)
	case in.CommandText != nil:
		var want struct{ Pattern string }
		t.into(t.Expect, &want)
		if got := commandPattern(*in.CommandText); got != want.Pattern {
			return wrong("%s", got)
		}
		return equal
	case in.Plan != nil:
		return tryTrimmedPlan(t, in.Plan)
	case in.Args != nil:
		var want struct{ ArgPattern string }
		t.into(t.Expect, &want)
		if got := hashArguments(text(in.Cwd), in.Args); got != want.ArgPattern {
			return wrong("%s", got)
		}
		return equal
	}
	var want struct {
		EnvHash *string
		EnvKeys []string
	}
	t.into(t.Expect, &want)
	hash, keys := hashEnvironment(in.Env)
	if hash != text(want.EnvHash) || len(keys) != len(want.EnvKeys) || len(keys) > 0 && !slices.Equal(keys, want.EnvKeys) {
		return wrong("%s %q", hash, keys)
	}
	return equal
}

func first(list ...*bindingInput) *bindingInput {
	for _, b := range list {
		if b != nil {
			return b
		}
	}
	return nil
}

func tryBindingCheck(t *trial, host string, bound *bindingInput, argv []string, run *bindingInput, invoke *struct {
	Argv    words
	Binding *bindingInput
}) outcome {
	var want struct {
		OK            bool
		Code, Message string
		Details       struct {
			EnvKeys                        []string
			ExpectedEnvHash, ActualEnvHash string
		}
	}
	t.into(t.Expect, &want)
	if invoke != nil {
		argv, run = invoke.Argv, invoke.Binding
	}
	if run == nil {
		run = &bindingInput{}
	}
	run.Argv = argv
	approved := Binding{}
	if bound != nil && host == "node" {
		approved = bound.binding()
	}
	err := approved.Check(run.binding())
	var e *BindingError
	if !errors.As(err, &e) {
		return judge(true, want.OK, "")
	}
	switch {
	case want.OK:
		return wrong("%v", e)
	case e.Code != want.Code, want.Message != "" && (e.Error() != want.Message || len(want.Details.EnvKeys) != len(e.EnvKeys)),
		want.Details.ActualEnvHash != "" && (e.ExpectedEnv != want.Details.ExpectedEnvHash || e.ActualE != want.Details.ActualEnvHash):
		return wrong("%+v", e)
	}
	return equal
}

type planText struct {
	Argv           words      `json:"argv"`
	Cwd            string     `json:"cwd"`
	CommandText    string     `json:"commandText"`
	RawCommand     string     `json:"rawCommand"`
	CommandPreview string     `json:"commandPreview"`
	AgentID        string     `json:"agentId"`
	SessionKey     string     `json:"sessionKey"`
	File           *boundFile `json:"mutableFileOperand"`
}

func (p planText) plan() Plan {
	if p.CommandText == "" {
		p.CommandText = p.RawCommand
	}
	return Plan{Argv: p.Argv, Cwd: p.Cwd, CommandText: p.CommandText, Preview: p.CommandPreview, Agent: p.AgentID, Session: p.SessionKey, File: p.File}
}

func tryTrimmedPlan(t *trial, raw json.RawMessage) outcome {
	var want struct{ Plan *planText }
	t.into(t.Expect, &want)
	got, ok := ParsePlan(json.RawMessage(t.fill(string(raw))))
	switch {
	case !ok && want.Plan == nil:
		return equal
	case !ok:
		return stricter("script")
	case want.Plan == nil:
		return looser("%+v", got)
	}
	return samePlan(got, want.Plan.plan())
}

func samePlan(got, want Plan) outcome {
	switch {
	case !slices.Equal(got.Argv, want.Argv), got.Cwd != want.Cwd, got.CommandText != want.CommandText, got.Preview != want.Preview,
		got.Agent != want.Agent, got.Session != want.Session:
		return wrong("%+v", got)
	case want.File == nil && got.File != nil:
		return stricter("script")
	case want.File != nil && (got.File == nil || *got.File != *want.File):
		return wrong("%+v", got.File)
	}
	return equal
}

func tryGuard(t *trial) outcome {
	var in struct {
		NodeID string
		Params struct {
			Command                              words
			RawCommand, Cwd, AgentID, SessionKey string
			RunID                                string
			Approved                             bool
			ApprovalDecision                     string
			Env                                  texts
		}
		Client struct {
			ConnID  string
			Connect struct{ Device struct{ ID string } }
		}
		ApprovalRecord *struct {
			ID      string
			Request struct {
				NodeID           string
				SystemRunBinding *bindingInput
				SystemRunPlan    *planText
			}
			ExpiresAtMs                            int64
			RequestedByConnID, RequestedByDeviceID string
			ResolvedAtMs                           *int64
			Decision                               *string
		}
	}
	var want struct {
		OK      bool
		Message string
		Details struct{ Code string }
		Params  struct {
			Command    []string
			RawCommand string
			Cwd        string
			Approved   bool
		}
	}
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	p := in.Params
	if len(p.Command) > 0 && baseOf(p.Command[0]) == "cmd.exe" {
		return skipped("windows")
	}
	answer, _ := ParseAnswer(p.ApprovalDecision)
	call := Invocation{CommandRequest: CommandRequest{Argv: p.Command}, Raw: p.RawCommand, Cwd: p.Cwd, Agent: p.AgentID, Session: p.SessionKey,
		Env: p.Env, RunID: p.RunID, Approved: p.Approved, Answer: answer}
	var record *ApprovalRecord
	if r := in.ApprovalRecord; r != nil {
		record = &ApprovalRecord{ID: r.ID, Node: r.Request.NodeID, ExpiresAt: r.ExpiresAtMs, By: Caller{r.RequestedByConnID, r.RequestedByDeviceID}}
		if r.Request.SystemRunBinding != nil {
			b := r.Request.SystemRunBinding.binding()
			record.Binding = &b
		}
		if r.Request.SystemRunPlan != nil {
			plan := r.Request.SystemRunPlan.plan()
			record.Plan = &plan
		}
		if r.Decision != nil {
			record.Resolved = true
			record.Answer, _ = ParseAnswer(*r.Decision)
		}
	}
	out, _, err := Guard(call, in.NodeID, Caller{in.Client.ConnID, in.Client.Connect.Device.ID}, record, 0)
	if err != nil {
		if want.OK {
			return wrong("%v", err)
		}
		// The code is what programs read; the words around it may differ.
		if code := codeOf(err); err.Error() != want.Message && (code == "" || code != want.Details.Code) {
			return wrong("%v", err)
		}
		return equal
	}
	switch {
	case !want.OK:
		return looser("%+v", out)
	case !slices.Equal(out.Argv, want.Params.Command), want.Params.RawCommand != "" && out.Raw != want.Params.RawCommand, out.Cwd != want.Params.Cwd,
		out.Approved != want.Params.Approved:
		return wrong("%+v", out)
	}
	return equal
}

func codeOf(err error) string {
	var guard *GuardError
	var binding *BindingError
	switch {
	case errors.As(err, &guard):
		return guard.Code
	case errors.As(err, &binding):
		return binding.Code
	}
	return ""
}

func tryPlan(t *trial) outcome {
	var in struct {
		Command words
		Raw     string `json:"rawCommand"`
		Cwd     string
	}
	var want struct {
		OK      bool
		Message string
		Plan    planText
	}
	t.build(t.FS)
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	var path []string
	for _, n := range t.FS {
		if n.Dir && strings.HasSuffix(n.Path, "/bin") {
			path = append(path, t.fill(n.Path))
		}
	}
	m := NewMachine(strings.Join(append(path, "/usr/bin", "/bin"), ":"), "/nonexistent")
	r, err := newCommandRequest(in.Command, in.Raw, true)
	if err != nil {
		return judge(false, want.OK, "syntax")
	}
	got, err := m.Prepare(r, in.Cwd, "", "")
	switch {
	case err != nil && want.OK:
		var missing *NotFoundError
		if errors.As(err, &missing) {
			return stricter("no such program")
		}
		return stricter("script")
	case err != nil:
		if want.Message == errUnbindable.Error() && err != errUnbindable {
			return wrong("%v", err)
		}
		return equal
	case !want.OK:
		return looser("%+v", got)
	case len(want.Plan.Argv) > 0 && len(got.Argv) > 0 && got.Argv[0] != want.Plan.Argv[0] && slices.Equal(got.Argv[1:], want.Plan.Argv[1:]):
		return stricter("program by its real path")
	}
	return samePlan(got, want.Plan.plan())
}

func tryCommandRequest(t *trial) outcome {
	var in struct {
		Command                 json.RawMessage
		Argv                    words
		RawCommand              *string
		LegacyShellTextAccepted *bool
	}
	var want struct {
		OK, Valid                                         *bool
		CommandText, DisplayCommand                       *string
		Message, ErrorContains, ShellPayload, PreviewText json.RawMessage
	}
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	if in.Argv != nil {
		if got := CommandText(in.Argv); got != text(want.CommandText) {
			return wrong("%s", got)
		}
		return equal
	}
	var argv words
	_ = argv.UnmarshalJSON(in.Command)
	for _, word := range argv {
		if base := strings.ToLower(baseOf(word)); base == "cmd.exe" || base == "pwsh" || base == "powershell" {
			return skipped("windows")
		}
	}
	r, err := newCommandRequest(argv, text(in.RawCommand), in.LegacyShellTextAccepted == nil || *in.LegacyShellTextAccepted)
	ok := want.OK != nil && *want.OK || want.Valid != nil && *want.Valid
	var message, contains string
	if err != nil {
		_ = json.Unmarshal(want.Message, &message)
		_ = json.Unmarshal(want.ErrorContains, &contains)
		if ok {
			return wrong("%v", err)
		}
		if message != "" && err.Error() != message || !strings.Contains(err.Error(), contains) {
			return wrong("%v", err)
		}
		return equal
	}
	if !ok {
		return looser("%+v", r)
	}
	for _, part := range [...]struct {
		want json.RawMessage
		got  string
	}{{want.ShellPayload, r.Payload}, {want.PreviewText, r.Preview}} {
		var s *string
		if part.want != nil && (json.Unmarshal([]byte(t.fill(string(part.want))), &s) != nil || text(s) != part.got) {
			return wrong("%+v", r)
		}
	}
	for _, s := range [...]*string{want.CommandText, want.DisplayCommand} {
		if s != nil && *s != r.Text {
			return wrong("%+v", r)
		}
	}
	return equal
}

func tryDisplay(t *trial) outcome {
	switch t.Fn {
	case "isSafeExecutableValue":
		var in struct{ Value any }
		var want bool
		t.into(t.Input, &in)
		t.into(t.Expect, &want)
		value, _ := in.Value.(string)
		return judge(safeExecutableValue(value), want, "program value")
	case "sanitizeExecApprovalDisplayText":
		var in struct{ Arg string }
		var want string
		t.into(t.Input, &in)
		t.into(t.Expect, &want)
		if got := DisplayText(in.Arg); got != want {
			return wrong("%s", got)
		}
		return equal
	}
	var in struct {
		Arg struct {
			Command, CommandPreview, Host string
			SystemRunPlan                 *planText
		}
	}
	var want struct {
		CommandText    string
		CommandPreview *string
	}
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	shown, shorter := in.Arg.Command, in.Arg.CommandPreview
	if in.Arg.Host == "node" && in.Arg.SystemRunPlan != nil {
		shown, shorter = in.Arg.SystemRunPlan.CommandText, in.Arg.SystemRunPlan.CommandPreview
	}
	if got := newPreview(shown, shorter); got.Text != want.CommandText || got.Preview != text(want.CommandPreview) {
		return wrong("%+v", got)
	}
	return equal
}

func tryApprove(t *trial) outcome {
	var in struct{ Text string }
	var want *struct{ ID, Decision, Error string }
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	got, ok, err := ParseApprove(in.Text)
	switch {
	case ok != (want != nil):
		return wrong("%+v %v", got, ok)
	case !ok:
		return equal
	case err != nil:
		if err.Error() != want.Error {
			return wrong("%v", err)
		}
		return equal
	case got.ID != want.ID || got.Answer.String() != want.Decision:
		return wrong("%+v", got)
	}
	return equal
}

func tryNode(t *trial) outcome {
	var in struct {
		Nodes []struct {
			NodeID, DisplayName, RemoteIP, ClientID string
			Connected                               bool
		}
		Query      string
		HasOptions bool
	}
	var want struct{ NodeID, Error *string }
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	if in.HasOptions {
		return skipped("a default node by a callback")
	}
	var nodes []Node
	legacy := false
	for _, n := range in.Nodes {
		nodes = append(nodes, Node{n.NodeID, n.DisplayName, n.RemoteIP, n.Connected})
		legacy = legacy || strings.HasPrefix(n.ClientID, "clawdbot")
	}
	got, err := findNode(nodes, in.Query)
	switch {
	case err == nil && want.NodeID == nil:
		return looser("%s", got)
	case err == nil && got != *want.NodeID:
		if got == idOfName(nodes, in.Query) {
			return stricter("name before address")
		}
		return wrong("%s", got)
	case err == nil:
		return equal
	case want.Error == nil:
		if legacy {
			return stricter("older clients")
		}
		return wrong("%v", err)
	case err.Error() != *want.Error && !legacy:
		return wrong("%v", err)
	}
	return equal
}

// idOfName is the node that a display name means: the protocol's order, which is not the
// reference's.
func idOfName(nodes []Node, query string) string {
	for _, n := range nodes {
		if nodeName(n.DisplayName) == nodeName(query) {
			return n.ID
		}
	}
	return ""
}

func tryEvent(t *trial) outcome {
	var in struct {
		NodeID, Event, Host, ApprovalID, SessionID, Command, DeniedReason, Output string
		TimedOut                                                                  bool
		ExitCode                                                                  *int
		Payload                                                                   struct {
			RunID, Command, Reason, Output string
			ExitCode                       *float64
			TimedOut, SuppressNotifyOnExit bool
		}
	}
	var want struct{ Text *string }
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	p := in.Payload
	e := RunEvent{Kind: strings.TrimPrefix(in.Event, "exec."), Node: in.NodeID, ID: p.RunID, Command: p.Command, Reason: p.Reason,
		TimedOut: p.TimedOut, Output: p.Output, Suppressed: p.SuppressNotifyOnExit}
	if p.ExitCode != nil {
		code := int(*p.ExitCode)
		e.ExitCode = &code
	}
	if in.Host == "gateway" {
		e = RunEvent{Kind: "finished", ID: in.ApprovalID, Session: in.SessionID, Command: in.Command, TimedOut: in.TimedOut, Output: in.Output,
			ExitCode: in.ExitCode, Reason: in.DeniedReason}
		if in.DeniedReason != "" {
			e.Kind = "denied"
		}
	}
	if got := e.Text(); got != text(want.Text) {
		return wrong("%q", got)
	}
	return equal
}

func tryOutput(t *trial) outcome {
	var in struct {
		StdoutBytes, StderrBytes int
		Order                    string
	}
	var want struct {
		StdoutLen, StderrLen int
		Truncated            bool
		SuffixOn, Suffix     string
	}
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	if !strings.HasPrefix(in.Order, "stdout") {
		in.StdoutBytes, in.StderrBytes = in.StderrBytes, in.StdoutBytes
	}
	var o Output
	swapped := !strings.HasPrefix(in.Order, "stdout")
	o.Add(swapped, []byte(strings.Repeat("x", in.StdoutBytes)))
	o.Add(!swapped, []byte(strings.Repeat("x", in.StderrBytes)))
	stdout, stderr := o.Texts()
	if len(o.Stdout) != want.StdoutLen || len(o.Stderr) != want.StderrLen || o.Truncated != want.Truncated ||
		strings.HasSuffix(stdout, truncatedNote) != (want.SuffixOn == "stdout") || strings.HasSuffix(stderr, truncatedNote) != (want.SuffixOn == "stderr") {
		return wrong("%d %d %v", len(o.Stdout), len(o.Stderr), o.Truncated)
	}
	return equal
}

func trySandbox(t *trial) outcome {
	type toolsConfig struct {
		Sandbox struct{ Tools Tools }
	}
	type config struct {
		Agents struct {
			List []struct {
				ID    string
				Tools toolsConfig
			}
		}
		Tools toolsConfig
	}
	type lists struct{ Allow, Deny []string }
	var in struct {
		Config, Cfg         *config
		AgentID, SessionKey string
	}
	var want struct {
		lists
		ToolPolicy *lists
	}
	if t.Fn != "resolveSandboxToolPolicy" && t.Fn != "sandboxRuntimeStatus" {
		return skipped("containers")
	}
	t.into(t.Input, &in)
	t.into(t.Expect, &want)
	if in.Config == nil {
		in.Config = in.Cfg
	}
	if want.ToolPolicy == nil {
		want.ToolPolicy = &want.lists
	}
	if parts := strings.Split(in.SessionKey, ":"); in.AgentID == "" && len(parts) > 1 {
		in.AgentID = parts[1]
	}
	var agent Tools
	for _, a := range in.Config.Agents.List {
		if a.ID == in.AgentID {
			agent = a.Tools.Sandbox.Tools
		}
	}
	got := SandboxTools(in.Config.Tools.Sandbox.Tools, agent)
	switch {
	case slices.Equal(got.Allow, want.ToolPolicy.Allow) && slices.Equal(got.Deny, want.ToolPolicy.Deny):
		return equal
	case subset(got.Allow, want.ToolPolicy.Allow) && subset(want.ToolPolicy.Deny, got.Deny):
		return stricter("tools")
	}
	return wrong("%+v", got)
}

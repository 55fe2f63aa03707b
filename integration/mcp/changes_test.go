package mcp

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/clairun/clai-sandbox/integration/mcp/files"
	"github.com/clairun/clai-sandbox/sandbox/cow/changes"
)

// copying has the workspace seen copy on write, with rules.
func copying(t *testing.T, rules string) *place {
	t.Helper()
	p := newPlace(t)
	p.options.Session.Request.WorkspaceAccess = "cow"
	p.rules(rules)
	return p
}

func (p *place) rules(text string) {
	p.t.Helper()
	path := filepath.Join(p.options.Session.Caller.Directories().Config, "config.json")
	if err := os.WriteFile(path, []byte(`{"defaults": {"execution": {"changes": `+text+`}}}`), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// layer is the one of the workspace.
func (p *place) layer() changes.Layer {
	p.t.Helper()
	list, err := changes.List(p.options.Session.Caller.Directories().State)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, l := range list {
		if l.Path == p.work {
			return l
		}
	}
	p.t.Fatal("the workspace has no layer")
	return changes.Layer{}
}

// became is what the agent is told: "path state" of each.
func (a *agent) became(in ProposeChanges) string {
	a.p.t.Helper()
	r, failed := call[ProposedChanges](a, "changes_propose", in)
	if failed {
		return "failed"
	}
	var words []string
	for _, c := range r.Changes {
		words = append(words, strings.TrimPrefix(c.Path, a.p.work+"/")+" "+c.State)
	}
	if r.InUse {
		words = append(words, "in use")
	}
	return strings.Join(words, ", ")
}

func TestAnAgentProposesItsChangesAndIsToldTheOutcome(t *testing.T) {
	p := copying(t, `{"apply": ["src/**"], "never": ["no/**"]}`)
	a := p.connect(nil)
	if got := a.became(ProposeChanges{Message: "look"}); got != "failed" {
		t.Error(got)
	}
	a.sh(`mkdir src no; echo x >src/a; echo x >no/a; echo x >b; echo x >c; printf x >"$(printf 'd\033\377')"`)
	for _, in := range []ProposeChanges{{Paths: []string{"nothing"}}, {Paths: []string{"/etc"}}, {Paths: []string{"../x"}}, {Paths: []string{""}},
		{Paths: strings.Fields(strings.Repeat("a ", 101))}, {Message: strings.Repeat("a", 2001)}} {
		if got := a.became(in); got != "failed" {
			t.Errorf("%.100v: %s", in, got)
		}
	}
	if got := a.became(ProposeChanges{Paths: []string{"src", "no/a", p.work + "/b"}, Message: "please"}); got != "b waiting, no/a never, src applied_by_rule, src/a applied_by_rule" {
		t.Error(got)
	}
	if _, err := os.Stat(p.work + "/src/a"); err != nil {
		t.Error(err)
	}
	if _, err := p.layer().Apply(t.Context(), changes.Selection{Paths: []string{"b"}}); err != nil {
		t.Fatal(err)
	}
	// In another session, too, and by the rules as they are then.
	b := p.connect(nil)
	p.rules(`{"apply": ["c"]}`)
	if got := b.became(ProposeChanges{Message: "all"}); got != fmt.Sprintf("%q waiting, no waiting, no/a waiting, b applied, c applied_by_rule, src applied_by_rule, src/a applied_by_rule", p.work+"/d\x1b\xff") {
		t.Error(got)
	}
	if _, err := p.layer().Discard(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := b.became(ProposeChanges{}); !strings.HasPrefix(got, "b applied, c applied_by_rule, \"") || strings.Contains(got, "waiting") || !strings.Contains(got, "no/a discarded") {
		t.Error(got)
	}
	// Rules that cannot be read apply nothing.
	a.sh("echo more >c")
	p.rules(`{"apply": ["/c"]}`)
	if got := b.became(ProposeChanges{Message: "all"}); got != "failed" {
		t.Error(got)
	}
}

func TestAProposalWaitsForACommandThatRuns(t *testing.T) {
	p := copying(t, `{"apply": ["**"]}`)
	a := p.connect(nil)
	a.sh("echo x >a")
	started, _ := call[ProcessResult](a, "process", Process{Action: "start", Command: "echo runs; sleep 60"})
	p.until("it runs", func() bool {
		r, _ := call[ProcessResult](a, "process", Process{Action: "poll", ID: started.Processes[0].ID})
		return r.Output == "runs\n"
	})
	if got := a.became(ProposeChanges{Paths: []string{"a"}}); got != "a waiting, in use" {
		t.Error(got)
	}
	call[ProcessResult](a, "process", Process{Action: "signal", ID: started.Processes[0].ID, Signal: "KILL"})
	p.until("the rules are asked", func() bool { return a.became(ProposeChanges{}) == "a applied_by_rule" })
}

// The sandbox of a session has the layer until the agent gives it up.
func TestASessionsSandboxCanBeEndedForAProposal(t *testing.T) {
	p := copying(t, `{"apply": ["**"]}`)
	p.options.Stay = StayAlways
	a := p.connect(nil)
	a.sh("echo x >a; sleep 60 >/dev/null 2>&1 &")
	if got := a.became(ProposeChanges{Paths: []string{"a"}, Release: true}); got != "a applied_by_rule" {
		t.Error(got)
	}
	if text, err := os.ReadFile(p.work + "/a"); string(text) != "x\n" {
		t.Errorf("%q %v", text, err)
	}
	if r := a.sh("cat a"); r.Output != "x\n" {
		t.Errorf("%+v", r)
	}
}

// What a person changes between two calls of a session is merged with what the first one did.
func TestAPersonsChangeBetweenTheCallsOfASessionIsMerged(t *testing.T) {
	p := copying(t, `{"apply": []}`)
	p.options.Stay = StayAlways
	write := func(text string) {
		t.Helper()
		for _, name := range []string{"file", "other"} {
			if err := os.WriteFile(p.work+"/"+name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("1\n2\n3\n")
	a := p.connect(nil)
	a.sh("sed -i s/1/command/ file")
	if _, failed := call[files.EditResult](a, "edit", files.Edit{Path: "other", OldText: "1", NewText: "command"}); failed {
		t.Error("edit failed")
	}
	write("1\n2\nperson\n")
	r, err := p.layer().Review(t.Context())
	if err != nil || len(r.Changes) != 2 || !r.Changes[0].Merged || !r.Changes[1].Merged {
		t.Errorf("%+v %v", r, err)
	}
}

// Where nothing is kept apart, there is nothing to propose.
func TestChangesAreProposedOnlyWhereThereAreAny(t *testing.T) {
	offered := func(p *place) bool {
		tools, err := p.connect(nil).session.ListTools(context.Background(), &sdk.ListToolsParams{})
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range tools.Tools {
			if tool.Name == "changes_propose" {
				return true
			}
		}
		return false
	}
	if offered(newPlace(t)) || !offered(copying(t, "{}")) {
		t.Error("not where it says something, and nowhere else")
	}
}

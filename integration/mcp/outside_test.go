package mcp

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
)

// fakeRunner is a broker that runs nothing, and says what it was told to.
type fakeRunner struct {
	*client.Client
	answer  grants.CommandAnswer
	asked   grants.Command
	session string
	inside  bool
	end     chan grants.CommandAnswer // of what was accepted

	question grants.PersonQuestion
}

func (f *fakeRunner) WaitOutside(ctx context.Context, id string) (grants.CommandAnswer, error) {
	select {
	case a := <-f.end:
		a.RequestID = id
		return a, nil
	case <-ctx.Done():
		return grants.CommandAnswer{}, ctx.Err()
	}
}

func (f *fakeRunner) RunOutside(_ context.Context, session string, inside bool, c grants.Command) (grants.CommandAnswer, error) {
	f.session, f.inside, f.asked = session, inside, c
	return f.answer, nil
}

// What an agent's call runs outside is asked for in its session's name, and is told in the fields
// of every other command.
func TestACallRunsOutside(t *testing.T) {
	p := newPlace(t)
	f := &fakeRunner{Client: p.person}
	p.options.Session.Broker = f
	a := p.connect(nil)
	f.answer = grants.CommandAnswer{Status: grants.CommandApproved, ExitCode: 3, Stdout: []byte("out\n\xff"), Stderr: []byte("err\n"), TookMs: 7}
	r, failed := call[Result](a, "exec", Exec{Argv: []string{"id", "-u"}, Host: "gateway", Cwd: "below", Security: "allowlist", Ask: "always", TimeoutSeconds: 9})
	if failed || r.Outcome != "exited" || r.ExitCode != 3 || r.Output != "out\n\uFFFDerr\n" || r.DurationMs != 7 {
		t.Errorf("%+v", r)
	}
	if c := f.asked; f.session == "" || f.inside || !slices.Equal(c.Argv, []string{"id", "-u"}) || c.Cwd != p.work+"/below" || c.Security != "allowlist" || c.Ask != "always" || c.TimeoutMs != 9000 || c.Agent != "" {
		t.Errorf("%q, %v, %+v", f.session, f.inside, f.asked)
	}
	for status, outcome := range map[grants.CommandStatus]string{grants.CommandDenied: outcomeDenied, grants.CommandTimeout: outcomeDenied, grants.CommandError: outcomeSetup} {
		f.answer = grants.CommandAnswer{Status: status, Reason: "not\x1b now"}
		r, failed := call[Result](a, "exec", Exec{Command: "id", Host: "gateway"})
		if !failed || r.Outcome != outcome || r.ExitCode != -1 || len(r.Notices) != 1 || !strings.Contains(r.Notices[0].Text, "not") || strings.Contains(r.Notices[0].Text, "\x1b") {
			t.Errorf("%s: %+v", status, r)
		}
	}
	f.answer = grants.CommandAnswer{Status: grants.CommandAutoApproved, TimedOut: true, ExitCode: 143}
	if r, failed := call[Result](a, "exec", Exec{Command: "id", Host: "gateway"}); failed || r.Outcome != "timed_out" || !r.TimedOut {
		t.Errorf("%+v", r)
	}
}

// Where a person said for the session that its commands run on the gateway, a call that names no
// host goes there, and is told so.
func TestACallGoesWhereAPersonSaid(t *testing.T) {
	p := newPlace(t)
	f := &fakeRunner{Client: p.person, answer: grants.CommandAnswer{Status: grants.CommandApproved}}
	p.options.Session.Broker = f
	a := p.connect(nil)
	run := func(host string) (where string, r Result) {
		t.Helper()
		f.asked = grants.Command{}
		r, _ = call[Result](a, "exec", Exec{Argv: []string{"true"}, Host: host})
		if len(f.asked.Argv) == 0 {
			return "sandbox", r
		}
		return "gateway", r
	}
	if where, _ := run(""); where != "sandbox" {
		t.Fatal(where)
	}
	list, err := p.person.Sessions(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, step := range []struct{ said, where string }{{"/elevated on", "gateway"}, {"/elevated off", "sandbox"}, {"/exec host=gateway", "gateway"}, {"/exec host=sandbox", "sandbox"}} {
		if _, err := p.person.Say(t.Context(), list[0].ID, grants.Saying{Text: step.said}); err != nil {
			t.Fatal(err)
		}
		where, r := run("")
		for end := time.Now().Add(10 * time.Second); where != step.where && time.Now().Before(end); { // it is told as an event
			where, r = run("")
		}
		if told := strings.Contains(r.text(), "a person said"); where != step.where || told != (where == "gateway") {
			t.Errorf("%s: %s, %q", step.said, where, r.text())
		}
		if where, r := run("sandbox"); where != "sandbox" || strings.Contains(r.text(), "a person said") {
			t.Errorf("%s, and host sandbox: %s", step.said, where)
		}
	}
}

// A person may take longer than a client waits: the call says so, a later result says that it has
// ended, and the id has what became of it.
func TestACallOutsideGoesOnWaiting(t *testing.T) {
	p := newPlace(t)
	f := &fakeRunner{Client: p.person, end: make(chan grants.CommandAnswer)}
	p.options.Session.Broker, p.options.askWait = f, 10*time.Millisecond
	a := p.connect(nil)
	f.answer = grants.CommandAnswer{Status: grants.CommandAccepted, RequestID: "abc"}
	pending := func(in Exec) {
		t.Helper()
		if r, failed := call[Result](a, "exec", in); failed || r.Outcome != outcomePending || r.RunID != "abc" || r.ExitCode != -1 || !strings.Contains(r.text(), "exec with runId abc goes on waiting") {
			t.Errorf("%+v", r)
		}
	}
	pending(Exec{Argv: []string{"id"}, Host: "gateway"})
	if !f.asked.TwoPhase {
		t.Errorf("%+v", f.asked)
	}
	pending(Exec{RunID: "abc"})
	f.end <- grants.CommandAnswer{Status: grants.CommandApproved, ExitCode: 3, Stdout: []byte("late\n"), Text: "Exec finished (gateway id=abc, code 3)"}
	for told := false; !told; {
		r, _ := call[Result](a, "bash_exec", BashExec{Command: "true"})
		told = slices.ContainsFunc(r.Notices, func(n Notice) bool {
			return n.Kind == "exec_ended" && n.Text == "Exec finished (gateway id=abc, code 3); exec with runId abc has all of it"
		})
	}
	if r, failed := call[Result](a, "exec", Exec{RunID: "abc"}); failed || r.Outcome != "exited" || r.ExitCode != 3 || r.Output != "late\n" {
		t.Errorf("%+v", r)
	}
	if r, failed := call[Result](a, "exec", Exec{RunID: "abc"}); !failed || r.Outcome != outcomeDenied {
		t.Errorf("%+v", r)
	}
	f.answer.RequestID = "def"
	go func() { f.end <- grants.CommandAnswer{Status: grants.CommandDenied, Reason: "no"} }()
	for r, _ := call[Result](a, "exec", Exec{Argv: []string{"id"}, Host: "gateway"}); r.Outcome != outcomeDenied; {
		r, _ = call[Result](a, "exec", Exec{RunID: "def"})
	}
}

func (f *fakeRunner) AskPerson(ctx context.Context, session string, q grants.PersonQuestion) (grants.PersonAnswer, error) {
	f.session, f.question = session, q
	a, err := f.WaitOutside(ctx, "q")
	return grants.PersonAnswer{RequestID: a.RequestID, Outcome: grants.Outcome(a.Status), Answer: a.Text, Reason: a.Reason}, err
}

// An agent asks its person in words, and waits across calls.
func TestAnAgentAsksThePerson(t *testing.T) {
	p := newPlace(t)
	f := &fakeRunner{Client: p.person, end: make(chan grants.CommandAnswer)}
	p.options.Session.Broker, p.options.askWait = f, 10*time.Millisecond
	a := p.connect(nil)
	in := AskPerson{Question: "Which one?", Choices: []string{"this", "that"}}
	for range 2 {
		if r, failed := call[PersonResult](a, "ask_person", in); failed || !r.Pending || r.Answered {
			t.Errorf("%+v", r)
		}
	}
	f.end <- grants.CommandAnswer{Status: grants.CommandStatus(grants.OutcomeAnswered), Text: "that"}
	if r, failed := call[PersonResult](a, "ask_person", in); failed || !r.Answered || r.Answer != "that" || f.session == "" || f.question.Text != in.Question {
		t.Errorf("%+v, %+v", r, f)
	}
	go func() {
		f.end <- grants.CommandAnswer{Status: grants.CommandStatus(grants.OutcomeDenied), Reason: "no\x1b"}
	}()
	r := PersonResult{Pending: true}
	for r.Pending {
		r, _ = call[PersonResult](a, "ask_person", in)
	}
	if r.Answered || r.Outcome != "denied" || strings.Contains(r.Message, "\x1b") {
		t.Errorf("%+v", r)
	}
}

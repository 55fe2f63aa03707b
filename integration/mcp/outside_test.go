package mcp

import (
	"context"
	"slices"
	"strings"
	"testing"

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
}

func (f *fakeRunner) RunOutside(_ context.Context, session string, inside bool, c grants.Command) (grants.CommandAnswer, error) {
	f.session, f.inside, f.asked = session, inside, c
	return f.answer, nil
}

// What an agent's call runs outside is asked for in its session's name, and is told in the fields of every other command.
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

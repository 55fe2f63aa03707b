package outside

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
)

// Who asks in two phases has an id at once: the request's, the run's, and the one by which the end
// is waited for, as often as they like.
func TestWhoAsksInTwoPhasesComesBackForTheEnd(t *testing.T) {
	b := newBench(t, Options{Every: time.Nanosecond})
	session, err := b.Open(t.Context(), grants.SessionSpec{Agent: "main", Workspace: b.work})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(name string, argv ...string) string {
		t.Helper()
		a, err := b.RunOutside(grants.WithRequestID(t.Context(), name), session.ID, false, grants.Command{Argv: argv, TwoPhase: true})
		if err != nil || a.Status != grants.CommandAccepted || a.Ran() || a.RequestID == "" || a.ExpiresAtUnixMs <= a.CreatedAtUnixMs {
			t.Fatalf("%+v, %v", a, err)
		}
		return a.RequestID
	}
	end := func(id string) grants.CommandAnswer {
		t.Helper()
		a, err := b.WaitOutside(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	id := ask("one", "docker", "ps")
	if again := ask("one", "docker", "ps"); again != id {
		t.Error("the same request is another one")
	}
	r := b.waiting(1)[0]
	if r.ID != id {
		t.Errorf("%s waits, and not %s", r.ID, id)
	}
	if _, err := b.Decide(t.Context(), id, grants.Decision{Kind: grants.AllowOnce, Shown: r.Outside.Shown}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if a := end(id); a.Status != grants.CommandApproved || string(a.Stdout) != "out" || a.RequestID != id {
			t.Errorf("%+v", a)
		}
	}
	if again := ask("one", "docker", "ps"); again != id || b.count() != 1 || b.ran[0].ID != id {
		t.Errorf("%s, %+v", again, b.ran)
	}
	if a := end(ask("listed", "printf", "x")); a.Status != grants.CommandAutoApproved {
		t.Errorf("%+v", a)
	}
	if _, err := b.WaitOutside(t.Context(), "none"); !errors.As(err, new(*grants.UnknownError)) {
		t.Errorf("%v", err)
	}
	for name, c := range map[string]struct {
		session string
		inside  bool
	}{"the person": {"", false}, "a sandbox": {session.ID, true}} {
		if a, err := b.RunOutside(t.Context(), c.session, c.inside, grants.Command{Argv: []string{"echo", "x"}, Cwd: b.work, TwoPhase: true}); !errors.As(err, new(*grants.InvalidError)) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	if _, err := b.RunOutside(t.Context(), session.ID, false, grants.Command{Argv: []string{"x"}, Cwd: "relative", TwoPhase: true}); !errors.As(err, new(*grants.InvalidError)) {
		t.Errorf("what cannot be meant is accepted: %v", err)
	}
	for i := range maxLater + 1 {
		end(ask(fmt.Sprint("many", i), "printf", "x"))
	}
	if _, err := b.WaitOutside(t.Context(), id); !errors.As(err, new(*grants.UnknownError)) || len(b.laters) > maxLater || len(b.laterAs) > maxLater {
		t.Errorf("%d are kept, %v", len(b.laters), err)
	}
	waits := ask("left", "docker", "ps")
	b.waiting(1)
	b.begin() // the gateway was killed
	if a := end(waits); a.Status != grants.CommandDenied || a.Reason != "the gateway restarted" {
		t.Errorf("%+v", a)
	}
	if session, err = b.Open(t.Context(), grants.SessionSpec{Agent: "main", Workspace: b.work}); err != nil {
		t.Fatal(err)
	}
	if again := ask("left", "docker", "ps"); again != waits {
		t.Error("the next gateway asks anew")
	}
	waits = ask("withdrawn", "docker", "ps")
	b.waiting(1)
	session.Close()
	if _, err := b.WaitOutside(t.Context(), waits); err == nil {
		t.Error("what a session asked outlives it")
	}
	b.waiting(0)
}

package brokertest

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
)

func isOne(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "dir/file")
	if err := os.Symlink("dir", b.Home+"/name"); err != nil {
		t.Fatal(err)
	}
	add := func(path, agent string, access string, expires time.Duration) grants.Grant {
		t.Helper()
		n := grants.NewGrant{Agent: agent, Path: path, Access: ro, ExpiresIn: grants.Duration(expires)}
		if access == "rw" {
			n.Access = rw
		}
		g, err := b.Add(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first := add(path, "main", "ro", 0)
	if again := add("~/dir/file", "main", "ro", time.Hour); again.ID != first.ID || again.ExpiresAtUnixMs == 0 {
		t.Errorf("%+v", again)
	}
	if again := add(path, "main", "ro", 0); again.ID != first.ID || again.ExpiresAtUnixMs != 0 {
		t.Errorf("what is said last counts: %+v", again)
	}
	s := b.open(t, grants.SessionSpec{})
	if answer := b.must(t, s.ID, path, ro); answer.Scope != grants.ScopeAlready {
		t.Errorf("%+v", answer)
	}
	// Another access, agent or name is another one.
	wide, other, name, above := add(path, "main", "rw", 0), add(path, "other", "ro", 0), add("~/name/file", "main", "ro", 0), add("~/dir", "main", "ro", 0)
	ids := map[string]bool{first.ID: true, wide.ID: true, other.ID: true, name.ID: true, above.ID: true}
	if all, err := b.Grants(t.Context()); err != nil || len(ids) != 5 || len(all) != 5 {
		t.Errorf("%d ids, %v, %v", len(ids), all, err)
	}
	// Each that is taken away says what is left of the path.
	for _, step := range []struct {
		id   string
		left []string
	}{{wide.ID, []string{above.ID, first.ID, name.ID}}, {first.ID, []string{above.ID, name.ID}}, {above.ID, nil}, {name.ID, nil}, {other.ID, nil}} {
		taken, err := b.Revoke(t.Context(), step.id)
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, g := range taken.Covered {
			got = append(got, g.ID)
		}
		if len(got) != len(step.left) {
			t.Errorf("revoked %s: %v are left, want %v", taken.Path, got, step.left)
			continue
		}
		for i := range got {
			if got[i] != step.left[i] {
				t.Errorf("revoked %s: %v are left, want %v", taken.Path, got, step.left)
			}
		}
	}
	b.nothingGranted(t)
	// One that becomes less is the one that there was already.
	first, wide = add(path, "main", "ro", 0), add(path, "main", "rw", 0)
	if taken, err := b.Narrow(t.Context(), wide.ID); err != nil || taken.ID != first.ID || taken.Access != ro {
		t.Errorf("%+v, %v", taken, err)
	}
	if all, err := b.Grants(t.Context()); err != nil || len(all) != 1 || all[0].ID != first.ID {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := b.Revoke(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	b.nothingGranted(t)
	// A person who allows for always what was allowed before allows it once more.
	answer := b.granted(t, s, path, allowAlways(path, ro))
	if g := add(path, "main", "ro", 0); g.ID != answer.GrantID {
		t.Errorf("%+v and %+v", g, answer)
	}
}

func isMadeOnce(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	s := b.open(t, grants.SessionSpec{})
	as := func(name string) context.Context {
		return grants.WithRequestID(t.Context(), name)
	}
	n := grants.NewGrant{Agent: "main", Path: path, Access: ro}
	first, err := b.Add(as("one"), n)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Revoke(as("two"), first.ID); err != nil {
		t.Fatal(err)
	}
	for range 2 { // asked again, by who got no answer
		if again, err := b.Add(as("one"), n); err != nil || again.ID != first.ID {
			t.Errorf("%+v, %v", again, err)
		}
		if again, err := b.Revoke(as("two"), first.ID); err != nil || again.ID != first.ID {
			t.Errorf("%+v, %v", again, err)
		}
	}
	b.nothingGranted(t)
	question := b.ask(t.Context(), s.ID, path, ro)
	r := b.pending(t, 1)[0]
	decided, err := b.Decide(as("three"), r.ID, allowAlways(path, ro))
	if err != nil {
		t.Fatal(err)
	}
	question.wait(t)
	if again, err := b.Decide(as("three"), r.ID, allowAlways(path, ro)); err != nil || again.GrantID != decided.GrantID {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := b.Decide(as("four"), r.ID, allowAlways(path, ro)); err == nil {
		t.Error("another decision, after the first")
	}
	if list, err := b.Log(t.Context(), 10); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

// What is taken away is gone from the sandboxes that run before it is said to be; of those that do
// not say so it is told.
func reaches(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	add := func() grants.Grant {
		t.Helper()
		g, err := b.Add(t.Context(), grants.NewGrant{Agent: "main", Path: path, Access: ro})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	s := b.open(t, grants.SessionSpec{Live: true, PID: os.Getpid(), Command: "the command"})
	b.open(t, grants.SessionSpec{Agent: "other", PID: os.Getpid()})
	for _, problem := range []string{"", "it hangs"} {
		g := add()
		revoked := make(chan grants.Taking, 1)
		go func() {
			taken, err := b.Revoke(t.Context(), g.ID)
			if err != nil {
				t.Error(err)
			}
			revoked <- taken
		}()
		next(t, s.Events, grants.EventRevoked)
		select {
		case taken := <-revoked:
			t.Fatalf("said to be gone before it is: %+v", taken)
		default:
		}
		if err := b.Applied(t.Context(), s.ID, grants.Applied{Grant: g.ID, Event: grants.EventRevoked, Problem: problem}); err != nil {
			t.Fatal(err)
		}
		taken := <-revoked
		if problem == "" && len(taken.Unreached) != 0 || problem != "" && (len(taken.Unreached) != 1 || taken.Unreached[0].Why != problem || taken.Unreached[0].PID != os.Getpid()) {
			t.Errorf("%q: %+v", problem, taken.Unreached)
		}
	}
	// A sandbox that ends need not be waited for; one that is silent is told of; one that is not
	// live as well.
	g := add()
	go func() {
		next(t, s.Events, grants.EventRevoked)
		s.Close()
	}()
	if taken, err := b.Revoke(t.Context(), g.ID); err != nil || len(taken.Unreached) != 0 {
		t.Errorf("%+v, %v", taken.Unreached, err)
	}
	g = add()
	silent, still := b.open(t, grants.SessionSpec{Live: true, PID: os.Getpid()}), b.open(t, grants.SessionSpec{PID: os.Getpid()})
	taken, err := b.Revoke(t.Context(), g.ID)
	if err != nil || len(taken.Unreached) != 2 {
		t.Fatalf("%+v, %v", taken.Unreached, err)
	}
	for _, sandbox := range taken.Unreached {
		if sandbox.Why == "" || sandbox.Session != silent.ID && sandbox.Session != still.ID {
			t.Errorf("%+v", sandbox)
		}
	}
}

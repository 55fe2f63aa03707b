package broker

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
)

// again is the next broker, on the same files, after one was killed (or, if it closed, has ended).
func (b *bench) again(t *testing.T) *Broker {
	t.Helper()
	next, err := New(b.options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(next.Close)
	return next
}

// The sandboxes of a broker that has ended are known to the next one: it waits for them to come
// back, and tells of those that do not.
func TestTheNextBrokerKnowsOfSandboxesThatRun(t *testing.T) {
	for name, end := range map[string]func(*bench){"killed": func(*bench) {}, "ended": func(b *bench) { b.Close() }} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Options{Presence: filepath.Join(t.TempDir(), "sessions")})
			g, err := b.Add(t.Context(), grants.NewGrant{Agent: "main", Path: "~/a", Access: profile.ReadOnly})
			if err != nil {
				t.Fatal(err)
			}
			spec := grants.SessionSpec{Agent: "main", Workspace: "/w", Live: true, PID: os.Getpid(), Command: "sleep", Key: "first"}
			first, err := b.Open(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			spec.Key = "second"
			second, err := b.Open(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			spec.Key = "over"
			over, err := b.Open(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			over.Close()
			gone := exec.Command("sleep", "1000")
			if err := gone.Start(); err != nil {
				t.Fatal(err)
			}
			dead := spec
			dead.Key = "dead"
			dead.PID = gone.Process.Pid
			if _, err := b.Open(t.Context(), dead); err != nil {
				t.Fatal(err)
			}
			gone.Process.Kill()
			gone.Wait()
			end(b)

			next := b.again(t)
			if len(next.away) != 2 {
				t.Errorf("%d are away", len(next.away))
			}
			spec.Key, spec.Previous = "third", first.Key
			back, err := next.Open(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			if err := next.Applied(t.Context(), back.ID, grants.Applied{Event: grants.EventSession}); err != nil {
				t.Fatal(err)
			}
			go func() {
				for e := range back.Events {
					next.Applied(t.Context(), back.ID, grants.Applied{Grant: e.Grant.ID, Event: e.Kind})
				}
			}()
			taken, err := next.Revoke(t.Context(), g.ID)
			if err != nil || len(taken.Unreached) != 1 || taken.Unreached[0].Session != second.ID || taken.Unreached[0].PID != os.Getpid() || taken.Unreached[0].Why != whyAway {
				t.Errorf("%+v, %v", taken.Unreached, err)
			}

			// One that comes back while it is waited for is reached.
			g, err = next.Add(t.Context(), grants.NewGrant{Agent: "main", Path: "~/a", Access: profile.ReadOnly})
			if err != nil {
				t.Fatal(err)
			}
			revoked := make(chan grants.Taking, 1)
			go func() {
				taken, _ := next.Revoke(t.Context(), g.ID)
				revoked <- taken
			}()
			for has := true; has; time.Sleep(time.Millisecond) {
				has = next.has(g.ID)
			}
			spec.Key, spec.Previous = "fourth", second.Key
			late, err := next.Open(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			if list, err := grants.ReadSnapshot(b.state, "main"); err != nil || len(list) != 0 {
				t.Errorf("who comes then reads what was taken away: %v, %v", list, err)
			}
			next.Applied(t.Context(), late.ID, grants.Applied{Event: grants.EventSession})
			if taken := <-revoked; len(taken.Unreached) != 0 {
				t.Errorf("%+v", taken.Unreached)
			}
			back.Close()
			late.Close()
			if left, err := os.ReadDir(b.options.Presence); err != nil || len(left) != 0 {
				t.Errorf("%v are left, %v", left, err)
			}
		})
	}
}

// A question that waited when the broker was killed has an end in the audit file, once.
func TestTheNextBrokerEndsWhatWaited(t *testing.T) {
	b := newBench(t, Options{})
	s := b.session(t, "main")
	for _, path := range []string{"~/waits", "~/decided", "~/denied"} {
		go b.Ask(grants.WithRequestID(t.Context(), filepath.Base(path)), s.ID, grants.Asking{Path: path, Access: profile.ReadOnly})
	}
	for _, r := range b.pendingOf(t, 3) {
		switch filepath.Base(r.RequestedPath) {
		case "decided":
			b.Decide(t.Context(), r.ID, grants.Decision{Kind: grants.AllowOnce, Path: r.RequestedPath, Access: profile.ReadOnly})
		case "denied":
			b.Decide(t.Context(), r.ID, grants.Decision{Reason: "not that"})
		}
	}
	left, _ := b.unfinished()
	if len(left) != 1 || filepath.Base(left[0].RequestedPath) != "waits" {
		t.Fatalf("%+v", left)
	}
	next := b.again(t) // the first was killed
	if left, _ := b.unfinished(); len(left) != 0 {
		t.Errorf("%+v", left)
	}
	list, err := next.Log(t.Context(), 10)
	if err != nil || len(list) != 3 || list[0].ID != left[0].ID || list[0].Outcome != grants.OutcomeDenied {
		t.Errorf("%+v, %v", list, err)
	}
	// Who asks again is told, if it is the same agent and the same question.
	session := func(agent string) string {
		s, err := next.Open(t.Context(), grants.SessionSpec{Agent: agent, Workspace: "/w"})
		if err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	for name, want := range map[string]string{"waits": "the gateway restarted", "denied": "not that"} {
		answer, err := next.Ask(grants.WithRequestID(t.Context(), name), session("main"), grants.Asking{Path: "~/" + name, Access: profile.ReadOnly})
		if err != nil || answer.Outcome != grants.OutcomeDenied || answer.Reason != want {
			t.Errorf("%s: %+v, %v", name, answer, err)
		}
	}
	for agent, name := range map[string]string{"main": "another", "other": "waits"} {
		soon, cancel := context.WithCancel(t.Context())
		asked := make(chan error, 1)
		go func() {
			_, err := next.Ask(grants.WithRequestID(soon, name), session(agent), grants.Asking{Path: "~/waits", Access: profile.ReadOnly})
			asked <- err
		}()
		for list, _ := next.Pending(t.Context()); len(list) == 0; list, _ = next.Pending(t.Context()) {
			runtime.Gosched()
		}
		cancel()
		if err := <-asked; !errors.Is(err, context.Canceled) {
			t.Errorf("%s, %s: %v", agent, name, err)
		}
	}
	var ended *grants.EndedError
	if _, err := next.Decide(t.Context(), list[0].ID, grants.Decision{}); !errors.As(err, &ended) || ended.Outcome != grants.OutcomeDenied {
		t.Errorf("%v", err)
	}
}

// A change that the killed broker made is known to the next one by its name.
func TestTheNextBrokerKnowsWhatWasDone(t *testing.T) {
	b := newBench(t, Options{})
	ctx := grants.WithRequestID(t.Context(), "once")
	n := grants.NewGrant{Agent: "main", Path: "~/a", Access: profile.ReadOnly}
	g, err := b.Add(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Revoke(grants.WithRequestID(t.Context(), "away"), g.ID); err != nil {
		t.Fatal(err)
	}
	next := b.again(t)
	if again, err := next.Add(ctx, n); err != nil || again.ID != g.ID {
		t.Errorf("%+v, %v", again, err)
	}
	if again, err := next.Revoke(grants.WithRequestID(t.Context(), "away"), g.ID); err != nil || again.ID != g.ID {
		t.Errorf("%+v, %v", again, err)
	}
	if all, err := next.Grants(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
}

// What was said for a session holds when its sandboxes go on with it, at this broker or the next
// one, and for no other session.
func TestWhatWasSaidForASessionGoesOnWithIt(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *bench, *grants.Session) *Broker{
		"killed":   func(t *testing.T, b *bench, _ *grants.Session) *Broker { return b.again(t) },
		"ended":    func(t *testing.T, b *bench, _ *grants.Session) *Broker { b.Close(); return b.again(t) },
		"cut off":  func(_ *testing.T, b *bench, s *grants.Session) *Broker { s.Close(); return b.Broker },
		"two ends": func(t *testing.T, b *bench, s *grants.Session) *Broker { return b.again(t) },
	} {
		b := newBench(t, Options{Presence: filepath.Join(t.TempDir(), "sessions")})
		spec := grants.SessionSpec{Agent: "main", Workspace: "/w", PID: os.Getpid(), Key: "first"}
		first, err := b.Open(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		said := grants.Overrides{Host: "gateway", Security: "deny"}
		if err := b.Override(first.ID, said); err != nil {
			t.Fatal(err)
		}
		if e := <-first.Events; e.Kind != grants.EventOverridden || *e.Overrides != said {
			t.Errorf("%s: %+v", name, e)
		}
		next := end(t, b, first)
		spec.Key, spec.Previous = "second", "first"
		if name == "two ends" {
			if _, err := next.Open(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			next = b.again(t)
			spec.Key, spec.Previous = "third", "second"
		}
		back, err := next.Open(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if got := next.Overrides(back.ID); got != said {
			t.Errorf("%s: %+v", name, got)
		}
		select {
		case e := <-back.Events:
			if e.Overrides == nil || *e.Overrides != said {
				t.Errorf("%s: %+v", name, e)
			}
		default:
			t.Errorf("%s: the session is not told", name)
		}
		for why, spec := range map[string]grants.SessionSpec{
			"a new session": {Agent: "main", Workspace: "/w"},
			"another agent": {Agent: "other", Workspace: "/w", Previous: "first"},
		} {
			s, err := next.Open(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			if got := next.Overrides(s.ID); got != (grants.Overrides{}) {
				t.Errorf("%s, %s: %+v", name, why, got)
			}
		}
		list, err := next.Sessions(t.Context())
		if err != nil || len(list) < 3 || !slices.ContainsFunc(list, func(s grants.OpenSession) bool { return s.ID == back.ID && s.Overrides == said }) {
			t.Errorf("%s: %+v, %v", name, list, err)
		}
	}
	b := newBench(t, Options{})
	if err := b.Override("none", grants.Overrides{Elevated: true}); !errors.As(err, new(*grants.UnknownError)) {
		t.Error(err)
	}
}

package brokertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
)

func waits(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "data/file")
	s := b.open(t, grants.SessionSpec{Command: "make test"})
	question := b.ask(t.Context(), s.ID, " ~/data/file ", ro)
	r := b.pending(t, 1)[0]
	if r.Agent != "main" || r.Session != s.ID || r.Workspace != b.Home+"/work" || r.Command != "make test" || r.RequestedPath != path || r.ResolvedPath != path ||
		r.RequestedAccess != ro || r.Reason != "for the test" || r.AskedAtUnixMs == 0 || r.ExpiresAtUnixMs <= r.AskedAtUnixMs {
		t.Errorf("%+v", r)
	}
	select {
	case answer := <-question.answer:
		t.Fatalf("nobody answered: %+v", answer)
	default:
	}
	b.decide(t, r.ID, allowOnce(path, ro))
	answer := question.wait(t)
	if !answer.Granted || answer.Outcome != grants.OutcomeGranted || answer.Scope != grants.ScopeOnce || answer.Path != path || answer.Access != ro || answer.GrantID == "" || answer.RequestID != r.ID {
		t.Errorf("%+v", answer)
	}
	b.pending(t, 0)
}

func narrows(t *testing.T, start starter) {
	b := start(t, Limits{})
	b.write(t, "a/b/file")
	b.write(t, "ab/file")
	os.Symlink("/etc", b.Home+"/a/out")
	s := b.open(t, grants.SessionSpec{})
	question := b.ask(t.Context(), s.ID, b.Home+"/a", ro)
	r := b.pending(t, 1)[0]
	for _, d := range []grants.Decision{
		allowOnce(b.Home, ro), allowOnce(b.Home+"/ab", ro), allowOnce(b.Home+"/a/../ab", ro), allowOnce(b.Home+"/a/out", ro),
		allowOnce(b.Home+"/a", rw), allowOnce("", ro), allowOnce(b.Home+"/a", 0), {Kind: grants.AllowAlways, Path: b.Home + "/a", Access: ro},
	} {
		_, err := b.Decide(t.Context(), r.ID, d)
		var refused *grants.DecisionError
		if !errors.As(err, &refused) {
			t.Errorf("%+v: %v", d, err)
		}
		b.pending(t, 1)
	}
	b.decide(t, r.ID, allowOnce(b.Home+"/a/b", ro))
	if answer := question.wait(t); answer.Path != b.Home+"/a/b" || answer.Access != ro {
		t.Errorf("%+v", answer)
	}
}

func covered(t *testing.T, start starter) {
	b := start(t, Limits{})
	b.write(t, "work/file")
	b.write(t, "work/secret/key")
	s := b.open(t, grants.SessionSpec{Shown: []grants.Shown{{Path: b.Home + "/work", Access: rw}, {Path: b.Home + "/lib", Access: ro}}, Hidden: []string{b.Home + "/work/secret"}})
	for path, access := range map[string]profile.Access{"/work/file": rw, "/work": ro, "/work/new": rw, "/lib/x": ro} {
		answer := b.must(t, s.ID, b.Home+path, access)
		if !answer.Granted || answer.Scope != grants.ScopeAlready || answer.RequestID != "" {
			t.Errorf("%s: %+v", path, answer)
		}
	}
	b.pending(t, 0)
	b.ask(t.Context(), s.ID, b.Home+"/lib/x", rw)
	b.pending(t, 1)
	b.ask(t.Context(), s.ID, b.Home+"/work/secret/key", ro)
	b.pending(t, 2)
}

func remembers(t *testing.T, start starter) {
	b := start(t, Limits{})
	b.write(t, "a/b/file")
	s := b.open(t, grants.SessionSpec{})
	question := b.ask(t.Context(), s.ID, b.Home+"/a", ro)
	b.decide(t, b.pending(t, 1)[0].ID, grants.Decision{Kind: grants.Deny, Reason: "not today"})
	if answer := question.wait(t); answer.Granted || answer.Outcome != grants.OutcomeDenied || answer.Reason != "not today" {
		t.Errorf("%+v", answer)
	}
	for _, path := range []string{"/a", "/a/b/file", "/a/new"} {
		for _, access := range []profile.Access{ro, rw} {
			if answer := b.must(t, s.ID, b.Home+path, access); answer.Outcome != grants.OutcomeDenied || answer.Reason != "not today" {
				t.Errorf("%s: %+v", path, answer)
			}
		}
	}
	b.pending(t, 0)
	b.ask(t.Context(), s.ID, b.Home+"/ab", ro)
	b.pending(t, 1)
	other := b.open(t, grants.SessionSpec{})
	b.ask(t.Context(), other.ID, b.Home+"/a", ro)
	b.pending(t, 2)
}

func merges(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	s := b.open(t, grants.SessionSpec{})
	var all []asked
	for range 5 {
		all = append(all, b.ask(t.Context(), s.ID, path, ro))
	}
	other := b.ask(t.Context(), s.ID, path, rw)
	list := b.pending(t, 2)
	if list[0].RequestedAccess == rw {
		list[0] = list[1]
	}
	// Those that come to wait a moment later are answered as well: they find the grant.
	b.decide(t, list[0].ID, allowOnce(path, ro))
	for _, a := range all {
		if answer := a.wait(t); !answer.Granted {
			t.Errorf("%+v", answer)
		}
	}
	b.decide(t, b.pending(t, 1)[0].ID, grants.Decision{})
	if answer := other.wait(t); answer.Granted {
		t.Errorf("%+v", answer)
	}
}

func decidesOnce(t *testing.T, start starter) {
	b := start(t, Limits{MaxPending: 1000})
	s := b.open(t, grants.SessionSpec{})
	for i := range 20 {
		path := b.write(t, fmt.Sprint("file", i))
		question := b.ask(t.Context(), s.ID, path, rw)
		id := b.pending(t, 1)[0].ID
		var won, told int
		var mu sync.Mutex
		var all sync.WaitGroup
		for n := range 6 {
			all.Go(func() {
				d := []grants.Decision{allowOnce(path, rw), allowAlways(path, ro), {}}[n%3]
				_, err := b.Decide(t.Context(), id, d)
				var ended *grants.EndedError
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won++
				case errors.As(err, &ended):
					told++
				default:
					t.Errorf("%v", err)
				}
			})
		}
		all.Wait()
		if won != 1 || told != 5 {
			t.Fatalf("%d won, %d were told", won, told)
		}
		answer := question.wait(t)
		all2, err := b.Grants(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, g := range all2 {
			if g.Path == path {
				found++
				if g.Access != answer.Access || g.Scope != answer.Scope || g.ID != answer.GrantID {
					t.Errorf("granted %+v, answered %+v", g, answer)
				}
			}
		}
		if (found == 1) != answer.Granted || found > 1 {
			t.Errorf("%d grants, answered %+v", found, answer)
		}
	}
}

func timesOut(t *testing.T, start starter) {
	b := start(t, Limits{Timeout: 50 * time.Millisecond})
	path := b.write(t, "file")
	s := b.open(t, grants.SessionSpec{})
	events, err := b.Events(t.Context(), grants.EventsFrom{})
	if err != nil {
		t.Fatal(err)
	}
	question := b.ask(t.Context(), s.ID, path, ro)
	r := next(t, events, grants.EventRequestPending).Request
	if answer := question.wait(t); answer.Granted || answer.Outcome != grants.OutcomeTimeout {
		t.Errorf("%+v", answer)
	}
	_, err = b.Decide(t.Context(), r.ID, allowAlways(path, ro))
	var ended *grants.EndedError
	if !errors.As(err, &ended) || ended.Outcome != grants.OutcomeTimeout {
		t.Errorf("%v", err)
	}
	b.nothingGranted(t)
}

func (b *Bench) nothingGranted(t *testing.T) {
	t.Helper()
	if all, err := b.Grants(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

func withdraws(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	events, err := b.Events(t.Context(), grants.EventsFrom{})
	if err != nil {
		t.Fatal(err)
	}
	check := func(how string, leave func()) {
		r := next(t, events, grants.EventRequestPending).Request
		leave()
		if e := next(t, events, grants.EventRequestEnded); e.Outcome != grants.OutcomeWithdrawn || e.Request.ID != r.ID {
			t.Errorf("%s: %+v", how, e)
		}
		_, err = b.Decide(t.Context(), r.ID, allowAlways(path, ro))
		var ended *grants.EndedError
		if !errors.As(err, &ended) || ended.Outcome != grants.OutcomeWithdrawn {
			t.Errorf("%s: %v", how, err)
		}
	}
	s := b.open(t, grants.SessionSpec{})
	ctx, leave := context.WithCancel(t.Context())
	b.ask(ctx, s.ID, path, ro)
	check("whoever asked left", leave)

	question := b.ask(t.Context(), s.ID, path, ro)
	check("the session ended", s.Close)
	if answer := question.wait(t); answer.Outcome != grants.OutcomeWithdrawn {
		t.Errorf("%+v", answer)
	}
	if _, err := b.Ask(t.Context(), s.ID, grants.Asking{Path: path, Access: ro}); err == nil {
		t.Error("a session that ended asks")
	}
	b.nothingGranted(t)
}

func limits(t *testing.T, start starter) {
	b := start(t, Limits{MaxPending: 3, AskEvery: time.Hour})
	s, other := b.open(t, grants.SessionSpec{}), b.open(t, grants.SessionSpec{Agent: "other"})
	busy := func(session, path string) {
		t.Helper()
		_, err := b.Ask(t.Context(), session, grants.Asking{Path: path, Access: ro})
		var busy *grants.BusyError
		if !errors.As(err, &busy) {
			t.Errorf("%v", err)
		}
	}
	for i := range 3 {
		b.ask(t.Context(), s.ID, fmt.Sprint("~/file", i), ro)
	}
	list := b.pending(t, 3)
	busy(s.ID, "~/file4")
	b.ask(t.Context(), other.ID, "~/file", ro)
	b.pending(t, 4)
	for _, r := range list {
		b.decide(t, r.ID, grants.Decision{})
	}
	busy(s.ID, "~/file5") // three in the first hour
	if answer := b.must(t, s.ID, list[0].RequestedPath, ro); answer.Outcome != grants.OutcomeDenied {
		t.Errorf("%+v", answer)
	}
	// What needs no person counts as well, and so does what cannot be meant.
	_, err := b.Ask(t.Context(), s.ID, grants.Asking{Path: "relative", Access: ro})
	for asked := 7; err == nil || !errors.As(err, new(*grants.BusyError)); asked++ {
		if asked > 24 {
			t.Fatalf("%d questions were answered", asked)
		}
		_, err = b.Ask(t.Context(), s.ID, grants.Asking{Path: "/proc/1", Access: ro})
	}
	busy(s.ID, list[0].RequestedPath)
	busy(s.ID, "relative")
	if answer := b.must(t, other.ID, "/proc/1", ro); answer.Outcome != grants.OutcomeNever {
		t.Errorf("another agent: %+v", answer)
	}
}

func fills(t *testing.T, start starter) {
	b := start(t, Limits{MaxPending: 3, AskEvery: time.Nanosecond})
	sessions := []*grants.Session{b.open(t, grants.SessionSpec{}), b.open(t, grants.SessionSpec{})}
	for i := range 3 {
		b.ask(t.Context(), sessions[i%2].ID, fmt.Sprint("~/file", i), ro)
	}
	list := b.pending(t, 3)
	var busy *grants.BusyError
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if _, err := b.Ask(ctx, sessions[1].ID, grants.Asking{Path: "~/more", Access: ro}); !errors.As(err, &busy) {
		t.Errorf("%v", err)
	}
	b.decide(t, list[0].ID, grants.Decision{})
	b.ask(t.Context(), sessions[1].ID, "~/more", ro)
	b.pending(t, 3)
}

func refuses(t *testing.T, start starter) {
	b := start(t, Limits{})
	os.Mkdir(b.Home+"/work", 0o700)
	os.Symlink("/proc/self", b.Home+"/work/link")
	s := b.open(t, grants.SessionSpec{Shown: []grants.Shown{{Path: b.Home + "/work", Access: rw}}})
	for _, path := range []string{"/", "/proc/1/environ", "/sys", "/dev/mem", "/run/user", "~/work/link/environ", b.State, b.State + "/grants.db"} {
		if answer := b.must(t, s.ID, path, ro); answer.Granted || answer.Outcome != grants.OutcomeNever || answer.Reason == "" {
			t.Errorf("%s: %+v", path, answer)
		}
	}
	b.pending(t, 0)
}

func invalid(t *testing.T, start starter) {
	b := start(t, Limits{})
	s := b.open(t, grants.SessionSpec{})
	for _, a := range []grants.Asking{
		{Path: "", Access: ro}, {Path: "relative", Access: ro}, {Path: "~root", Access: ro}, {Path: "/a\x00", Access: ro},
		{Path: "/a", Access: ro, Reason: strings.Repeat("x", grants.MaxReason+1)}, {Path: "/" + strings.Repeat("x", 5000), Access: ro},
	} {
		_, err := b.Ask(t.Context(), s.ID, a)
		var path *profile.PathError
		var field *grants.InvalidError
		if !errors.As(err, &path) && !errors.As(err, &field) {
			t.Errorf("%.40q: %v", a.Path, err)
		}
	}
	var unknown *grants.UnknownError
	if _, err := b.Ask(t.Context(), "nobody", grants.Asking{Path: "/a", Access: ro}); !errors.As(err, &unknown) {
		t.Errorf("%v", err)
	}
	if _, err := b.Decide(t.Context(), "nothing", grants.Decision{}); !errors.As(err, &unknown) {
		t.Errorf("%v", err)
	}
	if _, err := b.Revoke(t.Context(), "nothing"); !errors.As(err, &unknown) {
		t.Errorf("%v", err)
	}
	for _, spec := range []grants.SessionSpec{{Agent: "../x", Workspace: "/w"}, {Agent: "a", Workspace: "w"}, {Agent: "a", Workspace: "/w", Shown: []grants.Shown{{Path: "x", Access: ro}}}} {
		var field *grants.InvalidError
		if _, err := b.Open(t.Context(), spec); !errors.As(err, &field) {
			t.Errorf("%+v: %v", spec, err)
		}
	}
}

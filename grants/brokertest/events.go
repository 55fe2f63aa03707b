package brokertest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
)

func live(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	s := b.open(t, grants.SessionSpec{Live: true})
	for _, problem := range []string{"", "no mount: too many"} {
		question := b.ask(t.Context(), s.ID, path, ro)
		b.decide(t, b.pending(t, 1)[0].ID, allowOnce(path, ro))
		e := next(t, s.Events, grants.EventGranted)
		select {
		case answer := <-question.answer:
			t.Fatalf("told before it is there: %+v", answer)
		default:
		}
		if err := b.Applied(t.Context(), s.ID, grants.Applied{Grant: e.Grant.ID, Problem: problem}); err != nil {
			t.Fatal(err)
		}
		answer := question.wait(t)
		if !answer.Granted || (answer.Visible == grants.VisibleNow) != (problem == "") || answer.Reason != problem {
			t.Errorf("%+v", answer)
		}
		b.Revoke(t.Context(), e.Grant.ID)
	}
}

func listens(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	ctx, leave := context.WithCancel(t.Context())
	events, err := b.Events(ctx, grants.EventsFrom{})
	if err != nil {
		t.Fatal(err)
	}
	s := b.open(t, grants.SessionSpec{})
	answer := b.granted(t, s, path, allowAlways(path, ro))
	b.Revoke(t.Context(), answer.GrantID)
	for _, kind := range []grants.EventKind{grants.EventRequestPending, grants.EventRequestEnded, grants.EventGranted, grants.EventRevoked} {
		select {
		case e := <-events:
			if e.Kind != kind || e.AtUnixMs == 0 {
				t.Errorf("%+v, want %s", e, kind)
			}
		case <-time.After(timeout):
			t.Fatalf("no %s", kind)
		}
	}
	leave()
	for deadline := time.After(timeout); ; {
		select {
		case _, ok := <-events:
			if !ok {
				return
			}
		case <-deadline:
			t.Fatal("the events do not end")
		}
	}
}

func replays(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	first, other := b.open(t, grants.SessionSpec{}), b.open(t, grants.SessionSpec{})
	b.granted(t, first, path, grants.Decision{Kind: grants.AllowOnce, Path: path, Access: ro})
	b.granted(t, other, path, grants.Decision{Kind: grants.AllowOnce, Path: path, Access: ro})
	read := func(from grants.EventsFrom) (kinds string, ids []int64) {
		t.Helper()
		from.Kept, from.Ends = true, true
		events, err := b.Events(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		for e := range events {
			kinds += string(e.Kind) + " "
			ids = append(ids, e.ID)
		}
		return kinds, ids
	}
	const one = "request_pending request_ended path_granted "
	all, ids := read(grants.EventsFrom{})
	if all != one+one || !slices.IsSorted(ids) {
		t.Errorf("%s%v", all, ids)
	}
	if kinds, _ := read(grants.EventsFrom{Session: other.ID}); kinds != one {
		t.Errorf("of one session: %s", kinds)
	}
	if kinds, _ := read(grants.EventsFrom{After: ids[2]}); kinds != one {
		t.Errorf("behind the third: %s", kinds)
	}
	if kinds, _ := read(grants.EventsFrom{After: ids[5]}); kinds != "" {
		t.Errorf("behind the last: %s", kinds)
	}
	if kinds, _ := read(grants.EventsFrom{After: 1}); kinds != string(grants.EventsLost)+" "+one+one {
		t.Errorf("behind one of an earlier broker: %s", kinds)
	}
	events, err := b.Events(t.Context(), grants.EventsFrom{Kept: true, After: ids[4]})
	if err != nil {
		t.Fatal(err)
	}
	next(t, events, grants.EventGranted)
	b.Revoke(t.Context(), (<-other.Events).Grant.ID)
	next(t, events, grants.EventRevoked)
}

func keeps(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	s := b.open(t, grants.SessionSpec{})
	question := b.ask(t.Context(), s.ID, path, rw)
	b.decide(t, b.pending(t, 1)[0].ID, grants.Decision{Kind: grants.Deny, Reason: "no"})
	question.wait(t)
	answer := b.granted(t, s, path, allowAlways(path, ro))
	list, err := b.Log(t.Context(), 10)
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	if r := list[0]; r.Outcome != grants.OutcomeGranted || r.GrantID != answer.GrantID || r.Decision.Kind != grants.AllowAlways || r.DecidedBy == "" || r.EndedAtUnixMs == 0 {
		t.Errorf("%+v", r)
	}
	if r := list[1]; r.Outcome != grants.OutcomeDenied || r.Decision.Reason != "no" || r.RequestedAccess != rw {
		t.Errorf("%+v", r)
	}
	if list, err := b.Log(t.Context(), 1); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

package brokertest

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
)

// granted asks and has it allowed.
func (b *Bench) granted(t *testing.T, s *grants.Session, path string, d grants.Decision) grants.Answer {
	t.Helper()
	question := b.ask(t.Context(), s.ID, path, d.Access)
	b.decide(t, b.pending(t, 1)[0].ID, d)
	answer := question.wait(t)
	if !answer.Granted {
		t.Fatalf("%+v", answer)
	}
	return answer
}

func once(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "dir/file")
	s, other := b.open(t, grants.SessionSpec{}), b.open(t, grants.SessionSpec{})
	b.granted(t, s, b.Home+"/dir", allowOnce(b.Home+"/dir", rw))
	if answer := b.must(t, s.ID, path, rw); answer.Scope != grants.ScopeAlready {
		t.Errorf("%+v", answer)
	}
	if list, notices := grants.Current(b.State, "main", time.Now()); len(list)+len(notices) != 0 {
		t.Errorf("stored: %+v %+v", list, notices)
	}
	b.ask(t.Context(), other.ID, path, ro)
	b.pending(t, 1)
	if all, err := b.Grants(t.Context()); err != nil || len(all) != 1 || all[0].Session != s.ID {
		t.Errorf("%+v, %v", all, err)
	}
	events, _ := b.Events(t.Context(), grants.EventsFrom{})
	s.Close()
	next(t, events, grants.EventRevoked)
	b.nothingGranted(t)
}

func always(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "dir/file")
	s := b.open(t, grants.SessionSpec{})
	answer := b.granted(t, s, b.Home+"/dir", allowAlways(b.Home+"/dir", ro))
	// It was stored before it was delivered.
	list, notices := grants.Current(b.State, "main", time.Now())
	if len(list) != 1 || len(notices) != 0 || list[0].Path != b.Home+"/dir" || list[0].Access != ro {
		t.Fatalf("%+v %+v", list, notices)
	}
	s.Close()
	next := b.open(t, grants.SessionSpec{})
	if a := b.must(t, next.ID, path, ro); a.Scope != grants.ScopeAlready {
		t.Errorf("%+v", a)
	}
	b.ask(t.Context(), next.ID, path, rw)
	b.pending(t, 1)
	other := b.open(t, grants.SessionSpec{Agent: "other"})
	b.ask(t.Context(), other.ID, path, ro)
	b.pending(t, 2)
	all, err := b.Grants(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != answer.GrantID || all[0].Uses != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	o := all[0].Origin
	if o.Kind != profile.OriginApproval || o.Reason != "for the test" || o.RequestedPath != b.Home+"/dir" || o.RequestedAccess != ro || o.DecidedBy == "" || o.Via != "terminal" || o.GrantedAtUnixMs == 0 {
		t.Errorf("%+v", o)
	}
}

func revokes(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "dir/file")
	s := b.open(t, grants.SessionSpec{})
	for _, d := range []grants.Decision{allowOnce(path, ro), allowAlways(path, ro)} {
		answer := b.granted(t, s, path, d)
		if g, err := b.Revoke(t.Context(), answer.GrantID); err != nil || g.Path != path {
			t.Errorf("%+v, %v", g, err)
		}
		if e := next(t, s.Events, grants.EventRevoked); e.Grant.ID != answer.GrantID {
			t.Errorf("%+v", e)
		}
		b.nothingGranted(t)
		if list, notices := grants.Current(b.State, "main", time.Now()); len(list)+len(notices) != 0 {
			t.Errorf("stored: %+v %+v", list, notices)
		}
		if _, err := b.Revoke(t.Context(), answer.GrantID); err == nil {
			t.Error("revoked twice")
		}
	}
}

func expires(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	s := b.open(t, grants.SessionSpec{})
	d := allowAlways(path, ro)
	d.ExpiresIn = grants.Duration(time.Second)
	answer := b.granted(t, s, path, d)
	if answer.ExpiresAt == 0 {
		t.Errorf("%+v", answer)
	}
	if e := next(t, s.Events, grants.EventExpired); e.Grant.ID != answer.GrantID {
		t.Errorf("%+v", e)
	}
	b.nothingGranted(t)
	b.ask(t.Context(), s.ID, path, ro)
	b.pending(t, 1)
}

func adds(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	g, err := b.Add(t.Context(), grants.NewGrant{Agent: "main", Path: "~/file", Access: ro, Via: "terminal"})
	if err != nil || g.Path != path || g.Origin.Kind != profile.OriginManual || g.ID == "" {
		t.Fatalf("%+v, %v", g, err)
	}
	if list, _ := grants.Current(b.State, "main", time.Now()); len(list) != 1 {
		t.Errorf("%+v", list)
	}
	var never *grants.NeverError
	if _, err := b.Add(t.Context(), grants.NewGrant{Agent: "main", Path: "/proc", Access: ro}); !errors.As(err, &never) {
		t.Errorf("%v", err)
	}
	for _, n := range []grants.NewGrant{{Agent: "..", Path: "~/file", Access: ro}, {Agent: "main", Path: "file", Access: ro}, {Agent: "main", Path: "~/file", Access: ro, ExpiresIn: -1}} {
		if _, err := b.Add(t.Context(), n); err == nil {
			t.Errorf("added %+v", n)
		}
	}
}

func narrowed(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	s := b.open(t, grants.SessionSpec{})
	answer := b.granted(t, s, path, allowAlways(path, rw))
	if g, err := b.Narrow(t.Context(), answer.GrantID); err != nil || g.Access != ro {
		t.Fatalf("%+v, %v", g, err)
	}
	if e := next(t, s.Events, grants.EventNarrowed); e.Grant.Access != ro {
		t.Errorf("%+v", e)
	}
	if list, _ := grants.Current(b.State, "main", time.Now()); len(list) != 1 || list[0].Access != ro {
		t.Errorf("%+v", list)
	}
	if _, err := b.Narrow(t.Context(), answer.GrantID); err == nil {
		t.Error("narrowed twice")
	}
	b.ask(t.Context(), s.ID, path, rw)
	b.pending(t, 1)
}

func changes(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "dir/file")
	other := b.write(t, "other")
	s := b.open(t, grants.SessionSpec{})
	question := b.ask(t.Context(), s.ID, path, ro)
	id := b.pending(t, 1)[0].ID
	os.Remove(path)
	os.Symlink(other, path)
	_, err := b.Decide(t.Context(), id, allowAlways(path, ro))
	var changed *grants.ChangedError
	if !errors.As(err, &changed) || changed.Now.Resolved != other {
		t.Fatalf("%v", err)
	}
	b.nothingGranted(t)
	r := b.pending(t, 1)[0]
	if r.ResolvedPath != other || len(r.Warnings) == 0 || r.Warnings[len(r.Warnings)-1].Kind != grants.WarnChanged {
		t.Errorf("%+v", r)
	}
	b.decide(t, id, allowAlways(path, ro))
	if answer := question.wait(t); !answer.Granted {
		t.Errorf("%+v", answer)
	}
	if all, _ := b.Grants(t.Context()); len(all) != 1 || all[0].Resolved != other || all[0].Path != path {
		t.Errorf("%+v", all)
	}
}

func confirms(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "dir/file")
	other := b.write(t, "other")
	s := b.open(t, grants.SessionSpec{})
	answer := b.granted(t, s, path, allowAlways(path, ro))
	os.Remove(path)
	os.Symlink(other, path)
	// A session that asks for the other path is not covered by the grant, nor one that asks by the
	// name.
	b.ask(t.Context(), s.ID, path, ro)
	b.ask(t.Context(), s.ID, other, ro)
	b.pending(t, 2)
	all, err := b.Grants(t.Context())
	if err != nil || len(all) != 1 || !strings.Contains(all[0].Stale, other) {
		t.Fatalf("%+v, %v", all, err)
	}
	if e := next(t, s.Events, grants.EventStale); e.Grant.ID != answer.GrantID {
		t.Errorf("%+v", e)
	}
	if list, notices := grants.Current(b.State, "main", time.Now()); len(list) != 0 || len(notices) != 1 {
		t.Errorf("%+v %+v", list, notices)
	}
	var changed *grants.ChangedError
	if _, err := b.Confirm(t.Context(), answer.GrantID, path); !errors.As(err, &changed) || changed.Now.Resolved != other {
		t.Errorf("%v", err)
	}
	if g, err := b.Confirm(t.Context(), answer.GrantID, other); err != nil || g.Stale != "" || g.Resolved != other {
		t.Errorf("%+v, %v", g, err)
	}
	if list, notices := grants.Current(b.State, "main", time.Now()); len(list) != 1 || len(notices) != 0 {
		t.Errorf("%+v %+v", list, notices)
	}
}

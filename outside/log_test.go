package outside

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
)

// What a person was asked about is listed, whatever it was about, also by the next gateway; what
// ran or was refused without a person is not.
func TestTheLogHasAllThatAPersonWasAskedAbout(t *testing.T) {
	b := newBench(t, Options{})
	b.options.State = b.home + "/state"
	b.begin()
	main := b.session("main")
	decide := func(d grants.Decision) {
		t.Helper()
		for now := time.Now().UnixMilli(); time.Now().UnixMilli() == now; runtime.Gosched() { // the list is by milliseconds
		}
		r := b.waiting(1)[0]
		if r.Outside != nil && d.Kind != grants.Deny {
			d.Shown = r.Outside.Shown
		}
		if _, err := b.Decide(t.Context(), r.ID, d); err != nil {
			t.Fatal(err)
		}
	}
	domain := b.askDomain(t.Context(), main, "example.org:443")
	decide(grants.Decision{Kind: grants.AllowAlways, Scope: grants.ScopeAlways, Domain: "example.org"})
	<-domain
	answered := make(chan error, 1)
	go func() {
		_, err := b.AskPerson(t.Context(), main, grants.PersonQuestion{Text: "which one?"})
		answered <- err
	}()
	decide(grants.Decision{Kind: grants.GiveAnswer, Answer: "that"})
	<-answered
	for _, argv := range [][]string{{"docker", "compose", "ps"}, {"docker", "compose", "rm"}} { // by the lists
		if _, err := b.RunOutside(t.Context(), main, true, words(argv...)); err != nil {
			t.Fatal(err)
		}
	}
	once := b.ask(t.Context(), main, true, words("docker", "compose", "up"))
	decide(grants.Decision{Kind: grants.AllowOnce})
	<-once
	path := make(chan error, 1)
	go func() {
		_, err := b.Ask(t.Context(), main, grants.Asking{Path: b.home + "/work", Access: profile.ReadOnly})
		path <- err
	}()
	decide(grants.Decision{Kind: grants.Deny})
	<-path
	refused := b.ask(t.Context(), main, true, words("docker", "compose", "down"))
	decide(grants.Decision{Kind: grants.Deny, Reason: "no"})
	<-refused
	ctx, leave := context.WithCancel(t.Context())
	left := b.ask(ctx, main, true, words("docker", "compose", "down", "-v"))
	b.waiting(1)
	leave()
	<-left
	want := []string{"docker compose down -v withdrawn <nil>", "docker compose down denied tester", "path denied tester", "docker compose up granted tester",
		"which one? answered tester that", "example.org:443 granted tester example.org"}
	for range 2 {
		list, err := b.Log(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range list {
			if r.Session != main || r.Agent != "main" || r.AskedAtUnixMs == 0 || r.EndedAtUnixMs < r.AskedAtUnixMs || r.Warnings == nil {
				t.Errorf("%+v", r)
			}
			by := r.DecidedBy
			if r.Decision == nil {
				by = "<nil>"
			}
			switch {
			case r.Domain != nil:
				got = append(got, fmt.Sprint(r.Domain.To, " ", r.Outcome, " ", by, " ", r.Decision.Domain))
			case r.Question != nil:
				got = append(got, fmt.Sprint(r.Question.Text, " ", r.Outcome, " ", by, " ", r.Decision.Answer))
			case r.Outside != nil:
				got = append(got, fmt.Sprint(r.Outside.Text, " ", r.Outcome, " ", by))
			default:
				got = append(got, fmt.Sprint("path ", r.Outcome, " ", by))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
		if list, err := b.Log(t.Context(), 2); err != nil || len(list) != 2 || list[1].Outside.Text != "docker compose down" {
			t.Errorf("%+v, %v", list, err)
		}
		b.begin()
	}
}

package outside

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
)

// told are the texts of events about runs that are kept.
func (b *bench) told(from grants.EventsFrom) (texts []string) {
	b.Helper()
	from.Kept, from.Ends = true, true
	events, err := b.Events(b.Context(), from)
	if err != nil {
		b.Fatal(err)
	}
	for e := range events {
		if e.Run != nil {
			texts = append(texts, e.Run.Text)
		}
	}
	return texts
}

// What becomes of a command is told in the words that its session's agent will read, under the id
// that its request had.
func TestWhatBecomesOfACommandIsTold(t *testing.T) {
	b := newBench(t, Options{Notice: time.Millisecond, Timeout: 30 * time.Second})
	s := b.session("main")
	const finished = "Exec finished (gateway id=ID, session=SESSION, code 3)\nout\\u{FFFD}"
	withdrawn, leave := context.WithCancel(t.Context())
	for name, c := range map[string]struct {
		ctx  context.Context
		ask  grants.Command
		do   func(id string) // with what waits
		want []string
	}{
		"by the list": {t.Context(), words("echo", "x\x1b"), nil, []string{`Exec started (gateway id=ID): echo 'x\u{1B}'`, finished}},
		"by neither":  {t.Context(), words("docker", "rm"), nil, []string{"Exec denied (gateway id=ID, no-pattern): docker rm"}},
		"allowed": {t.Context(), words("docker", "compose", "up"), func(id string) {
			b.Decide(t.Context(), id, grants.Decision{Kind: grants.AllowOnce, Shown: b.waiting(1)[0].Outside.Shown})
		}, []string{"Exec started (gateway id=ID): docker compose up", finished}},
		"denied": {t.Context(), words("docker", "compose", "up"), func(id string) { b.Decide(t.Context(), id, grants.Decision{}) },
			[]string{"Exec denied (gateway id=ID, user-denied): docker compose up"}},
		"nobody waits": {withdrawn, words("docker", "compose", "up"), func(string) { leave() }, []string{"Exec denied (gateway id=ID, withdrawn): docker compose up"}},
	} {
		last := b.last()
		answered := b.ask(c.ctx, s, true, c.ask)
		waited := ""
		if c.do != nil {
			waited = b.waiting(1)[0].ID
			c.do(waited)
		}
		a := <-answered
		id := a.RequestID
		if id == "" {
			id = waited
		}
		got := b.told(grants.EventsFrom{Session: s, After: last})
		got = slices.DeleteFunc(got, func(text string) bool { return strings.HasPrefix(text, "Exec running") })
		for i := range got {
			got[i] = strings.ReplaceAll(strings.ReplaceAll(got[i], id, "ID"), s, "SESSION")
		}
		if !slices.Equal(got, c.want) || waited != "" && id != waited {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	// A long one is told of while it runs.
	b.hold = make(chan struct{})
	last := b.last()
	answered := b.ask(t.Context(), s, true, words("echo", "long"))
	for !slices.ContainsFunc(b.told(grants.EventsFrom{After: last}), func(text string) bool { return strings.HasPrefix(text, "Exec running (gateway id=") }) {
		runtime.Gosched()
	}
	close(b.hold)
	<-answered
	if got := b.told(grants.EventsFrom{After: last}); len(got) != 3 || !strings.HasPrefix(got[2], "Exec finished") {
		t.Errorf("%q", got)
	}
	if other := b.told(grants.EventsFrom{Session: b.session("main")}); len(other) != 0 {
		t.Errorf("another session hears %q", other)
	}
	// Who fills the list fills their own.
	for i := range 2000 {
		b.Publish(grants.Event{Kind: grants.EventExecDenied, Session: "noisy", Run: &grants.Run{ID: fmt.Sprint(i), Command: strings.Repeat("x", 400)}})
	}
	if got := b.told(grants.EventsFrom{Session: s}); len(got) == 0 {
		t.Error("a noisy session takes the others' place")
	}
	if n := len(b.told(grants.EventsFrom{Session: "noisy"})); n < 100 || n > 1000 {
		t.Errorf("%d are kept", n)
	}
}

// last is the number of the last event that is kept.
func (b *bench) last() (id int64) {
	b.Helper()
	b.Publish(grants.Event{Kind: grants.EventNotice})
	events, err := b.Events(b.Context(), grants.EventsFrom{Kept: true, Ends: true})
	if err != nil {
		b.Fatal(err)
	}
	for e := range events {
		id = e.ID
	}
	return id
}

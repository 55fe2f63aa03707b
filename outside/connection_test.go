package outside

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/grants"
)

// What a session's network does is on record with the rule that decided, and who connects
// everywhere only makes numbers grow.
func TestWhatANetworkDoesIsOnRecord(t *testing.T) {
	b := newBench(t, Options{})
	main, other := b.session("main"), b.session("other")
	seen := []grants.Connection{
		{To: "a.example:443", Allowed: true, Rule: "*.example", Count: 3},
		{To: "d.example:443", Rule: "d.example", Why: "the rule d.example denies it", Count: 1},
		{To: "x.example:80\x1b" + strings.Repeat("x", 1000), Why: "no rule allows it", Count: 1},
	}
	if err := b.Observe(t.Context(), main, grants.Connections{Connections: seen, More: 7}); err != nil {
		t.Fatal(err)
	}
	var got []string
	lines := func() (list []line) {
		for _, l := range b.all() {
			if strings.HasPrefix(l.Event, "network_") {
				list = append(list, l)
			}
		}
		return list
	}
	for _, l := range lines() {
		if l.Agent != "main" || l.Session != main || len(l.Domain) > 2*maxBrief {
			t.Errorf("%+v", l)
		}
		domain, _, _ := strings.Cut(l.Domain, "\x1b")
		got = append(got, fmt.Sprint(l.Event, " ", domain, " ", l.Rule, " ", l.Count, " ", l.Reason))
	}
	want := "network_allowed a.example:443 *.example 3 |network_refused d.example:443 d.example 1 the rule d.example denies it|network_refused x.example:80  1 no rule allows it|network_more   7 "
	if strings.Join(got, "|") != want {
		t.Errorf("%q", got)
	}
	for range 10 {
		many := make([]grants.Connection, grants.MaxConnections)
		for i := range many {
			many[i] = grants.Connection{To: fmt.Sprint(i, ".example:1"), Count: 2}
		}
		if err := b.Observe(t.Context(), main, grants.Connections{Connections: many}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(lines()); n < connectionBurst || n > connectionBurst+10 {
		t.Errorf("%d lines", n)
	}
	b.still(func() {
		if left := b.Broker.agents["main"].unrecorded; left < 2*(1000-connectionBurst)-20 {
			t.Errorf("%d are counted", left)
		}
	})
	// Another agent has a share of its own, and what cannot be meant is refused.
	if err := b.Observe(t.Context(), other, grants.Connections{Connections: seen[:1]}); err != nil || lines()[len(lines())-1].Agent != "other" {
		t.Errorf("%v", err)
	}
	for _, o := range []grants.Connections{{More: -1}, {Connections: make([]grants.Connection, grants.MaxConnections+1)}} {
		if err := b.Observe(t.Context(), main, o); !errors.As(err, new(*grants.InvalidError)) {
			t.Errorf("%v", err)
		}
	}
	if err := b.Observe(t.Context(), "", grants.Connections{}); err == nil {
		t.Error("without a session")
	}
	if err := b.Observe(t.Context(), "none", grants.Connections{}); !errors.As(err, new(*grants.UnknownError)) {
		t.Errorf("%v", err)
	}
}

// still does something while the broker does nothing.
func (b *bench) still(do func()) {
	b.Broker.mu.Lock()
	defer b.Broker.mu.Unlock()
	do()
}

package broker

import (
	"fmt"
	"testing"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/store"
	"github.com/clairun/clai-sandbox/profile"
)

// crowded is a broker with ten thousand grants of five hundred agents.
func crowded(b *testing.B) *bench {
	br := newBench(b, Options{MaxPending: 1 << 20, AskEvery: 1})
	var list []grants.Grant
	for agent := range 500 {
		for n := range 20 {
			path := fmt.Sprintf("%s/projects/%d/some/directory/%d", br.home, agent, n)
			list = append(list, grants.Grant{ID: fmt.Sprint("g-", agent, "-", n), Agent: fmt.Sprint("agent-", agent), Path: path, Resolved: path, Access: profile.ReadOnly,
				Scope: grants.ScopeAlways, Origin: grants.Origin{Kind: profile.OriginApproval, RequestedPath: path, RequestedAccess: profile.ReadOnly}})
		}
	}
	if err := br.store.Apply(store.Change{Put: list}); err != nil {
		b.Fatal(err)
	}
	for _, g := range list {
		br.granted.put(g)
	}
	return br
}

func BenchmarkCoverCheckAmongTenThousand(b *testing.B) {
	br := crowded(b)
	s := br.session(b, "agent-7")
	for b.Loop() {
		answer, err := br.Ask(b.Context(), s.ID, grants.Asking{Path: "~/projects/7/some/directory/3/src/main.go", Access: profile.ReadOnly})
		if err != nil || answer.Scope != grants.ScopeAlready {
			b.Fatal(answer, err)
		}
	}
}

func BenchmarkListTenThousand(b *testing.B) {
	br := crowded(b)
	for b.Loop() {
		if all, err := br.Grants(b.Context()); err != nil || len(all) != 10000 {
			b.Fatal(len(all), err)
		}
	}
}

func benchmarkDecide(b *testing.B, br *bench, kind grants.DecisionKind, scope grants.Scope) {
	s := br.session(b, "main")
	n := 0
	for b.Loop() {
		n++
		path := fmt.Sprint("~/file", n)
		answered := make(chan grants.Answer)
		go func() {
			answer, _ := br.Ask(b.Context(), s.ID, grants.Asking{Path: path, Access: profile.ReadOnly})
			answered <- answer
		}()
		r := br.pendingOf(b, 1)[0]
		if _, err := br.Decide(b.Context(), r.ID, grants.Decision{Kind: kind, Path: path, Access: profile.ReadOnly, Scope: scope}); err != nil {
			b.Fatal(err)
		}
		if !(<-answered).Granted {
			b.Fatal("not granted")
		}
		for len(s.Events) > 0 {
			<-s.Events
		}
	}
}

func BenchmarkAskAndAllowOnce(b *testing.B) {
	benchmarkDecide(b, newBench(b, Options{MaxPending: 1 << 20, AskEvery: 1}), grants.AllowOnce, "")
}

func BenchmarkAskAndAllowAlways(b *testing.B) {
	benchmarkDecide(b, newBench(b, Options{MaxPending: 1 << 20, AskEvery: 1}), grants.AllowAlways, grants.ScopeAlways)
}

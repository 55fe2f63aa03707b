package session

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
)

// A destination is told of soon, its number at the end, and what is more than so many is only
// counted.
func TestConnectionsAreToldOfOnceAndThenCounted(t *testing.T) {
	told := make(chan grants.Connections, 100)
	a := account{tell: func(_ context.Context, c grants.Connections) error { told <- c; return nil }}
	for range 3 {
		a.note("a.example:443", true, "*.example", "")
	}
	a.note("a.example:443", false, "", "no rule allows it")
	count := map[string]int64{}
	take := func(c grants.Connections) {
		if len(c.Connections) > grants.MaxConnections {
			t.Errorf("%d at once", len(c.Connections))
		}
		for _, one := range c.Connections {
			count[fmt.Sprint(one.To, one.Allowed)] += one.Count
		}
		count["more"] += c.More
	}
	select {
	case c := <-told:
		take(c)
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is told while the session runs")
	}
	if len(count) != 3 || count["a.example:443true"] != 3 || count["a.example:443false"] != 1 {
		t.Errorf("%v", count)
	}
	a.note("a.example:443", true, "*.example", "")
	for i := range maxSeen + 5 {
		a.note(fmt.Sprint(i, ".example:443"), false, "", "no rule allows it")
	}
	a.end()
	close(told)
	for c := range told {
		take(c)
	}
	if count["a.example:443true"] != 4 || count["more"] != 7 || len(count) != maxSeen+1 {
		t.Errorf("%d, %d more, %d destinations", count["a.example:443true"], count["more"], len(count))
	}
}

package session

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
)

// network is a filtered network of a place's, whose names are all served by a proxy upstream, on
// the loopback interface.
type network struct {
	*place
	flowing atomic.Int32  // streams
	streams chan struct{} // something has come or gone
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	if _, err := exec.LookPath("/usr/bin/curl"); err != nil {
		t.Skip("no curl")
	}
	n := &network{place: newPlace(t), streams: make(chan struct{}, 16)}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "reached %s\n", r.Host)
		if r.URL.Path == "/stream" {
			w.(http.Flusher).Flush()
			n.flowing.Add(1)
			n.streams <- struct{}{}
			<-r.Context().Done()
			n.flowing.Add(-1)
			n.streams <- struct{}{}
		}
	}))
	t.Cleanup(upstream.Close)
	d := n.caller.Directories()
	if err := os.WriteFile(filepath.Join(d.Config, "config.json"), []byte(`{"defaults": {"execution": {"sandbox": {"network": "filtered", "allowedDomains": ["known.example"], "upstreamProxy": "`+upstream.URL+`"}}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if n.config, err = profile.Load(d); err != nil {
		t.Fatal(err)
	}
	return n
}

// waits returns what waits, when it is so much.
func (n *network) waits(count int) (list []grants.Request) {
	n.t.Helper()
	n.until(fmt.Sprintf("%d wait", count), func() bool {
		var err error
		if list, err = n.person.Pending(context.Background()); err != nil {
			n.t.Fatal(err)
		}
		return len(list) == count
	})
	return list
}

func (n *network) decide(r grants.Request, d grants.Decision) grants.Answer {
	n.t.Helper()
	a, err := n.person.Decide(context.Background(), r.ID, d)
	if err != nil {
		n.t.Error(err)
	}
	return a
}

// running runs a script in the background.
func (n *network) running(s *Session, script string) <-chan string {
	said := make(chan string, 1)
	go func() { said <- n.run(s, script) }()
	return said
}

// unasked returns what was said, which has to come without one more question than wait already.
func (n *network) unasked(waiting int, said <-chan string) (got string) {
	n.t.Helper()
	n.until("it is said", func() bool {
		select {
		case got = <-said:
			return true
		default:
		}
		if list, err := n.person.Pending(context.Background()); err != nil || len(list) > waiting {
			n.t.Fatalf("somebody asks: %+v, %v", list, err)
		}
		return false
	})
	return got
}

// asking asks as a connection does.
func (n *network) asking(s *Session, to string) <-chan string {
	n.t.Helper()
	destination, err := profile.ParseDestination(to, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	why := make(chan string, 1)
	go func() { why <- s.askNetwork(n.t.Context(), destination) }()
	return why
}

// held waits until so many connections are held.
func (n *network) held(s *Session, count int) {
	n.t.Helper()
	n.until(fmt.Sprintf("%d are held", count), func() bool {
		s.connections.mu.Lock()
		defer s.connections.mu.Unlock()
		held := 0
		for _, q := range s.connections.asked {
			held += q.waits
		}
		return held == count
	})
}

// A connection waits while a person is asked, once for all that go to the same host, and goes on
// with the answer.
func TestAConnectionWaitsForAPerson(t *testing.T) {
	for _, live := range []bool{true, false} {
		n := newNetwork(t)
		s := n.open(live)
		said := n.running(s, `get() { curl -sS "$@"; }
get http://known.example/
for i in 1 2 3; do get http://asked.example/ & done; wait
get http://asked.example/
get http://asked.example:8080/
get http://no.example/
get http://no.example/`)
		r := n.waits(1)[0]
		if r.Domain == nil || r.Domain.To != "asked.example:80" || r.Session != s.ID() {
			t.Fatalf("%+v", r)
		}
		n.decide(r, grants.Decision{Kind: grants.AllowOnce, Domain: "asked.example:80"})
		// The port is another question: what was allowed was narrow.
		r = n.waits(1)[0]
		if r.Domain.To != "asked.example:8080" {
			t.Fatalf("%+v", r)
		}
		n.decide(r, grants.Decision{Kind: grants.AllowOnce, Domain: "asked.example"})
		n.decide(n.waits(1)[0], grants.Decision{Kind: grants.Deny, Reason: "not\x1b there"})
		no := "clai-sandbox: no.example:80 is refused: no rule allows it, and a person said no: not\\u{1B} there; do not go round it: say what it is needed for, and leave it to the person\n"
		if got, want := n.unasked(0, said), "reached known.example\n"+strings.Repeat("reached asked.example\n", 4)+"reached asked.example:8080\n"+no+strings.TrimSpace(no); got != want {
			t.Errorf("live %v: %s", live, got)
		}
		n.waits(0)
		// The next command of the session has it, and another session has not.
		if got := n.run(s, "curl -sS http://asked.example/"); got != "reached asked.example" {
			t.Error(got)
		}
		other := n.running(n.open(live), "curl -sS http://asked.example/")
		n.decide(n.waits(1)[0], grants.Decision{})
		if got := <-other; strings.Contains(got, "reached") {
			t.Error(got)
		}
	}
}

// What is revoked is gone at once: the connections that nothing else allows are ended, and no
// others.
func TestWhatIsRevokedEndsItsConnections(t *testing.T) {
	n := newNetwork(t)
	s := n.open(false)
	said := n.running(s, `curl -sSN http://known.example/stream >known & curl -sSN http://gone.example/stream; echo "gone $?"; wait $!; echo "known $?"`)
	answer := n.decide(n.waits(1)[0], grants.Decision{Kind: grants.AllowAlways, Domain: "gone.example", Scope: grants.ScopeAlways})
	for n.flowing.Load() < 2 {
		<-n.streams
	}
	// It is stored: a run without a broker has it, too.
	alone, err := Open(context.Background(), Options{Caller: n.caller, Config: n.config})
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	if got := n.run(alone, "curl -sS http://gone.example/"); got != "reached gone.example" {
		t.Error(got)
	}
	taken, err := n.person.Revoke(context.Background(), answer.GrantID)
	if err != nil || len(taken.Unreached) != 0 {
		t.Errorf("%+v, %v", taken, err)
	}
	for n.flowing.Load() > 1 {
		<-n.streams
	}
	if n.flowing.Load() != 1 {
		t.Error("the connection that nothing took away has ended, too")
	}
	s.mu.Lock()
	for r := range s.running {
		r.reach.Set(profile.Domains{}) // ends the rest
	}
	s.mu.Unlock()
	if got := <-said; !strings.HasPrefix(got, "reached gone.example\ncurl: ") || !strings.Contains(got, "\ngone ") || !strings.Contains(got, "known ") {
		t.Error(got)
	}
	if got := n.run(alone, "curl -sS http://gone.example/"); !strings.Contains(got, "with --allow-domain gone.example:80") {
		t.Errorf("the next run: %s", got)
	}
}

// A command that opens many connections is held, and refused, within bounds; what it no longer
// waits for is withdrawn.
func TestConnectionsThatWaitAreBounded(t *testing.T) {
	n := newNetwork(t)
	s := n.open(false)
	var waiting []context.CancelFunc
	ended := make(chan string, maxHeld)
	for i := range maxHeld {
		ctx, leave := context.WithCancel(context.Background())
		waiting = append(waiting, leave)
		to, err := profile.ParseDestination(fmt.Sprintf("n%d.example:443", i/4), 0)
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- s.askNetwork(ctx, to) }()
	}
	n.waits(maxHeld / 4)
	n.held(s, maxHeld)
	if why := n.unasked(maxHeld/4, n.asking(s, "more.example:443")); !strings.Contains(why, "wait for an answer already") {
		t.Error(why)
	}
	for _, leave := range waiting {
		leave()
	}
	for range waiting {
		<-ended
	}
	n.waits(0)
}

// Two connections to one host wait for one question. Its answer is that of both only if it names
// both; what was denied is not asked again.
func TestAnotherPortIsAnotherQuestion(t *testing.T) {
	n := newNetwork(t)
	s := n.open(false)
	for _, c := range []struct {
		decision    grants.Decision // about the first
		first, next string          // why not; of the second, when that is asked for, too, and denied
		asked       bool
	}{
		{grants.Decision{Kind: grants.AllowOnce, Domain: "a.example:80"}, "", "a person said no: not that port", true},
		{grants.Decision{Kind: grants.AllowOnce, Domain: "b.example"}, "", "", false},
		{grants.Decision{Kind: grants.Deny, Reason: "not there"}, "a person said no: not there", "a person said no: not that port", true},
	} {
		name := cmp.Or(strings.TrimSuffix(c.decision.Domain, ":80"), "c.example")
		first := n.asking(s, name+":80")
		n.waits(1)
		next := n.asking(s, name+":81")
		n.held(s, 2)
		n.decide(n.waits(1)[0], c.decision)
		if got := <-first; got != c.first {
			t.Errorf("%s:80: %q", name, got)
		}
		if c.asked {
			n.until("the second is asked for", func() bool {
				select {
				case got := <-next:
					t.Fatalf("%s:81 is not asked for: %q", name, got)
				default:
				}
				list, err := n.person.Pending(context.Background())
				return err == nil && len(list) == 1
			})
			r := n.waits(1)[0]
			if r.Domain.To != name+":81" {
				t.Errorf("%+v", r.Domain)
			}
			n.decide(r, grants.Decision{Kind: grants.Deny, Reason: "not that port"})
		}
		if got := n.unasked(0, next); got != c.next {
			t.Errorf("%s:81: %q", name, got)
		}
		if c.asked { // what was denied is remembered
			if got := n.unasked(0, n.asking(s, name+":81")); got != c.next {
				t.Errorf("%s:81 again: %q", name, got)
			}
		}
	}
}

// Who was told no a thousand times is not asked for more.
func TestAPersonIsNotAskedForEver(t *testing.T) {
	n := newNetwork(t)
	s := n.open(false)
	no := func(to string) string {
		why := n.asking(s, to)
		n.decide(n.waits(1)[0], grants.Decision{Kind: grants.Deny})
		return n.unasked(0, why)
	}
	no("first.example:80")
	s.connections.mu.Lock()
	for i := len(s.connections.denied); i < maxDenied-1; i++ {
		s.connections.denied[profile.Destination{Name: fmt.Sprintf("n%d.example", i), Port: 80}] = "no"
	}
	s.connections.mu.Unlock()
	if got := no("last.example:80"); !strings.HasPrefix(got, "a person said no") {
		t.Error(got)
	}
	if got := n.unasked(0, n.asking(s, "more.example:80")); got != "too much was denied already" {
		t.Error(got)
	}
	if got := n.unasked(0, n.asking(s, "last.example:80")); !strings.HasPrefix(got, "a person said no") {
		t.Error(got)
	}
}

// What was granted until now is no rule any more, also before anything has noticed.
func TestADomainsTimeIsOverWhenItIs(t *testing.T) {
	now := time.Now()
	s := &Session{held: map[string]grants.Grant{
		"a": {ID: "a", Domain: "over.example", ExpiresAtUnixMs: now.UnixMilli()},
		"b": {ID: "b", Domain: "longer.example", ExpiresAtUnixMs: now.Add(time.Hour).UnixMilli()},
		"c": {ID: "c", Domain: "always.example"},
		"d": {ID: "d", Path: "/path"},
	}}
	s.endings.Clock = func() (time.Time, time.Duration) { return now, 0 }
	if got := fmt.Sprint(s.domainRules()); got != "[longer.example always.example]" {
		t.Error(got)
	}
}

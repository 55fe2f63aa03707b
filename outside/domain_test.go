package outside

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
)

type domainResult struct {
	grants.DomainAnswer
	error
}

func (b *bench) askDomain(ctx context.Context, session, to string) <-chan domainResult {
	answered := make(chan domainResult, 1)
	go func() {
		a, err := b.AskDomain(ctx, session, to)
		answered <- domainResult{a, err}
	}()
	return answered
}

func (b *bench) domainList() (list []string) {
	all, err := b.Grants(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for _, g := range all {
		list = append(list, g.Agent+" "+g.Domain+" "+string(g.Scope))
	}
	return list
}

// What can be answered covers what was asked, the narrowest first, and says where anybody could
// have a name.
func TestTheRulesThatAPersonMayAllow(t *testing.T) {
	for to, want := range map[string]string{
		"registry.npmjs.org:443":    "registry.npmjs.org:443 registry.npmjs.org *.npmjs.org *.org!",
		"a.b.example.co.uk:22":      "a.b.example.co.uk:22 a.b.example.co.uk *.b.example.co.uk *.example.co.uk *.co.uk!",
		"me.github.io:443":          "me.github.io:443 me.github.io *.github.io!",
		"host:1":                    "host:1 host",
		"8.8.8.8:53":                "8.8.8.8:53 8.8.8.8",
		"[2606:4700::1111]:443":     "[2606:4700::1111]:443 2606:4700::1111",
		"a.b.c.d.e.f.example.org:1": "a.b.c.d.e.f.example.org:1 a.b.c.d.e.f.example.org *.b.c.d.e.f.example.org *.c.d.e.f.example.org *.d.e.f.example.org *.e.f.example.org",
	} {
		destination, err := profile.ParseDestination(to, 0)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		var last profile.DomainRule
		for i, c := range choices(destination) {
			rule, err := profile.ParseDomainRule(c.Rule)
			if err != nil || !rule.Allows(destination) || i > 0 && !rule.Covers(last) {
				t.Errorf("%s: %s does not follow: %v", to, c.Rule, err)
			}
			word := c.Rule
			if c.Warning != "" {
				word += "!"
			}
			got, last = append(got, word), rule
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v", to, got)
		}
	}
}

// A connection waits in the one list; it is allowed for the session or for always, as far as one of
// the rules that were shown.
func TestAPersonIsAskedAboutAConnection(t *testing.T) {
	b := newBench(t, Options{})
	b.options.State = b.home + "/state"
	b.begin()
	ctx, leave := context.WithCancel(t.Context())
	opened, err := b.Open(ctx, grants.SessionSpec{Agent: "main", Workspace: b.work})
	if err != nil {
		t.Fatal(err)
	}
	answered := b.askDomain(t.Context(), opened.ID, "API.example.org:443")
	r := b.waiting(1)[0]
	if r.Domain == nil || r.Domain.To != "api.example.org:443" || r.Agent != "main" || r.Question != nil || r.Outside != nil {
		t.Fatalf("%+v", r)
	}
	for name, wrong := range map[string]grants.Decision{
		"nothing named":        {Kind: grants.AllowOnce},
		"another name":         {Kind: grants.AllowOnce, Domain: "example.org"},
		"every name":           {Kind: grants.AllowOnce, Domain: "*"},
		"a path":               {Kind: grants.AllowOnce, Domain: "api.example.org", Path: "/"},
		"an answer":            {Kind: grants.GiveAnswer, Answer: "yes"},
		"always without scope": {Kind: grants.AllowAlways, Domain: "api.example.org"},
		"once with a time":     {Kind: grants.AllowOnce, Domain: "api.example.org", ExpiresIn: grants.Duration(time.Hour)},
	} {
		if _, err := b.Decide(t.Context(), r.ID, wrong); !errors.As(err, new(*grants.DecisionError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Another session of the agent asks as well: what is allowed for always answers both.
	other := b.askDomain(t.Context(), b.session("main"), "api.example.org:8443")
	stranger := b.askDomain(t.Context(), b.session("other"), "api.example.org:443")
	b.waiting(3)
	a, err := b.Decide(t.Context(), r.ID, grants.Decision{Kind: grants.AllowAlways, Domain: "api.example.org", Scope: grants.ScopeAlways, Via: "terminal"})
	if err != nil || !a.Granted || a.Domain != "api.example.org" || a.GrantID == "" {
		t.Fatalf("%+v, %v", a, err)
	}
	for _, asked := range []<-chan domainResult{answered, other} {
		if got := <-asked; got.error != nil || got.Outcome != grants.OutcomeGranted || got.Rule != "api.example.org" {
			t.Errorf("%+v", got)
		}
	}
	b.Decide(t.Context(), b.waiting(1)[0].ID, grants.Decision{Kind: grants.Deny, Reason: "not that one"})
	if got := <-stranger; got.Outcome != grants.OutcomeDenied || got.Reason != "not that one" {
		t.Errorf("%+v", got)
	}

	once := b.askDomain(t.Context(), opened.ID, "me.github.io:443")
	told := opened.Events
	if _, err := b.Decide(t.Context(), b.waiting(1)[0].ID, grants.Decision{Kind: grants.AllowOnce, Domain: "*.github.io"}); err != nil {
		t.Fatal(err)
	}
	if got := <-once; got.Rule != "*.github.io" {
		t.Errorf("%+v", got)
	}
	for _, want := range []string{"api.example.org", "*.github.io"} {
		if e := <-told; e.Kind != grants.EventDomainGranted || e.Grant.Domain != want || (e.Grant.Warning == "") == (want == "*.github.io") {
			t.Errorf("%+v", e)
		}
	}
	if got := b.domainList(); !slices.Equal(got, []string{"main *.github.io once", "main api.example.org agent"}) {
		t.Error(got)
	}
	counted := map[string]int{}
	for _, l := range b.events() {
		counted[l.Event]++
	}
	if counted[domainAsked] != 4 || counted[domainDecided] != 3 || counted[domainEnded] != 4 {
		t.Errorf("%v", counted)
	}

	// What was allowed for a session ends with it; what was stored is there for the next gateway,
	// until it is revoked.
	leave()
	for end := time.Now().Add(20 * time.Second); len(b.domainList()) > 1 && time.Now().Before(end); {
		runtime.Gosched()
	}
	if got := b.domainList(); !slices.Equal(got, []string{"main api.example.org agent"}) {
		t.Error(got)
	}
	b.begin()
	if got := b.domainList(); !slices.Equal(got, []string{"main api.example.org agent"}) {
		t.Error(got)
	}
	if list, notices := grants.CurrentDomains(b.options.State, "main", time.Now()); len(list) != 1 || len(notices) != 0 {
		t.Errorf("%v %v", list, notices)
	}
	if list, _ := grants.CurrentDomains(b.options.State, "other", time.Now()); len(list) != 0 {
		t.Errorf("of another agent: %v", list)
	}
	taken, err := b.Revoke(t.Context(), a.GrantID)
	if err != nil || taken.Domain != "api.example.org" || len(b.domainList()) != 0 {
		t.Errorf("%+v, %v", taken, err)
	}
	if list, err := grants.StoredDomains(b.options.State); err != nil || len(list) != 0 {
		t.Errorf("%v %v", list, err)
	}
}

func TestWhatNoAnswerOpensIsNotAsked(t *testing.T) {
	b := newBench(t, Options{MaxPending: 2})
	b.options.State = b.home + "/state"
	b.begin()
	s := b.session("main")
	ctx, leave := context.WithTimeout(t.Context(), 5*time.Second) // what is asked after all is no error, later
	defer leave()
	for _, to := range []string{"", "example.org", "localhost:80", "a.localhost:80", "127.0.0.1:80", "10.0.0.1:443", "169.254.169.254:80", "0x7f.1:80", "[::1]:80", "example.org\x1b:80"} {
		if _, err := b.AskDomain(ctx, s, to); !errors.As(err, new(*grants.InvalidError)) {
			t.Errorf("%s: %v", to, err)
		}
	}
	for _, rule := range []string{"localhost", "*.localhost", "127.0.0.1", "10.0.0.0/8", "10.1.0.0/16", "fe80::1", "http://example.org", "192.168.1.1:80"} {
		if _, err := b.Add(t.Context(), grants.NewGrant{Agent: "main", Domain: rule}); !errors.As(err, new(*grants.InvalidError)) {
			t.Errorf("%s: %v", rule, err)
		}
	}
	if _, err := b.AskDomain(ctx, "", "example.org:443"); err == nil {
		t.Error("nobody asks")
	}
	// How many wait, and how often an agent asks, is bounded as it is for questions in words.
	for range 2 {
		b.askDomain(t.Context(), s, "example.org:443")
	}
	id := b.waiting(2)[0].ID
	if _, err := b.AskDomain(ctx, s, "example.org:443"); !errors.As(err, new(*grants.BusyError)) {
		t.Errorf("%v", err)
	}
	// What waited at a kill is ended by the next gateway.
	b.begin()
	if _, err := b.Decide(t.Context(), id, grants.Decision{Kind: grants.AllowOnce, Domain: "example.org:443"}); !errors.As(err, new(*grants.EndedError)) {
		t.Errorf("%v", err)
	}
	g, err := b.Add(t.Context(), grants.NewGrant{Agent: "main", Domain: "*", Reason: "all"})
	if err != nil || g.Warning == "" || g.Origin.Kind != profile.OriginManual {
		t.Errorf("%+v, %v", g, err)
	}
	narrow, err := b.Add(t.Context(), grants.NewGrant{Agent: "main", Domain: "EXAMPLE.org"})
	again, err2 := b.Add(t.Context(), grants.NewGrant{Agent: "main", Domain: "example.org", ExpiresIn: grants.Duration(time.Hour)})
	if err != nil || err2 != nil || narrow.ID != again.ID || len(b.domainList()) != 2 {
		t.Errorf("%+v %+v %v %v", narrow, again, err, err2)
	}
	if taken, err := b.Revoke(t.Context(), narrow.ID); err != nil || len(taken.Covered) != 1 || taken.Covered[0].ID != g.ID {
		t.Errorf("%+v, %v", taken, err)
	}
	if _, err := b.Narrow(t.Context(), g.ID); !errors.As(err, new(*grants.InvalidError)) {
		t.Error(err)
	}
	if _, err := b.Confirm(t.Context(), g.ID, "/"); !errors.As(err, new(*grants.InvalidError)) {
		t.Error(err)
	}
}

// A gateway that is killed when a decision took effect, and before anybody was told, leaves what
// was decided: whoever decides again hears that.
func TestWhatWasDecidedAtAKillIsToldAsItIs(t *testing.T) {
	always := grants.Decision{Kind: grants.AllowAlways, Domain: "example.org", Scope: grants.ScopeAlways}
	for name, c := range map[string]struct {
		killed func(b *bench, p *pending) error // after this
		want   grants.Outcome
	}{
		"stored": {func(b *bench, p *pending) error { _, err := b.grantDomain(p, always); return err }, grants.OutcomeGranted},
		"not stored": {func(b *bench, p *pending) error {
			return b.recordSynced(p.command, domainDecided, line{Decision: &always, Grant: "dx"})
		}, grants.OutcomeDenied},
		"for the session": {func(b *bench, p *pending) error {
			_, err := b.grantDomain(p, grants.Decision{Kind: grants.AllowOnce, Domain: "example.org"})
			return err
		}, grants.OutcomeDenied},
		"a denial":     {func(b *bench, p *pending) error { return b.Broker.write(p, grants.Decision{Kind: grants.Deny}) }, grants.OutcomeDenied},
		"not decided":  {func(b *bench, p *pending) error { return nil }, grants.OutcomeDenied},
		"of a command": {nil, grants.OutcomeGranted},
	} {
		b := newBench(t, Options{})
		b.options.State = b.home + "/state"
		b.begin()
		ctx, leave := context.WithTimeout(t.Context(), 20*time.Second)
		s := b.session("main")
		if c.killed == nil {
			b.ask(ctx, s, false, words("docker", "ps"))
			c.killed = func(b *bench, p *pending) error { return b.Broker.write(p, grants.Decision{Kind: grants.AllowAlways}) }
		} else {
			b.askDomain(ctx, s, "example.org:443")
		}
		id := b.waiting(1)[0].ID
		b.mu.Lock()
		p := b.pending[id]
		b.mu.Unlock()
		if err := c.killed(b, p); err != nil {
			t.Fatal(err)
		}
		b.begin()
		var ended *grants.EndedError
		if _, err := b.Decide(ctx, id, always); !errors.As(err, &ended) || ended.Outcome != c.want {
			t.Errorf("%s: %v", name, err)
		}
		b.begin()
		closed := 0
		for _, l := range b.events() {
			if l.ID == id && (l.Event == domainEnded && l.Outcome == c.want || l.Event == "command_ended" && l.Status == grants.CommandDenied) {
				closed++
			}
		}
		if closed != 1 {
			t.Errorf("%s: closed %d times: %+v", name, closed, b.events())
		}
		leave()
	}
}

// Under one name a person is asked once, and who asks again is told what was said, also by the next
// gateway.
func TestUnderOneNameAConnectionIsAskedAboutOnce(t *testing.T) {
	b := newBench(t, Options{})
	main := b.session("main")
	named := func(name string) context.Context { return grants.WithRequestID(t.Context(), name) }
	first, second := b.askDomain(named("n1"), main, "a.example.org:443"), b.askDomain(named("n1"), main, "a.example.org:443")
	r := b.waiting(1)[0]
	if _, err := b.Decide(t.Context(), r.ID, grants.Decision{Kind: grants.AllowOnce, Domain: "a.example.org"}); err != nil {
		t.Fatal(err)
	}
	for _, asked := range []<-chan domainResult{first, second, b.askDomain(named("n1"), main, "a.example.org:443")} {
		if got := <-asked; got.error != nil || got.RequestID != r.ID || got.Outcome != grants.OutcomeGranted || got.Rule != "a.example.org" {
			t.Errorf("%+v", got)
		}
	}
	// A command under the same name is another request.
	if a, err := b.RunOutside(named("n1"), main, true, words("docker", "compose", "rm")); err != nil || a.Status != grants.CommandDenied || a.RequestID == r.ID {
		t.Errorf("%+v, %v", a, err)
	}
	// Who leaves and comes back is asked for again.
	ctx, leave := context.WithCancel(named("n2"))
	left := b.askDomain(ctx, main, "b.example.org:443")
	b.waiting(1)
	leave()
	<-left
	b.waiting(0)
	back := b.askDomain(named("n2"), main, "b.example.org:443")
	b.Decide(t.Context(), b.waiting(1)[0].ID, grants.Decision{Kind: grants.Deny, Reason: "no"})
	if got := <-back; got.Outcome != grants.OutcomeDenied {
		t.Errorf("%+v", got)
	}
	b.askDomain(named("n3"), main, "c.example.org:443")
	waits := b.waiting(1)[0].ID
	b.begin() // the gateway was killed
	main = b.session("main")
	for name, want := range map[string]grants.DomainAnswer{
		"n1": {RequestID: r.ID, Outcome: grants.OutcomeGranted, Rule: "a.example.org"},
		"n2": {Outcome: grants.OutcomeDenied, Reason: "no"},
		"n3": {RequestID: waits, Outcome: grants.OutcomeDenied, Reason: reasonRestarted},
	} {
		got := <-b.askDomain(named(name), main, "a.example.org:443")
		if got.error != nil || got.Outcome != want.Outcome || got.Rule != want.Rule || want.RequestID != "" && got.RequestID != want.RequestID || want.Reason != "" && got.Reason != want.Reason {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestAClockThatIsSetBackMakesNoDomainLonger(t *testing.T) {
	var on, back time.Duration
	b := newBench(t, Options{Clock: func() (time.Time, time.Duration) {
		day, up := grants.MachineClock()
		return day.Add(on - back), up + on
	}})
	b.options.State = b.home + "/state"
	b.begin()
	add := func(domain string) {
		t.Helper()
		if _, err := b.Add(t.Context(), grants.NewGrant{Agent: "main", Domain: domain, ExpiresIn: grants.Duration(time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	add("one.example.org")
	b.begin() // what was stored before counts from then on
	add("two.example.org")
	for _, c := range []struct{ on, back time.Duration }{{0, 24 * time.Hour}, {time.Hour - time.Minute, 24 * time.Hour}, {time.Hour, 24 * time.Hour}, {time.Hour, 0}} {
		on, back = c.on, c.back
		if list, want := b.domainList(), c.on < time.Hour; want != (len(list) == 2) || !want && len(list) != 0 {
			t.Errorf("%v on, %v back: %v", c.on, c.back, list)
		}
	}
}

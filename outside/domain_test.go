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

// What can be answered covers what was asked, the narrowest first, and says where anybody could have a name.
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

// A connection waits in the one list; it is allowed for the session or for always, as far as one of the rules that were shown.
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

	// What was allowed for a session ends with it; what was stored is there for the next gateway, until it is revoked.
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
	for _, to := range []string{"", "example.org", "localhost:80", "a.localhost:80", "127.0.0.1:80", "10.0.0.1:443", "169.254.169.254:80", "0x7f.1:80", "[::1]:80", "example.org\x1b:80"} {
		if _, err := b.AskDomain(t.Context(), s, to); !errors.As(err, new(*grants.InvalidError)) {
			t.Errorf("%s: %v", to, err)
		}
	}
	for _, rule := range []string{"localhost", "*.localhost", "127.0.0.1", "10.0.0.0/8", "10.1.0.0/16", "fe80::1", "http://example.org", "192.168.1.1:80"} {
		if _, err := b.Add(t.Context(), grants.NewGrant{Agent: "main", Domain: rule}); !errors.As(err, new(*grants.InvalidError)) {
			t.Errorf("%s: %v", rule, err)
		}
	}
	if _, err := b.AskDomain(t.Context(), "", "example.org:443"); err == nil {
		t.Error("nobody asks")
	}
	// How many wait, and how often an agent asks, is bounded as it is for questions in words.
	for range 2 {
		b.askDomain(t.Context(), s, "example.org:443")
	}
	id := b.waiting(2)[0].ID
	if _, err := b.AskDomain(t.Context(), s, "example.org:443"); !errors.As(err, new(*grants.BusyError)) {
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

package review

import (
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/grants"
)

// A command is shown as it was asked for and as it runs, and is allowed as it was shown, or not.
func TestACommandIsAllowedAsItIsShown(t *testing.T) {
	r := grants.Request{ID: "0123456789abcdef", Agent: "main", Workspace: "/w", AskedAtUnixMs: 1_000_000, ExpiresAtUnixMs: 1_300_000,
		Outside: &grants.CommandRequest{Text: "rm -r \x1b[2J\u202ex", Runs: "/usr/bin/rm -r x", Cwd: "/w", Host: "gateway", Why: "approval-required", Always: []string{"/usr/bin/rm sha256:x"}, Shown: "digest"}}
	d := newDesk(t, r)
	screen := d.screen()
	for _, want := range []string{"run, outside of any sandbox", `rm -r \u{1B}[2J\u{202E}x`, "/usr/bin/rm -r x", "would allow /usr/bin/rm", "approval-required"} {
		if !strings.Contains(screen, want) {
			t.Errorf("no %q in\n%s", want, screen)
		}
	}
	for _, key := range []string{"p", "r", "c"} {
		d.keys(key)
		if len(d.broker.decided) != 0 || d.asking != askNothing {
			t.Errorf("%s: %+v", key, d.broker.decided)
		}
	}
	for key, want := range map[string]grants.Decision{"o": {Kind: grants.AllowOnce, Shown: "digest", Via: via}, "a": {Kind: grants.AllowAlways, Shown: "digest", Via: via}} {
		d := newDesk(t, r)
		d.keys(key)
		if len(d.broker.decided) != 1 || d.broker.decided[0] != want {
			t.Errorf("%s: %+v", key, d.broker.decided)
		}
	}
	once := r
	outside := *r.Outside
	outside.Always = nil
	once.Outside = &outside
	d = newDesk(t, once)
	d.keys("a")
	if len(d.broker.decided) != 0 || !strings.Contains(d.message, "cannot be allowed for always") {
		t.Errorf("%+v, %s", d.broker.decided, d.message)
	}
	// Nobody allows what they do not see the whole of.
	outside.Text = strings.Repeat("x", 100_000)
	d = newDesk(t, once)
	d.keys("o")
	if len(d.broker.decided) != 0 || !strings.Contains(d.message, "too small") {
		t.Errorf("%+v, %s", d.broker.decided, d.message)
	}
}

// A question is answered in words, by the number of a choice where there are some, and by no key
// that allows anything.
func TestAQuestionIsAnswered(t *testing.T) {
	r := grants.Request{ID: "0123456789abcdef", Agent: "main", Workspace: "/w", AskedAtUnixMs: 1_000_000, ExpiresAtUnixMs: 1_300_000,
		Question: &grants.PersonQuestion{Text: "Which\x1b[2J\none?", Choices: []string{"this", "that"}}}
	d := newDesk(t, r)
	screen := d.screen()
	for _, want := range []string{"main asks you", `Which\u{1B}[2J`, "one?", "1         this", "2         that"} {
		if !strings.Contains(strings.NewReplacer(bold, "", plain, "").Replace(screen), want) {
			t.Errorf("no %q in\n%s", want, screen)
		}
	}
	for _, key := range []string{"a", "p", "r", "c"} {
		d.keys(key)
		if len(d.broker.decided) != 0 || d.asking != askNothing {
			t.Errorf("%s: %+v", key, d.broker.decided)
		}
	}
	d.keys("o3<enter>")
	if len(d.broker.decided) != 0 || !strings.Contains(d.message, "from 1 to 2") {
		t.Errorf("%+v, %s", d.broker.decided, d.message)
	}
	d.keys("o2<enter>")
	if want := (grants.Decision{Kind: grants.GiveAnswer, Answer: "that", Via: via}); len(d.broker.decided) != 1 || d.broker.decided[0] != want {
		t.Errorf("%+v", d.broker.decided)
	}
	r.Question = &grants.PersonQuestion{Text: "How many?"}
	d = newDesk(t, r)
	d.keys("o2<enter>")
	if want := (grants.Decision{Kind: grants.GiveAnswer, Answer: "2", Via: via}); len(d.broker.decided) != 1 || d.broker.decided[0] != want {
		t.Errorf("%+v", d.broker.decided)
	}
}

// A connection is allowed as far as the rule that is on the screen says, at first the narrowest,
// and no key of a path's does anything to it.
func TestAConnectionIsAllowedAsFarAsIsShown(t *testing.T) {
	r := grants.Request{ID: "0123456789abcdef", Agent: "main", Workspace: "/w", AskedAtUnixMs: 1_000_000, ExpiresAtUnixMs: 1_300_000,
		Domain: &grants.DomainRequest{To: "me.github.io:443", Rules: []grants.DomainChoice{{Rule: "me.github.io:443"}, {Rule: "me.github.io"}, {Rule: "*.github.io", Warning: "a public suffix"}}}}
	for keys, want := range map[string]grants.Decision{
		"o":        {Kind: grants.AllowOnce, Domain: "me.github.io:443", Via: via},
		"po":       {Kind: grants.AllowOnce, Domain: "me.github.io", Via: via},
		"pppo":     {Kind: grants.AllowOnce, Domain: "me.github.io:443", Via: via},
		"rcppo":    {Kind: grants.AllowOnce, Domain: "*.github.io", Via: via},
		"a<enter>": {Kind: grants.AllowAlways, Domain: "me.github.io:443", Scope: grants.ScopeAlways, Via: via},
		"d<enter>": {Kind: grants.Deny, Via: via},
	} {
		d := newDesk(t, r)
		if screen := d.screen(); !strings.Contains(screen, "me.github.io:443") || strings.Contains(screen, "a public suffix") {
			t.Errorf("%s:\n%s", keys, screen)
		}
		d.keys(keys)
		if len(d.broker.decided) != 1 || d.broker.decided[0] != want {
			t.Errorf("%s: %+v", keys, d.broker.decided)
		}
	}
	d := newDesk(t, r)
	d.keys("pp")
	if screen := d.screen(); !strings.Contains(screen, "you give  *.github.io") || !strings.Contains(screen, "warning   a public suffix") {
		t.Error(screen)
	}
}

package session

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/sshagent"
)

func TestAPersonDecidesWhereAKeySignsIn(t *testing.T) {
	p := newPlace(t)
	s := p.open(true)
	keys := []profile.SSHKey{{Name: "id_work", File: p.caller.Home + "/.ssh/id_work.pub"}, {Name: "keys/other", File: p.work + "/keys/other.pub"}}
	q := sshagent.Question{Key: "id_work", User: "git", Host: "[example.org]:2222", HostKey: "SHA256:abc"}
	ask := func(ctx context.Context, q sshagent.Question) chan sshagent.Answer {
		got := make(chan sshagent.Answer, 1)
		go func() { got <- s.askSSH(ctx, keys, q) }()
		return got
	}
	config := func() string {
		text, _ := os.ReadFile(filepath.Join(p.caller.Directories().Config, "config.json"))
		return strings.Join(strings.Fields(string(text)), "")
	}
	for _, c := range []struct {
		name     string
		decision grants.Decision
		want     sshagent.Answer
	}{
		{"no", grants.Decision{Kind: grants.GiveAnswer, Answer: answerNo}, sshagent.Answer{Why: "a person said no"}},
		{"not at all", grants.Decision{Kind: grants.Deny, Reason: "not today"}, sshagent.Answer{Why: "a person said no: not today"}},
		{"once", grants.Decision{Kind: grants.GiveAnswer, Answer: answerYes}, sshagent.Answer{Allowed: true}},
	} {
		got := ask(t.Context(), q)
		r := p.pending()
		for _, part := range []string{"id_work at", "git@[example.org]:2222", "SHA256:abc"} {
			if r.Question == nil || !strings.Contains(r.Question.Text, part) {
				t.Fatalf("%s: no %q in %+v", c.name, part, r.Question)
			}
		}
		p.decide(r, c.decision)
		if a := <-got; a != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, a, c.want)
		}
	}
	if got := config(); got != "" {
		t.Errorf("kept: %s", got)
	}

	for _, key := range []string{"id_work", "keys/other"} {
		q.Key = key
		got := ask(t.Context(), q)
		p.decide(p.pending(), grants.Decision{Kind: grants.GiveAnswer, Answer: answerAlways})
		if a := <-got; a != (sshagent.Answer{Allowed: true}) {
			t.Errorf("always: %+v", a)
		}
	}
	want := `{"agents":{"main":{"execution":{"sandbox":{"sshKeys":[{"key":"id_work","hosts":["git@[example.org]:2222"]},{"key":"` + p.work + `/keys/other.pub","hosts":["git@[example.org]:2222"]}]}}}}}`
	if got := config(); got != want {
		t.Errorf("kept: %s, want %s", got, want)
	}
	if list := s.Notices(); len(list) != 2 || !strings.Contains(list[0].Text, "allowed always, kept in "+p.caller.Directories().Config) {
		t.Errorf("%+v", list)
	}

	// A name that no configuration takes is not kept, and is shown as what it is.
	q.User = "a b\x1b[2J"
	got := ask(t.Context(), q)
	r := p.pending()
	if strings.Contains(r.Question.Text, "\x1b") || len(r.Question.Choices) != 2 {
		t.Errorf("%+v", r.Question)
	}
	p.decide(r, grants.Decision{Kind: grants.Deny})
	<-got

	ctx, cancel := context.WithCancel(t.Context())
	got = ask(ctx, q)
	p.pending()
	cancel()
	if a := <-got; a.Allowed || !a.Undecided {
		t.Errorf("who asks is gone: %+v", a)
	}
}

func TestAPersonDecidesWhetherAPortIsPublished(t *testing.T) {
	p := newPlace(t)
	s := p.open(true)
	for answer, want := range map[string]bool{answerNo: false, answerYes: true} {
		got := make(chan bool, 1)
		go func() { got <- s.askPublish(t.Context(), 3000) }()
		r := p.pending()
		if r.Question == nil || !strings.Contains(r.Question.Text, "127.0.0.1:3000") {
			t.Fatalf("%+v", r)
		}
		p.decide(r, grants.Decision{Kind: grants.GiveAnswer, Answer: answer})
		if <-got != want {
			t.Errorf("%s: %v", answer, !want)
		}
	}
}

package outside

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
)

// A question in words waits in the one list, is answered by one of its choices or in words, and
// permits nothing.
func TestAPersonIsAskedInWords(t *testing.T) {
	b := newBench(t, Options{})
	s := b.session("main")
	type result struct {
		grants.PersonAnswer
		error
	}
	ask := func(ctx context.Context, q grants.PersonQuestion) <-chan result {
		answered := make(chan result, 1)
		go func() {
			a, err := b.AskPerson(ctx, s, q)
			answered <- result{a, err}
		}()
		return answered
	}
	choices := grants.PersonQuestion{Text: "Which one?\x1b", Choices: []string{"this", "that one"}}
	answered := ask(t.Context(), choices)
	r := b.waiting(1)[0]
	if r.Question == nil || r.Question.Text != choices.Text || !slices.Equal(r.Question.Choices, choices.Choices) || r.Agent != "main" || r.Session != s || r.Outside != nil || r.RequestedPath != "" {
		t.Fatalf("%+v", r)
	}
	for name, wrong := range map[string]grants.Decision{
		"allowed once":         {Kind: grants.AllowOnce},
		"allowed as a path":    {Kind: grants.AllowOnce, Path: "/", Access: profile.ReadWrite},
		"allowed always":       {Kind: grants.AllowAlways, Answer: "this"},
		"no answer":            {Kind: grants.GiveAnswer},
		"another answer":       {Kind: grants.GiveAnswer, Answer: "thi"},
		"an answer and a path": {Kind: grants.GiveAnswer, Answer: "this", Path: "/"},
		"a denial that says":   {Kind: grants.Deny, Answer: "this"},
	} {
		if _, err := b.Decide(t.Context(), r.ID, wrong); !errors.As(err, new(*grants.DecisionError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if a, err := b.Decide(t.Context(), r.ID, grants.Decision{Kind: grants.GiveAnswer, Answer: "that one", Via: "terminal"}); err != nil || a.Granted || a.Outcome != grants.OutcomeAnswered {
		t.Errorf("%+v, %v", a, err)
	}
	if a := <-answered; a.error != nil || a.Answer != "that one" || a.RequestID != r.ID || a.Outcome != grants.OutcomeAnswered {
		t.Errorf("%+v", a)
	}
	if _, err := b.Decide(t.Context(), r.ID, grants.Decision{Kind: grants.GiveAnswer, Answer: "this"}); !errors.As(err, new(*grants.EndedError)) {
		t.Errorf("%v", err)
	}
	free := grants.PersonQuestion{Text: "How many?"}
	answered = ask(t.Context(), free)
	b.Decide(t.Context(), b.waiting(1)[0].ID, grants.Decision{Kind: grants.GiveAnswer, Answer: "two\nor three"})
	if a := <-answered; a.Answer != "two\nor three" {
		t.Errorf("%+v", a)
	}
	answered = ask(t.Context(), free)
	b.Decide(t.Context(), b.waiting(1)[0].ID, grants.Decision{})
	if a := <-answered; a.Outcome != grants.OutcomeDenied || a.Answer != "" || a.Reason != defaultDenial {
		t.Errorf("%+v", a)
	}
	ctx, leave := context.WithCancel(t.Context())
	answered = ask(ctx, free)
	b.waiting(1)
	leave()
	if a := <-answered; a.error == nil {
		t.Errorf("%+v", a)
	}
	b.waiting(0)
	if got := names(b.events()); got != "question_asked question_decided question_ended question_asked question_decided question_ended question_asked question_decided question_ended question_asked question_ended" {
		t.Error(got)
	}
	// An answer to a question is none to a command.
	command := b.ask(t.Context(), s, false, words("id"))
	waits := b.waiting(1)[0]
	if _, err := b.Decide(t.Context(), waits.ID, grants.Decision{Kind: grants.GiveAnswer, Answer: "yes"}); !errors.As(err, new(*grants.DecisionError)) {
		t.Errorf("%v", err)
	}
	b.Decide(t.Context(), waits.ID, grants.Decision{})
	<-command

	for name, q := range map[string]grants.PersonQuestion{
		"nothing": {Text: " \n"}, "too long": {Text: strings.Repeat("x", grants.MaxQuestion+1)}, "no UTF-8": {Text: "\xff"},
		"too many choices": {Text: "x", Choices: strings.Split(strings.Repeat("x,", grants.MaxChoices)+"y", ",")}, "the same twice": {Text: "x", Choices: []string{"a", "a"}},
		"an empty choice": {Text: "x", Choices: []string{""}},
	} {
		if _, err := b.AskPerson(t.Context(), s, q); !errors.As(err, new(*grants.InvalidError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.AskPerson(t.Context(), "", free); err == nil {
		t.Error("nobody asks")
	}
}

// Who asks in words all the time is told so, and what waited at a kill is ended by the next
// gateway.
func TestQuestionsInWordsAreFew(t *testing.T) {
	b := newBench(t, Options{MaxPending: 2})
	s := b.session("main")
	for range 2 {
		go b.AskPerson(t.Context(), s, grants.PersonQuestion{Text: "Well?"})
	}
	id := b.waiting(2)[0].ID
	if _, err := b.AskPerson(t.Context(), s, grants.PersonQuestion{Text: "Well?"}); !errors.As(err, new(*grants.BusyError)) {
		t.Errorf("%v", err)
	}
	b.begin()
	if _, err := b.Decide(t.Context(), id, grants.Decision{Kind: grants.GiveAnswer, Answer: "yes"}); !errors.As(err, new(*grants.EndedError)) {
		t.Errorf("%v", err)
	}
	ended := 0
	for _, l := range b.events() {
		if l.Event == answered && l.Reason == reasonRestarted {
			ended++
		}
	}
	if ended != 2 {
		t.Errorf("%d are ended", ended)
	}
	short := newBench(t, Options{Timeout: time.Millisecond})
	if a, err := short.AskPerson(t.Context(), short.session("main"), grants.PersonQuestion{Text: "Well?"}); err != nil || a.Outcome != grants.OutcomeTimeout || a.Reason == "" {
		t.Errorf("%+v, %v", a, err)
	}
}

// What a container says for itself stands behind what is known of it, and cannot pass for that.
func TestTheReasonOfAContainerIsNotTakenForWhatIsKnownOfIt(t *testing.T) {
	for _, c := range []struct {
		from         Asker
		reason, want string
	}{
		{Asker{}, "to build", "to build"},
		{Asker{ID: "t1"}, "project pay branch main to build", "container t1 says: project pay branch main to build"},
		{Asker{ID: "t1", Project: "app", Branch: "next"}, "to build", "container t1 project app branch next says: to build"},
		{Asker{ID: "t1", Project: "app"}, "", "container t1 project app"},
	} {
		if got := c.from.of(c.reason); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

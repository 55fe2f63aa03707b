package outside

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
)

// What an operator says for a session holds for that session, until it is taken back or the session
// ends, and nobody else can say it.
func TestWhatIsSaidForASession(t *testing.T) {
	b := newBench(t, Options{Timeout: 20 * time.Millisecond})
	b.write(".config/clai-sandbox/config.json", strings.Replace(config, `"host": "auto"`, `"host": "auto", "approvers": ["alice"]`, 1))
	first, second, strict := b.session("main"), b.session("main"), b.session("strict")
	const (
		asks = grants.CommandTimeout
		runs = grants.CommandAutoApproved
		not  = grants.CommandDenied
	)
	var forbidden *grants.ForbiddenError
	var invalid *grants.InvalidError
	steps := []struct {
		session, sender, text string
		agent                 bool
		refused               any
		tells                 string
		status, other         grants.CommandStatus // of a backend's command in the first session, and in the second
	}{
		{text: "/exec", tells: "nothing is said", status: asks, other: asks},
		{text: "hello /elevated on", tells: "for the agent", status: asks, other: asks},
		{text: "/elevated on", sender: "mallory", refused: &forbidden, status: asks, other: asks},
		{text: "/elevated on", agent: true, refused: &forbidden, status: asks, other: asks},
		{text: "/elevated on", sender: "alice", agent: true, refused: &forbidden, status: asks, other: asks},
		{text: "/elevated on", session: "none", refused: new(*grants.UnknownError), status: asks, other: asks},
		{text: "/elevated on", session: "-", refused: &invalid, status: asks, other: asks},
		{text: "/elevated@other on", tells: "for the agent", status: asks, other: asks},
		{text: "/elevated maybe", refused: &invalid, status: asks, other: asks},
		{text: "/exec security=ful ask=off", refused: &invalid, status: asks, other: asks},
		{text: "/elevated on", sender: "alice", tells: "elevated", status: runs, other: asks},
		{text: "/exec security=deny", tells: "elevated: host=gateway security=full security=deny", status: runs, other: asks},
		{text: "/elevated off", tells: "security=deny", status: not, other: asks},
		{text: "/exec Security=FULL host=gateway", tells: "host=gateway security=full", status: runs, other: asks},
		{text: "/exec ask=always", tells: "ask=always", status: asks, other: asks},
		{text: "/exec host=sandbox", tells: "host=sandbox", status: not, other: asks},
		{text: "/exec host=node node=n1", tells: "node=n1", status: not, other: asks},
		{text: "/exec reset", tells: "nothing is said", status: asks, other: asks},
		{text: "/elevated on", session: strict, sender: "alice", tells: "elevated", status: asks, other: asks},
	}
	for _, step := range steps {
		session := step.session
		switch session {
		case "":
			session = first
		case "-":
			session = ""
		}
		said, err := b.Say(t.Context(), session, grants.Saying{Text: step.text, Sender: step.sender, FromAgent: step.agent})
		switch {
		case step.refused != nil:
			if err == nil || !errors.As(err, step.refused) {
				t.Errorf("%s by %q: %+v, %v", step.text, step.sender, said, err)
			}
		case step.tells == "for the agent":
			if err != nil || said.Understood {
				t.Errorf("%s: %+v, %v", step.text, said, err)
			}
		case err != nil || !said.Understood || !strings.Contains(said.Text, step.tells):
			t.Errorf("%s: %+v, %v", step.text, said, err)
		}
		for session, status := range map[string]grants.CommandStatus{first: step.status, second: step.other} {
			if a, err := b.RunOutside(t.Context(), session, false, words("id", "-u")); err != nil || a.Status != status {
				t.Errorf("%s, and then in the first session (%v): %+v, %v", step.text, session == first, a, err)
			}
		}
	}
	// The host's own file is stricter, and the lists of hostexec are what comes out of a sandbox
	// has.
	if a, err := b.RunOutside(t.Context(), strict, false, words("id", "-u")); err != nil || a.Status != asks {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := b.Say(t.Context(), first, grants.Saying{Text: "/elevated on"}); err != nil {
		t.Error(err)
	}
	if a, err := b.RunOutside(t.Context(), first, true, words("docker", "compose", "rm")); err != nil || a.Status != not {
		t.Errorf("%+v, %v", a, err)
	}
	changed, refusals := 0, 0
	for _, l := range b.events() {
		switch {
		case l.Event == "session_overridden" && l.Overrides != nil && l.Session != "":
			changed++
		case l.Event == "session_override_refused":
			refusals++
		case l.Event == requested && l.Session == strict && (l.Overrides == nil || !l.Overrides.Elevated):
			t.Errorf("a request does not say what held: %+v", l)
		}
	}
	if changed != 10 || refusals != 3 {
		t.Errorf("%d changes are on record, and %d refusals", changed, refusals)
	}
}

// /approve answers what waits, as what it was shown to be, and only where its session and its
// sender may.
func TestARequestIsAnsweredInAChat(t *testing.T) {
	b := newBench(t, Options{})
	b.write(".config/clai-sandbox/config.json", strings.Replace(config, `"host": "auto"`, `"host": "auto", "approvers": ["alice"]`, 1))
	main, other := b.session("main"), b.session("main")
	say := func(session, sender, text string) (grants.Said, error) {
		return b.Say(t.Context(), session, grants.Saying{Text: text, Sender: sender})
	}
	for word, status := range map[string]grants.CommandStatus{"allow-once": grants.CommandApproved, "deny": grants.CommandDenied, "allow-always": grants.CommandApproved} {
		answered := b.ask(t.Context(), main, false, words("id", word))
		id := b.waiting(1)[0].ID
		for name, err := range map[string]error{
			"a stranger":      second(say(main, "mallory", "/approve "+id+" "+word)),
			"another session": second(say(other, "alice", "/approve "+id+" "+word)),
			"no session":      second(say("", "alice", "/approve "+id+" "+word)),
			"a short id":      second(say(main, "alice", "/approve "+id[:7]+" "+word)),
		} {
			if err == nil {
				t.Fatalf("%s answers", name)
			}
		}
		if said, err := say(main, "alice", "/approve "+id[:8]+" "+word); err != nil || said.Answer == nil || said.Answer.RequestID != id {
			t.Fatalf("%+v, %v", said, err)
		}
		if a := <-answered; a.error != nil || a.Status != status {
			t.Errorf("%s: %+v", word, a)
		}
		if said, err := say(main, "alice", "/approve "+id+" "+word); err == nil {
			t.Errorf("it is answered twice: %+v", said)
		}
	}
	if a, err := b.RunOutside(t.Context(), main, false, words("id", "allow-always")); err != nil || a.Status != grants.CommandAutoApproved {
		t.Errorf("%+v, %v", a, err)
	}
	// Paths, connections, and the person themselves, who needs no session.
	go b.Ask(t.Context(), main, grants.Asking{Path: b.home + "/bin", Access: profile.ReadOnly})
	if said, err := say("", "", "approve "+b.waiting(1)[0].ID+" once"); err != nil || said.Answer.Path != b.home+"/bin" {
		t.Errorf("%+v, %v", said, err)
	}
	connection := b.askDomain(t.Context(), main, "api.example.org:443")
	if said, err := say("", "", "/approve "+b.waiting(1)[0].ID+" allow"); err != nil || said.Answer.Domain != "api.example.org:443" {
		t.Errorf("%+v, %v", said, err)
	}
	<-connection
	go b.AskPerson(t.Context(), main, grants.PersonQuestion{Text: "which?"})
	id := b.waiting(1)[0].ID
	if _, err := say("", "", "/approve "+id+" allow"); err == nil {
		t.Error("a question is allowed")
	}
	if _, err := say("", "", "/approve "+id+" deny"); err != nil {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

// What is longer than a person types is not looked at, whoever typed it.
func TestWhatIsSaidIsShort(t *testing.T) {
	b := newBench(t, Options{})
	session := b.session("main")
	line := func(length int) string {
		return "/exec host=gateway" + strings.Repeat(" ", length-len("/exec host=gateway"))
	}
	if said, err := b.Say(t.Context(), session, grants.Saying{Text: line(maxSaid)}); err != nil || !said.Understood {
		t.Errorf("%+v, %v", said, err)
	}
	var invalid *grants.InvalidError
	if said, err := b.Say(t.Context(), session, grants.Saying{Text: line(maxSaid + 1)}); !errors.As(err, &invalid) || invalid.Field != "text" {
		t.Errorf("%+v, %v", said, err)
	}
	if said, err := b.Say(t.Context(), session, grants.Saying{Text: strings.Repeat("x", 2*maxSaid)}); err != nil || said.Understood {
		t.Errorf("what is for the agent may be long: %+v, %v", said, err)
	}
	sender := strings.Repeat("a", maxSaid)
	if said, err := b.Say(t.Context(), session, grants.Saying{Text: "/exec", Sender: sender}); !errors.As(err, new(*grants.ForbiddenError)) {
		t.Errorf("%+v, %v", said, err)
	}
	if said, err := b.Say(t.Context(), session, grants.Saying{Text: "/exec", Sender: sender + "a"}); !errors.As(err, &invalid) || invalid.Field != "sender" {
		t.Errorf("%+v, %v", said, err)
	}
}

// What cannot be put on record does not take effect.
func TestWhatIsSaidIsOnRecordBeforeItTakesEffect(t *testing.T) {
	b := newBench(t, Options{})
	session := b.session("main")
	answered := b.ask(t.Context(), session, false, words("id", "-u"))
	id := b.waiting(1)[0].ID
	b.options.Audit.Close()
	for _, text := range []string{"/elevated on", "/exec host=gateway", "/approve " + id + " allow-once"} {
		if said, err := b.Say(t.Context(), session, grants.Saying{Text: text}); err == nil {
			t.Errorf("%s: %+v", text, said)
		}
	}
	if now := b.Overrides(session); now != (grants.Overrides{}) {
		t.Errorf("%+v holds", now)
	}
	if list := b.waiting(1); list[0].ID != id {
		t.Errorf("%+v waits", list)
	}
	select {
	case a := <-answered:
		t.Errorf("it is answered: %+v", a)
	default:
	}
}

// The beginning of an id answers no request when it is that of several, and none of another
// session.
func TestWhatIsAnsweredInAChatIsOneRequestOfTheSession(t *testing.T) {
	b := newBench(t, Options{})
	main, other := b.session("main"), b.session("main")
	first := b.ask(t.Context(), main, false, words("id", "1"))
	b.waiting(1)
	b.ask(t.Context(), other, false, words("id", "2"))
	list := b.waiting(2)
	of := map[string]string{}
	for _, r := range list {
		of[r.Session] = r.ID
	}
	if said, err := b.Say(t.Context(), main, grants.Saying{Text: "/approve " + of[other] + " deny"}); !errors.As(err, new(*grants.UnknownError)) {
		t.Errorf("%+v, %v", said, err)
	}
	if said, err := b.Say(t.Context(), main, grants.Saying{Text: "/approve " + of[main][:answerPrefix] + " deny"}); err != nil {
		t.Errorf("%+v, %v", said, err)
	}
	if a := <-first; a.Status != grants.CommandDenied {
		t.Errorf("%+v", a)
	}
	if list := b.waiting(1); list[0].ID != of[other] {
		t.Errorf("%+v waits", list)
	}
}

// Package brokertest holds what every grants.Broker has to do, in process and over the wire.
package brokertest

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
)

// timeout is how long a test waits for what must come.
const timeout = 20 * time.Second

// A Bench is a broker on a home directory of its own.
type Bench struct {
	grants.Broker
	Home  string // no component is a symbolic link
	State string // where its files are
}

// Limits are those that the benches of the suite have.
type Limits struct {
	Timeout    time.Duration
	MaxPending int
	AskEvery   time.Duration
}

// Run tries a broker. start makes one that is stopped with the test.
func Run(t *testing.T, start func(t *testing.T, limits Limits) *Bench) {
	for name, test := range map[string]func(*testing.T, func(t *testing.T, limits Limits) *Bench){
		"a question waits for its answer":                                 waits,
		"an answer is no wider than the question":                         narrows,
		"what is seen already is not asked":                               covered,
		"a denial is remembered for the session":                          remembers,
		"equal questions are one":                                         merges,
		"of two decisions one counts":                                     decidesOnce,
		"a question nobody answers ends":                                  timesOut,
		"a question is withdrawn with whoever asked":                      withdraws,
		"an agent that asks too much is told":                             limits,
		"only so many requests of one agent wait":                         fills,
		"what nobody may grant is refused at once":                        refuses,
		"what an agent does not see a person alone hears of":              tellsNothing,
		"a link that an agent sees leads where it leads":                  followsWhatIsSeen,
		"what cannot be meant is an error":                                invalid,
		"a grant for the session ends with it":                            once,
		"a grant for the agent is there for the next session":             always,
		"a grant that is revoked is gone":                                 revokes,
		"a grant expires":                                                 expires,
		"a person adds a grant":                                           adds,
		"the same agent, path and access is one grant":                    isOne,
		"a change is made once for its name":                              isMadeOnce,
		"taking away waits for what runs, and says what it did not reach": reaches,
		"a grant is narrowed":                                             narrowed,
		"a changed path is shown anew and decided anew":                   changes,
		"a stale grant is confirmed for what it leads to":                 confirms,
		"a running sandbox is told, and the agent when it sees":           live,
		"listeners hear everything in order":                              listens,
		"who listens again misses nothing that is kept":                   replays,
		"what became of requests is kept":                                 keeps,
	} {
		t.Run(name, func(t *testing.T) { test(t, start) })
	}
}

type starter = func(t *testing.T, limits Limits) *Bench

// write makes a file with its parents.
func (b *Bench) write(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(b.Home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (b *Bench) open(t *testing.T, spec grants.SessionSpec) *grants.Session {
	t.Helper()
	spec.Agent = or(spec.Agent, "main")
	spec.Workspace = or(spec.Workspace, b.Home+"/work")
	s, err := b.Open(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// asked is a question on its way.
type asked struct {
	answer chan grants.Answer
	err    chan error
}

func (b *Bench) ask(ctx context.Context, session, path string, access profile.Access) asked {
	a := asked{make(chan grants.Answer, 1), make(chan error, 1)}
	go func() {
		answer, err := b.Ask(ctx, session, grants.Asking{Path: path, Access: access, Reason: "for the test"})
		if err != nil {
			a.err <- err
		} else {
			a.answer <- answer
		}
	}()
	return a
}

func (a asked) wait(t *testing.T) grants.Answer {
	t.Helper()
	select {
	case answer := <-a.answer:
		return answer
	case err := <-a.err:
		t.Fatalf("ask: %v", err)
	case <-time.After(timeout):
		t.Fatal("no answer")
	}
	return grants.Answer{}
}

// must is the answer to a question that nobody has to be asked about.
func (b *Bench) must(t *testing.T, session, path string, access profile.Access) grants.Answer {
	t.Helper()
	return b.ask(t.Context(), session, path, access).wait(t)
}

// pending waits until a number of requests wait.
func (b *Bench) pending(t *testing.T, n int) []grants.Request {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for {
		list, err := b.Pending(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == n {
			return list
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d requests wait, want %d: %+v", len(list), n, list)
		}
		time.Sleep(time.Millisecond) // until it is there, or the deadline
	}
}

func (b *Bench) decide(t *testing.T, id string, d grants.Decision) grants.Answer {
	t.Helper()
	answer, err := b.Decide(t.Context(), id, d)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func allowOnce(path string, access profile.Access) grants.Decision {
	return grants.Decision{Kind: grants.AllowOnce, Path: path, Access: access, Via: "terminal"}
}

func allowAlways(path string, access profile.Access) grants.Decision {
	return grants.Decision{Kind: grants.AllowAlways, Path: path, Access: access, Scope: grants.ScopeAlways, Via: "terminal"}
}

// next waits for an event of a kind, and passes over others.
func next(t *testing.T, events <-chan grants.Event, kind grants.EventKind) grants.Event {
	t.Helper()
	deadline := time.After(timeout)
	for {
		select {
		case e, ok := <-events:
			if !ok {
				t.Fatalf("the events ended before %s", kind)
			}
			if e.Kind == kind {
				return e
			}
		case <-deadline:
			t.Fatalf("no %s", kind)
		}
	}
}

const ro, rw = profile.ReadOnly, profile.ReadWrite

// Package brokertest holds what every grants.Broker has to do, in process and over the wire.
package brokertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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

func waits(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "data/file")
	s := b.open(t, grants.SessionSpec{Command: "make test"})
	question := b.ask(t.Context(), s.ID, " ~/data/file ", ro)
	r := b.pending(t, 1)[0]
	if r.Agent != "main" || r.Session != s.ID || r.Workspace != b.Home+"/work" || r.Command != "make test" || r.RequestedPath != path || r.ResolvedPath != path ||
		r.RequestedAccess != ro || r.Reason != "for the test" || r.AskedAtUnixMs == 0 || r.ExpiresAtUnixMs <= r.AskedAtUnixMs {
		t.Errorf("%+v", r)
	}
	select {
	case answer := <-question.answer:
		t.Fatalf("nobody answered: %+v", answer)
	default:
	}
	b.decide(t, r.ID, allowOnce(path, ro))
	answer := question.wait(t)
	if !answer.Granted || answer.Outcome != grants.OutcomeGranted || answer.Scope != grants.ScopeOnce || answer.Path != path || answer.Access != ro || answer.GrantID == "" || answer.RequestID != r.ID {
		t.Errorf("%+v", answer)
	}
	b.pending(t, 0)
}

func narrows(t *testing.T, start starter) {
	b := start(t, Limits{})
	b.write(t, "a/b/file")
	b.write(t, "ab/file")
	os.Symlink("/etc", b.Home+"/a/out")
	s := b.open(t, grants.SessionSpec{})
	question := b.ask(t.Context(), s.ID, b.Home+"/a", ro)
	r := b.pending(t, 1)[0]
	for _, d := range []grants.Decision{
		allowOnce(b.Home, ro), allowOnce(b.Home+"/ab", ro), allowOnce(b.Home+"/a/../ab", ro), allowOnce(b.Home+"/a/out", ro),
		allowOnce(b.Home+"/a", rw), allowOnce("", ro), allowOnce(b.Home+"/a", 0), {Kind: grants.AllowAlways, Path: b.Home + "/a", Access: ro},
	} {
		_, err := b.Decide(t.Context(), r.ID, d)
		var refused *grants.DecisionError
		if !errors.As(err, &refused) {
			t.Errorf("%+v: %v", d, err)
		}
		b.pending(t, 1)
	}
	b.decide(t, r.ID, allowOnce(b.Home+"/a/b", ro))
	if answer := question.wait(t); answer.Path != b.Home+"/a/b" || answer.Access != ro {
		t.Errorf("%+v", answer)
	}
}

func covered(t *testing.T, start starter) {
	b := start(t, Limits{})
	b.write(t, "work/file")
	b.write(t, "work/secret/key")
	s := b.open(t, grants.SessionSpec{Shown: []grants.Shown{{Path: b.Home + "/work", Access: rw}, {Path: b.Home + "/lib", Access: ro}}, Hidden: []string{b.Home + "/work/secret"}})
	for path, access := range map[string]profile.Access{"/work/file": rw, "/work": ro, "/work/new": rw, "/lib/x": ro} {
		answer := b.must(t, s.ID, b.Home+path, access)
		if !answer.Granted || answer.Scope != grants.ScopeAlready || answer.RequestID != "" {
			t.Errorf("%s: %+v", path, answer)
		}
	}
	b.pending(t, 0)
	b.ask(t.Context(), s.ID, b.Home+"/lib/x", rw)
	b.pending(t, 1)
	b.ask(t.Context(), s.ID, b.Home+"/work/secret/key", ro)
	b.pending(t, 2)
}

func remembers(t *testing.T, start starter) {
	b := start(t, Limits{})
	b.write(t, "a/b/file")
	s := b.open(t, grants.SessionSpec{})
	question := b.ask(t.Context(), s.ID, b.Home+"/a", ro)
	b.decide(t, b.pending(t, 1)[0].ID, grants.Decision{Kind: grants.Deny, Reason: "not today"})
	if answer := question.wait(t); answer.Granted || answer.Outcome != grants.OutcomeDenied || answer.Reason != "not today" {
		t.Errorf("%+v", answer)
	}
	for _, path := range []string{"/a", "/a/b/file", "/a/new"} {
		for _, access := range []profile.Access{ro, rw} {
			if answer := b.must(t, s.ID, b.Home+path, access); answer.Outcome != grants.OutcomeDenied || answer.Reason != "not today" {
				t.Errorf("%s: %+v", path, answer)
			}
		}
	}
	b.pending(t, 0)
	b.ask(t.Context(), s.ID, b.Home+"/ab", ro)
	b.pending(t, 1)
	other := b.open(t, grants.SessionSpec{})
	b.ask(t.Context(), other.ID, b.Home+"/a", ro)
	b.pending(t, 2)
}

func merges(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	s := b.open(t, grants.SessionSpec{})
	var all []asked
	for range 5 {
		all = append(all, b.ask(t.Context(), s.ID, path, ro))
	}
	other := b.ask(t.Context(), s.ID, path, rw)
	list := b.pending(t, 2)
	if list[0].RequestedAccess == rw {
		list[0] = list[1]
	}
	// Those that come to wait a moment later are answered as well: they find the grant.
	b.decide(t, list[0].ID, allowOnce(path, ro))
	for _, a := range all {
		if answer := a.wait(t); !answer.Granted {
			t.Errorf("%+v", answer)
		}
	}
	b.decide(t, b.pending(t, 1)[0].ID, grants.Decision{})
	if answer := other.wait(t); answer.Granted {
		t.Errorf("%+v", answer)
	}
}

func decidesOnce(t *testing.T, start starter) {
	b := start(t, Limits{MaxPending: 1000})
	s := b.open(t, grants.SessionSpec{})
	for i := range 20 {
		path := b.write(t, fmt.Sprint("file", i))
		question := b.ask(t.Context(), s.ID, path, rw)
		id := b.pending(t, 1)[0].ID
		var won, told int
		var mu sync.Mutex
		var all sync.WaitGroup
		for n := range 6 {
			all.Go(func() {
				d := []grants.Decision{allowOnce(path, rw), allowAlways(path, ro), {}}[n%3]
				_, err := b.Decide(t.Context(), id, d)
				var ended *grants.EndedError
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won++
				case errors.As(err, &ended):
					told++
				default:
					t.Errorf("%v", err)
				}
			})
		}
		all.Wait()
		if won != 1 || told != 5 {
			t.Fatalf("%d won, %d were told", won, told)
		}
		answer := question.wait(t)
		all2, err := b.Grants(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, g := range all2 {
			if g.Path == path {
				found++
				if g.Access != answer.Access || g.Scope != answer.Scope || g.ID != answer.GrantID {
					t.Errorf("granted %+v, answered %+v", g, answer)
				}
			}
		}
		if (found == 1) != answer.Granted || found > 1 {
			t.Errorf("%d grants, answered %+v", found, answer)
		}
	}
}

func timesOut(t *testing.T, start starter) {
	b := start(t, Limits{Timeout: 50 * time.Millisecond})
	path := b.write(t, "file")
	s := b.open(t, grants.SessionSpec{})
	events, err := b.Events(t.Context(), grants.EventsFrom{})
	if err != nil {
		t.Fatal(err)
	}
	question := b.ask(t.Context(), s.ID, path, ro)
	r := next(t, events, grants.EventRequestPending).Request
	if answer := question.wait(t); answer.Granted || answer.Outcome != grants.OutcomeTimeout {
		t.Errorf("%+v", answer)
	}
	_, err = b.Decide(t.Context(), r.ID, allowAlways(path, ro))
	var ended *grants.EndedError
	if !errors.As(err, &ended) || ended.Outcome != grants.OutcomeTimeout {
		t.Errorf("%v", err)
	}
	b.nothingGranted(t)
}

func (b *Bench) nothingGranted(t *testing.T) {
	t.Helper()
	if all, err := b.Grants(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

func withdraws(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	events, err := b.Events(t.Context(), grants.EventsFrom{})
	if err != nil {
		t.Fatal(err)
	}
	check := func(how string, leave func()) {
		r := next(t, events, grants.EventRequestPending).Request
		leave()
		if e := next(t, events, grants.EventRequestEnded); e.Outcome != grants.OutcomeWithdrawn || e.Request.ID != r.ID {
			t.Errorf("%s: %+v", how, e)
		}
		_, err = b.Decide(t.Context(), r.ID, allowAlways(path, ro))
		var ended *grants.EndedError
		if !errors.As(err, &ended) || ended.Outcome != grants.OutcomeWithdrawn {
			t.Errorf("%s: %v", how, err)
		}
	}
	s := b.open(t, grants.SessionSpec{})
	ctx, leave := context.WithCancel(t.Context())
	b.ask(ctx, s.ID, path, ro)
	check("whoever asked left", leave)

	question := b.ask(t.Context(), s.ID, path, ro)
	check("the session ended", s.Close)
	if answer := question.wait(t); answer.Outcome != grants.OutcomeWithdrawn {
		t.Errorf("%+v", answer)
	}
	if _, err := b.Ask(t.Context(), s.ID, grants.Asking{Path: path, Access: ro}); err == nil {
		t.Error("a session that ended asks")
	}
	b.nothingGranted(t)
}

func limits(t *testing.T, start starter) {
	b := start(t, Limits{MaxPending: 3, AskEvery: time.Hour})
	s, other := b.open(t, grants.SessionSpec{}), b.open(t, grants.SessionSpec{Agent: "other"})
	busy := func(session, path string) {
		t.Helper()
		_, err := b.Ask(t.Context(), session, grants.Asking{Path: path, Access: ro})
		var busy *grants.BusyError
		if !errors.As(err, &busy) {
			t.Errorf("%v", err)
		}
	}
	for i := range 3 {
		b.ask(t.Context(), s.ID, fmt.Sprint("~/file", i), ro)
	}
	list := b.pending(t, 3)
	busy(s.ID, "~/file4")
	b.ask(t.Context(), other.ID, "~/file", ro)
	b.pending(t, 4)
	for _, r := range list {
		b.decide(t, r.ID, grants.Decision{})
	}
	busy(s.ID, "~/file5") // three in the first hour
	if answer := b.must(t, s.ID, list[0].RequestedPath, ro); answer.Outcome != grants.OutcomeDenied {
		t.Errorf("%+v", answer)
	}
	// What needs no person counts as well, and so does what cannot be meant.
	_, err := b.Ask(t.Context(), s.ID, grants.Asking{Path: "relative", Access: ro})
	for asked := 7; err == nil || !errors.As(err, new(*grants.BusyError)); asked++ {
		if asked > 24 {
			t.Fatalf("%d questions were answered", asked)
		}
		_, err = b.Ask(t.Context(), s.ID, grants.Asking{Path: "/proc/1", Access: ro})
	}
	busy(s.ID, list[0].RequestedPath)
	busy(s.ID, "relative")
	if answer := b.must(t, other.ID, "/proc/1", ro); answer.Outcome != grants.OutcomeNever {
		t.Errorf("another agent: %+v", answer)
	}
}

func fills(t *testing.T, start starter) {
	b := start(t, Limits{MaxPending: 3, AskEvery: time.Nanosecond})
	sessions := []*grants.Session{b.open(t, grants.SessionSpec{}), b.open(t, grants.SessionSpec{})}
	for i := range 3 {
		b.ask(t.Context(), sessions[i%2].ID, fmt.Sprint("~/file", i), ro)
	}
	list := b.pending(t, 3)
	var busy *grants.BusyError
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if _, err := b.Ask(ctx, sessions[1].ID, grants.Asking{Path: "~/more", Access: ro}); !errors.As(err, &busy) {
		t.Errorf("%v", err)
	}
	b.decide(t, list[0].ID, grants.Decision{})
	b.ask(t.Context(), sessions[1].ID, "~/more", ro)
	b.pending(t, 3)
}

func refuses(t *testing.T, start starter) {
	b := start(t, Limits{})
	os.Mkdir(b.Home+"/work", 0o700)
	os.Symlink("/proc/self", b.Home+"/work/link")
	s := b.open(t, grants.SessionSpec{Shown: []grants.Shown{{Path: b.Home + "/work", Access: rw}}})
	for _, path := range []string{"/", "/proc/1/environ", "/sys", "/dev/mem", "/run/user", "~/work/link/environ", b.State, b.State + "/grants.db"} {
		if answer := b.must(t, s.ID, path, ro); answer.Granted || answer.Outcome != grants.OutcomeNever || answer.Reason == "" {
			t.Errorf("%s: %+v", path, answer)
		}
	}
	b.pending(t, 0)
}

func invalid(t *testing.T, start starter) {
	b := start(t, Limits{})
	s := b.open(t, grants.SessionSpec{})
	for _, a := range []grants.Asking{
		{Path: "", Access: ro}, {Path: "relative", Access: ro}, {Path: "~root", Access: ro}, {Path: "/a\x00", Access: ro},
		{Path: "/a", Access: ro, Reason: strings.Repeat("x", grants.MaxReason+1)}, {Path: "/" + strings.Repeat("x", 5000), Access: ro},
	} {
		_, err := b.Ask(t.Context(), s.ID, a)
		var path *profile.PathError
		var field *grants.InvalidError
		if !errors.As(err, &path) && !errors.As(err, &field) {
			t.Errorf("%.40q: %v", a.Path, err)
		}
	}
	var unknown *grants.UnknownError
	if _, err := b.Ask(t.Context(), "nobody", grants.Asking{Path: "/a", Access: ro}); !errors.As(err, &unknown) {
		t.Errorf("%v", err)
	}
	if _, err := b.Decide(t.Context(), "nothing", grants.Decision{}); !errors.As(err, &unknown) {
		t.Errorf("%v", err)
	}
	if _, err := b.Revoke(t.Context(), "nothing"); !errors.As(err, &unknown) {
		t.Errorf("%v", err)
	}
	for _, spec := range []grants.SessionSpec{{Agent: "../x", Workspace: "/w"}, {Agent: "a", Workspace: "w"}, {Agent: "a", Workspace: "/w", Shown: []grants.Shown{{Path: "x", Access: ro}}}} {
		var field *grants.InvalidError
		if _, err := b.Open(t.Context(), spec); !errors.As(err, &field) {
			t.Errorf("%+v: %v", spec, err)
		}
	}
}

// granted asks and has it allowed.
func (b *Bench) granted(t *testing.T, s *grants.Session, path string, d grants.Decision) grants.Answer {
	t.Helper()
	question := b.ask(t.Context(), s.ID, path, d.Access)
	b.decide(t, b.pending(t, 1)[0].ID, d)
	answer := question.wait(t)
	if !answer.Granted {
		t.Fatalf("%+v", answer)
	}
	return answer
}

func once(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "dir/file")
	s, other := b.open(t, grants.SessionSpec{}), b.open(t, grants.SessionSpec{})
	b.granted(t, s, b.Home+"/dir", allowOnce(b.Home+"/dir", rw))
	if answer := b.must(t, s.ID, path, rw); answer.Scope != grants.ScopeAlready {
		t.Errorf("%+v", answer)
	}
	if list, notices := grants.Current(b.State, "main", time.Now()); len(list)+len(notices) != 0 {
		t.Errorf("stored: %+v %+v", list, notices)
	}
	b.ask(t.Context(), other.ID, path, ro)
	b.pending(t, 1)
	if all, err := b.Grants(t.Context()); err != nil || len(all) != 1 || all[0].Session != s.ID {
		t.Errorf("%+v, %v", all, err)
	}
	events, _ := b.Events(t.Context(), grants.EventsFrom{})
	s.Close()
	next(t, events, grants.EventRevoked)
	b.nothingGranted(t)
}

func always(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "dir/file")
	s := b.open(t, grants.SessionSpec{})
	answer := b.granted(t, s, b.Home+"/dir", allowAlways(b.Home+"/dir", ro))
	// It was stored before it was delivered.
	list, notices := grants.Current(b.State, "main", time.Now())
	if len(list) != 1 || len(notices) != 0 || list[0].Path != b.Home+"/dir" || list[0].Access != ro {
		t.Fatalf("%+v %+v", list, notices)
	}
	s.Close()
	next := b.open(t, grants.SessionSpec{})
	if a := b.must(t, next.ID, path, ro); a.Scope != grants.ScopeAlready {
		t.Errorf("%+v", a)
	}
	b.ask(t.Context(), next.ID, path, rw)
	b.pending(t, 1)
	other := b.open(t, grants.SessionSpec{Agent: "other"})
	b.ask(t.Context(), other.ID, path, ro)
	b.pending(t, 2)
	all, err := b.Grants(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != answer.GrantID || all[0].Uses != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	o := all[0].Origin
	if o.Kind != profile.OriginApproval || o.Reason != "for the test" || o.RequestedPath != b.Home+"/dir" || o.RequestedAccess != ro || o.DecidedBy == "" || o.Via != "terminal" || o.GrantedAtUnixMs == 0 {
		t.Errorf("%+v", o)
	}
}

func revokes(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "dir/file")
	s := b.open(t, grants.SessionSpec{})
	for _, d := range []grants.Decision{allowOnce(path, ro), allowAlways(path, ro)} {
		answer := b.granted(t, s, path, d)
		if g, err := b.Revoke(t.Context(), answer.GrantID); err != nil || g.Path != path {
			t.Errorf("%+v, %v", g, err)
		}
		if e := next(t, s.Events, grants.EventRevoked); e.Grant.ID != answer.GrantID {
			t.Errorf("%+v", e)
		}
		b.nothingGranted(t)
		if list, notices := grants.Current(b.State, "main", time.Now()); len(list)+len(notices) != 0 {
			t.Errorf("stored: %+v %+v", list, notices)
		}
		if _, err := b.Revoke(t.Context(), answer.GrantID); err == nil {
			t.Error("revoked twice")
		}
	}
}

func expires(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	s := b.open(t, grants.SessionSpec{})
	d := allowAlways(path, ro)
	d.ExpiresIn = grants.Duration(time.Second)
	answer := b.granted(t, s, path, d)
	if answer.ExpiresAt == 0 {
		t.Errorf("%+v", answer)
	}
	if e := next(t, s.Events, grants.EventExpired); e.Grant.ID != answer.GrantID {
		t.Errorf("%+v", e)
	}
	b.nothingGranted(t)
	b.ask(t.Context(), s.ID, path, ro)
	b.pending(t, 1)
}

func adds(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	g, err := b.Add(t.Context(), grants.NewGrant{Agent: "main", Path: "~/file", Access: ro, Via: "terminal"})
	if err != nil || g.Path != path || g.Origin.Kind != profile.OriginManual || g.ID == "" {
		t.Fatalf("%+v, %v", g, err)
	}
	if list, _ := grants.Current(b.State, "main", time.Now()); len(list) != 1 {
		t.Errorf("%+v", list)
	}
	var never *grants.NeverError
	if _, err := b.Add(t.Context(), grants.NewGrant{Agent: "main", Path: "/proc", Access: ro}); !errors.As(err, &never) {
		t.Errorf("%v", err)
	}
	for _, n := range []grants.NewGrant{{Agent: "..", Path: "~/file", Access: ro}, {Agent: "main", Path: "file", Access: ro}, {Agent: "main", Path: "~/file", Access: ro, ExpiresIn: -1}} {
		if _, err := b.Add(t.Context(), n); err == nil {
			t.Errorf("added %+v", n)
		}
	}
}

func narrowed(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	s := b.open(t, grants.SessionSpec{})
	answer := b.granted(t, s, path, allowAlways(path, rw))
	if g, err := b.Narrow(t.Context(), answer.GrantID); err != nil || g.Access != ro {
		t.Fatalf("%+v, %v", g, err)
	}
	if e := next(t, s.Events, grants.EventNarrowed); e.Grant.Access != ro {
		t.Errorf("%+v", e)
	}
	if list, _ := grants.Current(b.State, "main", time.Now()); len(list) != 1 || list[0].Access != ro {
		t.Errorf("%+v", list)
	}
	if _, err := b.Narrow(t.Context(), answer.GrantID); err == nil {
		t.Error("narrowed twice")
	}
	b.ask(t.Context(), s.ID, path, rw)
	b.pending(t, 1)
}

func changes(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "dir/file")
	other := b.write(t, "other")
	s := b.open(t, grants.SessionSpec{})
	question := b.ask(t.Context(), s.ID, path, ro)
	id := b.pending(t, 1)[0].ID
	os.Remove(path)
	os.Symlink(other, path)
	_, err := b.Decide(t.Context(), id, allowAlways(path, ro))
	var changed *grants.ChangedError
	if !errors.As(err, &changed) || changed.Now.Resolved != other {
		t.Fatalf("%v", err)
	}
	b.nothingGranted(t)
	r := b.pending(t, 1)[0]
	if r.ResolvedPath != other || len(r.Warnings) == 0 || r.Warnings[len(r.Warnings)-1].Kind != grants.WarnChanged {
		t.Errorf("%+v", r)
	}
	b.decide(t, id, allowAlways(path, ro))
	if answer := question.wait(t); !answer.Granted {
		t.Errorf("%+v", answer)
	}
	if all, _ := b.Grants(t.Context()); len(all) != 1 || all[0].Resolved != other || all[0].Path != path {
		t.Errorf("%+v", all)
	}
}

func confirms(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "dir/file")
	other := b.write(t, "other")
	s := b.open(t, grants.SessionSpec{})
	answer := b.granted(t, s, path, allowAlways(path, ro))
	os.Remove(path)
	os.Symlink(other, path)
	// A session that asks for the other path is not covered by the grant, nor one that asks by the name.
	b.ask(t.Context(), s.ID, path, ro)
	b.ask(t.Context(), s.ID, other, ro)
	b.pending(t, 2)
	all, err := b.Grants(t.Context())
	if err != nil || len(all) != 1 || !strings.Contains(all[0].Stale, other) {
		t.Fatalf("%+v, %v", all, err)
	}
	if e := next(t, s.Events, grants.EventStale); e.Grant.ID != answer.GrantID {
		t.Errorf("%+v", e)
	}
	if list, notices := grants.Current(b.State, "main", time.Now()); len(list) != 0 || len(notices) != 1 {
		t.Errorf("%+v %+v", list, notices)
	}
	var changed *grants.ChangedError
	if _, err := b.Confirm(t.Context(), answer.GrantID, path); !errors.As(err, &changed) || changed.Now.Resolved != other {
		t.Errorf("%v", err)
	}
	if g, err := b.Confirm(t.Context(), answer.GrantID, other); err != nil || g.Stale != "" || g.Resolved != other {
		t.Errorf("%+v, %v", g, err)
	}
	if list, notices := grants.Current(b.State, "main", time.Now()); len(list) != 1 || len(notices) != 0 {
		t.Errorf("%+v %+v", list, notices)
	}
}

func live(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	s := b.open(t, grants.SessionSpec{Live: true})
	for _, problem := range []string{"", "no mount: too many"} {
		question := b.ask(t.Context(), s.ID, path, ro)
		b.decide(t, b.pending(t, 1)[0].ID, allowOnce(path, ro))
		e := next(t, s.Events, grants.EventGranted)
		select {
		case answer := <-question.answer:
			t.Fatalf("told before it is there: %+v", answer)
		default:
		}
		if err := b.Applied(t.Context(), s.ID, grants.Applied{Grant: e.Grant.ID, Problem: problem}); err != nil {
			t.Fatal(err)
		}
		answer := question.wait(t)
		if !answer.Granted || (answer.Visible == grants.VisibleNow) != (problem == "") || answer.Reason != problem {
			t.Errorf("%+v", answer)
		}
		b.Revoke(t.Context(), e.Grant.ID)
	}
}

func listens(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	ctx, leave := context.WithCancel(t.Context())
	events, err := b.Events(ctx, grants.EventsFrom{})
	if err != nil {
		t.Fatal(err)
	}
	s := b.open(t, grants.SessionSpec{})
	answer := b.granted(t, s, path, allowAlways(path, ro))
	b.Revoke(t.Context(), answer.GrantID)
	for _, kind := range []grants.EventKind{grants.EventRequestPending, grants.EventRequestEnded, grants.EventGranted, grants.EventRevoked} {
		select {
		case e := <-events:
			if e.Kind != kind || e.AtUnixMs == 0 {
				t.Errorf("%+v, want %s", e, kind)
			}
		case <-time.After(timeout):
			t.Fatalf("no %s", kind)
		}
	}
	leave()
	for deadline := time.After(timeout); ; {
		select {
		case _, ok := <-events:
			if !ok {
				return
			}
		case <-deadline:
			t.Fatal("the events do not end")
		}
	}
}

func replays(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	first, other := b.open(t, grants.SessionSpec{}), b.open(t, grants.SessionSpec{})
	b.granted(t, first, path, grants.Decision{Kind: grants.AllowOnce, Path: path, Access: ro})
	b.granted(t, other, path, grants.Decision{Kind: grants.AllowOnce, Path: path, Access: ro})
	read := func(from grants.EventsFrom) (kinds string, ids []int64) {
		t.Helper()
		from.Kept, from.Ends = true, true
		events, err := b.Events(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		for e := range events {
			kinds += string(e.Kind) + " "
			ids = append(ids, e.ID)
		}
		return kinds, ids
	}
	const one = "request_pending request_ended path_granted "
	all, ids := read(grants.EventsFrom{})
	if all != one+one || !slices.IsSorted(ids) {
		t.Errorf("%s%v", all, ids)
	}
	if kinds, _ := read(grants.EventsFrom{Session: other.ID}); kinds != one {
		t.Errorf("of one session: %s", kinds)
	}
	if kinds, _ := read(grants.EventsFrom{After: ids[2]}); kinds != one {
		t.Errorf("behind the third: %s", kinds)
	}
	if kinds, _ := read(grants.EventsFrom{After: ids[5]}); kinds != "" {
		t.Errorf("behind the last: %s", kinds)
	}
	if kinds, _ := read(grants.EventsFrom{After: 1}); kinds != string(grants.EventsLost)+" "+one+one {
		t.Errorf("behind one of an earlier broker: %s", kinds)
	}
	events, err := b.Events(t.Context(), grants.EventsFrom{Kept: true, After: ids[4]})
	if err != nil {
		t.Fatal(err)
	}
	next(t, events, grants.EventGranted)
	b.Revoke(t.Context(), (<-other.Events).Grant.ID)
	next(t, events, grants.EventRevoked)
}

func keeps(t *testing.T, start starter) {
	b := start(t, Limits{})
	path := b.write(t, "file")
	s := b.open(t, grants.SessionSpec{})
	question := b.ask(t.Context(), s.ID, path, rw)
	b.decide(t, b.pending(t, 1)[0].ID, grants.Decision{Kind: grants.Deny, Reason: "no"})
	question.wait(t)
	answer := b.granted(t, s, path, allowAlways(path, ro))
	list, err := b.Log(t.Context(), 10)
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	if r := list[0]; r.Outcome != grants.OutcomeGranted || r.GrantID != answer.GrantID || r.Decision.Kind != grants.AllowAlways || r.DecidedBy == "" || r.EndedAtUnixMs == 0 {
		t.Errorf("%+v", r)
	}
	if r := list[1]; r.Outcome != grants.OutcomeDenied || r.Decision.Reason != "no" || r.RequestedAccess != rw {
		t.Errorf("%+v", r)
	}
	if list, err := b.Log(t.Context(), 1); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

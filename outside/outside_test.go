package outside

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/audit"
	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/broker"
	"github.com/clairun/clai-sandbox/grants/store"
	"github.com/clairun/clai-sandbox/outside/runner"
	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/policy/host"
	"github.com/clairun/clai-sandbox/profile"
)

// bench is a broker whose runner writes down what it was asked for, and runs nothing.
type bench struct {
	*testing.T
	*Broker
	home, work string
	options    Options
	paths      broker.Options

	mu   sync.Mutex
	ran  []runner.Request
	hold chan struct{} // where it is there, what runs ends with it
}

const config = `{"defaults": {"execution": {"outside": {"host": "auto", "security": "allowlist"},
	"hostexec": {"autoApprove": ["docker compose ps", "echo .*", "touch .*", "(.*/)?(git|g|linked|git-x|env git) status"], "manualApprove": ["docker compose (up|down).*", "printf .*"]}}}}`

const approvals = `{"version": 1, "agents": {"*": {"denylist": [{"pattern": "touch"}]}, "main": {"allowlist": [{"pattern": "/usr/bin/printf"}]}, "strict": {"ask": "always"}}}`

func newBench(t *testing.T, o Options) *bench {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, home: home, work: home + "/work"}
	for _, dir := range []string{b.work, home + "/.config/clai-sandbox", home + "/bin"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	b.write(".config/clai-sandbox/config.json", config)
	b.write(".config/clai-sandbox/"+host.ApprovalsName, approvals)
	b.write("bin/docker", "#!/bin/sh\n")
	b.write("bin/git", "#!/bin/sh\n")
	if err := errors.Join(os.Chmod(home+"/bin/docker", 0o700), os.Chmod(home+"/bin/git", 0o700), os.Link(home+"/bin/git", home+"/bin/g"), os.Symlink("git", home+"/bin/linked"), os.Link(home+"/bin/docker", home+"/bin/git-x")); err != nil {
		t.Fatal(err)
	}
	kept, _, err := store.Open(home + "/state")
	if err != nil {
		t.Fatal(err)
	}
	record, _ := audit.Open(filepath.Join(home, "state", audit.Name), 0)
	b.paths = broker.Options{Rules: grants.NewRules(home, nil, nil), Store: kept, Audit: record, User: "tester"}
	caller := profile.Caller{Home: home, User: "tester"}
	o.Load = func(agent string) (host.Host, error) { return host.Load(caller, home+"/bin:/usr/bin:/bin", agent) }
	o.Run, o.Audit, o.User = b.runs, record, "tester"
	b.options = o
	b.begin()
	t.Cleanup(func() { b.Broker.Close(); record.Close(); kept.Close() })
	return b
}

// begin is a broker as a gateway starts it, on what the one before has left.
func (b *bench) begin() {
	b.Helper()
	paths, err := broker.New(b.paths)
	if err != nil {
		b.Fatal(err)
	}
	b.Broker = New(paths, b.options)
}

func (b *bench) write(name, text string) {
	b.Helper()
	if err := os.WriteFile(filepath.Join(b.home, name), []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) runs(ctx context.Context, q runner.Request) (runner.Answer, bool, error) {
	b.mu.Lock()
	b.ran = append(b.ran, q)
	hold := b.hold
	b.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return runner.Answer{}, true, ctx.Err()
		}
	}
	return runner.Answer{Status: runner.Completed, ExitCode: 3, Stdout: []byte("out"), Stderr: []byte("\xff")}, true, nil
}

func (b *bench) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.ran)
}

func (b *bench) session(agent string) string {
	b.Helper()
	s, err := b.Open(b.Context(), grants.SessionSpec{Agent: agent, Workspace: b.work})
	if err != nil {
		b.Fatal(err)
	}
	return s.ID
}

func (b *bench) waiting(n int) []grants.Request {
	b.Helper()
	for end := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
		list, err := b.Pending(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if len(list) == n {
			return list
		}
		if time.Now().After(end) {
			b.Fatalf("%d wait, want %d: %+v", len(list), n, list)
		}
	}
}

type result struct {
	grants.CommandAnswer
	error
}

// ask asks in the background.
func (b *bench) ask(ctx context.Context, session string, inside bool, c grants.Command) <-chan result {
	answered := make(chan result, 1)
	go func() {
		a, err := b.RunOutside(ctx, session, inside, c)
		answered <- result{a, err}
	}()
	return answered
}

func words(argv ...string) grants.Command { return grants.Command{Argv: argv} }

// events are the audit file's lines of commands.
func (b *bench) events() (lines []line) {
	b.Helper()
	return slices.DeleteFunc(b.all(), func(l line) bool { return l.ID == "" })
}

// all are the audit file's lines.
func (b *bench) all() (lines []line) {
	b.Helper()
	file, err := os.Open(filepath.Join(b.home, "state", audit.Name))
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	for s := bufio.NewScanner(file); s.Scan(); {
		var l line
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			b.Fatal(err)
		}
		lines = append(lines, l)
	}
	return lines
}

func names(lines []line) (names string) {
	for _, l := range lines {
		names += strings.TrimPrefix(l.Event, "command_") + " "
	}
	return strings.TrimSpace(names)
}

// Who asks from inside has the lists of hostexec first, and the policy of the host above them.
func TestWhatTheListsAndThePolicySay(t *testing.T) {
	b := newBench(t, Options{Timeout: 50 * time.Millisecond})
	main, strict := b.session("main"), b.session("strict")
	for name, c := range map[string]struct {
		session string
		inside  bool
		c       grants.Command
		status  grants.CommandStatus
		pattern string
	}{
		"the automatic list":                   {main, true, words("docker", "compose", "ps"), grants.CommandAutoApproved, "docker compose ps"},
		"the manual list":                      {main, true, words("docker", "compose", "up", "-d"), grants.CommandTimeout, "docker compose (up|down).*"},
		"the manual list, and an entry":        {main, true, words("printf", "x"), grants.CommandTimeout, "printf .*"},
		"neither list":                         {main, true, words("docker", "compose", "rm"), grants.CommandDenied, ""},
		"neither list, and an entry":           {main, true, words("/usr/bin/printf", "x"), grants.CommandDenied, ""},
		"more words than the list has":         {main, true, words("docker", "compose", "ps", ";", "id"), grants.CommandDenied, ""},
		"one word that looks like three":       {main, true, words("docker compose ps"), grants.CommandDenied, ""},
		"a deny entry wins over the list":      {main, true, words("touch", "x"), grants.CommandDenied, "touch .*"},
		"to be asked always wins, too":         {strict, true, words("docker", "compose", "ps"), grants.CommandTimeout, "docker compose ps"},
		"the request is stricter":              {main, true, grants.Command{Argv: []string{"echo", "x"}, Security: "deny"}, grants.CommandDenied, "echo .*"},
		"outside of the workspace":             {main, true, grants.Command{Argv: []string{"echo", "x"}, Cwd: b.home}, grants.CommandDenied, "echo .*"},
		"the list speaks of no variables":      {main, true, grants.Command{Argv: []string{"echo", "x"}, Env: map[string]string{"IMAGE": "x"}}, grants.CommandTimeout, "echo .*"},
		"what obeys the workspace":             {main, true, words("git", "status"), grants.CommandTimeout, "(.*/)?(git|g|linked|git-x|env git) status"},
		"the same by another name":             {main, true, words("g", "status"), grants.CommandTimeout, "(.*/)?(git|g|linked|git-x|env git) status"},
		"the same by a link":                   {main, true, words("linked", "status"), grants.CommandTimeout, "(.*/)?(git|g|linked|git-x|env git) status"},
		"the same by its path":                 {main, true, words(b.home+"/bin/git", "status"), grants.CommandTimeout, "(.*/)?(git|g|linked|git-x|env git) status"},
		"the same by another program":          {main, true, words("env", "git", "status"), grants.CommandTimeout, "(.*/)?(git|g|linked|git-x|env git) status"},
		"one of its family":                    {main, true, words("git-x", "status"), grants.CommandTimeout, "(.*/)?(git|g|linked|git-x|env git) status"},
		"a backend, by an entry":               {main, false, words("printf", "x"), grants.CommandAutoApproved, ""},
		"a backend, without one":               {main, false, words("docker", "compose", "ps"), grants.CommandTimeout, ""},
		"an override that chooses code":        {main, true, grants.Command{Argv: []string{"echo", "x"}, Env: map[string]string{"LD_PRELOAD": "x"}}, grants.CommandDenied, "echo .*"},
		"the person, by an entry":              {"", false, grants.Command{Argv: []string{"printf", "x"}, Cwd: b.work}, grants.CommandAutoApproved, ""},
		"the person, anywhere":                 {"", false, grants.Command{Argv: []string{"printf", "x"}, Cwd: b.home}, grants.CommandAutoApproved, ""},
		"the person, a line, without an entry": {"", false, grants.Command{Line: "printf x; id", Cwd: b.work}, grants.CommandTimeout, ""},
	} {
		before := b.count()
		a, err := b.RunOutside(t.Context(), c.session, c.inside, c.c)
		if err != nil || a.Status != c.status || a.Pattern != c.pattern || a.Ran() != (b.count() == before+1) || !a.Ran() && (a.Reason == "" || b.count() != before) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
		if a.Ran() && (a.ExitCode != 3 || string(a.Stdout) != "out" || string(a.Stderr) != "\xff") {
			t.Errorf("%s: %+v", name, a)
		}
	}
	for name, c := range map[string]grants.Command{
		"a line from inside": {Line: "echo x"},
		"nothing":            {},
		"both":               {Line: "x", Argv: []string{"x"}},
		"a zero byte":        words("echo", "\x00"),
		"too long":           words("echo", strings.Repeat("x", policy.MaxLine)),
		"relative":           {Argv: []string{"echo"}, Cwd: "x"},
		"not clean":          {Argv: []string{"echo"}, Cwd: b.work + "/../work"},
		"no path":            {Argv: []string{"echo"}, Cwd: "/" + strings.Repeat("x", maxCwd)},
		"another agent":      {Argv: []string{"echo"}, Agent: "strict"},
		"a word nobody has":  {Argv: []string{"echo"}, Security: "ful"},
	} {
		if a, err := b.RunOutside(t.Context(), main, true, c); !errors.As(err, new(*grants.InvalidError)) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	if _, err := b.RunOutside(t.Context(), "none", true, words("echo")); !errors.As(err, new(*grants.UnknownError)) {
		t.Errorf("%v", err)
	}
}

// A person sees exactly what runs, and their answer is on record before it does.
func TestAPersonDecides(t *testing.T) {
	b := newBench(t, Options{})
	main := b.session("main")
	for _, c := range []struct {
		kind   grants.DecisionKind
		status grants.CommandStatus
		events string
	}{
		{grants.AllowOnce, grants.CommandApproved, "requested decided started ended"},
		{grants.Deny, grants.CommandDenied, "requested decided ended"},
		{grants.AllowAlways, grants.CommandApproved, "requested decided started ended"},
	} {
		seen, before := len(b.events()), b.count()
		answered := b.ask(t.Context(), main, false, grants.Command{Argv: []string{"id", "-u", "a b"}, Reason: "because\x1b", Env: map[string]string{"COLUMNS": "80"}})
		r := b.waiting(1)[0]
		if o := r.Outside; o == nil || r.Agent != "main" || r.Session != main || o.Text != "id -u 'a b'" || o.Cwd != b.work || o.Host != "gateway" || o.Shell ||
			!slices.Equal(o.Programs, []string{"/usr/bin/id"}) || !slices.Equal(o.Env, []string{"COLUMNS=80"}) || len(o.Always) != 1 || len(r.ID) != 16 {
			t.Fatalf("%+v, %+v", r, r.Outside)
		}
		for name, wrong := range map[string]grants.Decision{
			"nothing shown":        {Kind: grants.AllowOnce},
			"something else shown": {Kind: grants.AllowOnce, Shown: strings.Repeat("0", 64)},
			"a path":               {Kind: grants.AllowOnce, Shown: r.Outside.Shown, Path: "/"},
			"an access":            {Kind: grants.AllowOnce, Shown: r.Outside.Shown, Access: profile.ReadOnly},
		} {
			if _, err := b.Decide(t.Context(), r.ID, wrong); !errors.As(err, new(*grants.DecisionError)) {
				t.Errorf("%s: %v", name, err)
			}
		}
		d := grants.Decision{Kind: c.kind, Via: "terminal"}
		if c.kind != grants.Deny {
			d.Shown = r.Outside.Shown
		}
		if _, err := b.Decide(t.Context(), r.ID, d); err != nil {
			t.Fatal(err)
		}
		a := <-answered
		if a.error != nil || a.Status != c.status || a.RequestID != r.ID || c.kind == grants.Deny && a.Reason != "Denied by user" {
			t.Errorf("%+v", a)
		}
		if got := names(b.events()[seen:]); got != c.events {
			t.Errorf("%s: %s", c.kind, got)
		}
		if c.kind != grants.Deny && (b.count() != before+1 || b.ran[before].Approved == nil || b.ran[before].Approved.Answer == "deny") || c.kind == grants.Deny && b.count() != before {
			t.Errorf("%+v", b.ran)
		}
		if _, err := b.Decide(t.Context(), r.ID, d); !errors.As(err, new(*grants.EndedError)) {
			t.Errorf("%v", err)
		}
	}
	// For always: nobody is asked about the same again, and about others still.
	if a, err := b.RunOutside(t.Context(), main, false, grants.Command{Argv: []string{"id", "-u", "a b"}, Env: map[string]string{"COLUMNS": "80"}}); err != nil || a.Status != grants.CommandAutoApproved {
		t.Errorf("%+v, %v", a, err)
	}
	other := b.ask(t.Context(), main, false, words("id", "-u", "a c"))
	b.Decide(t.Context(), b.waiting(1)[0].ID, grants.Decision{Kind: grants.Deny, Reason: "no"})
	if a := <-other; a.Reason != "no" {
		t.Errorf("%+v", a)
	}
}

// Whatever cannot be written did not happen: the command waits on.
func TestADecisionThatCannotBeWrittenIsNone(t *testing.T) {
	b := newBench(t, Options{})
	ctx, leave := context.WithCancel(t.Context())
	answered := b.ask(ctx, b.session("main"), false, words("docker", "ps"))
	r := b.waiting(1)[0]
	b.options.Audit.Close()
	for range 2 {
		if _, err := b.Decide(t.Context(), r.ID, grants.Decision{Kind: grants.AllowOnce, Shown: r.Outside.Shown}); !errors.As(err, new(*grants.UnavailableError)) {
			t.Errorf("%v", err)
		}
	}
	b.waiting(1)
	leave()
	if a := <-answered; !errors.Is(a.error, context.Canceled) || b.count() != 0 {
		t.Errorf("%+v, %d", a, b.count())
	}
	if _, err := b.RunOutside(t.Context(), b.session("main"), true, words("echo", "x")); !errors.As(err, new(*grants.UnavailableError)) || b.count() != 0 {
		t.Errorf("%v: it runs without a record", err)
	}
}

// Where the configuration wants it, nobody is waited for who would not see the question: what the
// host's file says for that case counts at once.
func TestWhereNobodyCanBeReachedNobodyIsWaitedFor(t *testing.T) {
	b := newBench(t, Options{})
	b.write(".config/clai-sandbox/config.json", strings.Replace(config, `"host": "auto"`, `"host": "auto", "unattended": "fallback"`, 1))
	b.write(".config/clai-sandbox/"+host.ApprovalsName, `{"version": 1, "agents": {"main": {"ask": "always"}, "listed": {"ask": "always", "askFallback": "allowlist", "allowlist": [{"pattern": "/usr/bin/printf"}]}}}`)
	main, listed := b.session("main"), b.session("listed")
	for name, c := range map[string]struct {
		session string
		c       grants.Command
		status  grants.CommandStatus
	}{
		"deny":                        {main, words("printf", "x"), grants.CommandTimeout},
		"the list, which has it":      {listed, words("printf", "x"), grants.CommandAutoApproved},
		"the list, which has it not":  {listed, words("id"), grants.CommandTimeout},
		"code is not run by the list": {listed, words("python3", "-c", "1"), grants.CommandTimeout},
	} {
		a, err := b.RunOutside(t.Context(), c.session, false, c.c)
		if err != nil || a.Status != c.status || !a.Ran() && !strings.Contains(a.Reason, "nobody can be reached") {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	ctx, leave := context.WithCancel(t.Context())
	byPerson := b.ask(ctx, "", false, grants.Command{Argv: []string{"id"}, Agent: "main", Cwd: b.work})
	b.waiting(1)
	leave()
	<-byPerson
	ctx, leave = context.WithCancel(t.Context())
	if _, err := b.Events(ctx, grants.EventsFrom{}); err != nil {
		t.Fatal(err)
	}
	heard := b.ask(t.Context(), main, false, words("id"))
	if _, err := b.Decide(t.Context(), b.waiting(1)[0].ID, grants.Decision{Kind: grants.Deny}); err != nil {
		t.Error(err)
	}
	if a := <-heard; a.Status != grants.CommandDenied {
		t.Errorf("%+v", a)
	}
	leave()
}

func TestWhoLeavesWithdraws(t *testing.T) {
	b := newBench(t, Options{})
	s, err := b.Open(t.Context(), grants.SessionSpec{Agent: "main", Workspace: b.work})
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	one, two := b.ask(ctx, s.ID, false, words("docker", "ps")), b.ask(t.Context(), s.ID, false, words("docker", "ps", "-a"))
	b.waiting(2)
	leave()
	if a := <-one; !errors.Is(a.error, context.Canceled) {
		t.Errorf("%+v", a)
	}
	b.waiting(1)
	s.Close() // the session's end is that of all that it asked
	if a := <-two; !errors.Is(a.error, context.Canceled) {
		t.Errorf("%+v", a)
	}
	b.waiting(0)
	if b.count() != 0 || strings.Count(names(b.events()), "ended") != 2 {
		t.Errorf("%s", names(b.events()))
	}
}

func TestOneAgentKeepsNobodyFromBeingHeard(t *testing.T) {
	b := newBench(t, Options{MaxPending: 2, MaxRunning: 1, Every: time.Hour})
	main := b.session("main")
	for range 2 {
		b.ask(t.Context(), main, false, words("docker", "ps"))
	}
	b.waiting(2)
	if _, err := b.RunOutside(t.Context(), main, false, words("docker", "ps")); !errors.As(err, new(*grants.BusyError)) {
		t.Errorf("%v", err)
	}
	b.ask(t.Context(), b.session("other"), false, words("docker", "ps"))
	b.waiting(3)
	var last error
	for range 2 * burst {
		if _, last = b.RunOutside(t.Context(), main, true, words("docker", "compose", "rm")); last != nil {
			break
		}
	}
	if !errors.As(last, new(*grants.BusyError)) {
		t.Errorf("%v: it may ask as often as it likes", last)
	}
}

// What a killed gateway had not answered is ended by the next one, and told to who asks again.
// Nothing runs twice.
func TestTheNextGatewayEndsWhatTheKilledOneLeft(t *testing.T) {
	b := newBench(t, Options{})
	main := b.session("main")
	named := func(name string) context.Context { return grants.WithRequestID(t.Context(), name) }
	if a, err := b.RunOutside(named("over"), main, true, words("echo", "over")); err != nil || !a.Ran() {
		t.Fatalf("%+v, %v", a, err)
	}
	if a, err := b.RunOutside(named("refused"), main, true, words("docker", "rm")); err != nil || a.Status != grants.CommandDenied {
		t.Fatalf("%+v, %v", a, err)
	}
	b.hold = make(chan struct{})
	defer close(b.hold)
	b.ask(named("runs"), main, true, words("echo", "runs"))
	b.ask(named("waits"), main, false, words("docker", "ps"))
	waits := b.waiting(1)[0].ID
	for b.count() != 2 {
		runtime.Gosched()
	}
	for range 300 { // others went on asking
		filler := line{Time: time.Now().UTC(), Event: requested, Command: strings.Repeat("x", 60<<10)}
		if _, err := b.options.Audit.Append(filler, false); err != nil {
			t.Fatal(err)
		}
	}
	b.begin() // the first was killed
	main = b.session("main")
	for name, want := range map[string]struct {
		status grants.CommandStatus
		reason string
	}{
		"waits": {grants.CommandDenied, "the gateway restarted"}, "runs": {grants.CommandError, "ended with it"}, "over": {grants.CommandError, "it ran already"},
		"refused": {grants.CommandDenied, "neither list"},
	} {
		ctx, leave := context.WithTimeout(named(name), 20*time.Second)
		a, err := b.RunOutside(ctx, main, true, words("echo", name))
		leave()
		if err != nil || a.Status != want.status || !strings.Contains(a.Reason, want.reason) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	var ended *grants.EndedError
	if _, err := b.Decide(t.Context(), waits, grants.Decision{}); !errors.As(err, &ended) {
		t.Errorf("%v", err)
	}
	if b.count() != 2 {
		t.Errorf("%d runs", b.count())
	}
	if told := b.told(grants.EventsFrom{Kept: true}); !slices.Contains(told, "Exec denied (gateway id="+waits+", the gateway restarted): docker ps") {
		t.Errorf("%q", told)
	}
	open := map[string]int{}
	for _, l := range b.events() {
		switch l.Event {
		case requested:
			open[l.ID]++
		case "command_ended":
			open[l.ID]--
		}
	}
	for id, n := range open {
		if n != 0 {
			t.Errorf("%s has %+d ends too few", id, n)
		}
	}
	before := len(b.events())
	b.begin()
	if now := len(b.events()); now != before {
		t.Error("they are ended twice")
	}
}

// Of many who answer at once, one counts.
func TestOneAnswerCounts(t *testing.T) {
	b := newBench(t, Options{})
	for i := range 20 {
		answered := b.ask(t.Context(), b.session("main"), false, words("docker", fmt.Sprint(i)))
		r := b.waiting(1)[0]
		var all sync.WaitGroup
		var mu sync.Mutex
		counted := 0
		for range 4 {
			all.Go(func() {
				if _, err := b.Decide(t.Context(), r.ID, grants.Decision{Kind: grants.AllowOnce, Shown: r.Outside.Shown}); err == nil {
					mu.Lock()
					counted++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if a := <-answered; counted != 1 || a.Status != grants.CommandApproved {
			t.Errorf("%d, %+v", counted, a)
		}
	}
	if b.count() != 20 {
		t.Errorf("%d runs", b.count())
	}
}

// What may run is on record as a whole, once. However large what is refused is, and however often
// it is asked for, little is written down.
func TestWhoAsksAgainAndAgainFillsNoDisk(t *testing.T) {
	b := newBench(t, Options{Every: time.Hour})
	main := b.session("main")
	name := filepath.Join(b.home, "state", audit.Name)
	size := func() int64 {
		t.Helper()
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	env := map[string]string{"IMAGE": strings.Repeat("v", 600)}
	large := "'" + strings.Repeat("\x01", 5000)
	if a, err := b.RunOutside(t.Context(), "", false, grants.Command{Argv: []string{"printf", large}, Cwd: b.work}); err != nil || !a.Ran() {
		t.Fatalf("%+v, %v", a, err)
	}
	events := b.events()
	if whole := policy.CanonicalArgv([]string{"printf", large}); events[0].Command != whole || !strings.Contains(events[len(events)-1].Command, fmt.Sprintf("(%d bytes, sha256 ", len(whole))) {
		t.Errorf("%.100q, %.100q", events[0].Command, events[len(events)-1].Command)
	}
	for name, c := range map[string]grants.Command{"words": words("docker", large), "variables": {Argv: []string{"docker", "rm"}, Env: env}} {
		before := size()
		if a, err := b.RunOutside(t.Context(), main, true, c); err != nil || a.Status != grants.CommandDenied {
			t.Fatalf("%s: %+v, %v", name, a, err)
		}
		if grew := size() - before; grew > 5*maxBrief {
			t.Errorf("%s: %d bytes for a refusal", name, grew)
		}
	}
	// The largest that there may be is looked at, too.
	if _, err := b.RunOutside(t.Context(), b.session("other"), true, grants.Command{Argv: []string{"docker", strings.Repeat("'", policy.MaxLine-100)}, Env: env}); err != nil {
		t.Error(err)
	}
	answers := 0
	for range burst {
		_, err := b.RunOutside(t.Context(), main, false, words("printf", large))
		if errors.As(err, new(*grants.BusyError)) {
			break
		}
		answers++
	}
	if answers > burst/4 {
		t.Errorf("%d large commands are written down as if they were small", answers)
	}
}

// A command is run once for a name, also when it is asked for twice at a time, and however much
// others ask for.
func TestUnderOneNameACommandRunsOnce(t *testing.T) {
	b := newBench(t, Options{Every: time.Nanosecond})
	b.hold = make(chan struct{})
	main := b.session("main")
	named := grants.WithRequestID(t.Context(), "once")
	var answers []<-chan result
	for range 3 {
		answers = append(answers, b.ask(named, main, true, words("echo", "x")))
	}
	for {
		b.mu.Lock()
		first := len(b.ran) > 0
		b.mu.Unlock()
		b.Broker.mu.Lock()
		all := b.Broker.running == 3
		b.Broker.mu.Unlock()
		if first && all {
			break
		}
		runtime.Gosched()
	}
	close(b.hold)
	ran := 0
	for _, answer := range answers {
		if a := <-answer; a.error != nil {
			t.Error(a.error)
		} else if a.Ran() {
			ran++
		}
	}
	other := b.session("other")
	for i := range maxTold + 1 {
		if _, err := b.RunOutside(grants.WithRequestID(t.Context(), fmt.Sprint(i)), other, true, words("docker", "rm")); err != nil {
			t.Fatal(err)
		}
	}
	if a, err := b.RunOutside(named, main, true, words("echo", "x")); err != nil || a.Ran() {
		t.Errorf("%+v, %v", a, err)
	}
	if ran != 1 || b.count() != 1 {
		t.Errorf("it ran %d times, and %d were told of that", b.count(), ran)
	}
}

// Who says that no program obeys the workspace has the automatic list decide alone.
func TestTheListOfWhatObeysTheWorkspaceIsThePersons(t *testing.T) {
	for list, want := range map[string]grants.CommandStatus{`[]`: grants.CommandAutoApproved, `["doc*"]`: grants.CommandAutoApproved, `["git"]`: grants.CommandTimeout} {
		b := newBench(t, Options{Timeout: 50 * time.Millisecond})
		b.write(".config/clai-sandbox/config.json", strings.Replace(config, `"hostexec": {`, `"hostexec": {"obeysWorkspace": `+list+`, `, 1))
		if a, err := b.RunOutside(t.Context(), b.session("main"), true, words("git", "status")); err != nil || a.Status != want {
			t.Errorf("%s: %+v, %v", list, a, err)
		}
	}
	b := newBench(t, Options{})
	b.ask(t.Context(), b.session("main"), true, words("git", "status"))
	r := b.waiting(1)[0]
	if r.Outside.Why != "hostexec.obeysWorkspace" || len(r.Outside.Always) != 0 || !slices.ContainsFunc(r.Warnings, func(w grants.Warning) bool {
		return strings.HasPrefix(w.Text, "git executes what settings in the workspace name")
	}) {
		t.Errorf("%+v %+v", r.Outside, r.Warnings)
	}
}

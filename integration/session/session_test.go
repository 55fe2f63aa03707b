package session

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/integration/gateway"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
	"github.com/clairun/clai-sandbox/sandbox"
	"github.com/clairun/clai-sandbox/wire/socket"
)

// The test binary is also what a sandbox shows as fs_request_grant, and the mounter.
func TestMain(m *testing.M) {
	sandbox.InsideMain()
	if filepath.Base(os.Args[0]) == client.AskName {
		os.Exit(client.Programs[client.AskName](context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// place is a person's machine: a home, a gateway, and something that nothing grants.
type place struct {
	t      testing.TB
	caller profile.Caller
	config *profile.Config
	work   string
	other  string // outside the home
	person *client.Client
	bwrap  sandbox.Bwrap
	stop   func()
}

func newPlace(t testing.TB) *place {
	t.Helper()
	base, err := os.MkdirTemp("/var/tmp", "clai-sandbox-session-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shuttest.RemoveAll(base) })
	p := &place{t: t, work: base + "/home/work", other: base + "/other"}
	for _, dir := range []string{p.work, p.other, base + "/run", base + "/home/.config", base + "/home/.local/state"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p.caller = profile.Caller{UID: os.Getuid(), Home: base + "/home", User: "tester", Shell: "/bin/sh", WorkingDirectory: p.work,
		Environ: []string{"XDG_RUNTIME_DIR=" + base + "/run", "PATH=/usr/bin:/bin"}}
	d := p.caller.Directories()
	for _, dir := range []string{d.Config, d.State} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if p.config, err = profile.Load(d); err != nil {
		t.Fatal(err)
	}
	if p.bwrap, err = sandbox.FindBwrap("", d.State); err != nil {
		t.Fatal(err)
	}
	p.startGateway()
	p.person = &client.Client{Socket: filepath.Join(grants.SocketDirectory(d), grants.SocketName)}
	p.until("the gateway answers", func() bool { _, err := p.person.Status(context.Background()); return err == nil })
	return p
}

func (p *place) startGateway() {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		err := gateway.Run(ctx, gateway.Options{Directories: p.caller.Directories(), Home: p.caller.Home, User: "tester", Version: "test"})
		if err != nil && ctx.Err() == nil {
			p.t.Error(err)
		}
	}()
	p.stop = func() { cancel(); <-over }
	p.t.Cleanup(p.stop)
}

func (p *place) until(what string, done func() bool) {
	p.t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("not in time: %s", what)
		}
	}
}

func (p *place) write(name, text string) string {
	p.t.Helper()
	path := filepath.Join(p.other, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return path
}

func (p *place) open(live bool) *Session {
	p.t.Helper()
	s, err := Open(context.Background(), Options{Caller: p.caller, Config: p.config, Broker: p.person, Live: live, Command: "test"})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(s.Close)
	return s
}

// run runs a shell script in a sandbox of the session's.
func (p *place) run(s *Session, script string) string {
	p.t.Helper()
	prepared, err := s.Prepare(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := os.CreateTemp(p.other, "output") // one file for both streams, so that they keep their order
	if err != nil {
		p.t.Fatal(err)
	}
	defer out.Close()
	if _, err := prepared.Run(context.Background(), sandbox.Launcher{Bwrap: p.bwrap}, []string{"/bin/sh", "-c", script}, sandbox.Stdio{Out: out, Err: out}); err != nil {
		p.t.Fatal(err)
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// pending waits for a request.
func (p *place) pending() (r grants.Request) {
	p.t.Helper()
	p.until("somebody asks", func() bool {
		list, err := p.person.Pending(context.Background())
		if err != nil {
			p.t.Fatal(err)
		}
		if len(list) > 0 {
			r = list[0]
		}
		return len(list) > 0
	})
	return r
}

func (p *place) decide(r grants.Request, d grants.Decision) grants.Answer {
	p.t.Helper()
	answer, err := p.person.Decide(context.Background(), r.ID, d)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer
}

// The whole story: an agent in one running sandbox fails to read, asks, is granted less than it
// asked for, reads, cannot write, and when the grant is revoked, cannot read any more.
func TestAnAgentAsksIsGrantedLessAndLosesIt(t *testing.T) {
	p := newPlace(t)
	file := p.write("project/data/file", "content")
	p.write("project/secret", "secret")
	s := p.open(true)
	said := make(chan string)
	go func() {
		said <- p.run(s, strings.NewReplacer("FILE", file, "OTHER", p.other).Replace(`
			cat FILE || echo "1: cannot read"
			fs_request_grant OTHER/project --access read_write --reason "to fix the data"
			cat FILE && echo " 2: can read"
			echo x > FILE || echo "3: cannot write"
			cat OTHER/project/secret || echo "4: not what is beside it"
			touch read; n=0; while ! [ -e revoked ] && [ $n -lt 2000 ]; do sleep 0.01; n=$((n+1)); done
			cat FILE || echo "5: cannot read any more"
			cd OTHER/project/data || echo "6: nor go there"`))
	}()
	r := p.pending()
	if r.RequestedPath != p.other+"/project" || r.RequestedAccess != profile.ReadWrite || r.Reason != "to fix the data" {
		t.Errorf("%+v", r)
	}
	answer := p.decide(r, grants.Decision{Kind: grants.AllowOnce, Path: filepath.Dir(file), Access: profile.ReadOnly})
	p.until("the agent has read", func() bool { _, err := os.Stat(p.work + "/read"); return err == nil })
	if _, err := p.person.Revoke(context.Background(), answer.GrantID); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.work+"/revoked", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	out := <-said
	if n := s.Notices(); len(n) != 1 || n[0].Kind != "path_granted" || n[0].Path != filepath.Dir(file) {
		t.Errorf("%v", n)
	}
	at := 0
	for _, part := range []string{"1: cannot read", "granted: " + filepath.Dir(file) + " read_only, which is less than was asked for, and visible now",
		"content 2: can read", "3: cannot write", "4: not what is beside it", "5: cannot read any more", "6: nor go there"} {
		next := strings.Index(out[at:], part)
		if next < 0 {
			t.Fatalf("no %q after %d in:\n%s", part, at, out)
		}
		at += next
	}
}

func TestTheRunTellsWhatWasDenied(t *testing.T) {
	p := newPlace(t)
	s := p.open(true)
	said := make(chan string)
	go func() { said <- p.run(s, "fs_request_grant "+p.other+"; fs_request_grant "+p.other) }()
	p.decide(p.pending(), grants.Decision{Kind: grants.Deny, Reason: "no"})
	if out := <-said; strings.Count(out, "denied: no") != 2 {
		t.Errorf("%s", out)
	}
	if n := s.Notices(); len(n) != 1 || string(n[0].Kind) != "path_grant_denied" || n[0].Path != p.other {
		t.Errorf("%v", n)
	}
}

func TestWhatIsGrantedForAlwaysIsThereInTheNextSession(t *testing.T) {
	p := newPlace(t)
	file := p.write("data", "content")
	s := p.open(false)
	said := make(chan string)
	go func() { said <- p.run(s, "fs_request_grant "+file+"; cat "+file) }()
	p.decide(p.pending(), grants.Decision{Kind: grants.AllowAlways, Path: file, Access: profile.ReadOnly, Scope: grants.ScopeAlways})
	if out := <-said; !strings.Contains(out, "for the next command; this one does not see it") || !strings.Contains(out, "No such file") {
		t.Errorf("%s", out)
	}
	if out := p.run(s, "cat "+file); out != "content" {
		t.Errorf("the session's next command: %s", out)
	}
	s.Close()
	p.stop()
	withoutBroker, err := Open(context.Background(), Options{Caller: p.caller, Config: p.config})
	if err != nil {
		t.Fatal(err)
	}
	if out := p.run(withoutBroker, "cat "+file); out != "content" {
		t.Errorf("without a broker: %s", out)
	}
}

func TestWhatIsGrantedOnceEndsWithTheSession(t *testing.T) {
	p := newPlace(t)
	file := p.write("data", "content")
	first, second := p.open(true), p.open(true)
	said := make(chan string)
	go func() { said <- p.run(first, "fs_request_grant "+file+"; cat "+file) }()
	p.decide(p.pending(), grants.Decision{Kind: grants.AllowOnce, Path: file, Access: profile.ReadOnly})
	if out := <-said; !strings.HasSuffix(out, "content") {
		t.Errorf("%s", out)
	}
	if out := p.run(first, "cat "+file); out != "content" {
		t.Errorf("the same session: %s", out)
	}
	if out := p.run(second, "cat "+file); !strings.Contains(out, "No such file") {
		t.Errorf("another session: %s", out)
	}
	first.Close()
	if out := p.run(p.open(true), "cat "+file); !strings.Contains(out, "No such file") {
		t.Errorf("a later session: %s", out)
	}
}

// A stored grant of a deeper path takes nothing away that the configuration gives above it.
func TestAnApprovalOnlyEverAdds(t *testing.T) {
	p := newPlace(t)
	below := p.work + "/below"
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := p.person.Add(context.Background(), grants.NewGrant{Agent: "main", Path: below, Access: profile.ReadOnly}); err != nil {
		t.Fatal(err)
	}
	if out := p.run(p.open(true), "echo x > "+below+"/file && cat "+below+"/file"); out != "x" {
		t.Errorf("%s", out)
	}
}

// When the broker goes away, what was granted for the session only is over, also in the sandbox
// that runs.
func TestALostBrokerTakesAwayWhatItGaveForOnce(t *testing.T) {
	p := newPlace(t)
	once, always := p.write("once/file", "one"), p.write("always/file", "two")
	s := p.open(true)
	said := make(chan string)
	go func() {
		said <- p.run(s, "fs_request_grant "+once+"; fs_request_grant "+always+"; cat "+once+" "+always+
			"; touch read; n=0; while cat "+once+" >/dev/null 2>&1 && [ $n -lt 2000 ]; do sleep 0.01; n=$((n+1)); done; cat "+once+" "+always)
	}()
	p.decide(p.pending(), grants.Decision{Kind: grants.AllowOnce, Path: once, Access: profile.ReadOnly})
	p.decide(p.pending(), grants.Decision{Kind: grants.AllowAlways, Path: always, Access: profile.ReadOnly, Scope: grants.ScopeAlways})
	p.until("both are read", func() bool { _, err := os.Stat(p.work + "/read"); return err == nil })
	p.stop()
	out := <-said
	if !strings.Contains(out, "onetwo") || !strings.HasSuffix(out, "No such file or directory\ntwo") {
		t.Errorf("%s", out)
	}
	if n := s.Notices(); len(n) == 0 || !slices.ContainsFunc(n, func(n sandbox.Notice) bool { return n.Kind == NoticeBroker }) {
		t.Errorf("%v", n)
	}
}

func TestAGrantThatBecameALinkIsLeftOutOfARunningSandboxToo(t *testing.T) {
	p := newPlace(t)
	p.write("elsewhere/file", "secret")
	dir := filepath.Dir(p.write("data/file", "content"))
	s := p.open(true)
	said := make(chan string)
	go func() {
		said <- p.run(s, "touch begun; n=0; while [ ! -e go ] && [ $n -lt 2000 ]; do sleep 0.01; n=$((n+1)); done; cat "+dir+"/file")
	}()
	p.until("it runs", func() bool { _, err := os.Stat(p.work + "/begun"); return err == nil })
	g, err := p.person.Add(context.Background(), grants.NewGrant{Agent: "main", Path: dir, Access: profile.ReadOnly})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.person.Revoke(context.Background(), g.ID); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(p.other+"/elsewhere", dir); err != nil {
		t.Fatal(err)
	}
	// What the agent could do if it won each race: the grant of the directory reaches the session
	// after the swap.
	s.mu.Lock()
	s.held[g.ID] = g
	list := make([]*running, 0, 1)
	for r := range s.running {
		list = append(list, r)
	}
	s.mu.Unlock()
	for _, r := range list {
		s.update(r, true)
	}
	if err := os.WriteFile(p.work+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := <-said; !strings.Contains(out, "No such file") {
		t.Errorf("%s", out)
	}
}

// BenchmarkARequestBecomesVisible is what an agent waits for beside the person: from asking to
// reading.
func BenchmarkARequestBecomesVisible(b *testing.B) {
	p := newPlace(b)
	var agents []string
	for i := range 1000 {
		agents = append(agents, fmt.Sprintf(`"a%d": {}`, 16*i))
	}
	directories := p.caller.Directories()
	settings := `{"agents": {` + strings.Join(agents, ", ") + `}}`
	err := os.WriteFile(directories.Config+"/config.json", []byte(settings), 0o600)
	if err == nil {
		p.config, err = profile.Load(directories)
	}
	if err != nil {
		b.Fatal(err)
	}
	events, err := p.person.Events(context.Background(), grants.EventsFrom{})
	if err != nil {
		b.Fatal(err)
	}
	go func() { // a person without hesitation
		for e := range events {
			if e.Kind == grants.EventRequestPending {
				p.person.Decide(context.Background(), e.Request.ID, grants.Decision{Kind: grants.AllowOnce, Path: e.Request.ResolvedPath, Access: profile.ReadOnly})
			}
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var inside *client.Client
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		file := p.write(fmt.Sprintf("data-%d/file", i), "content")
		if i%16 == 0 { // as many as one agent may ask in a row
			b.StopTimer()
			s, err := Open(ctx, Options{Caller: p.caller, Config: p.config, Broker: p.person, Live: true, Request: profile.Request{Agent: fmt.Sprint("a", i)}})
			if err != nil {
				b.Fatal(err)
			}
			prepared, err := s.Prepare(nil)
			if err != nil {
				b.Fatal(err)
			}
			read, write, err := os.Pipe()
			if err != nil {
				b.Fatal(err)
			}
			go prepared.Run(ctx, sandbox.Launcher{Bwrap: p.bwrap}, []string{"/bin/sh", "-c", "echo; exec sleep 3600"}, sandbox.Stdio{Out: write})
			read.Read(make([]byte, 1))
			inside = &client.Client{Socket: s.Socket()}
			b.StartTimer()
		}
		began := time.Now()
		answer, err := inside.Ask(ctx, "", grants.Asking{Path: filepath.Dir(file), Access: profile.ReadOnly})
		took = append(took, time.Since(began))
		if err != nil || answer.Visible != grants.VisibleNow {
			b.Fatalf("%+v, %v", answer, err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/median")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms/p99")
}

// What was granted between Prepare and Run changes what the sandbox shows, and takes nothing away
// that was shown besides.
func TestAProgramThatIsShownStaysWhenSomethingIsGrantedBeforeTheRun(t *testing.T) {
	p := newPlace(t)
	s := p.open(true)
	prepared, err := s.Prepare(nil)
	if err != nil {
		t.Fatal(err)
	}
	places := []string{prepared.ShowProgram("files"), prepared.ShowProgram("shell")}
	granted := p.write("granted", "granted\n")
	before := s.versionNow()
	if _, err := p.person.Add(t.Context(), grants.NewGrant{Agent: "main", Path: granted, Access: profile.ReadOnly}); err != nil {
		t.Fatal(err)
	}
	p.until("the session hears of the grant", func() bool { return s.versionNow() > before })
	var out bytes.Buffer
	script := "cat " + granted + "; for p; do test -x $p && echo there; done"
	if _, err := prepared.Run(t.Context(), sandbox.Launcher{Bwrap: p.bwrap}, append([]string{"/bin/sh", "-c", script, "sh"}, places...), sandbox.Stdio{Out: &out}); err != nil {
		t.Fatal(err)
	}
	if out.String() != "granted\nthere\nthere\n" {
		t.Errorf("%q", out.String())
	}
}

func (s *Session) versionNow() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// running starts a sandbox that shows a path as long as it can, and says when it cannot any more.
func (p *place) showing(s *Session, path string) (gone chan string) {
	p.t.Helper()
	gone = make(chan string, 1)
	go func() {
		gone <- p.run(s, "touch begun; n=0; while cat "+path+" >/dev/null 2>&1 && [ $n -lt 3000 ]; do touch seen; sleep 0.01; n=$((n+1)); done; echo after $n")
	}()
	p.until("it is seen", func() bool { _, err := os.Stat(p.work + "/seen"); return err == nil })
	return gone
}

func (p *place) wentAway(gone chan string) {
	p.t.Helper()
	select {
	case out := <-gone:
		if strings.Contains(out, "after 3000") || !strings.Contains(out, "after ") {
			p.t.Errorf("%s", out)
		}
	case <-time.After(25 * time.Second):
		p.t.Fatal("it is shown to the end")
	}
}

// The gateway may end while a sandbox runs: by a stop, an upgrade, a logout. The next one takes
// away from it as the first would.
func TestTheNextGatewayRevokesFromASandboxThatRuns(t *testing.T) {
	for _, narrow := range []bool{false, true} {
		p := newPlace(t)
		file := p.write("data/file", "content")
		access := profile.ReadOnly
		if narrow {
			access = profile.ReadWrite
		}
		g, err := p.person.Add(t.Context(), grants.NewGrant{Agent: "main", Path: p.other + "/data", Access: access})
		if err != nil {
			t.Fatal(err)
		}
		s := p.open(true)
		var gone chan string
		if narrow {
			gone = make(chan string, 1)
			go func() {
				gone <- p.run(s, "n=0; while echo x 2>/dev/null >> "+file+" && [ $n -lt 3000 ]; do touch seen; sleep 0.01; n=$((n+1)); done; echo after $n")
			}()
			p.until("it is written", func() bool { _, err := os.Stat(p.work + "/seen"); return err == nil })
		} else {
			gone = p.showing(s, file)
		}
		p.stop()
		p.until("the session has noticed", func() bool { return !s.joined() })
		if out := p.run(s, "cat "+file); !strings.Contains(out, "content") {
			t.Errorf("what is stored is shown without a gateway: %s", out)
		}
		p.startGateway()
		p.until("the next answers", func() bool { _, err := p.person.Status(context.Background()); return err == nil })
		var taken grants.Taking
		if narrow {
			taken, err = p.person.Narrow(t.Context(), g.ID)
		} else {
			taken, err = p.person.Revoke(t.Context(), g.ID)
		}
		if err != nil || len(taken.Unreached) != 0 {
			t.Errorf("%+v, %v", taken.Unreached, err)
		}
		p.wentAway(gone)
		// And the session can ask again.
		asked := make(chan grants.Answer, 1)
		go func() {
			answer, err := s.Ask(context.Background(), grants.Asking{Path: p.other + "/more", Access: profile.ReadOnly})
			if err != nil {
				t.Error(err)
			}
			asked <- answer
		}()
		p.decide(p.pending(), grants.Decision{Kind: grants.AllowOnce, Path: p.other + "/more", Access: profile.ReadOnly})
		if answer := <-asked; !answer.Granted {
			t.Errorf("%+v", answer)
		}
		s.Close()
		p.stop()
	}
}

// A time that was said is over when it is, with or without a gateway.
func TestAGrantExpiresInASandboxThatRunsWithoutAGateway(t *testing.T) {
	p := newPlace(t)
	file := p.write("data/file", "content")
	expires := 3 * time.Second
	if _, err := p.person.Add(t.Context(), grants.NewGrant{Agent: "main", Path: file, Access: profile.ReadOnly, ExpiresIn: grants.Duration(expires)}); err != nil {
		t.Fatal(err)
	}
	s := p.open(true)
	gone := p.showing(s, file)
	p.stop()
	// Nor does it last longer when the clock is set back.
	s.mu.Lock()
	s.endings.Clock = func() (time.Time, time.Duration) {
		day, up := grants.MachineClock()
		return day.Add(-time.Hour), up
	}
	s.mu.Unlock()
	p.wentAway(gone)
}

// Where it cannot be said what a sandbox should show, it does not go on showing what was taken
// away.
func TestASandboxThatCannotBeToldIsEnded(t *testing.T) {
	p := newPlace(t)
	file := p.write("data/file", "content")
	g, err := p.person.Add(t.Context(), grants.NewGrant{Agent: "main", Path: file, Access: profile.ReadOnly})
	if err != nil {
		t.Fatal(err)
	}
	s := p.open(true)
	gone := p.showing(s, file)
	if err := os.Rename(p.work, p.work+".moved"); err != nil { // what is to be shown cannot be built any more
		t.Fatal(err)
	}
	taken, err := p.person.Revoke(t.Context(), g.ID)
	if err != nil || len(taken.Unreached) > 1 {
		t.Errorf("%+v, %v", taken, err)
	}
	select {
	case out := <-gone:
		if strings.Contains(out, "after 3000") {
			t.Errorf("%s", out)
		}
	case <-time.After(25 * time.Second):
		t.Fatal("it goes on")
	}
}

// A command that runs can ask the next gateway at the socket that it has had from its start.
func TestTheInsideAsksTheNextGateway(t *testing.T) {
	p := newPlace(t)
	file := p.write("data/file", "content")
	s := p.open(true)
	said := make(chan string, 1)
	go func() {
		said <- p.run(s, "touch begun; n=0; while [ ! -e go ] && [ $n -lt 3000 ]; do sleep 0.01; n=$((n+1)); done; fs_request_grant "+file+"; cat "+file)
	}()
	p.until("it runs", func() bool { _, err := os.Stat(p.work + "/begun"); return err == nil })
	p.stop()
	p.until("the session has noticed", func() bool { return !s.joined() })
	p.startGateway()
	p.until("the next answers", func() bool { _, err := p.person.Status(context.Background()); return err == nil })
	if err := os.WriteFile(p.work+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.decide(p.pending(), grants.Decision{Kind: grants.AllowOnce, Path: file, Access: profile.ReadOnly})
	if out := <-said; !strings.Contains(out, "visible now") || !strings.HasSuffix(out, "content") {
		t.Errorf("%s", out)
	}
	path := s.Socket()
	s.Close()
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket is left")
	}
}

// The next gateway may be there and stand still, as one that was stopped does: who leaves does not
// wait for it.
func TestALeavingSessionWaitsForNoGatewayThatStandsStill(t *testing.T) {
	p := newPlace(t)
	s := p.open(true)
	p.stop()
	p.until("the session has noticed", func() bool { return !s.joined() })
	l, err := socket.Listen(filepath.Join(grants.SocketDirectory(p.caller.Directories()), grants.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := l.Accept() // the session has come to join it
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	closed := make(chan struct{})
	go func() { s.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Fatal("it waits")
	}
}

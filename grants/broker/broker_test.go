package broker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/audit"
	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/brokertest"
	"github.com/clairun/clai-sandbox/grants/store"
	"github.com/clairun/clai-sandbox/profile"
)

type bench struct {
	*Broker
	home, state string
	store       *store.Store
}

func newBench(t testing.TB, o Options) *bench {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{home: home, state: home + "/.state"}
	var notices []grants.Notice
	if b.store, notices, err = store.Open(b.state); err != nil || len(notices) > 0 {
		t.Fatal(err, notices)
	}
	record, problems := audit.Open(filepath.Join(b.state, audit.Name), 0)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	o.Rules, o.Store, o.Audit, o.User = grants.NewRules(home, []string{b.state}, nil), b.store, record, "tester"
	if b.Broker, err = New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Close()
		record.Close()
		b.store.Close()
	})
	return b
}

func TestBroker(t *testing.T) {
	brokertest.Run(t, func(t *testing.T, l brokertest.Limits) *brokertest.Bench {
		b := newBench(t, Options{Timeout: l.Timeout, MaxPending: l.MaxPending, AskEvery: l.AskEvery})
		return &brokertest.Bench{Broker: b.Broker, Home: b.home, State: b.state}
	})
}

func (b *bench) session(t testing.TB, agent string) *grants.Session {
	t.Helper()
	s, err := b.Open(t.Context(), grants.SessionSpec{Agent: agent, Workspace: b.home + "/work"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pendingOf waits until a number of requests wait.
func (b *bench) pendingOf(t testing.TB, n int) []grants.Request {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
		list, _ := b.Pending(t.Context())
		if len(list) == n {
			return list
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d wait, want %d", len(list), n)
		}
	}
}

func TestTheAuditFileHasEveryDecisionBeforeItTakesEffect(t *testing.T) {
	b := newBench(t, Options{})
	s := b.session(t, "main")
	reason := "because\n\x1b[2J\u202egpj.exe\u2028\u0085 \U000e0041"
	go b.Ask(t.Context(), s.ID, grants.Asking{Path: "~/a", Access: profile.ReadOnly, Reason: reason})
	r := b.pendingOf(t, 1)[0]
	if _, err := b.Decide(t.Context(), r.ID, grants.Decision{Kind: grants.AllowAlways, Path: "~/a", Access: profile.ReadOnly, Scope: grants.ScopeAlways}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(b.state, audit.Name)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var events []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		for _, c := range lines.Text() {
			if c != ' ' && !strings.ContainsRune("…", c) && (c < 0x20 || c == 0x7f || c == 0x202e || c == 0x2028 || c == 0x85 || c == 0xe0041) {
				t.Errorf("%U in %q", c, lines.Text())
			}
		}
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e.Event)
		if e.Event == "checkpoint" {
			continue
		}
		if e.Request.Reason != reason || e.User != "tester" {
			t.Errorf("%q", e.Request.Reason)
		}
	}
	if fmt.Sprint(events) != "[grant_requested grant_decided checkpoint]" {
		t.Error(events)
	}
}

// Whatever cannot be written did not happen: the request waits on.
func TestADecisionThatCannotBeWrittenIsNone(t *testing.T) {
	for name, breakIt := range map[string]func(*bench){
		"audit": func(b *bench) { b.options.Audit.Close() },
		"store": func(b *bench) { b.store.Close() },
	} {
		for _, kind := range []grants.DecisionKind{grants.Deny, grants.AllowOnce, grants.AllowAlways} {
			t.Run(fmt.Sprint(name, " ", kind), func(t *testing.T) {
				b := newBench(t, Options{})
				s := b.session(t, "main")
				ctx, leave := context.WithCancel(t.Context())
				left := make(chan error, 1)
				go func() {
					_, err := b.Ask(ctx, s.ID, grants.Asking{Path: "~/a", Access: profile.ReadOnly})
					left <- err
				}()
				r := b.pendingOf(t, 1)[0]
				breakIt(b)
				d := grants.Decision{Kind: kind, Path: "~/a", Access: profile.ReadOnly}
				if kind == grants.AllowAlways {
					d.Scope = grants.ScopeAlways
				}
				_, err := b.Decide(t.Context(), r.ID, d)
				var unavailable *grants.UnavailableError
				if !errors.As(err, &unavailable) {
					t.Errorf("%v", err)
				}
				b.pendingOf(t, 1)
				if all := len(b.granted.byID); all != 0 {
					t.Errorf("%d granted", all)
				}
				leave()
				if err := <-left; !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				b.pendingOf(t, 0)
			})
		}
	}
}

// TestASymlinkSwappedAtAnyMomentLeadsNowhereElse swaps what is asked for between a directory and a
// link out, as fast as it can, while it is asked for, decided on, stored and run. Nothing but the
// directory is ever granted or shown.
func TestASymlinkSwappedAtAnyMomentLeadsNowhereElse(t *testing.T) {
	b := newBench(t, Options{MaxPending: 1 << 20, AskEvery: time.Nanosecond})
	target, link, dir := b.home+"/target", b.home+"/link", b.home+"/dir"
	secret := b.home + "/secret"
	for _, path := range []string{dir, secret} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, target); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				syscall.Rename(target, dir) // the directory away
				syscall.Rename(link, target)
				runtime.Gosched()
				syscall.Rename(target, link)
				syscall.Rename(dir, target)
			}
		}
	})
	defer swapping.Wait()
	defer close(stop)
	granted, refused := 0, 0
	for i := 0; i < 400 && !t.Failed(); i++ {
		s := b.session(t, "main")
		ctx, leave := context.WithCancel(t.Context())
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			b.Ask(ctx, s.ID, grants.Asking{Path: target, Access: profile.ReadOnly})
		}()
		var shown grants.Request
	wait:
		for {
			select {
			case <-answered:
				break wait
			default:
				if list, _ := b.Pending(ctx); len(list) == 1 {
					shown = list[0]
					break wait
				}
				runtime.Gosched()
			}
		}
		if shown.ID != "" && shown.ResolvedPath == target { // the person was shown the directory, and nothing else
			answer, err := b.Decide(ctx, shown.ID, grants.Decision{Kind: grants.AllowAlways, Path: target, Access: profile.ReadOnly, Scope: grants.ScopeAlways})
			if err != nil {
				refused++
			} else {
				granted++
				b.mu.Lock()
				g := b.granted.byID[answer.GrantID]
				b.mu.Unlock()
				if g != nil && g.Resolved != target {
					t.Errorf("granted %+v", g)
				}
				list, _ := grants.Current(b.state, "main", time.Now())
				for _, p := range list {
					if p.Path != target {
						t.Errorf("shown %+v", p)
					}
				}
				b.Revoke(ctx, answer.GrantID)
			}
		}
		leave()
		s.Close()
		<-answered
	}
	t.Logf("%d granted, %d refused", granted, refused)
	if granted == 0 {
		t.Error("nothing was ever granted: the test tries nothing")
	}
}

// A reader that is too slow must not hold up anybody, and must know that it missed something.
func TestASlowListenerIsCutOff(t *testing.T) {
	b := newBench(t, Options{})
	events, err := b.Events(t.Context(), grants.EventsFrom{})
	if err != nil {
		t.Fatal(err)
	}
	for range eventBuffer + 10 {
		b.Notify(grants.Notice{Kind: grants.NoticeStore, Text: "x"})
	}
	n := 0
	for range events {
		n++
	}
	if n != eventBuffer {
		t.Errorf("%d events", n)
	}
}

// A sandbox that does not hear of a grant that was revoked would go on showing it.
func TestASessionThatDoesNotListenIsEnded(t *testing.T) {
	b := newBench(t, Options{})
	s := b.session(t, "main")
	for i := range eventBuffer + 1 {
		if _, err := b.Add(t.Context(), grants.NewGrant{Agent: "main", Path: fmt.Sprint("~/f", i), Access: profile.ReadOnly}); err != nil {
			t.Fatal(err)
		}
	}
	for range s.Events {
	}
	for deadline := time.Now().Add(10 * time.Second); !b.Idle(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("it is still open")
		}
	}
}

func TestAThousandRequestsWaitAtOnce(t *testing.T) {
	b := newBench(t, Options{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var answered sync.WaitGroup
	for agent := range 100 {
		s := b.session(t, fmt.Sprint("agent-", agent))
		for n := range 10 {
			answered.Go(func() {
				answer, err := b.Ask(t.Context(), s.ID, grants.Asking{Path: fmt.Sprint("~/dir/", n), Access: profile.ReadOnly, Reason: "one of a thousand"})
				if err != nil || !answer.Granted {
					t.Errorf("%+v, %v", answer, err)
				}
			})
		}
	}
	list := b.pendingOf(t, 1000)
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("%d KiB for each of a thousand requests", (int64(after.HeapAlloc+after.StackInuse)-int64(before.HeapAlloc+before.StackInuse))/1000/1024)
	for _, r := range list {
		if _, err := b.Decide(t.Context(), r.ID, grants.Decision{Kind: grants.AllowOnce, Path: r.RequestedPath, Access: r.RequestedAccess}); err != nil {
			t.Fatal(err)
		}
	}
	answered.Wait()
}

// Whoever sets the clock back makes nothing last longer: the broker takes it away, on the disk as
// well.
func TestAClockThatIsSetBackMakesNoGrantLonger(t *testing.T) {
	var back, on atomic.Int64
	b := newBench(t, Options{Clock: func() (time.Time, time.Duration) {
		day, up := grants.MachineClock()
		return day.Add(time.Duration(on.Load() - back.Load())), up + time.Duration(on.Load())
	}})
	if err := os.WriteFile(b.home+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Add(t.Context(), grants.NewGrant{Agent: "main", Path: "~/file", Access: profile.ReadOnly, ExpiresIn: grants.Duration(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ on, back time.Duration }{{0, 24 * time.Hour}, {time.Hour - time.Minute, 24 * time.Hour}, {time.Hour, 24 * time.Hour}} {
		on.Store(int64(c.on))
		back.Store(int64(c.back))
		b.expire()
		list, err := b.Grants(t.Context())
		stored, _ := grants.Current(b.state, "main", time.Now())
		if want := c.on < time.Hour; err != nil || (len(list) == 1) != want || (len(stored) == 1) != want {
			t.Errorf("after %v: %v, stored %v, %v", c.on, list, stored, err)
		}
	}
}

func TestWithoutAnAuditFileNothingIsGivenAndAllIsTakenAway(t *testing.T) {
	b := newBench(t, Options{})
	g, err := b.Add(t.Context(), grants.NewGrant{Agent: "main", Path: "~/a", Access: profile.ReadOnly})
	if err != nil {
		t.Fatal(err)
	}
	broken, notices := audit.Open(filepath.Join(b.state, "no-such-directory", audit.Name), 0)
	if len(notices) != 1 {
		t.Errorf("%v", notices)
	}
	b.options.Audit = broken
	if _, err := b.Add(t.Context(), grants.NewGrant{Agent: "main", Path: "~/b", Access: profile.ReadOnly}); !errors.As(err, new(*grants.UnavailableError)) {
		t.Errorf("%v", err)
	}
	s := b.session(t, "main")
	if _, err := b.Ask(t.Context(), s.ID, grants.Asking{Path: "/proc", Access: profile.ReadOnly}); !errors.As(err, new(*grants.UnavailableError)) {
		t.Errorf("%v", err)
	}
	if _, err := b.Revoke(t.Context(), g.ID); err != nil {
		t.Error(err)
	}
	if list, err := grants.ReadSnapshot(b.state, "main"); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}

package review

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/creack/pty"
	"github.com/hinshun/vt10x"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/integration/gateway"
	"github.com/clairun/clai-sandbox/profile"
)

// fakeBroker stands in for the broker where only the screen is tested: it remembers what was
// decided.
type fakeBroker struct {
	grants.Broker
	decided []grants.Decision
	ids     []string
	fail    error
}

func (f *fakeBroker) Decide(_ context.Context, id string, d grants.Decision) (grants.Answer, error) {
	f.ids, f.decided = append(f.ids, id), append(f.decided, d)
	return grants.Answer{}, f.fail
}

// desk is a model with a clock that the test moves.
type desk struct {
	*model
	t      testing.TB
	broker *fakeBroker
	clock  time.Time
}

func newDesk(t testing.TB, requests ...grants.Request) *desk {
	d := &desk{t: t, broker: &fakeBroker{}, clock: time.UnixMilli(1_000_000)}
	d.model = newModel(context.Background(), d.broker)
	d.model.now = func() time.Time { return d.clock }
	d.send(pendingMsg(requests))
	d.clock = d.clock.Add(time.Minute)
	return d
}

func (d *desk) send(msg tea.Msg) {
	_, cmd := d.Update(msg)
	for cmd != nil {
		answer, ok := cmd().(decidedMsg)
		if !ok {
			return
		}
		_, cmd = d.Update(answer)
	}
}

// keys presses keys: words in angle brackets by name, other letters one by one.
func (d *desk) keys(text string) {
	for text != "" {
		if name, rest, found := strings.Cut(text, ">"); found && text[0] == '<' {
			d.send(tea.KeyPressMsg(map[string]tea.Key{"enter": {Code: tea.KeyEnter}, "esc": {Code: tea.KeyEscape}, "back": {Code: tea.KeyBackspace}}[name[1:]]))
			text = rest
			continue
		}
		r := []rune(text)[0]
		d.send(tea.KeyPressMsg(tea.Key{Code: r, Text: string(r)}))
		text = text[len(string(r)):]
	}
}

func request(id, path string) grants.Request {
	return grants.Request{ID: id, Agent: "main", Workspace: "/home/you/work", RequestedPath: path, ResolvedPath: path, RequestedAccess: profile.ReadWrite,
		Reason: "to work", AskedAtUnixMs: 1_000_000, ExpiresAtUnixMs: 1_300_000}
}

func TestKeysBecomeDecisions(t *testing.T) {
	for keys, want := range map[string]grants.Decision{
		"o":                      {Kind: grants.AllowOnce, Path: "/data", Access: profile.ReadWrite},
		"ro":                     {Kind: grants.AllowOnce, Path: "/data", Access: profile.ReadOnly},
		"rro":                    {Kind: grants.AllowOnce, Path: "/data", Access: profile.ReadWrite},
		"p/part<enter>o":         {Kind: grants.AllowOnce, Path: "/data/part", Access: profile.ReadWrite},
		"p/part<esc>o":           {Kind: grants.AllowOnce, Path: "/data", Access: profile.ReadWrite},
		"rp/part<enter>a<enter>": {Kind: grants.AllowAlways, Path: "/data/part", Access: profile.ReadOnly, Scope: grants.ScopeAlways},
		"a2h<enter>":             {Kind: grants.AllowAlways, Path: "/data", Access: profile.ReadWrite, Scope: grants.ScopeAlways, ExpiresIn: grants.Duration(2 * time.Hour)},
		"dnot now<enter>":        {Kind: grants.Deny, Reason: "not now"},
		"d<enter>":               {Kind: grants.Deny},
	} {
		d := newDesk(t, request("r1", "/data"))
		d.keys(keys)
		want.Via = "terminal"
		if len(d.broker.decided) != 1 || d.broker.decided[0] != want || d.broker.ids[0] != "r1" {
			t.Errorf("%s: %+v, want %+v", keys, d.broker.decided, want)
		}
		if len(d.requests) != 0 {
			t.Errorf("%s: the request stays", keys)
		}
	}
}

func TestWhatIsNoAnswerDecidesNothing(t *testing.T) {
	for _, keys := range []string{"x", "?", "a<esc>", "asoon<enter>", "a-2h<enter>", "d<esc>", "p<back><back><back><back><back>/etc<enter>", "r", "jk", "O"} {
		d := newDesk(t, request("r1", "/data"))
		d.keys(keys)
		if len(d.broker.decided) != 0 {
			t.Errorf("%s: %+v", keys, d.broker.decided)
		}
	}
}

// What comes while somebody types is not answered by it.
func TestARequestHasToStandBeforeAKeyAnswersIt(t *testing.T) {
	d := newDesk(t, request("r1", "/data"), request("r2", "/other"))
	d.keys("oo")
	if len(d.broker.ids) != 1 || d.broker.ids[0] != "r1" {
		t.Errorf("%v", d.broker.ids)
	}
	if !strings.Contains(d.screen(), "just come") {
		t.Errorf("%s", d.screen())
	}
	d.clock = d.clock.Add(guard)
	d.keys("o")
	if len(d.broker.ids) != 2 || d.broker.ids[1] != "r2" {
		t.Errorf("%v", d.broker.ids)
	}
	// One that comes does not take the place of one that is there.
	d = newDesk(t, request("r1", "/data"))
	d.send(eventMsg{Kind: grants.EventRequestPending, Request: ptr(request("r0", "/new"))})
	if d.chosen != "r1" {
		t.Errorf("%s is chosen", d.chosen)
	}
	d.keys("p")
	d.send(eventMsg{Kind: grants.EventRequestEnded, Request: ptr(request("r1", "/data")), Outcome: grants.OutcomeTimeout})
	d.keys("<enter>o")
	if len(d.broker.ids) != 0 || !strings.Contains(d.screen(), "/new") {
		t.Errorf("%v\n%s", d.broker.ids, d.screen())
	}
	// A path that leads elsewhere now is another question.
	d = newDesk(t, request("r1", "/data"))
	d.keys("r")
	moved := request("r1", "/data")
	moved.ResolvedPath = "/elsewhere"
	d.send(eventMsg{Kind: grants.EventRequestChanged, Request: &moved})
	d.keys("o")
	if len(d.broker.ids) != 0 || !strings.Contains(d.screen(), "leads to  /elsewhere") {
		t.Errorf("%v\n%s", d.broker.ids, d.screen())
	}
}

// What a person types about a request answers no other, whatever becomes of the first meanwhile,
// and however slowly they type.
func TestWhatIsTypedForOneRequestAnswersNoOther(t *testing.T) {
	first, moved := request("r1", "/data"), request("r1", "/data")
	moved.ResolvedPath = "/elsewhere"
	ended := eventMsg{Kind: grants.EventRequestEnded, Request: &first, Outcome: grants.OutcomeWithdrawn}
	for name, becomes := range map[string]tea.Msg{
		"withdrawn":          ended,
		"another path":       eventMsg{Kind: grants.EventRequestChanged, Request: &moved},
		"gone from the list": pendingMsg{request("r2", "/secret")},
		"other in the list":  pendingMsg{moved, request("r2", "/secret")},
	} {
		for _, opens := range []string{"d", "a", "p"} {
			for _, ends := range []string{"<enter>", "<esc>"} {
				d := newDesk(t, first, request("r2", "/secret"))
				d.keys(opens)
				d.send(becomes)
				if !strings.Contains(d.screen(), "answers nothing") {
					t.Errorf("%s: it is not told:\n%s", name, d.screen())
				}
				for _, r := range "no, you do not need that one at all" {
					d.clock = d.clock.Add(500 * time.Millisecond)
					d.keys(string(r))
				}
				d.keys(ends + "oa<enter>")
				d.clock = d.clock.Add(guard / 2)
				d.keys("oa<enter>")
				if len(d.broker.decided) != 0 {
					t.Errorf("%s, %s, %s: %v %+v", name, opens, ends, d.broker.ids, d.broker.decided)
				}
				d.clock = d.clock.Add(guard)
				d.keys("o")
				if len(d.broker.decided) != 1 {
					t.Errorf("%s: %v", name, d.broker.decided)
				}
			}
		}
	}
	// Nor before the line is there.
	d := newDesk(t, first, request("r2", "/secret"))
	d.send(ended)
	for _, r := range "do you need that one at all" {
		d.keys(string(r))
		d.clock = d.clock.Add(guard - time.Millisecond)
	}
	if len(d.broker.decided) != 0 {
		t.Errorf("%v %+v", d.broker.ids, d.broker.decided)
	}
}

func ptr[T any](v T) *T { return &v }

func TestWhatTheBrokerRefusesIsToldAndStays(t *testing.T) {
	d := newDesk(t, request("r1", "/data"))
	d.broker.fail = errors.New("not a valid decision: wider\x1b[2J")
	d.keys("o")
	if len(d.requests) != 1 || !strings.Contains(d.screen(), `\u{1B}[2J`) {
		t.Errorf("%s", d.screen())
	}
}

func TestASmallWindowShowsThePathOrTakesNoAnswer(t *testing.T) {
	long := "/data/" + strings.Repeat("directory/", 60) + "end"
	d := newDesk(t, request("r1", long))
	for _, size := range []struct {
		width, height int
		answers       bool
	}{{80, 24, true}, {40, 30, true}, {40, 10, false}, {10, 3, false}, {1, 1, false}} {
		d.send(tea.WindowSizeMsg{Width: size.width, Height: size.height})
		screen := d.screen()
		if n := strings.Count(screen, "\n") + 1; n > size.height {
			t.Errorf("%+v: %d lines", size, n)
		}
		for _, line := range strings.Split(screen, "\n") {
			if w := ansi.StringWidth(line); w > max(size.width, 8) {
				t.Errorf("%+v: %d wide: %s", size, w, line)
			}
		}
		before := len(d.broker.ids)
		d.broker.fail = errors.New("stays")
		d.keys("o")
		if answered := len(d.broker.ids) > before; answered != size.answers {
			t.Errorf("%+v: answered %v\n%s", size, answered, screen)
		}
		if shown := strings.Contains(strings.ReplaceAll(screen, "\n", ""), long); size.answers && !shown {
			t.Errorf("%+v: the path is not shown\n%s", size, screen)
		}
	}
}

func FuzzNothingThatAnAgentSaysReachesTheTerminalRaw(f *testing.F) {
	f.Add("/data", "because", "command", "warning", "typed")
	f.Add("/", "", "", "", "\u202e\u2028\u200b")
	f.Add("/\x1b[2J", "\u202e\u2028\u0085\u200b", "\r\n\t", "\x9b31m\a", "\x1b]0;x\a")
	f.Fuzz(func(t *testing.T, path, reason, command, warning, typed string) {
		r := request("r1", "/"+path)
		r.ResolvedPath, r.Reason, r.Command, r.Workspace, r.Agent = "/"+warning, reason, command, path, reason
		r.Warnings = []grants.Warning{{Text: warning}}
		d := newDesk(t, r)
		d.keys("p")
		d.input.SetValue(typed)
		for _, screen := range []string{d.screen(), strings.ReplaceAll(d.screen(), "▏", "")} {
			rest := strings.NewReplacer(bold, "", plain, "", "\n", "").Replace(screen)
			for _, c := range rest {
				if !unicode.IsPrint(c) || c == unicode.ReplacementChar && !strings.Contains(path+reason+command+warning+typed, "\ufffd") {
					t.Fatalf("%q in %q", c, screen)
				}
			}
		}
	})
}

// screenOf is a real pseudo terminal with a person at it, and an emulator that shows what stands on
// its screen.
type screenOf struct {
	t    *testing.T
	mu   sync.Mutex
	vt   vt10x.Terminal
	keys *os.File
	over chan error
}

func sit(t *testing.T, broker grants.Broker) *screenOf {
	t.Helper()
	keys, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: 80})
	s := &screenOf{t: t, vt: vt10x.New(vt10x.WithSize(80, 24)), keys: keys, over: make(chan error, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		s.over <- Run(ctx, broker, tty, tty)
		tty.Close()
	}()
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := keys.Read(buffer)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.vt.Write(buffer[:n])
			s.mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); keys.Close() })
	return s
}

// sees waits until all of these stand on the screen.
func (s *screenOf) sees(parts ...string) {
	s.t.Helper()
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		text := s.vt.String()
		s.mu.Unlock()
		missing := ""
		for _, part := range parts {
			if !strings.Contains(text, part) {
				missing = part
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("no %q on the screen:\n%s", missing, text)
		}
	}
}

// presses a key until it has done something: a request that has only just come takes no answer, nor
// one at which keys keep coming.
func (s *screenOf) presses(key, then string) {
	s.t.Helper()
	var pressed time.Time
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if time.Since(pressed) > guard+100*time.Millisecond {
			s.keys.WriteString(key)
			pressed = time.Now()
		}
		s.mu.Lock()
		text := s.vt.String()
		s.mu.Unlock()
		if strings.Contains(text, then) {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("no %q on the screen after %q:\n%s", then, key, text)
		}
	}
}

// A person answers, on a real terminal, what is asked through a real gateway.
func TestAPersonReviewsOnATerminal(t *testing.T) {
	home, err := os.MkdirTemp("", "g")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	for _, dir := range []string{"run", "data/part", ".local/state/clai-sandbox", "work"} {
		os.MkdirAll(filepath.Join(home, dir), 0o700)
	}
	caller := profile.Caller{UID: os.Getuid(), Home: home, User: "somebody", Environ: []string{"XDG_RUNTIME_DIR=" + home + "/run"}}
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	go func() {
		gone <- gateway.Run(ctx, gateway.Options{Directories: caller.Directories(), Home: home, User: "somebody", Version: "test"})
	}()
	t.Cleanup(func() { cancel(); <-gone })
	broker := &client.Client{Socket: filepath.Join(grants.SocketDirectory(caller.Directories()), grants.SocketName)}
	for broker.Start = nil; ; time.Sleep(time.Millisecond) {
		if _, err := broker.Status(ctx); err == nil {
			break
		}
	}
	session, err := broker.Open(ctx, grants.SessionSpec{Agent: "main", Workspace: home + "/work", Command: "make test"})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path, reason string) chan grants.Answer {
		answers := make(chan grants.Answer, 1)
		go func() {
			answer, err := broker.Ask(ctx, session.ID, grants.Asking{Path: path, Access: profile.ReadWrite, Reason: reason})
			if err != nil {
				t.Error(err)
			}
			answers <- answer
		}()
		return answers
	}
	s := sit(t, broker)
	s.sees("Nothing waits")
	first := ask(home+"/data", "to fix \x1b[2Jit")
	s.sees("Request 1 of 1", home+"/data", "read and write", `to fix \x1b[2Jit`, "make test")
	s.presses("r", "you give")
	s.presses("p", "path: ")
	s.keys.WriteString("/part\r")
	s.sees("read " + home + "/data/part")
	s.keys.WriteString("o")
	s.sees("main may read " + home + "/data/part, in this session")
	if a := <-first; !a.Granted || a.Path != home+"/data/part" || a.Access != profile.ReadOnly || a.Scope != grants.ScopeOnce {
		t.Errorf("%+v", a)
	}
	second := ask(home+"/work/../data", "again")
	s.sees("Request 1 of 1")
	s.presses("d", "why not")
	s.keys.WriteString("no thanks\r")
	if a := <-second; a.Granted || a.Reason != "no thanks" {
		t.Errorf("%+v", a)
	}
	session.Close()
	other, err := broker.Open(ctx, grants.SessionSpec{Agent: "main", Workspace: home + "/work"})
	if err != nil {
		t.Fatal(err)
	}
	session = other
	third := ask(home+"/data", "elsewhere")
	s.sees("elsewhere")
	list, err := broker.Pending(ctx)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if _, err := broker.Decide(ctx, list[0].ID, grants.Decision{Kind: grants.Deny}); err != nil {
		t.Fatal(err)
	}
	<-third
	s.sees("Nothing waits", "denied elsewhere")
	s.keys.WriteString("q")
	if err := <-s.over; err != nil {
		t.Error(err)
	}
}

func TestWithoutATerminalThereIsNoScreen(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	if err := Run(context.Background(), &fakeBroker{}, read, write); !errors.Is(err, ErrNoTerminal) {
		t.Error(err)
	}
}

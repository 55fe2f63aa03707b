package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/integration/gateway"
	"github.com/clairun/clai-sandbox/integration/mcp/files"
	"github.com/clairun/clai-sandbox/integration/session"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/shut/shuttest"
	"github.com/clairun/clai-sandbox/sandbox"
)

// The test binary is also what sandboxes show of this program.
func TestMain(m *testing.M) {
	sandbox.InsideMain()
	if filepath.Base(os.Args[0]) == client.AskName {
		os.Exit(client.Programs[client.AskName](context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	if path := os.Getenv(callVariable); path != "" {
		callMain(path)
		os.Exit(0)
	}
	if os.Getenv(asServer) != "" {
		serveTest()
	}
	if os.Args[0] == files.Place && len(os.Args) == 2 && os.Args[1] == files.Stays {
		os.Exit(files.Stay(os.Stdin, os.Stdout))
	}
	if os.Args[0] == files.Place {
		os.Exit(files.Program(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// place is a person's machine.
type place struct {
	t       testing.TB
	work    string
	other   string
	options Options
	person  *client.Client
}

// perCall is a variable with which all calls have a sandbox of their own, where a test does not say
// something else.
const perCall = "CLAI_SANDBOX_TEST_PER_CALL"

func newPlace(t testing.TB) *place {
	t.Helper()
	base, err := os.MkdirTemp("/var/tmp", "clai-sandbox-mcp-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shuttest.RemoveAll(base) })
	p := &place{t: t, work: base + "/home/work", other: base + "/other"}
	for _, dir := range []string{p.work, p.other, base + "/run", base + "/home/.config/clai-sandbox", base + "/home/.local/state/clai-sandbox"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	caller := profile.Caller{UID: os.Getuid(), Home: base + "/home", User: "somebody", Shell: "/bin/sh", WorkingDirectory: p.work,
		Environ: []string{"XDG_RUNTIME_DIR=" + base + "/run", "PATH=/usr/local/bin:/usr/bin:/bin"}}
	config, err := profile.Load(caller.Directories())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	go func() {
		gone <- gateway.Run(ctx, gateway.Options{Directories: caller.Directories(), Home: caller.Home, User: "somebody", Version: "test"})
	}()
	t.Cleanup(func() { cancel(); <-gone })
	p.person = &client.Client{Socket: filepath.Join(grants.SocketDirectory(caller.Directories()), grants.SocketName)}
	p.until("the gateway answers", func() bool { _, err := p.person.Status(ctx); return err == nil })
	p.options = Options{Version: "test", Session: session.Options{Caller: caller, Config: config, Broker: p.person, Live: true, Request: profile.Request{Workspace: p.work}}}
	if os.Getenv(perCall) != "" {
		p.options.Stay = StayNever
	}
	return p
}

func (p *place) until(what string, done func() bool) {
	p.t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("not in time: %s", what)
		}
	}
}

// agent is a client that is connected in memory.
type agent struct {
	p             *place
	session       *sdk.ClientSession
	clientSession *clientSession
}

func (p *place) connect(options *sdk.ClientOptions) *agent {
	p.t.Helper()
	s, err := p.options.open(context.Background())
	if err != nil {
		p.t.Fatal(err)
	}
	theirs, ours := sdk.NewInMemoryTransports()
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer s.close()
		s.server().Run(context.Background(), ours)
	}()
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, options).Connect(context.Background(), theirs, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close(); <-over })
	return &agent{p, c, s}
}

// call calls a tool and reads its fields.
func call[Out any](a *agent, tool string, arguments any) (out Out, failed bool) {
	a.p.t.Helper()
	result, err := a.session.CallTool(context.Background(), &sdk.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		a.p.t.Fatalf("%s: %v", tool, err)
	}
	if result.StructuredContent != nil {
		text, _ := json.Marshal(result.StructuredContent)
		if err := json.Unmarshal(text, &out); err != nil {
			a.p.t.Fatalf("%s: %v", text, err)
		}
		a.p.fits(a.clientSession, tool, result.StructuredContent)
	} else if !result.IsError {
		a.p.t.Fatalf("%s: no fields", tool)
	}
	return out, result.IsError
}

// fits holds fields against the schema that the tool says they have.
func (p *place) fits(s *clientSession, tool string, fields any) {
	p.t.Helper()
	if s == nil { // it is another process's
		return
	}
	list, err := s.described(&sdk.ListToolsResult{Tools: []*sdk.Tool{{Name: tool}}})
	if err != nil {
		p.t.Fatal(err)
	}
	schema, err := list.Tools[0].OutputSchema.(*jsonschema.Schema).Resolve(nil)
	if err == nil {
		err = schema.Validate(fields)
	}
	if err != nil {
		p.t.Errorf("the fields of %s are not as it says: %v", tool, err)
	}
}

func (a *agent) sh(line string) Result {
	a.p.t.Helper()
	r, _ := call[Result](a, "bash_exec", BashExec{Command: line})
	return r
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

func TestToolsSayInFieldsWhatHappened(t *testing.T) {
	a := newPlace(t).connect(nil)
	for line, want := range map[string]Result{
		"echo out; echo err >&2; exit 3": {Outcome: "exited", ExitCode: 3, Output: "out\nerr\n", OutputBytes: 8},
		"pwd":                            {Outcome: "exited", Output: a.p.work + "\n", OutputBytes: int64(len(a.p.work) + 1)},
		"kill -9 $$":                     {Outcome: "signalled", ExitCode: 137, Signal: "SIGKILL"},
		"cat":                            {Outcome: "exited"},
		`printf '\377a'`:                 {Outcome: "exited", Output: "\uFFFDa", OutputBytes: 2},
	} {
		r := a.sh(line)
		r.DurationMs = 0
		if len(r.Notices) == 1 && r.Notices[0].Kind == string(noticeShellBegun) { // a shell that stays
			r.Notices = nil
		}
		if fmt.Sprintf("%+v", r) != fmt.Sprintf("%+v", want) {
			t.Errorf("%s: %+v, want %+v", line, r, want)
		}
	}
	r, failed := call[Result](a, "exec", Exec{Argv: []string{"printf", "%s", "a b"}, Cwd: "/usr"})
	if failed || r.Output != "a b" {
		t.Errorf("%+v", r)
	}
	r, failed = call[Result](a, "exec", Exec{Command: "echo $((1+1))", TimeoutSeconds: 5})
	if failed || r.Output != "2\n" {
		t.Errorf("%+v", r)
	}
	r, failed = call[Result](a, "exec", Exec{Argv: []string{"true"}, Host: "gateway"})
	if !failed || r.Outcome != outcomeDenied || len(r.Notices) != 1 || r.Notices[0].Kind != "command_denied" {
		t.Errorf("%+v", r)
	}
	for _, in := range []Exec{{Argv: []string{"true"}, Host: "node"}, {Argv: []string{"true"}, Host: "gateway", Node: "n1"}, {Argv: []string{"true"}, Security: "deny"}} {
		if r, failed := call[Result](a, "exec", in); !failed || r.Outcome != outcomeDenied {
			t.Errorf("%+v: %+v", in, r)
		}
	}
	r, failed = call[Result](a, "exec", Exec{Argv: []string{"no-such-program"}})
	if !failed || r.Outcome != outcomeNotFound || r.ExitCode != 127 {
		t.Errorf("%+v", r)
	}
}

func TestACommandThatTakesTooLongIsEndedWithAllItsProcesses(t *testing.T) {
	a := newPlace(t).connect(nil)
	began := time.Now()
	r, _ := call[Result](a, "bash_exec", BashExec{Command: "trap '' TERM; sleep 300 & while :; do sleep 1; done", TimeoutSeconds: 1})
	if !r.TimedOut || r.Outcome != "timed_out" || time.Since(began) > 15*time.Second {
		t.Errorf("%+v after %v", r, time.Since(began))
	}
}

func TestALongOutputIsCutInTheMiddleAndKeptInAFile(t *testing.T) {
	a := newPlace(t).connect(nil)
	r := a.sh("echo begin; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo end")
	if !r.Truncated || !strings.HasPrefix(r.Output, "begin\n") || !strings.HasSuffix(r.Output, "\nend\n") || len(r.Output) > DefaultOutputLimit+100 || !strings.Contains(r.Output, "bytes left out") {
		t.Errorf("%d bytes, %.30q … %q", len(r.Output), r.Output, r.Output[max(0, len(r.Output)-30):])
	}
	if r := a.sh("wc -c < " + r.OutputFile + "; head -c 5 " + r.OutputFile); r.Output != "1000011\nbegin" {
		t.Errorf("%+v", r)
	}
}

func TestAGibibyteOfOutputIsReadInBoundedMemory(t *testing.T) {
	a := newPlace(t).connect(nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := a.sh("head -c 1073741824 /dev/zero")
	runtime.ReadMemStats(&after)
	if r.OutputBytes != 1<<30 || !r.Truncated {
		t.Errorf("%d bytes", r.OutputBytes)
	}
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 64<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	info, err := os.Stat(filepath.Join(a.clientSession.tmp, filepath.Base(r.OutputFile)))
	if err != nil || info.Size() != fileLimit {
		t.Errorf("%v, %v", info, err)
	}
}

func TestTmpIsTheSessionsOwnAndStays(t *testing.T) {
	p := newPlace(t)
	a, b := p.connect(nil), p.connect(nil)
	a.sh("echo kept > /tmp/file; mkdir -p /tmp/closed/in; touch /tmp/closed/in/file; chmod 0 /tmp/closed")
	if r := a.sh("cat /tmp/file"); r.Output != "kept\n" {
		t.Errorf("%+v", r)
	}
	if r := b.sh("ls -A /tmp"); r.Output != "" {
		t.Errorf("another session sees %q", r.Output)
	}
	tmp := a.clientSession.private.dir
	// No path leads there, while a command runs as afterwards. Root gets there: no mode holds it.
	if _, err := os.Lstat(a.clientSession.private.source() + "/file"); errors.Is(err, os.ErrPermission) != (os.Getuid() != 0) {
		t.Errorf("uid %d: %v", os.Getuid(), err)
	}
	if _, err := os.Lstat(a.clientSession.tmp + "/file"); err != nil {
		t.Error(err)
	}
	a.session.Close()
	p.until("/tmp goes with the session", func() bool { _, err := os.Stat(tmp); return errors.Is(err, os.ErrNotExist) })
}

// The scripted session of the README: list tools, build, hit a wall, ask, be granted less, finish.
func TestAnAgentsSession(t *testing.T) {
	p := newPlace(t)
	secret := p.write("lib/include/lib.h", "#define ANSWER 42\n")
	a := p.connect(nil)
	tools, err := a.session.ListTools(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range tools.Tools {
		names = append(names, tool.Name)
		if tool.OutputSchema == nil || tool.Annotations == nil {
			t.Errorf("%s lacks a schema or annotations", tool.Name)
		}
	}
	slices.Sort(names)
	if want := []string{"apply_patch", "ask_person", "bash_exec", "edit", "exec", "fs_request_grant", "glob", "grep", "process", "read", "sandbox_explain", "write"}; !slices.Equal(names, want) {
		t.Errorf("%v", names)
	}
	makefile := "all: ; cat " + secret + " > answer.h\n"
	if r, failed := call[FileResult[files.WriteResult]](a, "write", files.Write{Path: "Makefile", Content: makefile}); failed {
		t.Fatalf("%+v", r.Error)
	}
	r := a.sh("make")
	if r.ExitCode == 0 || len(r.Missing) != 1 || r.Missing[0].Path != secret || r.Missing[0].Why != "not_granted" || r.Missing[0].Access != "read_only" {
		t.Fatalf("%+v", r)
	}
	answers := make(chan GrantResult)
	go func() {
		g, _ := call[GrantResult](a, "fs_request_grant", RequestGrant{Path: filepath.Dir(filepath.Dir(secret)), Access: "read_write", Reason: "to build"})
		answers <- g
	}()
	p.decide(func(r grants.Request) grants.Decision {
		return grants.Decision{Kind: grants.AllowOnce, Path: filepath.Dir(secret), Access: profile.ReadOnly}
	})
	if g := <-answers; !g.Granted || g.Path != filepath.Dir(secret) || g.Access != "read_only" || len(g.Notices) != 1 || g.Notices[0].Kind != "path_granted" {
		t.Fatalf("%+v", g)
	}
	if r := a.sh("make && echo x > " + secret); !strings.Contains(r.Output, "Read-only file system") || len(r.Missing) != 1 || r.Missing[0].Why != "read_only" {
		t.Errorf("%+v", r)
	}
	if r, failed := call[FileResult[files.ReadResult]](a, "read", files.Read{Path: "answer.h"}); failed || r.Result.Text != "#define ANSWER 42\n" {
		t.Errorf("%+v", r)
	}
	// It ends with the session.
	if r := p.connect(nil).sh("cat " + secret); r.ExitCode == 0 {
		t.Errorf("%+v", r)
	}
}

// decide answers the next request.
func (p *place) decide(answer func(grants.Request) grants.Decision) {
	p.t.Helper()
	var request grants.Request
	p.until("somebody asks", func() bool {
		list, err := p.person.Pending(context.Background())
		if err != nil {
			p.t.Fatal(err)
		}
		if len(list) > 0 {
			request = list[0]
		}
		return len(list) > 0
	})
	if _, err := p.person.Decide(context.Background(), request.ID, answer(request)); err != nil {
		p.t.Fatal(err)
	}
}

func TestADenialIsToldAndOutlivesTheCall(t *testing.T) {
	p := newPlace(t)
	a := p.connect(nil)
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan struct{})
	go func() { // a client that gives up on the call
		a.session.CallTool(ctx, &sdk.CallToolParams{Name: "fs_request_grant", Arguments: RequestGrant{Path: p.other, Access: "read_only", Reason: "r"}})
		close(gone)
	}()
	p.until("it waits", func() bool { list, _ := p.person.Pending(context.Background()); return len(list) == 1 })
	cancel()
	<-gone
	p.decide(func(grants.Request) grants.Decision { return grants.Decision{Kind: grants.Deny, Reason: "no\x1b"} })
	g, _ := call[GrantResult](a, "fs_request_grant", RequestGrant{Path: p.other, Access: "read_only", Reason: "r"})
	if g.Granted || g.Pending || g.Outcome != "denied" || !strings.Contains(g.Message, `no\x1b`) || g.Notices[0].Kind != "path_grant_denied" {
		t.Errorf("%+v", g)
	}
	if r, _ := call[Result](a, "bash_exec", BashExec{Command: "true"}); len(r.Notices) != 0 {
		t.Errorf("once is enough: %+v", r.Notices)
	}
}

func TestTheClientsPromptAnswersOnlyWhereItIsTrustedAndNeverMore(t *testing.T) {
	p := newPlace(t)
	dir := filepath.Dir(p.write("data/file", "x"))
	asked := make(chan string, 8)
	var content map[string]any
	options := &sdk.ClientOptions{ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
		asked <- r.Params.Message
		return &sdk.ElicitResult{Action: "accept", Content: content}, nil
	}}
	content = map[string]any{"decision": "allowOnce"}
	a := p.connect(options)
	answers := make(chan GrantResult)
	ask := func(a *agent, access string) {
		go func() {
			g, _ := call[GrantResult](a, "fs_request_grant", RequestGrant{Path: dir, Access: access, Reason: "r\u202e"})
			answers <- g
		}()
	}
	ask(a, "read_only")
	p.until("it waits", func() bool { list, _ := p.person.Pending(context.Background()); return len(list) == 1 })
	select {
	case <-asked:
		t.Error("not trusted, and asked")
	case g := <-answers:
		t.Errorf("not trusted, and answered: %+v", g)
	case <-time.After(300 * time.Millisecond):
	}
	p.decide(func(grants.Request) grants.Decision { return grants.Decision{Kind: grants.Deny} })
	if g := <-answers; g.Granted {
		t.Errorf("%+v", g)
	}
	p.options.TrustElicitation = true
	content = map[string]any{"decision": "allowOnce", "path": p.other}
	ask(p.connect(options), "read_only")
	if message := <-asked; !strings.Contains(message, dir) || !strings.Contains(message, `r\u202e`) {
		t.Errorf("%s", message)
	}
	if g := <-answers; g.Granted || !g.Pending || !strings.Contains(g.Message, "not taken") { // a wider answer is none
		t.Errorf("%+v", g)
	}
	p.decide(func(r grants.Request) grants.Decision { return grants.Decision{Kind: grants.Deny} })
	content = map[string]any{"decision": "allowOnce", "access": "read_only", "path": dir + "/file"}
	ask(p.connect(options), "read_write")
	<-asked
	if g := <-answers; !g.Granted || g.Path != dir+"/file" || g.Access != "read_only" {
		t.Errorf("%+v", g)
	}
}

func TestBackgroundProcesses(t *testing.T) {
	a := newPlace(t).connect(nil)
	do := func(in Process) ProcessResult {
		t.Helper()
		r, failed := call[ProcessResult](a, "process", in)
		if failed {
			t.Fatalf("%+v", in)
		}
		return r
	}
	id := do(Process{Action: "start", Command: "echo ready; while read line; do echo got $line; done; echo over; exit 5"}).Processes[0].ID
	if r := do(Process{Action: "poll", ID: id, WaitSeconds: 10}); r.Output != "ready\n" || r.Cursor != 6 {
		t.Errorf("%+v", r)
	}
	do(Process{Action: "write", ID: id, Input: "hello\n"})
	if r := do(Process{Action: "poll", ID: id, Cursor: 6, WaitSeconds: 10}); r.Output != "got hello\n" {
		t.Errorf("%+v", r)
	}
	do(Process{Action: "close", ID: id})
	a.p.until("it ends", func() bool { return !do(Process{Action: "poll", ID: id}).Processes[0].Running })
	if r := do(Process{Action: "poll", ID: id, Cursor: 16}); r.Output != "over\n" || r.Processes[0].Result.ExitCode != 5 {
		t.Errorf("%+v", r)
	}
	trapped := do(Process{Action: "start", Command: "trap 'echo term; exit 0' TERM; echo ready; while :; do sleep 0.05; done"}).Processes[0].ID
	do(Process{Action: "poll", ID: trapped, WaitSeconds: 10})
	do(Process{Action: "signal", ID: trapped})
	a.p.until("it hears", func() bool { return strings.Contains(do(Process{Action: "poll", ID: trapped}).Output, "term") })
	for range maxJobs + 1 {
		call[ProcessResult](a, "process", Process{Action: "start", Command: "sleep 300"})
	}
	if _, failed := call[ProcessResult](a, "process", Process{Action: "start", Command: "sleep 300"}); !failed {
		t.Error("there is no bound")
	}
	if n := len(do(Process{Action: "list"}).Processes); n != maxJobs {
		t.Errorf("%d", n)
	}
	began := time.Now()
	a.session.Close()
	a.p.until("all end with the session", func() bool { _, err := os.Stat(a.clientSession.private.dir); return err != nil })
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
}

// What is being started has an id that anybody can guess. Each call is answered, also one that
// comes too early.
func TestCallsAtATimeDoNotEndTheServer(t *testing.T) {
	for name, p := range map[string]*place{"a sandbox each": newPlace(t), "one sandbox": newRoom(t)} {
		a := p.connect(nil)
		started := make(chan bool)
		go func() {
			r, failed := call[ProcessResult](a, "process", Process{Action: "start", Command: "cat"})
			started <- !failed && len(r.Processes) == 1 && r.Processes[0].ID == "p1"
		}()
		var others sync.WaitGroup
		for _, in := range []Process{{Action: "signal", Signal: "CONT"}, {Action: "write", Input: "x"}, {Action: "poll"}, {Action: "list"}} {
			in.ID = "p1"
			others.Go(func() {
				for {
					r, failed := call[ProcessResult](a, "process", in)
					if !failed && len(r.Processes) == 1 {
						return
					}
				}
			})
		}
		if !<-started {
			t.Errorf("%s: it was not started", name)
		}
		others.Wait()
		for _, action := range []string{"signal", "close", "close"} {
			call[ProcessResult](a, "process", Process{Action: action, ID: "p1"})
		}
	}
}

func TestAMistakeOfOursEndsOneCallAndNoMore(t *testing.T) {
	p := newPlace(t)
	s, err := p.options.open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	server := s.server()
	sdk.AddTool(server, &sdk.Tool{Name: "mistaken"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, struct{}, error) {
		var nothing *job
		return nil, struct{}{}, nothing.send(0)
	})
	theirs, ours := sdk.NewInMemoryTransports()
	go server.Run(context.Background(), ours)
	client, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(context.Background(), theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if r, err := client.CallTool(context.Background(), &sdk.CallToolParams{Name: "mistaken"}); err == nil {
		t.Errorf("%+v", r)
	}
	if r, err := client.CallTool(context.Background(), &sdk.CallToolParams{Name: "process", Arguments: Process{Action: "list"}}); err != nil || r.IsError {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestACancelledCallEndsItsProcesses(t *testing.T) {
	a := newPlace(t).connect(nil)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		a.session.CallTool(ctx, &sdk.CallToolParams{Name: "bash_exec", Arguments: BashExec{Command: "touch begun; sleep 98765"}})
		close(over)
	}()
	a.p.until("it runs", func() bool { _, err := os.Stat(a.p.work + "/begun"); return err == nil })
	cancel()
	<-over
	a.p.until("the command has ended", func() bool {
		return !slices.ContainsFunc(descendants(os.Getpid()), func(pid int) bool {
			words, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			return string(words) == "sleep\x0098765\x00"
		})
	})
}

func TestALongCallTellsItsProgress(t *testing.T) {
	p := newPlace(t)
	told := make(chan string, 64)
	a := p.connect(&sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) { told <- r.Params.Message }})
	for tool, c := range map[string]struct {
		arguments any
		want      string
	}{
		"bash_exec":        {BashExec{Command: "sleep 300"}, "running for "},
		"fs_request_grant": {RequestGrant{Path: p.other, Access: "read_only", Reason: "r"}, "a person has been asked"},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		params := &sdk.CallToolParams{Name: tool, Arguments: c.arguments}
		params.SetProgressToken(tool)
		over := make(chan struct{})
		go func() { a.session.CallTool(ctx, params); close(over) }()
		select {
		case message := <-told:
			if !strings.HasPrefix(message, c.want) {
				t.Errorf("%s: %q", tool, message)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s: nothing is told", tool)
		}
		cancel()
		<-over
	}
}

// An agent's own tools are told before anything is made; what a command makes is set aside.
func TestAFileToolMakesNoProtectedName(t *testing.T) {
	a := newPlace(t).connect(nil)
	for tool, argument := range map[string]any{
		"write":       files.Write{Path: "sub/.envrc", Content: "x", CreateParents: true},
		"apply_patch": files.ApplyPatch{Patch: "*** Begin Patch\n*** Add File: .vscode/tasks.json\n+{}\n*** End Patch\n"},
	} {
		r, failed := call[FileResult[files.WriteResult]](a, tool, argument)
		if !failed || r.Error == nil || r.Error.Code != files.Protected || !strings.Contains(r.Error.Message, "--unprotect .") {
			t.Errorf("%s: %+v", tool, r)
		}
	}
	if r := a.sh("ls -A; echo x > .envrc"); r.Output != "" || len(r.Notices) != 1 || !strings.Contains(r.Notices[0].Text, "clai-sandbox quarantine ") {
		t.Errorf("%+v", r)
	}
	if r, failed := call[FileResult[files.WriteResult]](a, "write", files.Write{Path: "ordinary", Content: "x"}); failed {
		t.Errorf("%+v", r)
	}
}

func TestHostileArguments(t *testing.T) {
	a := newPlace(t).connect(nil)
	long := strings.Repeat("a", 10<<20)
	for name, arguments := range map[string][]any{
		"bash_exec":        {BashExec{Command: "echo \x00"}, BashExec{Command: long}, BashExec{Command: "true", Cwd: "../../../etc"}, BashExec{Command: "true", Cwd: long}, BashExec{Command: "true", TimeoutSeconds: -1}, BashExec{Command: "true", TimeoutSeconds: 601}, map[string]any{"command": 1}, map[string]any{"other": 1}, nil},
		"exec":             {Exec{}, Exec{Argv: []string{""}}, Exec{Argv: []string{"true"}, Command: "true"}, Exec{Argv: []string{"true"}, Node: "n\x1b"}},
		"read":             {files.Read{Path: "../../etc/shadow"}, files.Read{Path: "a\x00b"}, files.Read{Path: long}, files.Read{Path: a.p.other}},
		"write":            {files.Write{Path: "/usr/x", Content: "x"}, files.Write{Path: "/etc/x", Content: "x"}},
		"fs_request_grant": {RequestGrant{Path: "a\x00", Access: "read_only"}, RequestGrant{Path: long, Access: "read_only"}, RequestGrant{Path: "/x", Access: "all"}, RequestGrant{Path: "/proc", Access: "everything"}},
		"ask_person":       {AskPerson{}, AskPerson{Question: long}, AskPerson{Question: "x", Choices: []string{""}}},
		"sandbox_explain":  {Explain{Path: "\x00"}, Explain{Path: long}},
		"process":          {Process{Action: "poll", ID: "p9"}, Process{Action: "x"}, Process{Action: "start"}, Process{Action: "start", Command: "a\x00"}},
	} {
		for _, argument := range arguments {
			result, err := a.session.CallTool(context.Background(), &sdk.CallToolParams{Name: name, Arguments: argument})
			if err == nil && !result.IsError {
				text, _ := json.Marshal(result.StructuredContent)
				t.Errorf("%s %.80v: %.200s", name, argument, text)
			}
		}
	}
	if r := a.sh("echo still here"); r.Output != "still here\n" {
		t.Errorf("%+v", r)
	}
	e, _ := call[Explanation](a, "sandbox_explain", Explain{Path: "/nowhere"})
	f, _ := call[Explanation](a, "sandbox_explain", Explain{Path: a.p.other})
	if strings.TrimPrefix(e.Text, "/nowhere") != strings.TrimPrefix(f.Text, a.p.other) {
		t.Errorf("it tells what the host has: %q, %q", e.Text, f.Text)
	}
}

func TestWithoutASandboxNothingRunsAndTheClientIsTold(t *testing.T) {
	p := newPlace(t)
	p.options.Bwrap = "/nonexistent/bwrap"
	a := p.connect(nil)
	if text := a.session.InitializeResult().Instructions; !strings.Contains(text, "unavailable") {
		t.Errorf("%s", text)
	}
	r, failed := call[Result](a, "bash_exec", BashExec{Command: "touch ran"})
	if !failed || r.Outcome != "sandbox_unavailable" || r.Notices[0].Kind != "sandbox_unavailable" {
		t.Errorf("%+v", r)
	}
	if _, failed := call[FileResult[files.WriteResult]](a, "write", files.Write{Path: "ran", Content: "x"}); !failed {
		t.Error("it writes")
	}
	if _, failed := call[ProcessResult](a, "process", Process{Action: "start", Command: "touch ran"}); !failed {
		t.Error("it starts")
	}
	if _, err := os.Stat(p.work + "/ran"); err == nil {
		t.Error("something ran")
	}
}

func TestAToolThatThePolicyDeniesIsNotOffered(t *testing.T) {
	p := newPlace(t)
	p.options.Allowed = func(tool string) error {
		if tool == "exec" {
			return errors.New("denied")
		}
		return nil
	}
	a := p.connect(nil)
	tools, err := a.session.ListTools(context.Background(), nil)
	if err != nil || slices.ContainsFunc(tools.Tools, func(tool *sdk.Tool) bool { return tool.Name == "exec" }) {
		t.Errorf("%v", err)
	}
	if result, err := a.session.CallTool(context.Background(), &sdk.CallToolParams{Name: "exec", Arguments: Exec{Argv: []string{"true"}}}); err == nil && !result.IsError {
		t.Error("it can be called")
	}
}

func TestInstructionsAreShort(t *testing.T) {
	p := newPlace(t)
	for i := range 300 {
		p.options.Session.Request.Grants = append(p.options.Session.Request.Grants, p.write(fmt.Sprintf("%s-%d/file", strings.Repeat("n", 60), i), "")+":rw")
	}
	text := p.connect(nil).session.InitializeResult().Instructions
	if len(text) > 2048 || !strings.Contains(text, p.work) || !strings.Contains(text, "fs_request_grant") || !strings.Contains(text, "more") || !strings.Contains(text, "authorship") {
		t.Errorf("%d: %s", len(text), text)
	}
}

func TestHTTPClientsHaveToBeAllowed(t *testing.T) {
	p := newPlace(t)
	token := strings.Repeat("t", 32)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- ServeHTTP(ctx, p.options, listener, token) }()
	t.Cleanup(func() { cancel(); <-over })
	url := "http://" + listener.Addr().String()
	status := func(change func(*http.Request)) int {
		r, _ := http.NewRequest("POST", url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("Authorization", "Bearer "+token)
		change(r)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	for name, c := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"with the token":  {func(*http.Request) {}, 200},
		"without a token": {func(r *http.Request) { r.Header.Del("Authorization") }, 401},
		"with another":    {func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+strings.Repeat("u", 32)) }, 401},
		"from a page":     {func(r *http.Request) { r.Header.Set("Origin", "http://localhost") }, 403},
		"by another name": {func(r *http.Request) { r.Host = "evil.example" }, 403},
	} {
		if got := status(c.change); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if err := ServeHTTP(ctx, p.options, listener, ""); err == nil {
		t.Error("it serves without a token")
	}
	var agents sync.WaitGroup
	for i := range 16 { // each its own session
		agents.Go(func() {
			transport := &sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer(token)}}
			c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(context.Background(), transport, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for n := range 2 {
				result, err := c.CallTool(context.Background(), &sdk.CallToolParams{Name: "bash_exec", Arguments: BashExec{Command: fmt.Sprintf("echo %d >> /tmp/mine; cat /tmp/mine", i)}})
				if err != nil || result.IsError {
					t.Error(err, result)
					return
				}
				if text := result.Content[0].(*sdk.TextContent).Text; text != strings.Repeat(fmt.Sprintf("%d\n", i), n+1) {
					t.Errorf("%d sees %q", i, text)
				}
			}
		})
	}
	agents.Wait()
}

// On a unix socket the same user needs no token; whether the socket is only theirs is
// server.Listen's.
func TestAUnixSocketServesItsUser(t *testing.T) {
	p := newPlace(t)
	path := p.other + "/mcp.sock"
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- ServeHTTP(ctx, p.options, listener, "") }()
	t.Cleanup(func() { cancel(); <-over })
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	transport := &sdk.StreamableClientTransport{Endpoint: "http://socket/", HTTPClient: &http.Client{Transport: &http.Transport{DialContext: dial}}}
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(context.Background(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	result, err := c.CallTool(context.Background(), &sdk.CallToolParams{Name: "bash_exec", Arguments: BashExec{Command: "echo hello"}})
	if err != nil || result.IsError || result.Content[0].(*sdk.TextContent).Text != "hello\n" {
		t.Errorf("%+v, %v", result, err)
	}
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func TestATokenIsReadFromAFileOfOnesOwn(t *testing.T) {
	dir := t.TempDir()
	write := func(text string, mode os.FileMode) string {
		path := filepath.Join(dir, fmt.Sprint(len(text), mode))
		os.WriteFile(path, []byte(text), mode)
		os.Chmod(path, mode)
		return path
	}
	if token, err := ReadToken(write(strings.Repeat("x", 20)+"\n", 0o600)); err != nil || len(token) != 20 {
		t.Errorf("%q, %v", token, err)
	}
	linked := write(strings.Repeat("x", 25), 0o600)
	if err := os.Link(linked, dir+"/another name"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{linked, write(strings.Repeat("x", 21), 0o640), write(strings.Repeat("x", 22), 0o620), write(strings.Repeat("x", 23), 0o604), write(strings.Repeat("x", 24), 0o601), write(strings.Repeat("x", 20), 0o644), write("short", 0o600), write("", 0o600), dir, dir + "/none", write(strings.Repeat("x", 5000), 0o600)} {
		if _, err := ReadToken(path); err == nil {
			t.Errorf("%s is taken", path)
		}
	}
}

func FuzzNoArgumentsBreakTheServer(f *testing.F) {
	p := newPlace(f)
	p.options.Bwrap = "/nonexistent/bwrap" // what runs is fuzzed elsewhere
	a := p.connect(nil)
	for _, seed := range []string{`{"command":"true"}`, `{"action":"poll","id":"p1","cursor":-1}`, `{"path":"\u0000"}`, `[]`, `{"argv":["a"],"host":"x"}`} {
		f.Add(0, seed)
	}
	names := []string{"bash_exec", "exec", "process", "read", "write", "edit", "apply_patch", "glob", "grep", "fs_request_grant", "ask_person", "sandbox_explain"}
	f.Fuzz(func(t *testing.T, which int, text string) {
		var arguments any
		if json.Unmarshal([]byte(text), &arguments) != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		result, err := a.session.CallTool(ctx, &sdk.CallToolParams{Name: names[uint(which)%uint(len(names))], Arguments: arguments})
		if ctx.Err() != nil {
			t.Fatalf("no answer to %s", text)
		}
		_, _ = result, err
	})
}

func BenchmarkBashExecTrue(b *testing.B) {
	a := newPlace(b).connect(nil)
	prepared, err := a.clientSession.session.Prepare(nil)
	if err != nil {
		b.Fatal(err)
	}
	var through, bare []time.Duration
	for b.Loop() {
		began := time.Now()
		a.sh("true")
		through = append(through, time.Since(began))
		began = time.Now()
		prepared.Run(context.Background(), sandbox.Launcher{Bwrap: a.clientSession.bwrap}, []string{"/bin/sh", "-c", "true"}, sandbox.Stdio{})
		bare = append(bare, time.Since(began))
	}
	slices.Sort(through)
	slices.Sort(bare)
	b.ReportMetric(float64((through[len(through)/2]-bare[len(bare)/2]).Microseconds())/1000, "ms-over/median")
	b.ReportMetric(float64((through[0]-bare[0]).Microseconds())/1000, "ms-over/min")
}

func TestManyCallsLeaveNothing(t *testing.T) {
	a := newPlace(t).connect(nil)
	count := func() (descriptors, routines int, heap uint64) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		return len(entries), runtime.NumGoroutine(), memory.HeapAlloc
	}
	calls := 400
	if testing.Short() {
		calls = 100
	}
	for range 20 {
		a.sh("true")
	}
	processes := 0
	if a.clientSession.room != nil {
		processes = len(descendants(os.Getpid()))
	}
	descriptors, routines, heap := count()
	for range calls {
		if r := a.sh("true"); r.ExitCode != 0 || r.Outcome != "exited" {
			t.Fatalf("%+v", r)
		}
	}
	a.p.until("what the last call had open is closed", func() bool {
		d, r, _ := count()
		return d <= descriptors+2 && r <= routines+2
	})
	if _, _, after := count(); after > heap+4<<20 {
		t.Errorf("the heap grew from %d to %d KiB", heap>>10, after>>10)
	}
	// What mounted for the last call is ended when that has ended, and nobody waits for it.
	a.p.until("no process is left", func() bool { return len(descendants(os.Getpid())) <= processes })
}

func TestAClientThatGoesInTheMiddleOfACallTakesAllWithIt(t *testing.T) {
	p := newPlace(t)
	for tool, arguments := range map[string]any{
		"bash_exec":        BashExec{Command: "touch begun-bash_exec; sleep 300"},
		"exec":             Exec{Argv: []string{"sh", "-c", "touch begun-exec; sleep 300"}},
		"process":          Process{Action: "start", Command: "touch begun-process; sleep 300"},
		"read":             files.Read{Path: "Makefile"},
		"write":            files.Write{Path: "begun-write", Content: "x"},
		"edit":             files.Edit{Path: "x", OldText: "a", NewText: "b"},
		"apply_patch":      files.ApplyPatch{Patch: "*** Begin Patch\n*** Add File: begun-apply_patch\n+x\n*** End Patch"},
		"glob":             files.Glob{Pattern: "**", Path: "/usr"},
		"grep":             files.Grep{Pattern: "x", Path: "/usr"},
		"fs_request_grant": RequestGrant{Path: p.other, Access: "read_only", Reason: "r"},
		"sandbox_explain":  Explain{},
	} {
		in, client, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan error, 1)
		go func() { over <- ServeStdio(context.Background(), p.options, in, nowhere{}) }()
		text, _ := json.Marshal(arguments)
		fmt.Fprintf(client, "%s\n%s\n"+`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":%q,"arguments":%s}}`+"\n",
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`, tool, text)
		switch {
		case strings.Contains(fmt.Sprint(arguments), "begun-"+tool+";"):
			p.until(tool+" runs", func() bool { _, err := os.Stat(p.work + "/begun-" + tool); return err == nil })
		case tool == "fs_request_grant":
			p.until("it asks", func() bool { list, _ := p.person.Pending(context.Background()); return len(list) == 1 })
		}
		client.Close()
		select {
		case <-over:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: the server stays", tool)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(p.options.Session.Caller.Directories().State, sittingsName)); len(left) > 0 {
		t.Errorf("%v stays", left)
	}
	if list, err := p.person.Pending(context.Background()); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// nowhere takes what a client that is gone would have read.
type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) Close() error                { return nil }

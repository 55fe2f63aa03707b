package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime/debug"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/integration/session"
	"github.com/clairun/clai-sandbox/profile/text"
)

// Options say what a server is for.
type Options struct {
	Session session.Options
	Bwrap   string // another one than the system's
	Version string
	// Allowed says why a tool is not offered; nil: all are.
	Allowed func(tool string) error
	// Stay says whether all calls of a client's run in one sandbox.
	Stay Stay
	// Structured says where the fields of results go; empty: always where the protocol has them.
	Structured Structured
	// OutputLimit is what a result carries of a command's output, in bytes; 0: DefaultOutputLimit.
	OutputLimit int
	// TrustElicitation lets the client's own prompt answer what the agent asks for. A client that
	// is an agent's could answer itself.
	TrustElicitation bool

	askWait time.Duration // shorter in tests
}

// Stay says whether all calls of a client's run in one sandbox, and its lines in a shell that stays
// there.
type Stay uint8

const (
	// StayMostly is StayAlways, but where something is seen copy on write: changes can be applied
	// only while nothing uses their layer.
	StayMostly Stay = iota
	StayAlways
	StayNever
)

// GCPercent is for debug.SetGCPercent, in a program that does nothing but serve. The protocol's
// library makes and drops a buffer of 32 KiB for each of the eight or so pieces of JSON that a call
// takes: with Go's own 100, collecting those takes more time than all the rest of a call.
const GCPercent = 400

// maxMessage bounds one message of a client's, in bytes.
const maxMessage = 16 << 20

// progressEvery is how often a client that wants to hear of a long call's progress does.
const progressEvery = 2 * time.Second

// server is the protocol's server for one client session.
func (s *clientSession) server() *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "clai-sandbox", Title: "clai-sandbox", Version: s.options.Version},
		&sdk.ServerOptions{Instructions: s.about(), Capabilities: &sdk.ServerCapabilities{}})
	server.AddReceivingMiddleware(recovering, s.structured)
	s.addCommands(server)
	s.addProcess(server)
	s.addFiles(server)
	s.addAsk(server)
	s.addPerson(server)
	s.addExplain(server)
	s.addChanges(server)
	return server
}

// recovering answers with an error where a handler panics: other clients have their commands and
// questions in this process.
func recovering(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, request sdk.Request) (result sdk.Result, err error) {
		defer func() {
			if problem := recover(); problem != nil {
				fmt.Fprintf(os.Stderr, "%s: panic: %s\n%s", text.Line(method), text.Line(fmt.Sprint(problem)), debug.Stack())
				result, err = nil, errors.New("a mistake in clai-sandbox, which its standard error describes; the session goes on")
			}
		}()
		return next(ctx, method, request)
	}
}

// A kind of tool, for its annotations.
type kind uint8

const (
	reads kind = iota
	writes
	runs // anything at all
)

// add offers a tool, unless the policy denies it. The handler's error is one of the protocol:
// arguments that cannot be meant.
func add[In, Out any](s *clientSession, server *sdk.Server, name, title, description string, k kind, do func(context.Context, *sdk.CallToolRequest, In) (Out, string, bool, error)) {
	if s.options.Allowed != nil && s.options.Allowed(name) != nil {
		return
	}
	destructive, open := k != reads, k == runs
	tool := &sdk.Tool{Name: name, Title: title, Description: description,
		Annotations: &sdk.ToolAnnotations{Title: title, ReadOnlyHint: k == reads, DestructiveHint: &destructive, OpenWorldHint: &open}}
	s.fields[name] = reflect.TypeFor[Out]()
	// A result of type any is sent as it is: the library would take it apart and put it together
	// again to hold it against a schema of our own making.
	sdk.AddTool(server, tool, func(ctx context.Context, request *sdk.CallToolRequest, in In) (*sdk.CallToolResult, any, error) {
		if err := s.begun(); err != nil {
			return nil, nil, err
		}
		stop := progress(ctx, request, "running")
		defer stop()
		out, text, failed, err := do(ctx, request, in)
		if err != nil {
			return nil, nil, err
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}, IsError: failed}, out, nil
	})
}

// progress tells a client that asked for it, now and then, what a long call is about.
func progress(ctx context.Context, request *sdk.CallToolRequest, doing string) (stop func()) {
	token := request.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	began := time.Now()
	go func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				ran := time.Since(began).Round(time.Second)
				request.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: ran.Seconds(), Message: fmt.Sprintf("%s for %v", doing, ran)})
			}
		}
	}()
	return cancel
}

// BashExec are the arguments of bash_exec.
type BashExec struct {
	Command        string `json:"command" jsonschema:"a shell line"`
	Cwd            string `json:"cwd,omitempty" jsonschema:"where it starts, absolute or below the workspace; the workspace if absent"`
	TimeoutSeconds int    `json:"timeoutSeconds,omitempty" jsonschema:"when it is ended; 120 if absent, at most 600"`
	Description    string `json:"description,omitempty" jsonschema:"what it is for, in a few words"`
}

// Exec are the arguments of exec.
type Exec struct {
	Argv           []string `json:"argv,omitempty" jsonschema:"a program and its arguments, which no shell reads"`
	Command        string   `json:"command,omitempty" jsonschema:"in place of argv: a shell line"`
	Cwd            string   `json:"cwd,omitempty" jsonschema:"where it starts, absolute or below the workspace; the workspace if absent"`
	TimeoutSeconds int      `json:"timeoutSeconds,omitempty" jsonschema:"when it is ended; 120 if absent, at most 600"`
	Host           string   `json:"host,omitempty" jsonschema:"where it runs: sandbox if absent, or what a person said for the session; gateway is the host itself, where its policy or a person may deny it or have it wait"`
	Security       string   `json:"security,omitempty" jsonschema:"deny, allowlist or full: only stricter than what is configured"`
	Ask            string   `json:"ask,omitempty" jsonschema:"of the gateway: always, on-miss or off, only stricter than what is configured"`
	Node           string   `json:"node,omitempty" jsonschema:"of nodes, which are not available here"`
	RunID          string   `json:"runId,omitempty" jsonschema:"in place of argv: go on waiting for a command of host gateway whose result said pending"`
}

func (s *clientSession) addCommands(server *sdk.Server) {
	lasts := ""
	if s.stays() {
		lasts = "The shell stays: directory, variables and functions are there for the next line. "
	}
	add(s, server, "bash_exec", "Run a shell command", "Runs a line with the person's shell (bash, zsh or sh) in the sandbox, without standard input. "+lasts+"The result says how it ended, "+
		"what it wrote (both streams, the middle left out of a long output; the whole is in a file then, which read pages through), and what it lacked if that is why it failed.", runs,
		func(ctx context.Context, _ *sdk.CallToolRequest, in BashExec) (Result, string, bool, error) {
			timeout, err := seconds(in.TimeoutSeconds)
			if err != nil {
				return Result{}, "", false, err
			}
			if s.stays() {
				r := s.runInShell(ctx, in.Command, in.Cwd, timeout)
				return r, r.text(), !r.ran(), nil
			}
			r := s.run(ctx, command{line: in.Command, dir: in.Cwd, timeout: timeout})
			return r, r.text(), !r.ran(), nil
		})
	add(s, server, "exec", "Run a program", "Runs a program with its arguments in the sandbox, or a shell line. Same result as bash_exec. With host gateway, it runs outside of the sandbox, if that is allowed; it may wait for a person, and after 50 seconds the result says pending, with a runId.", runs,
		func(ctx context.Context, _ *sdk.CallToolRequest, in Exec) (Result, string, bool, error) {
			timeout, err := seconds(in.TimeoutSeconds)
			if err != nil {
				return Result{}, "", false, err
			}
			if given := len(in.Argv) > 0; (in.Command != "") == given && in.RunID == "" || in.RunID != "" && (in.Command != "" || given) {
				return Result{}, "", false, fmt.Errorf("exec wants either argv or command, or the runId of one that waits")
			}
			said := in.Host == "" && in.RunID == "" && s.session.Where() != ""
			if said {
				in.Host = s.session.Where()
			}
			if in.outside() {
				r := s.runOutside(ctx, in, timeout)
				if said {
					r.Notices = append(r.Notices, Notice{Kind: string(grants.EventOverridden), Text: "a person said that this session's commands run on host " + in.Host + " where they name none; host sandbox is the sandbox"})
				}
				return r, r.text(), !r.ran(), nil
			}
			if in.Security == "deny" {
				r := refused(outcomeDenied, "the call itself says security deny")
				return r, r.text(), true, nil
			}
			r := s.run(ctx, command{argv: in.Argv, line: in.Command, dir: in.Cwd, timeout: timeout})
			return r, r.text(), !r.ran(), nil
		})
}

// ServeStdio serves one client on standard streams, until it is gone or the context ends.
func ServeStdio(ctx context.Context, o Options, in io.ReadCloser, out io.WriteCloser) error {
	s, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	answers := &lockedWriter{WriteCloser: out}
	return s.server().Run(ctx, &sdk.IOTransport{Reader: newMessageLines(in, answers), Writer: answers, MaxLineLength: maxMessage + 1})
}

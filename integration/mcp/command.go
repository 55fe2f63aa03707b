package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
	"github.com/clairun/clai-sandbox/sandbox/diagnosis"
)

const (
	defaultTimeout = 120
	maxTimeout     = 600 // seconds
	maxCommand     = 128 << 10
)

// A Notice is one thing that happened beside a command.
type Notice struct {
	Kind string `json:"kind" jsonschema:"path_granted, path_grant_denied, sandbox_unavailable, command_denied, path_denied, and others"`
	Path string `json:"path,omitempty"`
	Text string `json:"text"`
}

// A Missing is something that a command lacked.
type Missing struct {
	Kind   string `json:"kind" jsonschema:"path, domain or machine"`
	Path   string `json:"path,omitempty" jsonschema:"of a path: what to ask for"`
	Domain string `json:"domain,omitempty" jsonschema:"of a domain: the host, with its port where that is known"`
	Access string `json:"access,omitempty" jsonschema:"of a path: read_only, copy_on_write or read_write"`
	Why    string `json:"why" jsonschema:"not_granted, hidden, read_only, copy_on_write, domain_refused, not_by_proxy, network_disabled, or outside_only of what no sandbox has"`
	Hint   string `json:"hint" jsonschema:"what to do about it"`
}

func missing(list []diagnosis.Missing) []Missing {
	var all []Missing
	for _, l := range list {
		m := Missing{Kind: string(l.Kind), Path: l.Path, Domain: l.Domain, Why: string(l.Why), Hint: l.Hint}
		if l.Kind == diagnosis.Path {
			m.Access = l.Access.String()
		}
		m.Hint = m.hint()
		all = append(all, m)
	}
	return all
}

// hint says what the agent can do about it, with the tools that it has.
func (m Missing) hint() string {
	switch {
	case m.Kind == string(diagnosis.Domain) && m.Why == string(diagnosis.NetworkDisabled):
		return "this sandbox has no network; only a person can give it one"
	case m.Why == string(diagnosis.DomainRefused):
		return "the network of this sandbox refuses " + profile.Printable(m.Domain) + "; only a person can allow it"
	}
	return m.Hint
}

// A Result is what became of a command.
type Result struct {
	Outcome     string    `json:"outcome" jsonschema:"exited, signalled, timed_out, cancelled, or pending, or why nothing was run: sandbox_unavailable, command_denied, command_not_found, setup_failed"`
	ExitCode    int       `json:"exitCode" jsonschema:"the command's exit status; 128+N if signal N ended it, -1 if nothing was run"`
	Signal      string    `json:"signal,omitempty" jsonschema:"the signal that ended it, such as SIGKILL"`
	TimedOut    bool      `json:"timedOut"`
	DurationMs  int64     `json:"durationMs"`
	Output      string    `json:"output" jsonschema:"standard output and standard error, in the order in which they came"`
	Truncated   bool      `json:"truncated" jsonschema:"whether the middle of the output was left out"`
	OutputBytes int64     `json:"outputBytes" jsonschema:"how much there was"`
	OutputFile  string    `json:"outputFile,omitempty" jsonschema:"where the output can be read when it was truncated; its first 64 MiB"`
	RunID       string    `json:"runId,omitempty" jsonschema:"of a command outside of the sandbox: exec with it goes on waiting for one that is pending"`
	Missing     []Missing `json:"missing,omitempty" jsonschema:"what the command lacked, if that is why it failed"`
	Notices     []Notice  `json:"notices,omitempty"`
}

// notRun are the outcomes of what was not run.
const (
	outcomeUnavailable = "sandbox_unavailable"
	outcomeDenied      = "command_denied"
	outcomeNotFound    = "command_not_found"
	outcomeSetup       = "setup_failed"
)

// refused is a result of what was not run.
func refused(outcome string, why string) Result {
	kind := outcome
	return Result{Outcome: outcome, ExitCode: -1, Notices: []Notice{{Kind: kind, Text: why}}}
}

// ran reports whether anything was.
func (r Result) ran() bool {
	switch r.Outcome {
	case outcomeUnavailable, outcomeDenied, outcomeNotFound, outcomeSetup:
		return false
	}
	return true
}

// A command is one to run.
type command struct {
	argv    []string
	line    string // in place of argv: for the person's shell
	dir     string // empty: the workspace
	timeout time.Duration
	stdin   io.Reader
}

// change is what a command adds to the session's request.
func (c command) change(r *profile.Request) {
	if c.dir != "" {
		r.WorkingDirectory = c.dir
		if !filepath.IsAbs(c.dir) && c.dir[0] != '~' {
			r.WorkingDirectory = filepath.Join(cmp.Or(r.Base, r.Workspace), c.dir)
		}
	}
	if c.timeout > 0 && (r.Timeout == 0 || c.timeout < r.Timeout) {
		r.Timeout = c.timeout
	}
}

// check refuses what cannot be a command.
func (c command) check() error {
	words := c.argv
	if c.line != "" {
		words = []string{c.line}
	}
	total := 0
	for _, word := range words {
		if strings.ContainsRune(word, 0) {
			return errors.New("a command cannot hold a NUL byte")
		}
		total += len(word)
	}
	switch {
	case len(words) == 0 || words[0] == "":
		return errors.New("no command")
	case total > maxCommand:
		return fmt.Errorf("the command is longer than %d KiB; write it to a file and run that", maxCommand>>10)
	case strings.ContainsRune(c.dir, 0) || len(c.dir) > 4096:
		return errors.New("cwd is no path")
	}
	return nil
}

// run runs a command to its end.
func (s *clientSession) run(ctx context.Context, c command) Result {
	if err := s.cannot(); err != nil {
		return refused(outcomeUnavailable, explained(err))
	}
	if err := c.check(); err != nil {
		return refused(outcomeSetup, err.Error())
	}
	if !s.begin() {
		return refused(outcomeUnavailable, "the session has ended")
	}
	defer s.running.Done()
	ctx, stop := joined(ctx, s.ctx)
	defer stop()
	rm, again, err := s.theRoom()
	if err != nil {
		return s.notRun(err)
	}
	if rm != nil {
		r := s.runThere(ctx, rm, c)
		if again {
			r.Notices = append(noticesOf([]sandbox.Notice{restarted}), r.Notices...)
		}
		return r
	}
	out := s.output()
	write, read, err := pipeTo(out)
	if err != nil {
		return refused(outcomeSetup, err.Error())
	}
	return s.runWith(ctx, c, sandbox.Launcher{}, sandbox.Stdio{In: c.stdin, Out: write, Err: write}, func() captured {
		write.Close()
		<-read
		return out.finish()
	})
}

// words are what is executed for a command.
func (s *clientSession) words(c command, plan *sandbox.Plan) []string {
	if c.line == "" {
		return c.argv
	}
	return []string{s.shellOf(plan), "-c", c.line}
}

// begin counts something that the client session's end waits for.
func (s *clientSession) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running.Add(1)
	return true
}

// joined is a context that ends with either.
func joined(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(other, cancel)
	return ctx, func() { stop(); cancel() }
}

// runWith runs a command with these streams, with a launcher that says only what is special. output
// is called when it has ended.
func (s *clientSession) runWith(ctx context.Context, c command, launcher sandbox.Launcher, stdio sandbox.Stdio, output func() captured) Result {
	prepared, err := s.session.PrepareRun(c.change)
	if err != nil {
		output()
		return s.notRun(err)
	}
	c.argv = s.words(c, &prepared.Plan)
	launcher.Bwrap, launcher.State = s.bwrap, s.options.Session.Caller.Directories().State
	result, err := prepared.Run(ctx, launcher, c.argv, stdio)
	captured := output()
	if err != nil {
		return s.notRun(err)
	}
	r := resultOf(result, captured)
	if result.Outcome == sandbox.Exited {
		r.Missing = missing(diagnosis.Of(diagnosis.Failure{Plan: &prepared.Plan, Command: c.argv, ExitCode: result.ExitCode, Stderr: captured.tail, Notices: result.Notices,
			Own: prepared.Profile.OwnDirectories}))
	}
	r.Notices = noticesOf(append(result.Notices, s.sessionNotices()...))
	return r
}

// resultOf is a result without what is found out about it.
func resultOf(result sandbox.Result, captured captured) Result {
	r := Result{Outcome: string(result.Outcome), ExitCode: result.ExitCode, TimedOut: result.Outcome == sandbox.TimedOut, DurationMs: result.Duration.Milliseconds(),
		Output: captured.text, Truncated: captured.truncated, OutputBytes: captured.size, OutputFile: captured.file}
	if result.Signal != 0 {
		r.Signal = unix.SignalName(result.Signal)
	}
	return r
}

func noticesOf(list []sandbox.Notice) []Notice {
	var notices []Notice
	for _, n := range list {
		notices = append(notices, Notice{string(n.Kind), n.Path, n.Text})
	}
	return notices
}

// notRun says why nothing was run.
func (s *clientSession) notRun(err error) Result {
	var (
		unavailable *sandbox.UnavailableError
		notThere    *sandbox.CommandError
	)
	switch {
	case errors.As(err, &unavailable):
		return refused(outcomeUnavailable, explained(err))
	case errors.As(err, &notThere):
		r := refused(outcomeNotFound, explained(err))
		r.ExitCode = 127
		if notThere.Found {
			r.ExitCode = 126
		}
		return r
	}
	return refused(outcomeSetup, explained(err))
}

// seconds is a timeout as a client gives it.
func seconds(n int) (time.Duration, error) {
	switch {
	case n == 0:
		return defaultTimeout * time.Second, nil
	case n < 1 || n > maxTimeout:
		return 0, fmt.Errorf("timeoutSeconds must be from 1 to %d", maxTimeout)
	}
	return time.Duration(n) * time.Second, nil
}

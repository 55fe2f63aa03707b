package mcp

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// outside says whether the arguments name another place than the sandbox.
func (in Exec) outside() bool {
	return in.Host != "" && in.Host != "sandbox" || in.Node != "" || in.RunID != ""
}

// A run outside waits or runs, across calls.
type outsideRun struct {
	id      string
	over    chan struct{}
	answer  grants.CommandAnswer
	err     error
	watched int // calls that wait for it now. Guarded by the client session's lock
}

// outcomePending is of a command that goes on outside, or waits for a person, when the call has
// waited long enough.
const outcomePending = "pending"

// runOutside runs a command on the gateway's host, outside of the sandbox, where the policy of that
// host or a person lets it.
func (s *clientSession) runOutside(ctx context.Context, in Exec, timeout time.Duration) Result {
	if !s.begin() {
		return refused(outcomeUnavailable, "the session has ended")
	}
	defer s.running.Done()
	ctx, stop := joined(ctx, s.ctx)
	defer stop()
	run, err := s.outsideRun(ctx, in, timeout)
	if err != nil {
		return refused(outcomeDenied, explained(err))
	}
	wait := time.NewTimer(s.askWait())
	defer wait.Stop()
	select {
	case <-run.over:
	case <-wait.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	run.watched--
	select {
	case <-run.over:
		delete(s.outside, run.id)
		s.mu.Unlock()
	default:
		s.mu.Unlock()
		return Result{Outcome: outcomePending, ExitCode: -1, RunID: run.id, Notices: []Notice{{Kind: outcomePending,
			Text: "it runs outside, or waits for a person. Go on with something else: a later result will say when it has ended; exec with runId " + run.id + " goes on waiting, and has its output"}}}
	}
	return s.ranOutside(run)
}

// outsideRun begins a run, or finds the one that an earlier call began.
func (s *clientSession) outsideRun(ctx context.Context, in Exec, timeout time.Duration) (*outsideRun, error) {
	if in.RunID != "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		run := s.outside[in.RunID]
		if run == nil {
			return nil, errors.New("no command of this session that runs or waits outside has the id " + profile.Printable(in.RunID))
		}
		run.watched++
		return run, nil
	}
	if in.Host != "gateway" || in.Node != "" {
		return nil, errors.New("host " + profile.Printable(in.Host+in.Node) + " is not available: there are sandbox and gateway")
	}
	s.mu.Lock()
	full := len(s.outside) >= maxAsks
	s.mu.Unlock()
	if full {
		return nil, errors.New("too many commands run or wait outside: look at their results first")
	}
	dir := in.Cwd
	if dir != "" && !filepath.IsAbs(dir) {
		dir = filepath.Join(cmp.Or(s.options.Session.Request.Base, s.options.Session.Request.Workspace, s.options.Session.Caller.WorkingDirectory), dir)
	}
	run := &outsideRun{over: make(chan struct{}), watched: 1}
	run.answer, run.err = s.session.RunOutside(ctx, grants.Command{Argv: in.Argv, Line: in.Command, Cwd: dir, Security: in.Security, Ask: in.Ask, TimeoutMs: timeout.Milliseconds(), TwoPhase: true})
	if run.id = run.answer.RequestID; run.err != nil || run.answer.Status != grants.CommandAccepted {
		close(run.over)
		return run, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("the session has ended")
	}
	s.outside[run.id] = run
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		s.awaitOutside(run)
	}()
	return run, nil
}

// awaitOutside waits for a run's end. If no call waits for it then, the next result says so.
func (s *clientSession) awaitOutside(run *outsideRun) {
	run.answer, run.err = s.session.WaitOutside(s.ctx, run.id)
	s.mu.Lock()
	close(run.over)
	unwatched := run.watched == 0
	s.mu.Unlock()
	if !unwatched {
		return
	}
	said := cmp.Or(run.answer.Text, "Exec ended (gateway id="+run.id+")")
	s.tell(sandbox.Notice{Kind: "exec_ended", Text: said + "; exec with runId " + run.id + " has all of it"})
}

// ranOutside is what became of a run.
func (s *clientSession) ranOutside(run *outsideRun) Result {
	answer := run.answer
	switch {
	case run.err != nil:
		return refused(outcomeDenied, explained(run.err))
	case answer.Status == grants.CommandError:
		return refused(outcomeSetup, profile.Printable(answer.Reason))
	case !answer.Ran():
		return refused(outcomeDenied, string(answer.Status)+": "+profile.Printable(answer.Reason))
	}
	out := s.output()
	_, _ = out.Write(answer.Stdout)
	_, _ = out.Write(answer.Stderr)
	captured := out.finish()
	r := Result{Outcome: "exited", ExitCode: answer.ExitCode, DurationMs: answer.TookMs, TimedOut: answer.TimedOut, RunID: run.id,
		Output: captured.text, Truncated: captured.truncated || answer.Truncated, OutputBytes: captured.size, OutputFile: captured.file}
	if answer.TimedOut {
		r.Outcome = "timed_out"
	}
	return r
}

// askWait is how long a call waits for a person.
func (s *clientSession) askWait() time.Duration { return cmp.Or(s.options.askWait, askWait) }

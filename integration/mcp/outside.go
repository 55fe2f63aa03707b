package mcp

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
)

// outside says whether the arguments name another place than the sandbox.
func (in Exec) outside() bool { return in.Host != "" && in.Host != "sandbox" || in.Node != "" }

// runOutside runs a command on the gateway's host, outside of the sandbox, where the policy of that host or a person lets it.
func (s *sitting) runOutside(ctx context.Context, in Exec, timeout time.Duration) Result {
	if in.Host != "gateway" || in.Node != "" {
		return refused(outcomeDenied, "host "+profile.Printable(in.Host+in.Node)+" is not available: there are sandbox and gateway")
	}
	if !s.begin() {
		return refused(outcomeUnavailable, "the session has ended")
	}
	defer s.running.Done()
	ctx, stop := joined(ctx, s.ctx)
	defer stop()
	dir := in.Cwd
	if dir != "" && !filepath.IsAbs(dir) {
		dir = filepath.Join(cmp.Or(s.options.Session.Request.Base, s.options.Session.Request.Workspace, s.options.Session.Caller.WorkingDirectory), dir)
	}
	answer, err := s.session.RunOutside(ctx, grants.Command{Argv: in.Argv, Line: in.Command, Cwd: dir, Security: in.Security, Ask: in.Ask, TimeoutMs: timeout.Milliseconds()})
	switch {
	case err != nil:
		return refused(outcomeDenied, explained(err))
	case answer.Status == grants.CommandError:
		return refused(outcomeSetup, profile.Printable(answer.Reason))
	case !answer.Ran():
		return refused(outcomeDenied, string(answer.Status)+": "+profile.Printable(answer.Reason))
	}
	out := s.output()
	_, _ = out.Write(answer.Stdout)
	_, _ = out.Write(answer.Stderr)
	captured := out.finish()
	r := Result{Outcome: "exited", ExitCode: answer.ExitCode, DurationMs: answer.TookMs, TimedOut: answer.TimedOut,
		Output: captured.text, Truncated: captured.truncated || answer.Truncated, OutputBytes: captured.size, OutputFile: captured.file}
	if answer.TimedOut {
		r.Outcome = "timed_out"
	}
	return r
}

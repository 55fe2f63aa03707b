package outside

import (
	"strings"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/outside/runner"
	"github.com/clairun/clai-sandbox/policy"
)

// DefaultNotice is how long a command runs before it is told that it still does.
const DefaultNotice = 10 * time.Second

// tell tells the command's session, and everyone who listens, what becomes of it, and returns the
// words.
func (b *Broker) tell(c command, kind grants.EventKind, r grants.Run) string {
	r.ID, r.Agent, r.Command = c.id, c.Agent, brief(c.text())
	said := policy.RunEvent{Kind: strings.TrimPrefix(string(kind), "exec."), ID: c.id, Session: c.session, Command: r.Command, Reason: r.Reason, ExitCode: r.ExitCode,
		TimedOut: r.TimedOut, Output: r.Output}
	r.Text = said.Text()
	b.Publish(grants.Event{Kind: kind, Session: c.session, Run: &r})
	return r.Text
}

// tellStarted tells that a command was handed to the runner, and that it still runs after a while,
// until stop.
func (b *Broker) tellStarted(c command) (stop func()) {
	b.tell(c, grants.EventExecStarted, grants.Run{})
	told := make(chan struct{})
	timer := time.AfterFunc(b.options.Notice, func() {
		defer close(told)
		b.tell(c, grants.EventExecRunning, grants.Run{})
	})
	return func() {
		if !timer.Stop() {
			<-told // nothing is told behind the end
		}
	}
}

// tellEnd tells how a command that was begun has ended.
func (b *Broker) tellEnd(c command, a runner.Answer) string {
	out := policy.Output{Stdout: a.Stdout, Stderr: a.Stderr, Truncated: a.Truncated}
	stdout, stderr := out.Texts()
	r := grants.Run{TimedOut: a.Status == runner.TimedOut, TookMs: a.TookMs, Output: strings.ToValidUTF8(policy.EventOutput(stdout+stderr), "\uFFFD")}
	if a.Status == runner.Completed || r.TimedOut {
		r.ExitCode = &a.ExitCode
	}
	return b.tell(c, grants.EventExecFinished, r)
}

// Reasons of exec.denied, beside those of the policy.
const (
	reasonWithdrawn = "withdrawn"
	reasonNotRun    = "not-run"
)

// denial is the word that says why nothing was run.
func denial(c command, a grants.CommandAnswer, err error) string {
	switch {
	case err != nil && a.Status == "":
		return reasonWithdrawn
	case a.Status == grants.CommandTimeout:
		return policy.ReasonTimeout
	case a.Status == grants.CommandError:
		return reasonNotRun
	case c.decision.Verdict == policy.Deny:
		return c.decision.Reason
	}
	return policy.ReasonUserDenied
}

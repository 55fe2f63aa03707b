package grants

import (
	"context"

	"github.com/clairun/clai-sandbox/profile/text"
)

// A Command is what somebody wants run outside of any sandbox.
type Command struct {
	Line string            `json:"command,omitempty" jsonschema:"a line for a shell; or argv"`
	Argv []string          `json:"argv,omitempty" jsonschema:"words that no shell reads; or command"`
	Cwd  string            `json:"cwd,omitempty" jsonschema:"where it starts, absolute and clean; without it, in the session's workspace"`
	Env  map[string]string `json:"env,omitempty" jsonschema:"variables that are set besides"`
	// Agent is said where nobody asks within a session: the person runs a command themselves, as
	// the agent would.
	Agent     string `json:"agentId,omitempty" jsonschema:"without a session: by whose rules it runs"`
	Security  string `json:"security,omitempty" jsonschema:"deny, allowlist or full: it can only be stricter than what is configured"`
	Ask       string `json:"ask,omitempty" jsonschema:"always, on-miss or off: it can only be stricter than what is configured"`
	Reason    string `json:"reason,omitempty" jsonschema:"why, for the person who decides"`
	TimeoutMs int64  `json:"timeoutMs,omitempty" jsonschema:"after which time it is ended; without it, after 30 minutes"`
	TwoPhase  bool   `json:"twoPhase,omitempty" jsonschema:"answer at once, with status accepted and an id by which the end is waited for"`
}

// A CommandRequest is what a person is shown of a command that waits for them, beside what a
// Request has. It does not change while it waits.
type CommandRequest struct {
	Text     string   `json:"text" jsonschema:"the command as it was asked for"`
	Shell    bool     `json:"shell" jsonschema:"whether a shell reads it"`
	Cwd      string   `json:"cwd" jsonschema:"where it starts"`
	Env      []string `json:"env,omitempty" jsonschema:"variables that are set besides, as NAME=VALUE"`
	Host     string   `json:"host" jsonschema:"where it runs"`
	Runs     string   `json:"runs,omitempty" jsonschema:"what is executed, where that is written otherwise than the command"`
	Programs []string `json:"programs,omitempty" jsonschema:"what the words lead to, by real paths"`
	Security string   `json:"security" jsonschema:"how much runs without an answer"`
	Ask      string   `json:"ask" jsonschema:"when a person is asked"`
	Fallback string   `json:"askFallback" jsonschema:"what happens without an answer"`
	Why      string   `json:"why" jsonschema:"why a person is asked"`
	Always   []string `json:"always,omitempty" jsonschema:"what allowAlways would store; without it, it is no answer"`
	// Shown is the digest of all of this and of what it is bound to. Who allows the command says
	// it: nobody allows what they did not see.
	Shown string `json:"shown" jsonschema:"the digest that allows the command as it is shown here"`
}

// A Fact is one thing that a person is shown, with a name before it. What is in it can be shown on
// a terminal.
type Fact struct{ Name, Text string }

// Facts are all that is shown of a command. The first are what a person must see the whole of
// before they allow it.
func (r CommandRequest) Facts() (first, rest []Fact) {
	add := func(list *[]Fact, name, what string) {
		if what != "" {
			*list = append(*list, Fact{name, text.Line(what)})
		}
	}
	shell := ""
	if r.Shell {
		shell = ", by a shell"
	}
	add(&first, "command", r.Text)
	add(&first, "runs", r.Runs)
	add(&first, "in", r.Cwd)
	for _, pair := range r.Env {
		add(&first, "with", pair)
	}
	for _, entry := range r.Always {
		add(&first, "always", "would allow "+entry)
	}
	for _, program := range r.Programs {
		add(&rest, "program", program)
	}
	add(&rest, "on", r.Host+", outside of any sandbox"+shell)
	add(&rest, "asked for", r.Why+"; security is "+r.Security+", ask is "+r.Ask+", and without an answer: "+r.Fallback)
	return first, rest
}

// A CommandStatus is what became of a command.
type CommandStatus string

const (
	CommandApproved     CommandStatus = "approved"      // a person let it run
	CommandAutoApproved CommandStatus = "auto_approved" // nobody had to be asked
	CommandDenied       CommandStatus = "denied"
	CommandTimeout      CommandStatus = "timeout" // nobody answered in time
	CommandError        CommandStatus = "error"   // it was to run, and could not, or did not to its end
	// CommandAccepted is the first of two answers: WaitOutside has the other.
	CommandAccepted CommandStatus = "accepted"
)

// A CommandAnswer is what whoever asked is told when the command has ended.
type CommandAnswer struct {
	RequestID string        `json:"requestId,omitempty"`
	Status    CommandStatus `json:"status"`
	Pattern   string        `json:"pattern,omitempty" jsonschema:"the expression of hostexec that decided"`
	Reason    string        `json:"reason,omitempty" jsonschema:"why it did not run"`
	ExitCode  int           `json:"exitCode" jsonschema:"of a command that ran; 128 and the signal's number where one ended it"`
	Stdout    []byte        `json:"stdout,omitempty"`
	Stderr    []byte        `json:"stderr,omitempty"`
	Truncated bool          `json:"truncated,omitempty" jsonschema:"there was more output than 200000 bytes"`
	TimedOut  bool          `json:"timedOut,omitempty" jsonschema:"it was ended after its time"`
	TookMs    int64         `json:"tookMs,omitempty"`
	Text      string        `json:"text,omitempty" jsonschema:"what its session is told of it"`

	CreatedAtUnixMs int64 `json:"createdAtUnixMs,omitempty" jsonschema:"of accepted"`
	ExpiresAtUnixMs int64 `json:"expiresAtUnixMs,omitempty" jsonschema:"of accepted: when nobody is asked any more"`
}

// A Run is what is told of a command that was to run outside: to its session, and to everyone who
// listens.
type Run struct {
	ID       string `json:"runId" jsonschema:"the request's id"`
	Agent    string `json:"agentId"`
	Command  string `json:"command"`
	Reason   string `json:"reason,omitempty" jsonschema:"of exec.denied: why"`
	ExitCode *int   `json:"exitCode,omitempty" jsonschema:"of a command that ran to its end"`
	TimedOut bool   `json:"timedOut,omitempty"`
	TookMs   int64  `json:"tookMs,omitempty"`
	Output   string `json:"output,omitempty" jsonschema:"the last 20000 characters of both outputs"`
	Text     string `json:"text,omitempty" jsonschema:"all of it for an agent, in a line or two; none of a command that wrote nothing and did not fail"`
}

// Ran reports whether the command was run to an end.
func (a CommandAnswer) Ran() bool {
	return a.Status == CommandApproved || a.Status == CommandAutoApproved
}

// A Runner is a broker that has commands run outside of any sandbox, too.
type Runner interface {
	// RunOutside asks, waits for whoever decides, and then for the command's end. Session is empty
	// where the person runs a command themselves. inside says that the command comes out of the
	// session's sandbox. When the context ends, the request is withdrawn, or the command ended.
	RunOutside(ctx context.Context, session string, inside bool, c Command) (CommandAnswer, error)
	// WaitOutside waits for the end of a command that was accepted. Its id is good for some time
	// after that.
	WaitOutside(ctx context.Context, id string) (CommandAnswer, error)
}

// CommandBody asks for a command outside, on the person's socket.
type CommandBody struct {
	Session string `json:"sessionId,omitempty" jsonschema:"the session that it is asked in; without it, the person runs it themselves"`
	Command
}

package runner

import (
	"github.com/clairun/clai-sandbox/policy"
)

// Limits of what is asked and answered.
const (
	SecretSize = 32      // bytes
	maxRequest = 1 << 20 // of a line, in bytes
	maxAnswer  = 4 << 20
)

// A Request is one command that a gateway wants run: one line on the runner's socket.
type Request struct {
	Secret string `json:"secret"` // in hexadecimal digits
	ID     string `json:"id"`     // of the run, for who reads logs

	Command string            `json:"command,omitempty"` // a line for a shell, or
	Argv    []string          `json:"argv,omitempty"`    // words that no shell reads
	Cwd     string            `json:"cwd"`
	Env     map[string]string `json:"env,omitempty"` // overrides
	Agent   string            `json:"agentId"`
	Session string            `json:"sessionId,omitempty"`
	Asker   string            `json:"asker,omitempty"`
	// Workdir is the directory that was registered for the session: the command must start there or
	// below. Empty: it may start anywhere.
	Workdir string `json:"workdir,omitempty"`
	// Layers are the preferences of session and request. The runner itself reads those of the
	// configuration.
	Layers Layers `json:"layers,omitzero"`

	// Approved is what a person, or who answers in their place, said, and what they were shown.
	// Nil: nobody was asked.
	Approved  *Approved `json:"approved,omitempty"`
	TimeoutMs int64     `json:"timeoutMs,omitempty"` // 0: DefaultTimeout
}

// Layers are what policy.Layers has besides the configuration.
type Layers struct {
	Person    bool   `json:"person,omitempty"`    // the person asks for this host themselves
	InSandbox bool   `json:"inSandbox,omitempty"` // the request comes out of a sandbox
	Security  string `json:"security,omitempty"`  // of the request: it can only tighten
	Ask       string `json:"ask,omitempty"`

	Session policy.Overrides `json:"session,omitzero"` // what an operator said for the session
}

// Policy are the layers as the policy takes them, for a command on this host. What cannot be read
// is the strictest.
func (l Layers) Policy() policy.Layers {
	gateway := policy.HostGateway
	p := policy.Layers{InSandbox: l.InSandbox, Session: l.Session.Preference(), Elevated: l.Session.Elevated}
	if l.Person {
		p.Session = policy.Preference{Host: &gateway, Source: "as the person asked"}
	} else {
		p.Parameter.Host = &gateway
	}
	if l.Security != "" {
		security, _ := policy.ParseSecurity(l.Security)
		p.Parameter.Security = &security
	}
	if l.Ask != "" {
		ask, _ := policy.ParseAsk(l.Ask)
		p.Parameter.Ask = &ask
	}
	return p
}

// Approved is an answer, and what it was given for.
type Approved struct {
	Answer string        `json:"answer"` // as policy.Answer writes it
	Bound  *policy.Bound `json:"boundTo"`
	Runs   Runs          `json:"runs"`
}

// Runs is what is executed: words, or a line for the host's shell.
type Runs struct {
	Argv    []string `json:"argv,omitempty"`
	Command string   `json:"command,omitempty"`
}

// RunsOf is what a decision would execute.
func RunsOf(d policy.Decision) Runs { return Runs{d.Argv, d.Command} }

// A Status is how a run ended.
type Status string

const (
	Completed Status = "completed" // it ran, and ended by itself
	TimedOut  Status = "timeout"   // it was ended after its time; the output is what there was until then
	Failed    Status = "error"     // nothing was run
)

// An Answer is one line back.
type Answer struct {
	Status    Status `json:"status"`
	ExitCode  int    `json:"exitCode"`         // 128 and the signal's number where one ended it
	Stdout    []byte `json:"stdout,omitempty"` // at most policy.MaxOutput bytes of both together
	Stderr    []byte `json:"stderr,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
	TookMs    int64  `json:"tookMs,omitempty"`
	// Reason says of an error which it was, in the words of events; Error says it for people.
	Reason string `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Reasons of errors beside those of the policy.
const (
	ReasonSecret   = "invalid-secret"
	ReasonWorkdir  = "workdir-mismatch"
	ReasonRequest  = "invalid-request"
	ReasonChanged  = "changed"
	ReasonNotFound = "not-found"
	ReasonBusy     = "busy"
	ReasonRunner   = "runner"
)

func failed(reason, text string) Answer { return Answer{Status: Failed, Reason: reason, Error: text} }

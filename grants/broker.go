package grants

import (
	"context"

	"github.com/clairun/clai-sandbox/profile"
)

// A Broker holds questions until a person answers. Package broker has the one that does, package
// client the one that passes everything on to it over a socket; both do the same.
//
// A change is made once for the name that it is asked under (WithRequestID), and told again to who
// asks again.
//
// Besides what each method names, errors are *UnknownError for an id that is none, *InvalidError
// and *profile.PathError for what cannot be meant, and *UnavailableError.
type Broker interface {
	// Open begins a session: what one sandbox, or one backend, asks within. It ends with
	// Session.Close, with the context, and with whoever opened it.
	Open(context.Context, SessionSpec) (*Session, error)
	// Ask asks within a session and waits for the answer. The question is withdrawn when the
	// context ends. A denial, or that nobody answered, is not an error but an Answer. A *BusyError
	// tells an agent that asks too much.
	Ask(ctx context.Context, session string, a Asking) (Answer, error)
	// Pending lists what waits for a decision, the oldest first.
	Pending(context.Context) ([]Request, error)
	// Decide answers a request. A decision that is not valid is a *DecisionError, a *ChangedError
	// or a *NeverError, and the request is still pending; one that comes too late is an
	// *EndedError.
	Decide(ctx context.Context, request string, d Decision) (Answer, error)
	// Grants lists what is granted, by agent and path: what is stored, and what sessions have.
	Grants(context.Context) ([]Grant, error)
	// Add stores a grant that nobody asked for.
	Add(context.Context, NewGrant) (Grant, error)
	// Confirm takes a stale grant for what its path leads to now, which the person has to say:
	// resolved. Anything else is a *ChangedError that says where it leads.
	Confirm(ctx context.Context, id, resolved string) (Grant, error)
	// Narrow takes writing away from a grant. It returns when the sandboxes that can be reached
	// have done so.
	Narrow(ctx context.Context, id string) (Taking, error)
	// Revoke ends a grant, in the same way. It is over also where the error says that it could not
	// be stored yet.
	Revoke(ctx context.Context, id string) (Taking, error)
	// Log lists requests that have ended, the latest first, at most limit.
	Log(ctx context.Context, limit int) ([]Record, error)
	// Applied tells of a session that is Live what became of a change: its sandboxes show it, or
	// why not.
	Applied(ctx context.Context, session string, a Applied) error
	// Events tells of everything that happens from now on, or from an earlier event on. The channel
	// is closed when the context ends, and when its reader is too slow: then ask again, from the
	// last event that was read.
	Events(context.Context, EventsFrom) (<-chan Event, error)
}

// A SessionSpec describes a session to the broker. It comes from whoever starts the sandbox, never
// from inside.
type SessionSpec struct {
	Agent     string   `json:"agentId"`
	Workspace string   `json:"workspaceId" jsonschema:"the directory that the agent works in"`
	Command   string   `json:"command,omitempty" jsonschema:"what the session runs, for the person who decides"`
	Shown     []Shown  `json:"shown,omitempty" jsonschema:"what the sandbox shows already, the later one deciding at equal paths"`
	Hidden    []string `json:"hidden,omitempty" jsonschema:"what it hides below that"`
	Links     []string `json:"links,omitempty" jsonschema:"symbolic links that it has of its own, on the way to what it shows"`
	Live      bool     `json:"live,omitempty" jsonschema:"grants are mounted into the running sandbox, and taken out of it, and reported as applied"`
	PID       int      `json:"pid,omitempty" jsonschema:"the process that runs the sandbox"`
	Key       string   `json:"key,omitempty" jsonschema:"under what the session is known to brokers that come later, letters and digits; whoever opens it chooses it"`
	Previous  string   `json:"previous,omitempty" jsonschema:"the key of the session that this one goes on with, after a broker has ended"`
}

// Shown is a path that a session's sandbox shows.
type Shown struct {
	Path   string         `json:"path"`
	Access profile.Access `json:"access"`
}

// A Session is one that was opened.
type Session struct {
	ID     string
	Key    string // SessionSpec.Key
	Socket string // a unix socket on which this session, and nothing else, can ask; empty if there is none
	// Events are the grants that come and go in this session. The channel is closed when the
	// session has ended, whatever ended it: from then on nobody tells of a grant that was revoked.
	Events <-chan Event
	Close  func()
}

// An Asking is what an agent says when it asks.
type Asking struct {
	Path   string         `json:"requestedPath" jsonschema:"absolute, or below the home directory as ~/x"`
	Access profile.Access `json:"requestedAccess" jsonschema:"read_only, copy_on_write or read_write"`
	Reason string         `json:"reason,omitempty" jsonschema:"why, for the person who decides"`
}

// A NewGrant is a grant that a person adds: of a path, or of a domain.
type NewGrant struct {
	Agent     string         `json:"agentId"`
	Path      string         `json:"path,omitempty"`
	Access    profile.Access `json:"access,omitempty"`
	Domain    string         `json:"domain,omitempty" jsonschema:"in place of path and access: a rule for connections of a filtered network, as host:port, host or *.suffix"`
	ExpiresIn Duration       `json:"expiresIn,omitempty" jsonschema:"how long it holds, as 90m or 2h30m"`
	Reason    string         `json:"reason,omitempty"`
	Via       string         `json:"via,omitempty"`
}

// An EventKind is what happened.
type EventKind string

const (
	EventSession        EventKind = "session" // the first event of a session's own stream
	EventRequestPending EventKind = "request_pending"
	EventRequestChanged EventKind = "request_changed" // its path leads elsewhere than before
	EventRequestEnded   EventKind = "request_ended"
	EventGranted        EventKind = "path_granted"
	EventDomainGranted  EventKind = "domain_granted"
	EventConfirmed      EventKind = "grant_confirmed" // it holds again
	EventNarrowed       EventKind = "grant_narrowed"
	EventRevoked        EventKind = "grant_revoked"
	EventExpired        EventKind = "grant_expired"
	EventStale          EventKind = "grant_stale" // it is left out until a person confirms it
	EventNotice         EventKind = "notice"
	EventOverridden     EventKind = "session_overridden" // somebody said where and how its commands run
	EventsLost          EventKind = "events_lost"        // some of those that were asked for are not kept any more
	// What becomes of a command that is to run outside of any sandbox.
	EventExecStarted  EventKind = "exec.started"
	EventExecRunning  EventKind = "exec.running" // it has taken ten seconds
	EventExecFinished EventKind = "exec.finished"
	EventExecDenied   EventKind = "exec.denied" // nothing was run
)

// EventsFrom says which events are meant. The zero value is all that happen from now on.
type EventsFrom struct {
	Session string // those of one session only
	Kept    bool   // first those that are kept: all of them, or those behind After
	After   int64  // Event.ID
	Ends    bool   // no others: the channel is closed behind them
}

// An Event is something that happened.
type Event struct {
	ID        int64      `json:"id,omitempty" jsonschema:"where it stands among all; later ones have higher numbers"`
	Kind      EventKind  `json:"kind" jsonschema:"what happened"`
	AtUnixMs  int64      `json:"atUnixMs"`
	Session   string     `json:"sessionId,omitempty"`
	Socket    string     `json:"socket,omitempty" jsonschema:"of session: where its inside can ask"`
	Request   *Request   `json:"request,omitempty"`
	Outcome   Outcome    `json:"outcome,omitempty" jsonschema:"of request_ended"`
	Grant     *Grant     `json:"grant,omitempty"`
	Notice    *Notice    `json:"notice,omitempty"`
	Overrides *Overrides `json:"overrides,omitempty" jsonschema:"of session_overridden: what holds now"`
	Run       *Run       `json:"run,omitempty" jsonschema:"of exec.started, exec.running, exec.finished and exec.denied"`
}

package grants

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/clairun/clai-sandbox/profile"
)

// MaxReason bounds, in bytes, what an agent may say about why it asks, and a person about why not.
const MaxReason = 1000

// A Question is what an agent asks for, understood: which place, and what it would do there.
type Question struct {
	Place  Place
	Access profile.Access
	Reason string
	// Known is the path as far as whoever asks could have followed it without us: links that it
	// sees are followed, and from where it sees nothing the path stands as it was written. What it
	// is told before a person has answered follows from this alone.
	Known string
	// Blind says that Known leads to what whoever asks does not see.
	Blind bool
	// Problem is why a blind question cannot be granted as things are. It is for the person.
	Problem string
}

// A Request is a question that waits for a decision, as the people who decide see it. The text in
// it may be the agent's: profile.Printable makes it fit for a terminal.
type Request struct {
	ID              string         `json:"requestId" jsonschema:"names the request in a decision"`
	Agent           string         `json:"agentId" jsonschema:"who asks"`
	Workspace       string         `json:"workspaceId" jsonschema:"the directory that it works in"`
	Session         string         `json:"sessionId" jsonschema:"the session that it asks in"`
	Command         string         `json:"command,omitempty" jsonschema:"what the session runs"`
	RequestedPath   string         `json:"requestedPath,omitempty" jsonschema:"the path as it was asked for, absolute and clean"`
	ResolvedPath    string         `json:"resolvedPath,omitempty" jsonschema:"where that leads, with symbolic links followed"`
	RequestedAccess profile.Access `json:"requestedAccess,omitempty" jsonschema:"what it would do there"`
	// Outside is a command that is to run outside of any sandbox: then no path is asked for.
	Outside *CommandRequest `json:"outside,omitempty" jsonschema:"the command that is asked for, in place of a path"`
	// Question is a question in words: then neither path nor command is asked for.
	Question *PersonQuestion `json:"question,omitempty" jsonschema:"what a person is asked in words, in place of a path"`
	// Domain is a connection that waits: then none of these is asked for.
	Domain          *DomainRequest `json:"domain,omitempty" jsonschema:"the connection that is asked for, in place of a path"`
	Reason          string         `json:"reason" jsonschema:"why, in the agent's words"`
	Warnings        []Warning      `json:"warnings" jsonschema:"what a person should know before deciding"`
	AskedAtUnixMs   int64          `json:"askedAtUnixMs"`
	ExpiresAtUnixMs int64          `json:"expiresAtUnixMs" jsonschema:"when the request ends undecided"`
}

// An Outcome is how a question ended.
type Outcome string

const (
	OutcomeGranted   Outcome = "granted"
	OutcomeDenied    Outcome = "denied"    // a person said no, now or earlier in this session
	OutcomeNever     Outcome = "never"     // nobody may grant it
	OutcomeTimeout   Outcome = "timeout"   // nobody answered in time
	OutcomeWithdrawn Outcome = "withdrawn" // the session ended, or whoever asked left
	OutcomeAnswered  Outcome = "answered"  // of a question in words
)

// A Scope is how far a grant reaches.
type Scope string

const (
	ScopeOnce    Scope = "once"            // the session that asked
	ScopeAlways  Scope = "agent"           // the agent, until it is revoked or expires
	ScopeAlready Scope = "already-granted" // of an answer only: nobody had to be asked
)

// A Visibility is when the session that asked sees what it was granted.
type Visibility string

const (
	VisibleNow         Visibility = "now"          // it is there
	VisibleNextCommand Visibility = "next_command" // the command that runs does not see it; the next one will
)

// An Answer is what the agent that asked is told.
type Answer struct {
	RequestID string         `json:"requestId,omitempty" jsonschema:"the request, if a person was asked"`
	Granted   bool           `json:"granted"`
	Outcome   Outcome        `json:"outcome"`
	Scope     Scope          `json:"scope,omitempty" jsonschema:"of a grant: how far it reaches"`
	Path      string         `json:"path,omitempty" jsonschema:"of a grant: what was granted; it may lie below what was asked for"`
	Access    profile.Access `json:"access,omitempty" jsonschema:"of a grant: it may be less than what was asked for"`
	Domain    string         `json:"domain,omitempty" jsonschema:"of a grant of a domain: the rule"`
	Visible   Visibility     `json:"visible,omitempty" jsonschema:"of a grant: when it can be used"`
	GrantID   string         `json:"grantId,omitempty"`
	ExpiresAt int64          `json:"expiresAtUnixMs,omitempty"`
	Reason    string         `json:"reason,omitempty" jsonschema:"why it was not granted"`
}

// Ask turns what a person wrote into a question. The error is a *profile.PathError or an
// *InvalidError, for what cannot be meant, or a *NeverError for what nobody may grant.
func (r Rules) Ask(path string, access profile.Access, reason string) (Question, error) {
	return r.AskSeeing(nil, path, access, reason)
}

// AskSeeing turns what an agent wrote into a question. sees says which paths the agent sees by
// itself; nil: all. An error, and Known and Blind, are the same whatever stands in places that it
// does not see: an agent that asks learns nothing about them, also not by asking for links of its
// own that lead there.
func (r Rules) AskSeeing(sees func(path string) bool, path string, access profile.Access, reason string) (Question, error) {
	q := Question{Access: access, Reason: reason}
	typed, err := r.expand(strings.TrimSpace(path))
	if err != nil {
		return q, err
	}
	if !access.Grantable() {
		return q, &InvalidError{"access", "must be " + profile.Accesses}
	}
	if err := checkText("reason", reason); err != nil {
		return q, err
	}
	// What the path says is looked at before the disk is: nobody learns from us what is in /proc of
	// this process.
	if err := r.Refuse(Place{Typed: typed, Resolved: typed}, access); err != nil {
		return q, err
	}
	w := newWalk(sees)
	defer w.close()
	q.Place, err = w.follow(typed)
	q.Known, q.Blind = w.known, w.blind
	if !q.Blind {
		if err != nil {
			return q, refusal(typed, err)
		}
		return q, r.Refuse(q.Place, access)
	}
	if err := r.Refuse(Place{Typed: typed, Resolved: q.Known}, access); err != nil {
		return q, err
	}
	if err != nil {
		q.Place = Place{Typed: typed, Resolved: q.Known}
	} else {
		err = r.Refuse(q.Place, access)
	}
	if err != nil {
		q.Problem = err.Error()
	}
	return q, nil
}

// expand makes a path as typed absolute and clean.
func (r Rules) expand(typed string) (string, error) {
	if !utf8.ValidString(typed) {
		return "", &profile.PathError{Path: typed, Why: "is not UTF-8, so that nobody could be shown it", Hint: "ask for the directory that holds it"}
	}
	return profile.ExpandPath(typed, r.Home)
}

func checkText(name, text string) error {
	switch {
	case len(text) > MaxReason:
		return &InvalidError{name, fmt.Sprintf("is %d bytes long; at most %d", len(text), MaxReason)}
	case !utf8.ValidString(text):
		return &InvalidError{name, "is not UTF-8"}
	}
	return nil
}

package grants

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/clairun/clai-sandbox/profile"
)

// A DomainRequest is what a person is shown of a connection that waits: a sandbox with a filtered
// network wants to reach what no rule allows.
type DomainRequest struct {
	To string `json:"destination" jsonschema:"host:port, as the connection was asked for"`
	// Rules are all that can be answered, the narrowest first. Each covers the destination.
	Rules []DomainChoice `json:"rules" jsonschema:"what can be allowed, the narrowest first"`
}

// A DomainChoice is a rule that a person may allow.
type DomainChoice struct {
	Rule    string `json:"rule" jsonschema:"host:port, host, or a suffix as *.example.org"`
	Warning string `json:"warning,omitempty" jsonschema:"what a person should know of it"`
}

// Facts are what is shown of it. What is in them can be shown on a terminal.
func (r DomainRequest) Facts() (facts []Fact) {
	for i, choice := range r.Rules {
		what := profile.Printable(choice.Rule)
		if choice.Warning != "" {
			what += " (" + choice.Warning + ")"
		}
		facts = append(facts, Fact{fmt.Sprint(i + 1), what})
	}
	return facts
}

// A DomainAnswer is what came of a DomainRequest.
type DomainAnswer struct {
	RequestID string  `json:"requestId,omitempty"`
	Outcome   Outcome `json:"outcome" jsonschema:"granted, denied or timeout"`
	Rule      string  `json:"rule,omitempty" jsonschema:"of granted: what is allowed now"`
	Reason    string  `json:"reason,omitempty" jsonschema:"why it is not allowed"`
}

// A DomainAsker is a broker that asks a person about connections, too.
type DomainAsker interface {
	// AskDomain asks within a session about host:port, and waits. When it returns a grant, the
	// session's sandboxes that can be reached have it. The question is withdrawn when the context
	// ends.
	AskDomain(ctx context.Context, session, to string) (DomainAnswer, error)
}

// DomainBody asks for a connection, on the person's socket: whoever started the sandbox asks, when
// a connection comes out of it. No sandbox itself names what it asks for.
type DomainBody struct {
	Session string `json:"sessionId" jsonschema:"the session that was opened"`
	To      string `json:"destination" jsonschema:"host:port"`
}

// ForDomain holds a decision against a request for a connection. The error is a *DecisionError or
// an *InvalidError.
func (d Decision) ForDomain(r DomainRequest) error {
	if err := checkText("reason", d.Reason); err != nil {
		return err
	}
	if err := checkVia(d.Via); err != nil {
		return err
	}
	refuse := func(why string) error { return &DecisionError{Why: why} }
	e := time.Duration(d.ExpiresIn)
	switch {
	case d.Path != "" || d.Access != profile.NoAccess || d.Shown != "" || d.Answer != "":
		return refuse("it is a connection: neither path nor access, shown or answer is said of it")
	case d.Kind == Deny:
		return nil
	case d.Kind != AllowOnce && d.Kind != AllowAlways:
		return refuse("kind must be deny, allowOnce or allowAlways")
	case d.Kind == AllowOnce && e != 0:
		return refuse("allowOnce ends with the session that asked: leave expiresIn out")
	case d.Kind == AllowOnce && d.Scope != "" && d.Scope != ScopeOnce, d.Kind == AllowAlways && d.Scope != ScopeAlways:
		return refuse(`the scope of allowAlways must be "agent", and allowOnce has none`)
	case e != 0 && (e < minExpiry || e > maxExpiry):
		return refuse(fmt.Sprintf("expiresIn must be from %v to %v", minExpiry, maxExpiry))
	case !slices.ContainsFunc(r.Rules, func(c DomainChoice) bool { return c.Rule == d.Domain }):
		return refuse("domain must be one of the rules of the request: write out what is granted")
	}
	return nil
}

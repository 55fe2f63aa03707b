package grants

import (
	"errors"
	"fmt"
	"time"

	"github.com/clairun/clai-sandbox/profile"
)

// A Grant is one path, or one domain, that a person allowed an agent.
type Grant struct {
	ID       string         `json:"id"`
	Agent    string         `json:"agentId"`
	Session  string         `json:"sessionId,omitempty" jsonschema:"of scope once: the session that it ends with"`
	Path     string         `json:"path,omitempty" jsonschema:"as the person wrote it, absolute and clean"`
	Resolved string         `json:"resolvedPath,omitempty" jsonschema:"where that led when it was granted, and must lead still"`
	Access   profile.Access `json:"access,omitempty"`
	Domain   string         `json:"domain,omitempty" jsonschema:"in place of a path: a rule for connections of a filtered network, as host:port, host or *.suffix"`
	Scope    Scope          `json:"scope" jsonschema:"once: for one session; agent: until it is revoked or expires"`
	Origin   Origin         `json:"origin"`
	Object   Object         `json:"object" jsonschema:"what was there when it was granted"`

	ExpiresAtUnixMs  int64  `json:"expiresAtUnixMs,omitempty" jsonschema:"0: never"`
	Uses             int64  `json:"uses" jsonschema:"how many runs it was shown to"`
	LastUsedAtUnixMs int64  `json:"lastUsedAtUnixMs,omitempty"`
	Warning          string `json:"warning,omitempty" jsonschema:"of a domain: what a person should know of it"`
	Stale            string `json:"stale,omitempty" jsonschema:"why it is left out until a person confirms it"`
}

// Origin says who granted something, and what for.
type Origin struct {
	Kind            profile.OriginKind `json:"kind" jsonschema:"approval: an agent asked; manual: a person added it"`
	Reason          string             `json:"reason,omitempty" jsonschema:"why, in the words of whoever asked"`
	GrantedAtUnixMs int64              `json:"grantedAtUnixMs"`
	RequestedPath   string             `json:"requestedPath,omitempty" jsonschema:"of approval: the path asked for"`
	RequestedAccess profile.Access     `json:"requestedAccess,omitempty" jsonschema:"of approval: the access asked for"`
	DecidedBy       string             `json:"decidedBy" jsonschema:"the user who decided"`
	Via             string             `json:"via,omitempty" jsonschema:"how: terminal, web, desktop, mcp"`
}

// Expired reports whether the grant's time is over.
func (g Grant) Expired(now time.Time) bool {
	return g.ExpiresAtUnixMs != 0 && now.UnixMilli() >= g.ExpiresAtUnixMs
}

// A Condition is what has become of the place that was granted.
type Condition uint8

const (
	Changed Condition = iota // it leads elsewhere, or something else is there: a person must look
	Missing                  // nothing is there now
	Intact                   // it is what was granted
)

// Check looks at what the grant leads to now. Why says what is wrong, in words.
func (g Grant) Check() (now Place, c Condition, why string) {
	now, err := Resolve(g.Path)
	switch {
	case errors.As(err, new(*NeverError)):
		return now, Changed, err.Error()
	case err != nil:
		return now, Missing, err.Error()
	case now.Resolved != g.Resolved:
		return now, Changed, fmt.Sprintf("led to %s when it was granted, and leads to %s now", profile.Printable(g.Resolved), profile.Printable(now.Resolved))
	case !now.Object.Exists():
		return now, Missing, "nothing is there"
	case g.Object.Exists() && !now.Object.Same(g.Object):
		return now, Changed, "something else stands in the place of what was granted"
	}
	return now, Intact, ""
}

// Profile is the grant as a sandbox takes it.
func (g Grant) Profile() profile.Grant {
	kind := g.Origin.Kind
	if kind == "" { // the snapshot does not say
		kind = profile.OriginApproval
	}
	return profile.Grant{Path: g.Path, Access: g.Access, Origin: profile.Origin{Kind: kind, Source: "grant " + g.ID},
		Expected: &profile.Expected{Path: g.Resolved, Device: g.Object.Device, Inode: g.Object.Inode, Born: g.Object.Born, Handle: g.Object.Handle}}
}

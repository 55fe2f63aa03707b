package grants

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/clairun/clai-sandbox/profile"
)

// A DecisionKind is what a person said. The zero value is no.
type DecisionKind uint8

const (
	Deny DecisionKind = iota
	AllowOnce
	AllowAlways
	GiveAnswer // to a question: it allows nothing
)

var decisionNames = []string{"deny", "allowOnce", "allowAlways", "answer"}

func (k DecisionKind) String() string {
	if int(k) < len(decisionNames) {
		return decisionNames[k]
	}
	return fmt.Sprintf("invalid(%d)", int(k))
}

func (k DecisionKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

func (k *DecisionKind) UnmarshalText(text []byte) error {
	for i, name := range decisionNames {
		if name == string(text) {
			*k = DecisionKind(i)
			return nil
		}
	}
	return &profile.ValueError{Value: string(text), Want: decisionNames}
}

// A Decision is a person's answer to a request. What it allows is written out: nothing is taken
// over from the question.
type Decision struct {
	Kind   DecisionKind   `json:"kind" jsonschema:"deny, allowOnce or allowAlways; of a question, deny or answer"`
	Path   string         `json:"path,omitempty" jsonschema:"of an allowance: the path asked for, or one below it"`
	Access profile.Access `json:"access,omitempty" jsonschema:"of an allowance: what was asked for, or less"`
	// Scope of allowAlways says for whom, and there is one so far.
	Scope     Scope    `json:"scope,omitempty" jsonschema:"of allowAlways: agent"`
	ExpiresIn Duration `json:"expiresIn,omitempty" jsonschema:"of allowAlways: how long it holds, as 90m or 2h30m; without it, until it is revoked"`
	// Shown says what the person was shown of a command: CommandRequest.Shown. Nothing else of an
	// allowance is said of one.
	Shown  string `json:"shown,omitempty" jsonschema:"of an allowance of a command: the digest of what was shown"`
	Domain string `json:"domain,omitempty" jsonschema:"of an allowance of a connection: one of the rules of the request"`
	Answer string `json:"answer,omitempty" jsonschema:"of answer: one of the choices, or where there are none, any text"`
	Reason string `json:"reason,omitempty" jsonschema:"of deny: why, for the agent"`
	Via    string `json:"via,omitempty" jsonschema:"how the person answered: terminal, web, desktop, mcp"`
}

// Parse reads a decision from outside. It wants the kind written out: one that is missing would
// read as a denial that nobody spoke. A key that it does not know may be meant to narrow, so that
// is an error as well.
func (d *Decision) Parse(text []byte) error {
	var present struct {
		Kind *json.RawMessage `json:"kind"`
	}
	if err := json.Unmarshal(text, &present); err != nil || present.Kind == nil {
		return &InvalidError{"kind", "is missing: deny, allowOnce or allowAlways"}
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(d); err != nil {
		if ToWire(err).Code == CodeInternal {
			err = &InvalidError{"decision", err.Error()}
		}
		return err
	}
	return nil
}

// A Duration is written as time.Duration prints it.
type Duration time.Duration

func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return &InvalidError{"expiresIn", "must be a time such as 90m or 2h30m"}
	}
	*d = Duration(parsed)
	return nil
}

const (
	minExpiry = time.Second
	maxExpiry = 10 * 365 * 24 * time.Hour
)

// Decide holds a decision that allows something against the question, and returns the place that it
// grants. For a denial, it only checks that the fields fit each other. The place is looked up anew:
// between question and decision, what was asked for may have become a link to something else. The
// error is a *DecisionError, a *NeverError, a *profile.PathError, an *InvalidError or a
// *ChangedError, and then nothing is granted.
func (r Rules) Decide(q Question, d Decision) (Place, error) {
	if err := d.check(q); err != nil || d.Kind == Deny {
		return Place{}, err
	}
	typed, err := r.expand(d.Path)
	if err != nil {
		return Place{}, err
	}
	now, err := Resolve(q.Place.Typed)
	if err != nil {
		return Place{}, err
	}
	if now.Resolved != q.Place.Resolved || !now.Object.Same(q.Place.Object) {
		return Place{}, &ChangedError{Asked: q.Place, Now: now}
	}
	place, err := Resolve(typed)
	if err != nil {
		return Place{}, err
	}
	// By the letter, and again for what both paths mean: neither /a/../etc nor a link below /a that
	// leads out is below /a.
	named := profile.Within(typed, q.Place.Typed) || profile.Within(typed, q.Place.Resolved)
	if !named || !profile.Within(place.Resolved, now.Resolved) {
		return Place{}, &DecisionError{Why: fmt.Sprintf("%s is not %s, nor below it", describe(place), describe(now))}
	}
	if err := r.Refuse(place, d.Access); err != nil {
		return Place{}, err
	}
	return place, nil
}

// check looks at everything but the path.
func (d Decision) check(q Question) error {
	if err := checkText("reason", d.Reason); err != nil {
		return err
	}
	if err := checkVia(d.Via); err != nil {
		return err
	}
	refuse := func(why string) error { return &DecisionError{Why: why} }
	if d.Answer != "" {
		return refuse("answer is said of a question, and this is a path")
	}
	if d.Domain != "" {
		return refuse("domain is said of a connection, and this is a path")
	}
	switch d.Kind {
	case Deny:
		return nil
	case AllowOnce:
		if d.Scope != "" && d.Scope != ScopeOnce {
			return refuse("allowOnce reaches no further than the session that asked: leave scope out")
		}
		if d.ExpiresIn != 0 {
			return refuse("allowOnce ends with the session that asked: leave expiresIn out")
		}
	case AllowAlways:
		if d.Scope != ScopeAlways {
			return refuse(`the scope of allowAlways must be "agent"`)
		}
		if e := time.Duration(d.ExpiresIn); e != 0 && (e < minExpiry || e > maxExpiry) {
			return refuse(fmt.Sprintf("expiresIn must be from %v to %v", minExpiry, maxExpiry))
		}
	default:
		return refuse("kind must be deny, allowOnce or allowAlways")
	}
	switch {
	case d.Shown != "":
		return refuse("shown is said of a command, and this is a path")
	case d.Path == "":
		return refuse("path is missing: write out what is granted")
	case !d.Access.Grantable():
		return refuse("access must be " + profile.Accesses)
	case d.Access > q.Access:
		return refuse("only " + q.Access.String() + " was asked for")
	}
	return nil
}

// ForCommand holds a decision about a command against what was shown. The error is a *DecisionError
// or an *InvalidError.
func (d Decision) ForCommand(r CommandRequest) error {
	if err := checkText("reason", d.Reason); err != nil {
		return err
	}
	if err := checkVia(d.Via); err != nil {
		return err
	}
	refuse := func(why string) error { return &DecisionError{Why: why} }
	switch {
	case d.Answer != "":
		return refuse("answer is said of a question, and this is a command")
	case d.Kind == Deny:
		return nil
	case d.Kind != AllowOnce && d.Kind != AllowAlways:
		return refuse("kind must be deny, allowOnce or allowAlways")
	case d.Path != "" || d.Access != profile.NoAccess || d.ExpiresIn != 0 || d.Domain != "":
		return refuse("it is a command: neither path nor access, domain nor expiresIn is said of it")
	case d.Shown != r.Shown:
		return refuse("shown must be the digest of the command as it was shown")
	case d.Kind == AllowAlways && len(r.Always) == 0:
		return refuse("this command cannot be allowed for always")
	}
	return nil
}

// checkVia wants one short word: it stands in records and on terminals.
func checkVia(via string) error {
	if len(via) > 32 {
		return &InvalidError{"via", "is longer than 32 bytes"}
	}
	for _, c := range []byte(via) {
		if c != '-' && c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return &InvalidError{"via", "must be one word of a-z 0-9 - _"}
		}
	}
	return nil
}

func describe(p Place) string {
	if p.Typed == p.Resolved {
		return profile.Printable(p.Typed)
	}
	return fmt.Sprintf("%s (which leads to %s)", profile.Printable(p.Typed), profile.Printable(p.Resolved))
}

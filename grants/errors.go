package grants

import (
	"fmt"

	"github.com/clairun/clai-sandbox/profile"
)

// InvalidError is a part of a question or decision that makes no sense.
type InvalidError struct {
	Field string
	Why   string
}

func (e *InvalidError) Error() string { return e.Field + " " + e.Why }

// NeverError is a path that nobody may grant.
type NeverError struct {
	Path string
	Why  string
}

func (e *NeverError) Error() string { return profile.Printable(e.Path) + ": " + e.Why }

// DecisionError is a decision that does not answer the question. The request is still pending.
type DecisionError struct{ Why string }

func (e *DecisionError) Error() string { return "not a valid decision: " + e.Why }

// ChangedError means that the path asked for leads to something else by now than what the person
// was shown. The request is still pending, and shows what it leads to now.
type ChangedError struct{ Asked, Now Place }

func (e *ChangedError) Error() string {
	if e.Asked.Resolved == e.Now.Resolved {
		return fmt.Sprintf("%s is not the same object any more as when it was asked for: look again, and decide again", profile.Printable(e.Asked.Typed))
	}
	return fmt.Sprintf("%s led to %s when it was asked for, and leads to %s now: look again, and decide again",
		profile.Printable(e.Asked.Typed), profile.Printable(e.Asked.Resolved), profile.Printable(e.Now.Resolved))
}

// EndedError means that a request cannot be decided any more.
type EndedError struct {
	ID      string
	Outcome Outcome
}

func (e *EndedError) Error() string {
	switch e.Outcome {
	case OutcomeTimeout:
		return "request " + e.ID + " ended undecided: the time was up, and nothing was granted"
	case OutcomeWithdrawn:
		return "request " + e.ID + " was withdrawn: whoever asked has left, and nothing was granted"
	}
	return "request " + e.ID + " was decided already: " + string(e.Outcome)
}

// UnknownError means that there is no session, request or grant of that name.
type UnknownError struct{ What, ID string }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("there is no %s %s", e.What, profile.Printable(e.ID))
}

// ForbiddenError means that who asks may not do that.
type ForbiddenError struct{ Why string }

func (e *ForbiddenError) Error() string { return e.Why }

// BusyError means that an agent asks too much at once.
type BusyError struct{ Why string }

func (e *BusyError) Error() string { return e.Why }

// UnavailableError means that the broker cannot do now what it was asked to do: nothing was decided
// or stored.
type UnavailableError struct {
	Why  string
	Hint string
}

func (e *UnavailableError) Error() string { return e.Why }

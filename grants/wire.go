package grants

import (
	"context"
	"errors"

	"github.com/clairun/clai-sandbox/profile"
)

// A WireError is one of this package's errors on its way through the socket. Both ends know the
// same ones, so that a caller cannot tell a broker behind a socket from one in its own process.
type WireError struct {
	Code    ErrorCode `json:"code" jsonschema:"which error it is, for programs"`
	Message string    `json:"message" jsonschema:"the same for a person, in one line"`
	Hint    string    `json:"hint,omitempty" jsonschema:"what to do about it"`

	Field    string  `json:"field,omitempty" jsonschema:"of invalid: which part"`
	Why      string  `json:"why,omitempty"`
	Path     string  `json:"path,omitempty" jsonschema:"the path that it is about"`
	Resolved string  `json:"resolvedPath,omitempty" jsonschema:"of changed: where the path led when the person was asked"`
	Now      string  `json:"nowResolvedPath,omitempty" jsonschema:"of changed: where it leads now"`
	What     string  `json:"what,omitempty" jsonschema:"of unknown: session, request or grant"`
	ID       string  `json:"id,omitempty"`
	Outcome  Outcome `json:"outcome,omitempty" jsonschema:"of ended: how"`
}

// An ErrorCode names an error.
type ErrorCode string

const (
	CodeInvalid         ErrorCode = "invalid"
	CodeInvalidPath     ErrorCode = "invalid_path"
	CodeNever           ErrorCode = "never"
	CodeInvalidDecision ErrorCode = "invalid_decision"
	CodeChanged         ErrorCode = "changed"
	CodeEnded           ErrorCode = "ended"
	CodeUnknown         ErrorCode = "unknown"
	CodeBusy            ErrorCode = "busy"
	CodeForbidden       ErrorCode = "forbidden"
	CodeUnavailable     ErrorCode = "unavailable"
	CodeNotFound        ErrorCode = "not_found" // no such address
	CodeInternal        ErrorCode = "internal"
)

// ToWire describes an error.
func ToWire(err error) WireError {
	var (
		invalid     *InvalidError
		path        *profile.PathError
		value       *profile.ValueError
		never       *NeverError
		decision    *DecisionError
		changed     *ChangedError
		ended       *EndedError
		unknown     *UnknownError
		busy        *BusyError
		unavailable *UnavailableError
		forbidden   *ForbiddenError
	)
	w := WireError{Code: CodeInternal, Message: err.Error()}
	switch {
	case errors.As(err, &invalid):
		w.Code, w.Field, w.Why = CodeInvalid, invalid.Field, invalid.Why
	case errors.As(err, &path):
		w.Code, w.Path, w.Why, w.Hint = CodeInvalidPath, path.Path, path.Why, path.Hint
	case errors.As(err, &value):
		w.Code, w.Field, w.Why = CodeInvalid, "body", value.Error()
	case errors.As(err, &never):
		w.Code, w.Path, w.Why = CodeNever, never.Path, never.Why
	case errors.As(err, &decision):
		w.Code, w.Why = CodeInvalidDecision, decision.Why
	case errors.As(err, &changed):
		w.Code, w.Path, w.Resolved, w.Now = CodeChanged, changed.Asked.Typed, changed.Asked.Resolved, changed.Now.Resolved
	case errors.As(err, &ended):
		w.Code, w.ID, w.Outcome = CodeEnded, ended.ID, ended.Outcome
	case errors.As(err, &unknown):
		w.Code, w.What, w.ID = CodeUnknown, unknown.What, unknown.ID
	case errors.As(err, &busy):
		w.Code, w.Why = CodeBusy, busy.Why
	case errors.As(err, &forbidden):
		w.Code, w.Why = CodeForbidden, forbidden.Why
	case errors.As(err, &unavailable):
		w.Code, w.Why, w.Hint = CodeUnavailable, unavailable.Why, unavailable.Hint
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		w.Code, w.Why = CodeUnavailable, err.Error()
	}
	return w
}

// Err is the error that was described.
func (w WireError) Err() error {
	switch w.Code {
	case CodeInvalid:
		return &InvalidError{w.Field, w.Why}
	case CodeInvalidPath:
		return &profile.PathError{Path: w.Path, Why: w.Why, Hint: w.Hint}
	case CodeNever:
		return &NeverError{w.Path, w.Why}
	case CodeInvalidDecision:
		return &DecisionError{w.Why}
	case CodeChanged:
		return &ChangedError{Asked: Place{Typed: w.Path, Resolved: w.Resolved}, Now: Place{Typed: w.Path, Resolved: w.Now}}
	case CodeEnded:
		return &EndedError{w.ID, w.Outcome}
	case CodeUnknown:
		return &UnknownError{w.What, w.ID}
	case CodeBusy:
		return &BusyError{w.Why}
	case CodeForbidden:
		return &ForbiddenError{w.Why}
	case CodeUnavailable:
		return &UnavailableError{w.Why, w.Hint}
	case CodeNotFound: // every address that this program knows, its own gateway knows
		return &UnavailableError{"the gateway that runs is of another version, and does not know this", "end its process, which clai-sandbox gateway names; what needs a gateway starts the one that is installed"}
	}
	return errors.New(profile.Printable(w.Message))
}

// What goes over the wire besides the types of this package.
type (
	// AskBody asks for a path, on the person's socket.
	AskBody struct {
		Session string `json:"sessionId" jsonschema:"the session that was opened"`
		Asking
	}
	// ConfirmBody names what a stale grant is to be taken for.
	ConfirmBody struct {
		Resolved string `json:"resolvedPath" jsonschema:"where the path leads now, as the person was shown it"`
	}
	// RequestList, GrantList and RecordList are the answers of the lists.
	RequestList struct {
		Requests []Request `json:"requests"`
	}
	GrantList struct {
		Grants []Grant `json:"grants"`
	}
	RecordList struct {
		Records []Record `json:"records"`
	}
	// ErrorBody is every answer that is an error.
	ErrorBody struct {
		Error WireError `json:"error"`
	}
	// Status is what a broker says about itself.
	Status struct {
		Version string   `json:"version"`
		PID     int      `json:"pid"`
		Notices []Notice `json:"notices" jsonschema:"what a person should know: a store that was damaged"`
	}
	// Nothing is an answer that says no more than that it was done.
	Nothing struct{}
)

package grants

import "context"

// A Taking is what became of taking something away.
type Taking struct {
	Grant
	// Covered are other grants that still give the agent the path, or a part of it.
	Covered []Grant `json:"stillCovered,omitempty" jsonschema:"other grants that still give the agent the path"`
	// Unreached are the running sandboxes that show it all the same, until they end.
	Unreached []Sandbox `json:"unreached,omitempty" jsonschema:"running sandboxes that it could not be taken from: each shows it until it ends"`
}

// A Sandbox is one that runs, as the broker knows it.
type Sandbox struct {
	Session   string `json:"sessionId,omitempty"`
	PID       int    `json:"pid" jsonschema:"the process that runs it: when that ends, the sandbox does"`
	Workspace string `json:"workspaceId,omitempty"`
	Command   string `json:"command,omitempty"`
	Why       string `json:"why" jsonschema:"why it could not be reached"`
}

// Applied is what became of a change in a running sandbox.
type Applied struct {
	Grant   string    `json:"grantId"`
	Event   EventKind `json:"event,omitempty" jsonschema:"which change: path_granted if not said"`
	Problem string    `json:"problem,omitempty" jsonschema:"why it is not as it should be; without it, it is"`
}

// RequestIDHeader carries the name of WithRequestID over the wire.
const RequestIDHeader = "Request-Id"

// MaxRequestID bounds the name of a request that changes something, in bytes.
const MaxRequestID = 64

type requestIDKey struct{}

// WithRequestID names what is asked of a broker. A change is made once for one name, and told again
// as often as it is asked for: who got no answer, because the broker was killed, may ask again.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID returns the name that WithRequestID gave, or empty.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// A Done is a change that was made, under the name that it was asked for.
type Done struct {
	RequestID string  `json:"requestId"`
	Grant     *Grant  `json:"grant,omitempty"`
	Answer    *Answer `json:"answer,omitempty"`
}

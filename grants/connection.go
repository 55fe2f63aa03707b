package grants

import "context"

// A Connection is what a filtered network said to one destination, and how often.
type Connection struct {
	To      string `json:"destination" jsonschema:"host:port, as it was asked for"`
	Allowed bool   `json:"allowed"`
	Rule    string `json:"rule,omitempty" jsonschema:"the rule that allows or denies it; none names it otherwise"`
	Why     string `json:"why,omitempty" jsonschema:"of one that is not allowed"`
	Count   int64  `json:"count" jsonschema:"how often, since it was told of last"`
}

// Connections tell of a session's network.
type Connections struct {
	Connections []Connection `json:"connections" jsonschema:"at most 100"`
	More        int64        `json:"more,omitempty" jsonschema:"how many others there were"`
}

// MaxConnections bounds the list of one call of Observe.
const MaxConnections = 100

// An Observer is a broker that puts on record what a session's network did.
type Observer interface {
	// Observe is told by whoever runs the session's sandboxes.
	Observe(ctx context.Context, session string, c Connections) error
}

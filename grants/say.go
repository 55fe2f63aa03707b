package grants

import (
	"context"
	"strings"

	"github.com/clairun/clai-sandbox/profile/text"
)

// A Saying is a line that somebody typed to whoever decides: in a chat with an agent, or at a
// terminal.
type Saying struct {
	Text      string `json:"text" jsonschema:"/exec host=… security=… ask=… node=…, /exec reset, /elevated on or off, /approve ID allow-once, allow-always or deny; all else is for the agent"`
	Sender    string `json:"sender,omitempty" jsonschema:"who typed it, as the backend has found out: it counts where outside.approvers has that name; without it, it is the person of this machine"`
	FromAgent bool   `json:"fromAgent,omitempty" jsonschema:"it is an agent's text, and counts for nothing, whoever its sender is"`
}

// SayBody passes a Saying on, on the person's socket.
type SayBody struct {
	Session string `json:"sessionId,omitempty" jsonschema:"the session that it is about; without it, only /approve can be meant"`
	Saying
}

// Overrides are what was said for one session. They last as long as it does.
type Overrides struct {
	Host     string `json:"host,omitempty" jsonschema:"sandbox, gateway or node"`
	Security string `json:"security,omitempty" jsonschema:"deny, allowlist or full"`
	Ask      string `json:"ask,omitempty" jsonschema:"always, on-miss or off"`
	Node     string `json:"node,omitempty" jsonschema:"which node"`
	Elevated bool   `json:"elevated,omitempty" jsonschema:"host gateway and security full, until it is taken back"`
}

// Where is the host that commands of the session run on if nobody names another; empty: nothing was
// said.
func (o Overrides) Where() string {
	if o.Elevated {
		return "gateway"
	}
	return o.Host
}

// String is what was said, for people; empty: nothing.
func (o Overrides) String() string {
	var list []string
	if o.Elevated {
		list = append(list, "elevated: host=gateway security=full")
	}
	for _, pair := range [...][2]string{{"host", o.Host}, {"security", o.Security}, {"ask", o.Ask}, {"node", o.Node}} {
		if pair[1] != "" {
			list = append(list, pair[0]+"="+text.Line(pair[1]))
		}
	}
	return strings.Join(list, " ")
}

// Said is what became of a Saying.
type Said struct {
	Understood bool       `json:"understood" jsonschema:"whether it was such a line; if not, nothing was done, and it is for the agent"`
	Text       string     `json:"text,omitempty" jsonschema:"what to tell whoever typed it"`
	Overrides  *Overrides `json:"overrides,omitempty" jsonschema:"of /exec and /elevated: what holds for the session now"`
	Answer     *Answer    `json:"answer,omitempty" jsonschema:"of /approve: what was answered"`
}

// An OpenSession is one that is open.
type OpenSession struct {
	ID        string    `json:"sessionId"`
	Agent     string    `json:"agentId"`
	Workspace string    `json:"workspaceId"`
	Command   string    `json:"command,omitempty"`
	PID       int       `json:"pid,omitempty"`
	Overrides Overrides `json:"overrides,omitzero" jsonschema:"what was said for it"`
}

// SessionList is the answer of the list.
type SessionList struct {
	Sessions []OpenSession `json:"sessions"`
}

// A Sayer is a broker that takes lines such as /exec and /approve. If whoever typed the line may
// not, the error is a *ForbiddenError.
type Sayer interface {
	Say(ctx context.Context, session string, s Saying) (Said, error)
	// Sessions lists those that are open, by their ids.
	Sessions(context.Context) ([]OpenSession, error)
}

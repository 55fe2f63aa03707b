package broker

import (
	"time"

	"github.com/clairun/clai-sandbox/grants"
)

// event is one line of the audit file.
type event struct {
	Time     string           `json:"time"`
	Event    string           `json:"event"`
	User     string           `json:"user,omitempty"`
	Request  *grants.Request  `json:"request,omitempty"`
	Name     string           `json:"requestName,omitempty"` // under which it was asked: grants.RequestID
	Asking   *grants.Asking   `json:"asking,omitempty"`
	Agent    string           `json:"agentId,omitempty"`
	Session  string           `json:"sessionId,omitempty"`
	Decision *grants.Decision `json:"decision,omitempty"`
	Outcome  grants.Outcome   `json:"outcome,omitempty"`
	Scope    grants.Scope     `json:"scope,omitempty"`
	Grant    *grants.Grant    `json:"grant,omitempty"`
	Reason   string           `json:"reason,omitempty"`
}

// now is the event with the time, and with whose broker it is.
func (b *Broker) now(e event) event {
	e.Time, e.User = time.Now().UTC().Format(time.RFC3339Nano), b.options.User
	return e
}

func (b *Broker) audit(e event) error {
	_, err := b.options.Audit.Append(b.now(e), false)
	return err
}

// auditSynced returns when the line is on the disk.
func (b *Broker) auditSynced(e event) (position int64, err error) {
	return b.options.Audit.Append(b.now(e), true)
}

// auditTaking writes a line about what was taken away, now or when there is room.
func (b *Broker) auditTaking(e event) (position int64) {
	return b.options.Audit.AppendTaking(b.now(e))
}

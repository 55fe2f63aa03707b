package policy

import (
	"crypto/subtle"
	"errors"
)

// Approvers are those who may answer prompts and change what is allowed. An empty list is nobody,
// and never everybody.
type Approvers []string

// An Answerer is who sends an answer, as the gateway authenticated them.
type Answerer struct {
	ID       string
	Operator bool // with an operator's credential
	Agent    bool // speaks for an agent, whatever else it has
}

// ErrNotAnApprover says that an answer counts for nothing.
var ErrNotAnApprover = errors.New("only an operator who is among the approvers can answer a prompt or change what is allowed")

// Check says whether an answer counts. An agent's never does: it would approve its own commands.
func (a Approvers) Check(who Answerer) error {
	if who.Agent || !who.Operator || who.ID == "" {
		return ErrNotAnApprover
	}
	for _, id := range a {
		if subtle.ConstantTimeCompare([]byte(id), []byte(who.ID)) == 1 {
			return nil
		}
	}
	return ErrNotAnApprover
}

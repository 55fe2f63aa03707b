// Package container is what a container and the gateway's door say to each other, and the program
// that a container has for it.
package container

import "encoding/base64"

// TokenHeader is where a request has its token.
const TokenHeader = "X-Clai-Token"

// A Request is what a container sends: words that no shell reads, or a line that has nothing a
// shell would do anything with.
type Request struct {
	Command   string   `json:"command,omitempty"`
	Argv      []string `json:"argv,omitempty"`
	Cwd       string   `json:"cwd,omitempty"` // as the container has it; the workspace by default
	Reason    string   `json:"reason,omitempty"`
	TimeoutMs int64    `json:"timeoutMs,omitempty"`
}

// An Answer is what it gets. Outputs that are no UTF-8 come in base64, too.
type Answer struct {
	ID        string `json:"id,omitempty"`
	Status    string `json:"status"` // approved, auto_approved, denied, timeout, error
	Pattern   string `json:"pattern,omitempty"`
	Reason    string `json:"reason,omitempty"`
	ExitCode  *int   `json:"exit_code,omitempty"` // of a command that ran: 0 as well
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Stdout64  string `json:"stdout_base64,omitempty"`
	Stderr64  string `json:"stderr_base64,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
	TimedOut  bool   `json:"timed_out,omitempty"`
}

// Outputs are the outputs of a command, byte by byte.
func (a *Answer) Outputs() (stdout, stderr []byte, err error) {
	for _, one := range []struct {
		plain, bytes string
		to           *[]byte
	}{{a.Stdout, a.Stdout64, &stdout}, {a.Stderr, a.Stderr64, &stderr}} {
		*one.to = []byte(one.plain)
		if one.bytes != "" {
			if *one.to, err = base64.StdEncoding.DecodeString(one.bytes); err != nil {
				return nil, nil, err
			}
		}
	}
	return stdout, stderr, nil
}

// Package sshagent is what a launcher and the program that serves a sandbox's ssh-agent say to each
// other. The program is package serve: it links what reads keys and signatures, which no start of a
// command needs.
//
// The program inherits the socket at which the sandbox's programs connect, and one to its launcher.
// On that, lines of JSON go both ways: first the Setup, then Reports from the program, and an
// Answer to each that asks.
package sshagent

import "github.com/clairun/clai-sandbox/profile"

// The descriptors that the program inherits.
const (
	ListenerFD = 3
	LauncherFD = 4
)

// MaxLine bounds a line, in bytes.
const MaxLine = 4 << 20

// A Setup is what one sandbox may have signed.
type Setup struct {
	Server     string   `json:"server"` // the socket of the person's agent
	Keys       []Key    `json:"keys"`
	KnownHosts []string `json:"knownHosts"` // what the files say
	Asks       bool     `json:"asks"`       // somebody answers
}

// A Key is one of the person's, and what it may be used for.
type Key struct {
	Name        string            `json:"name"`                  // as it was named
	Public      string            `json:"public,omitempty"`      // the line of its file; or
	Fingerprint string            `json:"fingerprint,omitempty"` // SHA256:...
	Hosts       []profile.SSHHost `json:"hosts,omitempty"`       // where it signs in without a question
	SignCommits bool              `json:"signCommits,omitempty"`
	Unbound     bool              `json:"unbound,omitempty"` // it signs in wherever, for programs that do not say where
}

// A Report is something that was refused, or with an ID a question.
type Report struct {
	Refused string    `json:"refused,omitempty"`
	ID      int       `json:"id,omitempty"`
	Ask     *Question `json:"ask,omitempty"`
}

// A Question is whether a key may sign in somewhere that nobody has named.
type Question struct {
	Key     string `json:"key"`     // as it was named
	User    string `json:"user"`    // at the host
	Host    string `json:"host"`    // as known_hosts has it: name, or [name]:port
	HostKey string `json:"hostKey"` // its fingerprint
}

// An Answer is to the question with the same ID.
type Answer struct {
	ID      int    `json:"id"`
	Allowed bool   `json:"allowed"`
	Why     string `json:"why,omitempty"` // not
	// Nobody decided: another sign-in is another question.
	Undecided bool `json:"undecided,omitempty"`
}

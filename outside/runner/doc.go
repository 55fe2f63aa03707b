// Package runner runs commands outside of any sandbox, for a gateway that asks it to: a process of
// its own, so that what it may do is not what the gateway may do.
//
// It is spoken to over a unix socket that only its user reaches, one JSON object a line, and
// answers who knows the secret that it was handed by descriptor when it was started. It believes
// the gateway what a person answered, and nothing else: it asks the policy of this host itself,
// with the host's own approvals file, for the very command that is to run. What was shown to the
// person must be what it would run, and is looked at again right before it does. Nobody can talk it
// into more.
//
// What it starts has a process group of its own, nothing on its standard input, and an environment
// without what chooses code. It ends with its gateway, and what it runs ends with it.
package runner

// Package serve is the ssh-agent that a sandbox has in place of the person's. It lists the keys
// that were named for the sandbox and no other, and passes a request to sign on to the person's
// agent when it is one of two things:
//
//   - A sign-in over ssh (RFC 4252, section 7) to a host that the key may be used for. Which host that is, ssh says by binding the
//     connection to its session (session-bind@openssh.com, OpenSSH 8.9): the host's key, the session's id, and that key's signature over the id. The
//     host key must be one that the person's known_hosts has for the name, and the request must be for that session.
//   - A signature of git's (SSHSIG with the namespace "git"), by a key that may sign commits. It is over a hash: what is signed, nobody sees.
//
// All else is refused: adding, removing and locking keys, forwarding, and whatever else the
// protocol has (draft-miller-ssh-agent, OpenSSH's PROTOCOL.agent). What comes from inside is
// bounded in size, number and time, and the person's agent hears of nothing that did not pass.
package serve

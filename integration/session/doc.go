// Package session joins what starts sandboxes to the broker of grants: each sandbox of a session
// shows what is granted when it starts, and while it runs, what is granted and taken away.
//
// It is linked into the command, and so it links nothing heavy.
package session

// Package egress lets a sandbox without a network reach the destinations that its rules allow, and
// no other.
//
// A Proxy serves one listener, which stands inside the sandbox while the proxy runs outside. It
// speaks, on the same port, HTTP (CONNECT, and plain http:// requests) and SOCKS5 (CONNECT). It is
// the sandbox's only way out, so whoever does not ask it reaches nothing, and it believes nothing
// that it is told:
//
//   - The destination is judged by the rules before anything is resolved: a question to a name server can carry a secret out.
//   - A name is resolved once, outside; each of its addresses is judged; the connection is made to an address that was,
//     and nothing is resolved again (DNS rebinding).
//   - Where the tunnel begins as TLS, the server name in each hello of the handshake must be the name that was asked for,
//     byte by byte. Many names share an address, and the server picks by that name.
//   - A plain request is read in full, and written anew with the name that was judged as its Host. One request is
//     served on a connection, so that none can hide behind another.
//
// What it does not see: what is inside TLS (the Host of a request in it, or an encrypted second
// server name, where a front serves many names), and what goes through a tunnel that is not TLS. An
// allowed server can pass on whatever it is told to. Each header, wait and list is bounded, and so
// are the connections of a run and of all runs in a process; a slow or greedy client hurts itself.
// Both sides of a connection end with the proxy.
//
// The package links neither net/http nor crypto/tls: it is part of a program that starts once for
// each command.
package egress

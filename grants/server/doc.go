// Package server puts a broker behind unix sockets, as HTTP and JSON.
//
// There are two kinds of socket. Whoever reaches the first is the person who decides: it lies in a
// directory that only its owner enters, and both ends check who the other is. Each session may have
// one of the second kind, which is bound into its sandbox and good for asking only. Which agent and
// session asks is known by the socket that the question came through, and by nothing that is said
// on it.
//
// Everything is bounded: bodies, headers, connections, the time to send and to read them. Who waits
// for an answer holds a connection and no deadline; the broker bounds how many wait, and for how
// long.
//
// openapi.json describes the first kind. It is made from the routes in routes.go.
package server

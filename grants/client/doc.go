// Package client is a broker behind a socket, and the program with which an agent asks from inside
// a sandbox.
//
// It speaks HTTP/1.0 by hand, one request a connection: what it needs of the protocol is a page of
// code, and it is linked into a command that has to start in two milliseconds, which net/http alone
// would take.
package client

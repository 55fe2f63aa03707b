// Package gateway is the daemon that answers for one person: it owns the database of grants, holds
// what agents ask, and listens on a socket that only that person reaches.
//
// There is one at a time: whoever holds the lock in the state directory. A second one that is
// started finds the first one answering and ends at once, without a failure. Nothing starts it at
// log-in: systemd does when somebody connects, and elsewhere the client does. When nobody has
// needed it for a while, it ends.
package gateway

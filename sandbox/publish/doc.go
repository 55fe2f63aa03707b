// Package publish leads connections from the host's loopback interface to ports of a sandbox's own
// network.
//
// A process of two pages stands in the sandbox's network namespace and in the user namespace that
// owns it, and in no other of the sandbox's: nobody inside can see it, signal it or give it
// anything. It has no capabilities any more. What it does, Go code decides call by call: it makes a
// socket there, connects it, and hands it out. Bytes pass through this process alone.
//
// Whoever may connect to the host's loopback interface reaches a published port. What answers there
// is the command's.
package publish

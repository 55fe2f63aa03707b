// Package server starts commands in a sandbox that is there already.
//
// The server is a trampoline in all of the sandbox's namespaces but that of process ids, of which
// only its children are part: so no command can name it, and what one can do to a process (trace
// it, signal it, stop it, limit it, look at its descriptors) none can do to the server. It has one
// thread, keeps nothing of a command's, and reads nothing that a command wrote: lists of calls come
// from the launcher alone, and so do the descriptors that a command gets.
//
// setns(2) brings namespaces and nothing else. What else a new sandbox would put on its command the
// server puts on itself, once, before it takes the first list, and its children have it from the
// start: no capabilities and none to be had, no new privileges, the filter of system calls, the
// Landlock rules. Limits and cgroup the launcher sets while it waits.
package server

// Package diagnosis says which path or domain a command lacked, if that is why it failed.
//
// The kernel tells a process why a call failed, and nobody else: what would tell the launcher too
// (ptrace, seccomp's notifications, fanotify) costs every call of every command, or takes rights
// that it does not have. So the last words of a command are read, as a person would read them; and
// what they say counts only where the plan agrees: the named path is one that the host has and this
// sandbox does not show, or shows for reading only, or the destination is one that its network
// refuses. A misread word is a path that the plan has nothing to say about.
//
// What it is not sure of it does not say. A command that ended well lacked nothing; neither did one
// whose last complaint is about something else. An answer that is wrong sends an agent, and then a
// person, the wrong way.
//
// Whoever may run commands may print what they like, and so learns whether the host has the path
// that is printed, one run at a time: that much the issue of a question to a person tells as well.
// It is not told of credential stores, of which the answer is the same whether they are there or
// not, nor of this program's own directories, of which nothing is said.
package diagnosis

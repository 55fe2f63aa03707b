// Package policy says where a command runs, whether it may, and whether a person is asked first.
//
// It is about commands that leave the sandbox. Most callers need two functions: Load reads the
// approvals file of the host that will run the command, and Policy.Decide answers with a Decision:
// run, ask or deny, with the steps that led there, what exactly is executed, and what an approval
// is bound to.
//
// What is executed is never the text that was sent. The line is read with a shell's real grammar,
// everything that is not plainly understood is refused (so that a person is asked), each command is
// resolved to a real path, and the line is built anew from those words, quoted. The new line is
// analysed again before it counts.
//
// The package executes nothing, asks nobody and keeps nothing: it reads the file system through a
// small interface, and only Store touches a file. Of ours it imports the list of variables only.
//
// Zero values are the strict ones: the verdict is Deny, security is deny, ask is always, the host
// is the sandbox. What is not known (a syntax node, a word in a file, a flag of a wrapper) is never
// allowed.
package policy

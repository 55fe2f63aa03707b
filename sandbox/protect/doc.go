// Package protect finds what programs outside a sandbox execute or do as it says, and keeps a
// command from making more of it.
//
// Names decide, at any depth of a directory that the command may write, and never what a directory
// looks like: a command shapes that. Scan finds what is there before a command begins; package
// sandbox makes it read-only. A Watch sees what comes into being while the command runs, and sets
// it aside: renames it, where it is, to a name that nothing executes. When every process of the
// command has ended, it goes into the quarantine, from where a person may put it back. A Record on
// disk lets the next run do the same for a run whose launcher was killed.
//
// Nothing here follows a symbolic link: directories are opened beneath the writable one and held
// against the inode that is known. Every count is bounded, and past a bound nothing goes on
// unprotected: it becomes read-only, or the command is ended.
package protect

// Package sandbox turns a profile into a running command that sees exactly what the profile grants.
//
// Two functions do it, as the example shows. Build follows symbolic links and decides what is
// mounted where; it reads the file system and is otherwise pure. Run executes bubblewrap (bwrap,
// 0.8.0 or later, or an older one with its options) with that plan and stays until the command and
// everything that it started has ended. A program whose sandboxes have a filtered network calls
// InsideMain first.
//
// It fails closed. Where the host cannot sandbox, Run returns an *UnavailableError and runs
// nothing; there is no way to ask for less. A grant that no longer leads anywhere is left out with
// a notice, and never stops a run.
//
// What it does not do: it does not protect against the kernel's own bugs, it does not hide what a
// granted directory holds (a unix socket in one can be connected to), and without a state directory
// (Launcher.State) it keeps nothing between runs.
package sandbox

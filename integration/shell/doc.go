// Package shell is what an agent is given in place of its shell: which line it asks for, whose
// agent it is, and what comes back of a line but its output.
//
// Nothing here runs a line outside. The sandbox of an agent's lines is found, and begun, by the
// agent's own process: what a line says, or the directory that an agent gives it, decides nothing
// about what the sandbox shows.
package shell

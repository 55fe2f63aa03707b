// Package door lets containers ask for commands outside of them, over HTTP: each has a token, which
// says whose agent it is, in which directory of the host's it works, and for which project and
// branch. Nothing else can be asked here.
package door

// Package grants holds what a path grant is: the question that an agent asks, the decision that a
// person makes, and the rules that keep the decision no wider than the question.
//
// Two functions carry the promise. Rules.Ask turns what an agent wrote into a Question about a real
// place, or refuses it; Rules.Decide holds a Decision against that Question and returns what it
// grants, or refuses it. Neither remembers anything. What is stored is in package store, what waits
// for an answer in package broker, and the wire between them and everyone else in packages server
// and client.
//
// A grant is about a place and not about a name: the path with its symbolic links followed, and the
// object that was there. Where a name leads to another place later, the grant does not follow it;
// Grant.Check says so.
//
// This package is linked into the command that starts with each sandbox. It opens no database and
// speaks no HTTP. ReadSnapshot is how that command learns what is stored.
//
// Zero values are the safe ones: no access, denied, not covered.
package grants

// Package store keeps grants, and what became of requests, in a bbolt database.
//
// One process owns the database (bbolt locks the file, and everyone else out). Every change is one
// transaction: it is there as a whole or not at all, whenever the process is killed. After each
// change the store replaces the snapshot that runs read, in an order that makes it never show more
// than the database holds: what takes away is in the snapshot first, what gives is in the database
// first. The snapshot carries the number of the transaction that it is of, and a reader uses it
// only if that is the database's last.
//
// What takes away needs no room that a command could take: the database keeps blocks for it
// (room.go), the snapshot goes where a new one does not fit, and what even so cannot be stored is
// owed, and comes first.
//
// Each value carries a checksum over its place and itself, so that a damaged byte cannot turn a
// grant into another one. A database that is damaged is kept beside the new one under a dated name;
// the new one begins with what the snapshot has, and a notice tells the person.
package store

// Package wire answers HTTP and JSON by tables of routes, with the limits that every socket of ours
// has.
//
// Bodies, headers and connections are bounded, and so is the time to send and to read them. Who
// waits for an answer holds a connection and no deadline; whoever answers bounds how many wait, and
// for how long. What a table says of a route is also what OpenAPI says of it.
//
// What is asked and answered is the business of those who write the tables: this package knows no
// error of theirs and no event.
package wire

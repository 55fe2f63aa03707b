// Package review is the screen at which a person answers what agents ask. It decides nothing
// itself: each key becomes a decision about one request that the screen has shown, and the broker
// holds it against the rules.
package review

// Package repository knows git's repositories: which settings there are, what they do, and how
// their file is read and changed.
//
// git executes what a repository's settings and hooks say, in whatever directory a person next
// types "git status". Carry brings the changes that a command made to a copy of the settings into
// the host's file, key by key, as far as Judge says that they do no harm. Disarm takes what
// executes out of a repository that a command made itself.
//
// The list of keys is one of what may pass. What is not on it stays out: a key that git learns next
// year, too.
//
// All files are reached by the descriptor of the directory they are in. No symbolic link is
// followed, and nothing is read that is not a regular file of at most MaxFile bytes.
package repository

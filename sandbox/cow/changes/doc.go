// Package changes shows what commands changed in a directory that they saw copy on write, brings it
// to the host, or throws it away.
//
// Everything in a layer was made by a command, and a command may be hostile: names, depth, sizes,
// types and attributes of what is there decide nothing but what is shown. What is on the host may
// be changed by others at any time. So everything is opened beneath a directory that is open
// already, without following a link; what is put in the place of something is exchanged with it in
// one step, and what came out is held against what was expected before it is removed.
//
// No change of a person's is overwritten. An overlay keeps no copy of the originals, so the rule
// goes by time: what was changed on the host since the layer was last empty is a conflict, and is
// left as it is unless a person names it. Of text files the original is kept when a command has
// ended (Keep), as long as that can be proven to be one: then what both sides changed is merged
// where it does not touch.
package changes

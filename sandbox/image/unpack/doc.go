// Package unpack puts what an archive, a layer of an image or a directory holds into a directory,
// and nothing outside of it.
//
// Who made an archive is nobody's friend. No name is followed through a symbolic link: each
// directory is opened by the kernel beneath the root, without links, and what is in it by its last
// name alone. No file is ever written but a new one. What has no place in an image is refused with
// the name of the entry, or left out and told: devices, FIFOs, setuid and setgid bits,
// capabilities, owners. How much is taken, in bytes, entries and time, has an end.
package unpack

// Package mounts puts together what a sandbox shows, and changes it while the sandbox runs.
//
// bubblewrap makes the namespaces and the base of the file system; everything else is trees that
// are assembled apart: each object opened without following symbolic links, each mount by
// descriptor, with what hides and protects below already on it. A tree appears in the sandbox in
// one move. What is mounted is known by its mount id and an open descriptor, never by a path, which
// a command could have changed.
//
// All of it is done by a process of its own, the mounter (see Mounter), which is in the user
// namespace that owns the sandbox's mount namespace, and in none of the sandbox's other namespaces:
// nothing inside can see it.
//
// The package knows nothing of profiles and plans; package sandbox says what is to be mounted.
// Needs Linux 5.12.
package mounts

import (
	"fmt"
	"io/fs"
)

// A Kind is one way to make something visible, or invisible.
type Kind uint8

const (
	Bind    Kind = iota + 1 // the host's object
	Entries                 // a directory of the sandbox's own, with what the host has in its directory now, read-only
	Mask                    // an empty directory of the sandbox's own, read-only
	Empty                   // an empty file, read-only
	Copy                    // a copy of one of the host's files
	Symlink                 // a symbolic link, in a directory of the sandbox's own
	Private                 // a directory in memory that the command may write
	Carried                 // what the sandbox has at the path already, with all that is mounted below
	Overlay                 // the host's directory as it is, and writable: what is changed goes to a layer (Linux 5.11)
	Link                    // a symbolic link that is mounted over a file of the host's
)

// A Mount is one part of a tree.
type Mount struct {
	Kind     Kind
	Path     string // inside; no component is a symbolic link
	Source   string // of Bind, Entries, Copy and Overlay: on the host, no component is a symbolic link; of Symlink and Link: its text
	Layer    string // of Overlay: on the host, with the directories of a layer, which nothing else may use meanwhile
	Writable bool   // of Bind
	NoExec   bool   // of Bind and Overlay: no file there can be executed, or mapped to be
	Mode     fs.FileMode
	Size     int64  // of Private: how much it may hold; 0: as much as the kernel lets it
	Files    []File // of Private: what is in it at the start
	File     bool   // it is no directory
	// OrEntries is of an Overlay: where it cannot be mounted, its place has the host's entries, as
	// of Entries.
	OrEntries bool
	// Object is what has to be at Source, if a certain object has.
	Object *Object
	// Optional mounts are left out where their source is gone or is something else; any other ends
	// the assembly.
	Optional bool
}

// What a layer consists of. What commands write is where nobody gets by a path: see package shut.
const (
	LayerVeil  = "veil"             // between both: what hides something of the host's, which the command cannot take away
	LayerIn    = "shut/in"          // with the other two
	LayerUpper = LayerIn + "/upper" // what was changed
	LayerWork  = LayerIn + "/work"  // the kernel's
)

// A File is a file in a directory in memory. With a directory in its path it is the one file of
// that, which the mounter can read and replace.
type File struct {
	Path string // below the directory in memory: "0/config"
	Text string
	Mode fs.FileMode // of one without a directory; any other is its owner's
}

// own reports whether the mount is of the sandbox's own making, so that places to mount on can be
// made in it.
func (m *Mount) own() bool { return m.Kind == Entries || m.Kind == Mask }

// An Object identifies something on the host. What is empty counts for nothing.
type Object struct {
	Device, Inode uint64
	Born          int64  // when it was made, in nanoseconds since 1970
	Handle        string // its file handle, in hexadecimal
}

// A Tree is what appears in one move: its root first, then what is below, the shallow before the
// deep.
type Tree []Mount

// Path is where the tree's root is.
func (t Tree) Path() string { return t[0].Path }

// An Error is why something could not be mounted, or taken away.
type Error struct {
	Path string // what it is about
	Op   string // what was being done
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s %q: %v", e.Op, e.Path, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// A LeftOut is an optional mount that is not there, and why.
type LeftOut struct {
	Path string
	Err  error
}

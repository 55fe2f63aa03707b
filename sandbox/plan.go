package sandbox

import (
	"io/fs"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/clairun/clai-sandbox/profile"
)

// A Plan is a sandbox before it exists: what is mounted where, in which order and why, and with which options the
// command starts. It is plain data. Build makes it and Run carries it out.
type Plan struct {
	// Steps in the order in which bwrap carries them out. Binds, private directories and links stand shallowest first
	// (Build's last act; a step never covers an earlier one that is deeper), then masks, then seals.
	Steps []Step

	Network          profile.Network
	SessionBus       profile.SessionBus
	Bus              Bus
	NestedNamespaces bool

	Environment      []profile.Variable
	WorkingDirectory string
	Timeout          time.Duration

	// Notices are what the person should know: grants that were left out, protections that are off.
	Notices []Notice
}

// A StepKind is one way to make something visible, or invisible, inside.
type StepKind uint8

const (
	Bind    StepKind = iota + 1 // the host's object at the same path
	Private                     // an empty directory of the sandbox's own, gone when it ends
	Mask                        // an empty directory over something that must not be seen
	Symlink                     // a symbolic link as the host has it
	Copy                        // a copy of one of the host's files, owned by the caller
	Dir                         // an empty directory on the sandbox's root
	Proc                        // a new /proc
	Dev                         // a small /dev
	Seal                        // no more writing to a Private, Mask or Dev directory, or to the root
	Socket                      // a unix socket: the host's, or where there is no Source, one of the launcher's
)

var stepNames = []string{"", "bind", "private", "mask", "symlink", "copy", "dir", "proc", "dev", "seal", "socket"}

func (k StepKind) String() string               { return stepNames[k] }
func (k StepKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// A Step is one mount, link or file, at Path inside.
type Step struct {
	Kind   StepKind       `json:"kind" jsonschema:"how it is made"`
	Path   string         `json:"path" jsonschema:"inside; no component is a symbolic link"`
	Source string         `json:"source,omitempty" jsonschema:"of bind, copy and socket: the path on the host; of symlink: its text"`
	Access profile.Access `json:"access,omitempty" jsonschema:"of bind and socket: what the command may do there"`
	Mode   fs.FileMode    `json:"mode,omitempty" jsonschema:"of private, mask, copy and dir: the permission bits"`
	Origin profile.Origin `json:"origin" jsonschema:"why it is there"`
	Typed  string         `json:"typed,omitempty" jsonschema:"the path as the person wrote it, where that leads to it through symbolic links"`
	// Pinned binds are opened without following any symbolic link and bound by descriptor: something that the inside
	// could have written may stand in the path.
	Pinned bool `json:"-"`
	// Held binds stay where the one above shows the same: nobody renames a mount point, and what is covered below stays.
	Held bool `json:"-"`
}

// A NoticeKind tells programs what a notice is about. The names are the same in every interface of the project.
type NoticeKind string

const (
	NoticePathLeftOut   NoticeKind = "path_left_out"     // a grant that no longer leads anywhere
	NoticePathDenied    NoticeKind = "path_denied"       // a grant that leads where none may
	NoticeSessionBus    NoticeKind = "session_bus"       // the session bus is absent, or a way out
	NoticeUserNamespace NoticeKind = "nested_namespaces" // further user namespaces are allowed inside
)

// A Notice is one thing that a person should know about a run that went on all the same.
type Notice struct {
	Kind NoticeKind `json:"kind" jsonschema:"what it is about"`
	Path string     `json:"path,omitempty" jsonschema:"the path that it is about"`
	Text string     `json:"text" jsonschema:"for a person, in one line"`
}

// printable makes text safe for a terminal and a log: what is not printable, and invisible or reordering characters
// among them, is escaped as in Go source. A file name may hold any of them.
func printable(text string) string {
	plain := func(r rune) bool { return r != unicode.ReplacementChar && unicode.IsPrint(r) && r != '\\' }
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return strconv.Quote(text)
}

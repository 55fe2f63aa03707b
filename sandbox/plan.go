package sandbox

import (
	"fmt"
	"io/fs"
	"slices"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/sandbox/bus"
)

// A Plan is a sandbox before it exists: what is mounted where, in which order and why, and with
// which options the command starts. It is plain data. Build makes it and Run carries it out.
type Plan struct {
	// Steps in the order in which bwrap carries them out. Binds, private directories and links
	// stand shallowest first (Build's last act; a step never covers an earlier one that is deeper),
	// then masks, then seals.
	Steps []Step

	// Rootfs is the image that stands in place of the host's system. Nil: there is none.
	Rootfs *Rootfs

	Network          profile.Network
	Domains          profile.Domains  // of a filtered network
	Upstream         profile.Upstream // through which it connects
	Published        []profile.PublishedPort
	SessionBus       profile.SessionBus
	Bus              bus.Bus
	SSHAgent         SSHAgent
	NestedNamespaces bool

	Environment      []profile.Variable
	WorkingDirectory string
	Limits           profile.Limits

	// Hidden are the paths that are not to be seen although something above them is, and not all of
	// them exist.
	Hidden []string
	// ForGood are those of Hidden that no grant shows.
	ForGood []string `json:",omitempty"`
	// NetworkBy is the file that bounds the network, which nobody here loosens. Empty: there is
	// none.
	NetworkBy string `json:",omitempty"`
	// Protection is what is watched while the command runs.
	Protection *Protection

	// Notices are what the person should know: grants that were left out, protections that are off.
	Notices []Notice
}

// A StepKind is one way to make something visible, or invisible, inside.
type StepKind uint8

const (
	Bind    StepKind = iota + 1 // the host's object at the same path
	Private                     // an empty directory of the sandbox's own, gone when it ends
	Mask                        // an empty directory over one that must not be seen
	Empty                       // an empty file over one that must not be seen
	Symlink                     // a symbolic link as the host has it
	Copy                        // a copy of one of the host's files, owned by the caller
	Dir                         // an empty directory on the sandbox's root
	Proc                        // a new /proc
	Dev                         // a small /dev
	Seal                        // no more writing to a Private, Mask or Dev directory, or to the root
	Device                      // a device of the host's
	Socket                      // a unix socket: the host's, or where there is no Source, one of the launcher's
)

var stepNames = []string{"", "bind", "private", "mask", "empty", "symlink", "copy", "dir", "proc", "dev", "seal", "device", "socket"}

func (k StepKind) String() string               { return stepNames[k] }
func (k StepKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

func (k *StepKind) UnmarshalText(text []byte) error {
	at := slices.Index(stepNames, string(text))
	if at < 1 {
		return fmt.Errorf("no kind of step: %q", text)
	}
	*k = StepKind(at)
	return nil
}

// A Step is one mount, link or file, at Path inside.
type Step struct {
	Kind   StepKind       `json:"kind" jsonschema:"how it is made"`
	Path   string         `json:"path" jsonschema:"inside; no component is a symbolic link"`
	Source string         `json:"source,omitempty" jsonschema:"of bind, copy, device and socket, and of a private directory that outlives the sandbox: the path on the host; of symlink: its text"`
	Layer  string         `json:"layer,omitempty" jsonschema:"of what is copy_on_write: where changes are kept; of what is read_write: where they are kept until the command has ended"`
	Access profile.Access `json:"access,omitempty" jsonschema:"of bind and socket: what the command may do there"`
	Mode   fs.FileMode    `json:"mode,omitempty" jsonschema:"of private, mask, empty, copy and dir: the permission bits"`
	Origin profile.Origin `json:"origin" jsonschema:"why it is there"`
	Typed  string         `json:"typed,omitempty" jsonschema:"the path as the person wrote it, where that leads to it through symbolic links"`
	// Pinned binds are opened without following any symbolic link and bound by descriptor:
	// something that the inside could have written may stand in the path.
	Pinned bool `json:"-"`
	// Purpose says what a step is for that the grants alone would not have.
	Purpose Purpose `json:"purpose,omitempty" jsonschema:"of what no grant asks for: what it is for"`
	// Entries binds of a directory show what the host has in it when the sandbox begins, entry by
	// entry: what comes later is not seen, whatever it is called.
	Entries bool `json:"entries,omitempty" jsonschema:"of a bind: the entries that the host has at the start, each for itself"`
	// Settings are git's, of a repository: where the launcher can mount, the command has a copy of
	// its own in their place.
	Settings bool `json:"settings,omitempty" jsonschema:"git's settings: inside there is a copy that the command may write; what does no harm is carried over after the run"`
	// Image says that an image is shown, or what stands in one in place of its own.
	Image bool `json:"image,omitempty" jsonschema:"of an image, and not of the host's system"`
	// explicit binds show what is hidden below them.
	explicit bool
	file     bool   // of a bind: its source is no directory
	made     string // of the directory of the caches: what is in it
	inLayer  bool   // of what hides: what it stands on is seen copy on write
	veiled   string // of what is seen copy on write: what the host does not have and must not show, each ended by a NUL
	number   uint64 // of a device
	noExec   bool   // of a bind: nothing there is executed inside
	narrows  bool   // it is read-only in something writable: without it, the command could do more
	// expected is the object that has to be there, where a person allowed that one.
	expected *profile.Expected
}

// A Purpose is what a step is for that no grant asks for.
type Purpose string

const (
	Hides    Purpose = "hidden"    // covers what serves as the person elsewhere
	Protects Purpose = "protected" // keeps what something outside executes as it is
	Anchors  Purpose = "anchor"    // a directory above something protected: a mount cannot be renamed
	Worktree Purpose = "worktree"  // what git needs of the repository that a worktree belongs to
	Leads    Purpose = "leads"     // a directory above something hidden
	OwnHome  Purpose = "home"      // a home of the agent's own
	OwnWork  Purpose = "workspace" // a workspace of the session's own
	Skills   Purpose = "skills"    // the agent's, in that
	Caches   Purpose = "cache"     // what tools download and build for their person
)

// A NoticeKind tells programs what a notice is about. The names are the same in every interface of
// the project.
type NoticeKind string

const (
	NoticePathLeftOut   NoticeKind = "path_left_out"     // a grant that no longer leads anywhere
	NoticePathDenied    NoticeKind = "path_denied"       // a grant that leads where none may
	NoticeWorkspace     NoticeKind = "workspace"         // the working directory is only read, though nobody said so
	NoticeProtected     NoticeKind = "protected_path"    // what is executed outside was made, or could not be protected
	NoticeGitSetting    NoticeKind = "git_setting"       // a change of git's settings that was not carried over
	NoticeSessionBus    NoticeKind = "session_bus"       // the session bus is absent, or a way out
	NoticeSSHAgent      NoticeKind = "ssh_agent"         // the ssh-agent is absent, or what it refused
	NoticeDevice        NoticeKind = "device"            // a device of the host's that the command does not have, or cannot open
	NoticeNetwork       NoticeKind = "network_refused"   // a connection that a filtered network refused
	NoticePort          NoticeKind = "port_unpublished"  // something listens inside where nothing outside reaches it
	NoticeLimitReached  NoticeKind = "limit_reached"     // the command was ended because it took too much
	NoticeHeld          NoticeKind = "path_held"         // what was taken away from a running command, and it still holds
	NoticeChanges       NoticeKind = "changes"           // what became of what was changed copy on write
	NoticeBackground    NoticeKind = "background_ended"  // what a command left in the background ended with it
	NoticeWide          NoticeKind = "network_wide"      // a filtered network reaches whoever has a name
	NoticeUserNamespace NoticeKind = "nested_namespaces" // further user namespaces are allowed inside
)

// A Notice is one thing that a person should know about a run that went on all the same.
type Notice struct {
	Kind   NoticeKind `json:"kind" jsonschema:"what it is about"`
	Path   string     `json:"path,omitempty" jsonschema:"the path that it is about"`
	Domain string     `json:"domain,omitempty" jsonschema:"of network_refused: the destination, as host:port"`
	Limit  string     `json:"limit,omitempty" jsonschema:"of limit_reached: the limit's name, as in --limit NAME=AMOUNT, or timeout"`
	Text   string     `json:"text" jsonschema:"for a person, in one line"`
}

// printable makes text safe for a terminal and a log: what is not printable, and invisible or
// reordering characters among them, is escaped as in Go source. A file name may hold any of them.
func printable(s string) string { return text.Name(s) }

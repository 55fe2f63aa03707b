package profile

import "fmt"

// Access is what a sandbox may do with a path. The zero value is no access.
type Access uint8

const (
	NoAccess Access = iota
	ReadOnly
	CopyOnWrite // can be written, and every change goes to a layer: the host stays as it was
	ReadWrite
)

// Accesses are those that can be granted, the narrowest first, in words for messages.
const Accesses = "read_only, copy_on_write or read_write"

// ParseAccess reads an access that can be granted, by its name or the short one.
func ParseAccess(word string) (Access, error) {
	switch word {
	case "ro", "read_only":
		return ReadOnly, nil
	case "cow", "copy_on_write":
		return CopyOnWrite, nil
	case "rw", "read_write":
		return ReadWrite, nil
	}
	return NoAccess, fmt.Errorf("%s is not %s", shorten(word), Accesses)
}

// Grantable reports whether a person can grant it.
func (a Access) Grantable() bool { return a > NoAccess && a <= ReadWrite }

// Verb is what it lets a command do, in words for people.
func (a Access) Verb() string {
	switch a {
	case ReadWrite:
		return "read and write"
	case CopyOnWrite:
		return "read, and change a copy of,"
	}
	return "read"
}

// Network says how much of the host's network the sandbox reaches. The zero value is none.
type Network uint8

const (
	NetworkDisabled Network = iota
	NetworkEnabled          // the host's own
	NetworkFiltered         // what the profile's Domains allow
)

// SessionBus says how much of the caller's D-Bus session bus is reachable. The zero value is
// nothing.
type SessionBus uint8

const (
	SessionBusDeny SessionBus = iota
	SessionBusFiltered
	// SessionBusAllow hands over the raw socket: a way out of the sandbox, because the bus starts
	// programs outside it.
	SessionBusAllow
)

// DefaultSessionBusNames are what a filtered session bus lets through where nobody says otherwise:
// the caller's secrets (gh, git-credential-libsecret and secret-tool need them), the portals,
// notifications. Each stands for a part of what its owner does, without what starts programs; any
// other name stands for all of it.
var DefaultSessionBusNames = []string{"org.freedesktop.secrets", "org.freedesktop.portal.*", "org.freedesktop.Notifications"}

// The names of each enumeration, by value, as they stand in configuration, flags and output.
var (
	accessNames     = []string{"none", "read_only", "copy_on_write", "read_write"}
	networkNames    = []string{"disabled", "enabled", "filtered"}
	sessionBusNames = []string{"deny", "filtered", "allow"}
)

func (a Access) String() string     { return nameOf(accessNames, int(a)) }
func (n Network) String() string    { return nameOf(networkNames, int(n)) }
func (b SessionBus) String() string { return nameOf(sessionBusNames, int(b)) }

func (a Access) MarshalText() ([]byte, error)     { return []byte(a.String()), nil }
func (n Network) MarshalText() ([]byte, error)    { return []byte(n.String()), nil }
func (b SessionBus) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText accepts read_only and read_write. "none" is no grant, so it cannot be written.
func (a *Access) UnmarshalText(text []byte) error {
	i, err := valueOf(accessNames[1:], text)
	if err == nil {
		*a = Access(i + 1)
	}
	return err
}

func (n *Network) UnmarshalText(text []byte) error {
	i, err := valueOf(networkNames, text)
	if err == nil {
		*n = Network(i)
	}
	return err
}

func (b *SessionBus) UnmarshalText(text []byte) error {
	i, err := valueOf(sessionBusNames, text)
	if err == nil {
		*b = SessionBus(i)
	}
	return err
}

// An OriginKind is where something that a sandbox sees comes from.
type OriginKind string

const (
	OriginBaseline  OriginKind = "baseline"  // every sandbox has it
	OriginDefault   OriginKind = "default"   // a new agent has it until its configuration says otherwise
	OriginConfig    OriginKind = "config"    // written in a configuration file
	OriginWorkspace OriginKind = "workspace" // the directory that the command works in
	OriginFlag      OriginKind = "flag"      // said on the command line
	OriginApproval  OriginKind = "approval"  // an agent asked, and a person allowed it
	OriginManual    OriginKind = "manual"    // a person added it to what is stored
	OriginPreset    OriginKind = "preset"    // a program that is known needs it
	OriginImage     OriginKind = "image"     // the image that stands in place of the host's system
)

// Origin tells a person why something is visible. Source is the place: a file and line, a flag as
// typed.
type Origin struct {
	Kind   OriginKind `json:"kind" jsonschema:"what says so"`
	Source string     `json:"source,omitempty" jsonschema:"where it says so: a file and line, an option as typed"`
}

func (o Origin) String() string {
	if o.Source == "" {
		return string(o.Kind)
	}
	return fmt.Sprintf("%s %s", o.Kind, o.Source)
}

// A Grant shows one path of the host, at the same path inside.
type Grant struct {
	Path   string `json:"path"` // absolute and clean; symbolic links are not resolved
	Access Access `json:"access"`
	Origin Origin `json:"origin"`
	// Explicit grants show the hidden paths below them, too.
	Explicit bool `json:"explicit,omitempty"`
	// Expected is what the path must lead to still, or the grant is left out. Nil: whatever it
	// leads to.
	Expected *Expected `json:"-"`
}

// Expected is what a path led to when a person allowed it.
type Expected struct {
	Path          string // with its symbolic links followed
	Device, Inode uint64 // 0: anything that is there
	Born, Handle  string // see Object; empty: any
}

// Is reports whether an object is the one that was allowed.
func (e *Expected) Is(o Object) bool {
	return e.Inode == 0 || o.Same(Object{Device: e.Device, Inode: e.Inode, Born: e.Born, Handle: e.Handle})
}

// A Variable is one environment variable of the command.
type Variable struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin Origin `json:"origin"`
}

// A Profile is what one agent's command may see and do.
type Profile struct {
	Agent string
	UID   int    // of the caller, and inside
	Home  string // the caller's real home, also inside
	// HomeIs is what stands there inside where no grant shows it, and HomeOrigin says why.
	HomeIs     Home
	HomeOrigin Origin

	Workspace       string // also among Grants
	WorkspaceOrigin Origin // why it is this one
	// WorkspaceAccess is what the command may do there. Without --session, the command starts in
	// its own /tmp where that is nothing.
	WorkspaceAccess Access `json:",omitempty"`
	AccessOrigin    Origin
	// Session is the one that the command is for, if it is for one.
	Session *Session
	// SandboxWorkspace is the directory of this program's that stands at /workspace; see
	// OwnsWorkspace. Empty: it is in memory.
	SandboxWorkspace string
	WorkingDirectory string // where the command starts
	// ReadOnlyWorkspace: nobody chose a workspace, and the working directory is one that cannot be
	// written, such as the home.
	ReadOnlyWorkspace bool

	// Grants, the least specific first: at equal paths the later one decides. The workspace stands
	// after those of the configuration and before those of the command line.
	Grants []Grant

	// Caches are directories in a readable home in which tools keep what they download and build,
	// and what becomes of them.
	Caches     Caches
	CachePaths []CachePath

	// Hidden are paths that only a grant of their own, or an explicit one above them, shows.
	Hidden []HiddenPath
	// Protected are names that are read-only in writable directories besides the usual ones, see
	// ProtectedIn; Unprotected are names that are not.
	Protected   []ProtectedPath
	Unprotected []string
	ProtectMode ProtectMode

	Network    Network
	Domains    Domains  // of a filtered network
	Upstream   Upstream // through which it connects
	Published  []PublishedPort
	SessionBus SessionBus
	// SessionBusNames are what a filtered bus lets through: well-known names, and with ".*" at the
	// end all below one.
	SessionBusNames []string
	// SessionBusAddress and RuntimeDirectory lead to the caller's bus: $DBUS_SESSION_BUS_ADDRESS
	// and $XDG_RUNTIME_DIR.
	SessionBusAddress string
	RuntimeDirectory  string
	// SSHKeys are those of the caller's ssh-agent that the command may use. SSHAgentSocket is that
	// agent's: $SSH_AUTH_SOCK.
	SSHKeys        []SSHKey
	SSHAgentSocket string
	// Devices of the host's are shown besides the few that every sandbox has.
	Devices []Device
	// NestedNamespaces lets the command make user namespaces of its own, as a browser's or another
	// sandbox does.
	NestedNamespaces bool

	// Image is what stands in place of the host's system, and Images where all images are. Empty:
	// the host's own.
	Image       string
	ImageAccess Access `json:",omitempty"` // ReadOnly or CopyOnWrite
	Images      string

	Environment []Variable // sorted by name, each name once
	Limits      Limits

	// Narrowed is what was taken away from all this, by the administrator's file or by the
	// workspace's own.
	Narrowed []Narrowing `json:",omitempty"`

	// TrustElicitation lets an MCP client's own prompt answer what the agent asks for.
	TrustElicitation bool
	// PrivateTmp is a directory of this program's that stands at /tmp inside, writable, and
	// outlives the sandbox. Empty: /tmp is in memory, and gone with it.
	PrivateTmp string
	// PrivateHome is the directory of this program's that is a HomePrivate. Empty: it is as with
	// HomeEphemeral.
	PrivateHome string
	// HomeLeads are directories at the home that a PrivateHome has too, made ready to lead to what
	// is granted below them.
	HomeLeads []string
	// Layers is the directory in which this agent's changes to what it sees copy on write are kept.
	Layers string
	// PersonsGit are files of git's settings, and PersonsFiles other files and directories, that
	// the caller's environment names: programs outside execute them or do as they say.
	PersonsGit, PersonsFiles []string
	// PersonsSettings are texts of git's settings, in the form of its files, that the caller's
	// environment has.
	PersonsSettings []string
	// PersonsNamed are what other variables name that choose code: files count, and directories do
	// not.
	PersonsNamed []string
	// PersonsVariables are those of the caller's variables that are whole paths, as NAME=VALUE:
	// what a person's shell starts with may go by them.
	PersonsVariables []string
	// PersonsPath are the directories of the caller's PATH, but for those that package managers
	// fill. A relative one is in whatever directory the caller is.
	PersonsPath []string
	// Written is the file with the directories that commands could write.
	Written string
	// AskSocket is a socket of the broker's on which the inside may ask for grants. Empty: there is
	// none.
	AskSocket string
	// CommandSocket is a socket on which an agent inside has its commands run in another sandbox.
	// Empty: there is none.
	CommandSocket string `json:",omitempty"`

	// OwnDirectories hold this program's configuration, state and sockets. No sandbox may see into
	// them. Where symbolic links lead to such files elsewhere, these are among them.
	OwnDirectories []string
	// OwnLinks are symbolic links outside of these that lead there. Nobody may write around them.
	OwnLinks []string
}

func nameOf(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("invalid(%d)", i)
}

func valueOf(names []string, text []byte) (int, error) {
	for i, name := range names {
		if name == string(text) {
			return i, nil
		}
	}
	return -1, &ValueError{Value: string(text), Want: names}
}

// A ValueError is a word where one of a few others was wanted.
type ValueError struct {
	Value string
	Want  []string
}

func (e *ValueError) Error() string {
	want := ""
	for i, w := range e.Want {
		switch {
		case i == 0:
		case i == len(e.Want)-1:
			want += " or "
		default:
			want += ", "
		}
		want += w
	}
	return fmt.Sprintf("%s is not %s", shorten(e.Value), want)
}

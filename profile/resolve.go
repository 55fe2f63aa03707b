package profile

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A Request is what one run asks for on top of the configuration. The zero value asks for nothing.
type Request struct {
	Agent            string   // empty: main
	Workspace        string   // empty: the configuration's, else the repository that the caller's working directory is in, else that directory
	Session          string   // the key of the session that the command is for; empty: none
	Scope            string   // session, agent or shared; empty: as the configuration says
	Base             string   // what the working directory of a tool call is below; see Profile.Base
	WorkspaceAccess  string   // ro, cow, rw or none; empty: as the configuration says
	Caches           string   // cow, private, off or rw; empty: as the configuration says
	Home             string   // readable, private or ephemeral; empty: as the configuration says
	Grants           []string // PATH[:ro|:cow|:rw][:explicit]
	Hide             []string // paths
	Protect          []string // names in writable directories
	Unprotect        []string
	ProtectMode      string   // watch or strict; empty: as the configuration says
	Environment      []string // NAME or NAME=VALUE
	WorkingDirectory string   // empty: the caller's, if it is in the workspace, else the workspace
	Timeout          time.Duration
	Limits           []string // NAME=AMOUNT
	Network          string   // empty: the configuration's
	AllowDomains     []string // added to the configuration's
	DenyDomains      []string
	UpstreamProxy    string   // none, environment or a URL without a password; empty: the configuration's
	Publish          []string // PORT, or HOST:INSIDE
	SessionBus       string   // empty: the configuration's
	SessionBusNames  []string // besides the configuration's
	SSHAgent         []string // HOST=KEY
	SignCommits      []string // KEY
	Image            string   // NAME[:ro|:cow], or HostImage; empty: the configuration's
	Devices          []string // gpu, kvm or /dev/NAME; besides the configuration's
	NestedNamespaces bool
	Stored           []Grant      // grants that were approved before
	StoredDomains    []DomainRule // what was approved before of a filtered network
	Preset           []Grant      // what presets add to the configuration's
	OwnHome          bool         // where nobody says what stands at the home directory, it is one of the agent's own
	KnownAgent       bool         // the agent need not stand in a configuration file: a preset is called so
	Project          *Project     // of the workspace; nil: none
	NoProject        bool         // a workspace's own file is not read
}

const (
	// DefaultAgent is the agent of whoever does not say another.
	DefaultAgent = "main"
	// MaxGrants bounds the path grants of one profile: bwrap's time grows with the square of its
	// mounts.
	MaxGrants = 1000
	// maxProtected bounds the names that are protected besides the usual.
	maxProtected = 100
)

// WrittenName is what the file of the directories that commands could write is called, in the state
// directory.
const WrittenName = "written"

// Resolve joins the configuration of one agent with what a run asks for. It looks at nothing on
// disk. An error says what was asked for in vain and, for the configuration, in which line.
func Resolve(config *Config, caller Caller, r Request) (Profile, error) {
	p := Profile{Agent: r.Agent, UID: caller.UID, Home: caller.Home, OwnDirectories: caller.Directories().list()}
	p.OwnDirectories, p.OwnLinks = append(p.OwnDirectories, config.places...), config.links
	if p.Agent == "" {
		p.Agent = DefaultAgent
	}
	if err := CheckAgent(p.Agent); err != nil {
		return p, err
	}
	if err := p.resolveSession(config, r); err != nil {
		return p, err
	}
	p.Layers = filepath.Join(caller.Directories().State, "layers", p.Agent)
	p.personsEnvironment(caller)
	p.Written = filepath.Join(caller.Directories().State, WrittenName)
	settings := config.settings(p.Agent)
	for _, step := range []func() error{
		func() error { return p.resolveDirectories(config.agent(p.Agent), caller, r) },
		func() error { return p.resolveGrants(settings, caller, r) },
		func() error { p.personsNamed(caller); return nil },
		func() error { return p.resolveHome(settings, r) },
		func() error { return p.resolveHidden(settings, caller, r) },
		func() error { p.dropNarrowing(); return nil },
		func() error { return p.resolveCaches(settings, r) },
		func() error { return p.resolveProtected(settings, r) },
		func() error { return p.resolveNetwork(settings, r) },
		func() error { return p.resolveUpstream(settings, caller, r) },
		func() error { return p.resolvePublished(settings, r) },
		func() error { return p.resolveModes(settings, caller, r) },
		func() error { return p.resolveSSHKeys(settings, caller, r) },
		func() error { return p.resolveDevices(settings, r) },
		func() error { return p.resolveImage(settings, caller, r) },
		func() error { return p.resolveLimits(settings.Limits, r) },
		func() error { return p.resolveEnvironment(settings, caller, r) },
		func() error { return p.narrow(config, r.Project) },
		func() error { return p.settlePublished(r) },
		func() error { return p.settleUpstream(caller, r) },
		func() error { p.passProxies(caller); return nil },
	} {
		if err := step(); err != nil {
			return p, err
		}
	}
	return p, nil
}

// resolveDirectories finds the workspace and the working directory.
func (p *Profile) resolveDirectories(agent *agentConfig, caller Caller, r Request) error {
	var err error
	p.Workspace, p.WorkspaceOrigin = caller.WorkingDirectory, Origin{OriginDefault, "the working directory"}
	if caller.Repository != "" {
		p.Workspace, p.WorkspaceOrigin = caller.Repository, Origin{OriginDefault, "the repository that the working directory is in"}
	}
	if agent != nil && agent.Workspace != nil {
		p.WorkspaceOrigin = agent.Workspace.origin
		if p.Workspace, err = ExpandPath(string(agent.Workspace.path), caller.Home); err != nil {
			return fmt.Errorf("%s: %w", p.WorkspaceOrigin.Source, err)
		}
	}
	if r.Workspace != "" {
		p.WorkspaceOrigin = Origin{OriginFlag, "--workspace " + printable(r.Workspace)}
		if p.Workspace, err = TypedPath(r.Workspace, caller.WorkingDirectory, caller.Home); err != nil {
			return fmt.Errorf("--workspace: %w", err)
		}
	}
	if why, never := NeverGrantable(p.Workspace); never {
		return fmt.Errorf("workspace %s: %s; choose another with --workspace DIR", shorten(p.Workspace), why)
	}
	switch {
	case r.WorkingDirectory != "":
		if p.WorkingDirectory, err = TypedPath(r.WorkingDirectory, caller.WorkingDirectory, caller.Home); err != nil {
			return fmt.Errorf("--cwd: %w", err)
		}
	case Within(caller.WorkingDirectory, p.Workspace):
		p.WorkingDirectory = caller.WorkingDirectory
	default:
		p.WorkingDirectory = p.Workspace
	}
	return nil
}

// resolveGrants lists the grants, the least specific first.
func (p *Profile) resolveGrants(settings executionConfig, caller Caller, r Request) error {
	add := func(g Grant) error {
		if why, never := NeverGrantable(g.Path); never {
			return fmt.Errorf("%s: %s", g.Origin.Source, why)
		}
		p.Grants = append(p.Grants, g)
		return nil
	}
	said, err := saidHome(settings, r)
	if err != nil {
		return err
	}
	paths := settings.Filesystem.ExtraPaths
	if origin := (Origin{Kind: OriginDefault}); said == nil && paths == nil || said != nil && said.home == HomeReadable {
		// A new agent may read what its person has, until the configuration says otherwise.
		if said != nil {
			origin = said.origin
		}
		if _, never := NeverGrantable(p.Home); !never {
			p.Grants = append(p.Grants, Grant{Path: p.Home, Access: ReadOnly, Origin: origin})
		}
	}
	if paths != nil {
		for _, extra := range *paths {
			path, err := ExpandPath(string(extra.Path), p.Home)
			if err != nil {
				return fmt.Errorf("%s: %w", extra.origin.Source, err)
			}
			if err := add(Grant{Path: path, Access: extra.Access, Origin: extra.origin, Explicit: extra.Explicit}); err != nil {
				return err
			}
		}
	}
	configured := len(p.Grants)
	if err := p.resolveWorkspaceAccess(settings, caller, r); err != nil {
		return err
	}
	for _, text := range r.Grants {
		g, err := ParseGrant(text, caller.WorkingDirectory, p.Home)
		if err != nil {
			return fmt.Errorf("--grant: %w", err)
		}
		if err := add(g); err != nil {
			return err
		}
	}
	p.Grants = slices.Insert(p.Grants, configured, slices.Concat(r.Preset, r.Stored)...)
	if n := len(p.Grants); n > MaxGrants {
		return fmt.Errorf("%d grants: at most %d; grant a directory above them instead", n, MaxGrants)
	}
	return nil
}

// resolveSession finds out which session the command is for, and whose it is.
func (p *Profile) resolveSession(config *Config, r Request) error {
	if r.Session == "" {
		if r.Scope != "" {
			return fmt.Errorf("--scope says which sessions share a sandbox workspace: name the session with --session KEY")
		}
		return nil
	}
	s, err := config.Session(r.Session, r.Agent)
	if err == nil && r.Scope != "" {
		if err = s.Scope.UnmarshalText([]byte(r.Scope)); err != nil {
			err = fmt.Errorf("--scope: %w", err)
		}
		s.ScopeOrigin = Origin{OriginFlag, "--scope " + printable(r.Scope)}
		s.rescope()
	}
	p.Session, p.Agent = &s, s.Agent
	return err
}

// resolveWorkspaceAccess grants the workspace. Without any access, the command starts in its own
// /tmp, or in the session's own workspace.
func (p *Profile) resolveWorkspaceAccess(settings executionConfig, caller Caller, r Request) error {
	said := workspaceAccess{ReadWrite, Origin{OriginDefault, "workspaceAccess"}}
	if configured := settings.Filesystem.WorkspaceAccess; configured != nil {
		said = *configured
	}
	if r.WorkspaceAccess != "" {
		said.origin = Origin{OriginFlag, "--workspace-access " + printable(r.WorkspaceAccess)}
		if said.access = NoAccess; r.WorkspaceAccess != "none" {
			var err error
			if said.access, err = ParseAccess(r.WorkspaceAccess); err != nil {
				return fmt.Errorf("--workspace-access: %w or none", err)
			}
		}
	}
	if asked := r.Workspace != "" || r.WorkspaceAccess != "" || settings.Filesystem.WorkspaceAccess != nil; !asked && caller.Directories().below(p.Workspace) {
		said.access, p.ReadOnlyWorkspace = ReadOnly, true
	}
	p.WorkspaceAccess, p.AccessOrigin = said.access, said.origin
	if r.WorkingDirectory == "" || p.WorkspaceAccess == NoAccess && Within(p.WorkingDirectory, p.Workspace) {
		switch {
		case p.OwnsWorkspace():
			p.WorkingDirectory = SandboxWorkspace
		case p.WorkspaceAccess == NoAccess:
			p.WorkingDirectory = "/tmp"
		}
	}
	if p.WorkspaceAccess != NoAccess {
		p.Grants = append(p.Grants, Grant{Path: p.Workspace, Access: p.WorkspaceAccess, Origin: Origin{Kind: OriginWorkspace}})
	}
	return nil
}

// resolveCaches lists the caches of a home that is readable.
func (p *Profile) resolveCaches(settings executionConfig, r Request) error {
	if configured := settings.Filesystem.Caches; configured != nil {
		p.Caches = *configured
	}
	if r.Caches != "" {
		if err := p.Caches.UnmarshalText([]byte(r.Caches)); err != nil {
			return fmt.Errorf("--caches: %w", err)
		}
	}
	var home Grant
	for _, g := range p.Grants {
		if Within(p.Home, g.Path) && len(g.Path) >= len(home.Path) {
			home = g
		}
	}
	if p.Caches != CachesOff && home.Access == ReadOnly {
		p.CachePaths = cachePaths(p.Home)
	}
	return nil
}

// dropNarrowing leaves out what was approved where more is granted anyway: the deeper path decides,
// and an approval only ever adds. One for something hidden stays.
func (p *Profile) dropNarrowing() {
	p.Grants = slices.DeleteFunc(slices.Clone(p.Grants), func(g Grant) bool {
		if !g.Origin.approved() {
			return false
		}
		var above Grant
		for _, other := range p.Grants {
			if !other.Origin.approved() && Within(g.Path, other.Path) && len(other.Path) >= len(above.Path) {
				above = other
			}
		}
		return above.Access > g.Access && !slices.ContainsFunc(p.Hidden, func(h HiddenPath) bool {
			return Within(g.Path, h.Path) && Within(h.Path, above.Path) && h.Path != above.Path
		})
	})
}

// approved reports whether a person answered an agent, or added it to what is stored.
func (o Origin) approved() bool { return o.Kind == OriginApproval || o.Kind == OriginManual }

// resolveHidden lists what no grant above it shows: the usual credential stores, and what somebody
// adds to them.
func (p *Profile) resolveHidden(settings executionConfig, caller Caller, r Request) error {
	p.Hidden = hiddenByDefault(p.Home)
	add := func(path string, err error, origin Origin) error {
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", origin.Source, err)
		case path == "/":
			return fmt.Errorf("%s: the whole file system cannot be hidden", origin.Source)
		case len(p.Hidden) == MaxGrants:
			return fmt.Errorf("%s: more than %d hidden paths; hide a directory above them instead", origin.Source, MaxGrants)
		}
		p.Hidden = append(p.Hidden, HiddenPath{Path: path, Origin: origin})
		return nil
	}
	if paths := settings.Filesystem.HiddenPaths; paths != nil {
		for _, hidden := range *paths {
			path, err := ExpandPath(hidden.path, p.Home)
			if err := add(path, err, hidden.origin); err != nil {
				return err
			}
		}
	}
	for _, hidden := range p.Hidden {
		if r.Workspace == "" && (Within(p.Workspace, hidden.Path) || p.Workspace == caller.Repository && Within(p.WorkingDirectory, hidden.Path)) {
			return fmt.Errorf("workspace %s: a place for credentials, which no sandbox shows; --workspace . takes it all the same", shorten(p.Workspace))
		}
	}
	for _, typed := range r.Hide {
		path, err := listedPath(typed, caller.WorkingDirectory, p.Home)
		if err == nil {
			err = checkNoPattern(typed)
		}
		if err := add(path, err, Origin{OriginFlag, "--hide " + printable(typed)}); err != nil {
			return err
		}
	}
	return nil
}

// resolveProtected lists what is protected in writable directories besides the usual, and what is
// not.
func (p *Profile) resolveProtected(settings executionConfig, r Request) error {
	if names := settings.Filesystem.ProtectedPaths; names != nil {
		for _, n := range *names {
			p.Protected = append(p.Protected, ProtectedPath{filepath.Clean(n.name), false, n.origin})
		}
	}
	if mode := settings.Filesystem.ProtectMode; mode != nil {
		p.ProtectMode = *mode
	}
	if r.ProtectMode != "" {
		if err := p.ProtectMode.UnmarshalText([]byte(r.ProtectMode)); err != nil {
			return fmt.Errorf("--protect-mode: %w", err)
		}
	}
	if names := settings.Filesystem.UnprotectedPaths; names != nil {
		for _, n := range *names {
			p.Unprotected = append(p.Unprotected, filepath.Clean(n.name))
		}
	}
	for _, name := range r.Protect {
		if err := CheckProtectedName(name); err != nil {
			return fmt.Errorf("--protect %s: %w", printable(name), err)
		}
		p.Protected = append(p.Protected, ProtectedPath{filepath.Clean(name), false, Origin{OriginFlag, "--protect " + printable(name)}})
	}
	for _, name := range r.Unprotect {
		if err := CheckProtectedName(name); err != nil {
			return fmt.Errorf("--unprotect %s: %w", printable(name), err)
		}
		p.Unprotected = append(p.Unprotected, filepath.Clean(name))
	}
	if len(p.Protected) > maxProtected || len(p.Unprotected) > maxProtected {
		return fmt.Errorf("more than %d protected or unprotected paths", maxProtected)
	}
	return nil
}

func (p *Profile) resolveModes(settings executionConfig, caller Caller, r Request) error {
	p.SessionBus, p.SessionBusNames = SessionBusFiltered, slices.Clone(DefaultSessionBusNames)
	p.SessionBusAddress, p.RuntimeDirectory = caller.variable("DBUS_SESSION_BUS_ADDRESS"), caller.variable("XDG_RUNTIME_DIR")
	if s := settings.Sandbox.SessionBus; s != nil {
		p.SessionBus = *s
	}
	if s := settings.Sandbox.SessionBusNames; s != nil {
		p.SessionBusNames = make([]string, 0, len(*s))
		for _, name := range *s {
			p.SessionBusNames = append(p.SessionBusNames, string(name))
		}
	}
	if s := settings.MCP.TrustElicitation; s != nil {
		p.TrustElicitation = *s
	}
	if s := settings.Sandbox.NestedNamespaces; s != nil {
		p.NestedNamespaces = *s
	}
	p.NestedNamespaces = p.NestedNamespaces || r.NestedNamespaces
	if r.SessionBus != "" {
		if err := p.SessionBus.UnmarshalText([]byte(r.SessionBus)); err != nil {
			return fmt.Errorf("--session-bus: %w", err)
		}
	}
	if err := p.addSessionBusNames(r.SessionBusNames); err != nil {
		return fmt.Errorf("--session-bus-name: %w", err)
	}
	return nil
}

// addSessionBusNames lets the command line's names through, after the configuration's.
func (p *Profile) addSessionBusNames(names []string) error {
	for _, text := range names {
		var name busName
		if err := name.UnmarshalText([]byte(text)); err != nil {
			return err
		}
		if p.SessionBus != SessionBusFiltered {
			return fmt.Errorf("the session bus is set to %s; only a filtered one lets names through", p.SessionBus)
		}
		if !slices.Contains(p.SessionBusNames, text) {
			p.SessionBusNames = append(p.SessionBusNames, text)
		}
	}
	return nil
}

// resolveEnvironment collects the variables: the few that all get, then the configuration's, then
// the command line's.
func (p *Profile) resolveEnvironment(settings executionConfig, caller Caller, r Request) error {
	e := newEnvironment(caller.Environ)
	e.passDefaults()
	if settings.Environment.Pass != nil {
		for _, v := range *settings.Environment.Pass {
			if err := e.allow(v.name, nil, true, v.origin); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(settings.Environment.Set)) {
		v := settings.Environment.Set[name]
		if err := e.allow(name, &v.value, false, v.origin); err != nil {
			return err
		}
	}
	for _, text := range r.Environment {
		name, value, hasValue := strings.Cut(text, "=")
		given := &value
		if !hasValue {
			given = nil
		}
		if err := e.allow(name, given, false, Origin{OriginFlag, "--env"}); err != nil {
			return err
		}
	}
	for name, value := range map[string]string{"HOME": p.Home, "USER": caller.User, "LOGNAME": caller.User, "SHELL": caller.Shell} {
		e.put(name, value, Origin{Kind: OriginBaseline})
	}
	var err error
	p.Environment, err = e.list()
	return err
}

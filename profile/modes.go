package profile

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Mode says which sessions of an agent are to be sandboxed. It is for whoever sends commands:
// what this program runs for a session is in a sandbox whatever the mode is. The zero value is all.
type Mode uint8

const (
	ModeAll     Mode = iota
	ModeNonMain      // all but the agent's main session
	ModeOff          // none
)

// A Scope says what sessions share a sandbox workspace. The zero value is those of one agent.
type Scope uint8

const (
	ScopeAgent   Scope = iota
	ScopeSession       // each has its own
	ScopeShared        // all sessions of all agents
)

var (
	modeNames  = []string{"all", "non-main", "off"}
	scopeNames = []string{"agent", "session", "shared"}
)

func (m Mode) String() string  { return nameOf(modeNames, int(m)) }
func (s Scope) String() string { return nameOf(scopeNames, int(s)) }

func (m Mode) MarshalText() ([]byte, error)  { return []byte(m.String()), nil }
func (s Scope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (m *Mode) UnmarshalText(text []byte) error {
	i, err := valueOf(modeNames, text)
	if err == nil {
		*m = Mode(i)
	}
	return err
}

func (s *Scope) UnmarshalText(text []byte) error {
	i, err := valueOf(scopeNames, text)
	if err == nil {
		*s = Scope(i)
	}
	return err
}

type modeConfig struct {
	mode   Mode
	origin Origin
}

func (m *modeConfig) setPlace(o Origin)               { m.origin = o }
func (m *modeConfig) UnmarshalText(text []byte) error { return m.mode.UnmarshalText(text) }

type scopeConfig struct {
	scope  Scope
	origin Origin
}

func (s *scopeConfig) setPlace(o Origin)               { s.origin = o }
func (s *scopeConfig) UnmarshalText(text []byte) error { return s.scope.UnmarshalText(text) }

// workspaceAccess is an Access or none.
type workspaceAccess struct {
	access Access
	origin Origin
}

func (w *workspaceAccess) setPlace(o Origin) { w.origin = o }

func (w *workspaceAccess) UnmarshalText(text []byte) error {
	i, err := valueOf(accessNames, text)
	if err == nil {
		w.access = Access(i)
	}
	return err
}

// pruneConfig says when a sandbox workspace is removed that nobody uses.
type pruneConfig struct {
	IdleHours  *pruneAfter `json:"idleHours,omitempty" jsonschema:"hours after its last use; 0 is never; if nobody says, 24"`
	MaxAgeDays *pruneAfter `json:"maxAgeDays,omitempty" jsonschema:"days after it was made; 0 is never; if nobody says, 7"`
}

// pruneAfter is a number of hours or days.
type pruneAfter int

// maxPrune is a hundred years of days.
const maxPrune = 36500

func (n *pruneAfter) check() error {
	if *n > maxPrune {
		return fmt.Errorf("at most %d; 0 is never", maxPrune)
	}
	return nil
}

// Prune says when a sandbox workspace that nobody uses is removed: so long after its last use, or
// after it was made. 0 is never.
type Prune struct{ Idle, Age time.Duration }

const (
	defaultIdleHours  = 24
	defaultMaxAgeDays = 7
)

func (c pruneConfig) prune() Prune {
	p := Prune{defaultIdleHours * time.Hour, defaultMaxAgeDays * 24 * time.Hour}
	if c.IdleHours != nil {
		p.Idle = time.Duration(*c.IdleHours) * time.Hour
	}
	if c.MaxAgeDays != nil {
		p.Age = time.Duration(*c.MaxAgeDays) * 24 * time.Hour
	}
	return p
}

// Prune is what the configuration says for an agent's sandbox workspaces; of no agent, for those
// that all share.
func (c *Config) Prune(agent string) Prune {
	if agent == "" {
		all, _ := c.layered(agent)
		return all.Sandbox.Prune.prune()
	}
	return c.settings(agent).Sandbox.Prune.prune()
}

// Bootstraps reports whether an agent's bootstrap files are copied into sandbox workspaces.
func (c *Config) Bootstraps(agent string) bool {
	own := c.agent(agent)
	return own == nil || own.SkipBootstrap == nil || !*own.SkipBootstrap
}

// WorkspaceAccess is what the configuration lets an agent do in its workspace, and what says so.
func (c *Config) WorkspaceAccess(agent string) (Access, Origin) {
	if said := c.settings(agent).Filesystem.WorkspaceAccess; said != nil {
		return said.access, said.origin
	}
	return ReadWrite, Origin{OriginDefault, "workspaceAccess"}
}

// sessionConfig says what the keys of sessions mean.
type sessionConfig struct {
	MainKey *mainKey      `json:"mainKey,omitempty" jsonschema:"the end of the key of an agent's main session, agent:NAME:KEY; main stands for it as well; if nobody says, main"`
	Scope   *sessionScope `json:"scope,omitempty" jsonschema:"whether senders have sessions of their own (per-sender), or all one, whose key is global; if nobody says, per-sender"`
}

type mainKey string

func (k *mainKey) UnmarshalText(text []byte) error {
	*k = mainKey(strings.TrimSpace(string(text)))
	return CheckSessionKey(string(*k))
}

type sessionScope string

var sessionScopes = []string{"per-sender", "global"}

func (s *sessionScope) UnmarshalText(text []byte) error {
	*s = sessionScope(text)
	return oneOf(sessionScopes, text)
}

// maxSessionKey bounds a session's key, in bytes.
const maxSessionKey = 512

// CheckSessionKey refuses what cannot be the key of a session: it is compared, hashed and shown.
func CheckSessionKey(key string) error {
	if key == "" || len(key) > maxSessionKey || printable(key) != key && strings.Trim(printable(key), `"`) != key {
		return fmt.Errorf("session key %s: a key is 1 to %d bytes of text", shorten(key), maxSessionKey)
	}
	return nil
}

// A Session is one conversation with an agent, known by its key, and what the configuration makes
// of it.
type Session struct {
	Key   string `json:"key" jsonschema:"as it was given"`
	Agent string `json:"agent" jsonschema:"whose session it is"`
	Main  string `json:"mainKey" jsonschema:"the key of that agent's main session"`

	Mode       Mode   `json:"mode" jsonschema:"which sessions are to be sandboxed"`
	ModeOrigin Origin `json:"modeOrigin" jsonschema:"what says so"`
	Sandboxed  bool   `json:"sandboxed" jsonschema:"whether this one is, by the mode; what clai-sandbox runs for it is in any case"`

	Scope       Scope  `json:"scope" jsonschema:"what sessions share a sandbox workspace"`
	ScopeOrigin Origin `json:"scopeOrigin" jsonschema:"what says so"`
	ScopeKey    string `json:"scopeKey" jsonschema:"what is the same for those that share one"`

	own string // what tells it from the agent's other sessions
}

// Session finds out what becomes of the session with a key. An agent in the key that nobody
// configured is one with the defaults. A key without an agent is the given agent's; empty is main.
func (c *Config) Session(key, agent string) (Session, error) {
	key = strings.TrimSpace(key)
	if err := CheckSessionKey(key); err != nil {
		return Session{}, err
	}
	s := Session{Key: key, Agent: agent}
	if s.Agent == "" {
		s.Agent = DefaultAgent
	}
	named, rest, hasAgent := agentOfKey(key)
	if hasAgent {
		if c.agent(named) == nil && named != DefaultAgent {
			named = NormalizeAgent(named)
		}
		if err := CheckAgent(named); err != nil {
			return s, err
		}
		if agent != "" && agent != named {
			return s, fmt.Errorf("session %s is of agent %s, and not of %s", printable(key), printable(named), printable(agent))
		}
		s.Agent = named
	}
	settings := c.settings(s.Agent)
	main := c.mainKey()
	s.Main = "agent:" + s.Agent + ":" + main
	isMain := slices.Contains([]string{"main", main, s.Main, "agent:" + s.Agent + ":main"}, key)
	if c.globalSessions() {
		s.Main = "global"
		isMain = isMain || key == s.Main
	}
	s.ModeOrigin = Origin{OriginDefault, "sandbox.mode"}
	if said := settings.Sandbox.Mode; said != nil {
		s.Mode, s.ModeOrigin = said.mode, said.origin
	}
	s.ScopeOrigin = Origin{OriginDefault, "sandbox.scope"}
	if said := settings.Sandbox.Scope; said != nil {
		s.Scope, s.ScopeOrigin = said.scope, said.origin
	}
	s.Sandboxed = s.Mode == ModeAll || s.Mode == ModeNonMain && !isMain
	switch {
	case isMain:
		s.own = "main"
	case hasAgent:
		s.own = ":" + rest
	default:
		s.own = "." + key
	}
	s.rescope()
	return s, nil
}

// rescope says who shares a sandbox workspace with the session. The three kinds of keys cannot be
// the same.
func (s *Session) rescope() {
	switch s.Scope {
	case ScopeShared:
		s.ScopeKey = "shared"
	case ScopeSession:
		s.ScopeKey = "session:" + s.Agent + ":" + s.own
	default:
		s.ScopeKey = "agent:" + s.Agent
	}
}

// SandboxWorkspace is where the sandbox workspace of a session stands inside, and AgentWorkspace is
// a link to the agent's own, where that may be read.
const (
	SandboxWorkspace = "/workspace"
	AgentWorkspace   = "/agent"
)

// OwnsWorkspace reports whether the command works in a workspace that is its session's, and not the
// agent's: where it may not write that one, nor a copy of it.
func (p *Profile) OwnsWorkspace() bool {
	return p.Session != nil && p.WorkspaceAccess < CopyOnWrite
}

// Base is the directory that the command works in, and that a tool call's relative paths are below.
func (p *Profile) Base() string {
	if p.OwnsWorkspace() {
		return SandboxWorkspace
	}
	return p.Workspace
}

// SandboxName is the name of a sandbox workspace's directory: what it is of, to be read by people,
// and a hash of it.
func (s Session) SandboxName() string {
	slug := slugOf(s.ScopeKey)
	if len(slug) > 32 {
		slug = strings.TrimRight(slug[:32], "-.")
	}
	return fmt.Sprintf("%s-%x", slug, sha256.Sum256([]byte(s.ScopeKey)))[:len(slug)+1+16]
}

// slugOf is text in small letters, digits and "-", "." or "_".
func slugOf(text string) string {
	var b strings.Builder
	for _, c := range []byte(strings.ToLower(text)) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '.', c == '_':
			b.WriteByte(c)
		case b.Len() > 0 && b.String()[b.Len()-1] != '-':
			b.WriteByte('-')
		}
	}
	return strings.Trim(b.String(), "-.")
}

// agentOfKey takes "agent:NAME:REST" apart.
func agentOfKey(key string) (agent, rest string, ok bool) {
	kind, after, _ := strings.Cut(key, ":")
	agent, rest, ok = strings.Cut(after, ":")
	if kind != "agent" || !ok || agent == "" || rest == "" {
		return "", "", false
	}
	return agent, rest, true
}

// mainKey is the last file's that says one.
func (c *Config) mainKey() string {
	key := "main"
	for _, layer := range c.layers {
		if said := layer.Session.MainKey; said != nil {
			key = string(*said)
		}
	}
	return key
}

func (c *Config) globalSessions() bool {
	global := false
	for _, layer := range c.layers {
		if said := layer.Session.Scope; said != nil {
			global = *said == "global"
		}
	}
	return global
}

// NormalizeAgent makes the name of an agent out of what a person calls it: small letters, digits,
// "_" and "-", at most 64, and main where nothing of it is left.
func NormalizeAgent(name string) string {
	var b strings.Builder
	for _, c := range []byte(strings.ToLower(strings.TrimSpace(name))) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_':
			b.WriteByte(c)
		case c == '-', b.Len() > 0 && b.String()[b.Len()-1] != '-':
			b.WriteByte('-')
		}
	}
	id := strings.Trim(b.String(), "-")
	if id = strings.TrimRight(id[:min(len(id), 64)], "-"); id == "" {
		return DefaultAgent
	}
	return id
}

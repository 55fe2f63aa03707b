package profile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

//go:generate go test -run TestConfigSchema -update

// A Config is what the configuration files say, the least specific first. The zero value is no
// configuration.
type Config struct {
	layers []configFile
	places []string // of this program's files, besides its directories; see Directories.Places
	links  []string
}

// configFile is one file: config.schema.json describes it.
type configFile struct {
	Schema   string                 `json:"$schema,omitempty" jsonschema:"for editors; not read"`
	Defaults agentConfig            `json:"defaults,omitzero" jsonschema:"for every agent that does not say otherwise"`
	Agents   map[string]agentConfig `json:"agents,omitempty" jsonschema:"by the agent's name, as in --agent"`
	Session  sessionConfig          `json:"session,omitzero" jsonschema:"what the keys of sessions mean, as in --session"`
	Enforced *narrowing[hiddenPath] `json:"enforced,omitempty" jsonschema:"what nobody can loosen: in the administrator's file alone"`

	file string
}

type agentConfig struct {
	Workspace     *workspacePath  `json:"workspace,omitempty" jsonschema:"the agent's workspace where the command line names none: absolute, or below the home directory as ~/x; if nobody says, the working directory"`
	SkipBootstrap *bool           `json:"skipBootstrap,omitempty" jsonschema:"whether sandbox workspaces are made without the agent's bootstrap files (AGENTS.md, SOUL.md, …), and agents without an IDENTITY.md; if nobody says, false"`
	Execution     executionConfig `json:"execution,omitzero" jsonschema:"how the agent's commands run"`
}

type executionConfig struct {
	Filesystem  filesystemConfig  `json:"filesystem,omitzero" jsonschema:"what they see"`
	Sandbox     sandboxConfig     `json:"sandbox,omitzero" jsonschema:"what they reach"`
	Environment environmentConfig `json:"environment,omitzero" jsonschema:"their variables, besides the few that every command gets"`
	Limits      limitsConfig      `json:"limits,omitzero" jsonschema:"what ends them"`
	Tools       toolsConfig       `json:"tools,omitzero" jsonschema:"which tools the agent is offered"`
	HostExec    hostExecConfig    `json:"hostexec,omitzero" jsonschema:"what a server of requests to run commands outside answers by itself"`
	MCP         mcpConfig         `json:"mcp,omitzero" jsonschema:"how an agent's harness is served"`
	Outside     outsideConfig     `json:"outside,omitzero" jsonschema:"where commands run that leave the sandbox, and which may"`
	Changes     changesConfig     `json:"changes,omitzero" jsonschema:"which changes that were made copy_on_write need a person"`
}

type mcpConfig struct {
	TrustElicitation *bool `json:"trustElicitation,omitempty" jsonschema:"whether the client's own prompt may answer what the agent asks for; if nobody says, false: a client could answer by itself"`
}

type filesystemConfig struct {
	ExtraPaths      *[]extraPath     `json:"extraPaths,omitempty" jsonschema:"what the agent sees besides the system and its workspace; where nobody gives a list, the home directory, read_only"`
	WorkspaceAccess *workspaceAccess `json:"workspaceAccess,omitempty" jsonschema:"what the agent may do in its workspace; with copy_on_write its changes are kept apart; if nobody says, read_write"`
	Home            *homeConfig      `json:"home,omitempty" jsonschema:"what stands at the home directory: readable is the caller's own, private one of the agent's own that lasts, ephemeral an empty one for each run; if nobody says, readable where extraPaths are not given or show it, else private"`
	Caches          *Caches          `json:"caches,omitempty" jsonschema:"what becomes of the caches of tools in a readable home: written copy_on_write, private to the agent, off (read-only), or read_write; if nobody says, copy_on_write"`

	HiddenPaths *[]hiddenPath `json:"hiddenPaths,omitempty" jsonschema:"what no grant above it shows, besides the usual credential stores in the home directory, which are always hidden; absolute, or below the home directory as ~/x"`

	ProtectedPaths   *[]protectedName `json:"protectedPaths,omitempty" jsonschema:"what is read-only in writable directories, besides the usual: names as they stand there"`
	UnprotectedPaths *[]protectedName `json:"unprotectedPaths,omitempty" jsonschema:"what of the usual protected paths is writable after all: names as they stand in a writable directory"`
	ProtectMode      *ProtectMode     `json:"protectMode,omitempty" jsonschema:"what becomes of a protected name that a command makes: watch sets it aside as soon as it is there; strict keeps all that the command writes until it has ended, so that the name is never there; if nobody says, watch"`
}

type extraPath struct {
	Path     typedPath `json:"path" jsonschema:"absolute, or below the home directory as ~/x"`
	Access   Access    `json:"access" jsonschema:"what the agent may do there"`
	Explicit bool      `json:"explicit,omitempty" jsonschema:"whether hidden paths below it are shown, too; if nobody says, false"`
	origin   Origin
}

func (e *extraPath) setPlace(o Origin) { e.origin = o }

// hiddenPath is one that ExpandPath takes.
type hiddenPath struct {
	path   string
	origin Origin
}

func (h *hiddenPath) setPlace(o Origin) { h.origin = o }

func (h *hiddenPath) UnmarshalText(text []byte) error {
	h.path = string(text)
	if err := checkNoPattern(h.path); err != nil {
		return err
	}
	_, err := ExpandPath(h.path, "/")
	return withHint(err)
}

// protectedName is one that CheckProtectedName takes.
type protectedName struct {
	name   string
	origin Origin
}

func (n *protectedName) setPlace(o Origin) { n.origin = o }

func (n *protectedName) UnmarshalText(text []byte) error {
	n.name = string(text)
	return CheckProtectedName(n.name)
}

func withHint(err error) error {
	var refused *PathError
	if errors.As(err, &refused) && refused.Why == isRelative {
		refused.Hint = "write the whole path, or ~/… for one below the home directory"
	}
	return err
}

// typedPath is one that ExpandPath takes and that may be granted. What "~" turns it into is known
// later: Resolve looks again.
type typedPath string

func (p *typedPath) UnmarshalText(text []byte) error {
	path, err := ExpandPath(string(text), "/")
	if why, never := NeverGrantable(path); err == nil && never && text[0] != '~' {
		err = errors.New(why)
	}
	*p = typedPath(text)
	return withHint(err)
}

// workspacePath is a typedPath that knows where it was written.
type workspacePath struct {
	path   typedPath
	origin Origin
}

func (w *workspacePath) setPlace(o Origin)               { w.origin = o }
func (w *workspacePath) UnmarshalText(text []byte) error { return w.path.UnmarshalText(text) }

type sandboxConfig struct {
	Mode             *modeConfig      `json:"mode,omitempty" jsonschema:"which sessions of an agent whoever sends its commands has sandboxed: all, non-main (all but its main session) or off; if nobody says, all"`
	Scope            *scopeConfig     `json:"scope,omitempty" jsonschema:"what sessions share a sandbox workspace: those of one agent, none (session), or all of all agents (shared); if nobody says, agent"`
	Prune            pruneConfig      `json:"prune,omitzero" jsonschema:"when a sandbox workspace that nobody uses is removed"`
	Network          *Network         `json:"network,omitempty" jsonschema:"how much of the network the command reaches: enabled shares the host's, filtered reaches allowedDomains alone; if nobody says, filtered where there is a list of domains, else enabled"`
	AllowedDomains   *[]DomainRule    `json:"allowedDomains,omitempty" jsonschema:"what a filtered network reaches: a name, *.name for all below it, * for every name, an address or a range of addresses; each for one port with :port behind it"`
	DeniedDomains    *[]DomainRule    `json:"deniedDomains,omitempty" jsonschema:"what a filtered network does not reach, whatever allowedDomains says"`
	UpstreamProxy    *upstreamChoice  `json:"upstreamProxy,omitempty" jsonschema:"through which proxy a filtered network connects: http://[USER:PASSWORD@]HOST:PORT, environment for the one of HTTPS_PROXY, HTTP_PROXY and NO_PROXY, or none; no command sees it; if nobody says, none"`
	UpstreamDirect   *[]DomainRule    `json:"upstreamDirect,omitempty" jsonschema:"what is connected to without that proxy: rules as in allowedDomains"`
	Publish          *[]PublishedPort `json:"publish,omitempty" jsonschema:"ports of a disabled or filtered network that are reached at the host's loopback interface: 3000, or 8080:3000 for the host's port 8080"`
	SessionBus       *SessionBus      `json:"sessionBus,omitempty" jsonschema:"how much of the D-Bus session bus the command reaches; if nobody says, filtered; allow hands over the whole bus, which starts programs outside the sandbox"`
	SessionBusNames  *[]busName       `json:"sessionBusNames,omitempty" jsonschema:"the names on the session bus that a filtered one lets through, in place of the usual ones; the usual ones are let through in part, any other with all that its owner does; one that ends in .* stands for all below it"`
	SSHKeys          *[]sshKeyConfig  `json:"sshKeys,omitempty" jsonschema:"keys of the caller's ssh-agent that the command may use, each to sign in where it says; if nobody says, none"`
	Tools            toolsConfig      `json:"tools,omitzero" jsonschema:"which tools an agent in the sandbox is offered, on top of tools"`
	Image            *imageChoice     `json:"image,omitempty" jsonschema:"an image that stands in place of the host's system, as clai-sandbox image list names it, read-only, or with :cow behind its name copy_on_write; if nobody says, or with host, the host's own"`
	Devices          *[]deviceName    `json:"devices,omitempty" jsonschema:"devices of the host that the command has: gpu for all that compute for graphics, kvm, or a path as /dev/fuse; if nobody says, none; most are refused"`
	NestedNamespaces *bool            `json:"nestedNamespaces,omitempty" jsonschema:"whether the command may make user namespaces, as a browser does; if nobody says, false"`
}

// busName is a well-known name of the D-Bus Specification, or one with ".*" behind it for all
// below. One element is too few: below "org" is nearly everything, also what starts programs
// outside the sandbox.
type busName string

func (n *busName) UnmarshalText(text []byte) error {
	*n = busName(text)
	elements := strings.Split(strings.TrimSuffix(string(text), ".*"), ".")
	ok := len(elements) > 1 && len(text) <= 255
	for _, element := range elements {
		ok = ok && element != "" && (element[0] < '0' || element[0] > '9')
		for _, c := range []byte(element) {
			ok = ok && isWordByte(c)
		}
	}
	if !ok {
		return fmt.Errorf("%s is not a name on the bus, as org.example.Name or org.example.*", shorten(string(text)))
	}
	return nil
}

// isWordByte reports whether c is one of A-Z a-z 0-9 _ -
func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

type environmentConfig struct {
	Pass *[]passedVariable      `json:"pass,omitempty" jsonschema:"names of variables that the command gets from the caller, where it has them"`
	Set  map[string]setVariable `json:"set,omitempty" jsonschema:"variables that the command gets, with their values"`
}

type passedVariable struct {
	name   string
	origin Origin
}

func (v *passedVariable) setPlace(o Origin) { v.origin = o }

func (v *passedVariable) UnmarshalText(text []byte) error {
	v.name = string(text)
	return CheckVariable(v.name)
}

type setVariable struct {
	value  string
	origin Origin
}

func (v *setVariable) setPlace(o Origin)          { v.origin = o }
func (v *setVariable) checkKey(name string) error { return CheckVariable(name) }

func (v *setVariable) UnmarshalText(text []byte) error {
	v.value = string(text)
	return checkVariableValue(v.value)
}

type limitsConfig struct {
	TimeoutSeconds *int `json:"timeoutSeconds,omitempty" jsonschema:"seconds until the command is ended; 0, as if nobody says, is no limit"`

	Memory      *memoryLimit     `json:"memory,omitempty" jsonschema:"memory, as 2GiB; 0, as if nobody says, is no limit"`
	Processes   *processLimit    `json:"processes,omitempty" jsonschema:"processes and threads at once; 0, as if nobody says, is no limit"`
	CPUSeconds  *cpuLimit        `json:"cpuSeconds,omitempty" jsonschema:"seconds that one process may compute; 0, as if nobody says, is no limit"`
	CPUPercent  *cpuPercentLimit `json:"cpuPercent,omitempty" jsonschema:"how much of a processor the command may take at a time: 50 is half of one, 200 two; it is slowed down, and not ended; 0, as if nobody says, is no limit"`
	FileSize    *fileSizeLimit   `json:"fileSize,omitempty" jsonschema:"how large a file may be written, as 1GiB; 0, as if nobody says, is no limit"`
	OpenFiles   *openFilesLimit  `json:"openFiles,omitempty" jsonschema:"files that one process may have open; 0, as if nobody says, is no limit"`
	OutputBytes *outputLimit     `json:"outputBytes,omitempty" jsonschema:"what standard output and standard error may come to together, as 16MiB; 0, as if nobody says, is no limit"`
}

// configName is the name of both configuration files.
const configName = "config.json"

// Load reads the system's configuration and the user's, which lies over it. A file that is not
// there says nothing. The error is a *ConfigError.
func Load(d Directories) (*Config, error) {
	config := &Config{}
	config.places, config.links = d.Places()
	config.places = config.places[len(d.list()):]
	for _, dir := range []string{d.SystemConfig, d.Config} {
		if dir == "" {
			continue
		}
		file, found, err := readConfig(filepath.Join(dir, configName))
		if err != nil {
			return nil, err
		}
		if found {
			if file.Enforced != nil && dir != d.SystemConfig {
				return nil, &ConfigError{File: file.file, Key: "enforced", Why: "only the administrator's file enforces anything", Hint: "take it away, or write it into " + filepath.Join(d.SystemConfig, configName)}
			}
			config.layers = append(config.layers, file)
		}
	}
	return config, nil
}

// readConfig reads one file, if it is there and only its owner can have written it.
func readConfig(path string) (configFile, bool, error) {
	var c configFile
	found, err := ReadOwnFile(path, &c)
	c.file = path
	return c, found, err
}

// ReadOwnFile reads a file of the configuration's kind, if it is there and only its owner can have
// written it. The error is a *ConfigError.
func ReadOwnFile(path string, into any) (found bool, err error) {
	refuse := func(why string) (bool, error) { return false, &ConfigError{File: path, Why: why} }
	// A named pipe must not make us wait, nor a terminal become ours.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); err == nil { // as where a disk is not mounted: what it forbids would be allowed
			return refuse("a symbolic link that leads nowhere")
		}
		return false, nil
	}
	if err != nil {
		return refuse(withoutPath(err))
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return refuse(withoutPath(err))
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	switch {
	case !info.Mode().IsRegular():
		return refuse("not a regular file")
	case owner != 0 && owner != os.Getuid():
		return refuse(fmt.Sprintf("belongs to user %d, who could grant anything with it; make it yours: sudo chown %d %s", owner, os.Getuid(), printable(path)))
	case info.Mode().Perm()&0o022 != 0:
		return refuse(fmt.Sprintf("others can write it, and grant anything with it; take that away: chmod go-w %s", printable(path)))
	}
	text, err := io.ReadAll(io.LimitReader(file, maxConfigSize+1))
	if err != nil {
		return refuse(withoutPath(err))
	}
	err = DecodeConfig(path, text, into)
	return err == nil, err
}

func (*agentConfig) checkKey(id string) error { return CheckAgent(id) }

// CheckAgent refuses a name that cannot be an agent's: it stands in paths and on terminals.
func CheckAgent(id string) error {
	ok := id != "" && len(id) <= 64 && id != "." && id != ".."
	for _, c := range []byte(id) {
		ok = ok && (isWordByte(c) || c == '.')
	}
	if !ok {
		return fmt.Errorf("agent %s: a name is 1 to 64 of A-Z a-z 0-9 . _ -", shorten(id))
	}
	if id == "default" {
		return fmt.Errorf("no agent is called default: in the approvals file that stands for %s", DefaultAgent)
	}
	return nil
}

// settings joins the layers for one agent: each setting from the most specific place that has it.
// The user's file lies over the system's as a whole. A list is taken as it stands there, not added
// to.
func (c *Config) settings(agent string) executionConfig {
	var joined executionConfig
	for _, layer := range c.layers {
		joined.overlay(layer.Defaults.Execution)
		joined.overlay(layer.Agents[agent].Execution)
	}
	return joined
}

// agent is what is said of one agent besides how its commands run, the last file's over the
// others'; nil if no file has it.
func (c *Config) agent(name string) *agentConfig {
	var joined agentConfig
	found := false
	for _, layer := range c.layers {
		own, is := layer.Agents[name]
		found = found || is
		for _, said := range []agentConfig{layer.Defaults, own} {
			overlay(&joined.Workspace, said.Workspace)
			overlay(&joined.SkipBootstrap, said.SkipBootstrap)
		}
	}
	if !found && name != DefaultAgent {
		return nil
	}
	return &joined
}

func (e *executionConfig) overlay(over executionConfig) {
	overlay(&e.Filesystem.ExtraPaths, over.Filesystem.ExtraPaths)
	overlay(&e.Filesystem.WorkspaceAccess, over.Filesystem.WorkspaceAccess)
	overlay(&e.Filesystem.Home, over.Filesystem.Home)
	overlay(&e.Filesystem.Caches, over.Filesystem.Caches)
	overlay(&e.Filesystem.ProtectMode, over.Filesystem.ProtectMode)
	overlay(&e.Filesystem.HiddenPaths, over.Filesystem.HiddenPaths)
	overlay(&e.Filesystem.ProtectedPaths, over.Filesystem.ProtectedPaths)
	overlay(&e.Filesystem.UnprotectedPaths, over.Filesystem.UnprotectedPaths)
	overlay(&e.Sandbox.Mode, over.Sandbox.Mode)
	overlay(&e.Sandbox.Scope, over.Sandbox.Scope)
	overlay(&e.Sandbox.Prune.IdleHours, over.Sandbox.Prune.IdleHours)
	overlay(&e.Sandbox.Prune.MaxAgeDays, over.Sandbox.Prune.MaxAgeDays)
	overlay(&e.Sandbox.Network, over.Sandbox.Network)
	overlay(&e.Sandbox.AllowedDomains, over.Sandbox.AllowedDomains)
	overlay(&e.Sandbox.DeniedDomains, over.Sandbox.DeniedDomains)
	overlay(&e.Sandbox.UpstreamProxy, over.Sandbox.UpstreamProxy)
	overlay(&e.Sandbox.UpstreamDirect, over.Sandbox.UpstreamDirect)
	overlay(&e.Sandbox.Publish, over.Sandbox.Publish)
	overlay(&e.Sandbox.SessionBus, over.Sandbox.SessionBus)
	overlay(&e.Sandbox.SessionBusNames, over.Sandbox.SessionBusNames)
	overlay(&e.Sandbox.SSHKeys, over.Sandbox.SSHKeys)
	overlay(&e.Sandbox.Image, over.Sandbox.Image)
	overlay(&e.Sandbox.Devices, over.Sandbox.Devices)
	overlay(&e.Sandbox.NestedNamespaces, over.Sandbox.NestedNamespaces)
	overlay(&e.MCP.TrustElicitation, over.MCP.TrustElicitation)
	overlay(&e.HostExec.AutoApprove, over.HostExec.AutoApprove)
	overlay(&e.HostExec.ManualApprove, over.HostExec.ManualApprove)
	overlay(&e.HostExec.ObeysWorkspace, over.HostExec.ObeysWorkspace)
	e.Tools.overlay(over.Tools)
	e.Sandbox.Tools.overlay(over.Sandbox.Tools)
	overlay(&e.Environment.Pass, over.Environment.Pass)
	e.Limits.overlay(over.Limits)
	e.Outside.overlay(over.Outside)
	e.Changes.overlay(over.Changes)
	for name, variable := range over.Environment.Set {
		if e.Environment.Set == nil {
			e.Environment.Set = map[string]setVariable{}
		}
		e.Environment.Set[name] = variable
	}
}

func (l *limitsConfig) overlay(over limitsConfig) {
	overlay(&l.TimeoutSeconds, over.TimeoutSeconds)
	overlay(&l.Memory, over.Memory)
	overlay(&l.Processes, over.Processes)
	overlay(&l.CPUSeconds, over.CPUSeconds)
	overlay(&l.CPUPercent, over.CPUPercent)
	overlay(&l.FileSize, over.FileSize)
	overlay(&l.OpenFiles, over.OpenFiles)
	overlay(&l.OutputBytes, over.OutputBytes)
}

func overlay[T any](setting **T, over *T) {
	if over != nil {
		*setting = over
	}
}

// withoutPath is the errno of a file error; its path stands in the message already.
func withoutPath(err error) string {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err.Error()
	}
	return err.Error()
}

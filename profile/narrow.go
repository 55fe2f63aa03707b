package profile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// ProjectName is the file of a workspace, or of a directory above it, that narrows what the
// sandboxes of whoever works there have. Commands may change it as little as what others execute.
const ProjectName = ".clai-sandbox.json"

const maxProjectSize = 64 << 10

// narrowing is what can only take away: each key is a bound, or adds to what is hidden, protected
// or denied. So a file with no other keys cannot give anything, whoever wrote it.
type narrowing[Hidden any] struct {
	Schema     string                      `json:"$schema,omitempty" jsonschema:"for editors; not read"`
	Filesystem narrowingFilesystem[Hidden] `json:"filesystem,omitzero" jsonschema:"what commands do not see or change"`
	Sandbox    narrowingSandbox            `json:"sandbox,omitzero" jsonschema:"what they reach at most"`
	Limits     limitsConfig                `json:"limits,omitzero" jsonschema:"what they take at most; a lower limit of somebody else's stands"`
}

type narrowingFilesystem[Hidden any] struct {
	HiddenPaths    *[]Hidden        `json:"hiddenPaths,omitempty" jsonschema:"what no grant shows, not even one of its own"`
	ProtectedPaths *[]protectedName `json:"protectedPaths,omitempty" jsonschema:"what is read-only in writable directories, and cannot be unprotected"`
}

type narrowingSandbox struct {
	Network          *Network      `json:"network,omitempty" jsonschema:"as much of the network as commands reach at most"`
	DeniedDomains    *[]DomainRule `json:"deniedDomains,omitempty" jsonschema:"what they do not reach; an enabled network is filtered then, and reaches all other names"`
	SessionBus       *SessionBus   `json:"sessionBus,omitempty" jsonschema:"as much of the session bus as they reach at most"`
	SSHAgent         *onlyFalse    `json:"sshAgent,omitempty" jsonschema:"false: no command uses a key of the caller's ssh-agent"`
	Devices          *[]deviceName `json:"devices,omitempty" jsonschema:"the devices of the host that commands have at most, as devices of an agent names them; an empty list: none"`
	NestedNamespaces *onlyFalse    `json:"nestedNamespaces,omitempty" jsonschema:"false: no command makes user namespaces"`
}

// onlyFalse is a switch that only switches off.
type onlyFalse bool

func (b *onlyFalse) check() error {
	if *b {
		return errors.New("must be false: nothing is given here")
	}
	return nil
}

// A Project is what a workspace's own file takes away, and those of the directories above.
type Project struct {
	file  string
	above *Project
	narrowing[protectedName]
}

// ReadProject reads the file of a workspace, and those of the user's own above it: a command can
// make a repository of a part of a project, and a person can begin in one. It is nil if there is
// none. Anybody may have written the workspace's own. The error is a *ConfigError.
func ReadProject(workspace string) (project *Project, err error) {
	for last, dir := &project, workspace; ; dir = filepath.Dir(dir) {
		if dir == workspace || isOwn(filepath.Join(dir, ProjectName)) {
			if *last, err = readProject(dir); err != nil {
				return nil, err
			}
			if *last != nil {
				last = &(*last).above
			}
		}
		if dir == filepath.Dir(dir) {
			return project, nil
		}
	}
}

// isOwn reports whether something belongs to this user: in a directory like /tmp it could be
// anybody's.
func isOwn(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && int(info.Sys().(*syscall.Stat_t).Uid) == os.Getuid()
}

func readProject(dir string) (*Project, error) {
	path := filepath.Join(dir, ProjectName)
	refuse := func(why string) (*Project, error) {
		return nil, &ConfigError{File: path, Why: why, Hint: "--no-project-file leaves it out"}
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		if _, none := os.Lstat(path); none != nil {
			return nil, nil // or the workspace is none, as whoever shows it says
		}
	}
	switch {
	case errors.Is(err, syscall.ELOOP):
		return refuse("a symbolic link")
	case err != nil:
		return refuse(withoutPath(err))
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return refuse("not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(file, maxProjectSize+1))
	if err != nil {
		return refuse(withoutPath(err))
	}
	if len(text) > maxProjectSize {
		return refuse(fmt.Sprintf("larger than %d bytes", maxProjectSize))
	}
	p := &Project{file: path}
	if err := DecodeConfig(path, text, &p.narrowing); err != nil {
		if mistake := new(ConfigError); errors.As(err, &mistake) && mistake.Hint == "" {
			mistake.Hint = "a project's file can only narrow what its sandboxes have; --no-project-file leaves it out"
		}
		return nil, err
	}
	return p, nil
}

// A Narrowing is something that the administrator's file, or the workspace's own, took away or
// bounded. No other file, option or grant gives it back.
type Narrowing struct {
	Key    string `json:"key" jsonschema:"as in the file that says so"`
	To     string `json:"to" jsonschema:"what it is now"`
	Origin Origin `json:"origin" jsonschema:"which file says so"`
}

// narrow takes away what the administrator enforces, and then what the workspace's own file does
// not want. It comes when all else is decided.
func (p *Profile) narrow(config *Config, project *Project) error {
	for _, layer := range config.layers {
		if layer.Enforced == nil {
			continue
		}
		e, origin := layer.Enforced, Origin{OriginConfig, layer.file + ": enforced"}
		var hidden []string
		if e.Filesystem.HiddenPaths != nil {
			for _, h := range *e.Filesystem.HiddenPaths {
				path, err := ExpandPath(h.path, p.Home)
				if err != nil {
					return fmt.Errorf("%s: %w", origin.Source, err)
				}
				hidden = append(hidden, path)
			}
		}
		if err := p.narrowTo(hidden, e.Filesystem.ProtectedPaths, e.Sandbox, e.Limits, origin); err != nil {
			return err
		}
	}
	for ; project != nil; project = project.above {
		var hidden []string
		if project.Filesystem.HiddenPaths != nil {
			for _, h := range *project.Filesystem.HiddenPaths {
				hidden = append(hidden, filepath.Join(filepath.Dir(project.file), h.name))
			}
		}
		if err := p.narrowTo(hidden, project.Filesystem.ProtectedPaths, project.Sandbox, project.Limits, Origin{OriginConfig, project.file}); err != nil {
			return err
		}
	}
	return nil
}

// reach orders networks by how much of it commands reach.
func (n Network) reach() int {
	return slices.Index([]Network{NetworkDisabled, NetworkFiltered, NetworkEnabled}, n)
}

func (p *Profile) narrowTo(hidden []string, protected *[]protectedName, sandbox narrowingSandbox, limits limitsConfig, origin Origin) error {
	narrowed := func(key, to string) { p.Narrowed = append(p.Narrowed, Narrowing{key, to, origin}) }
	for _, path := range hidden {
		if path == "/" || len(p.Hidden) == MaxGrants {
			return fmt.Errorf("%s: the whole file system, or more than %d paths, cannot be hidden", origin.Source, MaxGrants)
		}
		p.Hidden = append(p.Hidden, HiddenPath{Path: path, Enforced: true, Origin: origin})
		narrowed("filesystem.hiddenPaths", path)
	}
	if protected != nil {
		for _, n := range *protected {
			name := filepath.Clean(n.name)
			p.Protected = append(p.Protected, ProtectedPath{name, false, origin})
			p.Unprotected = slices.DeleteFunc(p.Unprotected, func(other string) bool { return other == name })
			narrowed("filesystem.protectedPaths", name)
		}
		if len(p.Protected) > maxProtected {
			return fmt.Errorf("%s: more than %d protected paths", origin.Source, maxProtected)
		}
	}
	if n := sandbox.Network; n != nil && n.reach() < p.Network.reach() {
		p.Network = *n
		narrowed("sandbox.network", n.String())
	}
	if denied := sandbox.DeniedDomains; denied != nil && len(*denied) > 0 && p.Network != NetworkDisabled {
		if p.Network == NetworkEnabled {
			all, err := ParseDomainRule("*")
			if err != nil {
				return err
			}
			all.Origin = origin
			p.Network, p.Domains.Allowed = NetworkFiltered, []DomainRule{all}
			narrowed("sandbox.network", p.Network.String())
		}
		for _, rule := range *denied {
			p.Domains.Denied = append(p.Domains.Denied, rule)
			narrowed("sandbox.deniedDomains", rule.String())
		}
		if len(p.Domains.Denied) > MaxDomains {
			return fmt.Errorf("%s: more than %d domains", origin.Source, MaxDomains)
		}
	}
	if b := sandbox.SessionBus; b != nil && *b < p.SessionBus {
		p.SessionBus = *b
		narrowed("sandbox.sessionBus", b.String())
	}
	if sandbox.SSHAgent != nil && len(p.SSHKeys) > 0 {
		p.SSHKeys = nil
		narrowed("sandbox.sshAgent", "false")
	}
	if d := sandbox.Devices; d != nil && p.narrowDevices(*d) {
		narrowed("sandbox.devices", deviceList(p.Devices))
	}
	if sandbox.NestedNamespaces != nil && p.NestedNamespaces {
		p.NestedNamespaces = false
		narrowed("sandbox.nestedNamespaces", "false")
	}
	var bound Profile
	if err := bound.resolveLimits(limits, Request{}); err != nil {
		return fmt.Errorf("%s: %w", origin.Source, err)
	}
	if least := bound.Limits.Timeout; least > 0 && (p.Limits.Timeout == 0 || p.Limits.Timeout > least) {
		p.Limits.Timeout = least
		narrowed("limits.timeoutSeconds", fmt.Sprint(int64(least/time.Second)))
	}
	for l := range limitCount {
		if least := bound.Limits.Of(l); least > 0 && (p.Limits.Of(l) == 0 || p.Limits.Of(l) > least) {
			p.Limits.Amounts[l] = least
			narrowed("limits."+l.String(), l.Amount(least))
		}
	}
	return nil
}

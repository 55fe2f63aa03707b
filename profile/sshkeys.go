package profile

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// An SSHKey is a key of the caller's ssh-agent, and what a command may have it sign.
type SSHKey struct {
	Name string // as a person wrote it
	// File is that of the public half, absolute; or there is a Fingerprint, as ssh-add -l prints
	// it.
	File, Fingerprint string
	Hosts             []SSHHost // where it signs in without a question
	SignCommits       bool
	Unbound           bool // it signs in wherever, also for programs that do not say where
	Origin            Origin
}

// An SSHHost is where a key may sign in.
type SSHHost struct {
	User string `json:"user,omitempty"` // empty: anybody
	Name string `json:"name"`           // lower case; or an address
	Port int    `json:"port,omitempty"` // 0: 22
}

func (h SSHHost) String() string {
	text := h.Name
	if h.Port != 0 {
		text = "[" + text + "]:" + strconv.Itoa(h.Port)
	}
	if h.User != "" {
		text = h.User + "@" + text
	}
	return text
}

const (
	maxSSHKeys  = 50
	maxSSHHosts = 100 // of one key
)

// ParseSSHHost reads [USER@]HOST[:PORT], or with an address of version 6 [USER@][HOST]:PORT.
func ParseSSHHost(text string) (SSHHost, error) {
	var h SSHHost
	refuse := func() (SSHHost, error) {
		return SSHHost{}, fmt.Errorf("%s is not a host, as github.com, git@github.com or git@example.org:2222", shorten(text))
	}
	rest := text
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		h.User, rest = rest[:at], rest[at+1:]
		if h.User == "" || len(h.User) > 64 || strings.ContainsFunc(h.User, func(r rune) bool { return r <= ' ' || r > '~' || r == '@' }) {
			return refuse()
		}
	}
	host, port := rest, ""
	if inner, behind, bracketed := strings.Cut(strings.TrimPrefix(rest, "["), "]"); strings.HasPrefix(rest, "[") && bracketed {
		host, port = inner, strings.TrimPrefix(behind, ":")
		if behind != "" && (port == "" || behind[0] != ':') {
			return refuse()
		}
	} else if strings.Count(rest, ":") == 1 {
		if host, port, _ = strings.Cut(rest, ":"); port == "" {
			return refuse()
		}
	}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return refuse()
		}
		if h.Port = int(n); n == 22 {
			h.Port = 0
		}
	}
	h.Name = strings.ToLower(host)
	if _, err := netip.ParseAddr(h.Name); err == nil {
		return h, nil
	}
	ok := h.Name != "" && len(h.Name) <= 253 && h.Name[0] != '-' && h.Name[0] != '.'
	for _, c := range []byte(h.Name) {
		ok = ok && (isWordByte(c) || c == '.')
	}
	if !ok {
		return refuse()
	}
	return h, nil
}

// parseSSHKey reads how a person names a key: its fingerprint, the file of its public half or the
// one without .pub beside it, or the name of such a file in ~/.ssh.
func parseSSHKey(text, home string, expand func(string) (string, error)) (SSHKey, error) {
	k := SSHKey{Name: text}
	if sum, is := strings.CutPrefix(text, "SHA256:"); is {
		if raw, err := base64.RawStdEncoding.DecodeString(sum); err != nil || len(raw) != 32 {
			return k, fmt.Errorf("%s is not a key's fingerprint, as ssh-add -l prints it", shorten(text))
		}
		k.Fingerprint = text
		return k, nil
	}
	var err error
	if strings.ContainsAny(text, "/~") {
		k.File, err = expand(text)
	} else if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
		err = fmt.Errorf("%s is not a key: name a file of ~/.ssh, such as id_ed25519, or a fingerprint, as ssh-add -l prints it", shorten(text))
	} else {
		k.File = filepath.Join(home, ".ssh", text)
	}
	if err == nil && filepath.Ext(k.File) != ".pub" {
		k.File += ".pub"
	}
	return k, err
}

// resolveSSHKeys lists the keys of the caller's agent that the command may use.
func (p *Profile) resolveSSHKeys(settings executionConfig, caller Caller, r Request) error {
	p.SSHAgentSocket = caller.variable("SSH_AUTH_SOCK")
	if list := settings.Sandbox.SSHKeys; list != nil {
		for _, c := range *list {
			k, err := parseSSHKey(string(c.Key), p.Home, func(path string) (string, error) { return ExpandPath(path, p.Home) })
			if err != nil {
				return fmt.Errorf("%s: %w", c.origin.Source, err)
			}
			k.SignCommits, k.Unbound, k.Origin = c.SignCommits, c.Unbound, c.origin
			for _, h := range c.Hosts {
				k.Hosts = append(k.Hosts, SSHHost(h))
			}
			p.addSSHKey(k)
		}
	}
	typed := func(option, text, key string, set func(*SSHKey) error) error {
		k, err := parseSSHKey(key, p.Home, func(path string) (string, error) { return TypedPath(path, caller.WorkingDirectory, p.Home) })
		if err == nil {
			err = set(&k)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", option, err)
		}
		k.Origin = Origin{OriginFlag, option + " " + printable(text)}
		p.addSSHKey(k)
		return nil
	}
	for _, text := range r.SSHAgent {
		host, key, named := strings.Cut(text, "=")
		if !named {
			return fmt.Errorf("--ssh-agent %s: say which host it is for, as --ssh-agent git@github.com=%[1]s", shorten(text))
		}
		err := typed("--ssh-agent", text, key, func(k *SSHKey) error {
			h, err := ParseSSHHost(host)
			k.Hosts = []SSHHost{h}
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, text := range r.SignCommits {
		if err := typed("--sign-commits", text, text, func(k *SSHKey) error { k.SignCommits = true; return nil }); err != nil {
			return err
		}
	}
	if len(p.SSHKeys) > maxSSHKeys {
		return fmt.Errorf("more than %d keys", maxSSHKeys)
	}
	for _, k := range p.SSHKeys {
		if len(k.Hosts) > maxSSHHosts {
			return fmt.Errorf("%s: more than %d hosts of one key", k.Origin.Source, maxSSHHosts)
		}
	}
	return nil
}

// addSSHKey adds to what a key may be used for, if it is there.
func (p *Profile) addSSHKey(k SSHKey) {
	for i := range p.SSHKeys {
		have := &p.SSHKeys[i]
		if have.File != k.File || have.Fingerprint != k.Fingerprint {
			continue
		}
		for _, h := range k.Hosts {
			if !slices.Contains(have.Hosts, h) {
				have.Hosts = append(have.Hosts, h)
			}
		}
		have.SignCommits, have.Unbound = have.SignCommits || k.SignCommits, have.Unbound || k.Unbound
		return
	}
	p.SSHKeys = append(p.SSHKeys, k)
}

// KeepSSHHost writes into the person's configuration that an agent's commands may sign in at a host
// with a key, beside what it says already. The key is named as a person would. It returns the
// file's path.
func KeepSSHHost(d Directories, agent, key string, host SSHHost) (string, error) {
	if err := CheckAgent(agent); err != nil {
		return "", err
	}
	was, err := ReadConfigText(d)
	if err != nil {
		return "", err
	}
	config, err := Load(d)
	if err != nil {
		return "", err
	}
	type entry struct {
		Key         string   `json:"key"`
		Hosts       []string `json:"hosts,omitempty"`
		SignCommits bool     `json:"signCommits,omitempty"`
		Unbound     bool     `json:"unbound,omitempty"`
	}
	var list []entry
	if have := config.settings(agent).Sandbox.SSHKeys; have != nil {
		for _, c := range *have {
			e := entry{Key: string(c.Key), SignCommits: c.SignCommits, Unbound: c.Unbound}
			for _, h := range c.Hosts {
				e.Hosts = append(e.Hosts, SSHHost(h).String())
			}
			list = append(list, e)
		}
	}
	at := slices.IndexFunc(list, func(e entry) bool { return e.Key == key })
	if at < 0 {
		at, list = len(list), append(list, entry{Key: key})
	}
	if !slices.Contains(list[at].Hosts, host.String()) {
		list[at].Hosts = append(list[at].Hosts, host.String())
	}
	value, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	now, err := ChangeConfig(d, was.Hash, func(text []byte) ([]byte, error) {
		return MergeConfig(was.Path, text, Nested([]string{"agents", agent, "execution", "sandbox", "sshKeys"}, value))
	})
	return now.Path, err
}

type sshKeyConfig struct {
	Key         sshKeyName      `json:"key" jsonschema:"which key of the caller's ssh-agent: a name in ~/.ssh as id_ed25519, the path of its public half, or its fingerprint as ssh-add -l prints it"`
	Hosts       []sshHostConfig `json:"hosts,omitempty" jsonschema:"where it signs in: HOST, USER@HOST, HOST:PORT; somewhere else it is refused"`
	SignCommits bool            `json:"signCommits,omitempty" jsonschema:"whether it signs git's commits and tags; only their hash is seen; if nobody says, false"`
	Unbound     bool            `json:"unbound,omitempty" jsonschema:"whether it signs in anywhere, for programs that do not say where, such as ssh before 8.9; if nobody says, false"`
	origin      Origin
}

func (c *sshKeyConfig) setPlace(o Origin) { c.origin = o }

type sshKeyName string

func (n *sshKeyName) UnmarshalText(text []byte) error {
	*n = sshKeyName(text)
	_, err := parseSSHKey(string(text), "/", func(path string) (string, error) { return ExpandPath(path, "/") })
	return withHint(err)
}

type sshHostConfig SSHHost

func (h *sshHostConfig) UnmarshalText(text []byte) error {
	host, err := ParseSSHHost(string(text))
	*h = sshHostConfig(host)
	return err
}

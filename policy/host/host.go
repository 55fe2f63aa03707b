// Package host puts together what decides on this machine: the configuration of its person, and its
// approvals file, make a policy.Policy.
//
// Whoever decides and whoever runs ask it anew for each command: what a person has changed counts
// at once.
package host

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/written"
)

// ApprovalsName is the approvals file's name below the configuration directory.
const ApprovalsName = "exec-approvals.json"

// A Host is this machine with its configuration and its approvals file, for one agent.
type Host struct {
	Agent   string
	Outside profile.Outside // all layers joined
	Store   policy.Store

	home        string
	path        string       // without the directories that a command in a sandbox could write
	written     written.List // those
	config      *profile.Config
	global, own profile.Outside
}

// Load reads the configuration for an agent; "*" and nothing are the usual one. path is the PATH of
// whoever runs the commands; where a command in a sandbox could have put a program (a workspace's
// .venv/bin), no program is looked for.
func Load(caller profile.Caller, path, agent string) (Host, error) {
	if agent == "*" {
		agent = ""
	}
	h := Host{Agent: agent, home: caller.Home}
	dirs := caller.Directories()
	if dirs.Config == "" {
		return h, errors.New("there is no configuration directory")
	}
	h.Store = policy.Store{Path: filepath.Join(dirs.Config, ApprovalsName)}
	var err error
	for _, state := range []string{dirs.State, dirs.Usual} {
		if state == "" {
			continue
		}
		list, err := written.Read(filepath.Join(state, profile.WrittenName))
		if err != nil {
			return h, err
		}
		h.written = append(h.written, list...)
	}
	h.path = h.unplanted(path)
	if h.config, err = profile.Load(dirs); err != nil {
		return h, err
	}
	h.global, h.own = h.config.OutsideLayers(agent)
	h.Outside, err = h.config.Outside(agent)
	return h, err
}

// Policy is what decides on this host, below what the layers say of session and request. A file
// that cannot be read is part of it: everything is denied then, with the reason.
func (h Host) Policy(l policy.Layers) *policy.Policy {
	l.Agent, l.Global = preference(h.own, "the configuration of agent "+h.Agent), preference(h.global, "the configuration")
	p := &policy.Policy{
		Machine:      h.machine(),
		Layers:       l,
		SafeBins:     h.safeBins(),
		InlineUnsafe: h.Outside.InlineCode,
	}
	snapshot, err := h.Store.Load()
	if err != nil {
		p.Err = err
	} else {
		p.Approvals = snapshot.Approvals
	}
	return p
}

func (h Host) machine() *policy.Machine {
	m := policy.NewMachine(h.path, h.home)
	m.Planted = h.planted
	return m
}

// maxLinks is how many symbolic links the kernel follows, too.
const maxLinks = 40

// planted reports whether a command in a sandbox could have made what a path leads to, or one of
// the links on the way.
func (h Host) planted(path string) bool { return h.plantedAt(path, written.OnDisk) }

func (h Host) plantedAt(path string, identify func(path string) (device, inode uint64)) bool {
	if len(h.written) == 0 {
		return false
	}
	at, links := "/", 0
	for rest := strings.Split(path, "/"); len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		next := filepath.Join(at, name) // ".." is taken where the links have led
		if h.written.Holds(next, identify) {
			return true
		}
		target, err := os.Readlink(next)
		if err != nil {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return true
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return false
}

// unplanted is a PATH without the directories that are no absolute paths, and without those that a
// command in a sandbox could write: what is started would look for programs there, too.
func (h Host) unplanted(path string) string {
	type object struct{ device, inode uint64 }
	known := map[string]object{} // the directories of a PATH have most of their parents in common
	identify := func(path string) (device, inode uint64) {
		o, found := known[path]
		if !found {
			o.device, o.inode = written.OnDisk(path)
			known[path] = o
		}
		return o.device, o.inode
	}
	var list []string
	for _, dir := range filepath.SplitList(path) {
		if filepath.IsAbs(dir) && !slices.Contains(list, dir) && !h.plantedAt(dir, identify) {
			list = append(list, dir)
		}
	}
	return strings.Join(list, string(filepath.ListSeparator))
}

// HostExec are the lists of a server of requests, made ready.
func (h Host) HostExec() (*policy.HostExecRules, error) { return HostExec(h.config, h.Agent) }

// ObeysWorkspace are programs that a person is asked about whatever the automatic list says.
func (h Host) ObeysWorkspace() []string { return h.config.ObeysWorkspace(h.Agent) }

// HostExec are the lists of a server of requests for an agent, made ready.
func HostExec(config *profile.Config, agent string) (*policy.HostExecRules, error) {
	global, own := config.HostExec(agent)
	return policy.NewHostExecRules(policy.HostExecLists(global), policy.HostExecLists(own))
}

// preference is one layer of the configuration.
func preference(o profile.Outside, source string) policy.Preference {
	w := policy.Preference{Node: o.Node, Source: source}
	if host, ok := policy.ParseHost(o.Host); ok {
		w.Host = &host
	} else if o.Host == policy.HostAuto.String() {
		auto := policy.HostAuto
		w.Host = &auto
	}
	if security, ok := policy.ParseSecurity(o.Security); ok {
		w.Security = &security
	}
	if ask, ok := policy.ParseAsk(o.Ask); ok {
		w.Ask = &ask
	}
	return w
}

func (h Host) safeBins() policy.SafeBins {
	s := policy.SafeBins{Names: policy.DefaultSafeBins(), Profiles: map[string]policy.SafeBinProfile{}}
	if h.Outside.SafeBins != nil {
		s.Names = h.Outside.SafeBins
	}
	for name, p := range h.Outside.SafeBinProfiles {
		greatest := p.MaxPositional
		s.Profiles[name] = policy.SafeBinProfile{MinPositional: p.MinPositional, MaxPositional: &greatest,
			AllowedValueFlags: p.AllowedValueFlags, BooleanFlags: p.BooleanFlags, DeniedFlags: p.DeniedFlags}
	}
	return s
}

// Package host puts together what decides on this machine: the configuration of its person, and its approvals file, make a policy.Policy.
//
// Whoever decides and whoever runs ask it anew for each command: what a person has changed counts at once.
package host

import (
	"errors"
	"path/filepath"

	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/profile"
)

// ApprovalsName is the approvals file's name below the configuration directory.
const ApprovalsName = "exec-approvals.json"

// A Host is this machine with its configuration and its approvals file, for one agent.
type Host struct {
	Agent   string
	Outside profile.Outside // all layers joined
	Store   policy.Store

	home        string
	path        string
	config      *profile.Config
	global, own profile.Outside
}

// Load reads the configuration for an agent; "*" and nothing are the usual one. path is the PATH of whoever runs the commands.
func Load(caller profile.Caller, path, agent string) (Host, error) {
	if agent == "*" {
		agent = ""
	}
	h := Host{Agent: agent, home: caller.Home, path: path}
	dirs := caller.Directories()
	if dirs.Config == "" {
		return h, errors.New("there is no configuration directory")
	}
	h.Store = policy.Store{Path: filepath.Join(dirs.Config, ApprovalsName)}
	var err error
	if h.config, err = profile.Load(dirs); err != nil {
		return h, err
	}
	h.global, h.own = h.config.OutsideLayers(agent)
	h.Outside, err = h.config.Outside(agent)
	return h, err
}

// Policy is what decides on this host, below what the layers say of session and request. A file that cannot be read is part of it: everything is
// denied then, with the reason.
func (h Host) Policy(l policy.Layers) *policy.Policy {
	l.Agent, l.Global = wish(h.own, "the configuration of agent "+h.Agent), wish(h.global, "the configuration")
	p := &policy.Policy{
		Machine:      policy.NewMachine(h.path, h.home),
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

// HostExec are the lists of a server of requests, made ready.
func (h Host) HostExec() (*policy.HostExecRules, error) { return HostExec(h.config, h.Agent) }

// HostExec are the lists of a server of requests for an agent, made ready.
func HostExec(config *profile.Config, agent string) (*policy.HostExecRules, error) {
	global, own := config.HostExec(agent)
	return policy.NewHostExecRules(policy.HostExecLists(global), policy.HostExecLists(own))
}

// wish is one layer of the configuration.
func wish(o profile.Outside, source string) policy.Wish {
	w := policy.Wish{Node: o.Node, Source: source}
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

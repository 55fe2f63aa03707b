package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/cmd/hosted"
	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/profile"
)

// approvalsName is the file's name below the configuration directory.
const approvalsName = "exec-approvals.json"

// A host is this machine with its configuration and its approvals file.
type host struct {
	caller  profile.Caller
	outside profile.Outside // all layers joined
	global  profile.Outside
	own     profile.Outside // the agent's
	agent   string
	store   policy.Store
}

func newHost(agent string) (host, error) {
	var h host
	var err error
	if h.caller, err = profile.CurrentCaller(); err != nil {
		return h, err
	}
	dirs := h.caller.Directories()
	if dirs.Config == "" {
		return h, errors.New("there is no configuration directory")
	}
	h.store = policy.Store{Path: filepath.Join(dirs.Config, approvalsName)}
	config, err := profile.Load(dirs)
	if err != nil {
		return h, err
	}
	if agent == "*" {
		agent = ""
	}
	h.agent = agent
	h.global, h.own = config.OutsideLayers(agent)
	h.outside, err = config.Outside(agent)
	return h, err
}

// policy is what decides on this host. A file that cannot be read is part of it: everything is denied then, with the reason.
func (h host) policy(on policy.Host) *policy.Policy {
	p := &policy.Policy{
		Machine:      policy.NewMachine(os.Getenv("PATH"), h.caller.Home),
		Layers:       policy.Layers{Session: policy.Wish{Host: &on, Source: "as asked"}, Agent: wish(h.own, "the configuration of agent "+h.agent), Global: wish(h.global, "the configuration")},
		SafeBins:     h.safeBins(),
		InlineUnsafe: h.outside.InlineCode,
	}
	snapshot, err := h.store.Load()
	if err != nil {
		p.Err = err
	} else {
		p.Approvals = snapshot.Approvals
	}
	return p
}

// wish is one layer of the configuration.
func wish(o profile.Outside, source string) policy.Wish {
	w := policy.Wish{Node: o.Node, Source: source}
	if host, ok := policy.ParseHost(o.Host); ok {
		w.Host = &host
	}
	if security, ok := policy.ParseSecurity(o.Security); ok {
		w.Security = &security
	}
	if ask, ok := policy.ParseAsk(o.Ask); ok {
		w.Ask = &ask
	}
	return w
}

func (h host) safeBins() policy.SafeBins {
	s := policy.SafeBins{Names: policy.DefaultSafeBins(), Profiles: map[string]policy.SafeBinProfile{}}
	if h.outside.SafeBins != nil {
		s.Names = h.outside.SafeBins
	}
	for name, p := range h.outside.SafeBinProfiles {
		greatest := p.MaxPositional
		s.Profiles[name] = policy.SafeBinProfile{MinPositional: p.MinPositional, MaxPositional: &greatest,
			AllowedValueFlags: p.AllowedValueFlags, BooleanFlags: p.BooleanFlags, DeniedFlags: p.DeniedFlags}
	}
	return s
}

// requestFrom is the command behind "--": one word is a line for a shell, several are words.
func requestFrom(c *cli.Context) (policy.Request, error) {
	words := c.Args().Slice()
	if len(words) == 0 {
		return policy.Request{}, &misuse{"no command given", "write it after --, for example: clai-sandbox " + typed(c) + " -- 'ls -l | wc'"}
	}
	cwd := c.String("cwd")
	if cwd == "" {
		cwd = "."
	}
	cwd, err := filepath.Abs(cwd)
	if err == nil && !c.IsSet("cwd") {
		cwd, err = filepath.EvalSymlinks(cwd) // where we are, by its real name
	}
	if err != nil {
		return policy.Request{}, err
	}
	r := policy.Request{Cwd: cwd, Agent: c.String("agent")}
	if len(words) == 1 {
		r.Command = words[0]
	} else {
		r.Argv = words
	}
	return r, nil
}

// typed is the command as people type it.
func typed(c *cli.Context) string { return strings.TrimPrefix(c.Command.HelpName, hosted.Program+" ") }

package profile

import (
	"fmt"
	"maps"
	"slices"
)

// An AgentError is the name of an agent that no configuration has. It would get the defaults, which
// are wider than what somebody wrote down for the agent that was meant.
type AgentError struct {
	Agent   string
	Nearest string // a name that is configured and looks much like it, if there is one
}

func (e *AgentError) Error() string {
	text := fmt.Sprintf("no configuration has an agent %s", printable(e.Agent))
	if e.Nearest != "" {
		text += fmt.Sprintf("; did you mean %s?", printable(e.Nearest))
	}
	return text
}

// Hint says what makes the name one.
func (e *AgentError) Hint() string {
	return fmt.Sprintf("clai-sandbox explain shows what an agent gets; a new one is written down in config.json as \"agents\": {%q: {}}", e.Agent)
}

// AgentNames are the agents that a file has, and main, in order.
func (c *Config) AgentNames() []string {
	known := map[string]bool{DefaultAgent: true}
	for _, layer := range c.layers {
		for name := range layer.Agents {
			known[name] = true
		}
	}
	return slices.Sorted(maps.Keys(known))
}

// Workspace is the one that the configuration names for an agent, or empty.
func (c *Config) Workspace(agent, home string) (string, error) {
	own := c.agent(agent)
	if own == nil || own.Workspace == nil {
		return "", nil
	}
	return ExpandPath(string(own.Workspace.path), home)
}

// AgentOf is the agent that a request is for: the one of its session, if it is for one. The error
// is that of CheckConfigured, or of Session.
func (c *Config) AgentOf(r Request) (string, error) {
	agent := r.Agent
	if r.Session != "" {
		s, err := c.Session(r.Session, r.Agent)
		if err != nil {
			return "", err
		}
		agent = s.Agent
	}
	if agent == "" {
		agent = DefaultAgent
	}
	if r.KnownAgent {
		return agent, CheckAgent(agent)
	}
	return agent, c.CheckConfigured(agent)
}

// CheckConfigured wants an agent that a configuration file has, or the one of whoever does not say
// another. The error is an *AgentError, or that of CheckAgent.
func (c *Config) CheckConfigured(agent string) error {
	if agent == "" || agent == DefaultAgent {
		return nil
	}
	if err := CheckAgent(agent); err != nil {
		return err
	}
	known := c.AgentNames()
	if slices.Contains(known, agent) {
		return nil
	}
	e := &AgentError{Agent: agent}
	nearest := len(agent)/2 + 1 // more than half of it mistyped is another name
	for _, name := range known {
		if d := editDistance(agent, name); d < nearest {
			e.Nearest, nearest = name, d
		}
	}
	return e
}

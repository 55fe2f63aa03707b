package profile

import (
	"cmp"
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
)

// hostExecConfig is what a server of requests to run commands outside answers by itself. Package
// policy decides.
type hostExecConfig struct {
	AutoApprove   *[]expression `json:"autoApprove,omitempty" jsonschema:"expressions (RE2) for a command's words in their canonical form that run without asking; each matches as a whole"`
	ManualApprove *[]expression `json:"manualApprove,omitempty" jsonschema:"expressions for those that a person is asked about; what neither list has is denied"`
	// ObeysWorkspace are programs whose settings a command in a sandbox can write.
	ObeysWorkspace *[]programName `json:"obeysWorkspace,omitempty" jsonschema:"programs that execute what settings in the workspace say, which a command can write at any moment: a person is asked about them whatever autoApprove says; [] lets that list decide alone; if nobody says, git and what starts it"`
}

// DefaultObeysWorkspace is the list of Config.ObeysWorkspace where nobody gives one. A * stands for
// the rest of a name.
var DefaultObeysWorkspace = []string{"git", "git-*", "gh", "hub", "hg", "jj", "lazygit", "tig"}

// programName is the name of a program, without a directory.
type programName string

func (n *programName) UnmarshalText(text []byte) error {
	*n = programName(text)
	if len(text) == 0 || strings.ContainsAny(string(text), "/\x00") {
		return errors.New("is the name of a program, without a directory")
	}
	return nil
}

// expression is a regular expression that compiles.
type expression struct {
	text   string
	origin Origin
}

// maxExpression bounds one, in bytes.
const maxExpression = 1024

func (e *expression) setPlace(o Origin) { e.origin = o }

func (e *expression) UnmarshalText(text []byte) error {
	e.text = string(text)
	if len(text) > maxExpression {
		return fmt.Errorf("an expression of more than %d bytes", maxExpression)
	}
	_, err := syntax.Parse(e.text, syntax.Perl)
	return err
}

// HostExec are the expressions of one layer, in their order.
type HostExec struct{ AutoApprove, ManualApprove []string }

// HostExec returns what is said for all agents, and for one.
func (c *Config) HostExec(agent string) (global, own HostExec) {
	read := func(s executionConfig) HostExec {
		texts := func(list *[]expression) (texts []string) {
			if list != nil {
				for _, e := range *list {
					texts = append(texts, e.text)
				}
			}
			return texts
		}
		return HostExec{texts(s.HostExec.AutoApprove), texts(s.HostExec.ManualApprove)}
	}
	all, one := c.layered(agent)
	return read(all), read(one)
}

// ObeysWorkspace are the programs that a person is asked about whatever the automatic list says.
func (c *Config) ObeysWorkspace(agent string) (names []string) {
	all, one := c.layered(agent)
	list := cmp.Or(one.HostExec.ObeysWorkspace, all.HostExec.ObeysWorkspace)
	if list == nil {
		return slices.Clone(DefaultObeysWorkspace)
	}
	for _, name := range *list {
		names = append(names, string(name))
	}
	return names
}

// OffersHostExec reports whether a list of hostexec says anything for an agent: without one, all
// that it asks for is denied.
func (c *Config) OffersHostExec(agent string) bool {
	global, own := c.HostExec(agent)
	return len(global.AutoApprove)+len(global.ManualApprove)+len(own.AutoApprove)+len(own.ManualApprove) > 0
}

// toolsConfig says which tools an agent is offered.
type toolsConfig struct {
	Profile   *toolProfile `json:"profile,omitempty" jsonschema:"a set of tools to begin with: minimal, coding, messaging or full"`
	Allow     *[]toolName  `json:"allow,omitempty" jsonschema:"the only tools, by name, by group (group:fs, group:runtime, …) or with *; an empty list allows nothing"`
	AlsoAllow *[]toolName  `json:"alsoAllow,omitempty" jsonschema:"tools besides those of the profile or of allow"`
	Deny      *[]toolName  `json:"deny,omitempty" jsonschema:"tools that are never offered, whatever allows them"`
}

type toolProfile string

var toolProfiles = []string{"minimal", "coding", "messaging", "full"}

func (p *toolProfile) UnmarshalText(text []byte) error {
	*p = toolProfile(text)
	return oneOf(toolProfiles, text)
}

// toolName names a tool, a group, or several with *.
type toolName struct {
	name   string
	origin Origin
}

func (n *toolName) setPlace(o Origin) { n.origin = o }

func (n *toolName) UnmarshalText(text []byte) error {
	n.name = string(text)
	if n.name == "" || len(n.name) > 64 || strings.Trim(n.name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:*") != "" {
		return fmt.Errorf("%s is not the name of a tool, of a group or a pattern with *", shorten(n.name))
	}
	return nil
}

func (t *toolsConfig) overlay(over toolsConfig) {
	overlay(&t.Profile, over.Profile)
	overlay(&t.Allow, over.Allow)
	overlay(&t.AlsoAllow, over.AlsoAllow)
	overlay(&t.Deny, over.Deny)
}

// Tools is what one layer of the configuration says about tools. A list that is nil says nothing;
// an empty one says: none.
type Tools struct {
	Place                  string // where the first of it stands
	Profile                string
	Allow, AlsoAllow, Deny []string
}

// Tools returns what is said for all agents and for one, about tools as such and about those in the
// sandbox.
func (c *Config) Tools(agent string) (global, own, sandboxGlobal, sandboxOwn Tools) {
	all, one := c.layered(agent)
	return all.Tools.said(), one.Tools.said(), all.Sandbox.Tools.said(), one.Sandbox.Tools.said()
}

func (t toolsConfig) said() Tools {
	tools := Tools{Profile: said(t.Profile)}
	names := func(list *[]toolName) []string {
		if list == nil {
			return nil
		}
		names := []string{}
		for _, n := range *list {
			if tools.Place == "" {
				tools.Place = n.origin.Source
			}
			names = append(names, n.name)
		}
		return names
	}
	tools.Allow, tools.AlsoAllow, tools.Deny = names(t.Allow), names(t.AlsoAllow), names(t.Deny)
	return tools
}

// layered joins the files, apart for all agents and for one.
func (c *Config) layered(agent string) (all, one executionConfig) {
	if agent == "" {
		agent = DefaultAgent
	}
	for _, layer := range c.layers {
		all.overlay(layer.Defaults.Execution)
		one.overlay(layer.Agents[agent].Execution)
	}
	return all, one
}

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/policy/host"
	"github.com/clairun/clai-sandbox/profile"
)

// offered are the tools that clai-sandbox mcp has.
var offered = []string{"bash_exec", "exec", "process", "read", "write", "edit", "apply_patch", "glob", "grep", "fs_request_grant", "ask_person", "sandbox_explain", "changes_propose"}

// A toolPolicy says which tools one agent is offered.
type toolPolicy struct {
	layers   []policy.ToolLayer
	mistakes []string // what is probably not meant
}

func newToolPolicy(config *profile.Config, agent string) toolPolicy {
	if agent == "" {
		agent = profile.DefaultAgent
	}
	var t toolPolicy
	add := func(name string, lists profile.Tools) {
		if lists.Place != "" {
			name += " (" + lists.Place + ")"
		}
		said := policy.Tools{Allow: lists.Allow, AlsoAllow: lists.AlsoAllow, Deny: lists.Deny}
		if lists.Profile != "" {
			base, _ := policy.ToolProfile(lists.Profile)
			t.layers = append(t.layers, policy.ToolLayer{Name: fmt.Sprintf("profile %s of %s", lists.Profile, name), Tools: policy.Tools{Allow: base.Allow, AlsoAllow: said.AlsoAllow}})
		}
		layer := policy.ToolLayer{Name: name, Tools: said}
		t.mistakes = append(t.mistakes, policy.ToolMistakes(layer, offered...)...)
		t.layers = append(t.layers, layer)
	}
	global, own, sandboxGlobal, sandboxOwn := config.Tools(agent)
	add("tools of all agents", global)
	add("tools of agent "+agent, own)
	for name, lists := range map[string]profile.Tools{"sandbox.tools of all agents": sandboxGlobal, "sandbox.tools of agent " + agent: sandboxOwn} {
		t.mistakes = append(t.mistakes, policy.ToolMistakes(policy.ToolLayer{Name: name, Tools: toolsOf(lists)}, offered...)...)
	}
	slices.Sort(t.mistakes)
	t.layers = append(t.layers, policy.ToolLayer{Name: "sandbox.tools", Tools: policy.SandboxTools(toolsOf(sandboxGlobal), toolsOf(sandboxOwn))})
	return t
}

func toolsOf(lists profile.Tools) policy.Tools {
	return policy.Tools{Allow: lists.Allow, AlsoAllow: lists.AlsoAllow, Deny: lists.Deny}
}

// withWorkspace takes away the tools that change files, where the workspace may only be read.
func (t toolPolicy) withWorkspace(access profile.Access, origin profile.Origin) toolPolicy {
	if access == profile.ReadOnly {
		t.layers = append(t.layers, policy.ToolLayer{Name: fmt.Sprintf("workspaceAccess read_only (%s)", origin), Tools: policy.Tools{Deny: []string{"write", "edit", "apply_patch"}}})
	}
	return t
}

// check decides about one tool.
func (t toolPolicy) check(tool string) policy.ToolDecision {
	return policy.CheckTool(tool, t.layers...)
}

// allowed is check as the server asks it.
func (t toolPolicy) allowed(tool string) error {
	if d := t.check(tool); !d.Allowed {
		return errors.New(d.Why)
	}
	return nil
}

// toolAnswer is a line of explain --tools.
type toolAnswer struct {
	Tool    string `json:"tool"`
	Allowed bool   `json:"allowed"`
	Layer   string `json:"layer,omitempty"`
	Why     string `json:"why,omitempty"`
}

// explainTools prints which tools an agent is offered, and which layer refuses the others.
func explainTools(c *cli.Context) error {
	caller, err := profile.CurrentCaller()
	if err != nil {
		return err
	}
	config, err := profile.Load(caller.Directories())
	if err != nil {
		return err
	}
	if err := profile.CheckAgent(c.String("agent")); err != nil {
		return err
	}
	t := newToolPolicy(config, c.String("agent")).withWorkspace(config.WorkspaceAccess(c.String("agent")))
	answers := []toolAnswer{}
	for _, tool := range offered {
		d := t.check(tool)
		answers = append(answers, toolAnswer{tool, d.Allowed, d.Layer, d.Why})
	}
	if c.Bool("json") {
		return printJSON(map[string]any{"tools": answers, "mistakes": append([]string{}, t.mistakes...)})
	}
	for _, a := range answers {
		if a.Allowed {
			fmt.Printf("%-17s allowed\n", a.Tool)
		} else {
			fmt.Printf("%-17s refused: %s\n", a.Tool, policy.DisplayText(a.Why))
		}
	}
	for _, m := range t.mistakes {
		fmt.Println("probably a mistake: " + policy.DisplayText(m))
	}
	return nil
}

// explainHostExec prints what a server of requests would answer to a command's words.
func explainHostExec(c *cli.Context) error {
	words := c.Args().Slice()
	if len(words) == 0 {
		return &misuse{"no command given", "write it after --, word by word: clai-sandbox explain --hostexec -- make test"}
	}
	caller, err := profile.CurrentCaller()
	if err != nil {
		return err
	}
	config, err := profile.Load(caller.Directories())
	if err != nil {
		return err
	}
	rules, err := host.HostExec(config, c.String("agent"))
	if err != nil {
		return err
	}
	verdict, why := rules.Decide(words)
	obeys := func(name string) bool { like, _ := filepath.Match(name, filepath.Base(words[0])); return like }
	if verdict == policy.Run && slices.ContainsFunc(config.ObeysWorkspace(c.String("agent")), obeys) {
		verdict, why = policy.AskPerson, why+", but hostexec.obeysWorkspace wants a person asked"
	}
	if c.Bool("json") {
		return printJSON(map[string]any{"verdict": verdict.String(), "why": why, "canonical": policy.CanonicalArgv(words)})
	}
	fmt.Printf("%s\n%s: %s\n", policy.DisplayText(policy.CanonicalArgv(words)), verdict, why)
	return nil
}

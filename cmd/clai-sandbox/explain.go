package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/cmd/delegated"
	"github.com/clairun/clai-sandbox/integration/instructions"
	"github.com/clairun/clai-sandbox/integration/session"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

func explainCommand() *cli.Command {
	return &cli.Command{
		Name:  "explain",
		Usage: "show what a sandbox with these options would see, and why",
		Description: "Each line says what is visible, how, and where that comes from. With --path, one line about that path: visible or\n" +
			"not, read-only or read-write, and which rule decides. With --host and a command behind --, what would become of that\n" +
			"command outside the sandbox, and each step to the answer. Nothing is run.",
		Flags: append(delegated.ProfileFlags(),
			&cli.StringFlag{Name: "path", Usage: "answer for `PATH` alone"},
			&cli.BoolFlag{DisableDefaultText: true, Name: "for-agent", Usage: "print what an agent is told about this sandbox"},
			delegated.HostFlag(), delegated.ToolsFlag(), delegated.HostExecFlag(),
			&cli.BoolFlag{DisableDefaultText: true, Name: "json", Usage: "print JSON"},
		),
		OnUsageError: usageError,
		Action:       explainAction,
	}
}

func explainAction(c *cli.Context) error {
	if c.IsSet("host") || c.Bool("tools") || c.Bool("hostexec") {
		return explainOutside(c)
	}
	if err := noArguments(c, "it explains any command's sandbox; for one path: --path PATH"); err != nil {
		return err
	}
	j, err := prepare(c, session.Options{}, (*session.Session).Prepare)
	if err != nil {
		return err
	}
	if c.IsSet("path") {
		return explainPath(c, j)
	}
	if c.Bool("for-agent") {
		config, err := profile.Load(j.directories)
		if err != nil {
			return err
		}
		about := instructions.About{Profile: j.profile, Plan: &j.plan, CanAsk: true, HostExec: config.OffersHostExec(j.profile.Agent)}
		bwrap, err := j.bwrap()
		if err == nil {
			err = sandbox.Works(context.Background(), j.plan, sandbox.Launcher{Bwrap: bwrap, State: j.directories.State})
		}
		if err != nil {
			about.Unavailable = explainError(err)
		}
		_, err = fmt.Println(instructions.Text(about))
		return err
	}
	e := newExplanation(j)
	if c.Bool("json") {
		return printJSON(os.Stdout, e)
	}
	e.print()
	return nil
}

// explanation is what explain prints. Values of variables are left out: they may be secrets.
type explanation struct {
	Agent            string                  `json:"agent" jsonschema:"whose configuration it is"`
	Workspace        string                  `json:"workspace" jsonschema:"the agent's"`
	WorkspaceOrigin  profile.Origin          `json:"workspaceOrigin" jsonschema:"why it is this one"`
	WorkspaceAccess  profile.Access          `json:"workspaceAccess" jsonschema:"what the command may do there"`
	AccessOrigin     profile.Origin          `json:"workspaceAccessOrigin" jsonschema:"what says so"`
	Session          *profile.Session        `json:"session,omitempty" jsonschema:"of --session"`
	SandboxWorkspace string                  `json:"sandboxWorkspace,omitempty" jsonschema:"on the host, what stands at /workspace for a session that may not write the agent's"`
	WorkingDirectory string                  `json:"workingDirectory" jsonschema:"where the command starts"`
	Mounts           []sandbox.Step          `json:"mounts" jsonschema:"all that is visible, in the order in which it is mounted: a later one covers an earlier one"`
	Network          string                  `json:"network" jsonschema:"how much of the network the command reaches"`
	AllowedDomains   []domainOrigin          `json:"allowedDomains" jsonschema:"what a filtered network reaches; empty with another"`
	DeniedDomains    []domainOrigin          `json:"deniedDomains" jsonschema:"what it does not reach, whatever is allowed"`
	UpstreamProxy    string                  `json:"upstreamProxy,omitempty" jsonschema:"the proxy through which a filtered network connects, without what it is told of who asks"`
	Published        []profile.PublishedPort `json:"published" jsonschema:"ports of a disabled or filtered network that the host reaches at its loopback interface"`
	SessionBus       string                  `json:"sessionBus" jsonschema:"how much of the D-Bus session bus the command reaches"`
	SSHKeys          []sshKeyExplained       `json:"sshKeys" jsonschema:"the keys of the ssh-agent that the command may use"`
	SessionBusNames  []string                `json:"sessionBusNames" jsonschema:"the names that a filtered one lets through; none where there is no bus"`
	Environment      []variableOrigin        `json:"environment" jsonschema:"the command's variables, without their values, which may be secrets"`
	TimeoutSeconds   float64                 `json:"timeoutSeconds" jsonschema:"when the command is ended; 0: never"`
	Limits           []sandbox.HeldLimit     `json:"limits" jsonschema:"what the command may take only so much of, besides time, and what holds it"`
	Protections      []string                `json:"protections" jsonschema:"what else keeps the command in, a line each, for a person"`
	Narrowed         []profile.Narrowing     `json:"narrowed" jsonschema:"what the administrator's file or the workspace's own takes away, whatever else says otherwise"`
	Notices          []sandbox.Notice        `json:"notices" jsonschema:"what a person should know"`

	bus      string         // the session bus, for a person
	upstream profile.Origin // why there is that proxy
	home     string         // of the caller
}

type variableOrigin struct {
	Name   string         `json:"name"`
	Origin profile.Origin `json:"origin"`
}

type domainOrigin struct {
	Domain string         `json:"domain" jsonschema:"a rule, as it would be typed"`
	Origin profile.Origin `json:"origin"`
}

// domainOrigins are the rules of a list, where they mean something.
func domainOrigins(plan *sandbox.Plan, rules []profile.DomainRule) []domainOrigin {
	list := []domainOrigin{}
	if plan.Network == profile.NetworkFiltered {
		for _, rule := range rules {
			list = append(list, domainOrigin{rule.String(), rule.Origin})
		}
	}
	return list
}

type sshKeyExplained struct {
	Key         string         `json:"key" jsonschema:"as it was named"`
	Hosts       []string       `json:"hosts" jsonschema:"where it signs in without a question"`
	SignCommits bool           `json:"signCommits" jsonschema:"whether it signs git's commits and tags"`
	Unbound     bool           `json:"unbound" jsonschema:"whether it signs in anywhere"`
	Origin      profile.Origin `json:"origin"`
}

func explainedKeys(keys []profile.SSHKey) []sshKeyExplained {
	list := []sshKeyExplained{}
	for _, k := range keys {
		e := sshKeyExplained{k.Name, []string{}, k.SignCommits, k.Unbound, k.Origin}
		for _, h := range k.Hosts {
			e.Hosts = append(e.Hosts, h.String())
		}
		list = append(list, e)
	}
	return list
}

func (e sshKeyExplained) String() string {
	text := e.Key + " for " + strings.Join(e.Hosts, ", ")
	switch {
	case e.Unbound:
		text = e.Key + " for every host"
	case len(e.Hosts) == 0:
		text = e.Key + " for no host"
	}
	if e.SignCommits {
		text += ", and commits"
	}
	return text
}

func newExplanation(j job) explanation {
	e := explanation{
		Agent:            j.profile.Agent,
		Workspace:        j.profile.Workspace,
		WorkspaceOrigin:  j.profile.WorkspaceOrigin,
		WorkspaceAccess:  j.profile.WorkspaceAccess,
		AccessOrigin:     j.profile.AccessOrigin,
		Session:          j.profile.Session,
		SandboxWorkspace: j.profile.SandboxWorkspace,
		WorkingDirectory: j.plan.WorkingDirectory,
		Mounts:           j.plan.Steps,
		Network:          j.plan.Network.String(),
		AllowedDomains:   domainOrigins(&j.plan, j.plan.Domains.Allowed),
		DeniedDomains:    domainOrigins(&j.plan, j.plan.Domains.Denied),
		Published:        append([]profile.PublishedPort{}, j.plan.Published...),
		SessionBus:       j.plan.SessionBus.String(),
		SessionBusNames:  append([]string{}, j.plan.Bus.Names...),
		SSHKeys:          explainedKeys(j.plan.SSHAgent.Keys),
		TimeoutSeconds:   j.plan.Limits.Timeout.Seconds(),
		Limits:           j.plan.HeldLimits(),
		Protections:      sandbox.Protections(&j.plan),
		Narrowed:         append([]profile.Narrowing{}, j.profile.Narrowed...),
		Notices:          append([]sandbox.Notice{}, j.plan.Notices...),
		bus:              j.plan.DescribeBus(),
		home:             j.profile.Home,
	}
	if u := j.plan.Upstream; u.Tunnel != nil {
		e.UpstreamProxy, e.upstream = u.Tunnel.String(), u.Origin
	}
	for _, v := range j.plan.Environment {
		e.Environment = append(e.Environment, variableOrigin{v.Name, v.Origin})
	}
	return e
}

func (e explanation) print() {
	fmt.Printf("agent %s\nworkspace %s\nworking directory %s\n\n", oneLine(e.Agent), oneLine(e.Workspace), oneLine(e.WorkingDirectory))
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	e.printSession(table)
	fmt.Fprintln(table, "PATH\tWHAT\tFROM")
	var caches []string
	for _, step := range e.Mounts {
		switch {
		case step.Kind == sandbox.Seal, step.Purpose == sandbox.Leads && !step.Image:
		case step.Purpose == sandbox.Caches && step.Kind != sandbox.Bind: // a few to a line
			if step.Kind == sandbox.Symlink {
				caches = append(caches, strings.TrimPrefix(step.Path, e.home+"/"))
			}
		default:
			fmt.Fprintf(table, "%s\t%s\t%s\n", oneLine(step.Path), oneLine(what(step)), oneLine(step.Origin.String()))
		}
	}
	for some := range slices.Chunk(caches, 4) {
		fmt.Fprintf(table, "%s/{%s}\tthe agent's own, writable\tdefault caches\n", oneLine(e.home), oneLine(strings.Join(some, ",")))
	}
	fmt.Fprintln(table, "everything else\tnot there")
	fmt.Fprintln(table)
	e.printNetwork(table)
	for _, port := range e.Published {
		fmt.Fprintf(table, "published\t127.0.0.1:%d leads to port %d inside\t%s\n", port.Host, port.Inside, oneLine(port.Origin.String()))
	}
	fmt.Fprintf(table, "session bus\t%s\n", oneLine(e.bus))
	for _, k := range e.SSHKeys {
		fmt.Fprintf(table, "ssh-agent\t%s (%s)\n", oneLine(k.String()), oneLine(k.Origin.String()))
	}
	if e.TimeoutSeconds > 0 {
		fmt.Fprintf(table, "timeout\t%g s\n", e.TimeoutSeconds)
	}
	for _, held := range e.Limits {
		fmt.Fprintf(table, "limit\t%s=%s\theld by %s: %s\n", held.Limit, held.Amount, held.By, held.How)
	}
	for _, n := range e.Narrowed {
		fmt.Fprintf(table, "at most\t%s: %s\t%s\n", n.Key, oneLine(n.To), oneLine(n.Origin.String()))
	}
	fmt.Fprintln(table)
	for _, v := range e.Environment {
		fmt.Fprintf(table, "$%s\tset\t%s\n", oneLine(v.Name), oneLine(v.Origin.String()))
	}
	table.Flush()
	fmt.Println()
	for _, line := range e.Protections {
		fmt.Println(line)
	}
	for _, n := range e.Notices {
		fmt.Println("notice: " + oneLine(n.Text))
	}
}

// printSession says what becomes of a session, and which layer decides each part of it.
func (e explanation) printSession(table io.Writer) {
	s := e.Session
	if s == nil {
		return
	}
	row := func(name, is string, from profile.Origin) {
		fmt.Fprintf(table, "%s\t%s\t%s\n", name, oneLine(is), oneLine(from.String()))
	}
	sandboxed := "to be sandboxed"
	if !s.Sandboxed {
		sandboxed = "not to be sandboxed by its sender; what clai-sandbox runs for it is all the same"
	}
	fmt.Fprintf(table, "session %s\t%s\n", oneLine(s.Key), sandboxed)
	row("mode", s.Mode.String()+", the main session is "+s.Main, s.ModeOrigin)
	row("scope", s.Scope.String()+", shared by all of "+s.ScopeKey, s.ScopeOrigin)
	row("workspace", e.Workspace, e.WorkspaceOrigin)
	row("access", e.WorkspaceAccess.String(), e.AccessOrigin)
	if e.SandboxWorkspace != "" {
		row("works in", profile.SandboxWorkspace+", which is "+e.SandboxWorkspace, e.AccessOrigin)
	}
	fmt.Fprintln(table)
}

func (e explanation) printNetwork(table io.Writer) {
	if e.Network != profile.NetworkFiltered.String() {
		fmt.Fprintf(table, "network\t%s\n", e.Network)
		return
	}
	fmt.Fprintln(table, "network\tfiltered: through a proxy, to what is allowed")
	if e.UpstreamProxy != "" {
		fmt.Fprintf(table, "  by way of\t%s\t%s\n", oneLine(e.UpstreamProxy), oneLine(e.upstream.String()))
	}
	for _, rule := range e.AllowedDomains {
		fmt.Fprintf(table, "  %s\tallowed\t%s\n", oneLine(rule.Domain), oneLine(rule.Origin.String()))
	}
	for _, rule := range e.DeniedDomains {
		fmt.Fprintf(table, "  %s\tdenied\t%s\n", oneLine(rule.Domain), oneLine(rule.Origin.String()))
	}
	fmt.Fprintln(table, "  everything else\trefused")
}

// what describes a step in a few words.
func what(s sandbox.Step) string {
	text := ""
	switch s.Kind {
	case sandbox.Bind:
		text = s.Access.String()
		if s.Purpose == sandbox.Protects {
			text += ", protected"
		}
		if s.Layer != "" && s.Access == profile.ReadWrite {
			text += ", brought to the host at the end"
		}
		if s.Settings {
			text += ", the command has a copy"
		}
		if s.Entries {
			text += ", as it is at the start"
		}
	case sandbox.Symlink:
		text = "link to " + s.Source
	case sandbox.Private:
		text = "private, empty, writable"
		if s.Purpose == sandbox.OwnWork && s.Source != "" {
			text = "the session's own, writable, lasts"
		}
		if s.Purpose == sandbox.OwnHome && s.Source != "" {
			text = "the agent's own, writable, lasts"
		}
	case sandbox.Mask, sandbox.Empty:
		text = "covered"
		switch s.Purpose {
		case sandbox.Hides:
			text = "hidden"
		case sandbox.Anchors:
			text = "leads to what is granted in it"
		}
	case sandbox.Copy:
		text = "copy of " + s.Source
	case sandbox.Dir:
		text = "empty directory"
	case sandbox.Socket:
		text = "the session bus"
		if strings.HasSuffix(s.Path, "/ssh-agent") {
			text = "the keys that are named, of your ssh-agent"
		}
		if s.Source == os.DevNull {
			text = "covered"
		}
	case sandbox.Device:
		text = "this machine's device"
	case sandbox.Proc:
		text = "the sandbox's own processes"
	case sandbox.Dev:
		text = "null, zero, full, random, urandom, tty, pts"
	}
	if s.Typed != "" {
		text += ", written as " + s.Typed
	}
	return text
}

func explainPath(c *cli.Context, j job) error {
	path, err := pathTyped(c.String("path"))
	if err != nil {
		return err
	}
	sight := j.plan.Look(sandbox.Host{}, path)
	if c.Bool("json") {
		return printJSON(os.Stdout, sight)
	}
	var line strings.Builder
	line.WriteString(oneLine(sight.Path) + ": ")
	if sight.Visible {
		line.WriteString("visible, " + sight.Access.String())
	} else {
		line.WriteString("not visible")
	}
	if sight.Resolved != sight.Path {
		line.WriteString(", leads to " + oneLine(sight.Resolved))
	}
	line.WriteString("; " + oneLine(sight.Why))
	if sight.Rule != nil {
		line.WriteString(" (" + oneLine(sight.Rule.Origin.String()) + ")")
	}
	fmt.Println(line.String())
	return nil
}

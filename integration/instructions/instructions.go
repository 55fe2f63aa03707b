// Package instructions words for an agent what its sandbox is: what it may read and write, how it
// asks for more, and what it must not try to get around. The same text stands in an MCP server's
// instructions and in explain --for-agent.
package instructions

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// Limit is the most that Text returns, in bytes: it is part of every conversation.
const Limit = 2000

// maxListed bounds how many paths or domains are named.
const maxListed = 6

// About says what Text is about.
type About struct {
	Profile     profile.Profile
	Plan        *sandbox.Plan
	CanAsk      bool   // whether fs_request_grant reaches a person
	Apart       bool   // whether the agent is in another sandbox than its commands, and this is about that of the commands
	HostExec    bool   // whether a person has said which commands may leave the sandbox
	Unavailable string // why nothing can be run, if nothing can
}

// Text words it.
func Text(a About) string {
	if a.Unavailable != "" {
		return cut("Sandbox unavailable: " + profile.Printable(a.Unavailable) + ". No command and no file tool will run until a person has mended that; do not look for another way to run commands.")
	}
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	runs := "Commands and file tools run in a sandbox. It"
	if a.Apart {
		runs = "Commands run in a sandbox. You and your file tools are in another one, with the same workspace, and with a /tmp and a home directory that commands do not see. That of the commands"
	}
	add("%s shows the host's files at their own paths, and only what was granted.", runs)
	workspace := "the workspace " + profile.Printable(a.Profile.Workspace)
	access := a.Plan.AccessTo(a.Profile.Workspace)
	writable := granted(a.Plan, profile.ReadWrite, a.Profile.Workspace)
	if access == profile.ReadWrite {
		writable = append([]string{workspace}, writable...)
	}
	for _, step := range a.Plan.Steps {
		if step.Purpose == sandbox.OwnWork {
			writable = append([]string{"this session's own workspace " + step.Path}, writable...)
		}
		if step.Purpose == sandbox.OwnHome && step.Source != "" {
			writable = append(writable, "a home directory of your own, which lasts")
		}
	}
	add("Readable and writable: %s.", listed(append(writable, "a private /tmp")))
	copied := granted(a.Plan, profile.CopyOnWrite, a.Profile.Workspace)
	if access == profile.CopyOnWrite {
		copied = append([]string{workspace}, copied...)
	}
	if len(copied) > 0 {
		add("Writable as a copy: %s. Your changes there last, but reach nobody else until a person has applied them; the tool changes_propose, where you have it, has them looked at.", listed(copied))
	}
	add("Readable: the system%s%s. Everything else of the machine is not there: a path that exists on the host may be missing here.", system(a.Plan), also(granted(a.Plan, profile.ReadOnly, "")))
	if nodes := devices(a.Plan); nodes != nil {
		add("Devices of the machine: %s.", listed(nodes))
	}
	if hidden := len(a.Plan.Hidden); hidden > 0 {
		add("Credential stores are hidden, also below readable directories.")
	}
	if a.CanAsk {
		add("To get more, ask: the tool or program fs_request_grant, with the path, read_only, copy_on_write or read_write, and the reason. A person answers, and may grant less. A refused path is refused; do not look for a way around it. For what only the person can know or decide: the tool or program ask_person, with a question.")
	} else {
		add("Nobody can be asked for more from here; say what is missing and why.")
	}
	if a.CanAsk && a.HostExec {
		add("For a command that only works on the host itself, such as one that talks to its services: the program hostexec with the command's words, from a directory in the workspace. It may wait minutes for a person. A denial is final; do not word the command differently to get past it.")
	}
	add("%s", network(a.Plan, a.CanAsk))
	add("%s", bus(a.Plan))
	if keys := keys(a.Plan); keys != nil {
		more := "."
		if a.CanAsk {
			more = "; at another host a person is asked, while ssh waits."
		}
		add("ssh keys, through an agent ($SSH_AUTH_SOCK): %s%s", listed(keys), more)
	}
	add("Git: commit as the user who is configured. Never rewrite authorship, dates or history to get past a rule about pushes; ask. Hooks and git's configuration are read-only.")
	return cut(strings.Join(parts, "\n"))
}

// system names the directories of the system that the plan shows, as far as this host has them.
func system(plan *sandbox.Plan) string {
	var list []string
	for _, name := range []string{"/usr", "/etc", "/opt"} {
		if slices.ContainsFunc(plan.Steps, func(s sandbox.Step) bool {
			return s.Path == name && (s.Kind == sandbox.Bind || s.Kind == sandbox.Symlink)
		}) {
			list = append(list, name)
		}
	}
	of := ""
	if plan.Rootfs != nil {
		of = " of image " + plan.Rootfs.Name
	}
	if len(list) == 0 {
		return of
	}
	return of + " (" + strings.Join(list, ", ") + ")"
}

// granted are the paths that grants show with an access, besides one.
func granted(plan *sandbox.Plan, access profile.Access, besides string) []string {
	var list []string
	for _, step := range plan.Steps {
		if step.Kind == sandbox.Bind && step.Access == access && step.Origin.Kind != profile.OriginBaseline && step.Purpose == "" && step.Path != besides && !step.Image {
			list = append(list, profile.Printable(step.Path))
		}
	}
	return slices.Compact(list)
}

// keys are what the agent may sign in with, and where.
func keys(plan *sandbox.Plan) (list []string) {
	for _, k := range plan.SSHAgent.Keys {
		var hosts []string
		for _, h := range k.Hosts {
			hosts = append(hosts, profile.Printable(h.String()))
		}
		var does []string
		switch {
		case k.Unbound:
			does = append(does, "signs in anywhere")
		case len(hosts) > 0:
			does = append(does, "signs in at "+listed(hosts))
		}
		if k.SignCommits {
			does = append(does, "signs git's commits")
		}
		list = append(list, profile.Printable(k.Name)+" "+strings.Join(does, " and "))
	}
	return list
}

// devices are those of the host's that are shown.
func devices(plan *sandbox.Plan) (list []string) {
	for _, step := range plan.Steps {
		if step.Kind == sandbox.Device {
			list = append(list, profile.Printable(step.Path))
		}
	}
	return list
}

// also lists what comes after something else.
func also(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return ", " + listed(list)
}

func listed(list []string) string {
	if more := len(list) - maxListed; more > 0 {
		return strings.Join(list[:maxListed], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(list, ", ")
}

func network(plan *sandbox.Plan, canAsk bool) string {
	asks := ""
	if canAsk && plan.Network == profile.NetworkFiltered {
		asks = " A connection to another host waits while a person is asked; what is refused then, do not go round it."
	}
	return reached(plan) + asks + published(plan)
}

// published says at which ports what the agent serves is reached from the host.
func published(plan *sandbox.Plan) string {
	var list []string
	for _, port := range plan.Published {
		list = append(list, fmt.Sprint(port.Inside))
	}
	if list == nil {
		return ""
	}
	return " From the host, your ports " + listed(list) + " are reached."
}

func reached(plan *sandbox.Plan) string {
	switch plan.Network {
	case profile.NetworkDisabled:
		return "Network: none."
	case profile.NetworkFiltered:
		var names []string
		for _, rule := range plan.Domains.Allowed {
			names = append(names, profile.Printable(rule.String()))
		}
		if len(names) == 0 {
			return "Network: filtered, and no host is allowed."
		}
		return "Network: through a proxy (HTTP_PROXY is set), only to " + listed(names) + "."
	}
	return "Network: as the host's."
}

func bus(plan *sandbox.Plan) string {
	switch {
	case plan.SessionBus == profile.SessionBusFiltered && len(plan.Bus.Names) > 0:
		return "D-Bus session bus: filtered."
	case plan.SessionBus == profile.SessionBusAllow:
		return "D-Bus session bus: the user's own."
	}
	return "D-Bus session bus: none."
}

// cut keeps a text below Limit.
func cut(text string) string {
	if len(text) <= Limit {
		return text
	}
	text = text[:Limit-len("…")]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + "…"
}

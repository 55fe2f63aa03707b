package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// printGrants writes a line a grant. Whatever an agent or a file system named is escaped.
func printGrants(to io.Writer, list []grants.Grant, now time.Time) {
	if len(list) == 0 {
		fmt.Fprintln(to, "nothing is granted")
		return
	}
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tAGENT\tPATH\tACCESS\tSCOPE\tORIGIN\tAGE\tUSES\tLAST USED\tENDS")
	for _, g := range list {
		path, access := profile.Printable(cmp.Or(g.Path, g.Domain)), g.Access.String()
		if g.Domain != "" {
			access = "network"
		}
		if g.Resolved != g.Path {
			path += " -> " + profile.Printable(g.Resolved)
		}
		last := "never"
		if g.LastUsedAtUnixMs != 0 {
			last = ago(now, g.LastUsedAtUnixMs)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", g.ID, profile.Printable(g.Agent), path, access, g.Scope, g.Origin.Kind,
			age(now, g.Origin.GrantedAtUnixMs), g.Uses, last, ends(g, now))
	}
	table.Flush()
	for _, g := range list {
		if g.Stale != "" {
			fmt.Fprintf(to, "%s is stale, and left out: %s; if that is meant: clai-sandbox grants confirm %s\n", g.ID, oneLine(g.Stale), g.ID)
		}
	}
}

func ends(g grants.Grant, now time.Time) string {
	switch {
	case g.Stale != "":
		return "stale"
	case g.Expired(now):
		return "over"
	case g.Scope == grants.ScopeOnce:
		return "with its session"
	case g.ExpiresAtUnixMs != 0:
		return "in " + rough(time.UnixMilli(g.ExpiresAtUnixMs).Sub(now))
	}
	return "never"
}

func age(now time.Time, ms int64) string { return rough(now.Sub(time.UnixMilli(ms))) }
func ago(now time.Time, ms int64) string { return age(now, ms) + " ago" }

// rough is a time span as people say it.
func rough(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// printRequests writes a paragraph a request: all that a person should know before answering.
func printRequests(to io.Writer, list []grants.Request, now time.Time) {
	if len(list) == 0 {
		fmt.Fprintln(to, "nothing waits for an answer")
		return
	}
	for i, r := range list {
		if i > 0 {
			fmt.Fprintln(to)
		}
		line := func(name, text string) { fmt.Fprintf(to, "  %-9s %s\n", name, text) }
		if r.Question != nil {
			fmt.Fprintf(to, "%s  agent %s asks you\n", r.ID, profile.Printable(r.Agent))
			for _, f := range r.Question.Facts() {
				line(f.Name, f.Text)
			}
		} else if r.Domain != nil {
			fmt.Fprintf(to, "%s  agent %s asks to reach %s, which no rule allows; a connection waits\n", r.ID, profile.Printable(r.Agent), profile.Printable(r.Domain.To))
			for _, f := range r.Domain.Facts() {
				line(f.Name, f.Text)
			}
		} else if r.Outside != nil {
			fmt.Fprintf(to, "%s  agent %s asks to run a command outside of any sandbox\n", r.ID, profile.Printable(r.Agent))
			first, rest := r.Outside.Facts()
			for _, f := range append(first, rest...) {
				line(f.Name, f.Text)
			}
		} else {
			fmt.Fprintf(to, "%s  agent %s asks to %s %s\n", r.ID, profile.Printable(r.Agent), r.RequestedAccess.Verb(), profile.Printable(r.RequestedPath))
		}
		if r.ResolvedPath != r.RequestedPath {
			line("leads to", profile.Printable(r.ResolvedPath))
		}
		if r.Reason != "" {
			line("because", profile.Printable(r.Reason))
		}
		for _, w := range r.Warnings {
			line("warning", oneLine(w.Text))
		}
		if r.Command != "" {
			line("command", profile.Printable(r.Command))
		}
		if r.Outside == nil {
			line("in", profile.Printable(r.Workspace))
		}
		line("asked", fmt.Sprintf("%s, and waits %s more", ago(now, r.AskedAtUnixMs), rough(time.UnixMilli(r.ExpiresAtUnixMs).Sub(now))))
	}
	if list[0].Question != nil {
		fmt.Fprintf(to, "\nanswer with clai-sandbox grants review, or for example:\n  clai-sandbox grants answer %s TEXT\n  clai-sandbox grants deny %s\n", list[0].ID, list[0].ID)
		return
	}
	less := " --access ro"
	switch {
	case list[0].Outside != nil:
		less = ""
	case list[0].Domain != nil:
		less = " --domain " + quoteWord(list[0].Domain.Rules[0].Rule)
	}
	fmt.Fprintf(to, "\nanswer with clai-sandbox grants review, or for example:\n  clai-sandbox grants allow %s%s\n  clai-sandbox grants deny %s\n", list[0].ID, less, list[0].ID)
}

// printRecords writes a line a request that has ended.
func printRecords(to io.Writer, list []grants.Record) {
	if len(list) == 0 {
		fmt.Fprintln(to, "nothing was asked yet")
		return
	}
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "WHEN\tAGENT\tASKED FOR\tACCESS\tOUTCOME\tGRANTED\tBY")
	for _, r := range list {
		granted, by := "", profile.Printable(r.DecidedBy)
		what, access := r.RequestedPath, r.RequestedAccess.String()
		switch {
		case r.Question != nil:
			what, access = r.Question.Text, "answer"
		case r.Domain != nil:
			what, access = r.Domain.To, "network"
		case r.Outside != nil:
			what, access = r.Outside.Text, "outside"
		}
		if d := r.Decision; d != nil {
			switch {
			case d.Kind == grants.Deny:
			case r.Question != nil:
				granted = profile.Printable(d.Answer)
			case r.Domain != nil:
				granted = profile.Printable(d.Domain)
			case r.Outside != nil && d.Kind == grants.AllowAlways:
				granted = "for always"
			case r.Outside != nil:
				granted = "once"
			default:
				granted = fmt.Sprintf("%s %s", profile.Printable(d.Path), d.Access)
			}
			if d.Via != "" {
				by += " (" + profile.Printable(d.Via) + ")"
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", time.UnixMilli(r.EndedAtUnixMs).Format("2006-01-02 15:04:05"), profile.Printable(r.Agent),
			profile.Printable(what), access, r.Outcome, granted, by)
	}
	table.Flush()
}

// quoteWord is a word for a shell; what a terminal does not show is escaped as bash and zsh read
// it.
func quoteWord(word string) string {
	if shown := profile.Printable(word); shown != word {
		inner := strings.ReplaceAll(shown[1:len(shown)-1], `\"`, `"`)
		return "$'" + strings.ReplaceAll(inner, "'", `\'`) + "'"
	}
	return sandbox.Quote(word)
}

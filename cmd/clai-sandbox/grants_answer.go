package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/profile"
)

func grantsAllow(c *cli.Context) error {
	id, err := oneArgument(c, "request's ID")
	if err != nil {
		return err
	}
	expiry, err := expiryFlag(c)
	if err != nil {
		return err
	}
	if c.Bool("once") && (c.Bool("always") || c.IsSet("for")) {
		return &usage{"--once is for the session that asked; it goes with neither --always nor --for", "leave one out"}
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		r, err := requestNamed(ctx, broker, id)
		if err != nil {
			return err
		}
		switch {
		case r.Outside != nil:
			return allowCommand(ctx, c, broker, r)
		case r.Question != nil:
			return &usage{r.ID + " is a question, which wants an answer", "clai-sandbox grants answer " + r.ID + " ANSWER"}
		case r.Domain != nil:
			return allowDomain(ctx, c, broker, r, expiry)
		case c.IsSet("domain"):
			return &usage{"--domain is about connections, and " + r.ID + " is about a path", "clai-sandbox grants pending shows both"}
		}
		access, err := accessFlag(c, r.RequestedAccess)
		if err != nil {
			return err
		}
		// What it is resolved to as the broker has it: if it leads elsewhere by now, the broker
		// refuses, and the person is told.
		d := grants.Decision{Kind: grants.AllowOnce, Path: r.ResolvedPath, Access: access, Via: via}
		if c.IsSet("path") {
			if d.Path, err = pathTyped(c.String("path")); err != nil {
				return err
			}
		}
		if c.Bool("always") || c.IsSet("for") {
			d.Kind, d.Scope, d.ExpiresIn = grants.AllowAlways, grants.ScopeAlways, expiry
		}
		answer, err := broker.Decide(ctx, r.ID, d)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(os.Stdout, answer)
		}
		fmt.Printf("%s may now %s %s%s\n", profile.Printable(r.Agent), answer.Access.Verb(), profile.Printable(answer.Path), lasting(answer))
		return nil
	})
}

// grantsAnswer answers a question. A number is a choice.
func grantsAnswer(c *cli.Context) error {
	if c.NArg() < 2 {
		return &usage{"answer wants a request's ID and an answer", "clai-sandbox grants pending shows both"}
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		r, err := requestNamed(ctx, broker, c.Args().First())
		if err != nil {
			return err
		}
		if r.Question == nil {
			return &usage{r.ID + " is no question", "clai-sandbox grants allow " + r.ID + ", or deny"}
		}
		d := grants.Decision{Kind: grants.GiveAnswer, Answer: strings.Join(c.Args().Tail(), " "), Via: via}
		if choices := r.Question.Choices; len(choices) > 0 {
			n, err := strconv.Atoi(d.Answer)
			if err != nil || n < 1 || n > len(choices) {
				return &usage{"the answer must be the number of a choice: 1 to " + strconv.Itoa(len(choices)), "clai-sandbox grants pending shows them"}
			}
			d.Answer = choices[n-1]
		}
		if _, err := broker.Decide(ctx, r.ID, d); err != nil {
			return err
		}
		fmt.Printf("%s is told: %s\n", profile.Printable(r.Agent), oneLine(d.Answer))
		return nil
	})
}

// allowDomain lets a connection through, as it was asked for or as far as --domain says.
func allowDomain(ctx context.Context, c *cli.Context, broker *client.Client, r grants.Request, expiry grants.Duration) error {
	for _, name := range []string{"path", "access"} {
		if c.IsSet(name) {
			return &usage{fmt.Sprintf("--%s is about paths, and %s is a connection", name, r.ID), "clai-sandbox grants allow " + r.ID + " --domain RULE"}
		}
	}
	d := grants.Decision{Kind: grants.AllowOnce, Domain: r.Domain.Rules[0].Rule, ExpiresIn: expiry, Via: via}
	if c.IsSet("domain") {
		d.Domain = c.String("domain")
	}
	if c.Bool("always") || c.IsSet("for") {
		d.Kind, d.Scope = grants.AllowAlways, grants.ScopeAlways
	}
	answer, err := broker.Decide(ctx, r.ID, d)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(os.Stdout, answer)
	}
	fmt.Printf("%s may now reach %s%s\n", profile.Printable(r.Agent), profile.Printable(answer.Domain), lasting(answer))
	return nil
}

// allowCommand lets a command run outside of any sandbox, as it was shown.
func allowCommand(ctx context.Context, c *cli.Context, broker *client.Client, r grants.Request) error {
	for _, name := range []string{"path", "access", "for", "domain"} {
		if c.IsSet(name) {
			return &usage{fmt.Sprintf("--%s is not about commands, and %s is a command", name, r.ID), "clai-sandbox grants allow " + r.ID + " lets it run once, with --always this and the same later"}
		}
	}
	d := grants.Decision{Kind: grants.AllowOnce, Shown: r.Outside.Shown, Via: via}
	if c.Bool("always") {
		d.Kind = grants.AllowAlways
	}
	answer, err := broker.Decide(ctx, r.ID, d)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(os.Stdout, answer)
	}
	often := "once"
	if answer.Scope == grants.ScopeAlways {
		often = "now and later: clai-sandbox approvals list"
	}
	fmt.Printf("%s may run %s, %s\n", profile.Printable(r.Agent), profile.Printable(r.Outside.Text), often)
	return nil
}

// pathTyped is a path as a shell's user writes it.
func pathTyped(typed string) (string, error) {
	caller, err := profile.CurrentCaller()
	if err != nil {
		return "", err
	}
	if typed != "" && typed[0] != '/' && typed[0] != '~' {
		typed = filepath.Join(caller.WorkingDirectory, typed)
	}
	return profile.ExpandPath(typed, caller.Home)
}

// lasting says how long an answer holds.
func lasting(a grants.Answer) string {
	switch {
	case a.Scope == grants.ScopeOnce:
		return ", in this session"
	case a.ExpiresAt != 0:
		return ", until " + time.UnixMilli(a.ExpiresAt).Format("2006-01-02 15:04")
	}
	return ", until you revoke it: clai-sandbox grants revoke " + a.GrantID
}

func grantsDeny(c *cli.Context) error {
	id, err := oneArgument(c, "request's ID")
	if err != nil {
		return err
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		r, err := requestNamed(ctx, broker, id)
		if err != nil {
			return err
		}
		if _, err := broker.Decide(ctx, r.ID, grants.Decision{Kind: grants.Deny, Reason: c.String("reason"), Via: via}); err != nil {
			return err
		}
		if r.Outside != nil {
			fmt.Printf("%s may not run %s\n", profile.Printable(r.Agent), profile.Printable(r.Outside.Text))
			return nil
		}
		if r.Domain != nil {
			fmt.Printf("%s may not reach %s\n", profile.Printable(r.Agent), profile.Printable(r.Domain.To))
			return nil
		}
		if r.Question != nil {
			fmt.Printf("%s gets no answer\n", profile.Printable(r.Agent))
			return nil
		}
		fmt.Printf("%s may not %s %s\n", profile.Printable(r.Agent), r.RequestedAccess.Verb(), profile.Printable(r.ResolvedPath))
		return nil
	})
}

func grantsConfirm(c *cli.Context) error {
	id, err := oneArgument(c, "grant's ID")
	if err != nil {
		return err
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		g, err := grantNamed(ctx, broker, id)
		if err != nil {
			return err
		}
		if g.Domain != "" {
			return &usage{g.ID + " is of a domain, which is never stale", "clai-sandbox grants list shows what is"}
		}
		now, condition, why := g.Check()
		if !c.IsSet("resolved") {
			if condition == grants.Intact && g.Stale == "" {
				fmt.Printf("%s is what it was when it was granted\n", profile.Printable(g.Path))
				return nil
			}
			if why == "" {
				why = g.Stale
			}
			fmt.Printf("%s: %s\n", profile.Printable(g.Path), oneLine(why))
			if condition != grants.Missing {
				fmt.Printf("it was granted as %s, %s, and leads to %s now; if that is meant, type:\n  clai-sandbox grants confirm %s --resolved %s\n", profile.Printable(g.Resolved),
					g.Access, profile.Printable(now.Resolved), g.ID, quoteWord(now.Resolved))
			}
			return exit(1)
		}
		if g, err = broker.Confirm(ctx, g.ID, c.String("resolved")); err != nil {
			return err
		}
		fmt.Printf("%s may %s %s\n", profile.Printable(g.Agent), g.Access.Verb(), profile.Printable(g.Resolved))
		return nil
	})
}

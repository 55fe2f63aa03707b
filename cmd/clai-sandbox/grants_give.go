package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/profile"
)

func grantsRevoke(c *cli.Context) error {
	if !c.Args().Present() {
		return &usage{"revoke wants a grant's ID", "clai-sandbox grants list shows them"}
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		// All are looked up before any is taken away: a mistyped one leaves everything as it is.
		var list []grants.Grant
		for _, id := range c.Args().Slice() {
			g, err := grantNamed(ctx, broker, id)
			if err != nil {
				return err
			}
			list = append(list, g)
		}
		reached := true
		for _, g := range list {
			taken, err := broker.Revoke(ctx, g.ID)
			if err != nil {
				return err
			}
			fmt.Printf("revoked: %s, %s %s\n", g.ID, profile.Printable(g.Agent), profile.Printable(cmp.Or(g.Path, g.Domain)))
			reached = tellTaken(taken, profile.ReadOnly) && reached
		}
		if !reached {
			return exit(1)
		}
		return nil
	})
}

func grantsNarrow(c *cli.Context) error {
	id, err := oneArgument(c, "grant's ID")
	if err != nil {
		return err
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		g, err := grantNamed(ctx, broker, id)
		if err != nil {
			return err
		}
		taken, err := broker.Narrow(ctx, g.ID)
		if err != nil {
			return err
		}
		fmt.Printf("%s may now read %s\n", profile.Printable(g.Agent), profile.Printable(g.Path))
		if !tellTaken(taken, profile.ReadWrite) {
			return exit(1)
		}
		return nil
	})
}

func grantsAdd(c *cli.Context) error {
	if c.IsSet("from-run") {
		return grantsAddFromRun(c)
	}
	if c.IsSet("domain") {
		return grantsAddDomain(c)
	}
	typed, err := oneArgument(c, "PATH")
	if err != nil {
		return err
	}
	access, err := accessFlag(c, profile.ReadOnly)
	if err != nil {
		return err
	}
	if i := strings.LastIndexByte(typed, ':'); i > 0 && !c.IsSet("access") {
		if said, err := profile.ParseAccess(typed[i+1:]); err == nil { // as --grant takes it
			typed, access = typed[:i], said
		}
	}
	path, err := pathTyped(typed)
	if err != nil {
		return err
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		return addGrant(ctx, broker, c, c.String("agent"), path, access)
	})
}

// grantsAddDomain grants a domain.
func grantsAddDomain(c *cli.Context) error {
	if c.Args().Present() || c.IsSet("access") {
		return &usage{"--domain stands in the place of PATH and --access", "clai-sandbox grants add --domain example.org:443"}
	}
	expiry, err := expiryFlag(c)
	if err != nil {
		return err
	}
	rule, err := profile.ParseDomainRule(c.String("domain"))
	if err != nil {
		return &usage{"--domain: " + err.Error(), "for example example.org:443, example.org or *.example.org"}
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		g, err := broker.Add(ctx, grants.NewGrant{Agent: c.String("agent"), Domain: rule.String(), ExpiresIn: expiry, Reason: c.String("reason"), Via: via})
		if err != nil {
			return err
		}
		fmt.Printf("%s may reach %s (grant %s)\n", profile.Printable(g.Agent), profile.Printable(g.Domain), g.ID)
		if g.Warning != "" {
			fmt.Fprintf(os.Stderr, "clai-sandbox: note: %s: %s; to take it back: clai-sandbox grants revoke %s\n", profile.Printable(g.Domain), oneLine(g.Warning), g.ID)
		}
		return nil
	})
}

// addGrant grants a path with the options of the command line, and says so.
func addGrant(ctx context.Context, broker *client.Client, c *cli.Context, agent, path string, access profile.Access) error {
	expiry, err := expiryFlag(c)
	if err != nil {
		return err
	}
	g, err := broker.Add(ctx, grants.NewGrant{Agent: agent, Path: path, Access: access, ExpiresIn: expiry, Reason: c.String("reason"), Via: via})
	if err != nil {
		return err
	}
	fmt.Printf("%s may %s %s (grant %s)\n", profile.Printable(g.Agent), g.Access.Verb(), profile.Printable(g.Path), g.ID)
	if g.Resolved != g.Path {
		fmt.Printf("which leads to %s\n", profile.Printable(g.Resolved))
	}
	warnOfGrant(g)
	return nil
}

// warnOfGrant says what a person who is asked for a path is told before answering. Who adds one is
// told at once.
func warnOfGrant(g grants.Grant) {
	elsewhere := func(k grants.WarningKind) bool { return k != grants.WarnElsewhere } // said already
	if told := warnings(g.Path, g.Access, elsewhere); told != "" {
		fmt.Fprintf(os.Stderr, "clai-sandbox: note: %s: %s; to take it back: clai-sandbox grants revoke %s\n", profile.Printable(g.Path), oneLine(told), g.ID)
	}
}

// warnings are those about a grant, of the kinds that are wanted.
func warnings(path string, access profile.Access, wanted func(grants.WarningKind) bool) string {
	caller, err := profile.CurrentCaller()
	if err != nil {
		return ""
	}
	rules := grants.NewRules(caller.Home, nil, nil)
	q, err := rules.Ask(path, access, "")
	if err != nil {
		return ""
	}
	var told []string
	for _, w := range rules.Warnings(q) {
		if wanted(w.Kind) {
			told = append(told, w.Text)
		}
	}
	return strings.Join(told, "; ")
}

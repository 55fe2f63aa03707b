package main

import (
	"context"
	"fmt"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/profile"
)

// theBroker is the caller's own.
func theBroker() (*client.Client, context.Context, func(), error) {
	caller, err := profile.CurrentCaller()
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	return client.Default(caller.Directories()), ctx, stop, nil
}

// withBroker does something with the broker.
func withBroker(do func(context.Context, *client.Client) error) error {
	broker, ctx, stop, err := theBroker()
	if err != nil {
		return err
	}
	defer stop()
	return do(ctx, broker)
}

// accessFlag reads --access, or leaves the default.
func accessFlag(c *cli.Context, byDefault profile.Access) (profile.Access, error) {
	word := c.String("access")
	if word == "" {
		return byDefault, nil
	}
	access, err := profile.ParseAccess(word)
	if err != nil {
		return access, &usage{"--access: " + err.Error(), "clai-sandbox grants " + c.Command.Name + " --help"}
	}
	return access, nil
}

// expiryFlag reads --for.
func expiryFlag(c *cli.Context) (grants.Duration, error) {
	d := c.Duration("for")
	if c.IsSet("for") && d <= 0 {
		return 0, &usage{"--for must be longer than 0", "for example --for 2h"}
	}
	return grants.Duration(d), nil
}

// oneArgument is the one word that a command takes.
func oneArgument(c *cli.Context, what string) (string, error) {
	if c.NArg() != 1 || c.Args().First() == "" {
		return "", &usage{fmt.Sprintf("%s wants one %s", c.Command.Name, what), "clai-sandbox grants " + c.Command.Name + " --help"}
	}
	return c.Args().First(), nil
}

// byPrefix finds the one thing whose id begins with what was typed.
func byPrefix[T any](list []T, id func(T) string, typed, what, command string) (found T, err error) {
	var matching []T
	for _, item := range list {
		if id(item) == typed {
			return item, nil
		}
		if strings.HasPrefix(id(item), typed) {
			matching = append(matching, item)
		}
	}
	hint := "clai-sandbox grants " + command + " lists them"
	switch len(matching) {
	case 0:
		return found, &usage{fmt.Sprintf("no %s has the id %s", what, profile.Printable(typed)), hint}
	case 1:
		return matching[0], nil
	}
	return found, &usage{fmt.Sprintf("%d %ss have ids that begin with %s", len(matching), what, profile.Printable(typed)), hint}
}

// requestBeginning is how much of a request's id has to be typed: an agent may take back what a
// person has seen, and ask for other things until one of their ids begins alike.
const requestBeginning = 8

func requestNamed(ctx context.Context, broker *client.Client, typed string) (grants.Request, error) {
	if len(typed) < requestBeginning {
		return grants.Request{}, &usage{fmt.Sprintf("%s is too short for a request's id: at least %d characters of it", profile.Printable(typed), requestBeginning),
			"clai-sandbox grants pending lists them"}
	}
	list, err := broker.Pending(ctx)
	if err != nil {
		return grants.Request{}, err
	}
	return byPrefix(list, func(r grants.Request) string { return r.ID }, typed, "request", "pending")
}

func grantNamed(ctx context.Context, broker *client.Client, typed string) (grants.Grant, error) {
	list, err := broker.Grants(ctx)
	if err != nil {
		return grants.Grant{}, err
	}
	return byPrefix(list, func(g grants.Grant) string { return g.ID }, typed, "grant", "list")
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/cmd/delegated"
	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/integration/session"
	"github.com/clairun/clai-sandbox/profile"
)

// via names this program as the way in which a person answered.
const via = "terminal"

func grantsCommand() *cli.Command {
	asJSON := func() cli.Flag {
		return &cli.BoolFlag{DisableDefaultText: true, Name: "json", Usage: "print JSON"}
	}
	access := func(usage, byDefault string) cli.Flag {
		return &cli.StringFlag{Name: "access", Usage: usage, DefaultText: byDefault}
	}
	expiry := func() cli.Flag {
		return &cli.DurationFlag{Name: "for", DefaultText: "until it is revoked", Usage: "let it hold for `DURATION`, such as 2h"}
	}
	sub := func(name, usage, arguments, description string, action cli.ActionFunc, flags ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: arguments, Description: description, Flags: flags, Action: action,
			OnUsageError: usageError, HideHelpCommand: true}
	}
	return &cli.Command{
		Name:  "grants",
		Usage: "answer what agents ask for, and show and change what they were granted",
		Description: "An agent that lacks a path asks for it with fs_request_grant. The answer can only be narrower than the question. What is\n" +
			"granted reaches the sandbox that asked, if it is live, and what is revoked leaves all live sandboxes.",
		OnUsageError: usageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return &usage{fmt.Sprintf("unknown command %q", c.Args().First()), "clai-sandbox grants --help lists the commands"}
			}
			return cli.ShowSubcommandHelp(c)
		},
		Subcommands: []*cli.Command{
			sub("list", "list what is granted", "", "", grantsList,
				&cli.StringFlag{Name: "agent", Usage: "only to agent `NAME`", DefaultText: "all"}, asJSON()),
			sub("pending", "list what waits for an answer", "", "", grantsPending, asJSON()),
			sub("review", "answer requests one by one, as they come", "", "The screen shows the keys. It needs a terminal.", func(c *cli.Context) error {
				if err := noArguments(c, "it shows all requests"); err != nil {
					return err
				}
				return handOver([]string{delegated.Review})
			}),
			sub("allow", "grant what was asked for, or less", "ID", "ID is a request's, as pending shows it, or its first 8 characters. A path can only be the one asked for or one below it.\nOf a connection, the host and port that it is for are granted, unless --domain names another of the rules that are shown.",
				grantsAllow,
				&cli.StringFlag{Name: "path", DefaultText: "what was asked for", Usage: "grant `PATH` only, which is below what was asked for"},
				&cli.StringFlag{Name: "domain", DefaultText: "the first of them", Usage: "of a connection: grant `RULE`, one of those that pending shows"},
				access("grant `ro|cow|rw`, at most what was asked for", "what was asked for"),
				&cli.BoolFlag{DisableDefaultText: true, Name: "once", Usage: "for the session that asked; this is the default"},
				&cli.BoolFlag{DisableDefaultText: true, Name: "always", Usage: "for the agent, in later sessions too"},
				expiry(), asJSON()),
			sub("answer", "answer what an agent asks you in words", "ID ANSWER", "ID is a request's, as pending shows it, or its first 8 characters. ANSWER is the number of a choice, or where there are none, any\ntext. It permits the agent nothing.", grantsAnswer),
			sub("deny", "say no; the session is not asked about it again", "ID", "ID is a request's, as pending shows it, or its first 8 characters.", grantsDeny,
				&cli.StringFlag{Name: "reason", Usage: "tell the agent why: `TEXT`"}),
			sub("revoke", "take a grant away, also from live sandboxes", "ID…", "ID is a grant's, as list shows it, or its beginning. It prints what still gives the agent the path, and which running sandboxes\ncould not be reached; then the exit status is 1.", grantsRevoke),
			sub("narrow", "make a grant read-only", "ID", "ID is a grant's, as list shows it, or its beginning.", grantsNarrow),
			sub("confirm", "let a stale grant hold again", "ID", "A grant is stale when its path leads to something else than when it was granted. Without --resolved, this says where it leads\n"+
				"now and changes nothing.", grantsConfirm,
				&cli.StringFlag{Name: "resolved", Usage: "take it for `PATH`, which is where it leads now"}),
			sub("add", "grant a path or a domain that nobody asked for", "PATH[:ro|:cow|:rw]", "With --domain RULE there is no PATH. A domain is for runs whose network is filtered. With --from-run last, you are asked about each path that the last clai-sandbox run lacked, for the agent of that run.", grantsAdd,
				&cli.StringFlag{Name: "from-run", Usage: "grant what a run lacked, one after the other: `last`", DefaultText: "PATH alone"},
				&cli.StringFlag{Name: "agent", Value: profile.DefaultAgent, DefaultText: profile.DefaultAgent, Usage: "to agent `NAME`"},
				&cli.StringFlag{Name: "domain", DefaultText: "a path", Usage: "grant connections to `RULE`: host:port, host, or *.suffix"},
				access("grant `ro|cow|rw`", "ro"), &cli.StringFlag{Name: "reason", Usage: "note why: `TEXT`"}, expiry()),
			sub("log", "list what a person was asked and answered, the latest first", "", "What ran or was refused without asking is in: clai-sandbox audit list", grantsLog,
				&cli.IntFlag{Name: "limit", Value: 20, DefaultText: "20", Usage: "list at most `N`"}, asJSON()),
			sub("request", "ask for a path in an agent's name, and wait for the answer", "PATH",
				"For scripts. Exits with 0 if it was granted, with 1 if not, with 2 if it was not understood, with 3 if nobody could be asked.", grantsRequest,
				&cli.StringFlag{Name: "agent", Value: profile.DefaultAgent, DefaultText: profile.DefaultAgent, Usage: "as agent `NAME`"},
				access("ask for `ro|cow|rw`", "ro"), &cli.StringFlag{Name: "reason", Usage: "say why: `TEXT`"},
				&cli.DurationFlag{Name: "timeout", DefaultText: "the gateway's", Usage: "wait at most `DURATION`"}, asJSON()),
		},
	}
}

func grantsList(c *cli.Context) error {
	if err := noArguments(c, "for one agent: --agent NAME"); err != nil {
		return err
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		list, err := broker.Grants(ctx)
		if err != nil {
			return err
		}
		if c.IsSet("agent") {
			list = slices.DeleteFunc(list, func(g grants.Grant) bool { return g.Agent != c.String("agent") })
		}
		if c.Bool("json") {
			return printJSON(os.Stdout, grants.GrantList{Grants: append([]grants.Grant{}, list...)})
		}
		printGrants(os.Stdout, list, time.Now())
		return tellStatus(ctx, broker)
	})
}

// tellStatus says what the broker has to say about itself, such as a store that was damaged.
func tellStatus(ctx context.Context, broker *client.Client) error {
	status, err := broker.Status(ctx)
	for _, n := range status.Notices {
		fmt.Fprintln(os.Stderr, "clai-sandbox: "+oneLine(n.Text))
	}
	return err
}

func grantsPending(c *cli.Context) error {
	if err := noArguments(c, "it lists all"); err != nil {
		return err
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		list, err := broker.Pending(ctx)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(os.Stdout, grants.RequestList{Requests: append([]grants.Request{}, list...)})
		}
		printRequests(os.Stdout, list, time.Now())
		return nil
	})
}

func grantsLog(c *cli.Context) error {
	if err := noArguments(c, "how many: --limit N"); err != nil {
		return err
	}
	if c.Int("limit") < 1 {
		return &usage{"--limit must be at least 1", "for example --limit 100"}
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		list, err := broker.Log(ctx, c.Int("limit"))
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(os.Stdout, grants.RecordList{Records: append([]grants.Record{}, list...)})
		}
		printRecords(os.Stdout, list)
		return nil
	})
}

// grantsRequest asks in a session of its own. Its exit statuses are those of the program that asks
// from inside.
func grantsRequest(c *cli.Context) error {
	tell := func(status exit, err error) error {
		fmt.Fprintln(os.Stderr, "clai-sandbox: "+explainError(err))
		return status
	}
	typed, err := oneArgument(c, "PATH")
	if err != nil {
		return tell(client.AskMisused, err)
	}
	access, err := accessFlag(c, profile.ReadOnly)
	if err != nil {
		return tell(client.AskMisused, err)
	}
	path, err := pathTyped(typed)
	if err != nil {
		return tell(client.AskMisused, err)
	}
	broker, ctx, stop, err := theBroker()
	if err != nil {
		return tell(client.AskUnavailable, err)
	}
	defer stop()
	if d := c.Duration("timeout"); d > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	j, err := prepareRequest(profile.Request{Agent: c.String("agent")}, session.Options{Broker: broker, Command: "clai-sandbox grants request"}, (*session.Session).Prepare)
	if err != nil {
		return tell(client.AskUnavailable, err)
	}
	defer j.session.Close()
	a := grants.Asking{Path: path, Access: access, Reason: c.String("reason")}
	answer, err := j.session.Ask(ctx, a)
	if errors.Is(err, context.DeadlineExceeded) {
		return tell(client.AskUnavailable, errors.New("nobody answered in time"))
	}
	if err != nil {
		return tell(exit(client.AskStatus(err)), err)
	}
	if c.Bool("json") {
		if err := printJSON(os.Stdout, answer); err != nil {
			return err
		}
	} else {
		fmt.Println(client.Sentence(a, answer))
	}
	if !answer.Granted {
		return exit(client.AskDenied)
	}
	return nil
}

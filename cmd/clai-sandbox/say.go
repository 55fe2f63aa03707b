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

// sayCommand says to the gateway what people type in a chat.
func sayCommand() *cli.Command {
	return &cli.Command{
		Name:      "say",
		Usage:     "say where and how a session's commands run, or answer a request, in the words of a chat",
		ArgsUsage: "TEXT",
		Description: "TEXT is one of:\n" +
			"   /exec [host=sandbox|gateway|node] [security=deny|allowlist|full] [ask=off|on-miss|always] [node=ID]\n" +
			"   /exec reset\n" +
			"   /elevated on|off     host=gateway and security=full, or what was before\n" +
			"   /approve ID allow-once|allow-always|deny\n" +
			"The first three hold for one session, as long as it lasts; the approvals file of the host can be stricter. With --sender, it is a\n" +
			"line that a backend passes on: it counts where outside.approvers of the session's agent has that name. Without TEXT, the sessions\n" +
			"that are open are listed.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "session", DefaultText: "the only one", Usage: "for the session `ID`, or the one whose id begins so"},
			&cli.StringFlag{Name: "sender", DefaultText: "you", Usage: "`NAME` typed it, as the backend has found out"},
			&cli.BoolFlag{DisableDefaultText: true, Name: "json", Usage: "print JSON"},
		},
		OnUsageError: usageError,
		Action:       sayAction,
	}
}

func sayAction(c *cli.Context) error {
	line := strings.Join(c.Args().Slice(), " ")
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		list, err := broker.Sessions(ctx)
		switch {
		case err != nil:
			return err
		case line == "" && c.Bool("json"):
			return printJSON(os.Stdout, grants.SessionList{Sessions: append([]grants.OpenSession{}, list...)})
		case line == "":
			printOpenSessions(list)
			return nil
		}
		session, err := sessionFor(c, line, list)
		if err != nil {
			return err
		}
		said, err := broker.Say(ctx, session, grants.Saying{Text: line, Sender: c.String("sender")})
		switch {
		case err != nil:
			return err
		case !said.Understood:
			return &usage{"that is nothing to say to the gateway", "clai-sandbox say --help lists what is"}
		case c.Bool("json"):
			return printJSON(os.Stdout, said)
		}
		fmt.Println(oneLine(said.Text))
		return nil
	})
}

// sessionFor is the session that a line is about; empty: any.
func sessionFor(c *cli.Context, line string, list []grants.OpenSession) (string, error) {
	approves := strings.HasPrefix(strings.ToLower(strings.TrimPrefix(strings.TrimSpace(line), "/")), "approve")
	switch {
	case c.IsSet("session"):
		found, err := byPrefix(list, func(s grants.OpenSession) string { return s.ID }, c.String("session"), "session", "")
		if err != nil {
			return "", &usage{err.Error(), "clai-sandbox say lists those that are open"}
		}
		return found.ID, nil
	case approves && c.String("sender") == "":
		return "", nil
	case len(list) == 1:
		return list[0].ID, nil
	}
	return "", &usage{fmt.Sprintf("%d sessions are open, and it is about one", len(list)), "clai-sandbox say lists them, and --session ID names one"}
}

func printOpenSessions(list []grants.OpenSession) {
	for _, s := range list {
		what := cmp.Or(s.Command, "no command")
		if said := s.Overrides.String(); said != "" {
			what += "; " + said
		}
		fmt.Printf("%s  agent %s in %s: %s\n", s.ID, profile.Printable(s.Agent), profile.Printable(s.Workspace), oneLine(what))
	}
	if len(list) == 0 {
		fmt.Println("no session is open")
	}
}

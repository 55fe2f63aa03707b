package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/profile"
)

// eventsCommand shows what happens at the gateway.
func eventsCommand() *cli.Command {
	return &cli.Command{
		Name:  "events",
		Usage: "list what was asked for, decided and run lately, and with --follow as it happens",
		Description: "The gateway keeps some of it, in its memory, for every session; clai-sandbox audit has all of it, for good. Each event has a\n" +
			"number. A program that goes on where it stopped names the last one that it has seen with --after.",
		Flags: []cli.Flag{
			&cli.BoolFlag{DisableDefaultText: true, Name: "follow", Usage: "go on until interrupted, also when the gateway is started again"},
			&cli.StringFlag{Name: "session", DefaultText: "all", Usage: "of session `ID` only"},
			&cli.Int64Flag{Name: "after", DefaultText: "all that are kept", Usage: "begin behind the event with this `NUMBER`"},
			&cli.BoolFlag{DisableDefaultText: true, Name: "json", Usage: "print a line of JSON for each"},
		},
		OnUsageError: usageError,
		Action:       eventsAction,
	}
}

func eventsAction(c *cli.Context) error {
	if err := noArguments(c, "for one session: --session ID"); err != nil {
		return err
	}
	if c.Int64("after") < 0 {
		return &usage{"--after must be the number of an event", "clai-sandbox events shows them"}
	}
	from := grants.EventsFrom{Session: c.String("session"), Kept: true, After: c.Int64("after"), Ends: !c.Bool("follow")}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		for {
			events, err := broker.Events(ctx, from)
			if err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			for e := range events {
				from.After = max(from.After, e.ID)
				if c.Bool("json") {
					err = printJSON(os.Stdout, e)
				} else {
					_, err = fmt.Println(eventLine(e))
				}
				if err != nil {
					return err
				}
			}
			if from.Ends || ctx.Err() != nil {
				return nil
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	})
}

// eventLine is an event in a line.
func eventLine(e grants.Event) string {
	return fmt.Sprintf("%s %d %s", time.UnixMilli(e.AtUnixMs).Format("2006-01-02 15:04:05"), e.ID, oneLine(eventText(e)))
}

func eventText(e grants.Event) string {
	of := func(text string) string { return string(e.Kind) + " " + text }
	switch {
	case e.Run != nil && e.Run.Text != "":
		return strings.ReplaceAll(e.Run.Text, "\n", ": ")
	case e.Run != nil: // it wrote nothing, and did not fail
		return fmt.Sprintf("Exec finished (gateway id=%s, code 0)", e.Run.ID)
	case e.Request != nil && e.Outcome != "":
		return of(e.Request.ID + ": " + string(e.Outcome))
	case e.Request != nil && e.Request.Outside != nil:
		return of(fmt.Sprintf("%s: agent %s asks to run outside: %s", e.Request.ID, e.Request.Agent, e.Request.Outside.Text))
	case e.Request != nil && e.Request.Question != nil:
		return of(fmt.Sprintf("%s: agent %s asks you: %s", e.Request.ID, e.Request.Agent, e.Request.Question.Text))
	case e.Request != nil && e.Request.Domain != nil:
		return of(fmt.Sprintf("%s: agent %s asks to reach %s", e.Request.ID, e.Request.Agent, e.Request.Domain.To))
	case e.Request != nil:
		return of(fmt.Sprintf("%s: agent %s asks to %s %s", e.Request.ID, e.Request.Agent, e.Request.RequestedAccess.Verb(), profile.Printable(e.Request.RequestedPath)))
	case e.Grant != nil && e.Grant.Domain != "":
		return of(fmt.Sprintf("%s: agent %s, %s", e.Grant.ID, e.Grant.Agent, e.Grant.Domain))
	case e.Grant != nil:
		return of(fmt.Sprintf("%s: agent %s, %s %s", e.Grant.ID, e.Grant.Agent, profile.Printable(e.Grant.Path), e.Grant.Access))
	case e.Notice != nil:
		return of(e.Notice.Text)
	case e.Overrides != nil:
		return of(e.Session + ": " + cmp.Or(e.Overrides.String(), "nothing is said for it any more"))
	}
	return string(e.Kind)
}

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/cmd/delegated"
	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/sandbox"
)

// execCommand runs a command outside of any sandbox, where the policy of this host lets it.
func execCommand() *cli.Command {
	return &cli.Command{
		Name:      "exec",
		Usage:     "run a command on this host, outside of any sandbox, if its policy or a person lets it",
		ArgsUsage: "--host gateway -- COMMAND [ARGUMENT…]",
		Description: "One word is a line for a shell; several are a command that no shell reads. The command runs by an agent's rules: the\n" +
			"configuration (outside.security) and the approvals file say whether it runs, is denied, or waits for an answer, which you\n" +
			"give in another terminal, with clai-sandbox grants review. It has no input, and its outputs come when it has ended, at most\n" +
			"200000 bytes. Exits with the command's status; with 124 after --timeout; with 1 if it was denied, if nobody answered, or if it\n" +
			"could not be run.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "host", Usage: "run it on `gateway|node`: this machine, or another one, which is not available yet"},
			&cli.StringFlag{Name: "agent", Value: profile.DefaultAgent, DefaultText: profile.DefaultAgent, Usage: "by the rules of agent `NAME`"},
			delegated.CwdFlag(),
			&cli.StringFlag{Name: "security", DefaultText: "as configured", Usage: "`deny|allowlist|full`; it can only be stricter than what is configured"},
			&cli.StringFlag{Name: "ask", DefaultText: "as configured", Usage: "ask `always|on-miss|off`; it can only be stricter than what is configured"},
			&cli.StringFlag{Name: "reason", Usage: "tell whoever decides why: `TEXT`"},
			&cli.DurationFlag{Name: "timeout", DefaultText: "30m", Usage: "end the command after `DURATION`"},
			&cli.BoolFlag{DisableDefaultText: true, Name: "json", Usage: "print the answer as JSON, outputs in base64, in place of the outputs"},
		},
		OnUsageError: usageError,
		Action:       execAction,
	}
}

func execAction(c *cli.Context) error {
	words := c.Args().Slice()
	switch {
	case c.String("host") == "":
		return &usage{"exec wants to know where: --host gateway", "in a sandbox, a command is run by: clai-sandbox run -- COMMAND"}
	case c.String("host") == "sandbox":
		return &usage{"--host sandbox is what clai-sandbox run is for", "clai-sandbox run -- COMMAND"}
	case c.String("host") != "gateway":
		return &usage{fmt.Sprintf("--host %q is not available", c.String("host")), "there is gateway, which is this machine"}
	case len(words) == 0:
		return &usage{"no command given", "write it after --, for example: clai-sandbox exec --host gateway -- 'git status'"}
	case c.IsSet("timeout") && c.Duration("timeout") < time.Millisecond:
		return &usage{"--timeout must be longer than 0", "for example --timeout 10m"}
	}
	command := grants.Command{Argv: words, Agent: c.String("agent"), Security: c.String("security"), Ask: c.String("ask"), Reason: c.String("reason"), TimeoutMs: c.Duration("timeout").Milliseconds()}
	if len(words) == 1 {
		command.Line, command.Argv = words[0], nil
	}
	var err error
	if command.Cwd, err = filepath.Abs(c.String("cwd")); err == nil && !c.IsSet("cwd") {
		command.Cwd, err = filepath.EvalSymlinks(command.Cwd) // where we are, by its real name
	}
	if err != nil {
		return err
	}
	return withBroker(func(ctx context.Context, broker *client.Client) error {
		answer, err := client.WaitForCommand(ctx, broker, false, command, func() {
			fmt.Fprintln(os.Stderr, "clai-sandbox: it runs, or waits for an answer: clai-sandbox grants review, in another terminal")
		})
		var invalid *grants.InvalidError
		switch {
		case errors.As(err, &invalid):
			return &usage{err.Error(), "clai-sandbox exec --help lists the options"}
		case err != nil:
			return err
		case c.Bool("json"):
			if err := printJSON(os.Stdout, answer); err != nil {
				return err
			}
			return exit(client.CommandExit(answer))
		}
		status, err := client.PrintCommand(answer, os.Stdout, os.Stderr)
		if err != nil {
			return err
		}
		if !answer.Ran() {
			fmt.Fprintln(os.Stderr, "clai-sandbox: "+strings.TrimSpace(oneLine(client.CommandSentence(answer)))+afterDenial(answer, command))
		}
		if status == 0 {
			return nil
		}
		return exit(status)
	})
}

// afterDenial is what a person can do about a command that was denied.
func afterDenial(a grants.CommandAnswer, c grants.Command) string {
	if a.Status != grants.CommandDenied {
		return ""
	}
	agent := cmp.Or(c.Agent, profile.DefaultAgent)
	if strings.HasPrefix(a.Reason, "security=deny") && c.Security == "" {
		return "; to let an allowlist decide: clai-sandbox config set agents." + agent + ".execution.outside.security allowlist"
	}
	words := c.Argv
	if c.Line != "" {
		words = []string{c.Line}
	}
	line := "; what decided: clai-sandbox explain --host gateway --agent " + sandbox.Quote(agent) + " --"
	for _, word := range words {
		line += " " + sandbox.Quote(word)
	}
	return text.Line(line)
}

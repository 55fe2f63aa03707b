package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
)

// newApp defines the command line. Completions and man pages are made from it too.
func newApp() *cli.App {
	commands := []*cli.Command{runCommand(), grantsCommand(), quarantineCommand(), changesCommand(), explainCommand(), approvalsCommand(), mcpCommand(), doctorCommand(), gatewayCommand(), completionCommand()}
	for _, command := range commands {
		command.HideHelpCommand = true // or "run -- help" would be about us, and not run a command of that name
	}
	return &cli.App{
		Name:  "clai-sandbox",
		Usage: "run commands in a sandbox that shows them exactly what was granted",
		UsageText: "clai-sandbox run [options] -- COMMAND [ARGUMENT…]\n" +
			"clai-sandbox grants review|pending|allow|deny|list|add|revoke|narrow|confirm|log|request\n" +
			"clai-sandbox quarantine list|show|restore|discard\n" +
			"clai-sandbox changes review|list|show|diff|apply|discard\n" +
			"clai-sandbox explain [options] [--path PATH]\n" +
			"clai-sandbox explain --host gateway -- COMMAND [ARGUMENT…]\n" +
			"clai-sandbox approvals list|allow|deny|remove|test|get|set|edit\n" +
			"clai-sandbox mcp [options]\n" +
			"clai-sandbox doctor [--json]\n" +
			"clai-sandbox gateway [options]",
		Version:                   version,
		HideHelpCommand:           true,
		DisableSliceFlagSeparator: true, // a path may hold a comma
		Commands:                  commands,
		OnUsageError:              usageError,
		// Only after --help, which takes the words behind it for commands of ours.
		CommandNotFound: func(c *cli.Context, _ string) { _ = cli.ShowCommandHelp(c.Lineage()[1], c.Command.Name) },
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return &usage{fmt.Sprintf("unknown command %q", c.Args().First()), "clai-sandbox --help lists the commands"}
			}
			return cli.ShowAppHelp(c)
		},
		ExitErrHandler: func(*cli.Context, error) {}, // run maps errors to exit statuses
		Writer:         os.Stdout,
		ErrWriter:      io.Discard, // every error is told once, by statusOf
	}
}

func usageError(c *cli.Context, err error, _ bool) error {
	name := "clai-sandbox"
	if c.Command != nil && c.Command.Name != "" && c.Command.Name != name {
		name += " " + c.Command.Name
	}
	return &usage{strings.TrimPrefix(err.Error(), "flag provided but "), name + " --help lists the options"}
}

// noArguments refuses words that would mean nothing.
func noArguments(c *cli.Context, hint string) error {
	if c.Args().Present() {
		return &usage{fmt.Sprintf("%s takes no argument %q", c.Command.Name, c.Args().First()), hint}
	}
	return nil
}

// usage is a command line that cannot be understood.
type usage struct{ why, hint string }

func (u *usage) Error() string { return u.why }

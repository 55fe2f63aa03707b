package delegated

import (
	"github.com/urfave/cli/v2"
)

// Token is the command that gives containers what they ask with.
func Token(do Actions, usageError cli.OnUsageErrorFunc) *cli.Command {
	sub := func(name, usage, arguments, description string, flags ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: arguments, Description: description, Flags: flags,
			OnUsageError: usageError, HideHelpCommand: true, Action: do(name)}
	}
	return &cli.Command{
		Name:  "token",
		Usage: "let containers ask for commands on this host, by hostexec",
		Description: "A container with a token asks by POST /request, or with the program hostexec, for commands that the lists\n" +
			"of hostexec name, in the configuration of its agent. While there are tokens, the gateway does not end by itself.",
		OnUsageError:    usageError,
		HideHelpCommand: true,
		Action:          do(""),
		Subcommands: []*cli.Command{
			sub("create", "make a token, and print it: this once", "",
				"What a container needs is printed to standard error; the token alone goes to standard output.",
				agentFlag(), &cli.StringFlag{Name: "workspace", Value: ".", DefaultText: "the working directory", Usage: "for commands in `DIR` of the host's, and below it"},
				&cli.StringFlag{Name: "at", DefaultText: "the same", Usage: "which the container has at `DIR`"},
				&cli.StringFlag{Name: "project", Usage: "note `NAME` of the project in the record"}, &cli.StringFlag{Name: "branch", Usage: "note `NAME` of the branch in the record"}),
			sub("list", "list the tokens", "", "", jsonFlag()),
			sub("revoke", "take a token away, with what was asked for by it", "ID", "ID is as list shows it."),
		},
	}
}

package delegated

import (
	"github.com/urfave/cli/v2"
)

// Config is the command that shows and changes the person's configuration file.
func Config(do Actions, usageError cli.OnUsageErrorFunc) *cli.Command {
	sub := func(name, usage, arguments, description string, flags ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: arguments, Description: description, Flags: flags,
			OnUsageError: usageError, HideHelpCommand: true, Action: do(name)}
	}
	base := &cli.StringFlag{Name: "base-hash", Usage: "change it only if `HASH` is still that of the file"}
	return &cli.Command{
		Name:  "config",
		Usage: "show and change your configuration file",
		Description: "A change keeps what it does not name as it is written, comments too; it is made whole or not at all, and only if the file is\n" +
			"a configuration afterwards. KEY is as in agents.main.execution.sandbox; a part with a dot in it is written [\"a.b\"].",
		OnUsageError:    usageError,
		HideHelpCommand: true,
		Action:          do(""),
		Subcommands: []*cli.Command{
			sub("get", "print the file as JSON, with its hash, or what it has at KEY", "[KEY]", "Exits with 1 if it has nothing at KEY."),
			sub("set", "put a value at KEY", "KEY VALUE", "VALUE is JSON; text that is not JSON counts as a string: 2GiB is the same as '\"2GiB\"'. null takes the key away.", base),
			sub("patch", "merge a change into the file", "[FILE]",
				"FILE, or standard input, is a JSON merge patch (RFC 7396): what is null goes, objects are merged, all else is put in place.", base),
		},
	}
}

// Agents is the command that shows and changes which agents there are.
func Agents(do Actions, usageError cli.OnUsageErrorFunc) *cli.Command {
	sub := func(name, usage, arguments, description string, flags ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: arguments, Description: description, Flags: flags,
			OnUsageError: usageError, HideHelpCommand: true, Action: do(name)}
	}
	return &cli.Command{
		Name:            "agents",
		Usage:           "show, make and remove agents",
		Description:     "An agent is a name in your configuration file, with a workspace of its own, and settings that differ from the defaults.",
		OnUsageError:    usageError,
		HideHelpCommand: true,
		Action:          do(""),
		Subcommands: []*cli.Command{
			sub("list", "list the agents that are configured", "", "", jsonFlag()),
			sub("show", "show one agent: its entry, its workspace, and what is kept for it", "NAME", "", jsonFlag()),
			sub("create", "make an agent, with a workspace", "NAME",
				"NAME is what a person calls it; its name here is that in small letters, digits, \"_\" and \"-\". The workspace gets an IDENTITY.md\n"+
					"with what it is called. If something of an earlier agent of that name is left, none is made, as it would inherit that.",
				&cli.StringFlag{Name: "workspace", Usage: "let it work in `DIR`, which is made if it is not there (default: ~/.local/share/clai-sandbox/workspace-NAME)"},
				&cli.StringFlag{Name: "emoji", Usage: "write `TEXT` into its IDENTITY.md"},
				&cli.StringFlag{Name: "avatar", Usage: "write `TEXT` into its IDENTITY.md, a path or an address"},
				jsonFlag()),
			sub("remove", "take an agent out of the configuration", "NAME", "Its workspace stays.",
				&cli.BoolFlag{DisableDefaultText: true, Name: "purge", Usage: "remove its homes, its layers with what nobody applied, and its sandbox workspaces, too"}, jsonFlag()),
		},
	}
}

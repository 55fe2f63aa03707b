package delegated

import (
	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/profile"
)

// Changes is the command that shows what was changed copy on write, and brings it to the host.
func Changes(do Actions, usageError cli.OnUsageErrorFunc) *cli.Command {
	sub := func(name, usage, arguments, description string, flags ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: arguments, Description: description, Flags: flags,
			OnUsageError: usageError, HideHelpCommand: true, Action: do(name)}
	}
	agent := &cli.StringFlag{Name: "agent", Value: profile.DefaultAgent, DefaultText: profile.DefaultAgent, Usage: "take the layers of agent `NAME`"}
	dryRun := &cli.BoolFlag{DisableDefaultText: true, Name: "dry-run", Usage: "say what would become of each change, and do nothing"}
	return &cli.Command{
		Name:  "changes",
		Usage: "show what was changed copy on write, and bring it to the host or throw it away",
		Description: "What commands change in a directory that they see copy on write (--workspace-access cow, --grant DIR:cow) is kept in a layer.\n" +
			"LAYER is a name that list shows, or the directory; without one, or with . for it, it is that of the working directory. PATH is\n" +
			"as in the working directory, or in the layer's if that is elsewhere, with all that is below it. Exits with 1 if something was\n" +
			"left as it was.",
		OnUsageError:    usageError,
		HideHelpCommand: true,
		Action:          do(""),
		Subcommands: []*cli.Command{
			sub("list", "list the layers in which something was changed", "", "", &cli.BoolFlag{DisableDefaultText: true, Name: "all", Usage: "list tools' caches and empty layers, too"}, jsonFlag()),
			sub("show", "list the changes of a layer, what others execute first", "[LAYER]", "", agent, jsonFlag()),
			sub("review", "look through the changes of a layer, and apply or discard them one by one", "[LAYER]",
				"The screen shows the keys. It needs a terminal. What a command changed after it was shown is not applied.", agent),
			sub("diff", "show the lines that were changed", "[LAYER [PATH…]]", "At the end it prints a digest: apply --shown DIGEST applies what was shown, and nothing that a command changed since.", agent),
			sub("apply", "bring changes to the host, and take them out of the layer", "[LAYER [PATH…]]",
				"Each file is put in place in one step. What the host changed meanwhile is merged if it is text and both sides changed different\n"+
					"lines, and left as it is otherwise, unless --force names it: then it becomes what the commands made of it. If the apply is\n"+
					"interrupted, the next apply or discard finishes it. What a rule of the configuration never applies (changes.never) is left\n"+
					"in any case: whoever wants it changes the configuration.",
				agent, &cli.StringSliceFlag{Name: "force", KeepSpace: true, Usage: "apply `PATH` although the host changed it, with what is below it, and with setuid and setgid if it is a file; may be repeated"},
				&cli.StringSliceFlag{Name: "part", Usage: "apply only part `N` of the one PATH, as diff counts them; may be repeated"},
				&cli.StringFlag{Name: "shown", Usage: "apply only what diff showed when it printed `DIGEST`, and what nothing has changed since"},
				&cli.BoolFlag{DisableDefaultText: true, Name: "by-rules", Usage: "apply what the configuration's rules (changes.apply) have nobody asked about, and leave the rest"}, dryRun, jsonFlag()),
			sub("discard", "throw changes away", "[LAYER [PATH…]]", "Nothing of the host is touched. There is no way back.", agent, jsonFlag()),
		},
	}
}

package delegated

import (
	"github.com/urfave/cli/v2"
)

// Audit is the command that shows and checks the record of what was asked, decided and done.
func Audit(do Actions, usageError cli.OnUsageErrorFunc) *cli.Command {
	sub := func(name, usage, arguments, description string, flags ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: arguments, Description: description, Flags: flags,
			OnUsageError: usageError, HideHelpCommand: true, Action: do(name)}
	}
	since := &cli.DurationFlag{Name: "since", Usage: "show what is at most `DURATION` old"}
	agent := &cli.StringFlag{Name: "agent", Usage: "show only what agent `NAME` did"}
	key := &cli.StringFlag{Name: "key", Usage: "check signatures with `KEY`, as checkpoint printed it earlier, in place of the one beside the log"}
	return &cli.Command{
		Name:  "audit",
		Usage: "show the record of requests, decisions and runs, and prove that nothing was taken out of it",
		Description: "Each request, decision, run and grant is a line of audit.log in the state directory, and each line a leaf of a tree of hashes\n" +
			"whose root is signed. Whoever keeps a checkpoint elsewhere can tell if a line was changed or removed since.",
		OnUsageError:    usageError,
		HideHelpCommand: true,
		Action:          do(""),
		Subcommands: []*cli.Command{
			sub("list", "print the record, a line each, the oldest first", "", "", since, agent,
				&cli.BoolFlag{DisableDefaultText: true, Name: "json", Usage: "print JSON, one object a line, as it is in the file"}),
			sub("tail", "print the last lines, and with --follow what comes", "", "",
				&cli.IntFlag{Name: "lines", Aliases: []string{"n"}, Value: 20, Usage: "begin with the last `N` lines"},
				&cli.BoolFlag{DisableDefaultText: true, Name: "follow", Aliases: []string{"f"}, Usage: "go on until interrupted"}),
			sub("verify", "check that every line is the one that was signed", "[CHECKPOINT…]",
				"CHECKPOINT is a file that checkpoint wrote: what it has must be there still. A file from prove is checked by itself, and needs no\n"+
					"log. Exits with 1 if something does not fit.", key,
				&cli.BoolFlag{DisableDefaultText: true, Name: "partial", Usage: "take it that the oldest lines were put elsewhere"}, jsonFlag()),
			sub("checkpoint", "print what signatures are checked with, and the last signed checkpoint, to keep elsewhere", "",
				"The key is printed to standard error. Whoever acts as the log's user can write and sign another one:\n"+
					"only what was kept elsewhere shows that."),
			sub("prove", "print a proof that a line is in the log, or that the log of a checkpoint is its beginning", "LINE|CHECKPOINT",
				"LINE is a number, as list shows them. Anyone who has the key checks it by verify.", key),
			sub("export", "print the record for other programs", "", "", since, agent,
				&cli.StringFlag{Name: "format", Value: "jsonl", DefaultText: "jsonl", Usage: "print `jsonl|ocsf|text`; ocsf is the Open Cybersecurity Schema Framework 1.3"}),
		},
	}
}

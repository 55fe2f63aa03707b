package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// newApp defines the command line. Completions and man pages are made from it too.
func newApp() *cli.App {
	commands := []*cli.Command{runCommand(), shellCommand(), agentCommand(), execCommand(), grantsCommand(), quarantineCommand(), changesCommand(), imageCommand(), explainCommand(), learnCommand(), installAgentCommand(), approvalsCommand(), auditCommand(), sayCommand(), eventsCommand(), tokenCommand(), agentsCommand(), configCommand(), mcpCommand(), sessionsCommand(), doctorCommand(), gatewayCommand(), completionCommand(), helpCommand(), versionCommand()}
	for _, command := range commands {
		command.HideHelpCommand = true // or "run -- help" would be about us, and not run a command of that name
	}
	return &cli.App{
		Name:  "clai-sandbox",
		Usage: "run commands in a sandbox that shows them exactly what was granted",
		UsageText: "clai-sandbox run [options] -- COMMAND [ARGUMENT…]\n" +
			"clai-sandbox shell [options]\n" +
			"clai-sandbox agent NAME [options] [-- ARGUMENT…]\n" +
			"clai-sandbox install-agent NAME [--undo]\n" +
			"clai-sandbox exec --host gateway -- COMMAND [ARGUMENT…]\n" +
			"clai-sandbox grants review|pending|allow|answer|deny|list|add|revoke|narrow|confirm|log|request\n" +
			"clai-sandbox quarantine list|show|restore|discard\n" +
			"clai-sandbox changes review|list|show|diff|apply|discard\n" +
			"clai-sandbox image import|build-base|list|show|remove\n" +
			"clai-sandbox explain [options] [--path PATH]\n" +
			"clai-sandbox explain --host gateway -- COMMAND [ARGUMENT…]\n" +
			"clai-sandbox approvals list|allow|deny|remove|test|get|set|edit\n" +
			"clai-sandbox say [--session ID] TEXT\n" +
			"clai-sandbox events [--follow]\n" +
			"clai-sandbox agents list|show|create|remove\n" +
			"clai-sandbox config get|set|patch\n" +
			"clai-sandbox mcp [options]\n" +
			"clai-sandbox mcp wrap FILE [-- OPTION…]\n" +
			"clai-sandbox sessions list|show|stop|attach\n" +
			"clai-sandbox doctor [--repair] [--json]\n" +
			"clai-sandbox gateway [options]",
		Version:                   version,
		HideHelpCommand:           true,
		Flags:                     []cli.Flag{cli.HelpFlag}, // the library adds it only where no command is called help
		DisableSliceFlagSeparator: true,                     // a path may hold a comma
		Commands:                  commands,
		OnUsageError:              usageError,
		// Only after --help, which takes the words behind it for commands of ours.
		CommandNotFound: func(c *cli.Context, _ string) { _ = cli.ShowCommandHelp(c.Lineage()[1], c.Command.Name) },
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return unknownCommand(c)
			}
			return cli.ShowAppHelp(c)
		},
		ExitErrHandler: func(*cli.Context, error) {}, // run maps errors to exit statuses
		Writer:         os.Stdout,
		ErrWriter:      io.Discard, // every error is told once, by statusOf
	}
}

// unknownCommand says what was probably meant: another command of ours, or a program that was to
// run in a sandbox.
func unknownCommand(c *cli.Context) error {
	word := c.Args().First()
	e := &usage{"unknown command " + profile.Printable(word), "clai-sandbox --help lists the commands"}
	if meant := profile.Nearest(word, commandNames(c.App.Commands)); meant != "" {
		e.why += "; did you mean clai-sandbox " + meant + "?"
	} else if _, err := exec.LookPath(word); err == nil {
		e.hint = "to run it in a sandbox: clai-sandbox run -- " + sandbox.Quote(word)
	}
	return e
}

func commandNames(commands []*cli.Command) (names []string) {
	for _, command := range commands {
		names = append(names, command.Name)
	}
	return names
}

func helpCommand() *cli.Command {
	return &cli.Command{
		Name: "help", Usage: "show the help of a command, or what there is about a topic", ArgsUsage: "[COMMAND [SUBCOMMAND] | TOPIC]", OnUsageError: usageError,
		Action: func(c *cli.Context) error {
			app, commands := c.App, c.App.Commands
			if !c.Args().Present() {
				return cli.ShowAppHelp(c.Lineage()[1])
			}
			args := []string{app.Name}
			for _, word := range c.Args().Slice() {
				i := slices.IndexFunc(commands, func(command *cli.Command) bool { return command.HasName(word) })
				if i < 0 {
					if len(args) == 1 && tellAbout(app.Writer, commands, args, word, map[string]bool{}) {
						return nil
					}
					e := &usage{"no help about " + profile.Printable(word), strings.Join(args, " ") + " --help lists the commands"}
					if meant := profile.Nearest(word, commandNames(commands)); meant != "" {
						e.why += "; did you mean " + meant + "?"
					}
					return e
				}
				args, commands = append(args, word), commands[i].Subcommands
			}
			return newApp().Run(append(args, "--help"))
		},
	}
}

// tellAbout lists the commands and options that a topic is a word of, by name or by what is said
// about them: an option that several commands have once. It reports whether there are any.
func tellAbout(to io.Writer, commands []*cli.Command, path []string, topic string, told map[string]bool) bool {
	word, err := regexp.Compile(`(?i)(^|[^a-z])` + regexp.QuoteMeta(topic) + `([^a-z]|$)`)
	if err != nil {
		return false
	}
	found := false
	tell := func(name, usage string) {
		if word.MatchString(name+" "+usage) && !told[usage] {
			found, told[usage] = true, true
			fmt.Fprintf(to, "%s\n    %s\n", name, usage)
		}
	}
	for _, command := range commands {
		if command.Hidden {
			continue
		}
		name := strings.Join(append(slices.Clone(path), command.Name), " ")
		tell(name, command.Usage)
		for _, flag := range command.Flags {
			if f, ok := flag.(cli.DocGenerationFlag); ok {
				tell(name+" --"+flag.Names()[0], f.GetUsage())
			}
		}
		found = tellAbout(to, command.Subcommands, append(slices.Clone(path), command.Name), topic, told) || found
	}
	return found
}

func versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version", OnUsageError: usageError,
		Action: func(c *cli.Context) error {
			if err := noArguments(c, "it prints the version"); err != nil {
				return err
			}
			cli.ShowVersion(c)
			return nil
		},
	}
}

// usageError puts an error of the command line's parser into our words.
func usageError(c *cli.Context, err error, _ bool) error {
	name, flags := "clai-sandbox", c.App.Flags
	if c.Command != nil && c.Command.Name != "" && c.Command.Name != name {
		name, flags = c.Command.HelpName, c.Command.Flags
	}
	e := &usage{err.Error(), name + " --help lists the options"}
	option, unknown := strings.CutPrefix(e.why, "flag provided but not defined: -")
	if !unknown {
		return e
	}
	option = strings.TrimPrefix(option, "-")
	e.why = "unknown option --" + option
	if len(option) == 1 {
		e.why = "unknown option -" + option
	}
	if option == "c" {
		e.hint = "to run a shell's line: clai-sandbox run -- sh -c LINE"
	}
	var names []string
	for _, flag := range flags {
		names = append(names, flag.Names()...)
	}
	if meant := profile.Nearest(option, names); meant != "" {
		e.why += "; did you mean --" + meant + "?"
	} else if flags := runCommand().Flags; c.Command != nil && c.Command.Name != "run" && slices.ContainsFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), option) }) {
		e.hint = "it is an option of clai-sandbox run, and stands behind that word"
	}
	return e
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

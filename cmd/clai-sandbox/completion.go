package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"
)

// The library's own completion executes the program that it completes, and with it the action of
// `run`. The scripts here are written once, from the same definitions as the command line, and
// never execute it.

func completionCommand() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a completion script for bash, zsh or fish",
		ArgsUsage: "bash|zsh|fish",
		Description: "Load it where your shell starts: eval \"$(clai-sandbox completion bash)\" in ~/.bashrc, the same with zsh behind\n" +
			"compinit in ~/.zshrc, clai-sandbox completion fish | source in config.fish.",
		OnUsageError: usageError,
		Action: func(c *cli.Context) error {
			script := completionScript(c.App, c.Args().First())
			if script == "" || c.NArg() != 1 {
				return &usage{"completion for which shell?", "clai-sandbox completion bash, zsh or fish"}
			}
			_, err := io.WriteString(c.App.Writer, script)
			return err
		},
	}
}

// completionScript is what a shell reads to complete an app's command lines. It is empty for a
// shell that is not known.
func completionScript(app *cli.App, shell string) string {
	switch shell {
	case "bash":
		return bashCompletion(completedApp(app))
	case "zsh":
		return zshCompletion(completedApp(app))
	case "fish":
		return fishCompletion(completedApp(app))
	}
	return ""
}

// A completedCommand is a command as completion sees it. The program itself is one, with the
// commands below it.
type completedCommand struct {
	path     string // the words that lead to it: "" for the program, "run"
	name     string
	help     string
	options  []completedOption
	words    []string // what its one argument may be
	runs     bool     // its arguments are another command
	commands []completedCommand
}

type completedOption struct {
	name, help string
	value      optionValue
	repeats    bool
}

// An optionValue says what may stand behind an option. The zero value is nothing: a switch.
type optionValue struct {
	kind  valueKind
	words []string // of aWord; of aPath, what may be added to it
}

type valueKind uint8

const (
	noValue valueKind = iota
	anything
	aWord
	aDirectory
	aPath
	aVariable
)

func completedApp(app *cli.App) completedCommand {
	c := completedCommand{help: app.Usage, options: append(completedOptions(app.Flags), helpOption,
		completedOption{name: "version", help: "print the version"})}
	c.addCommands(app.Commands)
	return c
}

var helpOption = completedOption{name: "help", help: "show help"}

func (c *completedCommand) addCommands(commands []*cli.Command) {
	for _, command := range commands {
		sub := completedCommand{
			path: strings.TrimSpace(c.path + " " + command.Name), name: command.Name, help: command.Usage,
			options: append(completedOptions(command.Flags), helpOption),
			words:   alternatives(command.ArgsUsage),
			runs:    strings.Contains(command.ArgsUsage, "COMMAND"),
		}
		sub.addCommands(command.Subcommands)
		c.commands = append(c.commands, sub)
	}
}

// each calls f for a command and all below it.
func (c completedCommand) each(f func(completedCommand)) {
	f(c)
	for _, sub := range c.commands {
		sub.each(f)
	}
}

// completedOptions leaves out what the library adds while it runs.
func completedOptions(flags []cli.Flag) []completedOption {
	var list []completedOption
	for _, flag := range flags {
		if flag == cli.HelpFlag || flag == cli.VersionFlag {
			continue
		}
		doc := flag.(cli.DocGenerationFlag)
		o := completedOption{name: flag.Names()[0], help: strings.ReplaceAll(doc.GetUsage(), "`", "")}
		if doc.TakesValue() {
			o.value = valueIn(doc.GetUsage())
		}
		if slice, ok := flag.(cli.DocGenerationSliceFlag); ok {
			o.repeats = slice.IsSliceFlag()
		}
		list = append(list, o)
	}
	return list
}

// valueIn reads what may stand behind an option from its help: between backquotes is the name of
// its value.
func valueIn(help string) optionValue {
	_, rest, _ := strings.Cut(help, "`")
	name, rest, _ := strings.Cut(rest, "`")
	switch name {
	case "DIR":
		return optionValue{kind: aDirectory}
	case "FILE":
		return optionValue{kind: aPath}
	case "PATH":
		suffixes, _, _ := strings.Cut(strings.TrimPrefix(rest, "["), "]")
		if suffixes == rest { // nothing in brackets
			return optionValue{kind: aPath}
		}
		return optionValue{aPath, alternatives(suffixes)}
	case "VARIABLE":
		return optionValue{kind: aVariable}
	}
	if words := alternatives(name); words != nil {
		return optionValue{aWord, words}
	}
	return optionValue{kind: anything}
}

// alternatives are the words of "a|b|c", and none where there is no choice.
func alternatives(text string) []string {
	if !strings.Contains(text, "|") {
		return nil
	}
	return strings.Split(text, "|")
}

// lines writes a template of a script: each %s that it holds is a list of lines.
func lines(template string, parts ...[]string) string {
	texts := make([]any, len(parts))
	for i, part := range parts {
		texts[i] = strings.Join(part, "\n")
	}
	return fmt.Sprintf(template, texts...)
}

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/preset"
)

func mcpWrapCommand() *cli.Command {
	return &cli.Command{
		Name: "wrap", Usage: "have each server of a client's file, such as mcp.json, start in a sandbox of its own", ArgsUsage: "FILE [-- OPTION…]",
		Description: "Prints the new file. A server that was started as a program is started by clai-sandbox run, with the options that stand behind --, and\n" +
			"with the variables that the file gives it. A server that is reached by an address stays as it is, and is told. What clai-sandbox itself\n" +
			"would obey, such as a directory or another configuration, the file cannot choose.",
		Flags: []cli.Flag{
			&cli.BoolFlag{DisableDefaultText: true, Name: "write", Usage: "write the file in place, as a whole, and keep what it was as FILE.before-sandbox"},
		},
		OnUsageError: usageError, HideHelpCommand: true, Action: mcpWrapAction,
	}
}

func mcpWrapAction(c *cli.Context) error {
	words := c.Args().Slice()
	if len(words) == 0 {
		return &usage{"which file?", "for example: clai-sandbox mcp wrap .mcp.json -- --network disabled"}
	}
	options := words[1:]
	if len(options) > 0 {
		if options[0] != "--" {
			return &usage{"what is " + profile.Printable(options[0]) + "?", "options of clai-sandbox run stand behind --"}
		}
		options = options[1:]
	}
	if err := checkRunOptions(options); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	file, err := settled(words[0])
	if err != nil {
		return err
	}
	text, err := readSettings(file)
	if err == nil && text == nil {
		err = &usage{profile.Printable(words[0]) + " is not there", "name the file in which a client has its servers"}
	}
	if err != nil {
		return err
	}
	how := preset.Wrapping{Program: filepath.Clean(program), Options: options, IsProgram: func(command string) bool { return isProgram(command, program) }}
	wrapped, servers, err := preset.WrapServers(words[0], text, how)
	if err != nil {
		return err
	}
	for _, s := range servers {
		if s.Why != "" {
			fmt.Fprintf(os.Stderr, "clai-sandbox: %s stays: %s\n", profile.Printable(s.Name), s.Why)
		}
	}
	if !c.Bool("write") {
		_, err = os.Stdout.Write(wrapped)
		return err
	}
	if string(wrapped) == string(text) {
		return nil
	}
	if err := writeSettings(file+".before-sandbox", nil, text, 0o600); err != nil {
		return &usage{"what the file was cannot be kept as " + profile.Printable(file+".before-sandbox") + ": " + err.Error(), "move that away"}
	}
	return writeSettings(file, text, wrapped, 0o600)
}

// isProgram reports whether a command of a file is this program: by its whole path, or as what PATH
// finds under its name.
func isProgram(command, program string) bool {
	if filepath.Base(command) != command {
		return command == filepath.Clean(program)
	}
	found, err := exec.LookPath(command)
	if err != nil {
		return false
	}
	named, err1 := os.Stat(found)
	own, err2 := os.Stat(program)
	return err1 == nil && err2 == nil && os.SameFile(named, own)
}

// checkRunOptions refuses what clai-sandbox run would.
func checkRunOptions(options []string) error {
	command := runCommand()
	command.Before, command.Action = nil, func(c *cli.Context) error {
		if words := c.Args().Slice(); len(words) != 1 {
			return &usage{"what is " + profile.Printable(words[0]) + "?", "behind -- stand options of clai-sandbox run alone"}
		}
		return nil
	}
	app := newApp()
	app.Commands = []*cli.Command{command}
	return app.Run(append(append([]string{app.Name, command.Name}, options...), "--", "true"))
}

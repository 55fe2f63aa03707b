package main

import (
	_ "embed"
	"fmt"

	"github.com/urfave/cli/v2"
)

func completionCommand() *cli.Command {
	return &cli.Command{
		Name:         "completion",
		Usage:        "print a completion script for bash, zsh or fish",
		ArgsUsage:    "bash|zsh|fish",
		OnUsageError: usageError,
		Action: func(c *cli.Context) error {
			script, known := completionScripts(c.App)[c.Args().First()]
			if !known || c.NArg() != 1 {
				return &usage{"completion for which shell?", "clai-sandbox completion bash, zsh or fish"}
			}
			fmt.Print(script)
			return nil
		},
	}
}

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/sandbox"
)

func runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run a command in a sandbox",
		ArgsUsage: "-- COMMAND [ARGUMENT…]",
		Description: "The command sees the system read-only, the workspace read-write, and what was granted; nothing else of the\n" +
			"machine. Its standard streams are the caller's. The exit status is the command's own, 128+N if signal N ended it,\n" +
			"124 after --timeout, 125 if nothing was run, 126 if the command cannot be executed, 127 if it was not found.",
		Flags: append(profileFlags(),
			&cli.BoolFlag{DisableDefaultText: true, Name: "json", Usage: "print one JSON object about the run on standard output, after the command's own output"},
			&cli.IntFlag{Name: "json-fd", Usage: "print that object on the descriptor `N` instead", DefaultText: "none"},
			&cli.BoolFlag{DisableDefaultText: true, Name: "dry-run", Usage: "print a shell command line that sets up the same mounts, and run nothing"},
		),
		OnUsageError: usageError,
		Action:       runAction,
	}
}

func runAction(c *cli.Context) error {
	report, err := reportFile(c)
	if err != nil {
		return err
	}
	if c.Bool("dry-run") {
		return dryRun(c)
	}
	result, err := runSandboxed(c)
	switch {
	case report != nil:
		if err := printJSON(report, newRunResult(err, result)); err != nil {
			return err
		}
		return exit(statusAfter(err, result))
	case err != nil:
		return err
	}
	warn(result.Notices)
	return exit(statusAfter(nil, result))
}

// runSandboxed runs the command of the command line. The error means that nothing was run.
func runSandboxed(c *cli.Context) (sandbox.Result, error) {
	command, err := commandFrom(c)
	if err != nil {
		return sandbox.Result{}, err
	}
	j, err := prepare(c)
	if err != nil {
		return sandbox.Result{}, err
	}
	bwrap, err := j.bwrap()
	if err != nil {
		return sandbox.Result{}, err
	}
	launcher := sandbox.Launcher{Bwrap: bwrap, State: j.directories.State, Terminal: sandbox.ControlsTerminal(os.Stdin, os.Stdout, os.Stderr)}
	launcher.Relay = relayedSignals(launcher.Terminal)
	return launcher.Run(context.Background(), j.plan, command, sandbox.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
}

// relayedSignals are those that the command gets from us. Those of a terminal it gets from the terminal.
func relayedSignals(terminal bool) []os.Signal {
	list := []os.Signal{syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2}
	if !terminal {
		list = append(list, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP)
	}
	return slices.DeleteFunc(list, signal.Ignored)
}

func dryRun(c *cli.Context) error {
	command, err := commandFrom(c)
	if err != nil {
		return err
	}
	j, err := prepare(c)
	if err != nil {
		return err
	}
	bwrap, err := j.bwrap()
	if err != nil {
		return err
	}
	fmt.Println(j.plan.ShellCommand(bwrap, command))
	warn(j.plan.Notices)
	return nil
}

func commandFrom(c *cli.Context) ([]string, error) {
	command := c.Args().Slice()
	if len(command) == 0 {
		return nil, &usage{"no command given", "write it after --, for example: clai-sandbox run -- ls -l"}
	}
	return command, nil
}

// statusAfter is the exit status of a run.
func statusAfter(err error, result sandbox.Result) int {
	switch {
	case err != nil:
		return statusFor(err)
	case result.Outcome == sandbox.TimedOut:
		return statusTimeout
	default:
		return result.ExitCode
	}
}

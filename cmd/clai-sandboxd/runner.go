package main

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/outside/runner"
	"github.com/clairun/clai-sandbox/profile"
)

// runnerMode is what the gateway starts, to run commands outside of any sandbox.
const runnerMode = "runner"

func runnerCommand() *cli.Command {
	return &cli.Command{Name: runnerMode, Hidden: true, HideHelpCommand: true,
		Flags: []cli.Flag{&cli.IntFlag{Name: "umask", Value: 0o022}}, // the person's: the gateway's own lets nobody else read
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return fmt.Errorf("runner takes no argument %q", c.Args().First())
			}
			caller, err := profile.CurrentCaller()
			if err != nil {
				return err
			}
			syscall.Umask(c.Int("umask"))
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
			defer stop()
			return runner.Main(ctx, caller)
		}}
}

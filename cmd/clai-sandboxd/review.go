package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/grants/review"
	"github.com/clairun/clai-sandbox/profile"
)

// reviewAction is grants review, which clai-sandbox hands over: its screen is too heavy for a start
// of the command.
func reviewAction(c *cli.Context) error {
	if c.Args().Present() {
		return &misuse{"grants review takes no argument", "clai-sandbox grants review --help"}
	}
	caller, err := profile.CurrentCaller()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	return review.Run(ctx, client.Default(caller.Directories()), os.Stdin, os.Stdout)
}

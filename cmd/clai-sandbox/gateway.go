package main

import (
	"fmt"
	"os"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/grants/client"
)

// gatewayCommand becomes clai-sandboxd, which links what this command must not.
func gatewayCommand() *cli.Command {
	return &cli.Command{
		Name:      "gateway",
		Usage:     "hold what agents ask until a person answers",
		ArgsUsage: "[--idle DURATION] [--timeout DURATION] [--no-notify] [--containers ADDRESS:PORT]",
		Description: "Owns the database of path grants, and listens on a unix socket that only its user reaches. Nobody has to start it: systemd\n" +
			"or the command that needs it does, and it ends by itself. clai-sandboxd, which is installed beside this command, does the work.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "idle", DefaultText: "10m", Usage: "end after `DURATION` without use; 0 for never"},
			&cli.DurationFlag{Name: "timeout", DefaultText: "5m", Usage: "end a request that nobody answers after `DURATION`"},
			&cli.BoolFlag{DisableDefaultText: true, Name: "no-notify", Usage: "show no notifications on the desktop, where there is one"},
			&cli.StringFlag{Name: "containers", Usage: "answer containers on `ADDRESS:PORT`, too, as 127.0.0.1:9998; without it only on a socket (clai-sandbox token --help)"},
		},
		OnUsageError: usageError,
		Action:       gatewayAction,
	}
}

func gatewayAction(c *cli.Context) error {
	if err := noArguments(c, "clai-sandbox gateway --help lists the options"); err != nil {
		return err
	}
	program, err := client.Beside("clai-sandboxd")
	if err != nil {
		return err
	}
	args := []string{program, "gateway"}
	for _, name := range []string{"idle", "timeout"} {
		if c.IsSet(name) {
			args = append(args, "--"+name+"="+c.Duration(name).String())
		}
	}
	if c.IsSet("containers") {
		args = append(args, "--containers="+c.String("containers"))
	}
	if c.Bool("no-notify") {
		args = append(args, "--no-notify")
	}
	return fmt.Errorf("%s: %w", program, syscall.Exec(program, args, os.Environ()))
}

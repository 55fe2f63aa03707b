package main

import (
	"fmt"
	"os"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/cmd/hosted"
	"github.com/clairun/clai-sandbox/grants/client"
)

// What decides about commands outside the sandbox is too heavy to be part of every start. Another program does it, which lies
// beside this one; daemonVariable names another than that.
const daemonVariable = "CLAI_SANDBOX_DAEMON"

func approvalsCommand() *cli.Command {
	return hosted.Approvals(func(string) cli.ActionFunc {
		return func(c *cli.Context) error { return handOver(hosted.OptionsFirst(c.App, os.Args, "approvals")[1:]) }
	}, usageError)
}

func mcpCommand() *cli.Command {
	return hosted.MCP(func(*cli.Context) error { return handOver(os.Args[1:]) }, usageError)
}

// handOver executes the other program in this one's place.
func handOver(args []string) error {
	path := os.Getenv(daemonVariable)
	if path == "" {
		var err error
		if path, err = client.Beside(hosted.Program); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: %w", path, syscall.Exec(path, append([]string{hosted.Program}, args...), os.Environ()))
}

// explainOutside is explain for a command that leaves the sandbox.
func explainOutside(c *cli.Context) error {
	for _, name := range c.LocalFlagNames() {
		switch name {
		case "host", "agent", "cwd", "json":
		default:
			return &usage{fmt.Sprintf("--%s says nothing about a command outside the sandbox", name), "with --host, explain takes --agent, --cwd and --json"}
		}
	}
	args := []string{"explain", "--host=" + c.String("host"), "--agent=" + c.String("agent")}
	if c.IsSet("cwd") {
		args = append(args, "--cwd="+c.String("cwd"))
	}
	if c.Bool("json") {
		args = append(args, "--json")
	}
	return handOver(append(append(args, "--"), c.Args().Slice()...))
}

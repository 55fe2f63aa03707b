package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/cmd/hosted"
)

// What decides about commands outside the sandbox is too heavy to be part of every start. Another program does it, which lies
// beside this one; daemonVariable names another than that.
const daemonVariable = "CLAI_SANDBOX_DAEMON"

func approvalsCommand() *cli.Command {
	return hosted.Approvals(func(string) cli.ActionFunc { return func(*cli.Context) error { return handOver(os.Args[1:]) } }, usageError)
}

// handOver executes the other program in this one's place.
func handOver(args []string) error {
	path := os.Getenv(daemonVariable)
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		path = filepath.Join(filepath.Dir(self), hosted.Program)
	}
	err := syscall.Exec(path, append([]string{hosted.Program}, args...), os.Environ())
	if errors.Is(err, os.ErrNotExist) {
		return &usage{fmt.Sprintf("%s is not beside this program", hosted.Program), "install both; it was looked for as " + path}
	}
	return fmt.Errorf("%s: %w", path, err)
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

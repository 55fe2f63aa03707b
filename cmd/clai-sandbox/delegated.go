package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/cmd/delegated"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/profile"
)

// What decides about commands outside the sandbox is too heavy to be part of every start. Another
// program does it, which lies beside this one; daemonVariable names another than that.
const daemonVariable = profile.DaemonVariable

func approvalsCommand() *cli.Command {
	return delegated.Approvals(func(string) cli.ActionFunc {
		return func(c *cli.Context) error { return handOver(delegated.OptionsFirst(c.App, os.Args, "approvals")[1:]) }
	}, usageError)
}

func changesCommand() *cli.Command {
	return delegated.Changes(func(string) cli.ActionFunc {
		return func(c *cli.Context) error { return handOver(delegated.OptionsFirst(c.App, os.Args, "changes")[1:]) }
	}, usageError)
}

func configCommand() *cli.Command {
	return delegated.Config(func(string) cli.ActionFunc {
		return func(c *cli.Context) error { return handOver(delegated.OptionsFirst(c.App, os.Args, "config")[1:]) }
	}, usageError)
}

func agentsCommand() *cli.Command {
	return delegated.Agents(func(string) cli.ActionFunc {
		return func(c *cli.Context) error { return handOver(delegated.OptionsFirst(c.App, os.Args, "agents")[1:]) }
	}, usageError)
}

func auditCommand() *cli.Command {
	return delegated.Audit(func(string) cli.ActionFunc {
		return func(c *cli.Context) error { return handOver(delegated.OptionsFirst(c.App, os.Args, "audit")[1:]) }
	}, usageError)
}

func tokenCommand() *cli.Command {
	return delegated.Token(func(string) cli.ActionFunc {
		return func(c *cli.Context) error { return handOver(delegated.OptionsFirst(c.App, os.Args, "token")[1:]) }
	}, usageError)
}

func imageCommand() *cli.Command {
	return delegated.Image(func(string) cli.ActionFunc {
		return func(c *cli.Context) error { return handOver(delegated.OptionsFirst(c.App, os.Args, "image")[1:]) }
	}, usageError)
}

func mcpCommand() *cli.Command {
	command := delegated.MCP(func(*cli.Context) error { return handOver(os.Args[1:]) }, usageError)
	command.Subcommands = []*cli.Command{mcpWrapCommand()}
	return command
}

// handOver executes the other program in this one's place.
func handOver(args []string) error {
	path, err := daemonPath()
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", path, syscall.Exec(path, append([]string{delegated.Program}, args...), os.Environ()))
}

// explainOutside is explain for what the other program knows: commands that leave the sandbox, and
// tools.
func explainOutside(c *cli.Context) error {
	asks := []string{}
	for _, name := range []string{"host", "tools", "hostexec"} {
		if c.IsSet(name) {
			asks = append(asks, name)
		}
	}
	if len(asks) > 1 {
		return &usage{"--" + asks[0] + " and --" + asks[1] + " are two questions", "ask one at a time"}
	}
	takes := map[string][]string{"host": {"agent", "cwd", "json"}, "tools": {"agent", "json"}, "hostexec": {"agent", "json"}}[asks[0]]
	for _, name := range c.LocalFlagNames() {
		if name != asks[0] && !slices.Contains(takes, name) {
			return &usage{fmt.Sprintf("--%s says nothing with --%s", name, asks[0]), "with --" + asks[0] + ", explain takes --" + strings.Join(takes, ", --")}
		}
	}
	agent := "--agent=" + c.String("agent")
	args := []string{"explain", agent}
	switch asks[0] {
	case "host":
		args = []string{"explain", "--host=" + c.String("host"), agent}
		if c.IsSet("cwd") {
			args = append(args, "--cwd="+c.String("cwd"))
		}
	case "tools":
		if err := noArguments(c, "it answers for all tools"); err != nil {
			return err
		}
		args = append(args, "--tools")
	case "hostexec":
		args = append(args, "--hostexec")
	}
	if c.Bool("json") {
		args = append(args, "--json")
	}
	return handOver(append(append(args, "--"), c.Args().Slice()...))
}

// sshAgent is the other program as what serves a sandbox's ssh-agent.
func sshAgent() ([]string, error) {
	path, err := daemonPath()
	return []string{path, delegated.SSHAgent}, err
}

// daemonPath is where the other program lies.
func daemonPath() (string, error) {
	if path := os.Getenv(daemonVariable); path != "" {
		return path, nil
	}
	return client.Beside(delegated.Program)
}

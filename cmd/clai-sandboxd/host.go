package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/policy/host"
	"github.com/clairun/clai-sandbox/profile"
)

// newHost is this machine, for an agent.
func newHost(agent string) (host.Host, error) {
	caller, err := profile.CurrentCaller()
	if err != nil {
		return host.Host{}, err
	}
	return host.Load(caller, os.Getenv("PATH"), agent)
}

// requestFrom is the command behind "--": one word is a line for a shell, several are words.
func requestFrom(c *cli.Context) (policy.Request, error) {
	words := c.Args().Slice()
	if len(words) == 0 {
		return policy.Request{}, &misuse{"no command given", "write it after --, for example: clai-sandbox " + typed(c) + " -- 'ls -l | wc'"}
	}
	cwd := c.String("cwd")
	if cwd == "" {
		cwd = "."
	}
	cwd, err := filepath.Abs(cwd)
	if err == nil && !c.IsSet("cwd") {
		cwd, err = filepath.EvalSymlinks(cwd) // where we are, by its real name
	}
	if err != nil {
		return policy.Request{}, err
	}
	r := policy.Request{Cwd: cwd, Agent: c.String("agent")}
	if len(words) == 1 {
		r.Command = words[0]
	} else {
		r.Argv = words
	}
	return r, nil
}

// typed is the command as people type it.
func typed(c *cli.Context) string { return strings.TrimPrefix(c.Command.HelpName, "clai-sandbox ") }

package main

import (
	"context"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "check what this host needs for sandboxing, and say how to mend it",
		Description: "It runs a real sandbox with the options of a real run. The exit status is 0 if this host can sandbox, 1 if it\n" +
			"cannot. What is only weaker than it could be is told, and does not count.",
		Flags:        []cli.Flag{&cli.BoolFlag{DisableDefaultText: true, Name: "json", Usage: "print JSON"}},
		OnUsageError: usageError,
		Action:       doctorAction,
	}
}

// examination is what doctor prints.
type examination struct {
	OK     bool            `json:"ok" jsonschema:"whether this host can sandbox"`
	Checks []sandbox.Check `json:"checks" jsonschema:"what that was found out from"`
}

func doctorAction(c *cli.Context) error {
	if err := noArguments(c, "clai-sandbox doctor --help lists the options"); err != nil {
		return err
	}
	e, err := examine()
	if err != nil {
		return err
	}
	if c.Bool("json") {
		if err := printJSON(os.Stdout, e); err != nil {
			return err
		}
	} else {
		e.print()
	}
	if !e.OK {
		return exit(1)
	}
	return nil
}

// examine checks the configuration, and then everything that a run with it needs. The workspace is an empty directory of
// its own: the caller's may be one that a run would refuse.
func examine() (examination, error) {
	caller, err := profile.CurrentCaller()
	if err != nil {
		return examination{}, err
	}
	workspace, err := os.MkdirTemp("", "clai-sandbox-doctor-")
	if err != nil {
		return examination{}, err
	}
	defer os.Remove(workspace)

	configuration := sandbox.Check{Name: "configuration", State: sandbox.CheckOK, Found: "valid"}
	config, err := profile.Load(caller.Directories())
	if err != nil {
		configuration.State, configuration.Found = sandbox.CheckBad, err.Error()
		config = &profile.Config{}
	}
	resolved, err := profile.Resolve(config, caller, profile.Request{Workspace: workspace})
	if err != nil {
		return examination{}, err
	}
	plan, err := sandbox.Build(resolved, sandbox.Host{})
	if err != nil {
		return examination{}, err
	}
	bwrap, err := sandbox.FindBwrap(os.Getenv(bwrapVariable), "")
	e := examination{OK: true, Checks: []sandbox.Check{configuration}}
	e.Checks = append(e.Checks, sandbox.Examine(context.Background(), plan, bwrap, err)...)
	for _, check := range e.Checks {
		e.OK = e.OK && check.State != sandbox.CheckBad
	}
	return e, nil
}

func (e examination) print() {
	for _, check := range e.Checks {
		fmt.Printf("%-4s  %s: %s\n", check.State, check.Name, oneLine(check.Found))
		if check.Mend != "" {
			fmt.Printf("      mend: %s\n", oneLine(check.Mend))
		}
	}
	if e.OK {
		fmt.Println("\nThis host can sandbox.")
	} else {
		fmt.Println("\nThis host cannot sandbox. Nothing will be run without a sandbox.")
	}
}

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "check what this host needs for sandboxing, and say how to mend it",
		Description: "It runs a real sandbox with the options of a real run. The exit status is 0 if this host can sandbox, 1 if it\n" +
			"cannot. It also prints what is only weaker than it could be, which does not count, and known mistakes in your configuration\n" +
			"file, with what mends them; --repair mends them, and keeps the file as it was beside the new one.",
		Flags: []cli.Flag{
			&cli.BoolFlag{DisableDefaultText: true, Name: "repair", Usage: "mend known mistakes in your configuration file first"},
			&cli.BoolFlag{DisableDefaultText: true, Name: "json", Usage: "print JSON"}},
		OnUsageError: usageError,
		Action:       doctorAction,
	}
}

// examination is what doctor prints.
type examination struct {
	OK     bool            `json:"ok" jsonschema:"whether this host can sandbox"`
	Checks []sandbox.Check `json:"checks" jsonschema:"what that was found out from"`
	// Repaired is what --repair did, and Backup the file as it was before.
	Repaired []profile.Repair `json:"repaired,omitempty" jsonschema:"of --repair: what was mended"`
	Backup   string           `json:"backup,omitempty" jsonschema:"of --repair: the file as it was before"`
}

func doctorAction(c *cli.Context) error {
	if err := noArguments(c, "clai-sandbox doctor --help lists the options"); err != nil {
		return err
	}
	var repaired []profile.Repair
	backup := ""
	if c.Bool("repair") {
		caller, err := profile.CurrentCaller()
		if err == nil {
			repaired, backup, err = profile.RepairConfig(caller.Directories(), time.Now())
		}
		if err != nil {
			return err
		}
	}
	e, err := examine()
	if err != nil {
		return err
	}
	e.Repaired, e.Backup = repaired, backup
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

// examine checks the configuration, and then everything that a run with it needs. The workspace is
// an empty directory of its own: the caller's may be one that a run would refuse.
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
	resolved, err := profile.Resolve(config, caller, profile.Request{Workspace: workspace, Image: profile.HostImage})
	if err != nil {
		return examination{}, err
	}
	plan, err := sandbox.Build(resolved, sandbox.Host{})
	if err != nil {
		return examination{}, err
	}
	bwrap, err := sandbox.FindBwrap(os.Getenv(profile.BwrapVariable), caller.Directories().State)
	e := examination{OK: true, Checks: append([]sandbox.Check{configuration}, append(mistakes(caller.Directories()), checkImage(config, caller, workspace)...)...)}
	e.Checks = append(e.Checks, sandbox.Examine(context.Background(), plan, bwrap, err)...)
	for _, check := range e.Checks {
		e.OK = e.OK && check.State != sandbox.CheckBad
	}
	return e, nil
}

// mistakes are those in the person's file that --repair mends.
func mistakes(d profile.Directories) (checks []sandbox.Check) {
	text, err := profile.ReadConfigText(d)
	if err != nil {
		return nil // the configuration's check tells, or it is one that this program does not write
	}
	list, repaired := text.Repairs()
	before := ""
	if other := (profile.ConfigText{Path: text.Path, Text: repaired}).Check(); other != nil { // with which nothing is written
		before = "mend by hand what is wrong beside it (" + oneLine(other.Error()) + "); then "
	}
	for _, r := range list {
		checks = append(checks, sandbox.Check{Name: "configuration", State: sandbox.CheckWeak, Found: r.Key + ": " + r.Wrong,
			Mend: before + "clai-sandbox doctor --repair " + r.Mend})
	}
	return checks
}

// checkImage looks at the image that the configuration has, if it has one.
func checkImage(config *profile.Config, caller profile.Caller, workspace string) []sandbox.Check {
	resolved, err := profile.Resolve(config, caller, profile.Request{Workspace: workspace})
	if err != nil || resolved.Image == "" {
		return nil
	}
	c := sandbox.Check{Name: "image", State: sandbox.CheckOK, Found: resolved.Image + " stands in place of the host's system"}
	if _, err := sandbox.Build(resolved, sandbox.Host{}); err != nil {
		c.State, c.Found, c.Mend = sandbox.CheckBad, err.Error(), hintOf(err)
	}
	return []sandbox.Check{c}
}

func (e examination) print() {
	for _, r := range e.Repaired {
		fmt.Printf("mended %s: %s: %s\n", oneLine(r.Key), oneLine(r.Wrong), oneLine(r.Mend))
	}
	if e.Backup != "" {
		fmt.Printf("the file as it was: %s\n\n", oneLine(e.Backup))
	}
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

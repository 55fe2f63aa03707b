package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/policy"
)

// explainAction shows how a decision about a command outside the sandbox comes about.
func explainAction(c *cli.Context) error {
	switch {
	case c.Bool("tools"):
		return explainTools(c)
	case c.Bool("hostexec"):
		return explainHostExec(c)
	}
	on, ok := policy.ParseHost(c.String("host"))
	if !ok || on == policy.HostSandbox {
		return &misuse{fmt.Sprintf("--host %q is neither gateway nor node", c.String("host")), "without --host, explain is about a sandbox"}
	}
	d, err := decide(c, on)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(d)
	}
	fmt.Println(strings.Join(d.Lines(), "\n"))
	fmt.Println(summary(d))
	return nil
}

// testAction does the same, with the parts of the command first, and answers with its exit status.
func testAction(c *cli.Context) error {
	d, err := decide(c, policy.HostGateway)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		if err := printJSON(d); err != nil {
			return err
		}
	} else {
		printCommands(d)
		fmt.Println(summary(d))
	}
	switch d.Verdict {
	case policy.Run:
		return nil
	case policy.AskPerson:
		return exit(1)
	default:
		return exit(2)
	}
}

func decide(c *cli.Context, on policy.Host) (policy.Decision, error) {
	h, err := newHost(c.String("agent"))
	if err != nil {
		return policy.Decision{}, err
	}
	r, err := requestFrom(c)
	if err != nil {
		return policy.Decision{}, err
	}
	d := h.Policy(policy.Layers{Session: policy.Preference{Host: &on, Source: "as asked"}}).Decide(r)
	if h.Outside.Security == "" {
		d.Why = append(d.Why, policy.Step{About: "hint", Text: "nothing runs outside the sandbox until the configuration sets outside.security to allowlist or full"})
	}
	return d, nil
}

// summary is the last line: the verdict, why, and what then.
func summary(d policy.Decision) string {
	switch d.Verdict {
	case policy.Run:
		return "it would run"
	case policy.AskPerson:
		return fmt.Sprintf("a person would be asked (%s)", d.Reason)
	default:
		return fmt.Sprintf("it would be denied (%s)", d.Reason)
	}
}

// printCommands shows a command part by part: as it was written, what would run, and why or why
// not.
func printCommands(d policy.Decision) {
	if d.Result == nil {
		fmt.Println(strings.Join(d.Lines(), "\n"))
		return
	}
	if d.Result.Refusal != nil {
		fmt.Println("not analysed: " + policy.DisplayText(d.Result.Refusal.Error()))
	}
	printParts(d.Result.Commands, "")
	for _, s := range d.Why {
		switch s.About {
		case "approvals file", "hint", "environment", "directory", "verdict", "ask", "security":
			fmt.Printf("%s: %s\n", s.About, s.Text)
		}
	}
	if d.Command != "" && d.Verdict == policy.Run {
		fmt.Println("runs: " + policy.DisplayText(d.Command))
	}
	for _, e := range d.Always {
		fmt.Printf("always would store: %s %s\n", policy.DisplayText(e.Pattern), policy.DisplayText(e.ArgPattern))
	}
}

func printParts(commands []*policy.Command, indent string) {
	for i, c := range commands {
		fmt.Printf("%s%d. %s\n", indent, i+1, policy.DisplayText(policy.CommandText(c.Argv)))
		if c.Executable.Real != "" {
			fmt.Printf("%s   program: %s\n", indent, policy.DisplayText(c.Executable.Real))
		}
		if c.Script != "" {
			fmt.Printf("%s   script: %s\n", indent, policy.DisplayText(c.Script))
		}
		if c.Inline != nil {
			fmt.Printf("%s   code in the arguments: %s %s\n", indent, policy.DisplayText(c.Inline.Program), policy.DisplayText(strings.TrimSpace(c.Inline.Flag+" "+c.Inline.Why)))
		}
		allowed := "not allowed"
		if c.By != policy.ByNothing {
			allowed = "allowed"
		}
		fmt.Printf("%s   %s: %s\n", indent, allowed, policy.DisplayText(c.Why))
		printParts(c.Inner, indent+"   ")
	}
}

func printJSON(value any) error {
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

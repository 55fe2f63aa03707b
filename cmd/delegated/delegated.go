// Package delegated defines the commands that clai-sandbox shows and clai-sandboxd does.
// clai-sandbox starts on every command of an agent and links nothing heavy; it executes
// clai-sandboxd for these. Both have the command line from here, so that help, completions and
// manuals say what is true.
package delegated

import (
	"github.com/urfave/cli/v2"
)

// Program is the name of the program that does them.
const Program = "clai-sandboxd"

// Review is its mode that clai-sandbox grants review becomes.
const Review = "grants-review"

// SSHAgent is its mode that serves a sandbox's ssh-agent.
const SSHAgent = "ssh-agent"

// Actions do the commands, by the name of a command below approvals.
type Actions func(name string) cli.ActionFunc

// Approvals is the command that shows and changes the approvals file of this host.
func Approvals(do Actions, usageError cli.OnUsageErrorFunc) *cli.Command {
	sub := func(name, usage, arguments, description string, flags ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: arguments, Description: description, Flags: flags,
			OnUsageError: usageError, HideHelpCommand: true, Action: do(name)}
	}
	return &cli.Command{
		Name:  "approvals",
		Usage: "show and change which commands may run outside the sandbox",
		Description: "The approvals file of this host says which programs an agent may run on it. It is the authority: whoever sends a\n" +
			"command can only be stricter. Every change is made whole or not at all.",
		OnUsageError:    usageError,
		HideHelpCommand: true,
		Action:          do(""),
		Subcommands: []*cli.Command{
			sub("list", "list what agents may run, and what they may not", "", "", agentFlag(), jsonFlag()),
			sub("allow", "let an agent run what PATTERN names", "PATTERN",
				"PATTERN is a path with * for any text within a component and ** for any text; a bare name allows nothing.", agentFlag(), argPatternFlag(), jsonFlag()),
			sub("deny", "never let an agent run what PATTERN names", "PATTERN",
				"PATTERN is a path as for allow, or a bare name. It wins over every entry, every answer and security full.", agentFlag(), argPatternFlag(), jsonFlag()),
			sub("remove", "take an entry away", "ENTRY", "ENTRY is an id or a pattern, as list shows them.", agentFlag(), jsonFlag()),
			sub("test", "show what would become of a command, part by part", "-- COMMAND [ARGUMENT…]",
				"One word is a line for a shell; several are a command that no shell reads. Exits with 0 if it would run, with 1 if a\n"+
					"person would be asked, with 2 if it would be denied. Nothing is run.", append(decisionFlags(), jsonFlag())...),
			sub("get", "print the file as JSON, with its hash, without its secret", "", ""),
			sub("set", "put another file in its place", "[FILE]", "FILE, or standard input, is the whole file. --base-hash is the hash that get printed.",
				&cli.StringFlag{Name: "base-hash", Usage: "change it only if `HASH` is still that of the file"}),
			sub("edit", "edit the file in $VISUAL or $EDITOR, and check it before it counts", "", ""),
		},
	}
}

// Decision is explain for a command outside the sandbox.
func Decision(do cli.ActionFunc, usageError cli.OnUsageErrorFunc) *cli.Command {
	return &cli.Command{Name: "explain", Usage: "show what would become of a command outside the sandbox, and why", ArgsUsage: "-- COMMAND [ARGUMENT…]",
		Flags: append(decisionFlags(), HostFlag(), ToolsFlag(), HostExecFlag(), jsonFlag()), OnUsageError: usageError, HideHelpCommand: true, Action: do}
}

// HostFlag says where the command is to run.
func HostFlag() cli.Flag {
	return &cli.StringFlag{Name: "host", Usage: "explain a command that runs on `gateway|node`, outside of any sandbox"}
}

// ToolsFlag asks about tools.
func ToolsFlag() cli.Flag {
	return &cli.BoolFlag{DisableDefaultText: true, Name: "tools", Usage: "print which tools the agent is offered, and what refuses the others"}
}

// HostExecFlag asks about the lists of hostexec.
func HostExecFlag() cli.Flag {
	return &cli.BoolFlag{DisableDefaultText: true, Name: "hostexec", Usage: "print what the lists of hostexec say to the command behind --"}
}

func decisionFlags() []cli.Flag { return []cli.Flag{agentFlag(), CwdFlag()} }

// CwdFlag says where the command would start.
func CwdFlag() cli.Flag {
	return &cli.StringFlag{Name: "cwd", Usage: "start the command in `DIR` (default: the working directory)"}
}

func agentFlag() cli.Flag {
	return &cli.StringFlag{Name: "agent", Value: "main", DefaultText: "main", Usage: "of agent `NAME`; \"*\" is every agent"}
}

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{DisableDefaultText: true, Name: "json", Usage: "print JSON"}
}

func argPatternFlag() cli.Flag {
	return &cli.StringFlag{Name: "arg-pattern", Usage: "only with arguments that `EXPRESSION` matches as a whole, joined by spaces"}
}

// MCP is the server that agents' harnesses start.
func MCP(do cli.ActionFunc, usageError cli.OnUsageErrorFunc) *cli.Command {
	return &cli.Command{
		Name:  "mcp",
		Usage: "serve an agent's tools, which run in the sandbox, by the Model Context Protocol",
		Description: "For an agent's harness: {\"command\": \"clai-sandbox\", \"args\": [\"mcp\", \"--agent\", \"main\", \"--workspace\", \".\"]}. It speaks on\n" +
			"standard input and output, or with --listen to several clients by HTTP. Every command and file tool runs in a sandbox that\n" +
			"the options describe, one for all of a client's session; the agent asks a person for what it lacks.",
		Flags: append(ProfileFlags(),
			&cli.StringFlag{Name: "listen", Usage: "serve by HTTP at `ADDRESS`: unix:PATH in a directory of this program's own, or 127.0.0.1:PORT with --token-file", DefaultText: "standard input and output"},
			&cli.StringFlag{Name: "token-file", Usage: "take clients that send the token in `FILE`, which only its owner may read and no sandbox sees, as ~/.config/clai-sandbox/mcp.token"},
			&cli.BoolFlag{DisableDefaultText: true, Name: "no-broker", Usage: "let the agent ask nobody"},
			&cli.BoolFlag{Name: "session-sandbox", DefaultText: "where nothing is seen copy on write", Usage: "run all that a client calls in one sandbox, and the lines of bash_exec in a shell that stays"},
			&cli.BoolFlag{DisableDefaultText: true, Name: "sandbox-per-call", Usage: "run each call in a sandbox of its own"},
			&cli.StringFlag{Name: "structured", Value: "auto", Usage: "put the fields of results where the protocol has them: `always|never|auto`; never leaves them to _meta, and auto does so for clients that give them to their model in place of the text"},
			&cli.IntFlag{Name: "output-limit", Value: 30_000, Usage: "carry at most `BYTES` of a command's output in a result; the rest is in a file that the tool read pages through"},
		),
		OnUsageError: usageError, HideHelpCommand: true, Action: do,
	}
}

package client

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile/text"
)

// HostExecName is the name under which a sandbox has the program that runs a command outside of it.
const HostExecName = "hostexec"

const hostExecUsage = `usage: hostexec COMMAND [ARGUMENT...]

Runs a command on the host, outside of this sandbox, in the same directory, where the lists of hostexec in the configuration and the
host's policy let it; it may have to wait for a person. It takes exactly these words, which no shell reads again. It has no
input, and its outputs come when it has ended. Exit status: the command's; 1 if it was denied, if nobody answered, or if it could not
be run, with the reason on standard error; 2 not understood; 3 nobody could be asked.
`

// waitsSoon is how long a command may take before whoever waits is told that somebody may have to
// answer.
const waitsSoon = 2 * time.Second

// hostExecProgram is the program with which the inside of a sandbox runs a command outside. It
// returns the exit status.
func hostExecProgram(ctx context.Context, args []string, out, complaints io.Writer) int {
	if len(args) > 0 && (args[0] == "--help" || args[0] == "-h") {
		fmt.Fprint(out, hostExecUsage)
		return 0
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	dir, err := os.Getwd()
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	switch {
	case err != nil:
		fmt.Fprintf(complaints, "%s: %s\n", HostExecName, text.Line(err.Error()))
		return AskMisused
	case len(args) == 0 || args[0] == "" || args[0][0] == '-':
		fmt.Fprintf(complaints, "%s: which command?\n%s", HostExecName, hostExecUsage)
		return AskMisused
	}
	answer, err := WaitForCommand(ctx, inside(), true, grants.Command{Argv: args, Cwd: dir}, func() {
		fmt.Fprintf(complaints, "%s: it runs, or waits for a person, who answers outside, with: clai-sandbox grants review\n", HostExecName)
	})
	if err != nil {
		return complain(complaints, HostExecName, err)
	}
	status, err := PrintCommand(answer, out, complaints)
	if !answer.Ran() {
		fmt.Fprintf(complaints, "%s: %s\n", HostExecName, text.Line(CommandSentence(answer)))
	}
	if err != nil && status == 0 {
		return 1
	}
	return status
}

// WaitForCommand has a command run. slow is called once if it takes a while.
func WaitForCommand(ctx context.Context, c *Client, inside bool, command grants.Command, slow func()) (grants.CommandAnswer, error) {
	defer time.AfterFunc(waitsSoon, slow).Stop()
	return c.RunOutside(ctx, "", inside, command)
}

// PrintCommand writes what a command wrote, byte by byte, and returns its exit status.
func PrintCommand(a grants.CommandAnswer, out, complaints io.Writer) (status int, err error) {
	if _, err = out.Write(a.Stdout); err == nil {
		_, err = complaints.Write(a.Stderr)
	}
	if a.Truncated {
		fmt.Fprint(complaints, "\n... (truncated)\n")
	}
	if a.TimedOut {
		fmt.Fprintln(complaints, "the command was ended after its time")
	}
	return CommandExit(a), err
}

// CommandExit is the exit status of who had a command run.
func CommandExit(a grants.CommandAnswer) int {
	switch {
	case !a.Ran():
		return 1
	case a.TimedOut:
		return 124
	}
	return a.ExitCode
}

// CommandSentence says why a command did not run.
func CommandSentence(a grants.CommandAnswer) string {
	word := map[grants.CommandStatus]string{grants.CommandDenied: "denied", grants.CommandTimeout: "no answer", grants.CommandError: "error"}[a.Status]
	if a.Reason != "" {
		word += ": " + a.Reason
	}
	return word
}

package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/clairun/clai-sandbox/cmd/delegated"
	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/sandbox"
)

// Exit statuses of this program's own. Any other is the command's.
const (
	statusTimeout       = 124 // the command was ended by --timeout
	statusNoSandbox     = 125 // nothing was run: bad options, bad configuration, or a sandbox that cannot be set up
	statusNotExecutable = 126 // the command is there, but cannot be executed
	statusNotFound      = 127 // the command is not there
)

// exit is an exit status that needs no words.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// statusOf tells a person what went wrong, in one line, and turns it into an exit status.
func statusOf(err error) int {
	var status exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	}
	fmt.Fprintln(os.Stderr, "clai-sandbox: "+explainError(err))
	return statusFor(err)
}

func statusFor(err error) int {
	var command *sandbox.CommandError
	switch {
	case !errors.As(err, &command):
		return statusNoSandbox
	case command.Found:
		return statusNotExecutable
	default:
		return statusNotFound
	}
}

// explainError is one line: what was wrong, where, and what to do.
func explainError(err error) string {
	text := oneLine(err.Error())
	if hint := hintOf(err); hint != "" {
		text += "; " + oneLine(hint)
	}
	return text
}

func hintOf(err error) string {
	var (
		unavailable *sandbox.UnavailableError
		setup       *sandbox.SetupError
		command     *sandbox.CommandError
		misuse      *usage
		misused     *delegated.Misuse
		mistake     *profile.ConfigError
		stranger    *profile.AgentError
		broker      *grants.UnavailableError
	)
	switch {
	case errors.As(err, &unavailable):
		return unavailable.Hint
	case errors.As(err, &setup):
		return setup.Hint
	case errors.As(err, &command):
		return command.Hint
	case errors.As(err, &misuse):
		return misuse.hint
	case errors.As(err, &misused):
		return misused.Hint
	case errors.As(err, &mistake):
		return mistake.Hint
	case errors.As(err, &stranger):
		return stranger.Hint()
	case errors.As(err, &broker):
		return broker.Hint
	}
	return ""
}

// oneLine keeps text that may come from a file name or a command line from reaching the terminal as
// anything but text.
func oneLine(s string) string { return text.Line(s) }

// warn tells of something that did not stop the run.
func warn(notices []sandbox.Notice) {
	for _, n := range notices {
		fmt.Fprintln(os.Stderr, "clai-sandbox: "+oneLine(n.Text))
	}
}

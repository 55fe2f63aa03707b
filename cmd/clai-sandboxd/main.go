// Command clai-sandboxd does what is too heavy for clai-sandbox, which executes it: people type clai-sandbox.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/cmd/hosted"
	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/profile"
)

// version is set when the program is built.
var version = "dev"

// statusWrong is the exit status of a command that could not be done. It is clai-sandbox's.
const statusWrong = 125

func main() { os.Exit(run(os.Args)) }

func run(args []string) int { return statusOf(newApp().Run(args)) }

func newApp() *cli.App {
	return &cli.App{
		Name:                      hosted.Program,
		Usage:                     "do what clai-sandbox leaves to it",
		Version:                   version,
		HideHelpCommand:           true,
		DisableSliceFlagSeparator: true,
		Commands:                  []*cli.Command{hosted.Approvals(approvalsAction, usageError), hosted.Decision(explainAction, usageError)},
		OnUsageError:              usageError,
		ExitErrHandler:            func(*cli.Context, error) {}, // run maps errors to exit statuses
		Writer:                    os.Stdout,
		ErrWriter:                 io.Discard, // every error is told once, by statusOf
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return &misuse{fmt.Sprintf("unknown command %q", c.Args().First()), hosted.Program + " --help lists the commands"}
			}
			return cli.ShowAppHelp(c)
		},
	}
}

// misuse is a command line that cannot be understood.
type misuse struct{ why, hint string }

func (m *misuse) Error() string { return m.why }

func usageError(c *cli.Context, err error, _ bool) error {
	return &misuse{err.Error(), "clai-sandbox " + typed(c) + " --help lists the options"}
}

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
	text := policy.DisplayText(err.Error())
	if hint := hintOf(err); hint != "" {
		text += "; " + policy.DisplayText(hint)
	}
	fmt.Fprintln(os.Stderr, "clai-sandbox: "+text)
	return statusWrong
}

func hintOf(err error) string {
	var (
		m      *misuse
		file   *policy.FileError
		host   *policy.HostError
		config *profile.ConfigError
	)
	switch {
	case errors.As(err, &m):
		return m.hint
	case errors.As(err, &file):
		return file.Hint
	case errors.As(err, &host):
		return host.Hint()
	case errors.As(err, &config):
		return config.Hint
	}
	return ""
}

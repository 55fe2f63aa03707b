package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/clairun/clai-sandbox/cmd/delegated"
	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/image/store"
	"github.com/clairun/clai-sandbox/sandbox/image/unpack"
)

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
	return statusFailed
}

func hintOf(err error) string {
	var (
		m      *misuse
		h      *delegated.Misuse
		file   *policy.FileError
		host   *policy.HostError
		config *profile.ConfigError
		agent  *profile.AgentError
		images *store.Error
		large  *unpack.LimitError
	)
	switch {
	case errors.As(err, &m):
		return m.hint
	case errors.As(err, &h):
		return h.Hint
	case errors.As(err, &file):
		return cmp.Or(file.Hint, "mend it by hand, or move it away and begin anew")
	case errors.As(err, &host):
		return host.Hint()
	case errors.As(err, &agent):
		return agent.Hint()
	case errors.As(err, &config):
		return config.Hint
	case errors.As(err, &images):
		return images.Hint
	case errors.As(err, &large):
		return "if you trust it, let more in: " + large.Flag
	}
	return ""
}

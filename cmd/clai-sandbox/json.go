package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/sandbox"
	"github.com/clairun/clai-sandbox/sandbox/diagnosis"
)

// runResult is what run --json prints. docs/run-result.schema.json is made from it.
type runResult struct {
	Classification classification      `json:"classification" jsonschema:"how the run ended, or why it did not begin"`
	ExitCode       int                 `json:"exitCode" jsonschema:"the exit status of this program: the command's own, or one that the manual lists"`
	Signal         *signalResult       `json:"signal" jsonschema:"the signal that ended the command; null if none did"`
	DurationMs     float64             `json:"durationMs" jsonschema:"milliseconds from the start of the sandbox to the end of the command"`
	Notices        []sandbox.Notice    `json:"notices" jsonschema:"what a person should know about a run that went on all the same"`
	Missing        []diagnosis.Missing `json:"missing" jsonschema:"what the command lacked, if that is why it failed, as far as its last words tell; not where its standard error is a terminal"`
	Error          *errorResult        `json:"error" jsonschema:"why nothing was run; null if the command ran"`
}

// classification is the one word about a run: an outcome, or the kind of error that kept the
// command from running.
type classification string

const (
	sandboxUnavailable classification = "sandbox_unavailable" // this host cannot sandbox
	setupFailed        classification = "setup_failed"        // this sandbox could not be made
	commandNotFound    classification = "command_not_found"
	commandNotRunnable classification = "command_not_executable"
)

type signalResult struct {
	Number int    `json:"number"`
	Name   string `json:"name" jsonschema:"as in SIGTERM"`
}

type errorResult struct {
	Reason  sandbox.Reason `json:"reason,omitempty" jsonschema:"with sandbox_unavailable: which of the known reasons it is"`
	Message string         `json:"message"`
	Hint    string         `json:"hint,omitempty" jsonschema:"what mends it"`
}

// newRunResult joins a run and its error. Notices are never null, so that a reader may always walk
// them.
func newRunResult(err error, result sandbox.Result) runResult {
	r := runResult{Classification: classification(result.Outcome), ExitCode: statusAfter(err, result),
		DurationMs: float64(result.Duration.Microseconds()) / 1000, Notices: result.Notices}
	r.Missing = []diagnosis.Missing{}
	if r.Notices == nil {
		r.Notices = []sandbox.Notice{}
	}
	if result.Signal != 0 {
		r.Signal = &signalResult{int(result.Signal), unix.SignalName(result.Signal)}
	}
	if err == nil {
		return r
	}
	r.Classification = setupFailed
	r.Error = &errorResult{Message: err.Error(), Hint: hintOf(err)}
	var (
		unavailable *sandbox.UnavailableError
		command     *sandbox.CommandError
	)
	switch {
	case errors.As(err, &unavailable):
		r.Classification, r.Error.Reason = sandboxUnavailable, unavailable.Reason
		r.Notices = append(r.Notices, sandbox.Notice{Kind: sandbox.NoticeKind(grants.NoticeSandboxUnavailable), Text: r.Error.Message})
	case errors.As(err, &command) && command.Found:
		r.Classification = commandNotRunnable
	case errors.As(err, &command):
		r.Classification = commandNotFound
	}
	return r
}

// reportFile is where the object of --json goes, or nil if nobody asked for it. It is checked
// before anything runs.
func reportFile(c *cli.Context) (*os.File, error) {
	if !c.IsSet("json-fd") {
		if c.Bool("json") {
			return os.Stdout, nil
		}
		return nil, nil
	}
	fd := c.Int("json-fd")
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	hint := "open it in the shell, for example 3>result.json"
	switch {
	case fd < 0 || err != nil:
		return nil, &usage{fmt.Sprintf("--json-fd %d: no such descriptor is open", fd), hint}
	case flags&unix.O_ACCMODE == unix.O_RDONLY || flags&unix.O_PATH != 0:
		return nil, &usage{fmt.Sprintf("--json-fd %d: is not open for writing", fd), hint}
	}
	return os.NewFile(uintptr(fd), "json-fd"), nil
}

func printJSON(to *os.File, value any) error {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

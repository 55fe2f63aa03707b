package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
)

// AskName is the name under which a sandbox has the program with which its inside asks.
const AskName = "fs_request_grant"

// Programs are those that a sandbox with a broker has, by name. Each returns its exit status.
var Programs = map[string]func(ctx context.Context, args []string, out, complaints io.Writer) int{
	AskName: askProgram, HostExecName: hostExecProgram, AskPersonName: askPersonProgram,
}

// SocketVariable names another socket than grants.InsideSocket, for a sandbox that has it
// elsewhere.
const SocketVariable = "CLAI_SANDBOX_ASK_SOCKET"

// Exit statuses of the program that asks.
const (
	AskGranted     = 0
	AskDenied      = 1 // a person said no, nobody answered, or nobody may grant it
	AskMisused     = 2
	AskUnavailable = 3 // nobody could be asked
)

const askUsage = `usage: fs_request_grant PATH [--access read_only|copy_on_write|read_write] [--reason TEXT] [--json]

Asks the person outside for a path that this sandbox does not show, and waits for the answer. The answer may be for a path
below it, or for less access. Exit status: 0 granted, 1 not granted, 2 not understood, 3 nobody could be asked.
`

// askedSoon is how long an answer may take that no person has to give.
const askedSoon = 300 * time.Millisecond

// askProgram is the program with which the inside of a sandbox asks. It returns the exit status.
func askProgram(ctx context.Context, args []string, out, complaints io.Writer) int {
	a, asJSON, err := parseAsk(args)
	if errors.Is(err, errHelp) {
		fmt.Fprint(out, askUsage)
		return AskGranted
	}
	if err != nil {
		fmt.Fprintf(complaints, "%s: %v\n%s", AskName, err, askUsage)
		return AskMisused
	}
	answer, err := told(AskName, complaints, func(c *Client) (grants.Answer, error) { return c.Ask(ctx, "", a) })
	if err != nil {
		return complain(complaints, AskName, err)
	}
	if asJSON {
		line, err := json.Marshal(answer)
		if err != nil {
			return complain(complaints, AskName, err)
		}
		fmt.Fprintf(out, "%s\n", text.PlainJSON(line))
	} else {
		fmt.Fprintln(out, Sentence(a, answer))
	}
	if !answer.Granted {
		return AskDenied
	}
	return AskGranted
}

// inside is the broker behind the socket that a sandbox has.
func inside() *Client {
	if socket := os.Getenv(SocketVariable); socket != "" {
		return &Client{Socket: socket}
	}
	return &Client{Socket: grants.InsideSocket}
}

// told asks, and says so to whoever waits, if the answer is one that a person has to give.
func told[T any](name string, complaints io.Writer, ask func(c *Client) (T, error)) (answer T, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		answer, err = ask(inside())
	}()
	select {
	case <-done:
	case <-time.After(askedSoon):
		fmt.Fprintf(complaints, "%s: waiting for a person, who answers outside, with: clai-sandbox grants review\n", name)
		<-done
	}
	return answer, err
}

// complain tells why there is no answer.
func complain(to io.Writer, name string, err error) int {
	var unavailable *grants.UnavailableError
	switch {
	case errors.As(err, &unavailable) && unavailable.Why == endedBefore:
		fmt.Fprintf(to, "%s: %s: nobody has decided; ask again\n", name, endedBefore)
	case errors.As(err, &unavailable):
		hint := "this sandbox may have been started without a broker"
		if unavailable.Hint != "" && !strings.HasPrefix(unavailable.Why, noBroker) {
			hint = unavailable.Hint
		}
		fmt.Fprintf(to, "%s: nobody can be asked: %s; %s\n", name, profile.Printable(unavailable.Why), profile.Printable(hint))
	default:
		fmt.Fprintf(to, "%s: %s\n", name, text.Line(err.Error()))
	}
	return AskStatus(err)
}

// AskStatus is the exit status of who asked and got an error in place of an answer.
func AskStatus(err error) int {
	var (
		unavailable *grants.UnavailableError
		busy        *grants.BusyError
		unknown     *grants.UnknownError
	)
	if errors.As(err, &unavailable) || errors.As(err, &busy) || errors.As(err, &unknown) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return AskUnavailable
	}
	return AskMisused
}

// Sentence is an answer for people and for agents, in one line.
func Sentence(a grants.Asking, answer grants.Answer) string {
	if !answer.Granted {
		text := map[grants.Outcome]string{grants.OutcomeDenied: "denied", grants.OutcomeNever: "never granted", grants.OutcomeTimeout: "no answer",
			grants.OutcomeWithdrawn: "withdrawn"}[answer.Outcome]
		if answer.Reason != "" {
			text += ": " + profile.Printable(answer.Reason)
		}
		return text
	}
	text := fmt.Sprintf("granted: %s %s", profile.Printable(answer.Path), answer.Access)
	if answer.Path != a.Path || answer.Access != a.Access {
		text += ", which is less than was asked for"
	}
	switch {
	case answer.Scope == grants.ScopeAlready:
		text += ", as before"
	case answer.Visible == grants.VisibleNow:
		text += ", and visible now"
	default:
		text += ", for the next command; this one does not see it"
		if answer.Reason != "" {
			text += ": " + profile.Printable(answer.Reason)
		}
	}
	return text
}

var errHelp = errors.New("help")

// parseAsk reads the command line. A relative path is one in the working directory, as everywhere
// in a shell.
func parseAsk(args []string) (a grants.Asking, asJSON bool, err error) {
	a.Access = profile.ReadOnly
	path, named := "", false
	for i := 0; i < len(args); i++ {
		name, value, hasValue := strings.Cut(args[i], "=")
		switch {
		case !strings.HasPrefix(args[i], "-"):
			if named {
				return a, false, fmt.Errorf("one path at a time, and not %q as well", args[i])
			}
			path, named = args[i], true
		case args[i] == "--help" || args[i] == "-h":
			return a, false, errHelp
		case args[i] == "--json":
			asJSON = true
		case name == "--access" || name == "--reason":
			if !hasValue {
				if i++; i == len(args) {
					return a, false, fmt.Errorf("%s wants a value", name)
				}
				value = args[i]
			}
			if name == "--reason" {
				a.Reason = value
			} else if a.Access, err = profile.ParseAccess(value); err != nil {
				return a, false, err
			}
		default:
			return a, false, fmt.Errorf("there is no option %q", name)
		}
	}
	if path == "" {
		return a, false, errors.New("which path?")
	}
	if a.Path, err = absolute(path); err != nil {
		return a, false, err
	}
	return a, asJSON, nil
}

func absolute(path string) (string, error) {
	if path[0] == '/' || path[0] == '~' {
		return path, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("where is %q: %w", path, err)
	}
	return filepath.Join(dir, path), nil
}

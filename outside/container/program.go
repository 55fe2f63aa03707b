package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/clairun/clai-sandbox/profile/text"
)

// The environment of a container says where the gateway is, and has the token, or the name of a
// file that has it.
const (
	HostVariable      = "CLAI_SANDBOX_HOST"
	TokenVariable     = "CLAI_SANDBOX_TOKEN"
	TokenFileVariable = "CLAI_SANDBOX_TOKEN_FILE"
)

const (
	usage = `usage: hostexec COMMAND [ARGUMENT...]

Runs a command on the host of this container, in the directory of the host's that is this one, where the lists of hostexec in the
configuration and the host's policy let it; it may have to wait for a person. It takes exactly these words, which no shell reads
again. It has no input, and its outputs come when it has ended. CLAI_SANDBOX_HOST is the gateway's socket (a path), or its address with
the port; CLAI_SANDBOX_TOKEN is the token, or CLAI_SANDBOX_TOKEN_FILE the name of a file that has it. Exit status: the
command's; 1 if it was denied, if nobody answered, or if it could not be run, with the reason on standard error; 2 not
understood; 3 nobody could be asked.
`
	misused, unreachable = 2, 3
	timedOut             = 124
	waitTimeout          = 40 * time.Minute // a person's time to answer, and the longest command's
	maxAnswer            = 4 << 20
	maxTokenFile         = 4 << 10
)

// Program is hostexec in a container. It returns the exit status.
func Program(args []string, out, complaints io.Writer) int {
	if len(args) > 0 && (args[0] == "--help" || args[0] == "-h") {
		fmt.Fprint(out, usage)
		return 0
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 || args[0] == "" || args[0][0] == '-' {
		fmt.Fprint(complaints, "hostexec: which command?\n"+usage)
		return misused
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	answer, err := ask(ctx, args)
	if err != nil {
		fmt.Fprintln(complaints, "hostexec: "+text.Line(err.Error()))
		return unreachable
	}
	stdout, stderr, err := answer.Outputs()
	if err == nil {
		if _, err = out.Write(stdout); err == nil {
			_, err = complaints.Write(stderr)
		}
	}
	switch {
	case answer.ExitCode == nil:
		fmt.Fprintf(complaints, "hostexec: %s: %s\n", text.Line(answer.Status), text.Line(answer.Reason))
		return 1
	case answer.TimedOut:
		fmt.Fprintln(complaints, "hostexec: the command was ended after its time")
		return timedOut
	case err != nil && *answer.ExitCode == 0:
		return 1
	}
	return *answer.ExitCode
}

// ask sends the words, and waits for the command's end.
func ask(ctx context.Context, args []string) (*Answer, error) {
	address := os.Getenv(HostVariable)
	if address == "" {
		return nil, errors.New(HostVariable + " is not set: this container was not given a gateway")
	}
	secret, err := token()
	if err != nil {
		return nil, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(Request{Argv: args, Cwd: dir})
	if err != nil {
		return nil, err
	}
	network := "tcp"
	if strings.HasPrefix(address, "/") {
		network = "unix"
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, address)
	}}
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway/request", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set(TokenHeader, secret)
	request.Header.Set("Content-Type", "application/json")
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("no gateway answers at %s: %w", address, err)
	}
	defer response.Body.Close()
	answer := &Answer{}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(answer); err != nil {
		return nil, fmt.Errorf("what answers at %s is no gateway: %s, %w", address, response.Status, err)
	}
	if response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusServiceUnavailable {
		return nil, errors.New(answer.Reason)
	}
	return answer, nil
}

func token() (string, error) {
	if secret := os.Getenv(TokenVariable); secret != "" {
		return secret, nil
	}
	name := os.Getenv(TokenFileVariable)
	if name == "" {
		return "", errors.New(TokenVariable + " is not set, nor " + TokenFileVariable)
	}
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	secret, err := io.ReadAll(io.LimitReader(file, maxTokenFile))
	return strings.TrimSpace(string(secret)), err
}

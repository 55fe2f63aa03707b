package runner

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/clairun/clai-sandbox/wire/socket"
)

// A Client asks a runner, at a socket that this process has made.
type Client struct {
	Socket string
	Secret [SecretSize]byte
}

// ErrLost means that the runner ended before it answered: what it ran was ended with it, and nobody
// knows how far it had come.
var ErrLost = errors.New("the runner ended before the command did, and the command was ended with it")

// Run has a command run, and waits for its end. When the context ends, so does the command. An
// error means that nobody answered; started says whether the request had been sent by then, so that
// the command may have run.
func (c Client) Run(ctx context.Context, q Request) (a Answer, started bool, err error) {
	q.Secret = hex.EncodeToString(c.Secret[:])
	line, err := json.Marshal(q)
	if err != nil {
		return a, false, err
	}
	if len(line) >= maxRequest {
		return a, false, fmt.Errorf("a request of more than %d bytes", maxRequest)
	}
	short, done, err := socket.ShortPath(c.Socket)
	if err != nil {
		return a, false, err
	}
	defer done()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", short)
	if err != nil {
		return a, false, fmt.Errorf("the runner does not answer: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	// The socket was made by this process, whoever accepts there. What was run has this user, and
	// could put another in its place: to that, no secret is told.
	if peer, err := socket.PeerOf(conn); err != nil || peer.UID != os.Getuid() || peer.PID != os.Getpid() {
		return a, false, errors.New("somebody else listens at the runner's socket")
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return a, true, ErrLost
	}
	answer, err := readLine(bufio.NewReader(conn), maxAnswer)
	if err == nil {
		err = json.Unmarshal(answer, &a)
	}
	switch {
	case ctx.Err() != nil:
		return a, true, ctx.Err()
	case err != nil:
		return a, true, ErrLost
	}
	return a, true, nil
}

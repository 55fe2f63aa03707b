package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/grants"
	sockets "github.com/clairun/clai-sandbox/wire/socket"
)

const (
	sendTimeout = 10 * time.Second // to send a request
	// answerTimeout is how long a broker may take to answer what waits for no person.
	answerTimeout = 20 * time.Second
	maxAnswer     = 64 << 20
	maxEvent      = 1 << 20
	maxHeader     = 16 << 10
)

// dial connects to a unix socket. The context ends everything that goes on over it.
func dial(ctx context.Context, path string) (*os.File, error) {
	short, done, err := sockets.ShortPath(path)
	if err != nil {
		return nil, err
	}
	defer done()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	// Connecting to a unix socket waits only while its queue is full.
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: int64(sendTimeout / time.Second)})
	if err = unix.Connect(fd, &unix.SockaddrUnix{Name: short}); err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		unix.Close(fd)
		return nil, &os.PathError{Op: "connect", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// peerIsCaller makes sure that who listens is who we are, or root: anyone may be in a place where a
// name was free.
func peerIsCaller(conn *os.File) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) { peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if peerErr != nil {
		return os.NewSyscallError("getsockopt", peerErr)
	}
	if int(peer.Uid) != os.Getuid() {
		return fmt.Errorf("user %d listens there, and not %d", peer.Uid, os.Getuid())
	}
	return nil
}

// An exchange is one request and its answer.
type exchange struct {
	conn   *os.File
	answer *bufio.Reader
	status int
	stop   func() bool
	late   *time.Timer // nil: it may take its time
}

// send sends a request and reads the head of the answer. Where timeout is not 0, all of the answer
// must come in that time.
func send(ctx context.Context, socket, method, target string, body any, timeout time.Duration) (*exchange, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	conn, err := dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	end := func() { conn.SetDeadline(time.Unix(1, 0)) }
	x := &exchange{conn: conn, stop: context.AfterFunc(ctx, end)}
	if timeout > 0 {
		x.late = time.AfterFunc(timeout, end)
	}
	if err := x.begin(method, target, grants.RequestID(ctx), text); err != nil {
		x.close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, x.silent(err)
	}
	return x, nil
}

func (x *exchange) close() {
	x.stop()
	x.answered()
	x.conn.Close()
}

// answered says that what is still to come may take its time.
func (x *exchange) answered() {
	if x.late != nil {
		x.late.Stop()
	}
}

// silent puts it into words if the error is that nothing came in time.
func (x *exchange) silent(err error) error {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return &grants.UnavailableError{Why: "the gateway is there, and does not answer",
		Hint: "is it stopped? pkill -CONT -x clai-sandboxd lets it go on, and what was asked for may still be done then"}
}

func (x *exchange) begin(method, target, id string, body []byte) error {
	if err := peerIsCaller(x.conn); err != nil {
		return err
	}
	head := fmt.Appendf(nil, "%s %s HTTP/1.0\r\nHost: broker\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", method, target, len(body))
	if id != "" {
		head = fmt.Appendf(head, "%s: %s\r\n", grants.RequestIDHeader, segment(id))
	}
	head = append(head, "\r\n"...)
	if _, err := x.conn.Write(append(head, body...)); err != nil && !errors.Is(err, syscall.EPIPE) { // it may have answered before it read all
		return err
	}
	limited := &io.LimitedReader{R: x.conn, N: maxHeader}
	x.answer = bufio.NewReader(limited)
	err := x.readHead()
	limited.N = maxAnswer
	return err
}

// readHead reads up to the empty line. The status is all that matters: the answer ends with the
// connection.
func (x *exchange) readHead() error {
	line, err := x.answer.ReadString('\n')
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	fields := strings.Fields(line)
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "HTTP/1.") {
		return errors.New("the answer is not HTTP")
	}
	if x.status, err = strconv.Atoi(fields[1]); err != nil {
		return errors.New("the answer is not HTTP")
	}
	for {
		line, err := x.answer.ReadString('\n')
		if err != nil {
			return fmt.Errorf("no answer: %w", err)
		}
		if strings.TrimRight(line, "\r\n") == "" {
			return nil
		}
	}
}

// decode reads the whole answer.
func (x *exchange) decode(into any) error {
	text, err := io.ReadAll(x.answer)
	if err != nil {
		return x.silent(err)
	}
	if x.status != 200 {
		var body grants.ErrorBody
		if err := json.Unmarshal(text, &body); err != nil {
			return fmt.Errorf("the answer is HTTP status %d", x.status)
		}
		return body.Error.Err()
	}
	return json.Unmarshal(text, into)
}

// nextEvent reads one event of a stream, and passes over the signs of life between them.
func (x *exchange) nextEvent() (grants.Event, error) {
	var data []byte
	for {
		line, err := x.answer.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) && len(data)+len(line) < maxEvent {
			data = append(data, line...)
			line, err = x.answer.ReadSlice('\n')
		}
		if err != nil {
			return grants.Event{}, err
		}
		data = append(data, line...)
		if field, found := bytes.CutPrefix(data, []byte("data: ")); found {
			var e grants.Event
			return e, json.Unmarshal(field, &e)
		}
		data = data[:0]
	}
}

package door

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/outside"
	"github.com/clairun/clai-sandbox/outside/container"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/wire/strangers"
)

// SocketName is where the socket is in the gateway's directory. A container has the directory
// mounted that it is in, and nothing else is there.
const SocketName = "containers/hostexec.sock"

const (
	maxBody        = 256 << 10
	maxConnections = 256
	maxBad         = 20 // requests without a token that holds, in a row
	badEvery       = time.Second
	lookEvery      = 200 * time.Millisecond // whether the token of what waits or runs holds still
	headerTimeout  = 5 * time.Second
	bodyTimeout    = 10 * time.Second
	writeTimeout   = 30 * time.Second
)

// A Broker has commands run for who is named.
type Broker interface {
	RunFor(context.Context, outside.Asker, grants.Command) (grants.CommandAnswer, error)
}

// A Door answers containers. Make one with New.
type Door struct {
	tokens *Tokens
	broker Broker
	http   http.Server

	mu  sync.Mutex
	bad float64 // requests without a token, that count still
	at  time.Time
}

// New returns the door to a broker.
func New(tokens *Tokens, b Broker) *Door {
	d := &Door{tokens: tokens, broker: b}
	d.http = http.Server{Handler: http.HandlerFunc(d.serve), ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, IdleTimeout: bodyTimeout, MaxHeaderBytes: 16 << 10,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }, ErrorLog: log.New(io.Discard, "", 0)}
	return d
}

// connKey is where a request has its connection.
type connKey struct{}

// Listen makes the listener of an address that a person named. All addresses of the machine are
// only meant where that is written out.
func Listen(address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil || net.ParseIP(host) == nil {
		return nil, fmt.Errorf("%s: it must be an address with its port, as 127.0.0.1:9998", text.Line(address))
	}
	return net.Listen("tcp", address)
}

// Serve answers on a listener until Close. Who connects, and shows no token, keeps nobody out.
func (d *Door) Serve(l net.Listener) error {
	if err := d.http.Serve(&strangers.Listener{Listener: l, Most: maxConnections}); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close ends all connections. What they asked for is withdrawn.
func (d *Door) Close() { d.http.Close() }

// Needed reports whether there are tokens, so that a container may come at any time.
func (d *Door) Needed() bool {
	list, err := d.tokens.List()
	return err == nil && len(list) > 0
}

func (d *Door) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != "/request":
		fail(w, http.StatusNotFound, "there is POST /request")
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		fail(w, http.StatusMethodNotAllowed, "there is POST /request")
	case r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "":
		fail(w, http.StatusForbidden, "no page of a browser asks here")
	default:
		d.request(w, r)
	}
}

func (d *Door) request(w http.ResponseWriter, r *http.Request) {
	token, ok, err := d.tokens.Of(r.Header.Get(container.TokenHeader))
	switch {
	case err != nil:
		fail(w, http.StatusServiceUnavailable, err.Error())
		return
	case !ok && d.tooMany():
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusTooManyRequests, "too many requests without a token that holds")
		return
	case !ok:
		fail(w, http.StatusUnauthorized, container.TokenHeader+" has no token that holds; clai-sandbox token create makes one")
		return
	}
	if c, is := r.Context().Value(connKey{}).(*strangers.Conn); is {
		c.Known()
	}
	var asked container.Request
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	err = decoder.Decode(&asked)
	if err == nil {
		if _, more := decoder.Token(); more != io.EOF {
			err = errors.New("something stands behind the object")
		}
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("a request has at most %d bytes", maxBody))
		return
	case err != nil:
		fail(w, http.StatusBadRequest, "the body is not the JSON object that is wanted here: "+err.Error())
		return
	}
	command, err := token.command(asked)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go d.whileHeld(ctx, cancel, token.ID)
	answer, err := d.broker.RunFor(ctx, outside.Asker{ID: token.ID, Agent: token.Agent, Workspace: token.Workspace, Project: token.Project, Branch: token.Branch}, command)
	if err != nil {
		var busy *grants.BusyError
		var invalid *grants.InvalidError
		switch {
		case errors.As(err, &busy):
			w.Header().Set("Retry-After", "1")
			fail(w, http.StatusTooManyRequests, err.Error())
		case errors.As(err, &invalid):
			fail(w, http.StatusBadRequest, err.Error())
		case ctx.Err() != nil:
			fail(w, http.StatusUnauthorized, "the token was revoked meanwhile")
		default:
			fail(w, http.StatusServiceUnavailable, err.Error())
		}
		return
	}
	send(w, http.StatusOK, answerOf(answer))
}

// whileHeld ends what was asked for when its token is taken away.
func (d *Door) whileHeld(ctx context.Context, cancel func(), id string) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !d.tokens.Holds(id) {
			cancel()
			return
		}
	}
}

// tooMany counts a request without a token that holds, and reports whether there are too many. Who
// has a token is not held up by it.
func (d *Door) tooMany() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.bad = max(0, d.bad-float64(now.Sub(d.at))/float64(badEvery))
	d.at = now
	if d.bad >= maxBad {
		return true
	}
	d.bad++
	return false
}

// shells is what a shell would do something with. A line with any of it is no list of words.
const shells = "`$|&;<>()*?[]{}~!#\\\"'\n\r"

// command is what was asked for, with the container's places as the host has them.
func (t *Token) command(asked container.Request) (grants.Command, error) {
	words := asked.Argv
	if asked.Command != "" {
		if len(words) > 0 {
			return grants.Command{}, errors.New("command and argv are two ways to say the same: send one")
		}
		if strings.ContainsAny(asked.Command, shells) {
			return grants.Command{}, errors.New("no shell reads a command: send its words as argv")
		}
		words = strings.Fields(asked.Command)
	}
	if len(words) == 0 {
		return grants.Command{}, errors.New("send a command, or its words as argv")
	}
	cwd := t.Workspace
	if asked.Cwd != "" {
		if !filepath.IsAbs(asked.Cwd) || filepath.Clean(asked.Cwd) != asked.Cwd || !profile.Within(asked.Cwd, t.At) {
			return grants.Command{}, fmt.Errorf("cwd must be %s or below it", t.At)
		}
		cwd = filepath.Join(t.Workspace, strings.TrimPrefix(asked.Cwd, t.At))
	}
	return grants.Command{Argv: words, Cwd: cwd, Reason: asked.Reason, TimeoutMs: asked.TimeoutMs}, nil
}

func answerOf(a grants.CommandAnswer) container.Answer {
	out := container.Answer{ID: a.RequestID, Status: string(a.Status), Pattern: a.Pattern, Reason: a.Reason, Truncated: a.Truncated, TimedOut: a.TimedOut}
	if a.Ran() {
		out.ExitCode = &a.ExitCode
	}
	out.Stdout, out.Stdout64 = printed(a.Stdout)
	out.Stderr, out.Stderr64 = printed(a.Stderr)
	return out
}

// printed is an output, and where that is not all of it, its bytes.
func printed(output []byte) (plain, bytes string) {
	if utf8.Valid(output) {
		return string(output), ""
	}
	return strings.ToValidUTF8(string(output), "\uFFFD"), base64.StdEncoding.EncodeToString(output)
}

func fail(w http.ResponseWriter, status int, why string) {
	send(w, status, container.Answer{Status: "error", Reason: why})
}

func send(w http.ResponseWriter, status int, answer container.Answer) {
	line, err := json.Marshal(answer)
	if err != nil {
		status, line = http.StatusInternalServerError, []byte(`{"status":"error","reason":"the answer cannot be written"}`)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text.PlainJSON(line), '\n'))
}

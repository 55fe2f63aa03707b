package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
)

// A Client is a broker behind a socket.
type Client struct {
	Socket string
	// Start, if there is one, starts a broker where none listens, and returns when one does.
	Start func(context.Context) error

	timeout time.Duration // shorter in tests
}

var (
	_ grants.Broker = (*Client)(nil)
	_ grants.Runner = (*Client)(nil)

	_ grants.Questioner  = (*Client)(nil)
	_ grants.DomainAsker = (*Client)(nil)
	_ grants.Sayer       = (*Client)(nil)
	_ grants.Observer    = (*Client)(nil)
)

// send passes a request on. Where nobody listens, it starts somebody.
func (c *Client) send(ctx context.Context, method, target string, body any) (*exchange, error) {
	x, err := send(ctx, c.Socket, method, target, body, c.timeoutFor(method, target))
	// A broker that has nothing to do stops, and one may be killed. What only looks or begins may
	// be said again to the next one, and a change, too: it has a name. One that is dying still
	// takes connections for a moment, and says nothing.
	for attempt := 0; err != nil && attempt < maxAttempts && c.Start != nil && (nobodyListens(err) || cutOff(err) && repeatable(method, target)); attempt++ {
		select {
		case <-time.After(time.Millisecond << attempt):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if err := c.Start(ctx); err != nil {
			return nil, err
		}
		x, err = send(ctx, c.Socket, method, target, body, c.timeoutFor(method, target))
	}
	var unavailable *grants.UnavailableError
	switch {
	case err == nil || ctx.Err() != nil || errors.As(err, &unavailable):
	case cutOff(err):
		err = &grants.UnavailableError{Why: endedBefore, Hint: "try again"}
	default:
		err = &grants.UnavailableError{Why: noBroker + err.Error(), Hint: "start it with: clai-sandbox gateway"}
	}
	return x, err
}

// timeoutFor is how long an answer may take; 0: as long as a person does.
func (c *Client) timeoutFor(method, target string) time.Duration {
	if method == "POST" && (target == asking || target == commands || target == questions || target == domains) || method == "GET" && strings.HasPrefix(target, commands+"/") {
		return 0
	}
	return cmp.Or(c.timeout, answerTimeout)
}

// asking is where a person is asked, and commands where one is run, for which a person may be
// asked.
const (
	asking    = "/v1/grants/requests"
	commands  = "/v1/commands"
	questions = "/v1/questions"
	domains   = "/v1/domains"
	saying    = "/v1/say"
	observed  = "/connections" // of a session
)

// maxAttempts is how often something is said again, within half a second in all.
const maxAttempts = 8

func nobodyListens(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
}

// cutOff reports whether the other end went away with the answer.
func cutOff(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// repeatable reports whether something may be said again to another broker: what is asked within a
// session is not for that one.
func repeatable(method, target string) bool {
	return method == "GET" || target != asking && target != commands && target != questions && target != domains && target != saying && !strings.HasSuffix(target, "/applied") && !strings.HasSuffix(target, observed)
}

// call asks for something, under a name if it changes something.
func (c *Client) call(ctx context.Context, method, target string, body, into any) error {
	if method != "GET" && repeatable(method, target) && grants.RequestID(ctx) == "" {
		ctx = grants.WithRequestID(ctx, rand.Text())
	}
	for attempt := 0; ; attempt++ {
		x, err := c.send(ctx, method, target, body)
		if err != nil {
			return err
		}
		err = x.decode(into)
		x.close()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !cutOff(err):
			return err
		case attempt == maxAttempts || !repeatable(method, target):
			return &grants.UnavailableError{Why: endedBefore, Hint: "try again"}
		}
	}
}

// noBroker begins what is said where nobody listens.
const noBroker = "no broker: "

// endedBefore is what is said of a broker that was there, and has not answered.
const endedBefore = "the broker ended before it answered"

// A goneError is a broker that went away before it said anything.
type goneError struct{ err error }

func (e *goneError) Error() string { return "the broker is gone: " + e.err.Error() }

// stream reads events into a channel until the context or the stream ends. The first one is waited
// for if there is to be one.
func (c *Client) stream(ctx context.Context, method, target string, body any, wantFirst bool) (first grants.Event, events <-chan grants.Event, end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	x, err := c.send(ctx, method, target, body)
	if err == nil && x.status != 200 {
		err = x.decode(nil)
		x.close()
	}
	if err == nil && wantFirst {
		if first, err = x.nextEvent(); errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
			err = x.silent(err)
			x.close()
		} else if err != nil {
			x.close()
			err = &goneError{err}
		}
	}
	if err != nil {
		cancel()
		return first, nil, nil, err
	}
	x.answered()
	// As many as the broker keeps for one listener: it is the one that cuts off who is too slow.
	out := make(chan grants.Event, 256)
	go func() {
		defer cancel()
		defer x.close()
		defer close(out)
		for {
			e, err := x.nextEvent()
			if err != nil {
				return
			}
			select {
			case out <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return first, out, cancel, nil
}

// Running is the same broker, as far as one runs: none is started for what is asked of it.
func (c *Client) Running() grants.Broker { return &Client{Socket: c.Socket, timeout: c.timeout} }

// Open begins a session. It ends with the connection, however this process ends.
func (c *Client) Open(ctx context.Context, spec grants.SessionSpec) (*grants.Session, error) {
	spec.PID, spec.Key = os.Getpid(), rand.Text()
	// The next broker is not to look for a session that never began, or has ended where no broker
	// was left to notice.
	forget := func() { _ = os.Remove(filepath.Join(filepath.Dir(c.Socket), grants.SessionsName, spec.Key)) }
	first, events, end, err := c.stream(ctx, "POST", "/v1/sessions", spec, true)
	var gone *goneError
	for attempt := 0; errors.As(err, &gone) && c.Start != nil && attempt < maxAttempts && ctx.Err() == nil; attempt++ {
		first, events, end, err = c.stream(ctx, "POST", "/v1/sessions", spec, true)
	}
	if errors.As(err, &gone) {
		err = &grants.UnavailableError{Why: gone.Error(), Hint: "try again"}
	}
	if err != nil {
		forget()
		return nil, err
	}
	if first.Kind != grants.EventSession || first.Session == "" {
		end()
		forget()
		return nil, fmt.Errorf("a session begins with %q", first.Kind)
	}
	var once sync.Once
	return &grants.Session{ID: first.Session, Key: spec.Key, Socket: first.Socket, Events: events, Close: func() {
		once.Do(func() {
			end()
			c.waitForEnd(first.Session)
			forget()
		})
	}}, nil
}

// waitForEnd returns when the broker has noticed that a session ended: what the caller does next
// comes after it.
func (c *Client) waitForEnd(session string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	quiet := Client{Socket: c.Socket} // nobody is started for this
	for {
		err := quiet.Applied(ctx, session, grants.Applied{})
		if err != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (c *Client) Ask(ctx context.Context, session string, a grants.Asking) (answer grants.Answer, err error) {
	if err := sendable(a); err != nil {
		return answer, err
	}
	var body any = grants.AskBody{Session: session, Asking: a}
	if session == "" { // on a socket that knows the session
		body = a
	}
	if session != "" || grants.RequestID(ctx) != "" {
		err = c.call(ctx, "POST", asking, body, &answer)
	} else { // the socket inside stays while brokers come and go
		err = c.askAgain(ctx, asking, body, &answer)
	}
	return answer, err
}

// RunOutside has a command run. Without a session it is the person's own, or that of the sandbox
// whose socket this is.
func (c *Client) RunOutside(ctx context.Context, session string, inside bool, command grants.Command) (answer grants.CommandAnswer, err error) {
	// What JSON cannot say would arrive as something else, and another command would run.
	for _, text := range append([]string{command.Line, command.Cwd, command.Reason}, command.Argv...) {
		if !utf8.ValidString(text) {
			return answer, &grants.InvalidError{Field: "command", Why: "must be UTF-8"}
		}
	}
	for name, value := range command.Env {
		if !utf8.ValidString(name + value) {
			return answer, &grants.InvalidError{Field: "env", Why: "must be UTF-8"}
		}
	}
	var body any = grants.CommandBody{Session: session, Command: command}
	if inside {
		body = command
	}
	err = c.askAgain(ctx, commands, body, &answer)
	return answer, err
}

// AskDomain asks about a connection.
func (c *Client) AskDomain(ctx context.Context, session, to string) (answer grants.DomainAnswer, err error) {
	err = c.askAgain(ctx, domains, grants.DomainBody{Session: session, To: to}, &answer)
	return answer, err
}

// Say says what somebody typed.
func (c *Client) Say(ctx context.Context, session string, s grants.Saying) (said grants.Said, err error) {
	err = c.call(ctx, "POST", saying, grants.SayBody{Session: session, Saying: s}, &said)
	return said, err
}

// Sessions lists those that are open.
func (c *Client) Sessions(ctx context.Context) ([]grants.OpenSession, error) {
	var list grants.SessionList
	err := c.call(ctx, "GET", "/v1/sessions", nil, &list)
	return list.Sessions, err
}

// Observe tells what a session's network did.
func (c *Client) Observe(ctx context.Context, session string, o grants.Connections) error {
	return c.call(ctx, "POST", "/v1/sessions/"+segment(session)+observed, o, &grants.Nothing{})
}

// AskPerson asks in words.
func (c *Client) AskPerson(ctx context.Context, session string, q grants.PersonQuestion) (answer grants.PersonAnswer, err error) {
	if err := q.Check(); err != nil {
		return answer, err
	}
	if session == "" { // on a socket that knows the session, and stays while brokers come and go
		err = c.askAgain(ctx, questions, q, &answer)
	} else {
		err = c.call(ctx, "POST", questions, grants.PersonBody{Session: session, PersonQuestion: q}, &answer)
	}
	return answer, err
}

// WaitOutside waits for the end of a command that was accepted, also by a broker that has ended
// since: the next one knows what became of it.
func (c *Client) WaitOutside(ctx context.Context, id string) (answer grants.CommandAnswer, err error) {
	err = c.call(ctx, "GET", commands+"/"+segment(id), nil, &answer)
	return answer, err
}

// askAgain asks the next broker under the same name where one ended before it answered: that one
// knows what became of it, and does nothing twice.
func (c *Client) askAgain(ctx context.Context, target string, body, into any) error {
	if grants.RequestID(ctx) == "" {
		ctx = grants.WithRequestID(ctx, rand.Text())
	}
	for attempt := 0; ; attempt++ {
		err := c.call(ctx, "POST", target, body, into)
		var unavailable *grants.UnavailableError
		if attempt == maxAttempts || !errors.As(err, &unavailable) || unavailable.Why != endedBefore {
			return err
		}
		select {
		case <-time.After(time.Millisecond << attempt):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sendable finds what JSON cannot say, and would arrive as something else.
func sendable(a grants.Asking) error {
	if !a.Access.Grantable() {
		return &grants.InvalidError{Field: "requestedAccess", Why: "must be " + profile.Accesses}
	}
	return nil
}

func (c *Client) Pending(ctx context.Context) ([]grants.Request, error) {
	var list grants.RequestList
	err := c.call(ctx, "GET", "/v1/grants/requests", nil, &list)
	return list.Requests, err
}

func (c *Client) Decide(ctx context.Context, request string, d grants.Decision) (answer grants.Answer, err error) {
	err = c.call(ctx, "POST", "/v1/grants/requests/"+segment(request)+"/decision", d, &answer)
	return answer, err
}

func (c *Client) Grants(ctx context.Context) ([]grants.Grant, error) {
	var list grants.GrantList
	err := c.call(ctx, "GET", "/v1/grants", nil, &list)
	return list.Grants, err
}

func (c *Client) Add(ctx context.Context, n grants.NewGrant) (g grants.Grant, err error) {
	err = c.call(ctx, "POST", "/v1/grants", n, &g)
	return g, err
}

func (c *Client) Confirm(ctx context.Context, id, resolved string) (g grants.Grant, err error) {
	err = c.call(ctx, "POST", "/v1/grants/"+segment(id)+"/confirm", grants.ConfirmBody{Resolved: resolved}, &g)
	return g, err
}

func (c *Client) Narrow(ctx context.Context, id string) (t grants.Taking, err error) {
	err = c.call(ctx, "POST", "/v1/grants/"+segment(id)+"/narrow", grants.Nothing{}, &t)
	return t, err
}

func (c *Client) Revoke(ctx context.Context, id string) (t grants.Taking, err error) {
	err = c.call(ctx, "DELETE", "/v1/grants/"+segment(id), nil, &t)
	return t, err
}

func (c *Client) Log(ctx context.Context, limit int) ([]grants.Record, error) {
	var list grants.RecordList
	err := c.call(ctx, "GET", fmt.Sprintf("/v1/grants/log?limit=%d", limit), nil, &list)
	return list.Records, err
}

func (c *Client) Applied(ctx context.Context, session string, a grants.Applied) error {
	return c.call(ctx, "POST", "/v1/sessions/"+segment(session)+"/applied", a, &grants.Nothing{})
}

func (c *Client) Events(ctx context.Context, from grants.EventsFrom) (<-chan grants.Event, error) {
	target := "/v1/events?session=" + segment(from.Session)
	if from.Kept {
		target += fmt.Sprintf("&after=%d", from.After)
	}
	if from.Ends {
		target += "&ends=true"
	}
	_, events, _, err := c.stream(ctx, "GET", target, nil, false)
	return events, err
}

// Status asks the broker about itself.
func (c *Client) Status(ctx context.Context) (s grants.Status, err error) {
	err = c.call(ctx, "GET", "/v1/status", nil, &s)
	return s, err
}

// segment is text as one part of an address.
func segment(text string) string {
	var out []byte
	for _, c := range []byte(text) {
		if c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			out = append(out, c)
		} else {
			out = fmt.Appendf(out, "%%%02X", c)
		}
	}
	return string(out)
}

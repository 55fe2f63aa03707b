package runner

import (
	"bufio"
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/clairun/clai-sandbox/policy"
	"github.com/clairun/clai-sandbox/policy/host"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/wire/socket"
)

// How much is taken on.
const (
	DefaultTimeout = 30 * time.Minute
	MaxTimeout     = 24 * time.Hour

	maxRuns        = 64 // at once
	requestTimeout = 10 * time.Second
	answerTimeout  = 10 * time.Second
)

// A Runner answers on a socket. Its caller is the person whose commands these are.
type Runner struct {
	Caller profile.Caller
	Secret [SecretSize]byte

	runs children
}

// Serve answers until the context ends; then it ends what runs.
func (r *Runner) Serve(ctx context.Context, l net.Listener) error {
	g := socket.Guard(l, "", maxRuns, nil)
	defer context.AfterFunc(ctx, func() { g.Listener.Close() })()
	stop := r.runs.adopt()
	defer r.runs.end()
	defer stop()
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		conn, err := g.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return err
		}
		serving.Go(func() {
			defer conn.Close()
			r.serve(ctx, conn)
		})
	}
}

// serve answers one connection, which asks for one command. Who leaves before the end ends it.
func (r *Runner) serve(ctx context.Context, conn net.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(requestTimeout))
	in := bufio.NewReaderSize(conn, 64<<10)
	request, err := readLine(in, maxRequest)
	if err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	ctx, end := context.WithCancel(ctx)
	defer end()
	go func() {
		_, _ = in.ReadByte() // nothing more is to come: the other end has left
		end()
	}()
	line, err := json.Marshal(r.answer(ctx, request))
	if err != nil {
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(answerTimeout))
	_, _ = conn.Write(append(line, '\n'))
}

// readLine reads one line of at most so many bytes.
func readLine(in *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > most:
			return nil, fmt.Errorf("a line of more than %d bytes", most)
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

func (r *Runner) answer(ctx context.Context, line []byte) Answer {
	var request Request
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&request); err != nil {
		return failed(ReasonRequest, "not a request: "+err.Error())
	}
	secret, err := hex.DecodeString(request.Secret)
	if err != nil || subtle.ConstantTimeCompare(secret, r.Secret[:]) != 1 {
		return failed(ReasonSecret, "invalid secret")
	}
	if err := request.check(); err != nil {
		return failed(ReasonRequest, err.Error())
	}
	if request.Workdir != "" && !profile.Within(request.Cwd, request.Workdir) {
		return failed(ReasonWorkdir, "workdir mismatch")
	}
	decision, machine, refused := r.decide(request)
	if refused != nil {
		return *refused
	}
	return r.run(ctx, request, decision, machine)
}

func (q *Request) check() error {
	switch {
	case (q.Command == "") == (len(q.Argv) == 0):
		return errors.New("a request has either a line or words")
	case !filepath.IsAbs(q.Cwd) || filepath.Clean(q.Cwd) != q.Cwd:
		return errors.New("the working directory must be an absolute, clean path")
	case q.TimeoutMs < 0 || q.TimeoutMs > MaxTimeout.Milliseconds():
		return fmt.Errorf("the timeout must be at most %v", MaxTimeout)
	case strings.ContainsRune(q.Command+strings.Join(q.Argv, ""), 0):
		return errors.New("a command holds no zero byte")
	}
	return profile.CheckAgent(q.Agent)
}

// Policy is the request as the policy takes it.
func (q *Request) Policy() policy.Request {
	return policy.Request{Command: q.Command, Argv: q.Argv, Cwd: q.Cwd, Env: q.Env, Agent: q.Agent, Session: q.Session, Asker: q.Asker}
}

// decide asks the policy of this host. What a person approved must be exactly what it would run.
func (r *Runner) decide(q Request) (policy.Decision, *policy.Machine, *Answer) {
	refuse := func(reason, text string) (policy.Decision, *policy.Machine, *Answer) {
		answer := failed(reason, text)
		return policy.Decision{}, nil, &answer
	}
	h, err := host.Load(r.Caller, PathOf(r.Caller.Environ), q.Agent)
	if err != nil {
		return refuse(policy.ReasonPolicyUnreadable, err.Error())
	}
	p := h.Policy(q.Layers.Policy())
	d := p.Decide(q.Policy())
	if q.Approved != nil && d.Verdict == policy.AskPerson { // what runs anyway needs no answer
		if what := q.Approved.differs(d); what != "" {
			return refuse(ReasonChanged, what+" is not what was approved")
		}
		answer, ok := policy.ParseAnswer(q.Approved.Answer)
		if q.Approved.Answer == policy.AnswerNone.String() {
			answer, ok = policy.AnswerNone, true
		}
		if !ok {
			return refuse(ReasonRequest, "no such answer")
		}
		d = d.Answered(answer)
	}
	switch {
	case d.Host != policy.HostGateway:
		return refuse("host", "this host was not meant: "+strings.Join(d.Lines(), "; "))
	case d.Verdict != policy.Run:
		return refuse(d.Reason, strings.Join(d.Lines(), "; "))
	}
	return d, p.Machine, nil
}

// differs says what of a decision is not as it was approved.
func (a *Approved) differs(d policy.Decision) string {
	switch {
	case !equal(a.Runs, RunsOf(d)):
		return "what would run"
	case !equal(a.Bound, d.BoundTo):
		return "what it would run with"
	}
	return ""
}

// equal compares values as they go over the wire.
func equal(a, b any) bool {
	x, err := json.Marshal(a)
	y, other := json.Marshal(b)
	return err == nil && other == nil && bytes.Equal(x, y)
}

// PathOf is the PATH of an environment: where programs are looked for, whatever a request says.
func PathOf(environ []string) string {
	path := ""
	for _, pair := range environ {
		if value, found := strings.CutPrefix(pair, "PATH="); found {
			path = value
		}
	}
	return path
}

// ReadSecret reads the secret from the descriptor that it is handed over by.
func ReadSecret(fd uintptr) (secret [SecretSize]byte, err error) {
	file := os.NewFile(fd, "secret")
	if file == nil {
		return secret, errors.New("there is no descriptor with a secret")
	}
	defer file.Close()
	text := make([]byte, SecretSize+1)
	n := 0
	for n < len(text) {
		more, err := file.Read(text[n:])
		n += more
		if err != nil {
			break
		}
	}
	if n != SecretSize {
		return secret, fmt.Errorf("the secret has %d bytes, and not %d", n, SecretSize)
	}
	return [SecretSize]byte(text), nil
}

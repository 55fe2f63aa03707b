package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/wire"
	"github.com/clairun/clai-sandbox/wire/socket"
)

// A Server passes what comes through its sockets on to a broker. Make one with New, give it the
// broker with Attach.
type Server struct {
	dir     string // where the sockets of sessions are
	version string
	broker  grants.Broker
	notices []grants.Notice

	admit func(socket.Peer) error // why somebody does not reach the people's socket

	people  *wire.Server
	askers  *wire.Server
	started sync.WaitGroup
}

// How much is taken on.
const (
	maxSessionBody = 8 << 20
	maxConnections = 4096
	maxAskers      = 32 // connections on the socket of one session
)

// New returns a server whose sessions have their sockets in a directory.
func New(dir, version string) *Server {
	s := &Server{dir: dir, version: version}
	s.people = wire.New(s.routes(), failure, named)
	s.askers = wire.New(s.askRoutes(), failure, named)
	return s
}

// named notes the name that a change is asked under.
func named(r *http.Request) *http.Request {
	if id := r.Header.Get(grants.RequestIDHeader); id != "" && len(id) <= grants.MaxRequestID {
		return r.WithContext(grants.WithRequestID(r.Context(), id))
	}
	return r
}

// Attach gives the server its broker, and what a person should know from the start. Do so before
// Serve.
func (s *Server) Attach(b grants.Broker, notices []grants.Notice) {
	s.broker = b
	s.notices = append([]grants.Notice{}, notices...)
}

// Admit lets only those reach the people's socket of whom it does not say why not. Call it before
// Serve.
func (s *Server) Admit(admit func(socket.Peer) error) { s.admit = admit }

// Serve answers people on a socket until Close.
func (s *Server) Serve(l net.Listener) error {
	g := socket.Guard(l, "", maxConnections, s.admit)
	g.Refusal = refusal
	return s.people.Serve(g)
}

// refusal is the answer to whoever is not let in, whatever they ask.
func refusal(why error) []byte {
	status, body := failure(&grants.ForbiddenError{Why: "the gateway does not answer this process: " + why.Error()})
	text, err := json.Marshal(body)
	if err != nil {
		return nil
	}
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, http.StatusText(status), len(text), text)
}

// ListenForSession makes the socket on which the inside of a session asks.
func (s *Server) ListenForSession(session string) (path string, done func(), err error) {
	path = filepath.Join(s.dir, session+".sock")
	l, err := socket.Listen(path)
	if err != nil {
		return "", nil, err
	}
	g := socket.Guard(l, session, maxAskers, nil)
	s.started.Go(func() { _ = s.askers.Serve(g) })
	return path, func() {
		os.Remove(path)
		// Not while the broker holds its lock: a connection that is closed withdraws its question.
		go g.CloseAll()
	}, nil
}

// Shutdown takes no more connections, and ends when those that were taken have their answers; what
// streams is cut off.
func (s *Server) Shutdown() {
	s.people.Shutdown(time.Second)
	s.Close()
}

// Answered counts what was asked of the server.
func (s *Server) Answered() int64 { return s.people.Answered() + s.askers.Answered() }

// Close ends all connections.
func (s *Server) Close() {
	s.people.Close()
	s.askers.Close()
	s.started.Wait()
}

// failure is how an error is answered.
func failure(err error) (status int, body any) {
	var (
		nowhere *wire.NotFoundError
		strange *wire.BodyError
	)
	e := grants.ToWire(err)
	switch {
	case errors.As(err, &nowhere):
		e = grants.WireError{Code: grants.CodeNotFound, Message: err.Error()}
	case errors.As(err, &strange) && e.Code == grants.CodeInternal: // and no value that says itself what is wrong with it
		e = grants.ToWire(&grants.InvalidError{Field: "body", Why: strange.Error()})
	case errors.As(err, &strange):
		e.Message = strange.Err.Error()
	}
	return statuses[e.Code], grants.ErrorBody{Error: e}
}

// statuses maps each error to one HTTP status.
var statuses = map[grants.ErrorCode]int{
	grants.CodeInvalid:         http.StatusBadRequest,
	grants.CodeInvalidPath:     http.StatusBadRequest,
	grants.CodeNever:           http.StatusForbidden,
	grants.CodeInvalidDecision: http.StatusUnprocessableEntity,
	grants.CodeChanged:         http.StatusConflict,
	grants.CodeEnded:           http.StatusConflict,
	grants.CodeUnknown:         http.StatusNotFound,
	grants.CodeBusy:            http.StatusTooManyRequests,
	grants.CodeForbidden:       http.StatusForbidden,
	grants.CodeUnavailable:     http.StatusServiceUnavailable,
	grants.CodeNotFound:        http.StatusNotFound,
	grants.CodeInternal:        http.StatusInternalServerError,
}

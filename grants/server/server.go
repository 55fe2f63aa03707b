package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/clairun/clai-sandbox/grants"
)

// A Server passes what comes through its sockets on to a broker. Make one with New, give it the broker with Serve.
type Server struct {
	dir     string // where the sockets of sessions are
	version string
	broker  grants.Broker
	notices []grants.Notice

	people  *http.Server
	askers  *http.Server
	started sync.WaitGroup

	answered atomic.Int64
}

// The limits of each connection.
const (
	headerPatience = 5 * time.Second
	bodyPatience   = 10 * time.Second
	writePatience  = 10 * time.Second
	idlePatience   = time.Minute
	signOfLife     = 15 * time.Second

	maxHeader      = 16 << 10
	maxBody        = 64 << 10
	maxSessionBody = 8 << 20
	maxConnections = 4096
	maxAskers      = 32 // connections on the socket of one session
)

// New returns a server whose sessions have their sockets in a directory.
func New(dir, version string) *Server {
	s := &Server{dir: dir, version: version}
	s.people = s.httpServer(s.mux(routes))
	s.askers = s.httpServer(s.mux(askRoutes))
	s.askers.BaseContext = func(l net.Listener) context.Context {
		return context.WithValue(context.Background(), sessionKey{}, l.(*guarded).session)
	}
	return s
}

// sessionKey is under what a request's context has the session of its socket.
type sessionKey struct{}

func (s *Server) httpServer(handler http.Handler) *http.Server {
	return &http.Server{Handler: handler, ReadHeaderTimeout: headerPatience, ReadTimeout: bodyPatience, IdleTimeout: idlePatience, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(io.Discard, "", 0)}
}

// Attach gives the server its broker, and what a person should know from the start. Do so before Serve.
func (s *Server) Attach(b grants.Broker, notices []grants.Notice) {
	s.broker = b
	s.notices = append([]grants.Notice{}, notices...)
}

// Serve answers people on a socket until Close.
func (s *Server) Serve(l net.Listener) error {
	err := s.people.Serve(guard(l, "", maxConnections))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// ListenForSession makes the socket on which the inside of a session asks.
func (s *Server) ListenForSession(session string) (path string, done func(), err error) {
	path = filepath.Join(s.dir, session+".sock")
	l, err := Listen(path)
	if err != nil {
		return "", nil, err
	}
	g := guard(l, session, maxAskers)
	s.started.Go(func() { _ = s.askers.Serve(g) })
	return path, func() {
		os.Remove(path)
		// Not while the broker holds its lock: a connection that is closed withdraws its question.
		go g.closeAll()
	}, nil
}

// Shutdown takes no more connections, and ends when those that were taken have their answers; what streams is cut off.
func (s *Server) Shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.people.Shutdown(ctx)
	s.Close()
}

// Answered counts what was asked of the server.
func (s *Server) Answered() int64 { return s.answered.Load() }

// Close ends all connections.
func (s *Server) Close() {
	s.people.Close()
	s.askers.Close()
	s.started.Wait()
}

// handler is one answer: what it returns is sent as JSON.
type handler func(s *Server, w http.ResponseWriter, r *http.Request) (any, error)

func (s *Server) mux(list []route) http.Handler {
	mux := http.NewServeMux()
	for _, route := range list {
		mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
			s.answered.Add(1)
			limit := int64(maxBody)
			if route.Body > 0 {
				limit = route.Body
			}
			r.Body = http.MaxBytesReader(w, r.Body, limit)
			if id := r.Header.Get(grants.RequestIDHeader); id != "" && len(id) <= grants.MaxRequestID {
				r = r.WithContext(grants.WithRequestID(r.Context(), id))
			}
			answer, err := route.handle(s, w, r)
			if answer == streamed {
				return
			}
			if err != nil {
				fail(w, err)
				return
			}
			send(w, http.StatusOK, answer)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		sendError(w, http.StatusNotFound, grants.WireError{Code: grants.CodeNotFound, Message: "there is no " + r.Method + " at this address"})
	})
	return mux
}

// streamed is the answer of a handler that has sent it.
var streamed any = new(int)

// send writes one JSON object. What cannot be sent any more is no use to anybody.
func send(w http.ResponseWriter, status int, answer any) {
	text, err := json.Marshal(answer)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"error":{"code":"internal","message":"the answer cannot be written"}}`)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writePatience))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(grants.PlainJSON(text), '\n'))
}

func fail(w http.ResponseWriter, err error) {
	wire := grants.ToWire(err)
	sendError(w, statuses[wire.Code], wire)
}

func sendError(w http.ResponseWriter, status int, e grants.WireError) {
	send(w, status, grants.ErrorBody{Error: e})
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
	grants.CodeUnavailable:     http.StatusServiceUnavailable,
	grants.CodeNotFound:        http.StatusNotFound,
	grants.CodeInternal:        http.StatusInternalServerError,
}

// receive reads the body, which is one JSON object of known keys, to its end: from there on the connection has no deadline
// any more (net/http watches it for the peer's leaving), so that an answer may take minutes.
func receive(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil && d.More() {
		err = errors.New("something stands behind it")
	}
	if err == nil {
		return nil
	}
	e := grants.ToWire(err)
	if e.Code != grants.CodeInternal {
		return err
	}
	return &grants.InvalidError{Field: "body", Why: fmt.Sprintf("is not the JSON object that is wanted here: %v", err)}
}

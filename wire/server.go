package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/wire/socket"
)

// The limits of each connection.
const (
	headerTimeout = 5 * time.Second
	bodyTimeout   = 10 * time.Second
	writeTimeout  = 10 * time.Second
	idleTimeout   = time.Minute
	keepAlive     = 15 * time.Second

	maxHeader = 16 << 10
	// MaxBody is how long a body may be where its route says nothing else, in bytes.
	MaxBody = 64 << 10
)

// A Route is one thing that can be asked.
type Route struct {
	Method, Path string
	Summary      string
	Takes        any // what the body is; nil: nothing
	Gives        any // what the answer is; the event, where it is a stream of them
	Query        map[string]string
	Body         int64 // the most bytes of the body, where it is not MaxBody
	Handle       Handler
}

// A Handler answers: what it returns is sent as JSON. One that has sent its answer itself returns
// Streamed.
type Handler func(w http.ResponseWriter, r *http.Request) (any, error)

// Streamed is the answer of a handler that has sent it.
var Streamed any = new(int)

// Result is a handler's answer, of any type.
func Result[T any](answer T, err error) (any, error) { return answer, err }

// A NotFoundError means that there is no such address.
type NotFoundError struct{ Method string }

func (e *NotFoundError) Error() string { return "there is no " + e.Method + " at this address" }

// A BodyError means that a body is not the JSON object that its route wants.
type BodyError struct{ Err error }

func (e *BodyError) Error() string {
	return fmt.Sprintf("is not the JSON object that is wanted here: %v", e.Err)
}
func (e *BodyError) Unwrap() error { return e.Err }

// A Server answers by one table of routes on any number of listeners. Make one with New.
type Server struct {
	HTTP     http.Server // its deadlines may be shortened before it serves
	fail     func(error) (status int, body any)
	answered atomic.Int64
}

// New returns a server. fail turns an error, which may be a *NotFoundError or a *BodyError, into an
// answer. Where prepare is not nil, each request goes through it first.
func New(routes []Route, fail func(error) (status int, body any), prepare func(*http.Request) *http.Request) *Server {
	s := &Server{fail: fail}
	mux := http.NewServeMux()
	for _, route := range routes {
		mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
			s.answered.Add(1)
			limit := int64(MaxBody)
			if route.Body > 0 {
				limit = route.Body
			}
			r.Body = http.MaxBytesReader(w, r.Body, limit)
			if prepare != nil {
				r = prepare(r)
			}
			s.answer(w, r, route.Handle)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.sendError(w, &NotFoundError{r.Method})
	})
	s.HTTP = http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(io.Discard, "", 0),
		BaseContext: func(l net.Listener) context.Context {
			name := ""
			if g, ok := l.(*socket.Guarded); ok {
				name = g.Name
			}
			return context.WithValue(context.Background(), nameKey{}, name)
		}}
	return s
}

// nameKey is under what a request's context has the name of its listener.
type nameKey struct{}

// Through is the name of the guarded listener that a request came through: who asks is known by it,
// and by nothing that is said.
func Through(r *http.Request) string {
	name, _ := r.Context().Value(nameKey{}).(string)
	return name
}

// Serve answers on a listener until Close or Shutdown.
func (s *Server) Serve(l net.Listener) error {
	if err := s.HTTP.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown takes no more connections, and ends when those that were taken have their answers, or
// when the time is over; then it cuts off what streams.
func (s *Server) Shutdown(timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_ = s.HTTP.Shutdown(ctx)
	s.HTTP.Close()
}

// Close ends all connections.
func (s *Server) Close() { s.HTTP.Close() }

// Answered counts what was asked of the server.
func (s *Server) Answered() int64 { return s.answered.Load() }

func (s *Server) answer(w http.ResponseWriter, r *http.Request, handle Handler) {
	answer, err := handle(w, r)
	switch {
	case answer == Streamed:
	case err != nil:
		s.sendError(w, err)
	default:
		send(w, http.StatusOK, answer)
	}
}

func (s *Server) sendError(w http.ResponseWriter, err error) {
	status, body := s.fail(err)
	send(w, status, body)
}

// send writes one JSON object. What cannot be sent any more is no use to anybody.
func send(w http.ResponseWriter, status int, answer any) {
	line, err := json.Marshal(answer)
	if err != nil {
		status, line = http.StatusInternalServerError, []byte(`{"error":{"code":"internal","message":"the answer cannot be written"}}`)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text.PlainJSON(line), '\n'))
}

// Receive reads the body, which is one JSON object of known keys, to its end: from there on the
// connection has no deadline any more (net/http watches it for the peer's leaving), so that an
// answer may take minutes. The error is a *BodyError.
func Receive(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil && d.More() {
		err = errors.New("something stands behind it")
	}
	if err != nil {
		return &BodyError{err}
	}
	return nil
}

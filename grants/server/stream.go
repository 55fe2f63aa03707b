package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/clairun/clai-sandbox/grants"
)

// A stream sends events as server-sent events (HTML Standard, 9.2).
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func newStream(w http.ResponseWriter) *stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	s := &stream{w, http.NewResponseController(w)}
	_ = s.control.Flush()
	return s
}

func (s *stream) event(e grants.Event) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return s.write("event: %s\ndata: %s\n\n", e.Kind, grants.PlainJSON(text))
}

// write sends at once, or gives the reader up.
func (s *stream) write(format string, a ...any) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(writePatience))
	if _, err := fmt.Fprintf(s.w, format, a...); err != nil {
		return err
	}
	return s.control.Flush()
}

// follow passes events on until they end or the reader leaves. It says now and then that it is there, and finds out so
// about a reader that is not.
func (s *stream) follow(r *http.Request, events <-chan grants.Event) {
	alive := time.NewTicker(signOfLife)
	defer alive.Stop()
	for {
		var err error
		select {
		case e, ok := <-events:
			if !ok {
				return
			}
			err = s.event(e)
		case <-alive.C:
			err = s.write(":\n\n")
		case <-r.Context().Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func events(s *Server, w http.ResponseWriter, r *http.Request) (any, error) {
	events, err := s.broker.Events(r.Context())
	if err != nil {
		return nil, err
	}
	newStream(w).follow(r, events)
	return streamed, nil
}

// openSession begins a session that ends with the connection, however the other end goes away.
func openSession(s *Server, w http.ResponseWriter, r *http.Request) (any, error) {
	var spec grants.SessionSpec
	if err := receive(r, &spec); err != nil {
		return nil, err
	}
	session, err := s.broker.Open(r.Context(), spec)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	out := newStream(w)
	if err := out.event(grants.Event{Kind: grants.EventSession, AtUnixMs: time.Now().UnixMilli(), Session: session.ID, Socket: session.Socket}); err == nil {
		out.follow(r, session.Events)
	}
	return streamed, nil
}

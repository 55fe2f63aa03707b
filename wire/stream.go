package wire

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/clairun/clai-sandbox/profile/text"
)

// A Stream sends events as server-sent events (HTML Standard, 9.2).
type Stream[E any] struct {
	w       http.ResponseWriter
	control *http.ResponseController
	kind    func(E) string
}

// NewStream begins an answer that is a stream of events, each with the name of its kind.
func NewStream[E any](w http.ResponseWriter, kind func(E) string) *Stream[E] {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	s := &Stream[E]{w, http.NewResponseController(w), kind}
	_ = s.control.Flush()
	return s
}

// Send sends one event.
func (s *Stream[E]) Send(e E) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return s.write("event: %s\ndata: %s\n\n", s.kind(e), text.PlainJSON(line))
}

// write sends at once, or gives the reader up.
func (s *Stream[E]) write(format string, a ...any) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(writePatience))
	if _, err := fmt.Fprintf(s.w, format, a...); err != nil {
		return err
	}
	return s.control.Flush()
}

// Follow passes events on until they end or the reader leaves. It says now and then that it is there, and finds out so
// about a reader that is not.
func (s *Stream[E]) Follow(r *http.Request, events <-chan E) {
	alive := time.NewTicker(signOfLife)
	defer alive.Stop()
	for {
		var err error
		select {
		case e, ok := <-events:
			if !ok {
				return
			}
			err = s.Send(e)
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

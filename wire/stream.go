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
	named   func(E) (kind, id string)
}

// NewStream begins an answer that is a stream of events, each with the name of its kind, and with
// an id where it has one: a reader that comes again says the last one that it had, in the header
// Last-Event-ID.
func NewStream[E any](w http.ResponseWriter, named func(E) (kind, id string)) *Stream[E] {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	s := &Stream[E]{w, http.NewResponseController(w), named}
	_ = s.control.Flush()
	return s
}

// Send sends one event.
func (s *Stream[E]) Send(e E) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	kind, id := s.named(e)
	if id != "" {
		id = "id: " + id + "\n"
	}
	return s.write("event: %s\n%sdata: %s\n\n", kind, id, text.PlainJSON(line))
}

// write sends at once, or gives the reader up.
func (s *Stream[E]) write(format string, a ...any) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := fmt.Fprintf(s.w, format, a...); err != nil {
		return err
	}
	return s.control.Flush()
}

// Follow passes events on until they end or the reader leaves. It says now and then that it is
// there, and finds out so about a reader that is not.
func (s *Stream[E]) Follow(r *http.Request, events <-chan E) {
	alive := time.NewTicker(keepAlive)
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

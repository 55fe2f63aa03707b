package broker

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/clairun/clai-sandbox/grants"
)

// A hub passes events on, and keeps the last ones for who asks again. The broker's lock is held
// over each of its methods.
type hub struct {
	listeners map[*listener]bool

	last    int64 // the number of the last event
	lost    int64 // of the last one that is not kept any more, or of this broker's beginning
	kept    []keptEvent
	size    int            // of all that are kept, in bytes as they are written
	session map[string]int // how much of it is a session's
}

type keptEvent struct {
	grants.Event
	size int
}

// How much is kept of all sessions, and of one, which may be that of an agent that does the same
// again and again.
const (
	maxKept        = 4 << 20
	maxKeptSession = 256 << 10
)

// newHub begins with a number that no earlier broker has reached: it would have had to tell a
// million things a second.
func newHub() hub {
	now := time.Now().UnixMicro()
	return hub{listeners: map[*listener]bool{}, last: now, lost: now, session: map[string]int{}}
}

type listener struct {
	events  chan grants.Event
	session string // empty: all
	gone    bool
	quiet   bool // the daemon's own
}

func newListener(room int) *listener {
	return &listener{events: make(chan grants.Event, room+eventBuffer)}
}

// send reports false if the listener is too slow: then it hears nothing more, and is told so by the
// end of its channel.
func (l *listener) send(e grants.Event) bool {
	if l.gone {
		return false
	}
	select {
	case l.events <- e:
		return true
	default:
		l.close()
		return false
	}
}

func (l *listener) close() {
	if !l.gone {
		l.gone = true
		close(l.events)
	}
}

// needed reports whether anyone listens who is not the daemon itself.
func (h *hub) needed() bool {
	for l := range h.listeners {
		if !l.quiet {
			return true
		}
	}
	return false
}

// add adds a listener, whose channel has what it asked for of what is kept.
func (h *hub) add(from grants.EventsFrom) *listener {
	var first []grants.Event
	if from.Kept {
		after := from.After
		if after > h.last { // the clock was set back since
			after = 0
		}
		if from.After != 0 && after < h.lost {
			first = append(first, grants.Event{Kind: grants.EventsLost, AtUnixMs: time.Now().UnixMilli()})
		}
		for _, e := range h.kept {
			if e.ID > after && (from.Session == "" || e.Session == from.Session) {
				first = append(first, e.Event)
			}
		}
	}
	l := newListener(len(first))
	l.session = from.Session
	for _, e := range first {
		l.send(e)
	}
	h.listeners[l] = true
	return l
}

func (h *hub) remove(l *listener) {
	delete(h.listeners, l)
	l.close()
}

func (h *hub) publish(e grants.Event) {
	h.last++
	e.ID = h.last
	h.keep(e)
	for l := range h.listeners {
		if l.session != "" && l.session != e.Session {
			continue
		}
		if !l.send(e) {
			h.remove(l)
		}
	}
}

// keep makes room by forgetting the oldest: of the same session where that has its share, else of
// all.
func (h *hub) keep(e grants.Event) {
	line, err := json.Marshal(e)
	if err != nil {
		return
	}
	h.kept = append(h.kept, keptEvent{e, len(line)})
	h.size += len(line)
	h.session[e.Session] += len(line)
	for e.Session != "" && h.session[e.Session] > maxKeptSession {
		h.forget(slices.IndexFunc(h.kept, func(k keptEvent) bool { return k.Session == e.Session }))
	}
	for h.size > maxKept {
		h.forget(0)
	}
}

func (h *hub) forget(i int) {
	k := h.kept[i]
	if i == 0 { // without moving the others
		h.kept[0] = keptEvent{}
		h.kept = h.kept[1:]
	} else {
		h.kept = slices.Delete(h.kept, i, i+1)
	}
	h.size -= k.size
	if h.session[k.Session] -= k.size; h.session[k.Session] == 0 {
		delete(h.session, k.Session)
	}
	h.lost = max(h.lost, k.ID)
}

func (h *hub) close() {
	for l := range h.listeners {
		h.remove(l)
	}
}

package broker

import "github.com/clairun/clai-sandbox/grants"

// A hub passes events on. The broker's lock is held over each of its methods.
type hub struct {
	listeners map[*listener]bool
}

type listener struct {
	events chan grants.Event
	gone   bool
	quiet  bool // the daemon's own
}

func newListener() *listener { return &listener{events: make(chan grants.Event, eventBuffer)} }

// send reports false if the listener is too slow: then it hears nothing more, and is told so by the end of its channel.
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

func (h *hub) add() *listener {
	if h.listeners == nil {
		h.listeners = map[*listener]bool{}
	}
	l := newListener()
	h.listeners[l] = true
	return l
}

func (h *hub) remove(l *listener) {
	delete(h.listeners, l)
	l.close()
}

func (h *hub) publish(e grants.Event) {
	for l := range h.listeners {
		if !l.send(e) {
			h.remove(l)
		}
	}
}

func (h *hub) close() {
	for l := range h.listeners {
		h.remove(l)
	}
}

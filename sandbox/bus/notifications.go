package bus

import (
	"slices"
	"strings"
	"sync"
)

// Notifications are numbered, and a service lets anybody replace and close them by number and tells
// everybody what a person did with each: the launcher lets through only what is about the sandbox's
// own. Else a command would put its words in the place of the question whether it may have
// something, or read what somebody answers in a chat.

const (
	notificationsPath = "/org/freedesktop/Notifications"
	notificationsFace = "org.freedesktop.Notifications"
	notifySignature   = "susssasa{sv}i"
	maxNotifications  = 1000 // of one sandbox's that are remembered
	maxNotifying      = 256  // calls of one connection that have no answer yet
)

// shownNotifications are the numbers of those that one sandbox has shown, the newest last.
type shownNotifications struct {
	mu  sync.Mutex
	ids []uint32
}

func (s *shownNotifications) add(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.ids, id) {
		s.ids = append(s.ids, id)
	}
	if extra := len(s.ids) - maxNotifications; extra > 0 {
		s.ids = slices.Delete(s.ids, 0, extra)
	}
}

func (s *shownNotifications) has(id uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.ids, id)
}

// A notifier judges the messages of one connection.
type notifier struct {
	shown *shownNotifications

	mu      sync.Mutex
	waiting map[uint32]bool // serials of calls that show one, until their answer
	highest uint32          // of the serials that there were
}

// said judges what the command says. It drops signals: xdg-dbus-proxy lets any of them through, and
// the names that may be called need none. The number of a notification that is not the sandbox's
// becomes 0, which is none: what would replace it stands beside it.
func (n *notifier) said(begin []byte) (judgement, error) {
	if begin[1] != messageCall {
		return judgement{drop: begin[1] == messageSignal}, nil
	}
	m, need, err := readHeader(begin)
	if err != nil || need > 0 {
		return judgement{need: need}, err
	}
	at := 0 // of the number, if there is one
	if m.path == notificationsPath && (m.face == notificationsFace || m.face == "") {
		if at, need, err = notificationNumber(m, begin); err != nil || need > 0 {
			return judgement{need: need}, err
		}
	}
	if at > 0 && !n.shown.has(m.order.Uint32(begin[at:])) {
		m.order.PutUint32(begin[at:], 0)
	}
	n.called(m, at > 0 && m.member == "Notify" && m.flags&noReplyExpected == 0)
	return judgement{}, nil
}

// notificationNumber is where in a call to the service the number of a notification stands; 0:
// there is none. need is how much of the call it takes to tell, if there is too little.
func notificationNumber(m header, begin []byte) (at, need int, err error) {
	switch m.member {
	case "Notify":
		if m.signature != notifySignature {
			return 0, 0, errNoMessage // some services do not look at types
		}
		if need = m.body + 4; len(begin) < need {
			return 0, need, nil
		}
		name := m.order.Uint32(begin[m.body:])
		if name > maxFields {
			return 0, 0, errNoMessage
		}
		at = m.body + (4+int(name)+1+3)&^3
	case "CloseNotification":
		if m.signature != "u" {
			return 0, 0, errNoMessage
		}
		at = m.body
	default:
		return 0, 0, nil
	}
	if need = at + 4; len(begin) < need {
		return 0, need, nil
	}
	return at, 0, nil
}

// called notes a call. The answer to one that shows a notification counts only if no other call of
// the connection can have that answer: its serial is a new one, and is not used again before.
func (n *notifier) called(m header, shows bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.waiting, m.serial)
	if shows && m.serial > n.highest && len(n.waiting) < maxNotifying {
		n.waiting[m.serial] = true
	}
	n.highest = max(n.highest, m.serial)
}

// heard judges what the command is told: of notifications, only of the sandbox's own.
func (n *notifier) heard(begin []byte) (judgement, error) {
	kind := begin[1]
	if kind == messageCall {
		return judgement{}, nil
	}
	unclear := judgement{drop: kind == messageSignal}
	m, need, err := readHeader(begin)
	if err != nil {
		return unclear, nil
	}
	if need > 0 {
		return judgement{need: need}, nil
	}
	if kind == messageSignal && m.face != notificationsFace || kind != messageSignal && !n.waits(m.replyTo) {
		return judgement{}, nil
	}
	numbered := strings.HasPrefix(m.signature, "u")
	if numbered && len(begin) < m.body+4 {
		return judgement{need: m.body + 4}, nil
	}
	if kind == messageSignal {
		return judgement{drop: !numbered || !n.shown.has(m.order.Uint32(begin[m.body:]))}, nil
	}
	n.mu.Lock()
	delete(n.waiting, m.replyTo)
	n.mu.Unlock()
	if kind == messageReturn && m.signature == "u" {
		n.shown.add(m.order.Uint32(begin[m.body:]))
	}
	return judgement{}, nil
}

func (n *notifier) waits(serial uint32) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.waiting[serial]
}

// readHeader reads a header, or says how much of the message it takes.
func readHeader(begin []byte) (m header, need int, err error) {
	body, err := messageBody(begin)
	if err != nil || len(begin) < body {
		return m, body, err
	}
	m, err = parseHeader(begin)
	return m, 0, err
}

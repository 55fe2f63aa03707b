package broker

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile/whole"
)

// A broker may end while sandboxes run. So that the next one knows of them, each session leaves a
// file as long as it is open: what runs it, and since when. Whoever goes on with its session takes
// it over; until then the session is away.

// A presence is such a file.
type presence struct {
	Key       string           `json:"key"`
	ID        string           `json:"sessionId"`
	Agent     string           `json:"agentId"`
	Workspace string           `json:"workspaceId"`
	Command   string           `json:"command,omitempty"`
	Live      bool             `json:"live"`
	PID       int              `json:"pid"`
	Overrides grants.Overrides `json:"overrides,omitzero"`
	Started   string           `json:"started"` // the process's start, which tells it from others that get its number

	path string
	back chan struct{} // closed when its sandboxes show what they should
}

func (p *presence) sandbox(why string) grants.Sandbox {
	return grants.Sandbox{Session: p.ID, PID: p.PID, Workspace: p.Workspace, Command: p.Command, Why: why}
}

// alive reports whether its process runs and has not ended the session.
func (p *presence) alive() bool {
	_, err := os.Lstat(p.path)
	return err == nil && p.Started == grants.StartOf(p.PID)
}

// note writes the file of a session that begins.
func (b *Broker) note(s *session) error {
	if b.options.Presence == "" || s.spec.PID <= 0 || s.spec.Key == "" {
		return nil
	}
	p := presence{Key: s.spec.Key, ID: s.id, Agent: s.spec.Agent, Workspace: s.spec.Workspace, Command: s.spec.Command, Live: s.spec.Live, PID: s.spec.PID, Overrides: s.overrides, Started: grants.StartOf(s.spec.PID)}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.options.Presence, 0o700); err != nil {
		return err
	}
	return whole.Write(filepath.Join(b.options.Presence, p.Key), "new-", text)
}

// forgetSession removes the file of a session.
func (b *Broker) forgetSession(key string) {
	if b.options.Presence != "" && key != "" {
		_ = os.Remove(filepath.Join(b.options.Presence, key))
	}
}

// maxPresence bounds one file, in bytes.
const maxPresence = 64 << 10

// readPresences takes over what an earlier broker left, of processes that are there still.
func (b *Broker) readPresences() {
	entries, _ := os.ReadDir(b.options.Presence)
	for _, entry := range entries {
		path := filepath.Join(b.options.Presence, entry.Name())
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxPresence {
			continue
		}
		text, err := os.ReadFile(path)
		p := &presence{path: path, back: make(chan struct{})}
		if err != nil || json.Unmarshal(text, p) != nil || p.Key != entry.Name() || !p.alive() {
			_ = os.Remove(path)
			continue
		}
		b.away[p.Key] = p
	}
}

// A wait is for one sandbox that something is taken away from.
type wait struct {
	sandbox grants.Sandbox
	done    <-chan string // what became of it: a problem, or none
	back    <-chan struct{}
	alive   func() bool
}

// isKey reports whether a session's key can be the name of a file.
func isKey(key string) bool {
	for _, c := range []byte(key) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return false
		}
	}
	return len(key) <= 64
}

// reachTimeout is how long a change waits for running sandboxes to take it up, and for those of an
// earlier broker to come back.
const reachTimeout = 4 * time.Second

// await waits for sandboxes, and returns those that were not reached.
func await(list []wait) []grants.Sandbox {
	var unreached []grants.Sandbox
	deadline := time.NewTimer(reachTimeout)
	defer deadline.Stop()
	late := false
	for _, w := range list {
		for !late {
			select {
			case problem := <-w.done:
				if problem != "" {
					w.sandbox.Why = problem
					unreached = append(unreached, w.sandbox)
				}
			case <-w.back:
			case <-deadline.C:
				late = true
				continue
			}
			w.alive = nil
			break
		}
		if w.alive != nil && w.alive() {
			unreached = append(unreached, w.sandbox)
		}
	}
	return unreached
}

// Why a sandbox was not reached.
const (
	whyAway    = "the gateway that it belonged to has ended, and it has not come back"
	whySilent  = "it did not answer in time"
	whyNotLive = "it is not live: what it was started with stays until it ends"
)

// reach lists who has to take up that something was taken away. The broker's lock is held, and the
// event was told.
func (b *Broker) reach(kind grants.EventKind, g grants.Grant) []wait {
	var list []wait
	for _, s := range b.sessions {
		if s.spec.Agent != g.Agent || g.Scope == grants.ScopeOnce && g.Session != s.id || s.spec.PID <= 0 {
			continue
		}
		w := wait{sandbox: grants.Sandbox{Session: s.id, PID: s.spec.PID, Workspace: s.spec.Workspace, Command: s.spec.Command, Why: whySilent}, back: s.over, alive: s.alive}
		if s.spec.Live || g.Domain != "" { // what a sandbox reaches can be changed in all of them
			done := make(chan string, 1)
			s.applied[appliedKey(kind, g.ID)] = done
			w.done = done
		} else {
			now := make(chan string, 1)
			now <- whyNotLive
			w.done = now
		}
		list = append(list, w)
	}
	if g.Scope != grants.ScopeAlways {
		return list
	}
	for key, p := range b.away {
		if !p.alive() {
			delete(b.away, key)
			continue
		}
		if p.Agent == g.Agent {
			w := wait{sandbox: p.sandbox(whyAway), back: p.back, alive: p.alive}
			if !p.Live && g.Domain == "" {
				w.sandbox.Why = whyNotLive
			}
			list = append(list, w)
		}
	}
	return list
}

func (s *session) alive() bool { return grants.StartOf(s.spec.PID) != "" }

func appliedKey(kind grants.EventKind, id string) string {
	if kind == "" {
		kind = grants.EventGranted
	}
	return string(kind) + " " + id
}

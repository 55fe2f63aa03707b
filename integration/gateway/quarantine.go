package gateway

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/clairun/clai-sandbox/audit"
	"github.com/clairun/clai-sandbox/profile/whole"
	"github.com/clairun/clai-sandbox/sandbox/protect"
)

// setAside is a line of the audit file: something came into the quarantine, by any command's
// launcher, whether or not it had a gateway then.
type setAside struct {
	Time      time.Time `json:"time"`
	Event     string    `json:"event"` // quarantined, or quarantined_more
	User      string    `json:"user,omitempty"`
	ID        string    `json:"quarantineId,omitempty"`
	Agent     string    `json:"agentId,omitempty"`
	Workspace string    `json:"workspaceId,omitempty"`
	Path      string    `json:"path,omitempty"`
	Rule      string    `json:"rule,omitempty"`
	Kind      string    `json:"kind,omitempty"`
	Count     int       `json:"count,omitempty"`
}

const (
	recordedName = "quarantine-recorded" // the ids of what is on record
	// lookEvery is how often the quarantine is looked at.
	lookEvery = 5 * time.Second
	// maxSetAside are on record each by itself, of what is found at once. Others are counted.
	maxSetAside = 200
	maxText     = 1000 // bytes of a path
)

// A quarantineRecord puts on record what comes into the quarantine, each once; a gateway that is
// killed in between does so again.
type quarantineRecord struct {
	state, user string
	log         *audit.Log
	changed     time.Time // of the directory, when it was looked at
	recorded    map[string]bool
	most        int
}

// newQuarantineRecord goes on where the last one ended.
func newQuarantineRecord(state, user string, log *audit.Log) *quarantineRecord {
	q := &quarantineRecord{state: state, user: user, log: log, recorded: map[string]bool{}, most: maxSetAside}
	var list []string
	if text, err := os.ReadFile(filepath.Join(state, recordedName)); err == nil && json.Unmarshal(text, &list) == nil {
		for _, id := range list {
			q.recorded[id] = true
		}
	}
	return q
}

// watchQuarantine looks until the context ends, and once more then.
func watchQuarantine(ctx context.Context, state, user string, log *audit.Log) {
	q := newQuarantineRecord(state, user, log)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		q.look()
		select {
		case <-ctx.Done():
			q.look()
			return
		case <-tick.C:
		}
	}
}

// look puts on record what is new. What cannot be written now is looked at again.
func (q *quarantineRecord) look() {
	quarantine := protect.QuarantineIn(q.state)
	if quarantine == nil {
		return
	}
	info, err := os.Lstat(quarantine.Dir)
	if err != nil || info.ModTime().Equal(q.changed) {
		return
	}
	entries, err := quarantine.List()
	if err != nil {
		return
	}
	now, ids, more, written := map[string]bool{}, []string{}, 0, 0
	for _, e := range entries {
		now[e.ID] = true
		ids = append(ids, e.ID)
		if q.recorded[e.ID] {
			continue
		}
		if written++; written > q.most {
			more++
			continue
		}
		line := setAside{Time: time.Now().UTC(), Event: "quarantined", User: q.user, ID: e.ID, Agent: e.Agent, Workspace: e.Workspace, Path: e.Path[:min(len(e.Path), maxText)], Rule: e.Rule, Kind: e.Kind}
		if _, err := q.log.Append(line, false); err != nil {
			return
		}
	}
	if more > 0 {
		if _, err := q.log.Append(setAside{Time: time.Now().UTC(), Event: "quarantined_more", User: q.user, Count: more}, false); err != nil {
			return
		}
	}
	text, err := json.Marshal(ids)
	if err == nil {
		_ = whole.Write(filepath.Join(q.state, recordedName), recordedName+"-", text)
	}
	q.recorded = now
	if time.Since(info.ModTime()) > time.Second {
		q.changed = info.ModTime()
	}
}

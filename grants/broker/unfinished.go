package broker

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/store"
)

// restarted is why a request was denied that waited when the last broker was killed.
const restarted = "the gateway restarted"

// restartTimeout is for how long it is told to who asks again, beside the time that a request
// waits.
const restartTimeout = time.Hour

// An unfinished request is one that the audit file has no end of: those who asked went with the
// broker that was killed.
type unfinished struct {
	grants.Request
	name string // under which it was asked
}

// unfinished reads the file's end. told is what was answered, by the names that it was asked under:
// who asked may not have heard it.
func (b *Broker) unfinished() (waiting []unfinished, told map[askedAs]grants.Answer) {
	told = map[askedAs]grants.Answer{}
	lines, err := b.options.Audit.Since(time.Now().Add(-b.options.Timeout - restartTimeout))
	if err != nil {
		return nil, told
	}
	for line := range lines {
		var e event
		if !bytes.Contains(line, []byte(`"grant_`)) || json.Unmarshal(line, &e) != nil || e.Request == nil {
			continue
		}
		at := slices.IndexFunc(waiting, func(u unfinished) bool { return u.ID == e.Request.ID })
		switch {
		case e.Event == "grant_requested" && at < 0:
			waiting = append(waiting, unfinished{*e.Request, e.Name})
		case e.Event == "grant_decision_not_stored" && at < 0: // it waited on
			waiting = append(waiting, unfinished{Request: *e.Request})
		case (e.Event == "grant_decided" || e.Event == "grant_request_ended") && at >= 0:
			if u := waiting[at]; u.name != "" && e.Outcome != grants.OutcomeGranted {
				reason := e.Reason
				if e.Decision != nil {
					reason = e.Decision.Reason
				}
				if len(told) >= maxDone {
					clear(told)
				}
				told[askedAs{u.Agent, u.name}] = grants.Answer{RequestID: u.ID, Outcome: e.Outcome, Reason: reason}
			}
			waiting = slices.Delete(waiting, at, at+1)
		}
	}
	return waiting, told
}

// endUnfinished denies what waited when the last broker was killed, and remembers what to tell
// whoever asks again.
func (b *Broker) endUnfinished() {
	waiting, told := b.unfinished()
	for _, u := range waiting {
		b.auditTaking(event{Event: "grant_request_ended", Request: &u.Request, Outcome: grants.OutcomeDenied, Reason: restarted})
		record := grants.Record{Request: u.Request, Outcome: grants.OutcomeDenied, EndedAtUnixMs: time.Now().UnixMilli()}
		_ = b.options.Store.Apply(store.Change{Records: []grants.Record{record}})
		b.ended = append(b.ended, endedRequest{u.ID, grants.OutcomeDenied})
		if u.name != "" {
			told[askedAs{u.Agent, u.name}] = grants.Answer{RequestID: u.ID, Outcome: grants.OutcomeDenied, Reason: restarted}
		}
	}
	b.told = told
}

// askedAs is an agent and the name that it asked under.
type askedAs struct{ agent, name string }

// toldBefore is what an earlier broker answered to this, or what its end did. What is granted is in
// the store: that is found as ever.
func (b *Broker) toldBefore(agent, name string) (grants.Answer, bool) {
	if name == "" {
		return grants.Answer{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	answer, found := b.told[askedAs{agent, name}]
	return answer, found
}

package broker

import (
	"bytes"
	"encoding/json"
	"io"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/store"
)

// maxUnfinished is how much of the audit file's end is looked through for questions that a killed broker left, in bytes.
const maxUnfinished = 4 << 20

// unfinished lists the requests that the file has no end of: those who asked went with the broker that was killed.
func (a *Audit) unfinished() []grants.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		return nil
	}
	begin := max(0, a.size-maxUnfinished)
	text, err := io.ReadAll(io.NewSectionReader(a.file, begin, a.size-begin))
	if err != nil {
		return nil
	}
	if begin > 0 {
		_, text, _ = bytes.Cut(text, []byte("\n")) // what is left of a line
	}
	var list []grants.Request
	at := map[string]int{}
	for line := range bytes.Lines(text) {
		var e struct {
			Event   string          `json:"event"`
			Request *grants.Request `json:"request"`
		}
		if json.Unmarshal(line, &e) != nil || e.Request == nil {
			continue
		}
		switch e.Event {
		case "grant_requested", "grant_decision_not_stored": // it waited on
			at[e.Request.ID] = len(list)
			list = append(list, *e.Request)
		case "grant_decided", "grant_request_ended":
			if i, found := at[e.Request.ID]; found {
				list[i].ID = ""
			}
		}
	}
	left := list[:0]
	for _, r := range list {
		if r.ID != "" {
			left = append(left, r)
		}
	}
	return left
}

// endUnfinished records the end of what waited when the last broker was killed.
func (b *Broker) endUnfinished() {
	for _, r := range b.options.Audit.unfinished() {
		const why = "the gateway ended before anybody answered"
		b.auditTaking(event{Event: "grant_request_ended", Request: &r, Outcome: grants.OutcomeWithdrawn, Reason: why})
		record := grants.Record{Request: r, Outcome: grants.OutcomeWithdrawn, EndedAtUnixMs: time.Now().UnixMilli()}
		_ = b.options.Store.Apply(store.Change{Records: []grants.Record{record}})
	}
}

package broker

import (
	"github.com/clairun/clai-sandbox/grants"
)

// An index finds what was granted: by id, and by agent and place.
type index struct {
	byID    map[string]*grants.Grant
	byPlace map[place][]*grants.Grant
	byAgent map[string]map[string]*grants.Grant
	endings grants.Endings
}

type place struct{ agent, resolved string }

func newIndex(clock grants.Clock) index {
	return index{map[string]*grants.Grant{}, map[place][]*grants.Grant{}, map[string]map[string]*grants.Grant{}, grants.Endings{Clock: clock}}
}

func (x *index) put(g grants.Grant) {
	x.endings.Note(g)
	x.take(g.ID)
	x.byID[g.ID] = &g
	at := place{g.Agent, g.Resolved}
	x.byPlace[at] = append(x.byPlace[at], &g)
	if x.byAgent[g.Agent] == nil {
		x.byAgent[g.Agent] = map[string]*grants.Grant{}
	}
	x.byAgent[g.Agent][g.ID] = &g
}

func (x *index) remove(id string) {
	x.endings.Forget(id)
	x.take(id)
}

// take takes a grant out, for good or to put it in as it is now.
func (x *index) take(id string) {
	g := x.byID[id]
	if g == nil {
		return
	}
	delete(x.byID, id)
	at := place{g.Agent, g.Resolved}
	kept := x.byPlace[at][:0:0]
	for _, other := range x.byPlace[at] {
		if other != g {
			kept = append(kept, other)
		}
	}
	if x.byPlace[at] = kept; len(kept) == 0 {
		delete(x.byPlace, at)
	}
	delete(x.byAgent[g.Agent], id)
	if len(x.byAgent[g.Agent]) == 0 {
		delete(x.byAgent, g.Agent)
	}
}

// leadingTo lists what a session was granted of a path or above it, and holds.
func (x *index) leadingTo(resolved, agent, session string) []grants.Grant {
	var list []grants.Grant
	for path := resolved; ; path = parent(path) {
		for _, g := range x.byPlace[place{agent, path}] {
			if g.Stale == "" && !x.endings.Over(*g) && (g.Scope == grants.ScopeAlways || g.Session == session) {
				list = append(list, *g)
			}
		}
		if path == "/" {
			return list
		}
	}
}

// same is the grant to the same agent, of the same path and access, for as far: there is one of
// these.
func (x *index) same(g grants.Grant) *grants.Grant {
	for _, other := range x.byAgent[g.Agent] {
		if isSame(*other, g) {
			return other
		}
	}
	return nil
}

func isSame(a, b grants.Grant) bool {
	return a.Agent == b.Agent && a.Path == b.Path && a.Access == b.Access && a.Scope == b.Scope && a.Session == b.Session
}

// held lists what a session was granted and holds.
func (x *index) held(agent, session string) []grants.Grant {
	var list []grants.Grant
	for _, g := range x.byAgent[agent] {
		if g.Stale == "" && !x.endings.Over(*g) && (g.Scope == grants.ScopeAlways || g.Session == session) {
			list = append(list, *g)
		}
	}
	return list
}

func parent(path string) string {
	for i := len(path) - 1; i > 0; i-- {
		if path[i] == '/' {
			return path[:i]
		}
	}
	return "/"
}

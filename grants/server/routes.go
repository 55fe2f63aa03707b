package server

import (
	"cmp"
	"encoding/json"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/wire"
)

// routes are those of the people's socket. openapi.json is made from them.
func (s *Server) routes() []wire.Route {
	return []wire.Route{
		{Method: "POST", Path: "/v1/sessions", Summary: "begin a session, which lasts as long as this connection; the first event names it, the others are the grants that come and go in it",
			Takes: grants.SessionSpec{}, Gives: grants.Event{}, Body: maxSessionBody, Handle: s.openSession},
		{Method: "POST", Path: "/v1/sessions/{id}/applied", Summary: "tell what became of a change in the running sandboxes of a session that is live",
			Takes: grants.Applied{}, Gives: grants.Nothing{}, Handle: s.applied},
		{Method: "POST", Path: "/v1/sessions/{id}/connections", Summary: "put on record what the filtered network of a session's sandboxes let through and refused",
			Takes: grants.Connections{}, Gives: grants.Nothing{}, Handle: s.observe},
		{Method: "POST", Path: "/v1/grants/requests", Summary: "ask for a path within a session, and wait for the answer",
			Takes: grants.AskBody{}, Gives: grants.Answer{}, Handle: s.askForSession},
		{Method: "GET", Path: "/v1/grants/requests", Summary: "list the requests that wait for a decision, the oldest first",
			Gives: grants.RequestList{}, Handle: s.pending},
		{Method: "POST", Path: "/v1/grants/requests/{id}/decision", Summary: "answer a request; an answer that is not valid is refused, and the request still waits",
			Takes: grants.Decision{}, Gives: grants.Answer{}, Handle: s.decide},
		{Method: "POST", Path: "/v1/commands", Summary: "have a command run outside of any sandbox, and wait for whoever decides and for its end; what waits for a person is among the requests",
			Takes: grants.CommandBody{}, Gives: grants.CommandAnswer{}, Handle: s.runOutside},
		{Method: "POST", Path: "/v1/questions", Summary: "ask a person in words within a session, and wait for the answer; it waits among the requests, and permits nothing",
			Takes: grants.PersonBody{}, Gives: grants.PersonAnswer{}, Handle: s.askPerson},
		{Method: "POST", Path: "/v1/domains", Summary: "ask within a session about a connection that no rule allows, and wait for the answer; it waits among the requests",
			Takes: grants.DomainBody{}, Gives: grants.DomainAnswer{}, Handle: s.askDomain},
		{Method: "GET", Path: "/v1/commands/{id}", Summary: "wait for the end of a command that was accepted", Gives: grants.CommandAnswer{}, Handle: s.waitOutside},
		{Method: "GET", Path: "/v1/sessions", Summary: "list the sessions that are open", Gives: grants.SessionList{}, Handle: s.sessions},
		{Method: "POST", Path: "/v1/say", Summary: "say what somebody typed in a chat: /exec, /elevated or /approve, where outside.approvers has them; anything else is for the agent, and nothing is done",
			Takes: grants.SayBody{}, Gives: grants.Said{}, Handle: s.say},
		{Method: "GET", Path: "/v1/grants", Summary: "list what is granted", Gives: grants.GrantList{}, Handle: s.list},
		{Method: "POST", Path: "/v1/grants", Summary: "grant a path or a domain that nobody asked for", Takes: grants.NewGrant{}, Gives: grants.Grant{}, Handle: s.add},
		{Method: "DELETE", Path: "/v1/grants/{id}", Summary: "revoke a grant; the answer says what still covers its path, and which running sandboxes it could not be taken from", Gives: grants.Taking{}, Handle: s.revoke},
		{Method: "POST", Path: "/v1/grants/{id}/confirm", Summary: "take a stale grant for what its path leads to now", Takes: grants.ConfirmBody{}, Gives: grants.Grant{}, Handle: s.confirm},
		{Method: "POST", Path: "/v1/grants/{id}/narrow", Summary: "take writing away from a grant", Takes: grants.Nothing{}, Gives: grants.Taking{}, Handle: s.narrow},
		{Method: "GET", Path: "/v1/grants/log", Summary: "list requests that have ended, the latest first", Gives: grants.RecordList{},
			Query: map[string]string{"limit": "how many at most, from 1 to 1000; 100 if not said"}, Handle: s.records},
		{Method: "GET", Path: "/v1/events", Summary: "hear of everything that happens from now on; a stream that ends was too slow, or the broker stops", Gives: grants.Event{},
			Query: map[string]string{"after": "begin with the events that are kept behind the one of this id, or with all that are kept: 0; a header Last-Event-ID says the same",
				"session": "hear of this session only", "ends": "true: end the stream behind the events that are kept"}, Handle: s.events},
		{Method: "GET", Path: "/v1/status", Summary: "which broker this is", Gives: grants.Status{}, Handle: s.status},
	}
}

// askRoutes are all that the inside of a sandbox can do.
func (s *Server) askRoutes() []wire.Route {
	return []wire.Route{
		{Method: "POST", Path: "/v1/grants/requests", Takes: grants.Asking{}, Gives: grants.Answer{}, Handle: s.askFromInside},
		{Method: "POST", Path: "/v1/commands", Takes: grants.Command{}, Gives: grants.CommandAnswer{}, Handle: s.runFromInside},
		{Method: "POST", Path: "/v1/questions", Takes: grants.PersonQuestion{}, Gives: grants.PersonAnswer{}, Handle: s.askPersonFromInside},
	}
}

func (s *Server) askForSession(_ http.ResponseWriter, r *http.Request) (any, error) {
	var body grants.AskBody
	if err := wire.Receive(r, &body); err != nil {
		return nil, err
	}
	return wire.Result(s.broker.Ask(r.Context(), body.Session, body.Asking))
}

// askFromInside knows who asks by the socket. A body that names a session or an agent has a key too
// many.
func (s *Server) askFromInside(_ http.ResponseWriter, r *http.Request) (any, error) {
	var body grants.Asking
	if err := wire.Receive(r, &body); err != nil {
		return nil, err
	}
	return wire.Result(s.broker.Ask(r.Context(), wire.Through(r), body))
}

func (s *Server) runOutside(_ http.ResponseWriter, r *http.Request) (any, error) {
	var body grants.CommandBody
	if err := wire.Receive(r, &body); err != nil {
		return nil, err
	}
	return s.command(r, body.Session, false, body.Command)
}

// runFromInside knows who asks by the socket.
func (s *Server) runFromInside(_ http.ResponseWriter, r *http.Request) (any, error) {
	var body grants.Command
	if err := wire.Receive(r, &body); err != nil {
		return nil, err
	}
	if body.Agent != "" {
		return nil, &grants.InvalidError{Field: "agentId", Why: "is known by the socket"}
	}
	return s.command(r, wire.Through(r), true, body)
}

func (s *Server) command(r *http.Request, session string, inside bool, c grants.Command) (any, error) {
	runner, err := s.runner()
	if err != nil {
		return nil, err
	}
	return wire.Result(runner.RunOutside(r.Context(), session, inside, c))
}

func (s *Server) waitOutside(_ http.ResponseWriter, r *http.Request) (any, error) {
	runner, err := s.runner()
	if err != nil {
		return nil, err
	}
	return wire.Result(runner.WaitOutside(r.Context(), r.PathValue("id")))
}

func (s *Server) askPerson(_ http.ResponseWriter, r *http.Request) (any, error) {
	var body grants.PersonBody
	if err := wire.Receive(r, &body); err != nil {
		return nil, err
	}
	return s.question(r, body.Session, body.PersonQuestion)
}

// askPersonFromInside knows who asks by the socket.
func (s *Server) askPersonFromInside(_ http.ResponseWriter, r *http.Request) (any, error) {
	var body grants.PersonQuestion
	if err := wire.Receive(r, &body); err != nil {
		return nil, err
	}
	return s.question(r, wire.Through(r), body)
}

func (s *Server) question(r *http.Request, session string, q grants.PersonQuestion) (any, error) {
	questioner, ok := s.broker.(grants.Questioner)
	if !ok {
		return nil, &grants.UnavailableError{Why: "nobody is asked in words here", Hint: "start the gateway that clai-sandbox came with: clai-sandbox gateway"}
	}
	return wire.Result(questioner.AskPerson(r.Context(), session, q))
}

func (s *Server) askDomain(_ http.ResponseWriter, r *http.Request) (any, error) {
	var body grants.DomainBody
	if err := wire.Receive(r, &body); err != nil {
		return nil, err
	}
	asker, ok := s.broker.(grants.DomainAsker)
	if !ok {
		return nil, &grants.UnavailableError{Why: "nobody is asked about connections here", Hint: "start the gateway that clai-sandbox came with: clai-sandbox gateway"}
	}
	return wire.Result(asker.AskDomain(r.Context(), body.Session, body.To))
}

func (s *Server) runner() (grants.Runner, error) {
	if runner, ok := s.broker.(grants.Runner); ok {
		return runner, nil
	}
	return nil, &grants.UnavailableError{Why: "no command is run outside of a sandbox here", Hint: "start the gateway that clai-sandbox came with: clai-sandbox gateway"}
}

func (s *Server) sayer() (grants.Sayer, error) {
	if sayer, ok := s.broker.(grants.Sayer); ok {
		return sayer, nil
	}
	return nil, &grants.UnavailableError{Why: "nothing can be said here", Hint: "start the gateway that clai-sandbox came with: clai-sandbox gateway"}
}

func (s *Server) say(_ http.ResponseWriter, r *http.Request) (any, error) {
	var body grants.SayBody
	if err := wire.Receive(r, &body); err != nil {
		return nil, err
	}
	sayer, err := s.sayer()
	if err != nil {
		return nil, err
	}
	return wire.Result(sayer.Say(r.Context(), body.Session, body.Saying))
}

func (s *Server) sessions(_ http.ResponseWriter, r *http.Request) (any, error) {
	sayer, err := s.sayer()
	if err != nil {
		return nil, err
	}
	list, err := sayer.Sessions(r.Context())
	return grants.SessionList{Sessions: list}, err
}

func (s *Server) pending(_ http.ResponseWriter, r *http.Request) (any, error) {
	list, err := s.broker.Pending(r.Context())
	return grants.RequestList{Requests: list}, err
}

// decide wants every key of a decision known, and the kind written out.
func (s *Server) decide(_ http.ResponseWriter, r *http.Request) (any, error) {
	var raw json.RawMessage
	if err := wire.Receive(r, &raw); err != nil {
		return nil, err
	}
	var d grants.Decision
	if err := d.Parse(raw); err != nil {
		return nil, err
	}
	return wire.Result(s.broker.Decide(r.Context(), r.PathValue("id"), d))
}

func (s *Server) list(_ http.ResponseWriter, r *http.Request) (any, error) {
	all, err := s.broker.Grants(r.Context())
	return grants.GrantList{Grants: all}, err
}

func (s *Server) add(_ http.ResponseWriter, r *http.Request) (any, error) {
	var n grants.NewGrant
	if err := wire.Receive(r, &n); err != nil {
		return nil, err
	}
	return wire.Result(s.broker.Add(r.Context(), n))
}

func (s *Server) revoke(_ http.ResponseWriter, r *http.Request) (any, error) {
	return wire.Result(s.broker.Revoke(r.Context(), r.PathValue("id")))
}

func (s *Server) confirm(_ http.ResponseWriter, r *http.Request) (any, error) {
	var body grants.ConfirmBody
	if err := wire.Receive(r, &body); err != nil {
		return nil, err
	}
	return wire.Result(s.broker.Confirm(r.Context(), r.PathValue("id"), body.Resolved))
}

func (s *Server) narrow(_ http.ResponseWriter, r *http.Request) (any, error) {
	if err := wire.Receive(r, &grants.Nothing{}); err != nil {
		return nil, err
	}
	return wire.Result(s.broker.Narrow(r.Context(), r.PathValue("id")))
}

func (s *Server) records(_ http.ResponseWriter, r *http.Request) (any, error) {
	limit := 100
	if text := r.URL.Query().Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil {
			return nil, &grants.InvalidError{Field: "limit", Why: "must be a number"}
		}
	}
	ended, err := s.broker.Log(r.Context(), limit)
	return grants.RecordList{Records: ended}, err
}

func (s *Server) applied(_ http.ResponseWriter, r *http.Request) (any, error) {
	var body grants.Applied
	if err := wire.Receive(r, &body); err != nil {
		return nil, err
	}
	return grants.Nothing{}, s.broker.Applied(r.Context(), r.PathValue("id"), body)
}

func (s *Server) observe(_ http.ResponseWriter, r *http.Request) (any, error) {
	var body grants.Connections
	if err := wire.Receive(r, &body); err != nil {
		return nil, err
	}
	observer, ok := s.broker.(grants.Observer)
	if !ok {
		return nil, &grants.UnavailableError{Why: "no connection is put on record here", Hint: "start the gateway that clai-sandbox came with: clai-sandbox gateway"}
	}
	return grants.Nothing{}, observer.Observe(r.Context(), r.PathValue("id"), body)
}

func (s *Server) status(_ http.ResponseWriter, _ *http.Request) (any, error) {
	return grants.Status{Version: s.version, PID: os.Getpid(), Notices: s.notices}, nil
}

// newStream begins a stream of events.
func newStream(w http.ResponseWriter) *wire.Stream[grants.Event] {
	return wire.NewStream(w, func(e grants.Event) (kind, id string) {
		if e.ID != 0 {
			id = strconv.FormatInt(e.ID, 10)
		}
		return string(e.Kind), id
	})
}

// eventsFrom says which events are asked for.
func eventsFrom(r *http.Request) (from grants.EventsFrom, err error) {
	query := r.URL.Query()
	from.Session, from.Ends = query.Get("session"), query.Get("ends") == "true"
	if after := cmp.Or(query.Get("after"), r.Header.Get("Last-Event-ID")); after != "" {
		from.Kept = true
		if from.After, err = strconv.ParseInt(after, 10, 64); err != nil || from.After < 0 {
			return from, &grants.InvalidError{Field: "after", Why: "must be the id of an event"}
		}
	}
	return from, nil
}

func (s *Server) events(w http.ResponseWriter, r *http.Request) (any, error) {
	from, err := eventsFrom(r)
	if err != nil {
		return nil, err
	}
	events, err := s.broker.Events(r.Context(), from)
	if err != nil {
		return nil, err
	}
	newStream(w).Follow(r, events)
	return wire.Streamed, nil
}

// openSession begins a session that ends with the connection, however the other end goes away.
func (s *Server) openSession(w http.ResponseWriter, r *http.Request) (any, error) {
	var spec grants.SessionSpec
	if err := wire.Receive(r, &spec); err != nil {
		return nil, err
	}
	session, err := s.broker.Open(r.Context(), spec)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	out := newStream(w)
	if err := out.Send(grants.Event{Kind: grants.EventSession, AtUnixMs: time.Now().UnixMilli(), Session: session.ID, Socket: session.Socket}); err == nil {
		out.Follow(r, session.Events)
	}
	return wire.Streamed, nil
}

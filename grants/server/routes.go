package server

import (
	"encoding/json"
	"net/http"
	"os"
	"strconv"

	"github.com/clairun/clai-sandbox/grants"
)

// A route is one thing that can be asked of the broker. openapi.json is made from these.
type route struct {
	Method, Path string
	Summary      string
	Takes        any // what the body is; nil: nothing
	Gives        any // what the answer is; grants.Event: a stream of them
	Query        map[string]string
	Body         int64 // the most bytes of the body, where it is more than usual
	handle       handler
}

// routes are those of the people's socket.
var routes = []route{
	{Method: "POST", Path: "/v1/sessions", Summary: "begin a session, which lasts as long as this connection; the first event names it, the others are the grants that come and go in it",
		Takes: grants.SessionSpec{}, Gives: grants.Event{}, Body: maxSessionBody, handle: openSession},
	{Method: "POST", Path: "/v1/sessions/{id}/applied", Summary: "tell what became of a change in the running sandboxes of a session that is live",
		Takes: grants.Applied{}, Gives: grants.Nothing{}, handle: applied},
	{Method: "POST", Path: "/v1/grants/requests", Summary: "ask for a path within a session, and wait for the answer",
		Takes: grants.AskBody{}, Gives: grants.Answer{}, handle: askForSession},
	{Method: "GET", Path: "/v1/grants/requests", Summary: "list the requests that wait for a decision, the oldest first",
		Gives: grants.RequestList{}, handle: pending},
	{Method: "POST", Path: "/v1/grants/requests/{id}/decision", Summary: "answer a request; an answer that is not valid is refused, and the request still waits",
		Takes: grants.Decision{}, Gives: grants.Answer{}, handle: decide},
	{Method: "GET", Path: "/v1/grants", Summary: "list what is granted", Gives: grants.GrantList{}, handle: list},
	{Method: "POST", Path: "/v1/grants", Summary: "grant a path that nobody asked for", Takes: grants.NewGrant{}, Gives: grants.Grant{}, handle: add},
	{Method: "DELETE", Path: "/v1/grants/{id}", Summary: "revoke a grant; the answer says what still covers its path, and which running sandboxes it could not be taken from", Gives: grants.Taking{}, handle: revoke},
	{Method: "POST", Path: "/v1/grants/{id}/confirm", Summary: "take a stale grant for what its path leads to now", Takes: grants.ConfirmBody{}, Gives: grants.Grant{}, handle: confirm},
	{Method: "POST", Path: "/v1/grants/{id}/narrow", Summary: "take writing away from a grant", Takes: grants.Nothing{}, Gives: grants.Taking{}, handle: narrow},
	{Method: "GET", Path: "/v1/grants/log", Summary: "list requests that have ended, the latest first", Gives: grants.RecordList{},
		Query: map[string]string{"limit": "how many at most, from 1 to 1000; 100 if not said"}, handle: records},
	{Method: "GET", Path: "/v1/events", Summary: "hear of everything that happens from now on; a stream that ends was too slow, or the broker stops", Gives: grants.Event{}, handle: events},
	{Method: "GET", Path: "/v1/status", Summary: "which broker this is", Gives: grants.Status{}, handle: status},
}

// askRoutes are all that the inside of a sandbox can do.
var askRoutes = []route{
	{Method: "POST", Path: "/v1/grants/requests", Takes: grants.Asking{}, Gives: grants.Answer{}, handle: askFromInside},
}

func askForSession(s *Server, _ http.ResponseWriter, r *http.Request) (any, error) {
	var body grants.AskBody
	if err := receive(r, &body); err != nil {
		return nil, err
	}
	return result(s.broker.Ask(r.Context(), body.Session, body.Asking))
}

// askFromInside knows who asks by the socket. A body that names a session or an agent has a key too many.
func askFromInside(s *Server, _ http.ResponseWriter, r *http.Request) (any, error) {
	var body grants.Asking
	if err := receive(r, &body); err != nil {
		return nil, err
	}
	session, _ := r.Context().Value(sessionKey{}).(string)
	return result(s.broker.Ask(r.Context(), session, body))
}

func pending(s *Server, _ http.ResponseWriter, r *http.Request) (any, error) {
	list, err := s.broker.Pending(r.Context())
	return grants.RequestList{Requests: list}, err
}

// decide wants every key of a decision known, and the kind written out.
func decide(s *Server, _ http.ResponseWriter, r *http.Request) (any, error) {
	var raw json.RawMessage
	if err := receive(r, &raw); err != nil {
		return nil, err
	}
	var d grants.Decision
	if err := d.Parse(raw); err != nil {
		return nil, err
	}
	return result(s.broker.Decide(r.Context(), r.PathValue("id"), d))
}

func list(s *Server, _ http.ResponseWriter, r *http.Request) (any, error) {
	all, err := s.broker.Grants(r.Context())
	return grants.GrantList{Grants: all}, err
}

func add(s *Server, _ http.ResponseWriter, r *http.Request) (any, error) {
	var n grants.NewGrant
	if err := receive(r, &n); err != nil {
		return nil, err
	}
	return result(s.broker.Add(r.Context(), n))
}

func revoke(s *Server, _ http.ResponseWriter, r *http.Request) (any, error) {
	return result(s.broker.Revoke(r.Context(), r.PathValue("id")))
}

func confirm(s *Server, _ http.ResponseWriter, r *http.Request) (any, error) {
	var body grants.ConfirmBody
	if err := receive(r, &body); err != nil {
		return nil, err
	}
	return result(s.broker.Confirm(r.Context(), r.PathValue("id"), body.Resolved))
}

func narrow(s *Server, _ http.ResponseWriter, r *http.Request) (any, error) {
	if err := receive(r, &grants.Nothing{}); err != nil {
		return nil, err
	}
	return result(s.broker.Narrow(r.Context(), r.PathValue("id")))
}

func records(s *Server, _ http.ResponseWriter, r *http.Request) (any, error) {
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

func applied(s *Server, _ http.ResponseWriter, r *http.Request) (any, error) {
	var body grants.Applied
	if err := receive(r, &body); err != nil {
		return nil, err
	}
	return grants.Nothing{}, s.broker.Applied(r.Context(), r.PathValue("id"), body)
}

func status(s *Server, _ http.ResponseWriter, _ *http.Request) (any, error) {
	return grants.Status{Version: s.version, PID: os.Getpid(), Notices: s.notices}, nil
}

func result[T any](answer T, err error) (any, error) { return answer, err }

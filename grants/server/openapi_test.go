package server

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/broker"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/wire"
)

//go:generate go test -run OpenAPI . -update

var update = flag.Bool("update", false, "write the generated files anew")

const openAPIFile = "openapi.json"

// words are the types that are written as one of a few words.
var words = map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[profile.Access]():      oneOf("read_only", "read_write"),
	reflect.TypeFor[profile.OriginKind]():  oneOf(profile.OriginApproval, profile.OriginManual),
	reflect.TypeFor[grants.DecisionKind](): oneOf(grants.Deny, grants.AllowOnce, grants.AllowAlways, grants.GiveAnswer),
	reflect.TypeFor[grants.Outcome]():      oneOf(grants.OutcomeGranted, grants.OutcomeDenied, grants.OutcomeNever, grants.OutcomeTimeout, grants.OutcomeWithdrawn, grants.OutcomeAnswered),
	reflect.TypeFor[grants.Scope]():        oneOf(grants.ScopeOnce, grants.ScopeAlways, grants.ScopeAlready),
	reflect.TypeFor[grants.Visibility]():   oneOf(grants.VisibleNow, grants.VisibleNextCommand),
	reflect.TypeFor[grants.WarningKind](): oneOf(grants.WarnTooBroad, grants.WarnSensitive, grants.WarnElsewhere, grants.WarnMissing, grants.WarnSocket,
		grants.WarnExecuted, grants.WarnChanged),
	reflect.TypeFor[grants.NoticeKind](): oneOf(grants.NoticePathGranted, grants.NoticePathGrantDenied, grants.NoticeSandboxUnavailable,
		grants.NoticeCommandDenied, grants.NoticePathDenied, grants.NoticePathLeftOut, grants.NoticeStore),
	reflect.TypeFor[grants.EventKind](): oneOf(grants.EventSession, grants.EventRequestPending, grants.EventRequestChanged, grants.EventRequestEnded,
		grants.EventGranted, grants.EventConfirmed, grants.EventNarrowed, grants.EventRevoked, grants.EventExpired, grants.EventStale, grants.EventNotice,
		grants.EventOverridden, grants.EventsLost, grants.EventExecStarted, grants.EventExecRunning, grants.EventExecFinished, grants.EventExecDenied),
	reflect.TypeFor[grants.ErrorCode]():     oneOf(slices.Sorted(maps.Keys(statuses))...),
	reflect.TypeFor[grants.CommandStatus](): oneOf(grants.CommandApproved, grants.CommandAutoApproved, grants.CommandDenied, grants.CommandTimeout, grants.CommandError, grants.CommandAccepted),
	reflect.TypeFor[grants.Duration]():      {Type: "string", Pattern: "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"},
}

func oneOf[T any](values ...T) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string"}
	for _, v := range values {
		s.Enum = append(s.Enum, fmt.Sprint(v))
	}
	return s
}

func schemaOf(t *testing.T, value any) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.ForType(reflect.TypeOf(value), &jsonschema.ForOptions{TypeSchemas: words})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// openAPI describes the routes.
func openAPI(t *testing.T) []byte {
	t.Helper()
	type object = map[string]any
	content := func(value any) object {
		kind := "application/json"
		if value == (grants.Event{}) {
			kind = "text/event-stream"
		}
		return object{kind: object{"schema": schemaOf(t, value)}}
	}
	codes := ""
	for _, code := range slices.Sorted(maps.Keys(statuses)) {
		codes += fmt.Sprintf("%s: %d\n", code, statuses[code])
	}
	failure := object{"description": codes, "content": object{"application/json": object{"schema": object{"$ref": "#/components/schemas/ErrorBody"}}}}
	paths := object{}
	for _, r := range New("", "").routes() {
		responses := object{"200": object{"description": "done", "content": content(r.Gives)}, "default": object{"$ref": "#/components/responses/Error"}}
		operation := object{"summary": r.Summary, "responses": responses}
		if r.Takes != nil {
			operation["requestBody"] = object{"required": true, "content": content(r.Takes)}
		}
		var parameters []object
		if strings.Contains(r.Path, "{id}") {
			parameters = append(parameters, object{"name": "id", "in": "path", "required": true, "schema": object{"type": "string"}})
		}
		for _, name := range slices.Sorted(maps.Keys(r.Query)) {
			parameters = append(parameters, object{"name": name, "in": "query", "description": r.Query[name], "schema": object{"type": "string"}})
		}
		if parameters != nil {
			operation["parameters"] = parameters
		}
		if paths[r.Path] == nil {
			paths[r.Path] = object{}
		}
		paths[r.Path].(object)[strings.ToLower(r.Method)] = operation
	}
	text, err := json.MarshalIndent(object{
		"openapi": "3.1.0",
		"info": object{"title": "clai-sandbox broker", "version": "1",
			"description": "Path grants, on the unix socket of the person who decides. A stream is of server-sent events, each with one JSON object."},
		"paths":      paths,
		"components": object{"schemas": object{"ErrorBody": schemaOf(t, grants.ErrorBody{})}, "responses": object{"Error": failure}},
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

func TestTheOpenAPIFileSaysWhatTheCodeDoes(t *testing.T) {
	want := openAPI(t)
	if *update {
		if err := os.WriteFile(openAPIFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if published, err := os.ReadFile(openAPIFile); err != nil || !bytes.Equal(published, want) {
		t.Errorf("%s is out of date (%v): make generate", openAPIFile, err)
	}
}

// Real answers are held against what the routes say that they give.
func TestAnswersAreAsTheOpenAPIFileSays(t *testing.T) {
	b := newBench(t, broker.Options{})
	s, err := b.Open(t.Context(), grants.SessionSpec{Agent: "main", Workspace: "/w"})
	if err != nil {
		t.Fatal(err)
	}
	go b.Ask(t.Context(), s.ID, grants.Asking{Path: "~/a", Access: profile.ReadOnly, Reason: "x"})
	var id string
	for id == "" {
		if list, _ := b.Pending(t.Context()); len(list) == 1 {
			id = list[0].ID
		}
	}
	grant := ""
	routes := b.server.routes()
	for _, c := range []struct {
		method, route, body string
		status              int
	}{
		{"GET", "/v1/grants/requests", "", 200},
		{"POST", "/v1/grants/requests/{id}/decision", `{"kind":"allowOnce","path":"/b","access":"read_only"}`, 422},
		{"POST", "/v1/grants/requests/{id}/decision", `{"kind":"allowAlways","path":"~/a","access":"read_only","scope":"agent","expiresIn":"1h"}`, 200},
		{"POST", "/v1/grants/requests/{id}/decision", `{"kind":"deny"}`, 409},
		{"POST", "/v1/grants/requests", `{"sessionId":"` + s.ID + `","requestedPath":"~/a","requestedAccess":"read_only"}`, 200},
		{"POST", "/v1/grants/requests", `{"sessionId":"` + s.ID + `","requestedPath":"/proc","requestedAccess":"read_only"}`, 200},
		{"GET", "/v1/grants", "", 200},
		{"GET", "/v1/grants/log", "", 200},
		{"GET", "/v1/status", "", 200},
		{"POST", "/v1/grants", `{"agentId":"main","path":"~/b","access":"read_write"}`, 200},
		{"POST", "/v1/grants/{id}/narrow", `{}`, 200},
		{"POST", "/v1/grants/{id}/confirm", `{"resolvedPath":"/elsewhere"}`, 409},
		{"DELETE", "/v1/grants/{id}", "", 200},
		{"POST", "/v1/sessions/{id}/applied", `{"grantId":"x"}`, 404},
	} {
		at := slices.IndexFunc(routes, func(r wire.Route) bool { return r.Method == c.method && r.Path == c.route })
		if at < 0 {
			t.Fatalf("no route %s %s", c.method, c.route)
		}
		target := c.route
		switch {
		case strings.Contains(target, "requests/{id}"):
			target = strings.ReplaceAll(target, "{id}", id)
		default:
			target = strings.ReplaceAll(target, "{id}", grant)
		}
		status, text := over(t, b.socket, c.method, target, c.body)
		if status != c.status {
			t.Errorf("%s %s: %d %s", c.method, target, status, text)
			continue
		}
		var answer any
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatal(err)
		}
		gives := routes[at].Gives
		if status != http.StatusOK {
			gives = grants.ErrorBody{}
		}
		resolved, err := schemaOf(t, gives).Resolve(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := resolved.Validate(answer); err != nil {
			t.Errorf("%s %s: %v: %s", c.method, target, err, text)
		}
		if c.method == "POST" && c.route == "/v1/grants" {
			grant, _ = answer.(map[string]any)["id"].(string)
		}
	}
}

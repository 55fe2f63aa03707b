package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/text"
	"github.com/clairun/clai-sandbox/sandbox"
)

const (
	askWait  = 50 * time.Second // clients give up on a call after a minute
	maxAsks  = 64
	answered = 10 * time.Minute // how long an answer that nobody fetched is kept
)

// RequestGrant are the arguments of fs_request_grant.
type RequestGrant struct {
	Path   string `json:"path" jsonschema:"absolute, below the home directory as ~/x, or below the workspace"`
	Access string `json:"access" jsonschema:"read_only, copy_on_write (write to a copy of its own) or read_write"`
	Reason string `json:"reason" jsonschema:"why, for the person who decides"`
}

// GrantResult is the answer, as far as there is one.
type GrantResult struct {
	Granted bool     `json:"granted"`
	Pending bool     `json:"pending" jsonschema:"a person has been asked and has not answered yet: call again with the same arguments to go on waiting"`
	Path    string   `json:"path,omitempty" jsonschema:"what was granted, which may be less than was asked for"`
	Access  string   `json:"access,omitempty"`
	Scope   string   `json:"scope,omitempty" jsonschema:"once: for this session; agent: for later ones too; already-granted"`
	Outcome string   `json:"outcome,omitempty" jsonschema:"granted, denied, never, timeout or withdrawn"`
	Reason  string   `json:"reason,omitempty" jsonschema:"why not"`
	Message string   `json:"message"`
	Notices []Notice `json:"notices,omitempty"`
}

// An ask is a question that waits, across calls.
type ask struct {
	done   chan struct{}
	answer grants.Answer
	err    error
	form   *form // that the client was given, and has not answered; nil: none. Guarded by the client session's lock
}

// A form is what the client's person is asked by, once. Its name is a secret that only who was
// given the form can know: an answer that names none, or another, is no answer.
type form struct {
	name    string
	request grants.Request
}

type askKey struct {
	path   string
	access profile.Access
}

func (s *clientSession) addAsk(server *sdk.Server) {
	const name = "fs_request_grant"
	if s.options.Allowed != nil && s.options.Allowed(name) != nil {
		return
	}
	no := false
	s.fields[name] = reflect.TypeFor[GrantResult]()
	sdk.AddTool(server, &sdk.Tool{Name: name, Title: "Ask for a path",
		Description: "Asks a person for access to a path that the sandbox does not show, or shows read-only. Waits for the answer for a while. The answer may be for less than was asked for.",
		Annotations: &sdk.ToolAnnotations{Title: "Ask for a path", DestructiveHint: &no, OpenWorldHint: &no}},
		func(ctx context.Context, request *sdk.CallToolRequest, in RequestGrant) (*sdk.CallToolResult, any, error) {
			if err := s.begun(); err != nil {
				return nil, nil, err
			}
			stop := progress(ctx, request, "a person has been asked, and has not answered")
			defer stop()
			r, form, err := s.requestGrant(ctx, request, in)
			switch {
			case err != nil:
				return nil, nil, err
			case form != nil:
				return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{form.name: &sdk.ElicitParams{
					Message: question(form.request), RequestedSchema: elicitSchema(form.request)}}}, r, nil
			}
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: r.Message}}}, r, nil
		})
}

// requestGrant asks, and waits. Where the client's own prompt may answer, form is what it is to
// show; the client then calls again, with what came of it.
func (s *clientSession) requestGrant(ctx context.Context, request *sdk.CallToolRequest, in RequestGrant) (r GrantResult, show *form, err error) {
	if err := s.cannot(); err != nil {
		return GrantResult{Message: explained(err), Notices: []Notice{{Kind: outcomeUnavailable, Text: explained(err)}}}, nil, nil
	}
	prepared, err := s.session.Prepare(nil)
	if err != nil {
		return r, nil, errors.New(explained(err))
	}
	asking := grants.Asking{Reason: in.Reason}
	if asking.Path, err = s.absolute(in.Path, prepared.Profile); err != nil {
		return r, nil, err
	}
	if asking.Access, err = profile.ParseAccess(in.Access); err != nil {
		return r, nil, fmt.Errorf("access: %w", err)
	}
	a, isNew, err := s.ask(asking)
	if err != nil {
		return r, nil, err
	}
	if s.options.TrustElicitation && canElicit(request) {
		if isNew {
			if pending, ok := s.pending(asking, a); ok {
				return r, s.newForm(a, pending), nil
			}
		} else if pending, result, filled := s.filled(a, request); filled {
			if err := s.answer(ctx, pending, result); err != nil {
				return GrantResult{Pending: true, Message: "The answer was not taken: " + text.Line(err.Error()) + ". A person is still asked."}, nil, nil
			}
		}
	}
	wait := time.NewTimer(askWait)
	defer wait.Stop()
	select {
	case <-a.done:
		s.mu.Lock()
		delete(s.asks, askKey{asking.Path, asking.Access})
		if a.err == nil && a.answer.Outcome == grants.OutcomeDenied && len(s.denied) < maxAsks {
			s.denied[asking.Path] = true
		}
		s.mu.Unlock()
		r, err = grantResult(asking, a)
		return r, nil, err
	case <-wait.C:
	case <-ctx.Done():
	}
	return GrantResult{Pending: true, Message: "A person has been asked for " + profile.Printable(asking.Path) + " and has not answered yet. Go on with something else, or call again to wait."}, nil, nil
}

// ask asks, or joins the same question that waits already. It outlives the call.
func (s *clientSession) ask(asking grants.Asking) (a *ask, isNew bool, err error) {
	key := askKey{asking.Path, asking.Access}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.asks[key]; a != nil {
		return a, false, nil
	}
	if s.closed || len(s.asks) >= maxAsks {
		return nil, false, errors.New("too many questions wait for an answer")
	}
	a = &ask{done: make(chan struct{})}
	s.asks[key] = a
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		a.answer, a.err = s.session.Ask(s.ctx, asking)
		close(a.done)
		time.AfterFunc(answered, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.asks[key] == a {
				delete(s.asks, key)
			}
		})
	}()
	return a, true, nil
}

// sessionNotices are what the agent should know of changes to its session, but for what it was told
// already.
func (s *clientSession) sessionNotices() []sandbox.Notice {
	list := s.session.Notices()
	s.mu.Lock()
	defer s.mu.Unlock()
	list = append(list, s.later...)
	s.later = nil
	return slices.DeleteFunc(list, func(n sandbox.Notice) bool {
		told := n.Kind == sandbox.NoticeKind(grants.NoticePathGrantDenied) && s.denied[n.Path]
		if told {
			delete(s.denied, n.Path)
		}
		return told
	})
}

func grantResult(asking grants.Asking, a *ask) (GrantResult, error) {
	if a.err != nil {
		return GrantResult{}, a.err
	}
	r := GrantResult{Granted: a.answer.Granted, Outcome: string(a.answer.Outcome), Reason: a.answer.Reason}
	if !r.Granted {
		r.Message = "Not granted: " + string(a.answer.Outcome)
		if r.Reason != "" {
			r.Message += ": " + profile.Printable(r.Reason)
		}
		r.Notices = []Notice{{Kind: string(grants.NoticePathGrantDenied), Path: asking.Path, Text: r.Message}}
		return r, nil
	}
	r.Path, r.Access, r.Scope = a.answer.Path, a.answer.Access.String(), string(a.answer.Scope)
	r.Message = fmt.Sprintf("Granted: %s, %s", profile.Printable(r.Path), r.Access)
	if r.Path != asking.Path || a.answer.Access != asking.Access {
		r.Message += ", which is less than was asked for"
	}
	r.Message += ". Commands see it from now on."
	r.Notices = []Notice{{Kind: string(grants.NoticePathGranted), Path: r.Path, Text: r.Message}}
	return r, nil
}

// canElicit reports whether the client can ask its person. What it said when it began counts, not
// what a later call says.
func canElicit(request *sdk.CallToolRequest) bool {
	began := request.Session.InitializeParams()
	return began != nil && began.Capabilities != nil && began.Capabilities.Elicitation != nil
}

// newForm is a form for a question.
func (s *clientSession) newForm(a *ask, request grants.Request) *form {
	f := &form{name: "answer-" + rand.Text(), request: request}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.form = f
	return f
}

// filled takes the form of a question that has come back, which then is answered. The request is
// the one that the form showed, whatever waits by now.
func (s *clientSession) filled(a *ask, request *sdk.CallToolRequest) (grants.Request, *sdk.ElicitResult, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.form == nil {
		return grants.Request{}, nil, false
	}
	result, filled := request.Params.InputResponses[a.form.name].(*sdk.ElicitResult)
	if !filled {
		return grants.Request{}, nil, false
	}
	shown := a.form.request
	a.form = nil
	return shown, result, true
}

// answer takes what the client's prompt has brought. It goes through the broker like any decision:
// a wider one is refused there, and the question goes on waiting for a person elsewhere.
func (s *clientSession) answer(ctx context.Context, r grants.Request, result *sdk.ElicitResult) error {
	d := grants.Decision{Kind: grants.Deny, Via: "mcp"}
	switch result.Action {
	case "accept":
		var err error
		if d, err = decision(r, result.Content); err != nil {
			return err
		}
	case "decline":
	default: // closed without an answer
		return nil
	}
	_, err := s.options.Session.Broker.Decide(ctx, r.ID, d)
	return err
}

// pending finds the request that a question has become.
func (s *clientSession) pending(asking grants.Asking, a *ask) (grants.Request, bool) {
	for range 200 {
		list, err := s.options.Session.Broker.Pending(s.ctx)
		if err != nil {
			return grants.Request{}, false
		}
		for _, r := range list {
			if r.Session == s.session.ID() && r.RequestedPath == asking.Path && r.RequestedAccess == asking.Access {
				return r, true
			}
		}
		select {
		case <-a.done:
			return grants.Request{}, false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return grants.Request{}, false
}

// question words a request for a person.
func question(r grants.Request) string {
	lines := []string{fmt.Sprintf("The agent %s asks to %s %s", profile.Printable(r.Agent), r.RequestedAccess.Verb(), profile.Printable(r.RequestedPath))}
	if r.ResolvedPath != r.RequestedPath {
		lines = append(lines, "which leads to "+profile.Printable(r.ResolvedPath))
	}
	for _, w := range r.Warnings {
		lines = append(lines, "Warning: "+text.Line(w.Text))
	}
	if r.Reason != "" {
		lines = append(lines, "Because: "+profile.Printable(r.Reason))
	}
	return strings.Join(lines, "\n")
}

// elicitSchema is the form: the protocol allows flat ones only.
func elicitSchema(r grants.Request) map[string]any {
	var accesses []string
	for access := profile.ReadOnly; access <= r.RequestedAccess; access++ {
		accesses = append(accesses, access.String())
	}
	return map[string]any{
		"type": "object",
		"properties": map[string]any{
			"decision": map[string]any{"type": "string", "enum": []string{"deny", "allowOnce", "allowAlways"}, "title": "Answer"},
			"path":     map[string]any{"type": "string", "title": "Path, this one or one below it", "default": r.ResolvedPath},
			"access":   map[string]any{"type": "string", "enum": accesses, "title": "Access"},
		},
		"required": []string{"decision"},
	}
}

// decision reads the form. What is not filled in is not wider than the question, because it is the
// question's.
func decision(r grants.Request, content map[string]any) (grants.Decision, error) {
	d := grants.Decision{Path: r.ResolvedPath, Access: r.RequestedAccess, Via: "mcp"}
	word := func(name string) string { text, _ := content[name].(string); return text }
	if err := d.Kind.UnmarshalText([]byte(word("decision"))); err != nil {
		return d, err
	}
	if d.Kind == grants.Deny {
		return grants.Decision{Kind: grants.Deny, Via: "mcp"}, nil
	}
	if path := word("path"); path != "" {
		d.Path = path
	}
	if access := word("access"); access != "" {
		if err := d.Access.UnmarshalText([]byte(access)); err != nil {
			return d, err
		}
	}
	if d.Kind == grants.AllowAlways {
		d.Scope = grants.ScopeAlways
	}
	return d, nil
}

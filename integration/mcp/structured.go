package mcp

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Structured says where the fields of results go.
type Structured string

const (
	// StructuredAlways puts them where the protocol has them, with a schema for each tool.
	StructuredAlways Structured = "always"
	// StructuredNever leaves them to _meta, which no client gives its model, and tools without
	// schemas of what they answer.
	StructuredNever Structured = "never"
	// StructuredAuto does the one or the other, by what is known of the client.
	StructuredAuto Structured = "auto"
)

// ParseStructured reads one.
func ParseStructured(text string) (Structured, error) {
	switch s := Structured(text); s {
	case StructuredAlways, StructuredNever, StructuredAuto:
		return s, nil
	}
	return "", fmt.Errorf("%q is not always, never or auto", text)
}

// replacing are the beginnings of the names of clients that give their model the fields in place of
// the text: it would read escaped JSON. The tests of integration/agents see what they do.
var replacing = []string{"claude-code", "claude-ai", "codex"}

// fieldsIn is the key in _meta.
const fieldsIn = "clai-sandbox/result"

// hides reports whether a client's fields go to _meta.
func (s Structured) hides(session sdk.Session) bool {
	switch s {
	case StructuredNever:
		return true
	case StructuredAuto:
	default:
		return false
	}
	server, is := session.(*sdk.ServerSession)
	if !is || server.InitializeParams() == nil || server.InitializeParams().ClientInfo == nil {
		return false
	}
	name := strings.ToLower(server.InitializeParams().ClientInfo.Name)
	for _, begins := range replacing {
		if strings.HasPrefix(name, begins) {
			return true
		}
	}
	return false
}

// structured sends a client the fields where it looks for them, and says what they are.
func (s *clientSession) structured(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, request sdk.Request) (sdk.Result, error) {
		result, err := next(ctx, method, request)
		if err != nil {
			return result, err
		}
		hidden := s.options.Structured.hides(request.GetSession())
		switch r := result.(type) {
		case *sdk.CallToolResult:
			if hidden && r.StructuredContent != nil {
				if r.Meta == nil {
					r.Meta = sdk.Meta{}
				}
				r.Meta[fieldsIn], r.StructuredContent = r.StructuredContent, nil
			}
		case *sdk.ListToolsResult:
			if !hidden {
				return s.described(r)
			}
		}
		return result, nil
	}
}

// described is a list of tools with the schemas of what they answer.
func (s *clientSession) described(r *sdk.ListToolsResult) (*sdk.ListToolsResult, error) {
	list := *r
	list.Tools = make([]*sdk.Tool, len(r.Tools))
	for i, tool := range r.Tools {
		own := *tool
		if fields, ours := s.fields[tool.Name]; ours {
			schema, err := jsonschema.ForType(fields, &jsonschema.ForOptions{})
			if err != nil {
				return nil, err
			}
			own.OutputSchema = schema
		}
		list.Tools[i] = &own
	}
	return &list, nil
}

package agents

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A step is one call that the model makes, of a tool of our server's, or of the agent's own shell.
// When it has been sent, the test does what is to be done meanwhile.
type step struct {
	server    string // empty: usual; own: the agent's
	tool      string
	arguments map[string]any
	line      string // for the agent's own shell, in place of a tool
	meanwhile func()
	races     bool // what comes of it differs from time to time, and is not compared
}

// A model is what an agent takes for one: a server on loopback that speaks the three protocols by
// which agents talk to theirs, and answers with the calls of a script. What an agent sends it as
// their results is kept. It is also the proxy for all else that an agent wants to reach, which is
// refused and kept, too.
type model struct {
	t         testing.TB
	address   string
	meanwhile chan func()
	over      chan struct{} // closed when the last step's result has come

	mu      sync.Mutex
	steps   []step
	sent    int      // steps, of which the last may be unanswered
	results []string // of the steps
	beside  []string // what else was wanted
}

func newModel(t testing.TB) *model {
	m := &model{t: t, meanwhile: make(chan func(), 1), over: make(chan struct{})}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	m.address = server.URL
	return m
}

// follow gives the model its script.
func (m *model) follow(steps []step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps = steps
}

// heard is what the model was sent as the results of its steps.
func (m *model) heard() ([]step, []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.steps, slices.Clone(m.results)
}

// wanted is what else was to be reached.
func (m *model) wanted() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.beside)
}

// A tool is one that the agent offers. Some agents put those of a server into a namespace.
type tool struct{ namespace, name string }

// of reports whether it is a tool of a server's: agents put the server's name before the tool's.
func (t tool) of(server, name string) bool {
	before, is := strings.CutSuffix(t.namespace+"_"+t.name, "_"+name)
	return is && strings.HasSuffix(strings.TrimRight(before, "_"), server)
}

// shells are the agents' own, with the argument that is the line.
var shells = map[string]string{"Bash": "command", "bash": "command", "exec_command": "cmd", "shell_command": "command", "run_shell_command": "command"}

// A turn is what one request of an agent's comes to, whatever the protocol.
type turn struct {
	tools   []tool
	results map[string]string // by the call's id
}

func callID(i int) string { return fmt.Sprintf("call_%d", i) }

// next is what the model says to a turn: a call, or that it is done. A request without our tools is
// not about the script: agents ask for titles and summaries, too.
func (m *model) next(asked turn) (id string, which tool, arguments string, does bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	find := func(server, name string) int {
		return slices.IndexFunc(asked.tools, func(t tool) bool { return t.of(server, name) })
	}
	shell := slices.IndexFunc(asked.tools, func(t tool) bool { return shells[t.name] != "" })
	if find(usual, "bash_exec") < 0 && (shell < 0 || m.steps[0].line == "") {
		return "", tool{}, "", false
	}
	if m.sent > len(m.results) {
		if result, is := asked.results[callID(m.sent-1)]; is {
			m.results = append(m.results, result)
			if len(m.results) == len(m.steps) {
				close(m.over)
			}
		}
	}
	if len(m.results) == len(m.steps) {
		return "", tool{}, "", false
	}
	s := m.steps[len(m.results)]
	if m.sent == len(m.results) {
		m.sent++
		if s.meanwhile != nil {
			m.meanwhile <- s.meanwhile
		}
	} // or else it is asked the same again
	if s.line != "" {
		t := asked.tools[shell]
		return callID(m.sent - 1), t, object(map[string]any{shells[t.name]: s.line, "description": "a step"}), true
	}
	i := find(cmp.Or(s.server, usual), s.tool)
	if s.server == own {
		i = slices.IndexFunc(asked.tools, func(t tool) bool { return t.namespace == "" && t.name == s.tool })
	}
	if i < 0 {
		m.t.Errorf("no tool %s %s in %v", s.server, s.tool, asked.tools)
		return "", tool{}, "", false
	}
	return callID(m.sent - 1), asked.tools[i], object(s.arguments), true
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	if err != nil {
		return // it was interrupted
	}
	switch path := r.URL.Path; {
	case r.Method == http.MethodConnect || "http://"+r.Host != m.address:
		m.mu.Lock()
		m.beside = append(m.beside, r.Host)
		m.mu.Unlock()
		http.Error(w, "there is no network", http.StatusForbidden)
	case strings.HasSuffix(path, "/messages"):
		m.messages(w, body)
	case strings.HasSuffix(path, "/responses"):
		m.responses(w, body)
	case strings.HasSuffix(path, "/chat/completions"):
		m.completions(w, body)
	case strings.HasSuffix(path, ":streamGenerateContent"), strings.HasSuffix(path, ":generateContent"):
		m.contents(w, body, strings.HasSuffix(path, ":streamGenerateContent"))
	default:
		http.NotFound(w, r)
	}
}

// stream sends events, each with its name where the protocol has one.
func stream(w http.ResponseWriter, events ...map[string]any) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range events {
		text, _ := json.Marshal(event)
		if name, has := event["type"]; has {
			fmt.Fprintf(w, "event: %s\n", name)
		}
		fmt.Fprintf(w, "data: %s\n\n", text)
	}
}

// read reads a request's body.
func (m *model) read(body []byte, into any) {
	if err := json.Unmarshal(body, into); err != nil {
		m.t.Errorf("%v: %.300s", err, body)
	}
}

// between stands between the parts of a content.
const between = "\n-- and --\n"

// text is the text of a content that is either one or a list of parts.
func text(content json.RawMessage) string {
	var whole string
	if json.Unmarshal(content, &whole) == nil {
		return whole
	}
	var parts []map[string]any
	if json.Unmarshal(content, &parts) != nil {
		return string(content)
	}
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteString(between)
		}
		if said, is := part["text"].(string); is {
			b.WriteString(said)
		} else {
			other, _ := json.Marshal(part)
			b.Write(other)
		}
	}
	return b.String()
}

// messages is Anthropic's protocol.
func (m *model) messages(w http.ResponseWriter, body []byte) {
	var request struct {
		Stream   bool
		Tools    []struct{ Name string }
		Messages []struct{ Content json.RawMessage }
	}
	m.read(body, &request)
	asked := turn{results: map[string]string{}}
	for _, t := range request.Tools {
		asked.tools = append(asked.tools, tool{name: t.Name})
	}
	for _, message := range request.Messages {
		var parts []struct {
			Type    string
			ID      string `json:"tool_use_id"`
			Content json.RawMessage
		}
		json.Unmarshal(message.Content, &parts)
		for _, part := range parts {
			if part.Type == "tool_result" {
				asked.results[part.ID] = text(part.Content)
			}
		}
	}
	id, which, arguments, does := m.next(asked)
	block, begun, delta, why := map[string]any{"type": "text", "text": "done"}, map[string]any{"type": "text", "text": ""}, map[string]any{"type": "text_delta", "text": "done"}, "end_turn"
	if does {
		block = map[string]any{"type": "tool_use", "id": id, "name": which.name, "input": json.RawMessage(arguments)}
		begun = map[string]any{"type": "tool_use", "id": id, "name": which.name, "input": map[string]any{}}
		delta, why = map[string]any{"type": "input_json_delta", "partial_json": arguments}, "tool_use"
	}
	usage := map[string]any{"input_tokens": 1, "output_tokens": 1}
	message := map[string]any{"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": []any{}, "stop_reason": nil, "stop_sequence": nil, "usage": usage}
	if !request.Stream {
		message["content"], message["stop_reason"] = []any{block}, why
		json.NewEncoder(w).Encode(message)
		return
	}
	stream(w,
		map[string]any{"type": "message_start", "message": message},
		map[string]any{"type": "content_block_start", "index": 0, "content_block": begun},
		map[string]any{"type": "content_block_delta", "index": 0, "delta": delta},
		map[string]any{"type": "content_block_stop", "index": 0},
		map[string]any{"type": "message_delta", "delta": map[string]any{"stop_reason": why, "stop_sequence": nil}, "usage": usage},
		map[string]any{"type": "message_stop"})
}

// responses is OpenAI's protocol of responses.
func (m *model) responses(w http.ResponseWriter, body []byte) {
	var request struct {
		Tools []struct {
			Type, Name string
			Tools      []struct{ Name string }
		}
		Input []struct {
			Type   string
			ID     string `json:"call_id"`
			Output json.RawMessage
		}
	}
	m.read(body, &request)
	asked := turn{results: map[string]string{}}
	for _, t := range request.Tools {
		if t.Type != "namespace" {
			asked.tools = append(asked.tools, tool{name: t.Name})
		}
		for _, inner := range t.Tools {
			asked.tools = append(asked.tools, tool{t.Name, inner.Name})
		}
	}
	for _, item := range request.Input {
		if item.Type == "function_call_output" {
			asked.results[item.ID] = text(item.Output)
		}
	}
	id, which, arguments, does := m.next(asked)
	item := map[string]any{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []any{map[string]any{"type": "output_text", "text": "done", "annotations": []any{}}}}
	if does {
		item = map[string]any{"type": "function_call", "id": "fc_" + id, "call_id": id, "name": which.name, "arguments": arguments, "status": "completed"}
		if which.namespace != "" {
			item["namespace"] = which.namespace
		}
	}
	response := map[string]any{"id": "resp_1", "object": "response", "model": "scripted", "status": "completed", "output": []any{item},
		"usage": map[string]any{"input_tokens": 1, "input_tokens_details": map[string]any{"cached_tokens": 0}, "output_tokens": 1, "output_tokens_details": map[string]any{"reasoning_tokens": 0}, "total_tokens": 2}}
	stream(w,
		map[string]any{"type": "response.created", "response": map[string]any{"id": "resp_1"}},
		map[string]any{"type": "response.output_item.done", "output_index": 0, "item": item},
		map[string]any{"type": "response.completed", "response": response})
}

// completions is OpenAI's protocol of chats.
func (m *model) completions(w http.ResponseWriter, body []byte) {
	var request struct {
		Stream   bool
		Tools    []struct{ Function struct{ Name string } }
		Messages []struct {
			Role    string
			ID      string `json:"tool_call_id"`
			Content json.RawMessage
		}
	}
	m.read(body, &request)
	asked := turn{results: map[string]string{}}
	for _, t := range request.Tools {
		asked.tools = append(asked.tools, tool{name: t.Function.Name})
	}
	for _, message := range request.Messages {
		if message.Role == "tool" {
			asked.results[message.ID] = text(message.Content)
		}
	}
	id, which, arguments, does := m.next(asked)
	message, why := map[string]any{"role": "assistant", "content": "done"}, "stop"
	if does {
		message, why = map[string]any{"role": "assistant", "tool_calls": []any{map[string]any{"index": 0, "id": id, "type": "function",
			"function": map[string]any{"name": which.name, "arguments": arguments}}}}, "tool_calls"
	}
	chunk := func(delta any, why any) map[string]any {
		return map[string]any{"id": "chat_1", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": why}}}
	}
	if !request.Stream {
		json.NewEncoder(w).Encode(map[string]any{"id": "chat_1", "object": "chat.completion", "created": 1, "model": "scripted",
			"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": why}}, "usage": map[string]any{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}})
		return
	}
	stream(w, chunk(message, nil), chunk(map[string]any{}, why))
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// contents is Google's protocol. Its calls have no ids that come back for sure: their order tells
// which is meant.
func (m *model) contents(w http.ResponseWriter, body []byte, streamed bool) {
	var request struct {
		Tools    []struct{ FunctionDeclarations []struct{ Name string } }
		Contents []struct {
			Parts []struct {
				FunctionResponse *struct{ Response json.RawMessage }
			}
		}
	}
	m.read(body, &request)
	asked := turn{results: map[string]string{}}
	for _, t := range request.Tools {
		for _, f := range t.FunctionDeclarations {
			asked.tools = append(asked.tools, tool{name: f.Name})
		}
	}
	for _, content := range request.Contents {
		for _, part := range content.Parts {
			if part.FunctionResponse != nil {
				var response struct{ Output, Error string }
				json.Unmarshal(part.FunctionResponse.Response, &response)
				asked.results[callID(len(asked.results))] = response.Output + response.Error
			}
		}
	}
	id, which, arguments, does := m.next(asked)
	part := map[string]any{"text": "done"}
	if does {
		part = map[string]any{"functionCall": map[string]any{"id": id, "name": which.name, "args": json.RawMessage(arguments)}}
	}
	answer := map[string]any{"candidates": []any{map[string]any{"index": 0, "finishReason": "STOP", "content": map[string]any{"role": "model", "parts": []any{part}}}},
		"usageMetadata": map[string]any{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}}
	if streamed {
		stream(w, answer)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(answer)
}

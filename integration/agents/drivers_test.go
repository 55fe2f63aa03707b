package agents

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// claudeAgent is Claude Code, which is told what to do by lines of JSON, as its own library does
// it.
type claudeAgent struct{ in io.Writer }

func claude(m *machine) agent {
	servers := map[string]any{}
	for name, argv := range m.servers() {
		servers[name] = map[string]any{"command": argv[0], "args": argv[1:], "env": m.env}
	}
	config := m.base + "/mcp.json"
	m.write(config, object(map[string]any{"mcpServers": servers}))
	r := m.start("claude", m.alone(map[string]string{"ANTHROPIC_BASE_URL": m.model.address, "ANTHROPIC_API_KEY": "sk-ant-made-up", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
		"DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "ENABLE_TOOL_SEARCH": "false"}),
		m.agent, "-p", "--verbose", "--input-format", "stream-json", "--output-format", "stream-json", "--mcp-config", config, "--strict-mcp-config",
		"--allowedTools", "mcp__"+usual+",mcp__"+always, "--model", "claude-sonnet-4-5")
	return claudeAgent{r.in}
}

func (c claudeAgent) prompt(text string) {
	fmt.Fprintln(c.in, object(map[string]any{"type": "user", "message": map[string]any{"role": "user", "content": text}}))
}

func (c claudeAgent) interrupt() {
	fmt.Fprintln(c.in, object(map[string]any{"type": "control_request", "request_id": "1", "request": map[string]any{"subtype": "interrupt"}}))
}

// codexAgent is codex, as editors talk to it.
type codexAgent struct {
	m            *machine
	program      *running
	asked        int
	thread, turn string
}

func codex(m *machine) agent {
	var config strings.Builder
	fmt.Fprintf(&config, `model = "scripted"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
analytics = { enabled = false }
features = { plugins = false, apps = false }
model_providers.scripted = { name = "scripted", base_url = %q, wire_api = "responses", env_key = "SCRIPTED_KEY" }
`, m.model.address+"/v1")
	for name, argv := range m.servers() {
		fmt.Fprintf(&config, "[mcp_servers.%s]\ncommand = %q\nargs = %s\n[mcp_servers.%s.env]\n", name, argv[0], object(argv[1:]), name)
		for variable, value := range m.env {
			fmt.Fprintf(&config, "%s = %q\n", variable, value)
		}
	}
	m.write(m.home+"/.codex/config.toml", config.String())
	c := &codexAgent{m: m, program: m.start("codex", m.alone(map[string]string{"SCRIPTED_KEY": "made-up"}), m.agent, "app-server")}
	c.ask("initialize", map[string]any{"clientInfo": map[string]any{"name": "test", "version": "1"}})
	fmt.Fprintln(c.program.in, `{"method":"initialized"}`)
	c.thread = c.ask("thread/start", map[string]any{"cwd": m.work}).Thread.ID
	return c
}

type codexAnswer struct{ Thread, Turn struct{ ID string } }

func (c *codexAgent) ask(method string, params map[string]any) codexAnswer {
	c.m.t.Helper()
	c.asked++
	fmt.Fprintln(c.program.in, object(map[string]any{"id": c.asked, "method": method, "params": params}))
	late := time.After(40 * time.Second)
	for {
		select {
		case line, is := <-c.program.lines:
			var message struct {
				ID     int
				Result *codexAnswer
			}
			if json.Unmarshal([]byte(line), &message) == nil && message.ID == c.asked && message.Result != nil {
				return *message.Result
			}
			if is {
				continue
			}
		case <-late:
		}
		c.m.t.Fatalf("no answer to %s", method)
	}
}

func (c *codexAgent) prompt(text string) {
	c.turn = c.ask("turn/start", map[string]any{"threadId": c.thread, "input": []any{map[string]any{"type": "text", "text": text}}}).Turn.ID
}

func (c *codexAgent) interrupt() {
	c.ask("turn/interrupt", map[string]any{"threadId": c.thread, "turnId": c.turn})
}

// opencodeAgent is opencode, as its windows talk to it.
type opencodeAgent struct {
	m                          *machine
	address, session, password string
}

func opencode(m *machine) agent {
	servers := map[string]any{}
	for name, argv := range m.servers() {
		servers[name] = map[string]any{"type": "local", "command": argv, "environment": m.env, "enabled": true}
	}
	m.write(m.home+"/.config/opencode/opencode.json", object(map[string]any{
		"autoupdate": false, "snapshot": false, "share": "disabled", "model": "scripted/scripted", "mcp": servers,
		"provider": map[string]any{"scripted": map[string]any{"npm": "@ai-sdk/openai-compatible", "name": "scripted",
			"options": map[string]any{"baseURL": m.model.address + "/v1", "apiKey": "made-up"},
			"models":  map[string]any{"scripted": map[string]any{"name": "scripted", "tool_call": true}}}},
	}))
	o := &opencodeAgent{m: m, password: rand.Text()}
	r := m.start("opencode", m.alone(map[string]string{"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
		"OPENCODE_DISABLE_DEFAULT_PLUGINS": "1", "OPENCODE_EXPERIMENTAL_DISABLE_FILEWATCHER": "1", "OPENCODE_SERVER_PASSWORD": o.password}),
		m.agent, "serve", "--hostname", "127.0.0.1", "--port", "0")
	listens := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	for late := time.After(40 * time.Second); o.address == ""; {
		select {
		case line, is := <-r.lines:
			if o.address = listens.FindString(line); is {
				continue
			}
		case <-late:
		}
		m.t.Fatal("it does not listen")
	}
	o.session = o.post("/session", map[string]any{}).ID
	return o
}

func (o *opencodeAgent) post(path string, body any) (answer struct{ ID string }) {
	o.m.t.Helper()
	request, err := http.NewRequest(http.MethodPost, o.address+path, strings.NewReader(object(body)))
	if err != nil {
		o.m.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.SetBasicAuth("opencode", o.password)
	client := http.Client{Timeout: time.Minute}
	r, err := client.Do(request)
	if err != nil {
		o.m.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode >= 300 {
		o.m.t.Fatalf("%s: %s, %v, %s", path, r.Status, err, text)
	}
	json.Unmarshal(text, &answer)
	return answer
}

func (o *opencodeAgent) prompt(text string) {
	o.m.t.Helper()
	o.post("/session/"+o.session+"/prompt_async", map[string]any{"parts": []any{map[string]any{"type": "text", "text": text}}})
}

func (o *opencodeAgent) interrupt() {
	o.m.t.Helper()
	o.post("/session/"+o.session+"/abort", map[string]any{})
}

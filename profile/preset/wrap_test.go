package preset

import (
	"encoding/json"
	"strings"
	"testing"
)

// A file of a project's is written by whoever wrote the project: each server of it that is a
// program is started in a sandbox, which nothing in the file widens.
func TestEachServerOfAFileStartsInASandbox(t *testing.T) {
	how := Wrapping{Program: "/opt/clai-sandbox", Options: []string{"--network", "disabled"}, IsProgram: func(c string) bool { return c == "/opt/clai-sandbox" }}
	wrapped := func(words string) string {
		return `{"command":"/opt/clai-sandbox","args":["run","--network","disabled",` + words + `]}`
	}
	for name, c := range map[string]struct{ file, want string }{
		"a program":            {`{"mcpServers": {"a": {"command": "x", "args": ["y"]}}}`, `{"mcpServers":{"a":` + wrapped(`"--","x","y"`) + `}}`},
		"variables":            {`{"mcpServers": {"a": {"command": "x", "env": {"XDG_CONFIG_HOME": "e", "CLAI_SANDBOX_BWRAP": "b"}}}}`, `{"mcpServers":{"a":{"command":"/opt/clai-sandbox","env":{"CLAI_SANDBOX_PASSED_CLAI_SANDBOX_BWRAP":"b","CLAI_SANDBOX_PASSED_XDG_CONFIG_HOME":"e"},"args":["run","--network","disabled","--env-as","CLAI_SANDBOX_BWRAP=CLAI_SANDBOX_PASSED_CLAI_SANDBOX_BWRAP","--env-as","XDG_CONFIG_HOME=CLAI_SANDBOX_PASSED_XDG_CONFIG_HOME","--","x"]}}}`},
		"each list":            {`{"mcpServers": {"a": {"command": "x"}}, "servers": {"b": {"command": "y"}}}`, `{"mcpServers":{"a":` + wrapped(`"--","x"`) + `},"servers":{"b":` + wrapped(`"--","y"`) + `}}`},
		"a list below":         {`{"projects": {"/p": {"mcpServers": {"a": {"command": "x"}}}}, "mcp": {"servers": {"b": {"command": "y"}}}}`, `{"projects":{"/p":{"mcpServers":{"a":` + wrapped(`"--","x"`) + `}}},"mcp":{"servers":{"b":` + wrapped(`"--","y"`) + `}}}`},
		"another of our name":  {`{"mcpServers": {"a": {"command": "./clai-sandbox", "args": ["run", "--", "x"]}}}`, `{"mcpServers":{"a":` + wrapped(`"--","./clai-sandbox","run","--","x"`) + `}}`},
		"ours, as it was":      {`{"mcpServers": {"a": ` + wrapped(`"--env-as","A=CLAI_SANDBOX_PASSED_A","--","x"`) + `, "b": {"command": "/opt/clai-sandbox", "args": ["mcp"]}}}`, ""},
		"an address":           {`{"mcpServers": {"a": {"type": "http", "url": "https://example.org", "headers": {"X": "y"}}}}`, ""},
		"the client's own cwd": {`{"mcpServers": {"a": {"command": "x", "cwd": "${workspaceFolder}"}}}`, `{"mcpServers":{"a":{"command":"/opt/clai-sandbox","cwd":"${workspaceFolder}","args":["run","--network","disabled","--","x"]}}}`},
		"an escaped key":       {`{"mcpServers": {"a": {"\u0063ommand": "x"}}}`, `{"mcpServers":{"a":` + wrapped(`"--","x"`) + `}}`},

		"our program with options": {`{"mcpServers": {"a": {"command": "/opt/clai-sandbox", "args": ["run", "--grant", "/:rw", "--", "x"]}}}`, "words of its own"},
		"fewer options":            {`{"mcpServers": {"a": {"command": "/opt/clai-sandbox", "args": ["run", "--", "x"]}}}`, "words of its own"},
		"one option more":          {`{"mcpServers": {"a": ` + wrapped(`"--grant","/:rw","--","x"`) + `}}`, "words of its own"},
		"another variable":         {`{"mcpServers": {"a": ` + wrapped(`"--env-as","A=HOME","--","x"`) + `}}`, "words of its own"},
		"our server, elsewhere":    {`{"mcpServers": {"a": {"command": "/opt/clai-sandbox", "args": ["mcp"], "env": {"XDG_CONFIG_HOME": "e"}}}}`, "would obey its variable"},
		"a directory":              {`{"mcpServers": {"a": {"command": "x", "cwd": "sub"}}}`, "would be its workspace"},
		"our server's directory":   {`{"mcpServers": {"a": {"command": "/opt/clai-sandbox", "args": ["mcp"], "cwd": "/home"}}}`, "would be its workspace"},
		"a helper":                 {`{"mcpServers": {"a": {"url": "https://example.org", "headersHelper": "x"}}}`, "headersHelper: a client may obey it"},
		"a file of variables":      {`{"mcpServers": {"a": {"command": "x", "envFile": "e"}}}`, "envFile: a client may obey it"},
		"a program below":          {`{"mcpServers": {"a": {"url": "x", "transport": {"stdio": [{"command": "x"}]}}}}`, "transport: a client may obey it"},
		"another case":             {`{"mcpServers": {"a": {"command": "x", "Command": null, "url": "y"}}}`, "Command: a client may obey it"},
		"null":                     {`{"mcpServers": {"a": {"command": null, "url": "y"}}}`, "it is null"},
		"a list as a command":      {`{"mcpServers": {"a": {"command": ["x"]}}}`, "its command"},
		"neither":                  {`{"mcpServers": {"a": {}}}`, "neither a command nor an address"},
		"twice":                    {`{"mcpServers": {"a": {"command": "x", "command": "y"}}}`, "stands twice"},
		"two lists of one name":    {`{"mcpServers": {}, "mcpServers": {"a": {"command": "y"}}}`, "stands twice"},
		"in an array":              {`{"x": [{"mcpServers": {"a": {"command": "y"}}}]}`, "no list can be changed there"},
		"no list":                  {`{"mcpServers": [{"command": "y"}]}`, "no object"},
		"no variable":              {`{"mcpServers": {"a": {"command": "x", "env": {"A\nB": "y"}}}}`, "is no name of a variable"},
		"the loader's":             {`{"mcpServers": {"a": {"command": "x", "env": {"LD_PRELOAD": "y"}}}}`, "refused"},
	} {
		got, _, err := WrapServers("file", []byte(c.file), how)
		if err != nil {
			if c.want == "" || strings.HasPrefix(c.want, "{") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		want := c.want
		if want == "" {
			want = c.file
		}
		var one, other any
		if err := json.Unmarshal([]byte(want), &other); err != nil {
			t.Errorf("%s: not refused: %s", name, got)
			continue
		}
		if err := json.Unmarshal(got, &one); err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(one)
		b, _ := json.Marshal(other)
		if string(a) != string(b) {
			t.Errorf("%s: %s, want %s", name, a, b)
		}
	}
}

// What is no server that is known, and may be a program, is told.
func TestWhatMayBeAProgramIsTold(t *testing.T) {
	_, list, err := WrapServers("file", []byte(`{"mcpServers": {}, "hooks": [{"command": "x"}], "apiKeyHelper": "y", "mcp": {"a": {"command": ["z"]}}, "context_servers": {"b": {"command": {"path": "z"}}}}`), Wrapping{IsProgram: func(string) bool { return false }})
	var names []string
	for _, s := range list {
		if s.Why != "" {
			names = append(names, s.Name)
		}
	}
	if got := strings.Join(names, " "); got != "apiKeyHelper context_servers.b.command hooks.0.command mcp.a.command" || err != nil {
		t.Error(got, err)
	}
}

package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/integration/session"
	"github.com/clairun/clai-sandbox/profile"
)

// asServer makes the test binary a server on standard streams, for clients that start one. It holds
// the workspace.
const asServer = "CLAI_SANDBOX_TEST_MCP"

func serveTest() {
	caller, err := profile.CurrentCaller()
	if err == nil {
		var config *profile.Config
		if config, err = profile.Load(caller.Directories()); err == nil {
			err = ServeStdio(context.Background(), Options{Version: "test", Session: session.Options{Caller: caller, Config: config,
				Request: profile.Request{Workspace: os.Getenv(asServer)}}}, os.Stdin, os.Stdout)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// installed finds what packaging/inspector.sh installs.
func installed(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs("../../bin/npm/node_modules/" + name)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Skipf("%s is not installed: packaging/inspector.sh all, which needs npm", name)
	}
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("no node")
	}
	return path
}

// script is a program that starts the server, as a harness's configuration names one.
func (p *place) script() string {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	home := filepath.Dir(p.work)
	path := p.write("server", fmt.Sprintf("#!/bin/sh\nexport HOME='%s' %s='%s'\nunset XDG_STATE_HOME XDG_CONFIG_HOME\nexec '%s'\n", home, asServer, p.work, self))
	if err := os.Chmod(path, 0o755); err != nil {
		p.t.Fatal(err)
	}
	return path
}

func TestTheOfficialInspectorCallsTools(t *testing.T) {
	inspector := installed(t, "@modelcontextprotocol/inspector-cli/build/index.js")
	p := newPlace(t)
	inspect := func(arguments ...string) (answer struct {
		Tools             []struct{ Name string }
		StructuredContent json.RawMessage
		IsError           bool
	}) {
		t.Helper()
		cmd := exec.Command("node", append([]string{inspector, p.script()}, arguments...)...)
		cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(p.work))
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := json.Unmarshal(out, &answer); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return answer
	}
	if tools := inspect("--method", "tools/list").Tools; len(tools) != 12 {
		t.Errorf("%v", tools)
	}
	var r Result
	json.Unmarshal(inspect("--method", "tools/call", "--tool-name", "bash_exec", "--tool-arg", "command=echo hello; (exit 3)").StructuredContent, &r)
	if r.Output != "hello\n" || r.ExitCode != 3 {
		t.Errorf("%+v", r)
	}
	json.Unmarshal(inspect("--method", "tools/call", "--tool-name", "bash_exec", "--tool-arg", "command=cat "+p.write("secret", "x")).StructuredContent, &r)
	if r.ExitCode == 0 || len(r.Missing) != 1 {
		t.Errorf("%+v", r)
	}
}

// The client library of an agent's harness that is not ours.
func TestAHarnesssOwnClientCallsTools(t *testing.T) {
	installed(t, "@openai/agents")
	p := newPlace(t)
	program := filepath.Join(p.other, "client.mjs")
	modules, err := filepath.Abs("../../bin/npm/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(p.other, "node_modules")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte(`
		import { MCPServerStdio } from '@openai/agents';
		const server = new MCPServerStdio({ name: 'sandbox', command: process.argv[2], args: [] });
		await server.connect();
		const tools = await server.listTools();
		const result = await server.callTool('bash_exec', { command: 'echo from $(pwd)' });
		console.log(JSON.stringify({ tools: tools.map(t => t.name), result }));
		await server.close();
	`), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("node", program, p.script()).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "from "+p.work) || !strings.Contains(string(out), "fs_request_grant") {
		t.Errorf("%v: %s", err, out)
	}
}

// The protocol's own conformance suite, as far as its scenarios are about any server: the others
// want tools of the suite's own.
func TestConformance(t *testing.T) {
	suite := installed(t, "@modelcontextprotocol/conformance/dist/index.js")
	p := newPlace(t)
	token := strings.Repeat("t", 32)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- ServeHTTP(ctx, p.options, listener, token) }()
	t.Cleanup(func() { cancel(); <-over })
	target := &url.URL{Scheme: "http", Host: listener.Addr().String()}
	// The suite has no way to send a token.
	proxy := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header.Set("Authorization", "Bearer "+token)
	}})
	t.Cleanup(proxy.Close)
	for _, scenario := range []string{"server-initialize", "ping", "tools-list"} {
		cmd := exec.Command("node", suite, "server", "--url", proxy.URL, "--scenario", scenario)
		cmd.Dir = p.other // it writes its results where it is
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "Passed") && !strings.Contains(string(out), "SUCCESS") && !strings.Contains(string(out), "passed") {
			t.Errorf("%s: %v\n%.2000s", scenario, err, out)
		}
		t.Logf("%s: %.300s", scenario, out)
	}
}

// Who sends a part of a request and no more gets an end, and who waits for a long answer does not.
func TestARequestThatDoesNotComeHoldsNothing(t *testing.T) {
	const waitTimeout = 50 * time.Millisecond
	var taken atomic.Int32
	server := httptest.NewServer(wholeBody(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		taken.Add(1)
		select {
		case <-r.Context().Done():
			t.Error("the answer was cut off")
		case <-time.After(3 * waitTimeout):
		}
		io.Copy(w, r.Body)
	}), waitTimeout))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	if said, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(said), "HTTP/1.1 408 ") || taken.Load() != 0 {
		t.Errorf("%q, %v; taken up %d times", said, err, taken.Load())
	}
	answer, err := http.Post(server.URL, "application/json", strings.NewReader("whole"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "whole" {
		t.Errorf("%q, %v", text, err)
	}
}

// A command whose network's rules allow our port comes through a proxy, which is a process of this
// program outside.
func TestAProxyOfASandboxIsNoClient(t *testing.T) {
	for name, refused := range map[string]bool{"clai-sandbox": true, "clai-sandboxd": true, "harness": false} {
		program := filepath.Join(t.TempDir(), name)
		text, err := os.ReadFile("/bin/sleep")
		if err == nil {
			err = os.WriteFile(program, text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		process := exec.Command(program, "1000")
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := checkNoProxy(process.Process.Pid); (err != nil) != refused {
				t.Errorf("%s: %v", name, err)
			}
			os.Remove(program) // as an upgrade does
		}
		process.Process.Kill()
		process.Wait()
	}
}

package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/clairun/clai-sandbox/grants"
)

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`

// A stdioClient speaks to a server line by line.
type stdioClient struct {
	t    *testing.T
	to   io.WriteCloser
	from *bufio.Scanner
}

func (p *place) stdio(t *testing.T) *stdioClient {
	t.Helper()
	in, to := io.Pipe()
	from, out := io.Pipe()
	over := make(chan error, 1)
	go func() {
		over <- ServeStdio(context.Background(), p.options, in, out)
		out.Close()
	}()
	c := &stdioClient{t, to, bufio.NewScanner(from)}
	c.from.Buffer(nil, 1<<20)
	t.Cleanup(func() {
		to.Close()
		go io.Copy(io.Discard, from)
		<-over
	})
	if answer := c.say(initialize); answer["result"] == nil {
		t.Fatalf("%v", answer)
	}
	fmt.Fprintln(to, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

// say sends a line and returns the next message.
func (c *stdioClient) say(line string) map[string]any {
	c.t.Helper()
	if _, err := io.WriteString(c.to, line+"\n"); err != nil {
		c.t.Fatalf("the server is gone: %v", err)
	}
	return c.hear(line)
}

func (c *stdioClient) hear(line string) map[string]any {
	c.t.Helper()
	if !c.from.Scan() {
		c.t.Fatalf("behind %.60q the server is gone", line)
	}
	var answer map[string]any
	if err := json.Unmarshal(c.from.Bytes(), &answer); err != nil {
		c.t.Fatalf("%q: %v", c.from.Text(), err)
	}
	return answer
}

// Whatever a client says, the next that is sensible has its answer.
func TestALineThatIsNoMessageIsAnsweredWithAnError(t *testing.T) {
	c := newPlace(t).stdio(t)
	nested := func(depth int, open, end string) string {
		return `{"jsonrpc":"2.0","id":7,"method":"ping","params":` + strings.Repeat(open, depth) + "1" + strings.Repeat(end, depth) + "}"
	}
	for name, row := range map[string]struct {
		line string
		code float64
	}{
		"a batch":                  {`[{"jsonrpc":"2.0","id":2,"method":"ping"}]`, codeInvalid},
		"an empty batch":           {`[]`, codeInvalid},
		"a batch of nothing":       {`[1,2]`, codeInvalid},
		"not JSON":                 {`hello`, codeParse},
		"half of it":               {`{"jsonrpc":"2.0",`, codeParse},
		"two on a line":            {`{"jsonrpc":"2.0","id":2,"method":"ping"}{"jsonrpc":"2.0","id":3,"method":"ping"}`, codeParse},
		"no words":                 {"\x00\xff\xfe", codeParse},
		"a number":                 {`7`, codeInvalid},
		"null":                     {`null`, codeInvalid},
		"a string":                 {`"x"`, codeInvalid},
		"an empty object":          {`{}`, codeInvalid},
		"an id that is a list":     {`{"jsonrpc":"2.0","id":[1],"method":"ping"}`, codeInvalid},
		"an object":                {`{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}`, codeInvalid},
		"a truth":                  {`{"jsonrpc":"2.0","id":true,"method":"ping"}`, codeInvalid},
		"null as id":               {`{"jsonrpc":"2.0","id":null,"method":"ping"}`, codeInvalid},
		"a half":                   {`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, codeInvalid},
		"more than there are":      {`{"jsonrpc":"2.0","id":1e300,"method":"ping"}`, codeInvalid},
		"more than a number holds": {`{"jsonrpc":"2.0","id":1e999,"method":"ping"}`, codeInvalid},
		"half a pair":              {`{"jsonrpc":"2.0","id":"\ud800","method":"ping"}`, codeInvalid},
		"deep lists":               {nested(20000, "[", "]"), codeInvalid},
		"deep objects":             {nested(20000, `{"a":`, "}"), codeInvalid},
		"deep and not closed":      {nested(20000, "[", ""), codeInvalid},
		"another version":          {`{"jsonrpc":"1.0","id":2,"method":"ping"}`, codeInvalid},
		"a method that is none":    {`{"jsonrpc":"2.0","id":2,"method":7}`, codeInvalid},
		"an error that is none":    {`{"jsonrpc":"2.0","id":2,"error":7}`, codeInvalid},
		"neither":                  {`{"jsonrpc":"2.0"}`, codeInvalid},
		"too long":                 {`{"jsonrpc":"2.0","id":2,"method":"` + strings.Repeat("x", maxMessage) + `"}`, codeInvalid},
	} {
		answer := c.say(row.line)
		if e, ok := answer["error"].(map[string]any); !ok || e["code"] != row.code || answer["id"] != nil {
			t.Errorf("%s: %v", name, answer)
		}
		if answer := c.say(`{"jsonrpc":"2.0","id":"next","method":"ping"}`); answer["id"] != "next" || answer["result"] == nil {
			t.Errorf("behind %s: %v", name, answer)
		}
	}
	// What the library answers itself, and what has no answer at all.
	for _, line := range []string{"", "  \t", "\r", `{"jsonrpc":"2.0","id":99,"result":{}}`, `{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"x"}}`,
		`{"jsonrpc":"2.0","method":"no/such"}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"none"}}`,
		`{"jsonrpc":"2.0","id":5,"method":"no/such"}`, `{"jsonrpc":"2.0","id":6,"method":""}`, `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":7}`,
		`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":[1]}`, nested(90, "[", "]")} {
		answer := c.say(line + "\n" + `{"jsonrpc":"2.0","id":"next","method":"ping"}`)
		for answer["id"] != "next" {
			answer = c.hear(line)
		}
	}
}

func FuzzMessageLines(f *testing.F) {
	f.Add([]byte(initialize))
	f.Add([]byte("[]\n{}\n\n" + initialize))
	f.Fuzz(func(t *testing.T, said []byte) {
		var answers strings.Builder
		lines := newMessageLines(io.NopCloser(strings.NewReader(string(said))), &answers)
		passed, err := io.ReadAll(lines)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(passed)) {
			if !json.Valid([]byte(line)) || line[0] != '{' || checkMessage([]byte(line), false) != nil {
				t.Errorf("%q is passed on", line)
			}
		}
		for line := range strings.Lines(answers.String()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%q is answered", line)
			}
		}
	})
}

// serveUnix serves at a socket, and returns its path.
func (p *place) serveUnix(t *testing.T) string {
	t.Helper()
	path := p.other + "/mcp.sock"
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- ServeHTTP(ctx, p.options, listener, "") }()
	t.Cleanup(func() { cancel(); <-over })
	return path
}

var testToken = strings.Repeat("t", 32)

// callVariable makes this program a client of the socket that it names.
const callVariable = "CLAI_SANDBOX_TEST_CALL"

// callMain is this program as a client of a socket: it prints the status of an answer.
func callMain(path string) {
	client, url := http.Client{Transport: dialing(path)}, "http://socket/"
	if strings.HasPrefix(path, "http:") {
		client, url = http.Client{}, path
	}
	r, _ := http.NewRequest("POST", url, strings.NewReader(initialize))
	r.Header.Set("Authorization", "Bearer "+testToken)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	answer, err := client.Do(r)
	if err != nil {
		fmt.Println("none")
		return
	}
	fmt.Println(answer.StatusCode)
}

func dialing(path string) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
}

// A socket in a granted directory is within reach of a command, and may be of another user's.
func TestOnlyTheSameUserOutsideOfSandboxesIsServedAtASocket(t *testing.T) {
	p := newPlace(t)
	path := p.serveUnix(t)
	program := filepath.Join(t.TempDir(), "client")
	text, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(program, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(program); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		os.Chmod(dir, 0o755)
	}
	for dir := filepath.Dir(path); dir != "/var/tmp"; dir = filepath.Dir(dir) {
		os.Chmod(dir, 0o755)
	}
	os.Chmod(path, 0o777)
	self := []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
	group := []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- ServeHTTP(ctx, p.options, tcp, testToken) }()
	t.Cleanup(func() { cancel(); <-over })
	url := "http://" + tcp.Addr().String()
	for name, c := range map[string]struct {
		as   syscall.SysProcAttr
		want string
		root bool
	}{
		"outside":                   {syscall.SysProcAttr{}, "200", false},
		"in a user namespace":       {syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: self, GidMappings: group}, "none", false},
		"in one that has a mount":   {syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, UidMappings: self, GidMappings: group}, "none", false},
		"in a mount namespace":      {syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}, "none", true},
		"another user":              {syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}, "none", true},
		"another user of the group": {syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: uint32(os.Getgid())}}, "none", true},
	} {
		if c.root && os.Getuid() != 0 {
			continue
		}
		for _, at := range []string{path, url} {
			switch {
			case at == url && c.as.Credential != nil:
				c.want = "200" // it has the token, and is nobody's sandbox of ours
			case at == url && c.want == "none":
				c.want = "403" // where it is from is looked at when it has shown the token
			}
			cmd := exec.Command(program)
			cmd.Env = []string{callVariable + "=" + at}
			cmd.SysProcAttr = &c.as
			out, err := cmd.Output()
			if got := strings.TrimSpace(string(out)); err != nil || got != c.want {
				t.Errorf("%s, at %s: %q (%v), want %s", name, at, got, err, c.want)
			}
		}
	}
	// And a command in a sandbox that was granted the socket's directory.
	a := p.connect(nil)
	go p.decide(func(r grants.Request) grants.Decision {
		return grants.Decision{Kind: grants.AllowOnce, Path: r.ResolvedPath, Access: r.RequestedAccess}
	})
	if g, failed := call[GrantResult](a, "fs_request_grant", RequestGrant{Path: p.other, Access: "read_write", Reason: "x"}); failed || !g.Granted {
		t.Fatalf("%+v", g)
	}
	if err := os.WriteFile(p.work+"/client", text, 0o755); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]string{path: "none", url: "403"} { // with the token, wherever it is from
		if r := a.sh(callVariable + "=" + at + " ./client"); strings.TrimSpace(r.Output) != want {
			t.Errorf("in a sandbox, at %s: %+v", at, r)
		}
	}
}

// Sessions that are only begun take a seat, too, and lose it first.
func TestSessionsAreBoundedFromTheirFirstRequest(t *testing.T) {
	p := newPlace(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h := newRegistry(ctx, p.options)
	defer h.close()
	h.waitTimeout = 0
	server := http.Server{Handler: h.admit(sdk.NewStreamableHTTPHandler(h.server, &sdk.StreamableHTTPOptions{SessionTimeout: sittingIdle}))}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(listener)
	defer server.Close()
	url := "http://" + listener.Addr().String()
	worker, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx, &sdk.StreamableClientTransport{Endpoint: url}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close()
	work := func() {
		t.Helper()
		result, err := worker.CallTool(ctx, &sdk.CallToolParams{Name: "bash_exec", Arguments: BashExec{Command: "echo hello"}})
		if err != nil || result.IsError {
			t.Fatalf("%+v %v", result, err)
		}
	}
	work()
	begin := func(body string) int {
		t.Helper()
		r, _ := http.NewRequest("POST", url, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		return answer.StatusCode
	}
	for range 3 * maxSittings {
		if got := begin(initialize); got != 200 {
			t.Fatalf("a client that begins: %d", got)
		}
		if n := h.taken(); n > maxSittings {
			t.Fatalf("%d seats are taken", n)
		}
	}
	work() // who has done something stays
	for _, body := range []string{"", "[]", "hello", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, strings.Repeat("[", 200000)} {
		before := h.taken()
		if got := begin(body); got < 200 || got >= 500 {
			t.Errorf("%.20q: %d", body, got)
		}
		if n := h.taken(); n > before {
			t.Errorf("%.20q takes a seat", body)
		}
	}
	h.waitTimeout = time.Hour // all are used, as it were
	for range maxSittings {
		begin(initialize)
	}
	if got := begin(initialize); got != 503 {
		t.Errorf("one more than there are seats: %d", got)
	}
	work()
}

func (h *registry) taken() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.seats)
}

// An answer counts if it is to the form that was shown, once, and from a client that said at the
// beginning that it has a person to show forms to.
func TestAnAnswerIsBoundToItsForm(t *testing.T) {
	p := newPlace(t)
	p.options.TrustElicitation = true
	dir := filepath.Dir(p.write("data/file", "x"))
	waiting := func() int {
		t.Helper()
		list, err := p.person.Pending(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	accept := &sdk.ElicitResult{Action: "accept", Content: map[string]any{"decision": "allowOnce"}}
	for _, elicits := range []bool{false, true} {
		s, session := p.begin(t, elicits)
		waitTimeout := 300 * time.Millisecond // for the answer that does not come
		ask := func(path string, answers sdk.InputResponseMap) (GrantResult, *form) {
			t.Helper()
			ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
			defer cancel()
			claims := sdk.Meta{"io.modelcontextprotocol/clientCapabilities": map[string]any{"elicitation": map[string]any{"form": map[string]any{}}}}
			request := &sdk.CallToolRequest{Session: session, Params: &sdk.CallToolParamsRaw{Meta: claims, Name: "fs_request_grant", InputResponses: answers}}
			r, form, err := s.requestGrant(ctx, request, RequestGrant{Path: path, Access: "read_only", Reason: "x"})
			if err != nil {
				t.Fatal(err)
			}
			return r, form
		}
		_, shown := ask(dir, sdk.InputResponseMap{"answer": accept})
		if (shown != nil) != elicits {
			t.Fatalf("elicits %v: a form %v", elicits, shown)
		}
		for _, guess := range []string{"answer", "", "answer-"} {
			if r, form := ask(dir, sdk.InputResponseMap{guess: accept}); !r.Pending || form != nil || waiting() != 1 {
				t.Errorf("elicits %v: an answer to the form %q: %+v", elicits, guess, r)
			}
		}
		if !elicits {
			p.decide(func(grants.Request) grants.Decision { return grants.Decision{Kind: grants.Deny} })
			continue
		}
		_, other := ask(dir+"/file", nil)
		if other == nil || other.name == shown.name {
			t.Fatalf("the form of another question: %+v", other)
		}
		if r, _ := ask(dir, sdk.InputResponseMap{other.name: accept}); !r.Pending || waiting() != 2 {
			t.Errorf("another question's form: %+v", r)
		}
		if r, _ := ask(dir, sdk.InputResponseMap{shown.name: &sdk.ElicitResult{Action: "cancel"}}); !r.Pending || waiting() != 2 {
			t.Errorf("a form that was closed: %+v", r)
		}
		if r, _ := ask(dir, sdk.InputResponseMap{shown.name: accept}); !r.Pending || waiting() != 2 {
			t.Errorf("a form that has come back before: %+v", r)
		}
		waitTimeout = 30 * time.Second
		if r, _ := ask(dir+"/file", sdk.InputResponseMap{other.name: accept}); !r.Granted || r.Path != dir+"/file" || waiting() != 1 {
			t.Errorf("the form itself: %+v", r)
		}
	}
}

// begin is a client session with a client that can show forms, or cannot.
func (p *place) begin(t *testing.T, elicits bool) (*clientSession, *sdk.ServerSession) {
	t.Helper()
	s, err := p.options.open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	options := &sdk.ClientOptions{}
	if elicits {
		options.ElicitationHandler = func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return &sdk.ElicitResult{Action: "decline"}, nil
		}
	}
	theirs, ours := sdk.NewInMemoryTransports()
	session, err := s.server().Connect(context.Background(), ours, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, options).Connect(context.Background(), theirs, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return s, session
}

// Who knocks without a token takes no descriptors of the sandboxes'.
func TestConnectionsWithoutATokenAreBounded(t *testing.T) {
	p := newPlace(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- ServeHTTP(ctx, p.options, listener, strings.Repeat("t", 32)) }()
	t.Cleanup(func() { cancel(); <-over })
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := open()
	const more = 40
	for range maxHTTPConnections + more {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	ours := maxHTTPConnections + more
	// Who knows the token is let in meanwhile, and the others have to make room.
	began := time.Now()
	for range 3 {
		r, _ := http.NewRequest("GET", "http://"+listener.Addr().String(), nil)
		r.Header.Set("Authorization", "Bearer "+strings.Repeat("t", 32))
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: headerTimeout / 2}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		answer.Body.Close()
		if answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden {
			t.Error(answer.Status)
		}
	}
	p.until("the others are gone", func() bool { return open()-before-ours <= maxStrangers+8 }) // the test has some more
}

func TestTheOtherEndOfAConnectionIsFound(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Logf("%s: %v", address, err)
			continue
		}
		defer listener.Close()
		client, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		server, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if err := checkPeer(server); err != nil {
			t.Errorf("%s: %v", address, err)
		}
		client.Close()
		if err := checkPeer(server); err == nil {
			t.Errorf("%s: one that is gone is taken", address)
		}
		server.Close()
	}
}

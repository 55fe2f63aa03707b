package door

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/outside"
	"github.com/clairun/clai-sandbox/outside/container"
)

// heard is a broker that keeps what it is asked; a command called wait waits for the end of who
// asks.
type heard struct {
	sync.Mutex
	asked []grants.Command
	from  []outside.Asker
}

func (h *heard) RunFor(ctx context.Context, from outside.Asker, c grants.Command) (grants.CommandAnswer, error) {
	h.Lock()
	h.asked, h.from = append(h.asked, c), append(h.from, from)
	h.Unlock()
	switch c.Argv[0] {
	case "wait":
		<-ctx.Done()
		return grants.CommandAnswer{}, ctx.Err()
	case "busy":
		return grants.CommandAnswer{}, &grants.BusyError{Why: "too many"}
	case "denied":
		return grants.CommandAnswer{Status: grants.CommandDenied, Reason: "no\x1b"}, nil
	}
	return grants.CommandAnswer{Status: grants.CommandAutoApproved, Pattern: ".*", Stdout: []byte("a\xff\x00"), Stderr: []byte("e")}, nil
}

type bench struct {
	*testing.T
	tokens *Tokens
	broker *heard
	server *httptest.Server
	secret string
	token  Token
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, tokens: In(t.TempDir()), broker: &heard{}}
	var err error
	if b.token, b.secret, err = b.tokens.Create(Token{Agent: "main", Workspace: "/home/p/app", At: "/work", Project: "app", Branch: "next"}); err != nil {
		t.Fatal(err)
	}
	d := New(b.tokens, b.broker)
	b.server = httptest.NewServer(d.http.Handler)
	t.Cleanup(b.server.Close)
	return b
}

func (b *bench) send(method, path, token, body string, header ...string) (int, container.Answer) {
	b.Helper()
	r, err := http.NewRequest(method, b.server.URL+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	if token != "" {
		r.Header.Set(container.TokenHeader, token)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	var a container.Answer
	if err := json.NewDecoder(response.Body).Decode(&a); err != nil {
		b.Fatal(err)
	}
	return response.StatusCode, a
}

func TestEveryAnswerOfTheDoorMeansWhatItSays(t *testing.T) {
	b := newBench(t)
	other, _, err := b.tokens.Create(Token{Agent: "other", Workspace: "/srv", At: "/srv"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method, path, token, body string
		status                    int
		said                      string
	}{
		{"GET", "/", b.secret, "", 404, "there is POST /request"},
		{"GET", "/request", b.secret, "", 405, "there is POST /request"},
		{"POST", "/request/", b.secret, "", 404, ""},
		{"POST", "/request", "", `{"argv":["x"]}`, 401, "no token that holds"},
		{"POST", "/request", strings.Repeat("0", 64), `{"argv":["x"]}`, 401, "no token that holds"},
		{"POST", "/request", b.token.Digest, `{"argv":["x"]}`, 401, ""},
		{"POST", "/request", other.ID, `{"argv":["x"]}`, 401, ""},
		{"POST", "/request", b.secret + "0", `{"argv":["x"]}`, 401, ""},
		{"POST", "/request", b.secret, `{"argv":`, 400, "not the JSON object"},
		{"POST", "/request", b.secret, `{"argv":["x"],"agentId":"other"}`, 400, "agentId"},
		{"POST", "/request", b.secret, `{"argv":["x"]} {}`, 400, "behind"},
		{"POST", "/request", b.secret, `{}`, 400, "send a command"},
		{"POST", "/request", b.secret, `{"command":"a","argv":["x"]}`, 400, "two ways"},
		{"POST", "/request", b.secret, `{"command":"a; b"}`, 400, "no shell"},
		{"POST", "/request", b.secret, `{"command":"a\nb"}`, 400, "no shell"},
		{"POST", "/request", b.secret, `{"argv":["x"],"cwd":"/etc"}`, 400, "cwd must be /work"},
		{"POST", "/request", b.secret, `{"argv":["x"],"cwd":"/workshop"}`, 400, "cwd must be /work"},
		{"POST", "/request", b.secret, `{"argv":["x"],"cwd":"/work/../etc"}`, 400, "cwd must be /work"},
		{"POST", "/request", b.secret, `{"argv":["` + strings.Repeat("x", maxBody) + `"]}`, 413, "at most"},
		{"POST", "/request", b.secret, `{"argv":["busy"]}`, 429, "too many"},
		{"POST", "/request", b.secret, `{"argv":["denied"]}`, 200, "no\x1b"},
	} {
		status, a := b.send(c.method, c.path, c.token, c.body)
		if status != c.status || !strings.Contains(a.Reason, c.said) || a.ExitCode != nil {
			t.Errorf("%s %s %.60s: %d, %+v", c.method, c.path, c.body, status, a)
		}
	}
	if status, _ := b.send("POST", "/request", b.secret, `{"argv":["x"]}`, "Origin", "http://127.0.0.1"); status != 403 {
		t.Error("a page asks:", status)
	}
	b.broker.asked, b.broker.from = nil, nil
	status, a := b.send("POST", "/request", b.secret, `{"command":"docker  compose ps","cwd":"/work/sub"}`)
	out, complaints, err := a.Outputs()
	if status != 200 || a.Status != "auto_approved" || a.ExitCode == nil || *a.ExitCode != 0 || string(out) != "a\xff\x00" || string(complaints) != "e" || err != nil {
		t.Errorf("%d, %+v, %q", status, a, out)
	}
	if got := fmt.Sprintf("%q %s %+v", b.broker.asked[0].Argv, b.broker.asked[0].Cwd, b.broker.from[0]); got != `["docker" "compose" "ps"] /home/p/app/sub {ID:`+b.token.ID+` Agent:main Workspace:/home/p/app Project:app Branch:next}` {
		t.Error(got)
	}
}

// Whoever guesses is slowed down, and nobody else is.
func TestGuessesAreCounted(t *testing.T) {
	b := newBench(t)
	last := 0
	for range maxBad + 5 {
		last, _ = b.send("POST", "/request", strings.Repeat("f", 64), `{"argv":["x"]}`)
	}
	if last != 429 {
		t.Error(last)
	}
	if status, _ := b.send("POST", "/request", b.secret, `{"argv":["x"]}`); status != 200 {
		t.Error(status)
	}
}

// What waits, or runs, goes with its token; the next request has none.
func TestARevokedTokenEndsWhatItAskedFor(t *testing.T) {
	b := newBench(t)
	answered := make(chan int, 1)
	go func() {
		status, _ := b.send("POST", "/request", b.secret, `{"argv":["wait"]}`)
		answered <- status
	}()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		b.broker.Lock()
		n := len(b.broker.asked)
		b.broker.Unlock()
		if n > 0 {
			break
		}
	}
	if err := b.tokens.Revoke(b.token.ID); err != nil {
		t.Fatal(err)
	}
	if status := <-answered; status != 401 {
		t.Error(status)
	}
	if status, _ := b.send("POST", "/request", b.secret, `{"argv":["x"]}`); status != 401 {
		t.Error(status)
	}
	if err := b.tokens.Revoke(b.token.ID); err == nil {
		t.Error("revoked twice")
	}
}

// The secret is nowhere; the file is its owner's alone, and what is no such file lets nobody in.
func TestTheFileOfTokens(t *testing.T) {
	b := newBench(t)
	path := b.tokens.path
	text, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(text), b.secret) {
		t.Errorf("%s, %v", text, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	for name, break_ := range map[string]func(){
		"others read it": func() { os.Chmod(path, 0o644) },
		"a link":         func() { os.Rename(path, path+".real"); os.Symlink(path+".real", path) },
		"no JSON":        func() { os.WriteFile(path, []byte("{"), 0o600) },
		"too large":      func() { os.WriteFile(path, make([]byte, maxFile+1), 0o600) },
	} {
		os.Remove(path)
		os.WriteFile(path, text, 0o600)
		os.Chmod(path, 0o600)
		break_()
		if status, a := b.send("POST", "/request", b.secret, `{"argv":["x"]}`); status != 503 {
			t.Errorf("%s: %d, %+v", name, status, a)
		}
	}
	for _, t2 := range []Token{{Agent: "../x", Workspace: "/a", At: "/a"}, {Agent: "main", Workspace: "a", At: "/a"}, {Agent: "main", Workspace: "/a", At: "/a/../b"}, {Agent: "main", Workspace: "/a", At: "/a", Branch: strings.Repeat("x", 300)}} {
		if _, _, err := In(t.TempDir()).Create(t2); err == nil {
			t.Errorf("%+v", t2)
		}
	}
	many := In(filepath.Join(t.TempDir(), "state"))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, _, err := many.Create(Token{Agent: "main", Workspace: "/a", At: "/a"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if list, err := many.List(); err != nil || len(list) != 20 {
		t.Error(len(list), err)
	}
}

// A command with a network can connect where a container does.
func TestConnectionsWithoutATokenKeepNobodyOut(t *testing.T) {
	b := newBench(t)
	d := New(b.tokens, b.broker)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() { _ = d.Serve(l) })
	defer served.Wait()
	defer d.Close()
	for range 3 * maxConnections {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	b.server.URL = "http://" + l.Addr().String()
	began := time.Now()
	if status, a := b.send("POST", "/request", b.secret, `{"argv":["x"]}`); status != 200 {
		t.Errorf("%d, %+v", status, a)
	}
	if took := time.Since(began); took > headerTimeout/2 {
		t.Errorf("after %v", took)
	}
}

func TestAllAddressesAreOnlyMeantWhereTheyAreNamed(t *testing.T) {
	for _, address := range []string{":9998", "9998", "localhost:9998", "", "*:9998"} {
		if l, err := Listen(address); err == nil {
			l.Close()
			t.Errorf("%q is listened on", address)
		}
	}
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/audit"
	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/grants/broker"
	"github.com/clairun/clai-sandbox/grants/brokertest"
	"github.com/clairun/clai-sandbox/grants/client"
	"github.com/clairun/clai-sandbox/grants/store"
	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/wire"
	"github.com/clairun/clai-sandbox/wire/socket"
)

// bench is a broker behind its sockets.
type bench struct {
	*client.Client
	home, state, socket string
	broker              *broker.Broker
	server              *Server
}

func newBench(t testing.TB, o broker.Options, configure ...func(*Server)) *bench {
	t.Helper()
	// A short name: the address of a socket has little room.
	home, err := os.MkdirTemp("", "g")
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	b := &bench{home: home, state: home + "/.state", socket: home + "/.run/" + grants.SocketName}
	b.Client = &client.Client{Socket: b.socket}
	kept, _, err := store.Open(b.state)
	if err != nil {
		t.Fatal(err)
	}
	record, _ := audit.Open(filepath.Join(b.state, audit.Name), 0)
	b.server = New(filepath.Dir(b.socket), "test")
	for _, c := range configure {
		c(b.server)
	}
	o.Rules, o.Store, o.Audit, o.User = grants.NewRules(home, []string{b.state}, nil), kept, record, "tester"
	o.Listen = b.server.ListenForSession
	if b.broker, err = broker.New(o); err != nil {
		t.Fatal(err)
	}
	b.server.Attach(b.broker, nil)
	l, err := socket.Listen(b.socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- b.server.Serve(l) }()
	t.Cleanup(func() {
		b.broker.Close()
		b.server.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
		record.Close()
		kept.Close()
	})
	return b
}

func TestTheSameOverTheWire(t *testing.T) {
	brokertest.Run(t, func(t *testing.T, l brokertest.Limits) *brokertest.Bench {
		b := newBench(t, broker.Options{Timeout: l.Timeout, MaxPending: l.MaxPending, AskEvery: l.AskEvery})
		return &brokertest.Bench{Broker: b.Client, Home: b.home, State: b.state}
	})
}

func TestOnlyTheirOwnerReachesTheSockets(t *testing.T) {
	b := newBench(t, broker.Options{})
	s, err := b.Open(t.Context(), grants.SessionSpec{Agent: "main", Workspace: "/w"})
	if err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{filepath.Dir(b.socket): 0o700, b.socket: 0o600, s.Socket: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	s.Close()
	if _, err := os.Lstat(s.Socket); err == nil {
		t.Error("the socket of a session that ended is still there")
	}
}

// over sends one request through a socket with the standard library's client.
func over(t *testing.T, socket, method, target, body string) (int, string) {
	t.Helper()
	h := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	request, err := http.NewRequestWithContext(t.Context(), method, "http://broker"+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := h.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// The inside of a sandbox can ask, as who its socket says, and nothing else.
func TestTheInsideCanOnlyAsk(t *testing.T) {
	b := newBench(t, broker.Options{})
	one, err := b.Open(t.Context(), grants.SessionSpec{Agent: "one", Workspace: "/w"})
	if err != nil {
		t.Fatal(err)
	}
	two, err := b.Open(t.Context(), grants.SessionSpec{Agent: "two", Workspace: "/w"})
	if err != nil {
		t.Fatal(err)
	}
	inside := client.Client{Socket: one.Socket}
	go inside.Ask(t.Context(), "", grants.Asking{Path: "~/file", Access: profile.ReadOnly})
	var id string
	for id == "" {
		list, err := b.Pending(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 1 {
			id = list[0].ID
			if list[0].Agent != "one" || list[0].Session != one.ID {
				t.Errorf("%+v", list[0])
			}
		}
	}
	for _, claim := range []string{`"sessionId":"` + two.ID + `"`, `"agentId":"two"`, `"workspaceId":"/"`, `"SessionId":"` + two.ID + `"`} {
		status, text := over(t, one.Socket, "POST", "/v1/grants/requests", `{"requestedPath":"~/other","requestedAccess":"read_only",`+claim+`}`)
		if status != 400 {
			t.Errorf("%s: %d %s", claim, status, text)
		}
	}
	for _, claim := range []string{`"sessionId":"` + two.ID + `"`, `"agentId":"two"`, `"workspaceId":"/"`} {
		if status, text := over(t, one.Socket, "POST", "/v1/commands", `{"argv":["true"],`+claim+`}`); status != 400 {
			t.Errorf("%s: %d %s", claim, status, text)
		}
	}
	for _, claim := range []string{`"sessionId":"` + two.ID + `"`, `"agentId":"two"`, `"id":"x"`} {
		if status, text := over(t, one.Socket, "POST", "/v1/questions", `{"text":"which?",`+claim+`}`); status != 400 {
			t.Errorf("%s: %d %s", claim, status, text)
		}
	}
	for _, r := range b.server.routes() {
		if r.Method == "POST" && slices.Contains([]string{"/v1/grants/requests", "/v1/commands", "/v1/questions"}, r.Path) { // what the inside may
			continue
		}
		path := strings.ReplaceAll(r.Path, "{id}", id)
		if status, text := over(t, one.Socket, r.Method, path, `{"kind":"allowOnce","path":"~/file","access":"read_only"}`); status != 404 && status != 405 {
			t.Errorf("%s %s: %d %s", r.Method, path, status, text)
		}
	}
	if list, _ := b.Pending(t.Context()); len(list) != 1 {
		t.Errorf("%+v", list)
	}
}

func TestWhatIsNotWantedIsRefused(t *testing.T) {
	b := newBench(t, broker.Options{})
	for _, c := range []struct {
		method, target, body string
		status               int
	}{
		{"GET", "/", "", 404},
		{"PUT", "/v1/grants", "", 404},
		{"POST", "/v1/grants", "", 400},
		{"POST", "/v1/grants", "[]", 400},
		{"POST", "/v1/grants", `{"agentId":"main","path":"~/a","access":"read_only"}{}`, 400},
		{"POST", "/v1/grants", `{"agentId":"main","path":"~/a","access":"read_only","more":1}`, 400},
		{"POST", "/v1/grants", `{"agentId":"main","path":"~/a","access":"all"}`, 400},
		{"POST", "/v1/grants", `{"agentId":"main","path":"/proc","access":"read_only"}`, 403},
		{"POST", "/v1/grants", strings.Repeat(" ", wire.MaxBody) + `{"agentId":"main","path":"~/a","access":"read_only"}`, 400},
		{"POST", "/v1/grants/requests/none/decision", `{"kind":"deny"}`, 404},
		{"POST", "/v1/grants/requests/none/decision", `{"reason":"x"}`, 400},
		{"POST", "/v1/grants/requests/none/decision", `{"kind":"deny","unless":"x"}`, 400},
		{"DELETE", "/v1/grants/none", "", 404},
		{"GET", "/v1/grants/log?limit=0", "", 400},
		{"GET", "/v1/grants/log?limit=x", "", 400},
		{"GET", "/v1/events?after=x", "", 400},
		{"GET", "/v1/events?after=-1", "", 400},
		{"POST", "/v1/sessions", `{"agentId":"../x","workspaceId":"/w"}`, 400},
	} {
		status, text := over(t, b.socket, c.method, c.target, c.body)
		var body grants.ErrorBody
		if status != c.status && !(c.status == 404 && status == 405) {
			t.Errorf("%s %s %.80s: %d %s", c.method, c.target, c.body, status, text)
		} else if err := json.Unmarshal([]byte(text), &body); err != nil || body.Error.Code == "" || body.Error.Message == "" {
			t.Errorf("%s %s: %s", c.method, c.target, text)
		}
	}
}

// A reader of the stream that comes again says where it was, as browsers do.
func TestAStreamGoesOnWhereItsReaderWas(t *testing.T) {
	b := newBench(t, broker.Options{})
	for range 3 {
		b.broker.Notify(grants.Notice{Text: "x"})
	}
	_, all := over(t, b.socket, "GET", "/v1/events?after=0&ends=true", "")
	ids := regexp.MustCompile(`(?m)^id: (\d+)$`).FindAllStringSubmatch(all, -1)
	if len(ids) != 3 {
		t.Fatal(all)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://broker/v1/events?ends=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Last-Event-ID", ids[1][1])
	answer, err := (&http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", b.socket)
	}}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	rest, err := io.ReadAll(answer.Body)
	if err != nil || strings.Count(string(rest), "event: notice\n") != 1 || !strings.Contains(string(rest), "\nid: "+ids[2][1]+"\n") {
		t.Errorf("%s, %v", rest, err)
	}
}

// An agent's words come out as words.
func TestNothingThatATerminalObeysComesThroughTheSocket(t *testing.T) {
	b := newBench(t, broker.Options{})
	s, err := b.Open(t.Context(), grants.SessionSpec{Agent: "main", Workspace: "/w", Command: "x\u202e\x1b[2J"})
	if err != nil {
		t.Fatal(err)
	}
	go b.Ask(t.Context(), s.ID, grants.Asking{Path: "~/a\u202eb\x1b", Access: profile.ReadOnly, Reason: "\u2028\u2066\x7f\U000e0001\n"})
	for {
		if list, _ := b.Pending(t.Context()); len(list) == 1 {
			break
		}
	}
	_, text := over(t, b.socket, "GET", "/v1/grants/requests", "")
	for _, c := range strings.TrimSuffix(text, "\n") {
		if c < 0x20 || c == 0x7f || c == 0x202e || c == 0x2028 || c == 0x2066 || c == 0xe0001 {
			t.Errorf("%U in %q", c, text)
		}
	}
}

// hurried shortens the deadlines for sending.
func hurried(s *Server) {
	s.people.HTTP.ReadHeaderTimeout, s.people.HTTP.ReadTimeout = 50*time.Millisecond, 100*time.Millisecond
}

// A peer that sends slowly, or nothing, does not keep a connection.
func TestAPeerThatSendsNothingIsCutOff(t *testing.T) {
	if s := New("", ""); s.people.HTTP.ReadHeaderTimeout == 0 || s.people.HTTP.ReadTimeout == 0 || s.askers.HTTP.ReadHeaderTimeout == 0 || s.askers.HTTP.ReadTimeout == 0 {
		t.Error("there is no deadline")
	}
	b := newBench(t, broker.Options{}, hurried)
	for _, begin := range []string{"", "POST /v1/grants HTTP/1.1\r\nHost: x\r\n", "POST /v1/grants HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"} {
		conn, err := net.Dial("unix", b.socket)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		io.WriteString(conn, begin)
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Errorf("%q: %v", begin, err)
		}
		conn.Close()
	}
}

// Who waits for a person is not cut off by the deadlines for sending.
func TestAQuestionOutlastsTheDeadlines(t *testing.T) {
	b := newBench(t, broker.Options{}, hurried)
	s, err := b.Open(t.Context(), grants.SessionSpec{Agent: "main", Workspace: "/w"})
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan grants.Answer, 1)
	go func() {
		answer, err := b.Ask(t.Context(), s.ID, grants.Asking{Path: "~/file", Access: profile.ReadOnly})
		if err != nil {
			t.Error(err)
		}
		answered <- answer
	}()
	<-time.After(300 * time.Millisecond) // longer than each deadline
	list, err := b.Pending(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	if _, err := b.Decide(t.Context(), list[0].ID, grants.Decision{Kind: grants.AllowOnce, Path: "~/file", Access: profile.ReadOnly}); err != nil {
		t.Fatal(err)
	}
	if answer := <-answered; !answer.Granted {
		t.Errorf("%+v", answer)
	}
}

func TestASessionHasOnlySoManyConnections(t *testing.T) {
	b := newBench(t, broker.Options{})
	s, err := b.Open(t.Context(), grants.SessionSpec{Agent: "main", Workspace: "/w"})
	if err != nil {
		t.Fatal(err)
	}
	for range maxAskers {
		conn, err := net.Dial("unix", s.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	inside := client.Client{Socket: s.Socket}
	if answer, err := inside.Ask(ctx, "", grants.Asking{Path: "/proc/1", Access: profile.ReadOnly}); err == nil {
		t.Errorf("one more was let in: %+v", answer)
	}
	// The people's socket has its own room.
	if _, err := b.Pending(t.Context()); err != nil {
		t.Error(err)
	}
}

// In a sandbox, slow and silent clients take up their own session's connections, until their time
// is over, and nobody else's.
func TestSlowClientsOfASandboxKeepOnlyThemselvesWaiting(t *testing.T) {
	b := newBench(t, broker.Options{}, func(s *Server) {
		s.askers.HTTP.ReadHeaderTimeout, s.askers.HTTP.ReadTimeout = 2*time.Second, 2*time.Second
	})
	ask := func(socket string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		inside := client.Client{Socket: socket}
		_, err := inside.Ask(ctx, "", grants.Asking{Path: "/proc/1", Access: profile.ReadOnly})
		return err
	}
	slow, err := b.Open(t.Context(), grants.SessionSpec{Agent: "slow", Workspace: "/w"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := b.Open(t.Context(), grants.SessionSpec{Agent: "other", Workspace: "/w"})
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for i := range maxAskers {
		conn, err := net.Dial("unix", slow.Socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		said := []string{"", "POST /v1/grants/requests HTTP/1.1\r\nHost: x\r\n", "POST /v1/grants/requests HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"}[i%3]
		go func() {
			for said != "" { // some say nothing, the others a byte at a time
				if _, err := io.WriteString(conn, said); err != nil {
					return
				}
				said = "x"
				time.Sleep(100 * time.Millisecond)
			}
		}()
	}
	if err := ask(other.Socket); err != nil || time.Since(begun) > 2*time.Second {
		t.Errorf("another session waited %v: %v", time.Since(begun), err)
	}
	if err := ask(slow.Socket); err != nil {
		t.Errorf("nobody of the session is heard any more: %v", err)
	}
	if took := time.Since(begun); took < time.Second {
		t.Errorf("so many were let in at once: %v", took)
	}
}

func TestALongPathToTheSocketWorks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
	path := filepath.Join(dir, grants.SocketName)
	l, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s := New(dir, "test")
	s.Attach(nil, nil)
	go s.Serve(l)
	defer s.Close()
	if status, err := (&client.Client{Socket: path}).Status(t.Context()); err != nil || status.PID != os.Getpid() {
		t.Errorf("%+v, %v", status, err)
	}
}

// Where the modes of files do not keep another user out, the kernel's word about the peer does.
func TestAnotherUserIsNotLetIn(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be another user for a moment")
	}
	b := newBench(t, broker.Options{})
	dial := func(uid int) (answer string, err error) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // and never unlocked: the thread ends with what it was made into
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
				err = errno
				return
			}
			var fd int
			if fd, err = syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0); err != nil {
				return
			}
			defer syscall.Close(fd)
			if err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: b.socket}); err != nil {
				return
			}
			syscall.Write(fd, []byte("GET /v1/status HTTP/1.0\r\n\r\n"))
			buffer := make([]byte, 4096)
			n, _ := syscall.Read(fd, buffer)
			answer = string(buffer[:max(n, 0)])
		}()
		<-done
		return answer, err
	}
	for _, path := range []string{b.socket, filepath.Dir(b.socket), b.home} { // the test's own
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if answer, err := dial(0); err != nil || !strings.Contains(answer, "200 OK") {
		t.Errorf("%q, %v", answer, err)
	}
	answer, err := dial(12345)
	if errors.Is(err, syscall.EACCES) {
		t.Skipf("%s keeps other users out already", os.TempDir())
	}
	if err != nil || answer != "" {
		t.Errorf("another user is answered: %q, %v", answer, err)
	}
}

// FuzzSocket sends anything at all. The broker answers or hangs up, and lives.
func FuzzSocket(f *testing.F) {
	f.Add([]byte("GET /v1/grants HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Add([]byte("POST /v1/grants/requests HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}"))
	f.Add([]byte("POST /v1/grants/requests/x/decision HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{\"kind\":\"deny\"}"))
	f.Add([]byte("DELETE /v1/grants/%00%ff HTTP/1.1\r\nHost: \r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n"))
	f.Add([]byte("\x00\xff"))
	b := newBench(f, broker.Options{Timeout: 50 * time.Millisecond})
	s, err := b.Open(f.Context(), grants.SessionSpec{Agent: "main", Workspace: "/w"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, socket := range []string{b.socket, s.Socket} {
			conn, err := net.Dial("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(10 * time.Second))
			conn.Write(text)
			conn.(*net.UnixConn).CloseWrite()
			io.Copy(io.Discard, io.LimitReader(conn, 1<<20))
			conn.Close()
		}
		if all, err := b.Grants(t.Context()); err != nil || len(all) > 0 && !bytes.Contains(text, []byte("path")) {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

func BenchmarkAskToAnswerOverTheWire(b *testing.B) {
	br := newBench(b, broker.Options{MaxPending: 1 << 20, AskEvery: 1})
	s, err := br.Open(b.Context(), grants.SessionSpec{Agent: "main", Workspace: "/w"})
	if err != nil {
		b.Fatal(err)
	}
	events, err := br.Events(b.Context(), grants.EventsFrom{})
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	var took []time.Duration
	for b.Loop() {
		n++
		begin := time.Now()
		path := fmt.Sprint("~/file", n)
		answered := make(chan error)
		go func() {
			_, err := br.Ask(b.Context(), s.ID, grants.Asking{Path: path, Access: profile.ReadOnly})
			answered <- err
		}()
		var id string
		for id == "" {
			if e := <-events; e.Kind == grants.EventRequestPending {
				id = e.Request.ID
			}
		}
		if _, err := br.Decide(b.Context(), id, grants.Decision{Kind: grants.AllowOnce, Path: path, Access: profile.ReadOnly}); err != nil {
			b.Fatal(err)
		}
		if err := <-answered; err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
		for len(s.Events) > 0 {
			<-s.Events
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clairun/clai-sandbox/grants"
	"github.com/clairun/clai-sandbox/profile"
)

func TestTheCommandLineOfAQuestion(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"/a":                                    "/a read_only ",
		"/a --access read_write --reason tests": "/a read_write tests",
		"--access=rw --reason=a=b /a":           "/a read_write a=b",
		"~/a --access ro":                       "~/a read_only ",
		"./a":                                   filepath.Join(dir, "a") + " read_only ",
		"../a":                                  filepath.Join(filepath.Dir(dir), "a") + " read_only ",
		"":                                      "",
		"/a /b":                                 "",
		"/a --access":                           "",
		"/a --access all":                       "",
		"/a --acces ro":                         "",
		"-x /a":                                 "",
	} {
		a, _, err := parseAsk(strings.Fields(line))
		got := a.Path + " " + a.Access.String() + " " + a.Reason
		if err != nil {
			got = ""
		}
		if got != want {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
	}
}

func TestWithoutABrokerTheAgentIsToldSo(t *testing.T) {
	t.Setenv(SocketVariable, filepath.Join(t.TempDir(), "none.sock"))
	var out, complaints strings.Builder
	if status := askProgram(context.Background(), []string{"/a"}, &out, &complaints); status != AskUnavailable || !strings.Contains(complaints.String(), "without a broker") {
		t.Errorf("%d: %s", status, complaints.String())
	}
	if status := askProgram(context.Background(), nil, &out, &complaints); status != AskMisused {
		t.Errorf("%d", status)
	}
	out.Reset()
	if status := askProgram(context.Background(), []string{"--help"}, &out, &complaints); status != AskGranted || !strings.Contains(out.String(), "usage:") {
		t.Errorf("%d: %s", status, out.String())
	}
}

func TestTheCommandLineOfAQuestionInWords(t *testing.T) {
	for line, want := range map[string]string{
		"which?":                             "which?",
		"which? --choice a --choice=b=c":     "which? a b=c",
		"--json which?":                      "which?",
		"":                                   "",
		"which? one":                         "",
		"which? --choice":                    "",
		"which? --choice a --choice a":       "",
		"which? --choise a":                  "",
		"which?" + strings.Repeat("?", 2000): "",
	} {
		q, _, err := parseAskPerson(strings.Fields(line))
		got := strings.Join(append([]string{q.Text}, q.Choices...), " ")
		if err != nil {
			got = ""
		}
		if got != want {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
	}
}

// shortDir is a directory whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "ask")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func FuzzParseAsk(f *testing.F) {
	f.Add("/a\n--access\nrw")
	f.Add("--reason=\n--")
	f.Fuzz(func(t *testing.T, line string) {
		a, _, err := parseAsk(strings.Split(line, "\n"))
		if err == nil && (a.Path == "" || a.Access != profile.ReadOnly && a.Access != profile.ReadWrite) {
			t.Errorf("%q: %+v", line, a)
		}
	})
}

// A broker that was killed while it was asked is no broker that was never there.
func TestWhoAsksIsToldThatTheBrokerEnded(t *testing.T) {
	dir, err := os.MkdirTemp("", "ask")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", dir+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	for socket, want := range map[string]string{dir + "/socket": "nobody has decided; ask again", dir + "/none": "may have been started without a broker"} {
		t.Setenv(SocketVariable, socket)
		var out, complaints strings.Builder
		if status := askProgram(t.Context(), []string{"/a"}, &out, &complaints); status != AskUnavailable || !strings.Contains(complaints.String(), want) || out.Len() > 0 {
			t.Errorf("%s: %d, %q", socket, status, complaints.String())
		}
	}
}

// A gateway of another version does not know each address of this one.
func TestWhoAsksAnOlderGatewayIsToldSo(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(shortDir(t), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"error":{"code":"not_found","message":"there is no POST at this address"}}`)
	}))
	t.Setenv(SocketVariable, l.Addr().String())
	var out, complaints strings.Builder
	if status := askPersonProgram(t.Context(), []string{"which?"}, &out, &complaints); status != AskUnavailable ||
		!strings.Contains(complaints.String(), "of another version") || !strings.Contains(complaints.String(), "end its process") || out.Len() > 0 {
		t.Errorf("%d, %q", status, complaints.String())
	}
}

// The next broker is asked under the same name: it knows what became of the question.
func TestWhoAsksInsideAsksTheNextBrokerUnderTheSameName(t *testing.T) {
	dir, err := os.MkdirTemp("", "again")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", dir+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	names := make(chan string, 2)
	go func() {
		for _, answer := range []string{"", "HTTP/1.0 200 OK\r\n\r\n{\"outcome\":\"denied\",\"reason\":\"the gateway restarted\"}"} {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			r, err := http.ReadRequest(bufio.NewReader(conn))
			if err != nil {
				t.Error(err)
			} else {
				io.Copy(io.Discard, r.Body)
				names <- r.Header.Get(grants.RequestIDHeader)
			}
			io.WriteString(conn, answer)
			conn.Close()
		}
	}()
	t.Setenv(SocketVariable, dir+"/socket")
	var out, complaints strings.Builder
	if status := askProgram(t.Context(), []string{"/a"}, &out, &complaints); status != AskDenied || !strings.Contains(out.String(), "denied: the gateway restarted") {
		t.Errorf("%d, %q, %q", status, out.String(), complaints.String())
	}
	if first, second := <-names, <-names; first == "" || first != second {
		t.Errorf("%q, then %q", first, second)
	}
}

// A broker that is stopped, as by Ctrl-Z, takes connections and says nothing. Only who waits for a
// person waits.
func TestABrokerThatSaysNothingHoldsNobody(t *testing.T) {
	dir, err := os.MkdirTemp("", "silent")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", dir+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := &Client{Socket: dir + "/socket", timeout: 30 * time.Millisecond, Start: func(context.Context) error { return nil }}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for name, call := range map[string]func() error{
		"list": func() error { _, err := c.Grants(ctx); return err },
		"add": func() error {
			_, err := c.Add(ctx, grants.NewGrant{Agent: "main", Path: "/a", Access: profile.ReadOnly})
			return err
		},
		"revoke": func() error { _, err := c.Revoke(ctx, "g"); return err },
		"decide": func() error { _, err := c.Decide(ctx, "r", grants.Decision{Kind: grants.Deny}); return err },
		"begin":  func() error { _, err := c.Open(ctx, grants.SessionSpec{Agent: "main"}); return err },
		"hear":   func() error { _, err := c.Events(ctx, grants.EventsFrom{}); return err },
	} {
		err := call()
		var unavailable *grants.UnavailableError
		if !errors.As(err, &unavailable) || !strings.Contains(unavailable.Why, "does not answer") {
			t.Errorf("%s: %v", name, err)
		}
	}
	asking, end := context.WithTimeout(ctx, 3*c.timeout)
	defer end()
	if _, err := c.Ask(asking, "s", grants.Asking{Path: "/a", Access: profile.ReadOnly}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("who asks a person: %v", err)
	}
}

// Who waits for a person is told so, and how a person answers.
func TestWhoWaitsIsToldForWhom(t *testing.T) {
	dir, err := os.MkdirTemp("", "ask")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", dir+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			time.Sleep(2 * askedSoon)
			conn.Close()
		}
		l.Close()
	}()
	t.Setenv(SocketVariable, dir+"/socket")
	var out, complaints strings.Builder
	askProgram(t.Context(), []string{"/a"}, &out, &complaints)
	if want := "fs_request_grant: waiting for a person, who answers outside, with: clai-sandbox grants review\n"; !strings.HasPrefix(complaints.String(), want) {
		t.Errorf("%q", complaints.String())
	}
}

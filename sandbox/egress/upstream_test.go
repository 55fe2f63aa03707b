package egress

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

// An upstream is a proxy as a company has one. It leads every name to this machine, and wants a
// password.
type upstream struct {
	mu     sync.Mutex
	asked  []string // the first lines of what it was asked
	answer string   // to what it does not do; empty: it does all
}

func newUpstream(t *testing.T) (*upstream, profile.UpstreamProxy) {
	t.Helper()
	u := &upstream{}
	port := server(t, u.serve)
	return u, profile.UpstreamProxy{Host: "127.0.0.1", Port: port, Authorization: "Basic " + base64.StdEncoding.EncodeToString([]byte("me:secrets"))}
}

func (u *upstream) serve(conn net.Conn) {
	in := bufio.NewReader(conn)
	r, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	u.mu.Lock()
	u.asked = append(u.asked, r.Method+" "+r.RequestURI)
	answer := u.answer
	u.mu.Unlock()
	name, password, _ := (&http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}).BasicAuth()
	switch {
	case answer != "":
		io.WriteString(conn, answer)
		return
	case name != "me" || password != "secrets":
		io.WriteString(conn, "HTTP/1.1 407 Who are you\r\nProxy-Authenticate: Basic realm=\"company\"\r\n\r\n")
		return
	}
	_, port, _ := net.SplitHostPort(r.Host)
	to, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		io.WriteString(conn, "HTTP/1.1 502 Nobody\r\n\r\n")
		return
	}
	defer to.Close()
	if r.Method != http.MethodConnect {
		r.Header.Del("Proxy-Authorization")
		r.Write(to)
		io.Copy(conn, to)
		return
	}
	io.WriteString(conn, "HTTP/1.1 200 OK\r\nVia: company\r\n\r\nfirst ") // with what the server says at once
	go func() { io.Copy(to, in); to.(*net.TCPConn).CloseWrite() }()
	io.Copy(conn, to)
}

func TestAnUpstreamProxyIsAskedForWhatTheRulesAllowAndNothingElse(t *testing.T) {
	port := server(t, echo)
	u, via := newUpstream(t)
	w := newWorld(t, fmt.Sprintf("allowed.example direct.example localhost 10.0.0.1 127.0.0.1:%d", port), "denied.example")
	w.names["direct.example"] = "127.0.0.1"
	direct, err := profile.ParseDomainRule("direct.example")
	if err != nil {
		t.Fatal(err)
	}
	w.proxy.Upstream = profile.Upstream{Plain: &via, Tunnel: &via, Direct: []profile.DomainRule{direct}}
	connect := func(host string) string {
		return w.says(fmt.Sprintf("CONNECT %s:%d HTTP/1.1\r\nHost: x\r\n\r\nhello", host, port))
	}
	for _, c := range []struct {
		host, want string
		asked      bool
	}{
		{"allowed.example", "HTTP/1.1 200 Connection established\r\n\r\nfirst hello", true},
		{"10.0.0.1", "HTTP/1.1 200 Connection established\r\n\r\nfirst hello", true},
		{"direct.example", "HTTP/1.1 200 Connection established\r\n\r\nhello", false},
		{"localhost", "HTTP/1.1 200 Connection established\r\n\r\nhello", false},
		{"127.0.0.1", "HTTP/1.1 200 Connection established\r\n\r\nhello", false},
		{"denied.example", "HTTP/1.1 403 ", false},
		{"other.example", "HTTP/1.1 403 ", false},
		{"10.0.0.2", "HTTP/1.1 403 ", false},
		{"169.254.169.254", "HTTP/1.1 403 ", false},
	} {
		u.asked = nil
		if got := connect(c.host); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q", c.host, got)
		}
		want := ""
		if c.asked {
			want = fmt.Sprintf("CONNECT %s:%d", c.host, port)
		}
		if got := strings.Join(u.asked, ","); got != want {
			t.Errorf("%s: the proxy was asked %q, want %q", c.host, got, want)
		}
	}
	if n := w.resolved.Load(); n != 1 {
		t.Errorf("%d names were resolved here, and one was to be", n)
	}
	// By http:// it is asked for the whole URL, because many proxies open tunnels for TLS alone.
	// What the client says of itself is not passed on.
	u.asked = nil
	w.proxy.Upstream.Plain = &via
	web := server(t, func(conn net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(conn))
		if err == nil {
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n%s %d", r.URL.Path, len(r.Header["Proxy-Authorization"]))
		}
	})
	got := w.says(fmt.Sprintf("GET http://allowed.example:%[1]d/a?b HTTP/1.1\r\nHost: allowed.example:%[1]d\r\nProxy-Authorization: Basic bm86bm8=\r\n\r\n", web))
	if !strings.HasSuffix(got, "\r\n\r\n/a 0") || strings.Join(u.asked, ",") != fmt.Sprintf("GET http://allowed.example:%d/a?b", web) {
		t.Errorf("%q, asked %q", got, u.asked)
	}
}

func TestWhatAnUpstreamProxyRefusesIsToldWithoutItsWordsAndSecrets(t *testing.T) {
	u, via := newUpstream(t)
	w := newWorld(t, "allowed.example", "")
	w.proxy.Upstream = profile.Upstream{Plain: &via, Tunnel: &via}
	where := fmt.Sprintf("the upstream proxy http://127.0.0.1:%d: ", via.Port)
	for answer, want := range map[string]string{
		"HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=x\r\n\r\n": where + "it wants other credentials (407)",
		"HTTP/1.1 403 \x1b[2Jno\r\n\r\n":                                where + "it gave no answer that is HTTP/1",
		"HTTP/1.1 403 Forbidden by the company\r\n\r\n":                 where + "it answers 403",
		"HTTP/1.1 200\r\n": where + "it gave no answer that is HTTP/1",
		"SSH-2.0-x\r\n":    where + "it gave no answer that is HTTP/1",
		strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 9):      where + "it gave no answer that counts",
		"HTTP/1.1 200 OK\r\n" + strings.Repeat("a: b\r\n", 300): where + "it gave no answer that is HTTP/1",
	} {
		u.answer = answer
		got := w.says("CONNECT allowed.example:443 HTTP/1.1\r\nHost: x\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 502 ") || !strings.Contains(got, want) || strings.Contains(got, "bWU6") || strings.Contains(got, "company") {
			t.Errorf("%q: %q", answer, got)
		}
	}
	u.answer = "HTTP/1.1 407 Who\r\nProxy-Authenticate: Basic realm=x\r\n\r\n"
	if got := w.says("GET http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 502 ") || strings.Contains(got, "realm") {
		t.Errorf("%q", got)
	}
	// Where nobody named one, and programs outside would ask one, that is said.
	w.proxy.Upstream = profile.Upstream{Unused: true}
	if got := w.says("CONNECT allowed.example:443 HTTP/1.1\r\nHost: x\r\n\r\n"); !strings.Contains(got, "your environment names a proxy: --upstream-proxy environment") {
		t.Errorf("%q", got)
	}
}

// A proxy may repeat what it was told of who asks: in a page of its own, for a method that asks for
// that, or because it passes it on to a server that does.
func TestWhatAnUpstreamProxyIsToldIsHeardByNobody(t *testing.T) {
	u, via := newUpstream(t)
	w := newWorld(t, "allowed.example", "")
	w.proxy.Upstream = profile.Upstream{Plain: &via, Tunnel: &via}
	secret := strings.TrimPrefix(via.Authorization, "Basic ")
	ask := func(method, field string) string {
		return w.says(method + " http://allowed.example/ HTTP/1.1\r\nHost: allowed.example\r\n" + field + "\r\n")
	}
	for name, c := range map[string]struct{ method, answer, want string }{
		"a page of its own":         {"GET", "HTTP/1.1 503 Down\r\n\r\nme:secrets", "HTTP/1.1 503 (clai-sandbox)\r\n"},
		"its reason":                {"GET", "HTTP/1.1 404 me:secret\r\n\r\n", "answers 404"},
		"a field of its page":       {"HEAD", "HTTP/1.1 400 Bad\r\nX: me:secret\r\n\r\n", "HTTP/1.1 400 (clai-sandbox)\r\n"},
		"a page that is found":      {"GET", "HTTP/1.1 200 OK\r\n\r\nyou said Basic " + secret + "!", "HTTP/1.1 200 OK\r\n"},
		"a field of what is found":  {"GET", "HTTP/1.1 302 Found\r\nLocation: /?" + secret + "\r\n\r\n", ""},
		"in a URL":                  {"GET", "HTTP/1.1 302 Found\r\nLocation: /?" + strings.ReplaceAll(url.QueryEscape(secret), "%3D", "%3d") + "\r\n\r\n", ""},
		"before the answer":         {"GET", "HTTP/1.1 103 Hints\r\nLink: " + secret + "\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", ""},
		"what begins and is not it": {"GET", "HTTP/1.1 200 OK\r\n\r\n" + secret[:len(secret)-4], secret[:len(secret)-4]},
		"a number":                  {"HEAD", "HTTP/1.1 404 Gone\r\n\r\n", "HTTP/1.1 404 (clai-sandbox)\r\n"},
	} {
		u.answer = c.answer
		got := ask(c.method, "")
		if !strings.Contains(got, c.want) || strings.Contains(got, strings.TrimRight(secret, "=")) || strings.Contains(got, "me:secrets") || strings.Contains(got, "Basic") && c.want == "" {
			t.Errorf("%s: %q", name, got)
		}
		if c.method == "HEAD" && !strings.HasSuffix(got, "\r\n\r\n") {
			t.Errorf("%s: a body: %q", name, got)
		}
	}
	if list, _ := w.proxy.Refusals(); len(list) != 1 || !strings.Contains(list[0].Error(), "the answer held the password of the upstream proxy") {
		t.Errorf("told: %v", list)
	}
	u.answer, u.asked = "", nil
	if got := ask("TRACE", ""); !strings.HasPrefix(got, "HTTP/1.1 400 ") || len(u.asked) != 0 {
		t.Errorf("%q, asked %q", got, u.asked)
	}
	var echoed request
	echoed.via, echoed.head = &via, head{fields: []field{{"Max-Forwards", "0"}, {"Accept", "a"}}}
	if text := string(echoed.written()); strings.Contains(text, "Max-Forwards") || !strings.Contains(text, "Accept: a") {
		t.Errorf("%q", text)
	}
}

func TestASecretIsFoundHoweverItIsCut(t *testing.T) {
	const secret, text = "abcabcabd", "xxabcabcabcabdyy"
	for size := 1; size <= len(text); size++ {
		var out strings.Builder
		d := &discreet{Writer: &out, secret: []byte(secret)}
		var err error
		for at := 0; at < len(text) && err == nil; at += size {
			_, err = d.Write([]byte(text[at:min(at+size, len(text))]))
		}
		if err != errSecret || strings.Contains(out.String(), secret) {
			t.Errorf("%d at a time: %q, %v", size, out.String(), err)
		}
		out.Reset()
		d = &discreet{Writer: &out, secret: []byte(secret)}
		most := text[:len(text)-3]
		for at := 0; at < len(most); at += size {
			if _, err := d.Write([]byte(most[at:min(at+size, len(most))])); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.end(); err != nil || out.String() != most {
			t.Errorf("%d at a time, without: %q, %v", size, out.String(), err)
		}
	}
}

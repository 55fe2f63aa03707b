package egress

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// origin is a server of plain HTTP that only records, and answers "origin". It returns what it was
// sent.
func origin(t *testing.T) (port uint16, received func() string) {
	t.Helper()
	said := make(chan string, 16)
	port = server(t, func(conn net.Conn) {
		conn.SetDeadline(time.Now().Add(300 * time.Millisecond)) // what comes late is what must not come
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nKeep-Alive: timeout=5\r\n\r\norigin")
		text, _ := io.ReadAll(conn)
		said <- string(text)
	})
	return port, func() string {
		select {
		case text := <-said:
			return text
		case <-time.After(10 * time.Second):
			return "nothing came"
		}
	}
}

func TestAPlainRequestIsWrittenAnew(t *testing.T) {
	port, received := origin(t)
	w := newWorld(t, "a.example 127.0.0.1", "")
	w.names["a.example"] = "127.0.0.1"
	answer := w.says(fmt.Sprintf("POST http://A.example.:%d/p%%20q?x=1 HTTP/1.1\r\nHost: a.EXAMPLE:%d\r\nUser-Agent: test\r\n"+
		"Proxy-Connection: keep-alive\r\nConnection: keep-alive, X-Private\r\nX-Private: 1\r\nProxy-Authorization: Basic c2VjcmV0\r\n"+
		"TE: trailers\r\nUpgrade: websocket\r\nContent-Length: 4\r\n\r\nbody", port, port))
	want := fmt.Sprintf("POST /p%%20q?x=1 HTTP/1.1\r\nHost: a.example:%d\r\nUser-Agent: test\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody", port)
	if got := received(); got != want {
		t.Errorf("the server got %q, want %q", got, want)
	}
	if want := "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\norigin"; answer != want {
		t.Errorf("the client got %q, want %q", answer, want)
	}
}

// The second request has another Host: a server that keeps the connection would serve it to whoever
// asked for the first.
func TestNoSecondRequestHidesBehindTheFirst(t *testing.T) {
	for name, first := range map[string]string{
		"without a body":    "GET http://127.0.0.1:%[1]d/ HTTP/1.1\r\nHost: 127.0.0.1:%[1]d\r\n\r\n",
		"with a length":     "POST http://127.0.0.1:%[1]d/ HTTP/1.1\r\nHost: 127.0.0.1:%[1]d\r\nContent-Length: 2\r\n\r\nab",
		"chunked":           "POST http://127.0.0.1:%[1]d/ HTTP/1.1\r\nHost: 127.0.0.1:%[1]d\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n0\r\nTrailer: x\r\n\r\n",
		"chunked, no chunk": "POST http://127.0.0.1:%[1]d/ HTTP/1.1\r\nHost: 127.0.0.1:%[1]d\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n",
	} {
		port, received := origin(t)
		w := newWorld(t, "127.0.0.1", "")
		w.says(fmt.Sprintf(first, port) + "GET /hidden HTTP/1.1\r\nHost: hidden.example\r\n\r\n")
		got := received()
		if strings.Contains(got, "hidden") || strings.Contains(got, "railer") || !strings.HasSuffix(got, "Connection: close\r\n\r\n") &&
			!strings.HasSuffix(got, "\r\n\r\nab") && !strings.HasSuffix(got, "0\r\n\r\n") {
			t.Errorf("%s: the server got %q", name, got)
		}
	}
}

// Nothing of these reaches a server.
func TestRequestsThatTwoReadersUnderstandInTwoWaysAreRefused(t *testing.T) {
	connected := make(chan bool, 64)
	port := server(t, func(net.Conn) { connected <- true })
	w := newWorld(t, "127.0.0.1 a.example", "")
	w.names["a.example"] = "127.0.0.1"
	url, host := fmt.Sprintf("http://a.example:%d/", port), fmt.Sprintf("Host: a.example:%d\r\n", port)
	for text, status := range map[string]string{
		"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n":                                                                 "400",
		"GET " + url + " HTTP/1.1\r\n\r\n":                                                                          "400",
		"GET " + url + " HTTP/1.1\r\nHost: b.example\r\n\r\n":                                                       "400",
		"GET " + url + " HTTP/1.1\r\nHost: a.example\r\n\r\n":                                                       "400", // another port
		"GET " + url + " HTTP/1.1\r\n" + host + "Host: b.example\r\n\r\n":                                           "400",
		"GET " + url + " HTTP/1.1\r\n" + host + host + "\r\n":                                                       "400",
		"GET " + url + " HTTP/1.1\r\nHost:\r\n\r\n":                                                                 "400",
		"GET " + url + " HTTP/1.1\r\n" + host + "X : y\r\n\r\n":                                                     "400",
		"GET " + url + " HTTP/1.1\r\n" + host + "X: y\r\n z\r\n\r\n":                                                "400",
		"GET " + url + " HTTP/1.1\r\n" + host + ": y\r\n\r\n":                                                       "400",
		"GET " + url + " HTTP/1.1\r\n" + host + "X: a\rb\r\n\r\n":                                                   "400",
		"GET " + url + " HTTP/1.1\r\n" + host + "X: a\x00b\r\n\r\n":                                                 "400",
		"GET " + url + " HTTP/1.1\r\n" + host + "nonsense\r\n\r\n":                                                  "400",
		"GET  " + url + " HTTP/1.1\r\n" + host + "\r\n":                                                             "400",
		"GET " + url + " HTTP/2.0\r\n" + host + "\r\n":                                                              "400",
		"GET " + url + "\r\n\r\n":                                                                                   "400",
		"G(T " + url + " HTTP/1.1\r\n" + host + "\r\n":                                                              "400",
		"GET https" + url[4:] + " HTTP/1.1\r\n" + host + "\r\n":                                                     "400",
		"GET ftp" + url[4:] + " HTTP/1.1\r\n" + host + "\r\n":                                                       "400",
		"GET http://b.example@a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n":                                       "403",
		"GET http://a.example\\@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n":                                     "400",
		"GET http://a.example#@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n":                                      "400",
		"GET http:///x HTTP/1.1\r\nHost: a.example\r\n\r\n":                                                         "403",
		"GET http://a.example:80:80/ HTTP/1.1\r\nHost: a.example\r\n\r\n":                                           "403",
		"GET http://0x7f.1/ HTTP/1.1\r\nHost: 0x7f.1\r\n\r\n":                                                       "403",
		"GET http://b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n":                                                 "403",
		"CONNECT a.example HTTP/1.1\r\n\r\n":                                                                        "403", // no port
		"CONNECT http://a.example/ HTTP/1.1\r\n\r\n":                                                                "403",
		"CONNECT *.example:443 HTTP/1.1\r\n\r\n":                                                                    "403",
		"CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n":                                                 "403", // the target decides
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                                                          "400",
		"\x16\x03\x01\x00\x05hello\r\n\r\n":                                                                         "400",
		"POST " + url + " HTTP/1.1\r\n" + host + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": "400",
		"POST " + url + " HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n": "400",
		"POST " + url + " HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n":                         "400",
		"POST " + url + " HTTP/1.1\r\n" + host + "Transfer-Encoding: identity\r\n\r\n":                              "400",
		"POST " + url + " HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n":                      "400",
		"POST " + url + " HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na":                  "400",
		"POST " + url + " HTTP/1.1\r\n" + host + "Content-Length: +1\r\n\r\na":                                      "400",
		"POST " + url + " HTTP/1.1\r\n" + host + "Content-Length: 1,1\r\n\r\na":                                     "400",
		"POST " + url + " HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999\r\n\r\na":                    "400",
		"GET " + url + strings.Repeat("x", maxLine) + " HTTP/1.1\r\n" + host + "\r\n":                               "431",
		"GET " + url + " HTTP/1.1\r\n" + host + strings.Repeat("A: b\r\n", maxFields) + "\r\n":                      "431",
		"GET " + url + " HTTP/1.1\r\n" + host + strings.Repeat("A: "+strings.Repeat("b", 8000)+"\r\n", 9) + "\r\n":  "431",
	} {
		answer := w.says(text)
		if !strings.HasPrefix(answer, "HTTP/1.1 "+status+" ") {
			t.Errorf("%.100q: %.100q, want %s", text, answer, status)
		}
		for _, line := range strings.Split(strings.TrimSuffix(answer, "\n"), "\r\n") {
			if strings.ContainsAny(line, "\x00\x1b\r\n") {
				t.Errorf("%.100q: the answer holds control characters: %q", text, answer)
			}
		}
	}
	select {
	case <-connected:
		t.Error("a server was connected to")
	default:
	}
}

func TestABodyThatIsNotWhatItSaysIsHalfARequest(t *testing.T) {
	for _, body := range []string{"zz\r\n", "-1\r\n", "2\r\nabc\r\n0\r\n\r\n", "2\nab\r\n", "0x2\r\nab\r\n0\r\n\r\n", "2\r\nab0\r\n\r\n",
		strings.Repeat("0", 300) + "\r\n", "4000000000000000\r\n", "0\r\n" + strings.Repeat("A: b\r\n", maxFields+1) + "\r\n"} {
		var sent bytes.Buffer
		if err := copyChunks(&sent, bufio.NewReader(strings.NewReader(body))); err == nil || strings.HasSuffix(sent.String(), "0\r\n\r\n") {
			t.Errorf("%q: passed on as %q", body, sent.String())
		}
	}
	port := server(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })
	w := newWorld(t, "127.0.0.1", "")
	answer := w.says(fmt.Sprintf("POST http://127.0.0.1:%[1]d/ HTTP/1.1\r\nHost: 127.0.0.1:%[1]d\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", port))
	if !strings.HasPrefix(answer, "HTTP/1.1 400 ") {
		t.Error(answer)
	}
}

func TestWhatAServerAnswersIsReadWithCare(t *testing.T) {
	for said, want := range map[string]string{
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nX: \xe9\r\n\r\n": "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nX: \xe9\r\nConnection: close\r\n\r\n",
		"HTTP/1.1 200 \nA: b\n\nbody":                      "HTTP/1.1 200 \r\nA: b\r\nConnection: close\r\n\r\nbody",
		"HTTP/1.1 200 OK\r\nConnection: X\r\nX: y\r\n\r\n": "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\n\r\n":         "HTTP/1.1 502 ",
		"SSH-2.0-x\r\n\r\n":                                "HTTP/1.1 502 ",
		"HTTP/1.1 2000 OK\r\n\r\n":                         "HTTP/1.1 502 ",
		"":                                                 "HTTP/1.1 502 ",
		"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("b", maxLine) + "\r\n\r\n": "HTTP/1.1 502 ",
	} {
		port := server(t, func(conn net.Conn) { io.WriteString(conn, said) })
		w := newWorld(t, "127.0.0.1", "")
		answer := w.says(fmt.Sprintf("GET http://127.0.0.1:%[1]d/ HTTP/1.1\r\nHost: 127.0.0.1:%[1]d\r\n\r\n", port))
		if answer != want && !(strings.HasPrefix(answer, want) && strings.HasPrefix(want, "HTTP/1.1 502")) {
			t.Errorf("%.80q: the client got %.300q, want %q", said, answer, want)
		}
	}
}

func TestARealClientUsesTheProxyForHTTPAndHTTPS(t *testing.T) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.Host, body)
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	w := newWorld(t, "example.com 127.0.0.1", "") // the name in httptest's certificate
	w.names["example.com"] = "127.0.0.1"
	proxy, _ := url.Parse("http://" + w.address)
	transport := secure.Client().Transport.(*http.Transport).Clone()
	transport.Proxy = http.ProxyURL(proxy)
	transport.DialContext = nil // httptest's leads example.com to itself
	client := http.Client{Transport: transport, Timeout: 20 * time.Second}
	for _, server := range []string{plain.URL, secure.URL} {
		at := strings.Replace(server, "127.0.0.1", "example.com", 1)
		for range 3 {
			response, err := client.Post(at, "text/plain", io.MultiReader(strings.NewReader("chun"), strings.NewReader("ked")))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if want := "POST " + strings.SplitN(at, "//", 2)[1] + " chunked"; err != nil || string(body) != want {
				t.Errorf("%s: %q %v, want %q", at, body, err, want)
			}
		}
	}
	if _, err := client.Get("https://refused.example/"); err == nil || !strings.Contains(err.Error(), "refused.example:443 is refused") {
		t.Errorf("the client's own error does not say why: %v", err)
	}
}

func FuzzReadRequest(f *testing.F) {
	for _, text := range []string{
		"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n",
		"CONNECT [2001:db8::1]:443 HTTP/1.0\r\n\r\n",
		"POST http://example.com:8080/x?y HTTP/1.1\r\nHost: example.com:8080\r\nContent-Length: 3\r\n\r\nabc",
		"POST http://example.com HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
		"GET http://a@b/ HTTP/1.1\r\nHost: b\r\nConnection: host\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		in := bufio.NewReaderSize(bytes.NewReader(text), maxLine)
		r, err := readRequest(in)
		if err != nil {
			return
		}
		if r.to.Port == 0 || (r.to.Name == "") == !r.to.Address.IsValid() {
			t.Fatalf("%q: to %+v", text, r.to)
		}
		if r.connect {
			return
		}
		// What is written is one request to the same destination, by the standard library's reading
		// as well.
		var written bytes.Buffer
		written.Write(r.written())
		if r.copyBody(&written, in) != nil {
			return
		}
		again := bufio.NewReader(&written)
		read, err := http.ReadRequest(again)
		if err != nil {
			if strings.Contains(err.Error(), "invalid method") || strings.Contains(err.Error(), "parse ") || strings.Contains(err.Error(), "header") {
				return // stricter than we are; the server may be, too
			}
			t.Fatalf("%q became %q: %v", text, r.written(), err)
		}
		io.Copy(io.Discard, read.Body)
		if rest, _ := io.ReadAll(again); len(rest) > 0 {
			t.Fatalf("%q: %q stands behind the request", text, rest)
		}
		if host := strings.TrimSuffix(r.to.String(), ":80"); read.Host != host || !read.Close {
			t.Fatalf("%q: Host %q, want %q", text, read.Host, host)
		}
	})
}

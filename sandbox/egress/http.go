package egress

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// serveHTTP serves one request, and with CONNECT the tunnel that it opens.
func (p *Proxy) serveHTTP(c *client) {
	r, err := readRequest(c.in)
	if err != nil {
		p.answer(c, err)
		return
	}
	if !r.connect {
		p.servePlain(c, r)
		return
	}
	server, err := p.connect(c, r.to)
	if err != nil {
		p.answer(c, err)
		return
	}
	defer server.Close()
	c.SetDeadline(time.Time{})
	if _, err := io.WriteString(c, r.version+" 200 Connection established\r\n\r\n"); err == nil {
		p.tunnel(c, server, r.to)
	}
}

// servePlain passes on one request of http://, to its server or to the proxy upstream.
func (p *Proxy) servePlain(c *client, r request) {
	err := p.admit(c, r.to)
	var server *net.TCPConn
	if err == nil {
		if r.via = p.Upstream.For(r.to, true); r.via != nil && r.method == "TRACE" {
			err = bad("TRACE has the request repeated, with what the upstream proxy is told of who asks")
		} else if r.via != nil {
			server, err = p.through(c, r.via, r.to, false)
		} else {
			server, err = p.directly(c, r.to)
		}
	}
	if err != nil {
		p.answer(c, err)
		return
	}
	defer server.Close()
	c.SetDeadline(time.Time{})
	p.forward(c, server, r)
}

// refusedHeader is the field of an answer in which a program finds why a connection is refused.
const refusedHeader = "Clai-Sandbox-Refused"

// answer tells the client why there is no connection: in words, for the program's output is read by
// whoever runs it.
func (p *Proxy) answer(c *client, err error) {
	var refusal *RefusedError
	var unreachable *UnreachableError
	var malformed *badRequest
	status, text := "400 Bad Request", err.Error()
	switch {
	case errors.As(err, &malformed) && malformed.bad != nil:
		refusal = &RefusedError{To: quoted(malformed.bad.Text), Why: malformed.bad.Why, Hint: malformed.bad.Hint}
		p.refusals.add(refusal)
		status, text = "403 Forbidden", refusal.Error()
	case errors.As(err, &refusal):
		status = "403 Forbidden"
	case errors.As(err, &unreachable):
		status = "502 Bad Gateway"
	case errors.Is(err, errHeadSize):
		status = "431 Request Header Fields Too Large"
	case errors.As(err, &malformed), errors.Is(err, errHead), errors.Is(err, errChunk):
	default:
		return // the client has gone, or said nothing for too long
	}
	structured := ""
	if refusal != nil { // the same for programs: JSON escapes what would end a line
		if said, err := json.Marshal(refusal); err == nil {
			structured = refusedHeader + ": " + string(said) + "\r\n"
		}
	}
	text = "clai-sandbox: " + sentence(text)
	c.SetWriteDeadline(time.Now().Add(p.waitTimeout.head))
	fmt.Fprintf(c, "HTTP/1.1 %s (%s)\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n%s\r\n%s\n",
		status, text, len(text)+1, structured, text)
	c.finish()
}

// finish ends a connection whose client may still be sending: closed at once, it would be reset,
// and what was written last would be lost.
func (c *client) finish() {
	c.CloseWrite()
	c.SetReadDeadline(time.Now().Add(time.Second))
	io.CopyN(io.Discard, c.in, 256<<10)
}

// A lively writer tells of each write, so that what is idle can be told from what is not.
type lively struct {
	io.Writer
	touch func()
}

func (l lively) Write(b []byte) (int, error) {
	l.touch()
	return l.Writer.Write(b)
}

// whileBusy returns what a connection's writers call. When they have not for too long, it ends.
func (p *Proxy) whileBusy(c *client) (touch func(), stop func() bool) {
	timer := time.AfterFunc(p.waitTimeout.idle, c.end)
	return func() { timer.Reset(p.waitTimeout.idle) }, timer.Stop
}

// forward passes on one plain request, and its response.
func (p *Proxy) forward(c *client, server *net.TCPConn, r request) {
	touch, stop := p.whileBusy(c)
	defer stop()
	sent := make(chan error, 1)
	go func() {
		_, err := server.Write(r.written())
		if err == nil {
			err = r.copyBody(lively{server, touch}, c.in)
		}
		if err != nil {
			server.Close() // half a request is none
		}
		sent <- err
	}()
	begun, err := copyResponse(lively{c, touch}, bufio.NewReaderSize(server, maxLine), r)
	server.Close()
	c.SetReadDeadline(time.Now())
	sendErr := <-sent
	switch {
	case errors.Is(err, errSecret):
		p.refusals.add(&RefusedError{To: r.to.String(), Why: "the answer held the password of the upstream proxy " + r.via.String(), Hint: "whoever answers so must not be sent that"})
		c.finish()
	case begun || err == nil:
		c.finish()
	case errors.Is(err, errCredentials):
		p.answer(c, &UnreachableError{To: r.to.String(), Err: upstreamError(r.via, err)})
	case errors.Is(sendErr, errChunk):
		p.answer(c, errChunk)
	default:
		p.answer(c, &UnreachableError{To: r.to.String(), Err: errors.New("it gave no answer that is HTTP/1")})
	}
}

// copyResponse passes on a response, and says that there is no other behind it. It reports whether
// something was passed on.
//
// Where it comes from a proxy upstream, what that wants to know of who asks is not the client's to
// say, and what it was told of who asks is not the client's to hear: see discreet.
func copyResponse(to io.Writer, from *bufio.Reader, r request) (begun bool, err error) {
	if secret := r.secret(); secret != "" {
		hidden := &discreet{Writer: to, secret: []byte(secret)}
		defer func() {
			if err == nil {
				err = hidden.end()
			}
		}()
		to = hidden
	}
	for range maxInterim {
		h, err := readHead(from)
		if err != nil {
			return begun, err
		}
		version, status, _ := strings.Cut(h.line, " ")
		code, _, _ := strings.Cut(status, " ")
		if version != "HTTP/1.1" && version != "HTTP/1.0" || len(code) != 3 || strings.Trim(code, "0123456789") != "" || code == "101" {
			return begun, errHead // nobody asked for another protocol
		}
		if r.via != nil && code == "407" {
			return begun, errCredentials
		}
		begun = true
		if code >= "400" && r.secret() != "" {
			return begun, r.numberAlone(to, code)
		}
		fields := h.forwarded()
		interim := code[0] == '1'
		if !interim {
			fields = append(fields, field{"Connection", "close"})
		}
		if _, err := to.Write(writeHead(h.line, fields)); err != nil {
			return begun, err
		}
		if !interim {
			_, err = io.Copy(to, from)
			return begun, err
		}
	}
	return begun, errHead
}

// numberAlone stands in the place of an answer that may be a proxy's own: some proxies have all of
// the request in theirs, with what they were told of who asks.
func (r *request) numberAlone(to io.Writer, code string) error {
	text := fmt.Sprintf("clai-sandbox: %s, or the upstream proxy %s, answers %s; what else it says may hold that proxy's password\n", r.to, r.via, code)
	_, err := to.Write(writeHead("HTTP/1.1 "+code+" (clai-sandbox)", []field{{"Content-Type", "text/plain"}, {"Content-Length", strconv.Itoa(len(text))}, {"Connection", "close"}}))
	if err == nil && r.method != "HEAD" {
		_, err = io.WriteString(to, text)
	}
	return err
}

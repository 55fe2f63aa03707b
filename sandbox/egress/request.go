package egress

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/clairun/clai-sandbox/profile"
)

// A request is what an HTTP client asks of the proxy.
type request struct {
	method  string
	to      profile.Destination
	connect bool   // a tunnel; the rest is of a plain request
	target  string // path and query
	version string // HTTP/1.0 or HTTP/1.1
	head    head
	length  int64 // of the body, where it is not chunked
	chunked bool
	via     *profile.UpstreamProxy // nil: the server itself
}

// badRequest is a request that is not understood, or that two readers could understand in two ways.
// bad is set where the destination in it could not be read, for the list of what was refused.
type badRequest struct {
	why string
	bad *profile.DomainError
}

func (e *badRequest) Error() string { return e.why }

func bad(format string, words ...any) error { return &badRequest{why: fmt.Sprintf(format, words...)} }

// readRequest reads a request up to its body.
func readRequest(in *bufio.Reader) (request, error) {
	var r request
	var err error
	if r.head, err = readHead(in); err != nil {
		return r, err
	}
	words := strings.Split(r.head.line, " ")
	if len(words) != 3 || !isToken(words[0]) || words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0" {
		return r, errHead
	}
	r.method, r.version = words[0], words[2]
	if r.method == "CONNECT" {
		r.connect = true
		r.to, err = profile.ParseDestination(words[1], 0)
		return r, badDestination(err)
	}
	if err = r.readTarget(words[1]); err == nil {
		err = r.readHost()
	}
	if err == nil {
		err = r.readFraming()
	}
	return r, err
}

func badDestination(err error) error {
	var domain *profile.DomainError
	if errors.As(err, &domain) {
		return &badRequest{domain.Error(), domain}
	}
	return err
}

// readTarget reads http://host[:port][/path][?query]. No user name stands in it: before an @, what
// looks like the host is none.
func (r *request) readTarget(target string) error {
	const scheme = "http://"
	if len(target) < len(scheme) || !strings.EqualFold(target[:len(scheme)], scheme) {
		if strings.HasPrefix(strings.ToLower(target), "https://") {
			return bad("https:// is asked for with CONNECT")
		}
		return bad("this is a proxy: it takes CONNECT host:port, and http://host/path")
	}
	rest := target[len(scheme):]
	for _, c := range []byte(rest) {
		if c <= ' ' || c >= 0x7f || c == '#' || c == '\\' {
			return bad("the URL holds what stands in none")
		}
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	var err error
	if r.to, err = profile.ParseDestination(rest[:end], 80); err != nil {
		return badDestination(err)
	}
	r.target = rest[end:]
	if !strings.HasPrefix(r.target, "/") {
		r.target = "/" + r.target
	}
	return nil
}

// readHost holds the Host field, which a server goes by, against the URL, which the rules were
// asked about.
func (r *request) readHost() error {
	hosts := r.head.values("Host")
	if len(hosts) == 0 && r.version == "HTTP/1.0" {
		return nil
	}
	if len(hosts) != 1 {
		return bad("a request has one Host")
	}
	if host, err := profile.ParseDestination(hosts[0], 80); err != nil || host != r.to {
		return bad("the Host is not that of the URL")
	}
	return nil
}

// readFraming finds out where the body ends. Where two readers could differ, one of them would take
// the rest for another request (request smuggling).
func (r *request) readFraming() error {
	lengths, codings := r.head.values("Content-Length"), r.head.values("Transfer-Encoding")
	switch {
	case len(codings) > 0:
		if len(lengths) > 0 || len(codings) > 1 || !strings.EqualFold(codings[0], "chunked") || r.version == "HTTP/1.0" {
			return bad("a body is either chunked or has a Content-Length")
		}
		r.chunked = true
	case len(lengths) > 1:
		return bad("a request has one Content-Length")
	case len(lengths) == 1:
		n, err := strconv.ParseUint(lengths[0], 10, 63)
		if err != nil || strings.Trim(lengths[0], "0123456789") != "" {
			return bad("the Content-Length is not a number")
		}
		r.length = int64(n)
	}
	return nil
}

// written is the request's head as the server gets it.
func (r *request) written() []byte {
	host := r.to.Host()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if r.to.Port != 80 {
		host += ":" + strconv.Itoa(int(r.to.Port))
	}
	fields := []field{{"Host", host}}
	own := []string{"Host", "Content-Length", "Transfer-Encoding", "Trailer"}
	if r.via != nil {
		own = append(own, "Max-Forwards") // with which the proxy itself would answer
	}
	fields = append(fields, r.head.forwarded(own...)...)
	switch {
	case r.chunked:
		fields = append(fields, field{"Transfer-Encoding", "chunked"})
	case r.length > 0 || len(r.head.values("Content-Length")) > 0:
		fields = append(fields, field{"Content-Length", strconv.FormatInt(r.length, 10)})
	}
	target := r.target
	if r.via != nil {
		target = "http://" + host + target
		if r.via.Authorization != "" {
			fields = append(fields, field{"Proxy-Authorization", r.via.Authorization})
		}
	}
	return writeHead(r.method+" "+target+" "+r.version, append(fields, field{"Connection", "close"}))
}

// copyBody passes on the request's body, and not a byte behind it.
func (r *request) copyBody(to io.Writer, from *bufio.Reader) error {
	if r.chunked {
		return copyChunks(to, from)
	}
	_, err := io.CopyN(to, from, r.length)
	return err
}

// copyChunks passes on a chunked body, each chunk written anew, without extensions and trailers.
func copyChunks(to io.Writer, from *bufio.Reader) error {
	for {
		size, err := chunkLine(from)
		if err != nil {
			return err
		}
		digits, _, _ := strings.Cut(size, ";")
		digits = strings.TrimRight(digits, " \t")
		n, err := strconv.ParseUint(digits, 16, 62)
		if err != nil || strings.Trim(digits, "0123456789abcdefABCDEF") != "" {
			return errChunk
		}
		if n == 0 {
			break
		}
		if _, err = fmt.Fprintf(to, "%x\r\n", n); err == nil {
			_, err = io.CopyN(to, from, int64(n))
		}
		if err != nil {
			return err
		}
		if end, err := chunkLine(from); err != nil || end != "" {
			return errChunk
		}
		if _, err = io.WriteString(to, "\r\n"); err != nil {
			return err
		}
	}
	for range maxFields { // trailers
		if line, err := chunkLine(from); err != nil {
			return err
		} else if line == "" {
			_, err = io.WriteString(to, "0\r\n\r\n")
			return err
		}
	}
	return errChunk
}

var errChunk = errors.New("the body is not chunked as it says")

// chunkLine reads a short line, which ends in CR and LF.
func chunkLine(from *bufio.Reader) (string, error) {
	raw, err := from.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	line, ok := strings.CutSuffix(string(raw), "\r\n")
	if !ok || len(line) > maxChunkLine || strings.ContainsAny(line, "\r\x00") {
		return "", errChunk
	}
	return line, nil
}

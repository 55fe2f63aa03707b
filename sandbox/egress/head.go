package egress

import (
	"bufio"
	"errors"
	"strings"
)

// A head is the first line of an HTTP/1 message and its header (RFC 9112). Nothing of it is passed
// on as it came: what was understood is written anew.
type head struct {
	line   string
	fields []field
	bytes  int
}

type field struct{ name, value string }

const (
	maxLine      = 16 << 10 // also the size of the buffer that a line must fit in
	maxHead      = 64 << 10
	maxFields    = 200
	maxInterim   = 8 // responses before the one that counts
	maxChunkLine = 256
)

var (
	errHead     = errors.New("this is not HTTP/1")
	errHeadSize = errors.New("the header is too large")
)

// readHead reads one. A header that goes on in the next line, a name with a space behind it, and
// control characters are refused: readers differ in what they make of them.
func readHead(in *bufio.Reader) (head, error) {
	var h head
	line, err := h.next(in)
	for err == nil && line == "" && h.bytes <= 4 { // an empty line before a request is allowed
		line, err = h.next(in)
	}
	if err != nil {
		return h, err
	}
	h.line = line
	for {
		if line, err = h.next(in); err != nil {
			return h, err
		}
		if line == "" {
			return h, nil
		}
		name, value, found := strings.Cut(line, ":")
		if !found || !isToken(name) {
			return h, errHead
		}
		if h.fields = append(h.fields, field{name, strings.Trim(value, " \t")}); len(h.fields) > maxFields {
			return h, errHeadSize
		}
	}
}

// next is a line without its end.
func (h *head) next(in *bufio.Reader) (string, error) {
	raw, err := in.ReadSlice('\n')
	h.bytes += len(raw)
	if errors.Is(err, bufio.ErrBufferFull) || h.bytes > maxHead {
		return "", errHeadSize
	}
	if err != nil {
		return "", err
	}
	line := strings.TrimSuffix(string(raw[:len(raw)-1]), "\r")
	for _, c := range []byte(line) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return "", errHead
		}
	}
	return line, nil
}

// isToken reports whether text is a token of RFC 9110, as methods and names of fields are.
func isToken(text string) bool {
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return text != ""
}

// values are those of all fields of a name.
func (h *head) values(name string) []string {
	var list []string
	for _, f := range h.fields {
		if strings.EqualFold(f.name, name) {
			list = append(list, f.value)
		}
	}
	return list
}

// hopByHop are the fields that are between two neighbours alone (RFC 9110, 7.6.1), and those that a
// proxy is sent in spite of it.
var hopByHop = []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Proxy-Authentication-Info", "TE", "Upgrade", "HTTP2-Settings"}

// forwarded are the fields that are passed on, without those that drop names or Connection lists.
func (h *head) forwarded(drop ...string) []field {
	left := append(drop, hopByHop...)
	for _, list := range h.values("Connection") {
		for name := range strings.SplitSeq(list, ",") {
			left = append(left, strings.Trim(name, " \t"))
		}
	}
	var kept []field
	for _, f := range h.fields {
		if !contains(left, f.name) {
			kept = append(kept, f)
		}
	}
	return kept
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

// write writes a head anew.
func writeHead(line string, fields []field) []byte {
	text := []byte(line + "\r\n")
	for _, f := range fields {
		text = append(text, f.name+": "+f.value+"\r\n"...)
	}
	return append(text, "\r\n"...)
}

package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// maxDepth is how deeply a message may nest objects and lists. The deepest that the protocol has is
// a tenth of it.
const maxDepth = 100

// The codes of JSON-RPC 2.0 (section 5.1).
const (
	codeParse   = -32700
	codeInvalid = -32600
)

// messageLines are the messages of a client on a stream, a line each. The protocol's library ends
// the connection at the first that it cannot read; here such a line is answered with an error, and
// the next one counts.
type messageLines struct {
	in      *bufio.Reader
	close   func() error
	answers io.Writer
	left    []byte // of the message that is being read
}

func newMessageLines(in io.ReadCloser, answers io.Writer) *messageLines {
	return &messageLines{in: bufio.NewReaderSize(in, 64<<10), close: in.Close, answers: answers}
}

func (m *messageLines) Close() error { return m.close() }

func (m *messageLines) Read(b []byte) (int, error) {
	for len(m.left) == 0 {
		line, tooLong, err := m.next()
		if err != nil && len(line) == 0 {
			return 0, err
		}
		if refusal := checkMessage(line, tooLong); refusal != nil {
			if err := m.refuse(refusal); err != nil {
				return 0, err
			}
		} else if line = bytes.TrimSpace(line); len(line) > 0 {
			m.left = append(line, '\n')
		}
	}
	n := copy(b, m.left)
	m.left = m.left[n:]
	return n, nil
}

// next is the next line. Of one that is too long nothing is kept.
func (m *messageLines) next() (line []byte, tooLong bool, err error) {
	for {
		part, err := m.in.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > maxMessage; tooLong {
			line = []byte{0}
		} else {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, tooLong, err
		}
	}
}

func (m *messageLines) refuse(e *jsonrpc.Error) error {
	text, err := json.Marshal(struct {
		Version string         `json:"jsonrpc"`
		ID      *int           `json:"id"`
		Error   *jsonrpc.Error `json:"error"`
	}{"2.0", nil, e})
	if err == nil {
		_, err = m.answers.Write(append(text, '\n'))
	}
	return err
}

// checkMessage says what is wrong with a line; nil where it is one message, or nothing.
func checkMessage(line []byte, tooLong bool) *jsonrpc.Error {
	line = bytes.TrimSpace(line)
	invalid := func(why string) *jsonrpc.Error { return &jsonrpc.Error{Code: codeInvalid, Message: why} }
	switch {
	case tooLong:
		return invalid("the message is too long")
	case len(line) == 0:
		return nil
	case deep(line):
		return invalid("the message nests too deeply")
	case !json.Valid(line):
		return &jsonrpc.Error{Code: codeParse, Message: "the line is not JSON"}
	case line[0] == '[':
		return invalid("batches are not supported")
	case line[0] != '{':
		return invalid("a message is an object")
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return invalid("a message is an object")
	}
	if id, has := fields["id"]; has && !plainID(id) {
		return invalid("an id is a string or a whole number")
	}
	if _, err := jsonrpc.DecodeMessage(line); err != nil {
		return invalid("that is no message of JSON-RPC 2.0")
	}
	return nil
}

// plainID reports whether an answer can carry the same id: of other numbers the library makes
// another one.
func plainID(text json.RawMessage) bool {
	var id any
	if json.Unmarshal(text, &id) != nil {
		return false
	}
	switch id := id.(type) {
	case string:
		return !strings.ContainsRune(id, utf8.RuneError) // half a pair stands for it, and would come back as another
	case float64:
		return id == math.Trunc(id) && math.Abs(id) <= 1<<53
	}
	return false
}

// deep reports whether JSON text nests deeper than maxDepth.
func deep(text []byte) bool {
	depth, inString, escaped := 0, false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case inString:
			escaped, inString = c == '\\', c != '"'
		case c == '"':
			inString = true
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// A lockedWriter takes one message at a time from several writers.
type lockedWriter struct {
	mu sync.Mutex
	io.WriteCloser
}

func (w *lockedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.WriteCloser.Write(b)
}

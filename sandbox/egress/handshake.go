package egress

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
)

// A serverTalk listens to what a server says first, to know whether it asks for another hello.
type serverTalk struct {
	seen  []byte
	known chan struct{}
	retry bool // once known is closed
}

func newServerTalk() *serverTalk { return &serverTalk{known: make(chan struct{})} }

// Write is told everything that the server says, before the client is.
func (s *serverTalk) Write(b []byte) (int, error) {
	if _, known := s.answered(); !known {
		s.seen = append(s.seen, b...)
		if retry, enough := asksForRetry(s.seen); enough {
			s.settle(retry)
		}
	}
	return len(b), nil
}

// settle says what it was. The first time counts; only who writes may call it.
func (s *serverTalk) settle(retry bool) {
	if _, known := s.answered(); !known {
		s.retry, s.seen = retry, nil
		close(s.known)
	}
}

// answered reports whether the server has answered by now, and whether that asks for another hello.
func (s *serverTalk) answered() (retry, known bool) {
	select {
	case <-s.known:
		return s.retry, true
	default:
		return false, false
	}
}

// wait waits for the answer, or for the end of the connection.
func (s *serverTalk) wait(ctx context.Context) (retry bool) {
	select {
	case <-s.known:
		return s.retry
	case <-ctx.Done():
		return false
	}
}

// retryRandom stands in a ServerHello that is a HelloRetryRequest, in place of a random number (RFC
// 8446, 4.1.3).
var retryRandom = []byte("\xcf\x21\xad\x74\xe5\x9a\x61\x11\xbe\x1d\x8c\x02\x1e\x65\xb8\x91" +
	"\xc2\xa2\x11\x16\x7a\xbb\x8c\x5e\x07\x9e\x09\xe2\xc8\xa8\x33\x9c")

// asksForRetry reads the beginning of what a server says: alerts, which may be warnings, and then
// its hello. What is something else asks for nothing.
func asksForRetry(said []byte) (retry, enough bool) {
	const upToRandom = 4 + 2 + 32
	var joined []byte
	for len(said) > 0 {
		if said[0] != recordAlert && said[0] != recordHandshake {
			return false, true
		}
		if len(said) < 5 {
			return false, false
		}
		length := int(binary.BigEndian.Uint16(said[3:]))
		part := said[5:min(len(said), 5+length)]
		if said[0] == recordHandshake {
			joined = append(joined, part...)
		}
		switch {
		case len(joined) > 0 && joined[0] != serverHello:
			return false, true
		case len(joined) >= upToRandom:
			return bytes.Equal(joined[6:upToRandom], retryRandom), true
		case len(part) < length:
			return false, false
		}
		said = said[5+length:]
	}
	return false, false
}

// messages are the handshake messages of a client that come in the clear, after its first hello.
type messages struct {
	header []byte // of the message that has begun, as far as it has come
	left   int    // of its body
}

var errSecondHello = errors.New("the TLS handshake says hello twice")

// pass passes on one record, unless a hello begins in it.
func (m *messages) pass(from *bufio.Reader, to io.Writer, length int64) error {
	header := make([]byte, 5)
	if _, err := io.ReadFull(from, header); err != nil {
		return err
	}
	if _, err := to.Write(header); err != nil {
		return err
	}
	for left := int(length); left > 0; {
		if _, err := from.Peek(1); err != nil {
			return err
		}
		part, _ := from.Peek(min(left, from.Buffered()))
		if m.hello(part) {
			return errSecondHello
		}
		if _, err := to.Write(part); err != nil {
			return err
		}
		from.Discard(len(part))
		left -= len(part)
	}
	return nil
}

// hello reports whether a hello begins in the next bytes.
func (m *messages) hello(data []byte) bool {
	for len(data) > 0 {
		if m.left > 0 {
			n := min(m.left, len(data))
			m.left, data = m.left-n, data[n:]
			continue
		}
		m.header, data = append(m.header, data[0]), data[1:]
		if m.header[0] == clientHello {
			return true
		}
		if len(m.header) == 4 {
			m.left = int(m.header[1])<<16 | int(m.header[2])<<8 | int(m.header[3])
			m.header = m.header[:0]
		}
	}
	return false
}

package bus

import (
	"encoding/binary"
	"strings"
)

// A header is what the header of a message says ("Message Format" in the D-Bus specification).
type header struct {
	order             binary.ByteOrder
	kind, flags       byte
	serial, replyTo   uint32
	path, face        string
	member, signature string
	body              int // where its body begins
}

const (
	noReplyExpected = 1       // a flag
	maxFields       = 8 << 10 // bytes of a header's fields; names have at most 255 each
)

// fields are the fields that a header may have, each once, and their types. xdg-dbus-proxy takes no
// others either.
var fields = map[byte]byte{1: 'o', 2: 's', 3: 's', 4: 's', 5: 'u', 6: 's', 7: 's', 8: 'g', 9: 'u', 10: 'o'}

// messageBody is where the body of a message begins, of which there are the first 16 bytes.
func messageBody(begin []byte) (int, error) {
	fields := messageOrder(begin).Uint32(begin[12:])
	if fields > maxFields {
		return 0, errNoMessage
	}
	return messageHeader + int(fields+7)&^7, nil
}

func messageOrder(begin []byte) binary.ByteOrder {
	if begin[0] == 'B' {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// parseHeader reads a header, of which all is there. What other readers could take for something
// else is an error.
func parseHeader(begin []byte) (m header, err error) {
	m.order = messageOrder(begin)
	m.kind, m.flags, m.serial = begin[1], begin[2], m.order.Uint32(begin[8:])
	if m.body, err = messageBody(begin); err != nil {
		return m, err
	}
	r := fieldReader{data: begin[:messageHeader+int(m.order.Uint32(begin[12:]))], at: messageHeader, order: m.order}
	seen := map[byte]bool{}
	for r.at < len(r.data) {
		r.align(8)
		code, kind := r.byte(), r.text(int(r.byte()))
		if seen[code] || kind != string(fields[code]) {
			return m, errNoMessage
		}
		seen[code] = true
		var number uint32
		var text string
		switch kind {
		case "u":
			number = r.uint32()
		case "g":
			text = r.text(int(r.byte()))
		default:
			text = r.text(int(r.uint32()))
		}
		switch code {
		case 1:
			m.path = text
		case 2:
			m.face = text
		case 3:
			m.member = text
		case 5:
			m.replyTo = number
		case 8:
			m.signature = text
		}
		if r.wrong {
			return m, errNoMessage
		}
	}
	return m, nil
}

// A fieldReader reads values one after the other. At the end of the data, and where they are none,
// it goes wrong and stays so.
type fieldReader struct {
	data  []byte
	at    int
	order binary.ByteOrder
	wrong bool
}

func (r *fieldReader) take(n int) []byte {
	if n < 0 || n > len(r.data)-r.at {
		r.wrong, r.at = true, len(r.data)
		return make([]byte, min(max(n, 0), 4))
	}
	r.at += n
	return r.data[r.at-n : r.at]
}

func (r *fieldReader) align(to int) { r.take((to - r.at%to) % to) }

func (r *fieldReader) byte() byte { return r.take(1)[0] }

func (r *fieldReader) uint32() uint32 {
	r.align(4)
	return r.order.Uint32(r.take(4))
}

// text reads a string of so many bytes and the zero behind it. One inside would end it for some
// readers.
func (r *fieldReader) text(n int) string {
	text := string(r.take(n))
	if r.byte() != 0 || strings.IndexByte(text, 0) >= 0 {
		r.wrong = true
	}
	return text
}

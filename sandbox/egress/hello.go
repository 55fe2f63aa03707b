package egress

import "encoding/binary"

// A helloState is how much of a TLS ClientHello was seen.
type helloState uint8

const (
	helloAbsent  helloState = iota // not TLS
	helloPartial                   // so far it may be
	helloComplete
	helloMalformed
)

// The record types and the messages of TLS that matter here (RFC 8446, 5.1 and 4).
const (
	recordChange    = 20 // ChangeCipherSpec
	recordAlert     = 21
	recordHandshake = 22
	recordData      = 23
	recordHeartbeat = 24
	clientHello     = 1
	serverHello     = 2
	serverName      = 0            // the extension, and in it the type of a host's name
	maxRecord       = 1<<14 + 2048 // an encrypted one
)

// readHello reads the server name out of what a client says first: a ClientHello (RFC 8446, 4.1.2;
// the same in TLS 1.0 to 1.2), in one record or in several, which it ends. The name is empty if
// there is none; size is that of the records.
func readHello(said []byte) (name string, size int, state helloState) {
	if len(said) == 0 {
		return "", 0, helloPartial
	}
	switch first := said[0]; {
	case first == recordHandshake:
	case first >= recordChange && first <= recordHeartbeat:
		return "", 0, helloMalformed // a record that some servers step over, to a hello behind it
	case first&0x80 != 0 && len(said) < 4:
		return "", 0, helloPartial
	case first&0x80 != 0 && said[2] == clientHello && said[3] == 3:
		return "", 0, helloMalformed // in the form of SSL 2, which no client uses any more, and some servers still take
	default:
		return "", 0, helloAbsent
	}
	message, size, state := joinRecords(said)
	if state != helloComplete {
		return "", 0, state
	}
	name, ok := parseHello(message)
	if !ok {
		return "", 0, helloMalformed
	}
	return name, size, helloComplete
}

// joinRecords returns the body of the first handshake message, which may lie in several records,
// and their size. The message ends the last of them: what stood behind it there would be part of
// nothing that is looked at.
func joinRecords(said []byte) (message []byte, size int, state helloState) {
	var joined []byte
	for {
		if len(said)-size < 5 {
			return nil, 0, helloPartial
		}
		length := int(binary.BigEndian.Uint16(said[size+3:]))
		if said[size] != recordHandshake || length == 0 || length > 1<<14 { // the version in it is to be ignored
			return nil, 0, helloMalformed
		}
		available := said[size+5 : min(len(said), size+5+length)]
		joined = append(joined, available...)
		size += 5 + length
		if len(joined) >= 1 && joined[0] != clientHello {
			return nil, 0, helloMalformed
		}
		if len(joined) >= 4 {
			body := int(joined[1])<<16 | int(joined[2])<<8 | int(joined[3])
			whole := len(joined) - len(available) + length // with the rest of this record
			switch {
			case body > maxLine, whole > 4+body:
				return nil, 0, helloMalformed
			case len(joined) == 4+body:
				return joined[4:], size, helloComplete
			}
		}
		if len(available) < length {
			return nil, 0, helloPartial
		}
	}
}

// parseHello reads the body of a ClientHello. It is strict: what a server might read otherwise is
// not read here at all.
func parseHello(body []byte) (name string, ok bool) {
	r := reader{body, true}
	r.bytes(2 + 32) // version and random
	r.vector(1)     // session
	r.vector(2)     // cipher suites
	r.vector(1)     // compression methods
	if r.ok && len(r.left) == 0 {
		return "", true // no extensions, as an old client
	}
	extensions := reader{r.vector(2), true}
	if !r.ok || len(r.left) != 0 {
		return "", false
	}
	seen := false
	for extensions.ok && len(extensions.left) > 0 {
		kind := extensions.number(2)
		data := extensions.vector(2)
		if kind != serverName {
			continue
		}
		if name, ok = parseServerName(data); seen || !ok || !extensions.ok {
			return "", false
		}
		seen = true
	}
	return name, extensions.ok
}

// parseServerName reads the extension (RFC 6066, 3): a list with one name of a host.
func parseServerName(data []byte) (string, bool) {
	r := reader{data, true}
	list := reader{r.vector(2), true}
	kind := list.number(1)
	name := list.vector(2)
	ok := r.ok && len(r.left) == 0 && list.ok && len(list.left) == 0 && kind == serverName && len(name) > 0
	return string(name), ok
}

// A reader takes the parts of a TLS structure off its beginning. Once one is not there, none is.
type reader struct {
	left []byte
	ok   bool
}

func (r *reader) bytes(n int) []byte {
	if !r.ok || len(r.left) < n {
		r.ok = false
		return nil
	}
	taken := r.left[:n]
	r.left = r.left[n:]
	return taken
}

func (r *reader) number(size int) int {
	n := 0
	for _, b := range r.bytes(size) {
		n = n<<8 | int(b)
	}
	return n
}

// vector is a part with its length before it.
func (r *reader) vector(size int) []byte { return r.bytes(r.number(size)) }

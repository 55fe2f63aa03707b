package egress

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// socksRequest is a whole SOCKS5 opening.
func socksRequest(command, kind byte, host string, port uint16) string {
	text := "\x05\x01\x00\x05" + string([]byte{command, 0, kind})
	if kind == socksName {
		text += string([]byte{byte(len(host))})
	}
	return text + host + string([]byte{byte(port >> 8), byte(port)})
}

func TestSocksConnectsByNameAndAddress(t *testing.T) {
	port := server(t, func(conn net.Conn) {
		io.WriteString(conn, "SERVED ")
		echo(conn)
	})
	w := newWorld(t, fmt.Sprintf("a.example 127.0.0.1:%d", port), "")
	w.names["a.example"] = "127.0.0.1"
	for name, request := range map[string]string{
		"name":            socksRequest(socksConnect, socksName, "A.example", port),
		"address":         socksRequest(socksConnect, socksIPv4, "\x7f\x00\x00\x01", port),
		"address as name": socksRequest(socksConnect, socksName, "127.0.0.1", port),
		"several methods": "\x05\x03\x02\x01\x00" + socksRequest(socksConnect, socksName, "a.example", port)[3:],
	} {
		if got, want := w.says(request+"hello"), "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00SERVED hello"; got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestSocksRefusesWithItsReasons(t *testing.T) {
	closed := listen(t)
	closed.Close()
	w := newWorld(t, "a.example nowhere.example 127.0.0.1", "denied.example")
	w.names = map[string]string{"a.example": "127.0.0.1", "inward.example": "10.0.0.1"}
	for _, c := range []struct {
		name, request string
		reply         socksReply
		noted         string
	}{
		{"unlisted", socksRequest(1, 3, "b.example", 443), socksNotAllowed, "b.example:443"},
		{"denied", socksRequest(1, 3, "denied.example", 443), socksNotAllowed, "denied.example:443"},
		{"special", socksRequest(1, 1, "\x0a\x00\x00\x01", 443), socksNotAllowed, "10.0.0.1:443"},
		{"mapped", socksRequest(1, 4, strings.Repeat("\x00", 10)+"\xff\xff\x7f\x00\x00\x01", 443), socksNotAllowed, `"::ffff:127.0.0.1"`},
		{"odd literal", socksRequest(1, 3, "0x7f.1", 443), socksNotAllowed, `"0x7f.1"`},
		{"control characters", socksRequest(1, 3, "a\x1b[2J\n", 443), socksNotAllowed, `"a\x1b[2J\n"`},
		{"no name", socksRequest(1, 3, "", 443), socksNotAllowed, `""`},
		{"bind", socksRequest(2, 3, "a.example", 443), socksNoCommand, ""},
		{"udp associate", socksRequest(3, 1, "\x7f\x00\x00\x01", 443), socksNoCommand, ""},
		{"resolve, as tor has it", socksRequest(0xf0, 3, "a.example", 443), socksNoCommand, ""},
		{"kind of address", "\x05\x01\x00\x05\x01\x00\x02\x7f\x00\x00\x01\x01\xbb", socksNoAddressType, ""},
		{"port 0", socksRequest(1, 3, "a.example", 0), socksFailed, ""},
		{"reserved", "\x05\x01\x00\x05\x01\x01\x01\x7f\x00\x00\x01\x01\xbb", socksFailed, ""},
		{"version", "\x05\x01\x00\x04\x01\x00\x01\x7f\x00\x00\x01\x01\xbb", socksFailed, ""},
		{"nobody there", socksRequest(1, 1, "\x7f\x00\x00\x01", portOf(closed)), socksConnectionRefused, ""},
		{"no such name", socksRequest(1, 3, "nowhere.example", 443), socksNoHost, ""},
	} {
		w.proxy.refusals = refusals{}
		want := "\x05\x00\x05" + string([]byte{byte(c.reply)}) + "\x00\x01\x00\x00\x00\x00\x00\x00"
		if got := w.says(c.request); got != want {
			t.Errorf("%s: %q, want reply %d", c.name, got, c.reply)
		}
		list, _ := w.proxy.Refusals()
		if c.noted == "" && len(list) != 0 || c.noted != "" && (len(list) != 1 || list[0].To != c.noted) {
			t.Errorf("%s: noted %v, want %q", c.name, list, c.noted)
		}
	}
	if got := w.says("\x05\x01\x02" + "rest"); got != "\x05\xff" {
		t.Errorf("a password was asked for: %q", got)
	}
	if got := w.says("\x04\x01\x00\x50\x7f\x00\x00\x01\x00"); strings.HasPrefix(got, "\x00\x5a") {
		t.Errorf("SOCKS4: %q", got)
	}
}

func FuzzSocks(f *testing.F) {
	f.Add([]byte(socksRequest(1, 3, "example.com", 443)))
	f.Add([]byte(socksRequest(1, 1, "\x7f\x00\x00\x01", 443)))
	f.Add([]byte(socksRequest(1, 4, strings.Repeat("\x00", 15)+"\x01", 443)))
	f.Add([]byte(socksRequest(3, 3, "0x7f.1", 443)))
	f.Fuzz(func(t *testing.T, said []byte) {
		in := bufio.NewReaderSize(bytes.NewReader(said), maxLine)
		method, err := readGreeting(in)
		if err != nil || method != socksNoAuth {
			return
		}
		offered := int(said[1])
		to, reply, err := readSocksRequest(in)
		if err != nil {
			if to.Port != 0 && to.Name != "" {
				t.Errorf("%q: %v with a destination, %s", said, err, to)
			}
			return
		}
		if reply != socksGranted || to.Port == 0 || (to.Name == "") == !to.Address.IsValid() || to.Address.Is4In6() {
			t.Errorf("%q: %+v", said, to)
		}
		if request := said[2+offered:]; request[0] != 5 || request[1] != socksConnect || request[2] != 0 {
			t.Errorf("%q is no CONNECT", said)
		}
	})
}

package egress

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// realHello is what crypto/tls says first.
func realHello(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() {
		tls.Client(theirs, config).Handshake()
		theirs.Close()
	}()
	defer ours.Close()
	said := make([]byte, maxLine)
	ours.SetDeadline(time.Now().Add(10 * time.Second))
	n, err := io.ReadAtLeast(ours, said, 5)
	if err != nil {
		t.Fatal(err)
	}
	size := 5 + int(binary.BigEndian.Uint16(said[3:]))
	if n < size {
		if _, err := io.ReadFull(ours, said[n:size]); err != nil {
			t.Fatal(err)
		}
	}
	return said[:size]
}

// inRecords cuts a hello into records of some bytes each.
func inRecords(hello []byte, size int) []byte {
	var cut []byte
	for message := hello[5:]; len(message) > 0; {
		n := min(size, len(message))
		cut = append(cut, recordHandshake, 3, 1, byte(n>>8), byte(n))
		cut = append(cut, message[:n]...)
		message = message[n:]
	}
	return cut
}

func TestTheServerNameIsFoundInRealHellos(t *testing.T) {
	for _, config := range []*tls.Config{
		{ServerName: "www.example.com"},
		{ServerName: "www.example.com", MaxVersion: tls.VersionTLS12},
		{ServerName: "www.example.com", NextProtos: []string{"h2", "http/1.1"}, ClientSessionCache: tls.NewLRUClientSessionCache(1)},
	} {
		hello := realHello(t, config)
		for _, size := range []int{1 << 14, 100, 7, 1} {
			cut := inRecords(hello, size)
			if name, length, state := readHello(append(cut, "more"...)); name != "www.example.com" || length != len(cut) || state != helloComplete {
				t.Errorf("records of %d bytes: %q, %d of %d bytes, state %d", size, name, length, len(cut), state)
			}
			for n := range cut {
				if _, _, state := readHello(cut[:n]); state != helloPartial {
					t.Fatalf("%d of %d bytes: state %d", n, len(cut), state)
				}
			}
		}
	}
	if name, _, state := readHello(realHello(t, &tls.Config{InsecureSkipVerify: true})); name != "" || state != helloComplete {
		t.Errorf("without a name: %q, state %d", name, state)
	}
}

// A hello of our own, of the extensions that are given.
func madeHello(extensions ...[]byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 0x01, 1, 0)
	all := bytes.Join(extensions, nil)
	body = append(binary.BigEndian.AppendUint16(body, uint16(len(all))), all...)
	message := append([]byte{clientHello, 0, byte(len(body) >> 8), byte(len(body))}, body...)
	return append([]byte{recordHandshake, 3, 1, byte(len(message) >> 8), byte(len(message))}, message...)
}

// nameExtension is one with these names, each with its type before it.
func nameExtension(names ...string) []byte {
	var list []byte
	for _, name := range names {
		list = append(list, name[0])
		list = binary.BigEndian.AppendUint16(list, uint16(len(name)-1))
		list = append(list, name[1:]...)
	}
	data := append(binary.BigEndian.AppendUint16(nil, uint16(len(list))), list...)
	return append(binary.BigEndian.AppendUint16([]byte{0, serverName}, uint16(len(data))), data...)
}

// withAlert is a hello two bytes of which lie in an alert: who steps over that reads another one.
func withAlert(message []byte) []byte {
	record := func(kind byte, part []byte) []byte { return append([]byte{kind, 3, 1, 0, byte(len(part))}, part...) }
	return slices.Concat(record(recordHandshake, message[:10]), record(recordAlert, message[10:12]), record(recordHandshake, message[12:]))
}

func TestAHelloThatAnotherReaderMayReadOtherwiseIsMalformed(t *testing.T) {
	one := nameExtension("\x00a.example")
	if name, _, state := readHello(madeHello(one)); name != "a.example" || state != helloComplete {
		t.Fatalf("%q, state %d", name, state)
	}
	for what, hello := range map[string][]byte{
		"two extensions":             madeHello(one, nameExtension("\x00b.example")),
		"two names":                  madeHello(nameExtension("\x00a.example", "\x00b.example")),
		"another type of name":       madeHello(nameExtension("\x01a.example")),
		"an empty name":              madeHello(nameExtension("\x00")),
		"an empty list":              madeHello(nameExtension()),
		"bytes behind the list":      madeHello(append(bytes.Clone(one[:3]), append([]byte{one[3] + 1}, append(bytes.Clone(one[4:]), 0)...)...)),
		"bytes behind the last":      madeHello(one, []byte{0}),
		"a longer extension":         madeHello([]byte{0, 1, 0, 9, 1}),
		"not a client's":             append([]byte{recordHandshake, 3, 1, 0, 4, 2, 0, 0, 0}, madeHello(one)...),
		"an alert before it":         append([]byte{recordAlert, 3, 1, 0, 2, 1, 0}, madeHello(one)...),
		"a change of cipher":         append([]byte{20, 3, 1, 0, 1, 1}, madeHello(one)...),
		"an empty record":            append([]byte{recordHandshake, 3, 1, 0, 0}, madeHello(one)...),
		"an alert within it":         withAlert(madeHello(one)[5:]),
		"a record that is too long":  append([]byte{recordHandshake, 3, 1, 0x40, 1}, madeHello(one)...),
		"a hello that is too long":   {recordHandshake, 3, 1, 0, 4, clientHello, 1, 0, 0},
		"a second one in its record": inRecords(append(bytes.Clone(madeHello(one)), madeHello(nameExtension("\x00b.example"))[5:]...), 1<<14),
		"the form of SSL 2":          []byte("\x80\x2e\x01\x03\x01"),
	} {
		if name, _, state := readHello(hello); state != helloMalformed {
			t.Errorf("%s: %q, state %d", what, name, state)
		}
	}
	other := madeHello(one)
	other[1] = 0x0e // a server ignores this number, and so do we
	if name, _, state := readHello(other); name != "a.example" || state != helloComplete {
		t.Errorf("another version of records: %q, state %d", name, state)
	}
	for _, text := range []string{"SSH-2.0-OpenSSH\r\n", "GET / HTTP/1.1\r\n", "\x00\x00\x00\x08\x04\xd2\x16\x2f", "\xff\xfe\xfd\xfc"} {
		if name, _, state := readHello([]byte(text)); name != "" || state != helloAbsent {
			t.Errorf("%q: %q, state %d", text, name, state)
		}
	}
}

func TestTheServerNameMustBeTheNameThatWasAskedFor(t *testing.T) {
	front := httptest.NewUnstartedServer(nil) // serves example.com, and whatever else it is asked for
	front.StartTLS()
	defer front.Close()
	port := front.Listener.Addr().(*net.TCPAddr).Port
	for _, c := range []struct {
		to, name string
		want     string // in what is noted; "" is a handshake that succeeds
	}{
		{"example.com", "example.com", ""},
		{"127.0.0.1", "example.com", ""},
		{"127.0.0.1", "", ""},
		{"127.0.0.1", "EXAMPLE.com", ""},
		{"example.com", "evil.example", `the TLS handshake asks for "evil.example", and must ask for the name that the connection was asked for, as example.com`},
		{"example.com", "allowed.example", "must ask for the name"},
		{"example.com", "www.example.com", "must ask for the name"},
		{"example.com", "", "has no server name (SNI)"},
		{"127.0.0.1", "denied.example", `the TLS handshake asks for "denied.example", which the rule denied.example denies`},
	} {
		w := newWorld(t, "example.com allowed.example 127.0.0.1", "denied.example")
		w.names["example.com"] = "127.0.0.1"
		conn, _ := w.tunnel(fmt.Sprintf("%s:%d", c.to, port))
		err := tls.Client(conn, &tls.Config{ServerName: c.name, InsecureSkipVerify: true}).Handshake()
		list, _ := w.proxy.Refusals()
		if c.want == "" {
			if err != nil || len(list) != 0 {
				t.Errorf("to %s for %q: %v %v", c.to, c.name, err, list)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "unrecognized name") || len(list) != 1 || !strings.Contains(list[0].Why, c.want) {
			t.Errorf("to %s for %q: %v, noted %v", c.to, c.name, err, list)
		}
	}
}

func TestOfARefusedHandshakeNothingReachesTheServer(t *testing.T) {
	got, hold := make(chan []byte, 1), make(chan bool)
	port := server(t, func(conn net.Conn) {
		said, _ := io.ReadAll(conn)
		got <- said
		<-hold // it keeps its half open, and the client is left all the same
	})
	defer close(hold)
	w := newWorld(t, "example.com 127.0.0.1", "")
	w.names["example.com"] = "127.0.0.1"
	conn, in := w.tunnel(fmt.Sprintf("example.com:%d", port))
	for _, part := range bytes.SplitAfter(realHello(t, &tls.Config{ServerName: "evil.example"}), []byte("evil")) {
		conn.Write(part)
	}
	if said, err := io.ReadAll(in); !bytes.Equal(said, unrecognizedName) || err != nil {
		t.Errorf("the client got %q, %v", said, err)
	}
	if said := <-got; len(said) != 0 {
		t.Errorf("the server got %q", said)
	}
	w.refusedOnce(fmt.Sprintf("example.com:%d", port))
}

func TestATunnelForOtherProtocolsCarriesBothWays(t *testing.T) {
	// The server speaks first, and the client ends its half before the server does.
	port := server(t, func(conn net.Conn) {
		io.WriteString(conn, "220 ready\r\n")
		said, _ := io.ReadAll(conn)
		fmt.Fprintf(conn, "%d bytes, %q", len(said), said[:1])
	})
	w := newWorld(t, "127.0.0.1", "")
	for said, want := range map[string]string{
		"hello":                    `5 bytes, "h"`,
		strings.Repeat("x", 1<<20): `1048576 bytes, "x"`,
		"\xff":                     `1 bytes, "\xff"`,
	} {
		conn, in := w.tunnel(fmt.Sprintf("127.0.0.1:%d", port))
		if line, err := in.ReadString('\n'); err != nil || line != "220 ready\r\n" {
			t.Fatalf("%q %v", line, err)
		}
		io.WriteString(conn, said)
		conn.CloseWrite()
		if rest, err := io.ReadAll(in); string(rest) != want {
			t.Errorf("%d bytes: %q %v", len(said), rest, err)
		}
	}
	silent := server(t, func(conn net.Conn) { io.WriteString(conn, "time") })
	conn, in := w.tunnel(fmt.Sprintf("127.0.0.1:%d", silent))
	conn.CloseWrite()
	if rest, err := io.ReadAll(in); string(rest) != "time" {
		t.Errorf("a client that says nothing: %q %v", rest, err)
	}
}

func FuzzReadHello(f *testing.F) {
	f.Add(madeHello(nameExtension("\x00a.example")))
	f.Add(inRecords(madeHello([]byte{0, 10, 0, 2, 0, 29}, nameExtension("\x00b.example")), 9))
	f.Add(realHello(f, &tls.Config{ServerName: "www.example.com"}))
	f.Add([]byte("\x80\x2e\x01\x03\x01"))
	f.Fuzz(func(t *testing.T, said []byte) {
		name, size, state := readHello(said)
		if state != helloComplete && name != "" {
			t.Fatalf("state %d with %q", state, name)
		}
		if state == helloAbsent || state == helloMalformed {
			return
		}
		// What is decided stays so, whatever comes behind it.
		if state == helloComplete {
			if size > len(said) {
				t.Fatalf("%d bytes of %d", size, len(said))
			}
			if again, _, state := readHello(append(bytes.Clone(said), said...)); again != name || state != helloComplete {
				t.Fatalf("%q, and with more behind it %q, state %d", name, again, state)
			}
		}
		if state != helloComplete || said[0] != recordHandshake {
			return
		}
		// Where the standard library's server takes the hello, it reads the same name.
		read, taken := "", false
		tls.Server(recorded{in: bytes.NewReader(said)}, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			read, taken = hello.ServerName, true
			return nil, io.EOF
		}}).Handshake()
		if taken && read != strings.TrimSuffix(name, ".") && read != name {
			t.Fatalf("read as %q, by the standard library as %q", name, read)
		}
	})
}

// recorded is a connection on which all was said that will be.
type recorded struct {
	net.Conn
	in io.Reader
}

func (r recorded) Read(b []byte) (int, error)     { return r.in.Read(b) }
func (recorded) Write(b []byte) (int, error)      { return len(b), nil }
func (recorded) Close() error                     { return nil }
func (recorded) SetWriteDeadline(time.Time) error { return nil }

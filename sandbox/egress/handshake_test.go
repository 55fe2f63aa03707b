package egress

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// saidBy is a server's hello: one that asks for another hello, or not.
func saidBy(random []byte) []byte {
	body := slices.Concat([]byte{serverHello, 0, 0, 40, 3, 3}, random, []byte{0, 0x13, 0x01, 0, 0, 0})
	return append([]byte{recordHandshake, 3, 3, 0, byte(len(body))}, body...)
}

var (
	asksAgain = saidBy(retryRandom)
	goesOn    = saidBy(bytes.Repeat([]byte{7}, 32))
	change    = []byte{recordChange, 3, 3, 0, 1, 1}
	earlyData = []byte{recordData, 3, 3, 0, 3, 1, 2, 3}
)

// record is one of the handshake, of these messages.
func record(messages ...[]byte) []byte {
	all := bytes.Join(messages, nil)
	return append([]byte{recordHandshake, 3, 3, byte(len(all) >> 8), byte(len(all))}, all...)
}

func message(kind byte, size int) []byte {
	return append([]byte{kind, 0, byte(size >> 8), byte(size)}, make([]byte, size)...)
}

// Every hello of a handshake is judged, whatever stands around it, whenever it comes, and however
// it is cut.
func TestASecondHelloForAnotherNameDoesNotReachTheServer(t *testing.T) {
	good, evil := madeHello(nameExtension("\x00example.com")), madeHello(nameExtension("\x00evilfro.com"))
	for name, c := range map[string]struct {
		server  []byte   // what it says to the first hello
		client  [][]byte // what the client says after it, in pieces
		refused bool
	}{
		"after a retry":                         {asksAgain, [][]byte{evil}, true},
		"behind a change of cipher":             {asksAgain, [][]byte{change, evil}, true},
		"behind many":                           {asksAgain, [][]byte{change, change, change, evil}, true},
		"behind early data":                     {asksAgain, [][]byte{change, earlyData, evil}, true},
		"behind early data alone":               {asksAgain, [][]byte{earlyData, earlyData, evil}, true},
		"in small records":                      {asksAgain, [][]byte{change, inRecords(evil, 1)}, true},
		"cut at a record":                       {asksAgain, [][]byte{change, evil[:3], evil[3:]}, true},
		"without a name":                        {asksAgain, [][]byte{change, madeHello()}, true},
		"behind a good one in its record":       {asksAgain, [][]byte{record(good[5:], evil[5:])}, true},
		"behind an alert":                       {asksAgain, [][]byte{{recordAlert, 3, 3, 0, 2, 1, 0}, evil}, true},
		"another message in place of the hello": {asksAgain, [][]byte{record(message(16, 70))}, true},
		"before the server goes on":             {goesOn, [][]byte{evil}, true},
		"in the middle of a handshake":          {goesOn, [][]byte{record(message(11, 300)), record(message(16, 70), evil[5:])}, true},
		"a header in two records":               {goesOn, [][]byte{record(message(16, 70)[:2]), record(message(16, 70)[2:], []byte{clientHello})}, true},
		"behind a server's warning":             {append([]byte{recordAlert, 3, 3, 0, 2, 1, 112}, asksAgain...), [][]byte{change, evil}, true},
		"a retry in small records":              {inRecords(asksAgain, 5), [][]byte{change, evil}, true},
		"no record":                             {asksAgain, [][]byte{[]byte("GET / HTTP/1.1\r\n\r\n")}, true},

		"the same name":             {asksAgain, [][]byte{change, good}, false},
		"the same name, small":      {asksAgain, [][]byte{change, earlyData, inRecords(good, 9)}, false},
		"an older handshake":        {goesOn, [][]byte{record(message(11, 300), message(16, 70)), record(message(15, 80)), change, record([]byte{1, 2, 3, 4})}, false},
		"a resumed one":             {goesOn, [][]byte{change, record([]byte{1, 0, 0, 4}), {recordData, 3, 3, 0, 1, 1}, record([]byte{1, 2})}, false},
		"a newer one":               {goesOn, [][]byte{change, {recordData, 3, 3, 0, 1, 1}, record([]byte{1, 2})}, false},
		"a server that is not TLS":  {[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), [][]byte{change, earlyData}, false},
		"a server that is cut":      {inRecords(goesOn, 3), [][]byte{change, record([]byte{1, 2})}, false},
		"a fresh one behind a good": {asksAgain, [][]byte{change, good, {recordData, 3, 3, 0, 1, 1}}, false},
	} {
		got := make(chan []byte, 1)
		port := server(t, func(conn net.Conn) {
			first := make([]byte, len(good))
			io.ReadFull(conn, first)
			conn.Write(c.server)
			rest, _ := io.ReadAll(conn)
			got <- append(first, rest...)
		})
		w := newWorld(t, "example.com 127.0.0.1", "")
		w.names["example.com"] = "127.0.0.1"
		conn, in := w.tunnel(fmt.Sprintf("example.com:%d", port))
		conn.Write(good) // all at once: who waits for no answer is not ahead of the judgement
		for _, piece := range c.client {
			conn.Write(piece)
		}
		conn.CloseWrite()
		said := <-got
		if said := string(said); strings.Contains(said, "evil") || c.refused && strings.HasSuffix(said, string(c.client[len(c.client)-1])) {
			t.Errorf("%s: the server got %q", name, said)
		}
		if all := slices.Concat(good, bytes.Join(c.client, nil)); !c.refused && !bytes.Equal(said, all) {
			t.Errorf("%s: the server got %q, want %q", name, said, all)
		}
		told, _ := io.ReadAll(in) // the server's answer and the alert, whichever came first
		list, _ := w.proxy.Refusals()
		if c.refused != (len(list) == 1) || c.refused != bytes.Contains(told, unrecognizedName) {
			t.Errorf("%s: the client got %q, noted %v", name, told, list)
		}
	}
}

// A name that is spelled so that only some readers take it for the allowed one leads others to the
// host that they serve whoever asks for none of theirs.
func TestTheServerNameIsComparedByItsBytes(t *testing.T) {
	for _, to := range []string{"example.com", "127.0.0.1"} {
		for _, said := range []string{
			"example.com.", "ｅxample.com", "exam\u00adple.com", "example\u3002com", "example\uff0ecom", "exam\u200bple.com", "ex\u00e4mple.com",
			"example.com\x00", " example.com", "example.com ", "example.com:443", "127.0.0.1", "::1", "0x7f.1", "..", "*.example.com", "\u24d4xample.com",
			"denied.example", "DENIED.example", "denied.example.", "ｄenied.example", "den\u00adied.example",
		} {
			got := make(chan []byte, 1)
			port := server(t, func(conn net.Conn) {
				all, _ := io.ReadAll(conn)
				got <- all
			})
			w := newWorld(t, "example.com 127.0.0.1", "denied.example")
			w.names["example.com"] = "127.0.0.1"
			conn, _ := w.tunnel(fmt.Sprintf("%s:%d", to, port))
			conn.Write(madeHello(nameExtension("\x00" + said)))
			conn.CloseWrite()
			if all := <-got; len(all) != 0 {
				t.Errorf("to %s, the server name %q: the server got %q", to, said, all)
			}
		}
	}
}

func TestRealHandshakesGoThrough(t *testing.T) {
	front := httptest.NewUnstartedServer(nil)
	front.StartTLS()
	defer front.Close()
	certificate := front.TLS.Certificates[0]
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate},
		CurvePreferences: []tls.CurveID{tls.CurveP256}, ClientAuth: tls.RequestClientCert})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var curves sync.Map
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				conn.(*tls.Conn).Handshake()
				curves.Store(conn.(*tls.Conn).ConnectionState().HelloRetryRequest, true)
				io.Copy(conn, conn)
			}()
		}
	}()
	port := portOf(listener)
	for name, config := range map[string]*tls.Config{
		"1.3, at once":         {CurvePreferences: []tls.CurveID{tls.CurveP256}},
		"1.3, with a retry":    {CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256}},
		"1.2":                  {MaxVersion: tls.VersionTLS12},
		"1.2, a client's name": {MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}},
		"1.3, a client's name": {Certificates: []tls.Certificate{certificate}},
	} {
		config.ServerName, config.InsecureSkipVerify, config.ClientSessionCache = "example.com", true, tls.NewLRUClientSessionCache(4)
		for range 3 { // resumed, from the second on
			w := newWorld(t, "example.com 127.0.0.1", "")
			w.names["example.com"] = "127.0.0.1"
			conn, _ := w.tunnel(fmt.Sprintf("example.com:%d", port))
			secure := tls.Client(conn, config)
			text := bytes.Repeat([]byte("x"), 100_000)
			go secure.Write(text)
			back := make([]byte, len(text))
			if _, err := io.ReadFull(secure, back); err != nil || !bytes.Equal(back, text) {
				t.Errorf("%s: %v", name, err)
			}
			if list, _ := w.proxy.Refusals(); len(list) != 0 {
				t.Errorf("%s: refused %v", name, list)
			}
			secure.Close()
		}
	}
	if _, retried := curves.Load(true); !retried {
		t.Error("no handshake had a retry")
	}
}

func FuzzAsksForRetry(f *testing.F) {
	f.Add(asksAgain, 3)
	f.Add(goesOn, 50)
	f.Add(append([]byte{recordAlert, 3, 3, 0, 2, 1, 112}, inRecords(asksAgain, 4)...), 11)
	f.Fuzz(func(t *testing.T, said []byte, cut int) {
		retry, enough := asksForRetry(said)
		if retry && !enough {
			t.Fatal("a retry that is not known")
		}
		// Told in two parts, it is the same, and what comes later changes nothing.
		talk := newServerTalk()
		at := min(max(cut, 0), len(said))
		talk.Write(said[:at])
		talk.Write(said[at:])
		if again, known := talk.answered(); again != retry || known != enough {
			t.Fatalf("%v %v, in parts %v %v", retry, enough, again, known)
		}
		if more, known := asksForRetry(append(bytes.Clone(said), said...)); enough && (more != retry || !known) {
			t.Fatalf("%v, and with more %v %v", retry, more, known)
		}
	})
}

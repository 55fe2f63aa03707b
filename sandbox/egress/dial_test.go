package egress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

func TestARefusalSaysWhichNameWhichRuleAndWhatToType(t *testing.T) {
	for _, c := range []struct {
		allowed, denied, to, want string
	}{
		{"", "", "example.org:443", "example.org:443 is refused: no rule allows it; a person can allow it with --allow-domain example.org:443, or with allowedDomains in the configuration"},
		{"example.org:80", "", "EXAMPLE.org.:443", "example.org:443 is refused: no rule allows it;"},
		{"*", "*.evil.example", "a.evil.example:443", "a.evil.example:443 is refused: the rule *.evil.example denies it; a person can take that out of deniedDomains or --deny-domain"},
		{"*", "", "127.0.0.1:443", "127.0.0.1:443 is refused: that is this machine itself, which only a rule of its own allows; a person can allow it with --allow-domain 127.0.0.1:443"},
		{"*", "", "[::1]:443", "a person can allow it with --allow-domain [::1]:443"},
		{"*", "", "8.8.8.8:53", "8.8.8.8:53 is refused: no rule allows it;"},
		{"*", "", "169.254.169.254:80", "a cloud's metadata service, which hands out credentials"},
		{"*", "", "inward.example:443", "inward.example:443 is refused: it leads to 10.1.2.3, and that is a private network, which only a rule of its own allows; a person can allow it with --allow-domain 10.1.2.3:443"},
		{"*", "", "mapped.example:443", "it leads to 127.0.0.1, and that is this machine itself"},
		{"*", "", "translated.example:443", "it leads to 64:ff9b::7f00:1, and that is this machine itself"},
		{"*", "8.8.8.0/24", "outward.example:443", "it leads to 8.8.8.8, and the rule 8.8.8.0/24 denies it"},
		{"*", "", "localhost:443", "localhost:443 is refused: no rule allows it"},
		{"*", "", "0x7f.1:443", `"0x7f.1" is refused: an address in an unusual form; write four decimal numbers, as 192.0.2.7`},
		{"*", "", "2130706433:80", `"2130706433" is refused: an address in an unusual form`},
		{"*", "", "[::ffff:127.0.0.1]:80", `"::ffff:127.0.0.1" is refused: an IPv4 address in an IPv6 one`},
		{"*", "", "0.0.0.0:80", "that is this machine itself"},
	} {
		w := newWorld(t, c.allowed, c.denied)
		w.names = map[string]string{"inward.example": "10.1.2.3", "mapped.example": "::ffff:127.0.0.1",
			"translated.example": "64:ff9b::7f00:1", "outward.example": "8.8.8.8"}
		head, body, _ := strings.Cut(w.says("CONNECT "+c.to+" HTTP/1.1\r\n\r\n"), "\r\n\r\n")
		if !strings.HasPrefix(head, "HTTP/1.1 403 Forbidden (clai-sandbox: ") || !strings.HasPrefix(body, "clai-sandbox: ") || !strings.Contains(body, c.want) {
			t.Errorf("%s: %s\n%s\nwant %s", c.to, head, body, c.want)
		}
		list, _ := w.proxy.Refusals()
		var said RefusedError
		_, structured, _ := strings.Cut(head, "\r\n"+refusedHeader+": ")
		structured, _, _ = strings.Cut(structured, "\r\n")
		if err := json.Unmarshal([]byte(structured), &said); err != nil || len(list) != 1 || said != list[0] {
			t.Errorf("%s: for programs: %s, %v", c.to, structured, err)
		}
		if len(list) != 1 || "clai-sandbox: "+list[0].Error()+"\n" != body {
			t.Errorf("%s: %v is noted", c.to, list)
		}
	}
}

func TestANameThatLeadsToThisMachinesOwnAddressIsRefused(t *testing.T) {
	w := newWorld(t, "* 0.0.0.0/0", "")
	w.names["outward.example"] = "8.8.8.8"
	w.proxy.Own = func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("8.8.8.8")}, nil }
	for _, to := range []string{"outward.example:443", "8.8.8.8:443"} {
		if answer := w.says("CONNECT " + to + " HTTP/1.1\r\n\r\n"); !strings.Contains(answer, "that is an address of this machine itself") {
			t.Errorf("%s: %s", to, answer)
		}
	}
	w.proxy.Own = func() ([]netip.Addr, error) { return nil, errors.New("no answer") }
	if answer := w.says("CONNECT outward.example:443 HTTP/1.1\r\n\r\n"); !strings.HasPrefix(answer, "HTTP/1.1 502 ") {
		t.Errorf("where they are not known: %s", answer)
	}
	list, err := (&Proxy{}).own()
	if err != nil || !slices.Contains(list, netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("this machine's: %v, %v", list, err)
	}
}

func TestNothingIsResolvedForANameThatIsNotAllowed(t *testing.T) {
	w := newWorld(t, "example.org", "secret.example.org")
	for _, to := range []string{"c2VjcmV0.example.net:443", "secret.example.org:443", "127.0.0.1:1"} {
		w.says("CONNECT " + to + " HTTP/1.1\r\n\r\n")
	}
	if n := w.resolved.Load(); n != 0 {
		t.Errorf("%d names were resolved", n)
	}
}

// A name that leads somewhere harmless when it is judged, and to this machine when it is looked up
// again.
func TestANameIsResolvedOnceAndTheConnectionMadeToThatAddress(t *testing.T) {
	port := server(t, func(conn net.Conn) { io.WriteString(conn, "SERVED") })
	w := newWorld(t, fmt.Sprintf("rebound.example 127.0.0.2:%d", port), "")
	var asked atomic.Int32
	w.proxy.Resolve = func(context.Context, string) ([]netip.Addr, error) {
		if asked.Add(1) == 1 {
			return []netip.Addr{netip.MustParseAddr("127.0.0.2")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	answer := w.says(fmt.Sprintf("CONNECT rebound.example:%d HTTP/1.1\r\n\r\n", port))
	if n := asked.Load(); n != 1 || strings.Contains(answer, "SERVED") || !strings.Contains(answer, "502") {
		t.Errorf("asked %d times: %s", n, answer)
	}
}

func TestOfManyAddressesOnlyThoseThatMayBeAreTried(t *testing.T) {
	// It answers at 127.0.0.1, which is allowed, and at 127.0.0.4, which is not.
	port := server(t, func(conn net.Conn) { io.WriteString(conn, "SERVED") }, "127.0.0.4")
	reachable := fmt.Sprintf("127.0.0.1:%d", port)
	for addresses, reached := range map[string]bool{
		"10.0.0.1 127.0.0.1":       true,
		"127.0.0.1 10.0.0.1":       true,
		"127.0.0.3 127.0.0.1":      true, // 127.0.0.3 may be tried, and nobody is there
		"169.254.169.254 10.0.0.1": false,
		"127.0.0.3 127.0.0.4":      false, // nor then the next, which is not allowed, and answers
		"127.0.0.4 127.0.0.3":      false,
		strings.Repeat("10.0.0.1 ", maxAddresses) + " 127.0.0.1": false, // one too many
	} {
		w := newWorld(t, "many.example "+reachable+" 127.0.0.3", "")
		w.names["many.example"] = addresses
		answer := w.says(fmt.Sprintf("CONNECT many.example:%d HTTP/1.1\r\n\r\n", port))
		if strings.Contains(answer, "SERVED") != reached {
			t.Errorf("%s: %s", addresses, answer)
		}
	}
}

func TestLocalhostIsReachedWhereItIsNamed(t *testing.T) {
	port := server(t, func(conn net.Conn) { io.WriteString(conn, "SERVED") })
	w := newWorld(t, "localhost", "")
	if answer := w.says(fmt.Sprintf("CONNECT localhost:%d HTTP/1.1\r\n\r\n", port)); !strings.Contains(answer, "SERVED") {
		t.Error(answer)
	}
	if n := w.resolved.Load(); n != 0 {
		t.Error("a name server was asked for localhost")
	}
}

func TestWhatIsAllowedAndCannotBeReachedSaysSo(t *testing.T) {
	closed := listen(t)
	closed.Close()
	w := newWorld(t, "nowhere.example 127.0.0.1", "")
	for to, want := range map[string]string{
		"nowhere.example:443":                       "nowhere.example:443 cannot be reached: there is no such name",
		fmt.Sprintf("127.0.0.1:%d", portOf(closed)): "cannot be reached: connection refused",
	} {
		if answer := w.says("CONNECT " + to + " HTTP/1.1\r\n\r\n"); !strings.HasPrefix(answer, "HTTP/1.1 502 ") || !strings.Contains(answer, want) {
			t.Errorf("%s: %s", to, answer)
		}
	}
	if list, _ := w.proxy.Refusals(); len(list) != 0 {
		t.Errorf("refused: %v", list)
	}
}

func TestAnUnlistedNameCanBeAskedFor(t *testing.T) {
	port := server(t, echo)
	for _, c := range []struct {
		rule    string // that the answer adds
		asked   int32  // for two connections
		reached bool
	}{
		{"", 2, false},
		{"asked.example", 1, true},
		{"other.example", 2, false},
	} {
		w := newWorld(t, "127.0.0.1", "denied.example")
		w.names["asked.example"] = "127.0.0.1"
		w.proxy.Own = func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("8.8.8.8")}, nil }
		var asked atomic.Int32
		w.proxy.Ask = func(_ context.Context, to profile.Destination) string {
			if to.String() != fmt.Sprintf("asked.example:%d", port) {
				t.Errorf("asked for %s", to)
			}
			asked.Add(1)
			w.proxy.SetRules(rules(t, "127.0.0.1 "+c.rule, "denied.example"))
			return "a person said something"
		}
		for range 2 {
			// What the client says meanwhile is not lost.
			answer := w.says(fmt.Sprintf("CONNECT asked.example:%d HTTP/1.1\r\n\r\nhello", port))
			if strings.HasSuffix(answer, "\r\n\r\nhello") != c.reached {
				t.Errorf("with %q: %s", c.rule, answer)
			}
			if !c.reached && !strings.Contains(answer, "no rule allows it, and a person said something; do not go round it") {
				t.Errorf("with %q: %s", c.rule, answer)
			}
		}
		for _, to := range []string{"denied.example:443", "169.254.169.254:80", "0x7f.1:80", "localhost:443", "a.localhost:443", "10.0.0.1:443", "8.8.8.8:53", "[64:ff9b::a00:1]:443"} {
			if answer := w.says("CONNECT " + to + " HTTP/1.1\r\n\r\n"); !strings.HasPrefix(answer, "HTTP/1.1 403") {
				t.Errorf("%s: %s", to, answer)
			}
		}
		if n := asked.Load(); n != c.asked {
			t.Errorf("with %q: asked %d times, want %d", c.rule, n, c.asked)
		}
	}
}

func TestAQuestionEndsWithTheClient(t *testing.T) {
	w := newWorld(t, "", "")
	begun, ended := make(chan struct{}), make(chan struct{})
	w.proxy.Ask = func(ctx context.Context, _ profile.Destination) string {
		close(begun)
		<-ctx.Done()
		close(ended)
		return ""
	}
	conn := w.dial()
	io.WriteString(conn, "CONNECT asked.example:443 HTTP/1.1\r\n\r\n")
	<-begun
	conn.Close()
	<-ended
	w.proxy.Close()
	if list, _ := w.proxy.Refusals(); len(list) != 1 || !strings.Contains(list[0].Why, "nobody answered while it was waited for") {
		t.Errorf("noted: %v", list)
	}
}

// A name that an answer allowed leads where it leads: to a private network no answer opens the way.
func TestAnAnswerOpensNoPrivateAddress(t *testing.T) {
	w := newWorld(t, "", "")
	w.names["inward.example"] = "10.1.2.3"
	w.proxy.Ask = func(context.Context, profile.Destination) string {
		w.proxy.SetRules(rules(t, "inward.example", ""))
		return ""
	}
	if answer := w.says("CONNECT inward.example:443 HTTP/1.1\r\n\r\n"); !strings.Contains(answer, "it leads to 10.1.2.3, and that is a private network") {
		t.Error(answer)
	}
}

func TestOtherRulesEndTheConnectionsThatTheyTakeAwayAndNoOthers(t *testing.T) {
	port := server(t, echo)
	w := newWorld(t, "127.0.0.1 kept.example gone.example", "")
	w.names["kept.example"], w.names["gone.example"] = "127.0.0.1", "127.0.0.1"
	kept, keptIn := w.tunnel(fmt.Sprintf("kept.example:%d", port))
	gone, goneIn := w.tunnel(fmt.Sprintf("gone.example:%d", port))
	echoes := func(conn net.Conn, in io.Reader) error {
		io.WriteString(conn, "x")
		_, err := io.ReadFull(in, make([]byte, 1))
		return err
	}
	if err := errors.Join(echoes(kept, keptIn), echoes(gone, goneIn)); err != nil {
		t.Fatal(err)
	}
	w.proxy.SetRules(rules(t, "127.0.0.1 kept.example", ""))
	if err := echoes(gone, goneIn); err == nil {
		t.Error("what was taken away goes on")
	}
	if err := echoes(kept, keptIn); err != nil {
		t.Errorf("what was not taken away has ended: %v", err)
	}
	if answer := w.says(fmt.Sprintf("CONNECT gone.example:%d HTTP/1.1\r\n\r\n", port)); !strings.HasPrefix(answer, "HTTP/1.1 403") {
		t.Error(answer)
	}
}

func TestTheListOfRefusalsIsBounded(t *testing.T) {
	w := newWorld(t, "", "")
	for i := range maxRefusals + 5 {
		w.says(fmt.Sprintf("CONNECT n%d.example:443 HTTP/1.1\r\n\r\n", i))
		w.says("CONNECT n0.example:443 HTTP/1.1\r\n\r\n")
	}
	if list, more := w.proxy.Refusals(); len(list) != maxRefusals || more != 5 {
		t.Errorf("%d and %d more", len(list), more)
	}
}
